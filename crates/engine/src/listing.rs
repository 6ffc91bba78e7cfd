//! Lists a path of this host: each directory in byte order, a directory before its contents, in
//! constant memory. Links are listed, not followed.

use std::io;
use std::path::Path;
use std::sync::Arc;

use longhaul_proto::listing::{Details, ListedEntry, ListedKind};
use longhaul_proto::manifest::{RESERVED_PREFIX, TreePath};
use longhaul_proto::message::{Failure, FailureKind};
use longhaul_storage::failure::failure_of;
use longhaul_storage::listing::SortedListing;
use longhaul_storage::nested::Nested;
use longhaul_storage::roots::{OpenRoot, split};
use longhaul_storage::{Directory, FileKind, Status};

/// Extent of a listing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// If true, the contents of directories are listed too.
    pub recursive: bool,
    /// If true, mode, size, time and target of each entry are included.
    pub details: bool,
}

/// An item of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// An entry.
    Entry(ListedEntry),
    /// An entry that could not be examined; the listing continues.
    Failed(Failure),
}

/// Reasons why a listing fails or ends.
#[derive(Debug, thiserror::Error)]
pub enum ListError<E> {
    /// The named path cannot be opened.
    #[error("cannot list {path}: {}", reason(error))]
    Open {
        /// The path.
        path: String,
        /// Error of the operating system.
        error: io::Error,
    },
    /// The receiver of the listing wants no more.
    #[error("the receiver of the listing wants no more")]
    Told(E),
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => format!("{error}: check how it is written"),
        _ => error.to_string(),
    }
}

/// Lists a directory, or a file by its name. A link is followed if `open` follows it.
///
/// # Errors
///
/// [`ListError`].
pub fn list<E>(
    open: &dyn OpenRoot,
    path: &[u8],
    depth: Depth,
    tell: &mut dyn FnMut(Found) -> Result<(), E>,
) -> Result<(), ListError<E>> {
    let failed = |error| ListError::Open {
        path: String::from_utf8_lossy(path).into_owned(),
        error,
    };
    let directory = match open.open_root(as_path(path)) {
        Ok(directory) => directory,
        Err(error) => {
            let (directory, name) = beside(open, path, error).map_err(failed)?;
            let found = look(&*directory, &name, None, depth.details);
            return found.map_or(Ok(()), |(found, _)| tell(found).map_err(ListError::Told));
        }
    };
    let listing = SortedListing::open_nested(&*directory, 0).map_err(failed)?;
    let top = Level {
        listing,
        path: None,
    };
    walk((directory, top), depth, tell).map_err(ListError::Told)
}

/// Lists each of these paths, named relative to `above`, and the contents of the directories among
/// them.
///
/// # Errors
///
/// Errors of `tell`.
pub fn list_each<E>(
    open: &dyn OpenRoot,
    (above, paths): (&[u8], &[Vec<u8>]),
    depth: Depth,
    tell: &mut dyn FnMut(Found) -> Result<(), E>,
) -> Result<(), E> {
    for path in paths {
        let end = path.iter().rposition(|byte| *byte != b'/');
        let path = &path[..end.map_or(0, |last| last + 1)];
        let Ok(named) = TreePath::new(path.strip_prefix(above).unwrap_or(path)) else {
            continue;
        };
        let shown = named.to_string();
        let parent = match open.open_root(as_path(split(path).0)) {
            Ok(parent) => parent,
            Err(error) => {
                tell(Found::Failed(failure_of("look at it", &shown, &error)))?;
                continue;
            }
        };
        let found = look(
            &*parent,
            named.name(),
            named.parent().as_ref(),
            depth.details,
        );
        let Some((found, enters)) = found else {
            continue;
        };
        tell(found)?;
        if let Some(path) = enters {
            let inner = parent.open_directory(named.name());
            let opened =
                inner.and_then(|inner| Ok((SortedListing::open_nested(&*inner, 0)?, inner)));
            match opened {
                Ok((listing, directory)) => {
                    let path = Some(path);
                    let top = Level { listing, path };
                    walk((directory, top), depth, tell)?;
                }
                Err(error) => tell(unlisted(Some(&path), &error))?,
            }
        }
    }
    Ok(())
}

