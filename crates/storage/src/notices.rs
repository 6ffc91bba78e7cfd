//! Notices about metadata and operations that a destination does not support. They are not
//! failures: names and data arrive nevertheless. Each kind is kept once, with a count and the first
//! example.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use std::sync::Mutex;

use longhaul_proto::notice::{Notice, NoticeKind};
use longhaul_system::queue::lock;
use longhaul_system::refusals::is_refusal;

/// The notices of one receiving end.
#[derive(Debug, Default)]
pub struct Notices(Mutex<BTreeMap<NoticeKind, Notice>>);

impl Notices {
    /// Counts a notice. `example` and `cause` are only evaluated for the first of its kind.
    pub fn note(&self, kind: NoticeKind, example: &dyn Display, cause: impl FnOnce() -> String) {
        let mut kept = lock(&self.0);
        match kept.get_mut(&kind) {
            Some(notice) => notice.count = notice.count.saturating_add(1),
            None => {
                kept.insert(kind, Notice::new(kind, example.to_string(), cause()));
            }
        }
    }

    /// Adds all notices of another list.
    pub fn merge(&self, others: Notices) {
        let others = others.0.into_inner();
        let others = others.unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut kept = lock(&self.0);
        for (kind, other) in others {
            match kept.get_mut(&kind) {
                Some(notice) => notice.count = notice.count.saturating_add(other.count),
                None => drop(kept.insert(kind, other)),
            }
        }
    }

    /// Converts the result of an operation that a file system may refuse. `None` if it was refused,
    /// which is recorded as a notice.
    ///
    /// # Errors
    ///
    /// Errors other than a refusal ([`is_refusal`]).
    pub fn wish<T>(
        &self,
        kind: NoticeKind,
        example: &dyn Display,
        result: io::Result<T>,
    ) -> io::Result<Option<T>> {
        match result {
            Err(error) if is_refusal(&error) => {
                self.note(kind, example, || error.to_string());
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// True if a notice of this kind was recorded.
    pub fn has(&self, kind: NoticeKind) -> bool {
        lock(&self.0).contains_key(&kind)
    }

    /// Returns all notices.
    pub fn list(&self) -> Vec<Notice> {
        lock(&self.0).values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn a_kind_is_kept_once_with_its_first_example() {
        let notices = Notices::default();
        let refused = |name: &str| {
            let error = io::Error::from(Errno::PERM);
            notices.wish::<()>(NoticeKind::ModeRefused, &name, Err(error))
        };
        assert_eq!(refused("a").unwrap(), None);
        assert_eq!(refused("b").unwrap(), None);
        let others = Notices::default();
        others.note(NoticeKind::ModeRefused, &"c", String::new);
        notices.merge(others);
        let [notice] = notices.list().try_into().unwrap();
        assert_eq!((notice.count, notice.example.as_str()), (3, "a"));
        assert!(notice.cause.contains("not permitted"), "{}", notice.cause);
    }

    #[test]
    fn hard_errors_are_not_refusals() {
        let notices = Notices::default();
        for errno in [
            Errno::IO,
            Errno::NOSPC,
            Errno::DQUOT,
            Errno::ROFS,
            Errno::STALE,
            Errno::NOMEM,
            Errno::NOENT,
            Errno::NOTCONN,
        ] {
            let result = notices.wish::<()>(NoticeKind::TimeRefused, &"a", Err(errno.into()));
            assert!(result.is_err(), "{errno:?}");
        }
        assert!(notices.list().is_empty());
    }
}
