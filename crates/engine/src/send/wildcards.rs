//! Sources with `*`, `?` and `[…]` in their names that no shell has seen: those of
//! another host's. They mean what a shell there would make of them.

use std::io;
use std::sync::Arc;

use glob::{MatchOptions, Pattern};
use longhaul_storage::Directory;
use longhaul_storage::roots::{OpenRoot, split};

use super::source::{open_named, trim_slashes};

/// How much the patterns of one command may stand for: their directories are copied whole for
/// less.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    names: usize,
    /// Of the names, with all that is above them.
    bytes: usize,
}

impl Room {
    /// What one command has.
    pub const WHOLE: Room = Room {
        names: 100_000,
        bytes: 16 << 20,
    };

    /// What is left with these; `None` if they are too many.
    fn without(self, found: &[Vec<u8>]) -> Option<Room> {
        let bytes = found.iter().map(Vec::len).sum();
        Some(Room {
            names: self.names.checked_sub(found.len())?,
            bytes: self.bytes.checked_sub(bytes)?,
        })
    }
}

const OPTIONS: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    // It has `*.x` match `.x`: that is looked at here.
    require_literal_leading_dot: false,
};

/// Reasons to reject a pattern.
#[derive(Debug, thiserror::Error)]
pub enum ExpandError {
    /// It matches more names than there is room for.
    #[error(
        "{0} stands for too many names, more than {names} or {mebibytes} MiB in all: copy the \
         directory that they are in",
        names = Room::WHOLE.names,
        mebibytes = Room::WHOLE.bytes >> 20
    )]
    TooMany(String),
    /// A directory could not be listed to its end, so that matching names may be missing.
    #[error("{pattern}: cannot list {directory}: {error}")]
    Unlisted {
        /// The pattern.
        pattern: String,
        /// The directory.
        directory: String,
        /// The error of the listing.
        error: io::Error,
    },
}

/// What a source's path stands for, in byte order and as much as there is room for: the path alone
/// where it has no wildcard, where something has that very name, or where nothing matches.
/// Links on the way are followed where `follows` says so, or `open` does it by itself.
///
/// # Errors
///
/// [`ExpandError`].
pub fn expand(
    open: &dyn OpenRoot,
    path: &[u8],
    follows: bool,
    room: Room,
) -> Result<Vec<Vec<u8>>, ExpandError> {
    let trimmed = trim_slashes(path);
    let alone = || Ok(vec![path.to_vec()]);
    let names = trimmed.split(|byte| *byte == b'/');
    let names = names.filter(|name| !name.is_empty());
    let names: Vec<_> = names.map(|name| (name, pattern_of(name))).collect();
    let open = Opening { open, follows };
    if names.iter().all(|(_, pattern)| pattern.is_none()) || open.has(trimmed) {
        return alone();
    }
    let root: &[u8] = if path.starts_with(b"/") { b"/" } else { b"" };
    let mut found = vec![root.to_vec()];
    for (name, pattern) in &names {
        let mut next = Next {
            names: Vec::new(),
            room,
        };
        for above in &found {
            let fits = match pattern {
                None => Ok(next.add(joined(above, name))),
                Some(pattern) => open.add_matching(above, pattern, &mut next),
            };
            let pattern = || String::from_utf8_lossy(path).into_owned();
            let fits = fits.map_err(|error| ExpandError::Unlisted {
                pattern: pattern(),
                directory: String::from_utf8_lossy(above).into_owned(),
                error,
            })?;
            fits.ok_or_else(|| ExpandError::TooMany(pattern()))?;
        }
        found = next.names;
    }
    let slash = trimmed.len() < path.len();
    let listed = names.last().is_some_and(|(_, pattern)| pattern.is_some());
    found.retain(|path| {
        if slash {
            open.directory(path).is_ok()
        } else {
            listed || open.has(path)
        }
    });
    if found.is_empty() {
        return alone();
    }
    found.sort_unstable();
    if slash {
        found.iter_mut().for_each(|path| path.push(b'/'));
    }
    Ok(found)
}

/// What is before the first name of a path that has a wildcard: a directory.
pub fn above_wildcards(path: &[u8]) -> &[u8] {
    let first = path.iter().position(|byte| b"*?[".contains(byte));
    let before = &path[..first.unwrap_or(path.len())];
    let slash = before.iter().rposition(|byte| *byte == b'/');
    &before[..slash.map_or(0, |slash| slash + 1)]
}

