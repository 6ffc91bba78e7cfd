//! Opens names and paths without leaving the root.

use std::io;
use std::sync::Arc;

use longhaul_proto::manifest::TreePath;
use rustix::io::Errno;

use super::Directory;
use super::posix::PosixDirectory;
use longhaul_system::refusals::or_without;

/// Maximum length in bytes of a path in one system call (`PATH_MAX` without the NUL). A
/// [`TreePath`] may be longer.
const CALL_PATH_MAXIMUM: usize = 4095;

/// Mode, before the umask, of new directories above a destination or a directory of backups.
const NEW_DIRECTORY_MODE: u32 = 0o777;

/// Mode of a directory that is being filled. It prevents other users from reading content that the
/// source protects. The sticky bit, which has no effect without rights for others, shows a later
/// session that the directory is new and not complete.
pub const FILLING_MODE: u32 = 0o1700;

/// True if a mode is [`FILLING_MODE`], apart from bits inherited from the parent directory.
pub fn is_filling(mode: u32) -> bool {
    mode & 0o1777 == FILLING_MODE
}

/// Opens a directory at a path of any number of names beneath `root`. Links are not followed.
///
/// # Errors
///
/// The errors of [`Directory::open_directory`] for each name.
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

/// Creates a directory beneath `root` with its parents, without following links, and opens it.
/// Existing directories are accepted. A new one has [`FILLING_MODE`].
///
/// # Errors
///
/// The errors of [`Directory::make_directory`], [`Directory::sync`] and
/// [`Directory::open_directory`] for each name.
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
                // The name must be durable before content of the directory can be.
                or_without(directory.sync())?;
                directory.open_directory(name)?
            }
            other => other?,
        };
    }
    Ok(directory)
}

/// True if the kernel gave up because names were moved during the lookup. A name-by-name walk does
/// not have this problem.
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
    // A checked path has at least one name.
    current.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

#[cfg(test)]
mod tests;
