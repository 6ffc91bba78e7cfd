//! Patterns of rules, and the paths that they match.
//!
//! | pattern | part of the path that it is matched with |
//! |---|---|
//! | without a slash, and without `**` | an entry's last name |
//! | with a slash at its beginning | the whole path from the root |
//! | with a slash within it | the last names of the path, as many as the pattern has |
//! | with `**` | the whole path, and the part after each of its slashes |
//!
//! A slash at its end does not count here: it restricts the pattern to directories. The root is the
//! directory of the rules: for a per-directory file, the directory that contains the file.

use super::RuleError;
use super::wildcard::{Dialect, Wildcard};

/// Maximum length of a pattern in bytes (the usual `PATH_MAX`).
pub const MAXIMUM_PATTERN_BYTES: usize = 4096;

/// A parsed pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    text: Text,
    /// Part of a path that is matched.
    part: Part,
    directories_only: bool,
    /// `dir/***`: true if the pattern matches a directory together with its contents.
    takes_directory: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Text {
    Literal(Box<[u8]>),
    Wild(Wildcard),
}

/// Part of a path that is matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The whole path, from the root of the rules.
    FromRoot,
    /// The whole path with a slash in front (`**/a` matches `a`).
    WithSlash,
    /// The whole path, and the part after each slash.
    AfterSlashes,
    /// The last names of the path, in this number.
    Last(usize),
}

impl Pattern {
    /// Parses a pattern with rsync's meaning.
    ///
    /// # Errors
    ///
    /// [`RuleError::Long`] or [`RuleError::Nul`].
    pub(super) fn new(written: &[u8]) -> Result<Pattern, RuleError> {
        check(written)?;
        let stripped = written.strip_suffix(b"/").filter(|rest| !rest.is_empty());
        let pattern = stripped.unwrap_or(written);
        let wild = pattern.iter().any(|byte| b"*?[".contains(byte));
        let doubled = wild && pattern.windows(2).any(|two| two == b"**");
        let slashes = pattern.iter().filter(|byte| **byte == b'/').count();
        let (part, pattern) = match pattern.strip_prefix(b"/") {
            Some(rest) => (Part::FromRoot, rest),
            None if doubled && pattern.starts_with(b"**") => (Part::WithSlash, pattern),
            None if doubled => (Part::AfterSlashes, pattern),
            None => (Part::Last(slashes + 1), pattern),
        };
        let text = if wild {
            Text::Wild(Wildcard::new(pattern, Dialect::Rsync))
        } else {
            Text::Literal(pattern.into())
        };
        Ok(Pattern {
            text,
            part,
            directories_only: stripped.is_some(),
            takes_directory: wild && pattern.ends_with(b"***"),
        })
    }

    /// Parses a pattern with git's meaning, without its exclamation mark. A pattern with a slash at
    /// its beginning or within it is matched from the root.
    ///
    /// # Errors
    ///
    /// The same errors as [`Pattern::new`].
    pub(super) fn of_git(written: &[u8]) -> Result<Pattern, RuleError> {
        check(written)?;
        let stripped = written.strip_suffix(b"/");
        let pattern = stripped.unwrap_or(written);
        let part = if pattern.contains(&b'/') {
            Part::FromRoot
        } else {
            Part::Last(1)
        };
        let pattern = pattern.strip_prefix(b"/").unwrap_or(pattern);
        Ok(Pattern {
            text: Text::Wild(Wildcard::new(pattern, Dialect::Git)),
            part,
            directories_only: stripped.is_some(),
            takes_directory: false,
        })
    }

    /// True if a path matches. Its first `root` bytes lead to the root of the rules.
    pub(super) fn matches(&self, path: &[u8], root: usize, is_directory: bool) -> bool {
        if self.directories_only && !is_directory {
            return false;
        }
        let part = match self.part {
            Part::FromRoot => path.get(root..),
            Part::WithSlash | Part::AfterSlashes => Some(path),
            Part::Last(names) => last_names(path, names),
        };
        let Some(part) = part else {
            return false;
        };
        let wild = match &self.text {
            Text::Literal(literal) => return **literal == *part,
            Text::Wild(wild) => wild,
        };
        let after_slashes = self.part == Part::AfterSlashes;
        let (before, behind): (&[u8], &[u8]) = (
            if self.part == Part::WithSlash {
                b"/"
            } else {
                b""
            },
            if self.takes_directory && is_directory {
                b"/"
            } else {
                b""
            },
        );
        if before.is_empty() && behind.is_empty() {
            wild.matches(part, after_slashes)
        } else {
            wild.matches(&[before, part, behind].concat(), after_slashes)
        }
    }
}

fn check(written: &[u8]) -> Result<(), RuleError> {
    match written {
        _ if written.len() > MAXIMUM_PATTERN_BYTES => Err(RuleError::Long),
        _ if written.contains(&0) => Err(RuleError::Nul),
        _ => Ok(()),
    }
}

/// Returns the last names of a path, in this number; `None` if it has fewer.
fn last_names(path: &[u8], names: usize) -> Option<&[u8]> {
    let slashes = path.iter().enumerate().rev();
    let mut slashes = slashes.filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    match slashes.nth(names - 1) {
        Some(slash) => path.get(slash + 1..),
        None => {
            let count = 1 + path.iter().filter(|byte| **byte == b'/').count();
            (count == names).then_some(path)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_the_part_of_a_path_that_they_are_for() {
        for (pattern, path, expected) in [
            ("f", "a/f", true),
            ("f", "af", false),
            ("/f", "a/f", false),
            ("/f", "f", true),
            ("a/f", "x/a/f", true),
            ("a/f", "xa/f", false),
            ("/a/f", "x/a/f", false),
            ("a/*", "x/a/f", true),
            ("a/*", "a", false),
            ("f/", "f", false),
            ("d/", "d/", true),
            ("d/**", "x/d/y/z", true),
            ("d/**", "d/", false),
            ("d/***", "d/", true),
            ("d/***", "d", false),
            ("/d/***", "d/x", true),
            ("**/f", "f", true),
            ("**/f", "x/y/f", true),
            ("/**/f", "f", false),
            ("a/**/f", "a/f", false),
            ("a/**/f", "x/a/b/f", true),
            ("x\\y", "x\\y", true),
            ("x\\y*", "xyz", true),
            ("/", "a", false),
        ] {
            let (path, directory) = match path.strip_suffix('/') {
                Some(path) => (path, true),
                None => (path, false),
            };
            let pattern = Pattern::new(pattern.as_bytes()).unwrap();
            let found = pattern.matches(path.as_bytes(), 0, directory);
            assert_eq!(found, expected, "{pattern:?} {path}");
        }
    }

    #[test]
    fn anchored_patterns_begin_at_the_directory_of_their_rules() {
        let anchored = Pattern::new(b"/f").unwrap();
        assert!(anchored.matches(b"a/f", 2, false));
        assert!(!anchored.matches(b"a/b/f", 2, false));
        let git = Pattern::of_git(b"b/f").unwrap();
        assert!(git.matches(b"a/b/f", 2, false));
        assert!(!git.matches(b"a/a/b/f", 2, false));
        let name = Pattern::of_git(b"f").unwrap();
        assert!(name.matches(b"a/a/b/f", 2, false));
    }
}
