//! Limits and facts that a request states.

use longhaul_engine::send::source::{Source, Sources, What};
use longhaul_proto::sender::MOST_LARGE_FILES;

/// Returns the maximum number of large files that a receiver can keep open. `said` is its own
/// limit; 0 means that it gave none.
pub fn large_files(said: u32) -> usize {
    match said {
        0 => MOST_LARGE_FILES,
        said => MOST_LARGE_FILES.min(said as usize),
    }
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
