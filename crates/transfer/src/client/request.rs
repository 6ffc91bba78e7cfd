//! Converts sources and paths for a request.

use longhaul_engine::send::source::{Source, Sources, What};
use longhaul_proto::handshake::RequestPath;
use longhaul_proto::sender::MOST_LARGE_FILES;
use longhaul_storage::measuring::{ZERO_NAME, zero_source};

use crate::endpoint::RemotePath;

/// Returns the maximum number of large files that a receiver can keep open. `said` is its own
/// limit; 0 means that it gave none.
pub fn large_files(said: u32) -> usize {
    match said {
        0 => MOST_LARGE_FILES,
        said => MOST_LARGE_FILES.min(said as usize),
    }
}

/// Returns the path for a request to the other host.
pub fn request_path(path: &RemotePath) -> RequestPath {
    match path {
        RemotePath::Path(path) => RequestPath::Path(path.clone()),
        RemotePath::Null => RequestPath::Null,
        RemotePath::Zero(size) => RequestPath::Zero(size.0),
    }
}

/// Returns a source of zeros.
pub fn zero_of(size: u64) -> Source {
    let what = What::File {
        name: ZERO_NAME.into(),
        landing: ZERO_NAME.into(),
    };
    Source::new(zero_source(size).into(), what, "zero:".to_owned())
}

/// True if a transfer consists of one file.
pub fn single_file(sources: &Sources) -> bool {
    matches!(
        sources.list(),
        [Source {
            what: What::File { .. },
            ..
        }]
    )
}