/// All that several stand for: `each` is asked what one does, and for how much there is room;
/// none leaves it as it is. `of` a path it is one of them again.
///
/// # Errors
///
/// [`ExpandError`].
pub fn expand_all<T: Clone>(
    named: &[T],
    of: impl Fn(Vec<u8>) -> T,
    each: impl Fn(&T, Room) -> Result<Option<Vec<Vec<u8>>>, ExpandError>,
) -> Result<Vec<T>, ExpandError> {
    let mut all = Vec::with_capacity(named.len());
    let mut room = Room::WHOLE;
    for one in named {
        match each(one, room)? {
            Some(found) => {
                // What was written itself is there whatever it takes.
                room = room.without(&found).unwrap_or(Room { names: 0, bytes: 0 });
                all.extend(found.into_iter().map(&of));
            }
            None => all.push(one.clone()),
        }
    }
    Ok(all)
}

/// What is found for one name of a path.
struct Next {
    names: Vec<Vec<u8>>,
    /// What is left.
    room: Room,
}

impl Next {
    /// `None` if there is no room.
    fn add(&mut self, path: Vec<u8>) -> Option<()> {
        self.room = self.room.without(std::slice::from_ref(&path))?;
        self.names.push(path);
        Some(())
    }
}

/// What a name with wildcards matches.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    pattern: Pattern,
    /// It begins with a dot: names that do are meant.
    hidden: bool,
}

impl Names {
    /// Whether it matches a name.
    pub(crate) fn has(&self, name: &[u8]) -> bool {
        let meant = self.hidden || !name.starts_with(b".");
        meant
            && self
                .pattern
                .matches_with(&String::from_utf8_lossy(name), OPTIONS)
    }
}

/// What a name matches, where it has wildcards; classes of characters by name are none.
pub(crate) fn pattern_of(name: &[u8]) -> Option<Names> {
    if !name.iter().any(|byte| b"*?[".contains(byte)) {
        return None;
    }
    let text = std::str::from_utf8(name).ok()?;
    if text.contains("[[:") {
        return None;
    }
    // As some shells write it.
    let mut text = text.replace("[^", "[!");
    // Two of them mean no more than one.
    while text.contains("**") {
        text = text.replace("**", "*");
    }
    Some(Names {
        pattern: Pattern::new(&text).ok()?,
        hidden: text.starts_with('.'),
    })
}

/// How directories are opened.
struct Opening<'a> {
    open: &'a dyn OpenRoot,
    follows: bool,
}

impl Opening<'_> {
    fn directory(&self, path: &[u8]) -> io::Result<Arc<dyn Directory>> {
        open_named(self.open, path, self.follows)
    }

    fn has(&self, path: &[u8]) -> bool {
        let (parent, name) = split(path);
        let status = self
            .directory(parent)
            .and_then(|parent| parent.status_of(name));
        status.is_ok()
    }

    /// Adds the names in a directory that match; `None` if there are too many. A directory that
    /// does not exist, or that this user may not read, has no names, as for a shell.
    ///
    /// # Errors
    ///
    /// Any other error of opening or listing it: names may be missing.
    fn add_matching(
        &self,
        above: &[u8],
        names: &Names,
        found: &mut Next,
    ) -> io::Result<Option<()>> {
        let directory: &[u8] = if above.is_empty() { b"." } else { above };
        let mut listing = match self.directory(directory) {
            Ok(directory) => directory.list()?,
            Err(error) if has_no_names(&error) => return Ok(Some(())),
            Err(error) => return Err(error),
        };
        while let Some(listed) = listing.next_name()? {
            if names.has(&listed.name) && found.add(joined(above, &listed.name)).is_none() {
                return Ok(None);
            }
        }
        Ok(Some(()))
    }
}

/// Whether a directory that cannot be opened counts as one without names. Errors without a number
/// are refusals of longhaul, such as a path that leads out of a root.
fn has_no_names(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let number = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(
        number,
        None | Some(
            Errno::NOENT
                | Errno::NOTDIR
                | Errno::ACCESS
                | Errno::PERM
                | Errno::LOOP
                | Errno::NAMETOOLONG
                | Errno::INVAL
                | Errno::XDEV
        )
    )
}

fn joined(above: &[u8], name: &[u8]) -> Vec<u8> {
    if above.is_empty() || above.ends_with(b"/") {
        [above, name].concat()
    } else {
        [above, b"/", name].concat()
    }
}

#[cfg(test)]
mod tests {
    use longhaul_storage::posix::PosixDirectory;
    use longhaul_storage::roots::{Anywhere, Confined};

    use super::*;

    const MANY: Room = Room::WHOLE;

    /// This many names.
    fn names(names: usize) -> Room {
        Room { names, ..MANY }
    }

