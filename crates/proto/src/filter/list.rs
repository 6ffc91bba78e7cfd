//! Parses the lines of a list of files (`--files-from`), with rsync's meaning.

use crate::manifest::{PathError, TreePath};

/// A path in a list of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedPath {
    /// The part before `/./`: a directory beneath the source that counts as a source of its own.
    pub anchor: Option<TreePath>,
    /// The path beneath the anchor; `None` for the directory itself.
    pub path: Option<TreePath>,
    /// True if the path ends with a slash or is a dot, so that direct contents of the directory are
    /// listed too.
    pub contents: bool,
}

/// Reason why a line is not a path beneath the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListedPathError {
    /// The path leads out of the source through `..`.
    #[error("it leads out of the source: list paths beneath it")]
    Above,
    /// A name or the whole path is invalid.
    #[error(transparent)]
    Path(#[from] PathError),
}

impl ListedPath {
    /// Parses a line. Slashes at its beginning, empty names and dots are ignored, and `..` removes
    /// the name before it.
    ///
    /// # Errors
    ///
    /// [`ListedPathError`] if the line is not a path beneath the source.
    pub fn read(line: &[u8]) -> Result<ListedPath, ListedPathError> {
        let dot = line.windows(3).position(|part| part == b"/./");
        let (anchor, rest) = match dot {
            Some(at) => (&line[..at], &line[at + 3..]),
            None => (&b""[..], line),
        };
        let last = rest.rsplit(|byte| *byte == b'/').next();
        Ok(ListedPath {
            anchor: path_of(anchor)?,
            path: path_of(rest)?,
            contents: matches!(last, Some(b"" | b"." | b"..")),
        })
    }
}

/// Returns the path of a file of rules that a per-directory file names, as in rsync. A name with a
/// slash is relative to `directory`, any other name to the root of the tree. `None` if the path is
/// absolute or leads out of the tree.
pub fn merged_path(directory: Option<&TreePath>, name: &[u8]) -> Option<TreePath> {
    let above = directory.filter(|_| name.contains(&b'/'));
    let above = above.map_or(&b""[..], TreePath::as_bytes);
    if name.starts_with(b"/") || name.ends_with(b"/") {
        return None;
    }
    path_of(&[above, b"/", name].concat()).ok().flatten()
}

/// Resolves dots and `..` in a path; `None` if the result is the starting directory.
fn path_of(text: &[u8]) -> Result<Option<TreePath>, ListedPathError> {
    let mut names: Vec<&[u8]> = Vec::new();
    for name in text.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => drop(names.pop().ok_or(ListedPathError::Above)?),
            name => names.push(name),
        }
    }
    if names.is_empty() {
        Ok(None)
    } else {
        Ok(Some(TreePath::new(&names.join(&b'/'))?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<(String, String, bool), ListedPathError> {
        let text = |path: Option<TreePath>| path.map_or(String::new(), |path| path.to_string());
        let listed = ListedPath::read(line.as_bytes())?;
        Ok((text(listed.anchor), text(listed.path), listed.contents))
    }

    #[test]
    fn files_of_rules_are_found_as_rsync_finds_them() {
        let directory = TreePath::new(b"a/b").unwrap();
        for (name, expected) in [
            ("./x", Some("a/b/x")),
            ("c//x", Some("a/b/c/x")),
            ("./../x", Some("a/x")),
            ("../../x", Some("x")),
            ("../../../x", None),
            ("/x", None),
            ("x", Some("x")),
            ("..", None),
            ("./", None),
        ] {
            let path = merged_path(Some(&directory), name.as_bytes());
            assert_eq!(
                path.map(|path| path.to_string()).as_deref(),
                expected,
                "{name}"
            );
        }
        assert_eq!(merged_path(None, b"./x"), TreePath::new(b"x").ok());
        assert_eq!(merged_path(None, b"../x"), None);
    }

    #[test]
    fn lines_are_read_as_rsync_reads_them() {
        for (line, anchor, path, contents) in [
            ("a/b", "", "a/b", false),
            ("/a//b/", "", "a/b", true),
            ("./a", "", "a", false),
            (".", "", "", true),
            ("./", "", "", true),
            ("a/.", "", "a", true),
            ("a/../b", "", "b", false),
            ("a/..", "", "", true),
            ("a/./b", "a", "b", false),
            ("a/b/./c/d", "a/b", "c/d", false),
            ("a/./b/./c", "a", "b/c", false),
            ("a/./", "a", "", true),
            ("/./b", "", "b", false),
            ("..a/b..", "", "..a/b..", false),
        ] {
            let expected = (anchor.to_owned(), path.to_owned(), contents);
            assert_eq!(read(line), Ok(expected), "{line}");
        }
        for line in ["..", "../a", "a/../..", "a/../../b", "../x/./y"] {
            assert_eq!(read(line), Err(ListedPathError::Above), "{line}");
        }
        let long = "x".repeat(300);
        assert!(matches!(read(&long), Err(ListedPathError::Path(_))));
        assert!(matches!(read("a\0b"), Err(ListedPathError::Path(_))));
    }
}
