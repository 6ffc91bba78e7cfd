//! Errors of operations that a file system does not support, or not for this user. The operation is
//! then left out.

use std::io;

use rustix::io::Errno;

/// Ignores an error if it is a refusal ([`is_refusal`]).
///
/// # Errors
///
/// Every other error.
pub fn or_without(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if is_refusal(&error) => Ok(()),
        other => other,
    }
}

/// The kernel's internal `ENOTSUPP`, which some file system drivers return instead of `EOPNOTSUPP`.
const KERNEL_NOT_SUPPORTED: Errno = Errno::from_raw_os_error(524);

/// True if an error means that the file system does not support an operation, or not for this user.
/// Every other error, such as `EIO`, `ENOSPC`, `EDQUOT` or `EROFS`, is a failure.
pub fn is_refusal(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(Errno::from_raw_os_error),
        Some(
            Errno::PERM
                | Errno::ACCESS
                | Errno::OPNOTSUPP
                | Errno::NOSYS
                | Errno::INVAL
                | Errno::NOTTY
                | Errno::OVERFLOW
                | Errno::RANGE
                | KERNEL_NOT_SUPPORTED
        )
    )
}
