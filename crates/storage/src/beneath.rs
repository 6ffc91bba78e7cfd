//! Opening names and paths so that nothing leads out of the root.

use std::io;
use std::sync::Arc;

use longhaul_proto::manifest::TreePath;
use rustix::io::Errno;

use super::Directory;
use super::posix::PosixDirectory;
use longhaul_system::refusals::or_without;

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

#[cfg(test)]
mod tests;