fn as_path(path: &[u8]) -> &Path {
    use std::os::unix::ffi::OsStrExt;
    Path::new(std::ffi::OsStr::from_bytes(path))
}

/// A directory, and a name in it.
type Beside = (Arc<dyn Directory>, Box<[u8]>);

/// Returns the parent directory and the name of a path that is not a directory, which `error`
/// reports.
fn beside(open: &dyn OpenRoot, path: &[u8], error: io::Error) -> io::Result<Beside> {
    let (parent, name) = split(path);
    // A path with a slash at its end means a directory.
    if matches!(name, b"" | b"." | b"..") {
        return Err(error);
    }
    let directory = open.open_root(as_path(parent)).map_err(|_| error)?;
    let status = directory.status_of(name)?;
    match status.kind {
        FileKind::Directory => directory.open_directory(name).map(drop)?,
        FileKind::File | FileKind::Symlink | FileKind::Special => {}
    }
    Ok((directory, name.into()))
}

/// A directory that is being listed.
struct Level {
    listing: SortedListing,
    path: Option<TreePath>,
}

fn walk<E>(
    (directory, top): (Arc<dyn Directory>, Level),
    depth: Depth,
    tell: &mut dyn FnMut(Found) -> Result<(), E>,
) -> Result<(), E> {
    let (mut levels, mut open) = (vec![top], Nested::default());
    open.push(directory, b"");
    while let Some(level) = levels.last_mut() {
        let listed = match level.listing.next() {
            Some(Ok(listed)) if listed.name.starts_with(RESERVED_PREFIX) => continue,
            Some(Ok(listed)) => listed,
            Some(Err(error)) => {
                tell(unlisted(level.path.as_ref(), &error))?;
                levels.pop();
                open.pop();
                continue;
            }
            None => {
                levels.pop();
                open.pop();
                continue;
            }
        };
        let directory = match open.last() {
            Ok(directory) => directory,
            Err(error) => {
                tell(unlisted(level.path.as_ref(), &error))?;
                levels.pop();
                open.pop();
                continue;
            }
        };
        let found = match listed.kind.filter(|_| !depth.details) {
            Some(kind) => bare(&listed.name, level.path.as_ref(), kind),
            None => look(
                &*directory,
                &listed.name,
                level.path.as_ref(),
                depth.details,
            ),
        };
        let Some((found, enters)) = found else {
            continue;
        };
        tell(found)?;
        if let Some(path) = enters.filter(|_| depth.recursive) {
            let inner = directory.open_directory(&listed.name);
            let opened = inner
                .and_then(|inner| Ok((SortedListing::open_nested(&*inner, levels.len())?, inner)));
            match opened {
                Ok((listing, directory)) => {
                    open.push(directory, &listed.name);
                    levels.push(Level {
                        listing,
                        path: Some(path),
                    });
                }
                Err(error) => tell(unlisted(Some(&path), &error))?,
            }
        }
    }
    Ok(())
}

/// The entry of a name, and its path if it is a directory.
type Looked = (Found, Option<TreePath>);

fn path_of(name: &[u8], above: Option<&TreePath>) -> Result<TreePath, Found> {
    let path = TreePath::beneath(above, name);
    path.map_err(|_| {
        let above = above.map_or(String::new(), |above| format!("{above}/"));
        let text = format!("{above}{}: the path is too long", name.escape_ascii());
        Found::Failed(Failure::new(FailureKind::Name, text))
    })
}

/// Returns the entry of a name whose kind is known, without details.
fn bare(name: &[u8], above: Option<&TreePath>, kind: FileKind) -> Option<Looked> {
    let path = match path_of(name, above) {
        Ok(path) => path,
        Err(found) => return Some((found, None)),
    };
    let enters = (kind == FileKind::Directory).then(|| path.clone());
    let entry = ListedEntry {
        path,
        kind: listed_kind(kind),
        details: None,
    };
    Some((Found::Entry(entry), enters))
}