    fn tree() -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        for directory in ["run1", "run2/deep", "run[3]"] {
            std::fs::create_dir_all(place.path().join(directory)).unwrap();
        }
        for file in [
            "run1/a.h5",
            "run1/b.h5",
            "run1/.c.h5",
            "run1/a.txt",
            "run2/a.h5",
            "run[3]/a.h5",
            "runs",
            "*.odd",
            "x.odd",
        ] {
            std::fs::write(place.path().join(file), file).unwrap();
        }
        place
    }

    #[test]
    fn patterns_stand_for_what_a_shell_makes_of_them() {
        let place = tree();
        let confined = Confined(PosixDirectory::open_root(place.path()).unwrap());
        let top = place.path().to_str().unwrap();
        for (pattern, expected) in [
            ("run1/*.h5", &["run1/a.h5", "run1/b.h5"][..]),
            ("run1/.*.h5", &["run1/.c.h5"]),
            ("run?/a.h5", &["run1/a.h5", "run2/a.h5"]),
            ("run[12]/a.*", &["run1/a.h5", "run1/a.txt", "run2/a.h5"]),
            ("run[!1]/**", &["run2/a.h5", "run2/deep"]),
            ("run[^12s]*/*", &["run[3]/a.h5"]),
            ("run1/*.*", &["run1/a.h5", "run1/a.txt", "run1/b.h5"]),
            ("run[[:digit:]]", &["run[[:digit:]]"]),
            ("run?*/", &["run1/", "run2/", "run[3]/"]),
            ("*/deep", &["run2/deep"]),
            // What is there by that very name is meant, and what matches nothing.
            ("run[3]/a.h5", &["run[3]/a.h5"]),
            ("*.odd", &["*.odd"]),
            ("none*", &["none*"]),
            ("runs/*", &["runs/*"]),
            ("run1/a.h5", &["run1/a.h5"]),
            ("run[1", &["run[1"]),
        ] {
            let found = expand(&confined, pattern.as_bytes(), false, MANY).unwrap();
            let found: Vec<&str> = found
                .iter()
                .map(|p| std::str::from_utf8(p).unwrap())
                .collect();
            assert_eq!(found, expected, "{pattern}");
            let anywhere = expand(
                &Anywhere,
                format!("{top}/{pattern}").as_bytes(),
                false,
                names(9),
            )
            .unwrap();
            let expected: Vec<Vec<u8>> = expected
                .iter()
                .map(|path| format!("{top}/{path}").into_bytes())
                .collect();
            assert_eq!(anywhere, expected, "{pattern}");
        }
    }

    /// A listing that fails: the directory was removed after it was opened.
    #[test]
    fn a_directory_that_cannot_be_listed_is_not_one_without_names() {
        struct Held(Arc<dyn Directory>);
        impl OpenRoot for Held {
            fn open_root(&self, _: &std::path::Path) -> io::Result<Arc<dyn Directory>> {
                Ok(Arc::clone(&self.0))
            }
            fn open_following(&self, path: &std::path::Path) -> io::Result<Arc<dyn Directory>> {
                self.open_root(path)
            }
            fn make_root(&self, path: &std::path::Path) -> io::Result<Arc<dyn Directory>> {
                self.open_root(path)
            }
        }
        let place = tree();
        let deep = place.path().join("run2/deep");
        let held = Held(PosixDirectory::open_root(&deep).unwrap());
        std::fs::remove_dir(&deep).unwrap();
        let error = expand(&held, b"run*", false, MANY).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, ExpandError::Unlisted { .. }), "{text}");
    }

    #[test]
    fn a_pattern_leaves_no_root_and_means_no_more_than_it_may() {
        let place = tree();
        let root = PosixDirectory::open_root(&place.path().join("run1")).unwrap();
        let confined = Confined(root);
        for pattern in ["../*", "../run2/*", "a.h5/../../*"] {
            let found = expand(&confined, pattern.as_bytes(), false, names(9)).unwrap();
            assert_eq!(found, [pattern.as_bytes()]);
        }
        std::os::unix::fs::symlink(".", place.path().join("run1/link")).unwrap();
        let linked = |follows| expand(&confined, b"link/a.*5", follows, names(9)).unwrap();
        assert_eq!(linked(false), [b"link/a.*5"]);
        assert_eq!(linked(true), [b"link/a.h5"]);
        std::fs::remove_file(place.path().join("run1/link")).unwrap();
        let all: Arc<dyn OpenRoot> = Arc::new(confined);
        assert_eq!(expand(&*all, b"*", false, names(3)).unwrap().len(), 3);
        let error = expand(&*all, b"*", false, names(2))
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("* stands for too many"), "{error}");
        // Few names, but long ones: `a.h5`, `a.txt` and `b.h5`, each with what follows.
        let long = |bytes| Room { bytes, ..MANY };
        let below = format!("*/{}", "x".repeat(91));
        assert!(expand(&*all, below.as_bytes(), false, long(288)).is_err());
        assert_eq!(
            expand(&*all, below.as_bytes(), false, long(289)).unwrap(),
            [below.as_bytes()]
        );
        assert_eq!(expand(&*all, b"a.h5", false, names(0)).unwrap(), [b"a.h5"]);
    }
}
