//! Opens a name or path that must not lead out of its directory.
//!
//! The kernel resolves a whole path in one call if it has `openat2` (Linux 5.6). Otherwise, or if a
//! sandbox forbids it, each name is opened from its parent's handle with `O_NOFOLLOW`: a single
//! name that is neither `..` nor a link can only lead down.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
#[cfg(target_os = "linux")]
use std::sync::OnceLock;

use longhaul_system::descriptors;
use rustix::fs::{Mode, OFlags, openat};
#[cfg(target_os = "linux")]
use rustix::io::Errno;

/// Mechanism that keeps a path beneath its root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// The kernel, by `openat2`.
    Kernel,
    /// This process, which opens one name after the other.
    Walk,
}

impl Resolution {
    /// Returns [`Resolution::Kernel`] if the kernel has `openat2` and permits it. Tests this once.
    #[cfg(target_os = "linux")]
    pub fn available() -> Resolution {
        static AVAILABLE: OnceLock<Resolution> = OnceLock::new();
        *AVAILABLE.get_or_init(|| {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let resolve = rustix::fs::ResolveFlags::NO_SYMLINKS;
            let trial = rustix::fs::openat2(rustix::fs::CWD, c"/", flags, Mode::empty(), resolve);
            match trial {
                // Old kernels do not have the call. Sandboxes that do not know it return one of
                // these errors.
                Err(Errno::NOSYS | Errno::PERM) => Resolution::Walk,
                _ => Resolution::Kernel,
            }
        })
    }

    /// Returns [`Resolution::Walk`], because only Linux has `openat2`.
    #[cfg(not(target_os = "linux"))]
    pub fn available() -> Resolution {
        Resolution::Walk
    }
}

/// Opens one name in a directory, or a path if the kernel resolves it. `flags` must have
/// `NOFOLLOW`, and `name` must have been checked.
#[cfg(target_os = "linux")]
pub(crate) fn open(
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
pub(crate) fn open(
    directory: BorrowedFd<'_>,
    name: &[u8],
    flags: OFlags,
    mode: Mode,
    _: Resolution,
) -> rustix::io::Result<OwnedFd> {
    let open = || openat(directory, name, flags, mode);
    descriptors::patiently(|| rustix::io::retry_on_intr(open))
}

/// Checks that a name is a single one that leads neither up nor elsewhere.
///
/// # Errors
///
/// `InvalidInput` for the empty name, `.`, `..`, and names with a `/` or NUL.
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
