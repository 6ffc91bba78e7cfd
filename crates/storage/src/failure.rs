//! Explains the error of a system call to a user: the affected file, the cause, and the remedy.

use std::io;

use longhaul_proto::message::{Failure, FailureKind};
use rustix::io::Errno;

use crate::following::LinkError;
use crate::inodes::NoInodes;
use crate::spelling::OtherSpelling;
use crate::spill::TemporaryError;

/// Explains a link that is not followed.
fn link_failure(shown: &str, error: &LinkError) -> Failure {
    let (kind, remedy) = match error {
        LinkError::Dangling(_) => (FailureKind::Vanished, "fix or remove the link"),
        LinkError::Outside(_) => (
            FailureKind::Permission,
            "copy what it leads to by its own path, or copy links as links",
        ),
        LinkError::Endless | LinkError::Cycle => (
            FailureKind::Conflict,
            "it is left out; remove the link, or copy links as links",
        ),
    };
    Failure::new(kind, format!("{shown}: {error}; {remedy}"))
}

/// Copies an error that several operations must report.
pub fn again(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

/// Operations on an open file.
const UNNAMED: [&str; 5] = [
    "make durable",
    "read",
    "read back",
    "reserve room for it",
    "finish the directory",
];

/// Remedy for an exhausted quota.
const QUOTA: &str = "; the quota of bytes or files that its owner, group or project has there is used \
                     up: remove some of its files, or ask for more, and run the same command again";

/// Explains an error that has more information than the number of a system call's error.
fn explained(what: &str, shown: &str, error: &io::Error) -> Option<Failure> {
    if let Some(error) = LinkError::within(error) {
        return Some(link_failure(shown, error));
    }
    if let Some(error) = TemporaryError::within(error) {
        let Failure { kind, .. } = failure_of(what, shown, &error.source);
        return Some(Failure::new(kind, error.to_string()));
    }
    if let Some(missing) = NoInodes::within(error) {
        let text = format!(
            "{shown}: cannot {what}: {missing}; remove some files there and run the same command \
             again"
        );
        return Some(Failure::new(FailureKind::NoSpace, text));
    }
    let other = OtherSpelling::within(error)?;
    let text = format!("{shown}: {other}");
    Some(Failure::new(FailureKind::Conflict, text))
}

/// Explains the failure of doing `what` (an infinitive) with the file or directory `shown`.
pub fn failure_of(what: &str, shown: &str, error: &io::Error) -> Failure {
    if let Some(failure) = explained(what, shown, error) {
        return failure;
    }
    let (kind, remedy) = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::ACCESS) => (
            FailureKind::Permission,
            "; check its owner and mode, or run as a user who may",
        ),
        // Missing permission bits cause EACCES instead.
        Some(Errno::PERM) => (
            FailureKind::Permission,
            "; check its owner, and with `lsattr` whether it, what it replaces or its directory \
             is immutable or append-only (`chattr -i -a` as root ends that)",
        ),
        Some(Errno::STALE | Errno::NOTCONN | Errno::CONNABORTED | Errno::NODEV) => (
            FailureKind::Other,
            "; its file system is gone: mount it again, and run the same command again",
        ),
        Some(Errno::ROFS) => (
            FailureKind::Permission,
            "; the file system is mounted read-only",
        ),
        Some(Errno::NOENT) => (
            FailureKind::Vanished,
            "; it was removed or renamed meanwhile",
        ),
        Some(Errno::NOSPC) => (
            FailureKind::NoSpace,
            "; free some room and run the same command again",
        ),
        Some(Errno::DQUOT) => (FailureKind::NoSpace, QUOTA),
        Some(Errno::FBIG) => (
            FailureKind::NoSpace,
            "; that file system cannot hold so large a file",
        ),
        Some(Errno::MFILE | Errno::NFILE) => (
            FailureKind::TooManyOpen,
            "; raise the limit of open files (ulimit -n)",
        ),
        Some(Errno::LOOP) => (
            FailureKind::Conflict,
            "; a symbolic link is in its place, and links are not followed there",
        ),
        Some(Errno::NOTDIR) => (
            FailureKind::Conflict,
            "; a file or a symbolic link is in the place of a directory: move it away",
        ),
        Some(Errno::ISDIR | Errno::EXIST | Errno::NOTEMPTY) => (
            FailureKind::Conflict,
            "; something else has that name: move it away",
        ),
        // An operation on an open file cannot fail because of its name.
        Some(Errno::INVAL) if UNNAMED.contains(&what) => {
            (FailureKind::Other, "; that file system does not do it")
        }
        Some(Errno::NAMETOOLONG | Errno::ILSEQ | Errno::INVAL) => (
            FailureKind::Name,
            "; that file system cannot have such a name",
        ),
        Some(Errno::IO) => (
            FailureKind::Other,
            "; look for disk errors in the kernel's log",
        ),
        _ => (FailureKind::Other, ""),
    };
    Failure::new(kind, format!("{shown}: cannot {what}: {error}{remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(errno: Errno) -> String {
        failure_of("write", "d/f", &errno.into()).text
    }

    #[test]
    fn a_forbidden_operation_suggests_an_immutable_file() {
        let text = text_of(Errno::PERM);
        assert!(
            text.contains("lsattr") && text.contains("immutable"),
            "{text}"
        );
        let text = text_of(Errno::ACCESS);
        assert!(
            text.contains("owner and mode") && !text.contains("immutable"),
            "{text}"
        );
    }

    #[test]
    fn a_quota_that_is_used_up_is_no_full_disk() {
        let failure = failure_of("write", "d/f", &Errno::DQUOT.into());
        assert_eq!(failure.kind, FailureKind::NoSpace);
        for part in ["d/f", "quota of bytes or files", "ask for more"] {
            assert!(failure.text.contains(part), "{}", failure.text);
        }
    }

    #[test]
    fn missing_inodes_are_not_called_missing_room() {
        let missing = NoInodes(longhaul_units::ByteCount(5_000_000));
        let error = io::Error::new(io::ErrorKind::StorageFull, missing);
        let failure = failure_of("write", "d/f", &error);
        assert_eq!(failure.kind, FailureKind::NoSpace);
        for part in ["d/f: cannot write", "no inodes left", "5.00 MB are free"] {
            assert!(failure.text.contains(part), "{}", failure.text);
        }
    }

    #[test]
    fn a_link_in_the_place_of_a_directory_is_named() {
        let text = text_of(Errno::NOTDIR);
        assert!(text.contains("a file or a symbolic link is in"), "{text}");
    }

    #[test]
    fn a_file_system_that_is_gone_is_no_matter_of_the_file() {
        for errno in [Errno::STALE, Errno::NOTCONN, Errno::NODEV] {
            let text = text_of(errno);
            assert!(text.contains("mount it again"), "{text}");
        }
    }

    #[test]
    fn a_full_directory_for_temporary_files_is_not_called_the_file() {
        let full = TemporaryError::wrap(Errno::NOSPC.into(), std::path::Path::new("/small"));
        let failure = failure_of("write", "standard output", &full);
        assert_eq!(failure.kind, FailureKind::NoSpace);
        for part in ["/small", "TMPDIR", "No space", "free some room"] {
            assert!(failure.text.contains(part), "{}", failure.text);
        }
        assert!(
            !failure.text.contains("standard output"),
            "{}",
            failure.text
        );
    }
}
