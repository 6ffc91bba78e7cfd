//! What a system call's error means to a user: the thing, the cause, the
//! remedy.

use std::io;

use longhaul_proto::message::{Failure, FailureKind};
use rustix::io::Errno;

use crate::storage::following::LinkError;

/// What a link that is not followed means to a user.
fn link_failure(shown: &str, error: &LinkError) -> Failure {
    let (kind, remedy) = match error {
        LinkError::Dangling(_) => (FailureKind::Vanished, "mend or remove the link"),
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

/// What is done with a file that is open.
const UNNAMED: [&str; 5] = [
    "make durable",
    "read",
    "read back",
    "reserve room for it",
    "finish the directory",
];

/// The failure of doing `what` (an infinitive) with the thing `shown`.
pub fn failure_of(what: &str, shown: &str, error: &io::Error) -> Failure {
    if let Some(error) = LinkError::within(error) {
        return link_failure(shown, error);
    }
    let (kind, remedy) = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::ACCESS | Errno::PERM) => (
            FailureKind::Permission,
            "; check its owner and mode, or run as a user who may",
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
        Some(Errno::DQUOT) => (FailureKind::NoSpace, "; your quota there is used up"),
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
        Some(Errno::ISDIR | Errno::NOTDIR | Errno::EXIST | Errno::NOTEMPTY) => (
            FailureKind::Conflict,
            "; something else has that name: move it away",
        ),
        // Nothing that is done with an open file has to do with its name.
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
