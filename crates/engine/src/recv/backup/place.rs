//! Where a directory for backups lies, by its path and the destination's.

use std::path::{Component, Path, PathBuf};

/// The names of a path that only leads downwards; `None` if it may lead elsewhere.
pub(super) fn downwards(path: &[u8]) -> Option<Vec<&[u8]>> {
    let names = path.split(|byte| *byte == b'/');
    let names: Vec<&[u8]> = names.filter(|name| !matches!(*name, b"" | b".")).collect();
    let stays = !path.starts_with(b"/") && !names.contains(&&b".."[..]) && !names.is_empty();
    stays.then_some(names)
}

/// What follows of a path after a part of it that is the anchor, and does not lead out of that
/// again. Links beneath the anchor are not followed to find it: an earlier copy may have brought
/// them.
pub(super) fn beneath(anchor: &Path, path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    let mut parts: Vec<&Path> = path.ancestors().collect();
    parts.reverse();
    let mut anchors = parts.into_iter().filter(|part| real(part) == anchor);
    anchors.find_map(|part| downwards_alone(path.strip_prefix(part).ok()?))
}

/// A path without dots; `None` if it leads upwards from where it begins.
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

/// A path without links and dots, as far as it is there.
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
