//! Locates the directory for backups by its path and the destination's path.

use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, OnceLock};

use longhaul_proto::manifest::TreePath;
use longhaul_storage::Directory;
use longhaul_system::refusals::or_without;
use rustix::io::Errno;

/// Mode of directories that are created for backups beneath the anchor, before the umask.
const NEW_DIRECTORY_MODE: u32 = 0o777;

/// Returns the names of a path that only leads downwards; `None` if it may lead elsewhere.
pub(super) fn downwards(path: &[u8]) -> Option<Vec<&[u8]>> {
    let names = path.split(|byte| *byte == b'/');
    let names: Vec<&[u8]> = names.filter(|name| !matches!(*name, b"" | b".")).collect();
    let stays = !path.starts_with(b"/") && !names.contains(&&b".."[..]) && !names.is_empty();
    stays.then_some(names)
}

/// Returns the rest of a path after a part of it that is the anchor, if the rest does not leave the
/// anchor. Links beneath the anchor are not followed, because an earlier copy may have brought
/// them.
pub(super) fn beneath(anchor: &Path, path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    let mut parts: Vec<&Path> = path.ancestors().collect();
    parts.reverse();
    let mut anchors = parts.into_iter().filter(|part| real(part) == anchor);
    anchors.find_map(|part| downwards_alone(path.strip_prefix(part).ok()?))
}

/// Returns a path without `.` and `..`; `None` if it leads above its start.
fn downwards_alone(path: &Path) -> Option<PathBuf> {
    let mut names = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name),
            Component::ParentDir if !names.pop() => return None,
            _ => {}
        }
    }
    Some(names)
}

/// Returns a path without links and dots, as far as it exists.
pub fn real(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let there = path.ancestors().find_map(|above| {
        let real = above.canonicalize().ok()?;
        Some((real, path.strip_prefix(above).ok()?))
    });
    let Some((mut real, missing)) = there else {
        return path;
    };
    for component in missing.components() {
        match component {
            Component::ParentDir => {
                real.pop();
            }
            Component::Normal(name) => real.push(name),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    real
}

/// Creates directories beneath the anchor, each from its parent, never through a symbolic link.
/// Their names are durable afterwards. A failed sync is stored in `unsynced` and fails all later
/// calls: a later sync would succeed although that name is lost.
pub(super) fn make_beneath(
    anchor: &Arc<dyn Directory>,
    path: &TreePath,
    unsynced: &OnceLock<i32>,
) -> io::Result<Arc<dyn Directory>> {
    if let Some(number) = unsynced.get() {
        return Err(io::Error::from_raw_os_error(*number));
    }
    let mut directory = Arc::clone(anchor);
    for name in path.names() {
        let below = match directory.open_directory(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                match directory.make_directory(name, NEW_DIRECTORY_MODE) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                        return Err(error);
                    }
                    _ => {}
                }
                directory.open_directory(name)?
            }
            other => other?,
        };
        // An existing directory may be from a run that was killed before its sync.
        or_without(directory.sync()).inspect_err(|error| {
            let number = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
            let _ = unsynced.set(number);
        })?;
        directory = below;
    }
    Ok(directory)
}
