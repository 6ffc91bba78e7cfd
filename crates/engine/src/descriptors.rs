//! How many files may be open: what a process may have is shared out before it
//! is used up, so that a low limit makes a copy slower and not fail.

use std::sync::OnceLock;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::shares;

/// Descriptors that this process may have (`RLIMIT_NOFILE`), as of the first
/// call.
fn limit() -> usize {
    static LIMIT: OnceLock<usize> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let limit = getrlimit(Resource::Nofile).current;
        limit.map_or(usize::MAX, |limit| {
            usize::try_from(limit).unwrap_or(usize::MAX)
        })
    })
}

/// One part in `parts` of them.
pub(crate) fn part(parts: usize) -> usize {
    limit() / parts.max(1)
}

/// Does something that opens a file. Where this process has as many open as it may, and another
/// session may close some, it is tried again for a while.
pub(crate) fn patiently<T>(
    mut open: impl FnMut() -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    let mut left = PATIENCE;
    loop {
        match open() {
            Err(Errno::MFILE | Errno::NFILE) if !left.is_zero() && shares::has_others() => {
                // tidy: reason: the kernel tells nobody when a descriptor is free again.
                std::thread::sleep(PAUSE);
                left = left.saturating_sub(PAUSE);
            }
            done => return done,
        }
    }
}

/// How long one who needs a descriptor waits for others, and when it looks again.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);

/// One part in `parts` of them, at least one and at most `most`.
pub(crate) fn share(parts: usize, most: usize) -> usize {
    (limit() / parts.max(1)).clamp(1, most)
}

/// As [`share`], of what is left when `others` have theirs.
pub(crate) fn share_after(others: usize, parts: usize, most: usize) -> usize {
    (limit().saturating_sub(others) / parts.max(1)).clamp(1, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_at_least_one_and_no_more_than_useful() {
        assert_eq!(share(usize::MAX, 64), 1);
        assert_eq!(share(0, 7), share(1, 7));
        assert!(share(2, 64) <= 64);
        assert_eq!(share_after(usize::MAX, 1, 64), 1);
        assert!(share_after(10, 4, 64) <= share(4, 64));
    }
}