/// Examines a name; `None` if it was removed meanwhile.
fn look(
    directory: &dyn Directory,
    name: &[u8],
    above: Option<&TreePath>,
    details: bool,
) -> Option<Looked> {
    let path = match path_of(name, above) {
        Ok(path) => path,
        Err(found) => return Some((found, None)),
    };
    let looked = directory.status_of(name).and_then(|status| {
        let wants_target = details && status.kind == FileKind::Symlink;
        let target = wants_target.then(|| directory.read_symlink(name));
        Ok((status, target.transpose()?))
    });
    match looked {
        Ok((status, target)) => {
            let enters = (status.kind == FileKind::Directory).then(|| path.clone());
            let entry = ListedEntry {
                path,
                kind: listed_kind(status.kind),
                details: details.then(|| details_of(&status, target)),
            };
            Some((Found::Entry(entry), enters))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            let failure = failure_of("look at it", &path.to_string(), &error);
            Some((Found::Failed(failure), None))
        }
    }
}

fn details_of(status: &Status, target: Option<Box<[u8]>>) -> Details {
    Details {
        mode: status.mode,
        size: status.size,
        modified: status.modified,
        target: target.map(|target| target.into_vec().into()),
    }
}

fn listed_kind(kind: FileKind) -> ListedKind {
    match kind {
        FileKind::File => ListedKind::File,
        FileKind::Directory => ListedKind::Directory,
        FileKind::Symlink => ListedKind::Symlink,
        FileKind::Special => ListedKind::Special,
    }
}

