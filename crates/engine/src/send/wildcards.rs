//! Sources with `*`, `?` and `[…]` in their names that no shell has seen: those of
//! another host's. They mean what a shell there would make of them.

use std::path::Path;

use glob::{MatchOptions, Pattern};

use super::source::trim_slashes;
use crate::storage::roots::{OpenRoot, split};

/// Names that the patterns of one command may stand for, at most: their directories are
/// copied whole for less.
pub const MOST_NAMES: usize = 100_000;

/// As shells have it: what begins with a dot is named, or not meant.
const OPTIONS: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
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
///
/// # Errors
///
/// [`TooMany`].
pub fn expand(open: &dyn OpenRoot, path: &[u8], most: usize) -> Result<Vec<Vec<u8>>, TooMany> {
    let trimmed = trim_slashes(path);
    let alone = || Ok(vec![path.to_vec()]);
    let has_any = trimmed
        .split(|byte| *byte == b'/')
        .any(|name| pattern_of(name).is_some());
    if !has_any || is_there(open, trimmed) {
        return alone();
    }
    let root: &[u8] = if path.starts_with(b"/") { b"/" } else { b"" };
    let mut found = vec![root.to_vec()];
    let names = trimmed
        .split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty());
    for name in names {
        found = match pattern_of(name) {
            None => found.iter().map(|above| joined(above, name)).collect(),
            Some(pattern) => {
                let mut next = Vec::new();
                for above in &found {
                    matching(open, above, &pattern, &mut next, most);
                    if next.len() > most {
                        return Err(TooMany(String::from_utf8_lossy(path).into_owned()));
                    }
                }
                next
            }
        };
    }
    let slash = trimmed.len() < path.len();
    found.retain(|path| match slash {
        true => open.open_root(as_path(path)).is_ok(),
        false => is_there(open, path),
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

/// What a name matches, where it has wildcards.
fn pattern_of(name: &[u8]) -> Option<Pattern> {
    if !name.iter().any(|byte| b"*?[".contains(byte)) {
        return None;
    }
    let mut text = std::str::from_utf8(name).ok()?.to_owned();
    // Two of them mean no more than one, as in a shell.
    while text.contains("**") {
        text = text.replace("**", "*");
    }
    Pattern::new(&text).ok()
}

/// Adds the names in a directory that match, and stops when there are too many; what cannot
/// be looked into has none, as for a shell.
fn matching(
    open: &dyn OpenRoot,
    above: &[u8],
    pattern: &Pattern,
    found: &mut Vec<Vec<u8>>,
    most: usize,
) {
    let directory: &[u8] = if above.is_empty() { b"." } else { above };
    let Ok(mut names) = open
        .open_root(as_path(directory))
        .and_then(|directory| directory.list())
    else {
        return;
    };
    while let Ok(Some(listed)) = names.next_name() {
        let name = String::from_utf8_lossy(&listed.name);
        if pattern.matches_with(&name, OPTIONS) {
            found.push(joined(above, &listed.name));
        }
        if found.len() > most {
            return;
        }
    }
}

fn joined(above: &[u8], name: &[u8]) -> Vec<u8> {
    match above.is_empty() || above.ends_with(b"/") {
        true => [above, name].concat(),
        false => [above, b"/", name].concat(),
    }
}

fn is_there(open: &dyn OpenRoot, path: &[u8]) -> bool {
    let (parent, name) = split(path);
    let status = open
        .open_root(as_path(parent))
        .and_then(|parent| parent.status_of(name));
    status.is_ok()
}

fn as_path(path: &[u8]) -> &Path {
    use std::os::unix::ffi::OsStrExt;
    Path::new(std::ffi::OsStr::from_bytes(path))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

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
            let found = expand(&confined, pattern.as_bytes(), MOST_NAMES).unwrap();
            let found: Vec<&str> = found
                .iter()
                .map(|p| std::str::from_utf8(p).unwrap())
                .collect();
            assert_eq!(found, expected, "{pattern}");
            let anywhere = expand(&Anywhere, format!("{top}/{pattern}").as_bytes(), 9).unwrap();
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
            let found = expand(&confined, pattern.as_bytes(), 9).unwrap();
            assert_eq!(found, [pattern.as_bytes()]);
        }
        let all: Arc<dyn OpenRoot> = Arc::new(confined);
        assert_eq!(expand(&*all, b"*", 3).unwrap().len(), 3);
        let error = expand(&*all, b"*", 2).unwrap_err().to_string();
        assert!(error.starts_with("* stands for too many"), "{error}");
        assert_eq!(expand(&*all, b"a.h5", 0).unwrap(), [b"a.h5"]);
    }
}
