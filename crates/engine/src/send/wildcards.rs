//! Sources with `*`, `?` and `[…]` in their names that no shell has seen: those of
//! another host's. They mean what a shell there would make of them.

use std::io;
use std::sync::Arc;

use glob::{MatchOptions, Pattern};

use super::source::{open_named, trim_slashes};
use crate::storage::Directory;
use crate::storage::roots::{OpenRoot, split};

/// Names that the patterns of one command may stand for, at most: their directories are
/// copied whole for less.
pub const MOST_NAMES: usize = 100_000;

const OPTIONS: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    // It has `*.x` match `.x`: that is looked at here.
    require_literal_leading_dot: false,
};

/// A pattern means too much.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0} stands for too many names, more than {MOST_NAMES} in all: copy the directory that they \
     are in"
)]
pub struct TooMany(String);

/// What a source's path stands for, in byte order and `most` names at most: the path alone
/// where it has no wildcard, where something has that very name, or where nothing matches.
/// Links on the way are followed where `follows` says so, or `open` does it by itself.
///
/// # Errors
///
/// [`TooMany`].
pub fn expand(
    open: &dyn OpenRoot,
    path: &[u8],
    follows: bool,
    most: usize,
) -> Result<Vec<Vec<u8>>, TooMany> {
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
        found = match pattern {
            None => found.iter().map(|above| joined(above, name)).collect(),
            Some(pattern) => {
                let mut next = Vec::new();
                for above in &found {
                    open.add_matching(above, pattern, &mut next, most);
                    if next.len() > most {
                        return Err(TooMany(String::from_utf8_lossy(path).into_owned()));
                    }
                }
                next
            }
        };
    }
    let slash = trimmed.len() < path.len();
    let listed = names.last().is_some_and(|(_, pattern)| pattern.is_some());
    found.retain(|path| match slash {
        true => open.directory(path).is_ok(),
        false => listed || open.has(path),
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

/// All that several stand for, [`MOST_NAMES`] in all: `each` is asked what one does, and so
/// many it may be; none leaves it as it is.
///
/// # Errors
///
/// [`TooMany`].
pub fn expand_all<T: Clone>(
    named: &[T],
    each: impl Fn(&T, usize) -> Result<Option<Vec<T>>, TooMany>,
) -> Result<Vec<T>, TooMany> {
    let mut all = Vec::with_capacity(named.len());
    for one in named {
        let found = each(one, MOST_NAMES.saturating_sub(all.len()))?;
        all.extend(found.unwrap_or_else(|| vec![one.clone()]));
    }
    Ok(all)
}

/// What a name with wildcards matches.
struct Names {
    pattern: Pattern,
    /// It begins with a dot: names that do are meant.
    hidden: bool,
}

impl Names {
    fn has(&self, name: &[u8]) -> bool {
        let meant = self.hidden || !name.starts_with(b".");
        meant
            && self
                .pattern
                .matches_with(&String::from_utf8_lossy(name), OPTIONS)
    }
}

/// What a name matches, where it has wildcards; classes of characters by name are none.
fn pattern_of(name: &[u8]) -> Option<Names> {
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

    /// Adds the names in a directory that match, and stops when there are too many; what
    /// cannot be looked into has none, as for a shell.
    fn add_matching(&self, above: &[u8], names: &Names, found: &mut Vec<Vec<u8>>, most: usize) {
        let directory: &[u8] = if above.is_empty() { b"." } else { above };
        let listing = self.directory(directory);
        let Ok(mut listing) = listing.and_then(|directory| directory.list()) else {
            return;
        };
        while let Ok(Some(listed)) = listing.next_name() {
            if names.has(&listed.name) {
                found.push(joined(above, &listed.name));
            }
            if found.len() > most {
                return;
            }
        }
    }
}

fn joined(above: &[u8], name: &[u8]) -> Vec<u8> {
    match above.is_empty() || above.ends_with(b"/") {
        true => [above, name].concat(),
        false => [above, b"/", name].concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::posix::PosixDirectory;
    use crate::storage::roots::{Anywhere, Confined};

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
            let found = expand(&confined, pattern.as_bytes(), false, MOST_NAMES).unwrap();
            let found: Vec<&str> = found
                .iter()
                .map(|p| std::str::from_utf8(p).unwrap())
                .collect();
            assert_eq!(found, expected, "{pattern}");
            let anywhere =
                expand(&Anywhere, format!("{top}/{pattern}").as_bytes(), false, 9).unwrap();
            let expected: Vec<Vec<u8>> = expected
                .iter()
                .map(|path| format!("{top}/{path}").into_bytes())
                .collect();
            assert_eq!(anywhere, expected, "{pattern}");
        }
    }

    #[test]
    fn a_pattern_leaves_no_root_and_means_no_more_than_it_may() {
        let place = tree();
        let root = PosixDirectory::open_root(&place.path().join("run1")).unwrap();
        let confined = Confined(root);
        for pattern in ["../*", "../run2/*", "a.h5/../../*"] {
            let found = expand(&confined, pattern.as_bytes(), false, 9).unwrap();
            assert_eq!(found, [pattern.as_bytes()]);
        }
        std::os::unix::fs::symlink(".", place.path().join("run1/link")).unwrap();
        let linked = |follows| expand(&confined, b"link/a.*5", follows, 9).unwrap();
        assert_eq!(linked(false), [b"link/a.*5"]);
        assert_eq!(linked(true), [b"link/a.h5"]);
        std::fs::remove_file(place.path().join("run1/link")).unwrap();
        let all: Arc<dyn OpenRoot> = Arc::new(confined);
        assert_eq!(expand(&*all, b"*", false, 3).unwrap().len(), 3);
        let error = expand(&*all, b"*", false, 2).unwrap_err().to_string();
        assert!(error.starts_with("* stands for too many"), "{error}");
        assert_eq!(expand(&*all, b"a.h5", false, 0).unwrap(), [b"a.h5"]);
    }
}
