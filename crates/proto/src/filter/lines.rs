//! Splits a file of rules into lines.

use super::syntax::{Action, Ends as Sides, Form, Reading, Written, read, read_old};
use super::{BadRule, MAXIMUM_FILE_BYTES, RuleError};
use crate::filter::syntax::Match;

/// Separator of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// Newline or carriage return.
    Lines,
    /// A NUL (`-0`).
    Zeros,
}

/// Parses the rules of a file in their order. Empty lines and comments are skipped.
///
/// # Errors
///
/// The first line that is not a valid rule.
pub(super) fn rules(
    text: &[u8],
    ends: Ends,
    reading: Reading,
) -> Result<Vec<(&[u8], Written<'_>)>, BadRule> {
    if text.len() > MAXIMUM_FILE_BYTES {
        return Err(BadRule::new(b"", RuleError::LargeFile));
    }
    let words = reading.words;
    let ends = |byte: &u8| match ends {
        _ if words => byte.is_ascii_whitespace(),
        Ends::Lines => matches!(byte, b'\n' | b'\r'),
        Ends::Zeros => *byte == 0,
    };
    let lines = text.split(ends).filter(|line| !line.is_empty());
    let lines = lines.filter(|line| words || !matches!(line, [b'#' | b';', ..]));
    let pattern = |action, pattern| {
        Written::Match(Match {
            action,
            negated: false,
            ends: Sides::Unnamed,
            pattern,
        })
    };
    let read = |line| match reading.form {
        Form::Rules => read(line),
        Form::Old(action) => Ok(read_old(line, action)),
        Form::Cvs if line == b"!" => Ok(Written::Clear),
        Form::Cvs => Ok(pattern(Action::Exclude, line)),
        Form::Patterns(action) => Ok(pattern(action, line)),
        // The rules of git's files are parsed elsewhere, because they apply in reverse order.
        Form::Git => Err(RuleError::Modifier('g')),
    };
    let read = |line| {
        let written = read(line).and_then(|written| written.within(reading.ends));
        Ok((line, written.map_err(|cause| BadRule::new(line, cause))?))
    };
    lines.map(read).collect()
}

/// Returns true for an including pattern, and the pattern, of a line of a git ignore file; `None`
/// for an empty line or a comment.
pub(super) fn of_git(line: &[u8]) -> Option<(bool, &[u8])> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut line = match line {
        [] | [b'#', ..] => return None,
        line => line,
    };
    // Trailing spaces count only if they are escaped.
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
    fn patterns(text: &str, ends: Ends, reading: Reading) -> Vec<String> {
        let found = rules(text.as_bytes(), ends, reading).unwrap();
        let shown = found.iter().map(|(line, _)| line);
        shown
            .map(|line| String::from_utf8(line.to_vec()).unwrap())
            .collect()
    }

    #[test]
    fn files_are_cut_at_their_ends_of_lines() {
        let old = Reading::old(Action::Exclude);
        let text = "# c\n; d\n\na\r\n b \n";
        assert_eq!(patterns(text, Ends::Lines, old), ["a", " b "]);
        assert_eq!(patterns("a\nb\0#c\0\0d", Ends::Zeros, old), ["a\nb", "d"]);
        let reading = Reading {
            form: Form::Patterns(Action::Exclude),
            words: true,
            ends: Sides::Unnamed,
        };
        assert_eq!(patterns("#a b\n c", Ends::Zeros, reading), ["#a", "b", "c"]);
        let of_rules = |words| Reading {
            form: Form::Rules,
            words,
            ..reading
        };
        assert!(rules(b"- a\nb\n", Ends::Lines, of_rules(false)).is_err());
        assert!(rules(b"-_a +_b", Ends::Lines, of_rules(true)).is_ok());
        assert!(rules(b"- a", Ends::Lines, of_rules(true)).is_err());
        let large = vec![b'\n'; MAXIMUM_FILE_BYTES + 1];
        assert!(rules(&large, Ends::Lines, of_rules(false)).is_err());
    }

    #[test]
    fn only_cvs_clears_with_a_word_among_patterns() {
        let clears = |form| {
            let reading = Reading {
                form,
                words: true,
                ends: Sides::Unnamed,
            };
            let found = rules(b"a ! b", Ends::Lines, reading).unwrap();
            found.iter().any(|(_, written)| *written == Written::Clear)
        };
        assert!(clears(Form::Cvs));
        assert!(!clears(Form::Patterns(Action::Exclude)));
    }

    #[test]
    fn rules_of_a_file_count_at_the_ends_of_the_rule_that_names_it() {
        let reading = |ends| Reading {
            form: Form::Rules,
            words: false,
            ends,
        };
        let found = rules(b"- a\n. b\n", Ends::Lines, reading(Sides::Sending)).unwrap();
        assert!(matches!(&found[0].1, Written::Match(rule) if rule.ends == Sides::Sending));
        assert!(matches!(&found[1].1, Written::Merge(_, inner) if inner.ends == Sides::Sending));
        for twice in ["-s a", "H a", ".r b"] {
            let error = rules(twice.as_bytes(), Ends::Lines, reading(Sides::Both));
            assert_eq!(error.unwrap_err().cause, RuleError::NamedTwice, "{twice}");
        }
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
