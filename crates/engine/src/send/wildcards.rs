//! Expands `*`, `?` and `[…]` in the names of sources of another host, which no shell has expanded.
//! They have the same meaning as in a shell.

use std::io;
use std::sync::Arc;

use glob::{MatchOptions, Pattern};
use longhaul_storage::Directory;
use longhaul_storage::roots::{OpenRoot, split};

use super::source::{open_named, trim_slashes};

/// Limits for the names that the patterns of one command match. With more names, it is better to
/// copy their directories.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    names: usize,
    /// Bytes of the names, with their parent directories.
    bytes: usize,
}

impl Room {
    /// Limits of one command.
    pub const WHOLE: Room = Room {
        names: 100_000,
        bytes: 16 << 20,
    };

    /// Returns the limits less these names; `None` if they exceed the limits.
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
    // With `true`, `*.x` would still match `.x`; `Names::has` checks for hidden names instead.
    require_literal_leading_dot: false,
};

/// Reasons to reject a pattern.
#[derive(Debug, thiserror::Error)]
pub enum ExpandError {
    /// It matches more names than allowed.
    #[error(
        "{0} stands for too many names, more than {names} or {mebibytes} MiB in all: copy the \
         directory that they are in",
        names = Room::WHOLE.names,
        mebibytes = Room::WHOLE.bytes >> 20
    )]
    TooMany(String),
    /// A directory could not be listed completely, so matching names may be missing.
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

/// Returns the names that a source's path matches, in byte order and within the limits. Returns
/// only the path itself if it has no wildcard, if an entry has that exact name, or if it matches no
/// name. Links on the way are followed if `follows` is true or `open` follows them by itself.
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

/// Returns the directory part of a path before its first name with a wildcard.
pub fn above_wildcards(path: &[u8]) -> &[u8] {
    let first = path.iter().position(|byte| b"*?[".contains(byte));
    let before = &path[..first.unwrap_or(path.len())];
    let slash = before.iter().rposition(|byte| *byte == b'/');
    &before[..slash.map_or(0, |slash| slash + 1)]
}

/// Expands several items. `each` returns the matches of an item within the limits, or `None` to
/// keep the item. `of` makes an item from a path.
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
                // Names that the user wrote without wildcards are accepted beyond the limits.
                room = room.without(&found).unwrap_or(Room { names: 0, bytes: 0 });
                all.extend(found.into_iter().map(&of));
            }
            None => all.push(one.clone()),
        }
    }
    Ok(all)
}

/// Matches for one name of a path.
struct Next {
    names: Vec<Vec<u8>>,
    /// Remaining limits.
    room: Room,
}

impl Next {
    /// Adds a match; `None` if it exceeds the limits.
    fn add(&mut self, path: Vec<u8>) -> Option<()> {
        self.room = self.room.without(std::slice::from_ref(&path))?;
        self.names.push(path);
        Some(())
    }
}

/// A name with wildcards.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    pattern: Pattern,
    /// True if it begins with a dot: hidden names match too.
    hidden: bool,
}

impl Names {
    /// True if it matches a name.
    pub(crate) fn has(&self, name: &[u8]) -> bool {
        let meant = self.hidden || !name.starts_with(b".");
        meant
            && self
                .pattern
                .matches_with(&String::from_utf8_lossy(name), OPTIONS)
    }
}

/// Parses a name with wildcards; `None` if it has none. Named classes of characters are not
/// supported.
pub(crate) fn pattern_of(name: &[u8]) -> Option<Names> {
    if !name.iter().any(|byte| b"*?[".contains(byte)) {
        return None;
    }
    let text = std::str::from_utf8(name).ok()?;
    if text.contains("[[:") {
        return None;
    }
    // Some shells write negation so.
    let mut text = text.replace("[^", "[!");
    // Several `*` mean the same as one.
    while text.contains("**") {
        text = text.replace("**", "*");
    }
    Some(Names {
        pattern: Pattern::new(&text).ok()?,
        hidden: text.starts_with('.'),
    })
}

/// Opens directories for the expansion.
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

    /// Adds the matching names of a directory; `None` if they exceed the limits. A directory that
    /// does not exist, or that this user may not read, has no names, as in a shell.
    ///
    /// # Errors
    ///
    /// Any other error of opening or listing it, since names may be missing.
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

/// True if a directory with this error of opening counts as one without names. Errors without a
/// number are refusals by longhaul, such as a path that leaves a root.
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

    /// Returns limits with this number of names.
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
    fn patterns_match_the_same_names_as_in_a_shell() {
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
            // A path that exists, or that matches no name, is kept.
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

    /// The listing fails because the directory was removed after it was opened.
    #[test]
    fn an_unreadable_directory_does_not_count_as_empty() {
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
    fn a_pattern_matches_only_beneath_the_root_and_within_its_limits() {
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
        // Few but long names: `a.h5`, `a.txt` and `b.h5`, each with the following part.
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
