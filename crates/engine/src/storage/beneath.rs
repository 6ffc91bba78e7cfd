//! Opening names and paths so that nothing leads out of the root.
//!
//! Where the kernel has `openat2` (Linux 5.6) it does the work, a whole path
//! in one call. Where it has not, or a sandbox forbids it, each name is opened
//! from its parent's handle with `O_NOFOLLOW`: a single name that is neither
//! `..` nor a link can only lead down.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
#[cfg(target_os = "linux")]
use std::sync::OnceLock;

use longhaul_proto::manifest::TreePath;
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

use super::Directory;
use super::posix::PosixDirectory;
use crate::descriptors;
use crate::notices::or_without;

/// Who keeps a path beneath its root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// The kernel, with `openat2`.
    Kernel,
    /// We, name by name.
    Walk,
}

impl Resolution {
    /// The kernel, where it has `openat2` and lets us use it. Asked once.
    #[cfg(target_os = "linux")]
    pub fn available() -> Resolution {
        static AVAILABLE: OnceLock<Resolution> = OnceLock::new();
        *AVAILABLE.get_or_init(|| {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let resolve = rustix::fs::ResolveFlags::NO_SYMLINKS;
            let trial = rustix::fs::openat2(rustix::fs::CWD, c"/", flags, Mode::empty(), resolve);
            match trial {
                // Old kernels do not have it; sandboxes that do not know it
                // answer either of the two.
                Err(Errno::NOSYS | Errno::PERM) => Resolution::Walk,
                _ => Resolution::Kernel,
            }
        })
    }

    /// Only Linux has `openat2`.
    #[cfg(not(target_os = "linux"))]
    pub fn available() -> Resolution {
        Resolution::Walk
    }
}

/// Bytes that a path given to one system call may have (`PATH_MAX` less the
/// NUL); a [`TreePath`] may have more.
const CALL_PATH_MAXIMUM: usize = 4095;

/// Mode of directories that are made above a destination or a directory of backups, before the
/// umask.
const NEW_DIRECTORY_MODE: u32 = 0o777;

/// Mode of a directory that is made to be filled: what a source hides from others is not seen by
/// them meanwhile. The sticky bit, which means nothing without rights for others, tells a later
/// session that it was made so, and is not done.
pub const FILLING_MODE: u32 = 0o1700;

/// Whether a mode is [`FILLING_MODE`], except for what it has from the directory above.
pub fn is_filling(mode: u32) -> bool {
    mode & 0o1777 == FILLING_MODE
}

/// Opens a directory at a path of any number of names beneath `root`,
/// following no link on the way.
///
/// # Errors
///
/// As [`Directory::open_directory`] for each name.
pub fn open_beneath(root: &dyn Directory, path: &TreePath) -> io::Result<Arc<dyn Directory>> {
    let bytes = path.as_bytes();
    match root.as_any().downcast_ref::<PosixDirectory>() {
        Some(root) if bytes.len() <= CALL_PATH_MAXIMUM => match root.open_path(bytes) {
            Some(Err(error)) if is_unresolved(&error) => walk(root, path),
            Some(opened) => opened,
            None => walk(root, path),
        },
        _ => walk(root, path),
    }
}

/// Makes a directory beneath `root`, and those above it, each from the one above; follows no link
/// on the way. Opens it, also where it is there. A new one has [`FILLING_MODE`].
///
/// # Errors
///
/// As [`Directory::make_directory`], [`Directory::sync`] and [`Directory::open_directory`] for each
/// name.
pub fn make_beneath(root: &Arc<dyn Directory>, path: &TreePath) -> io::Result<Arc<dyn Directory>> {
    let mut directory = Arc::clone(root);
    let mut names = path.names().peekable();
    while let Some(name) = names.next() {
        directory = match directory.open_directory(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mode = match names.peek() {
                    Some(_) => NEW_DIRECTORY_MODE,
                    None => FILLING_MODE,
                };
                match directory.make_directory(name, mode) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                        return Err(error);
                    }
                    _ => {}
                }
                // Whoever is told that something in it is durable relies on its name too.
                or_without(directory.sync())?;
                directory.open_directory(name)?
            }
            other => other?,
        };
    }
    Ok(directory)
}

/// The kernel gives up where names are moved while it resolves; the walk never
/// has to.
fn is_unresolved(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::AGAIN.raw_os_error())
}

fn walk(root: &dyn Directory, path: &TreePath) -> io::Result<Arc<dyn Directory>> {
    let mut current: Option<Arc<dyn Directory>> = None;
    for name in path.names() {
        current = Some(match &current {
            None => root.open_directory(name)?,
            Some(parent) => parent.open_directory(name)?,
        });
    }
    // A proved path has at least one name.
    current.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Opens one name in a directory, or, where the kernel resolves, a path.
/// `flags` have `NOFOLLOW`, and `name` was checked.
#[cfg(target_os = "linux")]
pub(super) fn open(
    directory: BorrowedFd<'_>,
    name: &[u8],
    flags: OFlags,
    mode: Mode,
    resolution: Resolution,
) -> rustix::io::Result<OwnedFd> {
    use rustix::fs::{ResolveFlags, openat2};
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let open = || match resolution {
        Resolution::Kernel => openat2(directory, name, flags, mode, resolve),
        Resolution::Walk => openat(directory, name, flags, mode),
    };
    descriptors::patiently(|| rustix::io::retry_on_intr(open))
}

/// Opens one name in a directory.
#[cfg(not(target_os = "linux"))]
pub(super) fn open(
    directory: BorrowedFd<'_>,
    name: &[u8],
    flags: OFlags,
    mode: Mode,
    _: Resolution,
) -> rustix::io::Result<OwnedFd> {
    let open = || openat(directory, name, flags, mode);
    descriptors::patiently(|| rustix::io::retry_on_intr(open))
}

/// Proves that bytes are one name that leads neither up nor elsewhere.
///
/// # Errors
///
/// `InvalidInput` for the empty name, `.`, `..`, and what has a `/` or NUL.
pub fn check_name(name: &[u8]) -> io::Result<()> {
    let dots = name == b"." || name == b"..";
    if name.is_empty() || dots || name.iter().any(|&byte| byte == b'/' || byte == 0) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("\"{}\" is not a single name", name.escape_ascii()),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
