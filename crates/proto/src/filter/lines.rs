//! The lines of a file of rules.

use super::syntax::{Ends as Sides, Reading, Written, read, read_old};
use super::{BadRule, MAXIMUM_FILE_BYTES, RuleError};
use crate::filter::syntax::Match;

/// What ends a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// An end of line, of Unix or of others.
    Lines,
    /// A NUL (`-0`).
    Zeros,
}

/// The rules of a file, in their order; empty lines and comments are passed over.
///
/// # Errors
///
/// The first line that is no rule.
pub(super) fn rules(
    text: &[u8],
    ends: Ends,
    reading: Reading,
) -> Result<Vec<(&[u8], Written<'_>)>, BadRule> {
    if text.len() > MAXIMUM_FILE_BYTES {
        return Err(BadRule::new(b"", RuleError::LargeFile));
    }
    let words = matches!(reading, Reading::Patterns { words: true, .. });
    let ends = |byte: &u8| match ends {
        _ if words => byte.is_ascii_whitespace(),
        Ends::Lines => matches!(byte, b'\n' | b'\r'),
        Ends::Zeros => *byte == 0,
    };
    let lines = text.split(ends).filter(|line| !line.is_empty());
    let lines = lines.filter(|line| words || !matches!(line, [b'#' | b';', ..]));
    let read = |line| match reading {
        Reading::Rules => read(line).map_err(|cause| BadRule::new(line, cause)),
        Reading::Old(action) => Ok(read_old(line, action)),
        Reading::Patterns { words: true, .. } if line == b"!" => Ok(Written::Clear),
        Reading::Patterns { action, .. } => Ok(Written::Match(Match {
            action,
            negated: false,
            ends: Sides::Both,
            pattern: line,
        })),
        // They are read elsewhere, since their order is the other way round.
        Reading::Git => Err(BadRule::new(line, RuleError::Modifier('g'))),
    };
    lines.map(|line| Ok((line, read(line)?))).collect()
}

/// The pattern of a line of git's, and whether it includes; none of an empty line or a comment.
pub(super) fn of_git(line: &[u8]) -> Option<(bool, &[u8])> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut line = match line {
        [] | [b'#', ..] => return None,
        line => line,
    };
    // Spaces at its end count only where they are escaped.
    while let [rest @ .., b' '] = line {
        let escapes = rest.iter().rev().take_while(|byte| **byte == b'\\').count();
        if escapes % 2 == 1 {
            break;
        }
        line = rest;
    }
    let (includes, pattern) = match line {
        [b'!', pattern @ ..] => (true, pattern),
        pattern => (false, pattern),
    };
    (!matches!(pattern, [] | b"/")).then_some((includes, pattern))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::Action;

    fn patterns(text: &str, ends: Ends, reading: Reading) -> Vec<String> {
        let found = rules(text.as_bytes(), ends, reading).unwrap();
        let shown = found.iter().map(|(line, _)| line);
        shown
            .map(|line| String::from_utf8(line.to_vec()).unwrap())
            .collect()
    }

    #[test]
    fn files_are_cut_at_their_ends_of_lines() {
        let old = Reading::Old(Action::Exclude);
        let text = "# c\n; d\n\na\r\n b \n";
        assert_eq!(patterns(text, Ends::Lines, old), ["a", " b "]);
        assert_eq!(patterns("a\nb\0#c\0\0d", Ends::Zeros, old), ["a\nb", "d"]);
        let (action, words) = (Action::Exclude, true);
        let reading = Reading::Patterns { action, words };
        assert_eq!(patterns("#a b\n c", Ends::Zeros, reading), ["#a", "b", "c"]);
        assert!(rules(b"- a\nb\n", Ends::Lines, Reading::Rules).is_err());
        let large = vec![b'\n'; MAXIMUM_FILE_BYTES + 1];
        assert!(rules(&large, Ends::Lines, Reading::Rules).is_err());
    }

    #[test]
    fn lines_of_git_are_read_as_git_reads_them() {
        assert_eq!(of_git(b"# c"), None);
        assert_eq!(of_git(b"   "), None);
        assert_eq!(of_git(b"a  "), Some((false, &b"a"[..])));
        assert_eq!(of_git(b"a\\  "), Some((false, &b"a\\ "[..])));
        assert_eq!(of_git(b"!a/"), Some((true, &b"a/"[..])));
        assert_eq!(of_git(b"\\#a\r"), Some((false, &b"\\#a"[..])));
    }
}
