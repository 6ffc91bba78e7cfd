//! Sources and paths as a request names them.

use longhaul_engine::send::source::{Source, Sources, What};
use longhaul_proto::handshake::RequestPath;
use longhaul_proto::sender::MOST_LARGE_FILES;
use longhaul_storage::measuring::{ZERO_NAME, zero_source};

use crate::endpoint::RemotePath;

/// Large files that a receiver can have open, by its word, if it gave one.
pub fn large_files(said: u32) -> usize {
    match said {
        0 => MOST_LARGE_FILES,
        said => MOST_LARGE_FILES.min(said as usize),
    }
}

/// A path of another host, as that is asked for it.
pub fn request_path(path: &RemotePath) -> RequestPath {
    match path {
        RemotePath::Path(path) => RequestPath::Path(path.clone()),
        RemotePath::Null => RequestPath::Null,
        RemotePath::Zero(size) => RequestPath::Zero(size.0),
    }
}

/// A source of zeros.
pub fn zero_of(size: u64) -> Source {
    let what = What::File {
        name: ZERO_NAME.into(),
        landing: ZERO_NAME.into(),
    };
    Source::new(zero_source(size).into(), what, "zero:".to_owned())
}

/// Whether a transfer has one file and no tree.
pub fn single_file(sources: &Sources) -> bool {
    matches!(
        sources.list(),
        [Source {
            what: What::File { .. },
            ..
        }]
    )
}