fn unlisted(path: Option<&TreePath>, error: &io::Error) -> Found {
    let shown = path.map_or_else(|| ".".to_owned(), TreePath::to_string);
    Found::Failed(failure_of("list the directory", &shown, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::send::wildcards::{Room, above_wildcards, expand};
    use longhaul_storage::posix::PosixDirectory;
    use longhaul_storage::roots::{Anywhere, Confined};
    use std::os::unix::ffi::OsStrExt;

    fn listed(open: &dyn OpenRoot, path: &[u8], depth: Depth) -> Vec<Found> {
        let mut found = Vec::new();
        let told = list::<()>(open, path, depth, &mut |one| {
            found.push(one);
            Ok(())
        });
        told.unwrap();
        found
    }

    fn names(found: &[Found]) -> Vec<String> {
        let name = |found: &Found| match found {
            Found::Entry(entry) => entry.path.to_string(),
            Found::Failed(failure) => format!("failed: {}", failure.text),
        };
        found.iter().map(name).collect()
    }

    #[test]
    fn a_directory_is_listed_in_byte_order_before_its_contents() {
        let place = tempfile::tempdir().unwrap();
        for directory in ["b", "b/deep", "a b", "a"] {
            std::fs::create_dir_all(place.path().join(directory)).unwrap();
        }
        for file in ["b/x", "b/deep/y", "B", "a.b", ".longhaul-part", ".hidden"] {
            std::fs::write(place.path().join(file), "12345").unwrap();
        }
        std::os::unix::fs::symlink("b/x", place.path().join("link")).unwrap();
        let path = place.path().as_os_str().as_bytes();
        for details in [false, true] {
            let mut depth = Depth {
                recursive: false,
                details,
            };
            let flat = listed(&Anywhere, path, depth);
            assert_eq!(
                names(&flat),
                [".hidden", "B", "a", "a b", "a.b", "b", "link"]
            );
            depth.recursive = true;
            let deep = listed(&Anywhere, path, depth);
            let all = [
                ".hidden", "B", "a", "a b", "a.b", "b", "b/deep", "b/deep/y", "b/x", "link",
            ];
            assert_eq!(names(&deep), all);
            let Some(Found::Entry(link)) = deep.last() else {
                panic!("{deep:?}");
            };
            assert_eq!(link.kind, ListedKind::Symlink);
            let target = link.details.as_ref().map(|details| details.target.clone());
            assert_eq!(target, details.then(|| Some(b"b/x".to_vec().into())));
        }
    }

    #[test]
    fn a_file_is_listed_by_its_name_and_a_missing_path_is_named() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("file"), "12345").unwrap();
        let path = place.path().join("file");
        let depth = Depth {
            details: true,
            ..Depth::default()
        };
        let found = listed(&Anywhere, path.as_os_str().as_bytes(), depth);
        let [Found::Entry(entry)] = found.as_slice() else {
            panic!("{found:?}");
        };
        assert_eq!(
            (entry.path.as_bytes(), entry.kind),
            (&b"file"[..], ListedKind::File)
        );
        assert_eq!(entry.details.as_ref().map(|details| details.size), Some(5));
        for missing in ["none", "file/", "none/"] {
            let path = place.path().join(missing);
            let told = list::<()>(&Anywhere, path.as_os_str().as_bytes(), depth, &mut |_| {
                Ok(())
            });
            assert!(
                matches!(told, Err(ListError::Open { .. })),
                "{missing}: {told:?}"
            );
        }
    }

    #[test]
    fn matches_of_a_pattern_are_listed_with_their_paths() {
        let place = tempfile::tempdir().unwrap();
        for directory in ["data/run1/deep", "data/run2", "data/other"] {
            std::fs::create_dir_all(place.path().join(directory)).unwrap();
        }
        for file in [
            "data/run1/a.h5",
            "data/run1/deep/b.h5",
            "data/run2/a.h5",
            "data/runs",
        ] {
            std::fs::write(place.path().join(file), "").unwrap();
        }
        let confined = Confined(PosixDirectory::open_root(place.path()).unwrap());
        let told = |pattern: &[u8], recursive| {
            let depth = Depth {
                recursive,
                details: true,
            };
            let paths = expand(&confined, pattern, false, Room::WHOLE).unwrap();
            let mut found = Vec::new();
            let matches = (above_wildcards(pattern), &paths[..]);
            list_each::<()>(&confined, matches, depth, &mut |one| {
                found.push(one);
                Ok(())
            })
            .unwrap();
            names(&found)
        };
        assert_eq!(told(b"data/run?/*.h5", false), ["run1/a.h5", "run2/a.h5"]);
        let flat = [
            "run1",
            "run1/a.h5",
            "run1/deep",
            "run2",
            "run2/a.h5",
            "runs",
        ];
        assert_eq!(told(b"data/run*", false), flat);
        let deep = [&flat[..3], &["run1/deep/b.h5"], &flat[3..5]].concat();
        assert_eq!(told(b"data/run?/", true)[..4], deep[..4]);
    }

    #[test]
    fn paths_outside_of_a_root_are_not_listed() {
        let (outside, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(outside.path().join("secret"), "").unwrap();
        std::os::unix::fs::symlink(outside.path(), root.path().join("link")).unwrap();
        let confined = Confined(PosixDirectory::open_root(root.path()).unwrap());
        let found = listed(&confined, b"link", Depth::default());
        assert_eq!(names(&found), ["link"], "the link itself");
        for path in [&b"link/"[..], b"link/secret", b"..", b"../x"] {
            let told = list::<()>(&confined, path, Depth::default(), &mut |_| Ok(()));
            assert!(told.is_err(), "{path:?}");
        }
    }

    #[test]
    fn a_listing_ends_when_its_receiver_stops() {
        let place = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c"] {
            std::fs::write(place.path().join(name), "").unwrap();
        }
        let mut told = 0;
        let path = place.path().as_os_str().as_bytes();
        let ended = list(&Anywhere, path, Depth::default(), &mut |_| {
            told += 1;
            Err("enough")
        });
        assert!(matches!(ended, Err(ListError::Told("enough"))));
        assert_eq!(told, 1);
    }
}
