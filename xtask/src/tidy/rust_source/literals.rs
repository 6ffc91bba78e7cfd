//! The string literals of a file, which include the messages of a program.

use super::line_of;
use super::scan::Kind;

/// A string literal.
#[derive(Debug, PartialEq, Eq)]
pub struct Literal {
    /// The line in which it begins, from 1.
    pub line: usize,
    /// The text between its quotes. A backslash at the end of a line joins it with the next; other
    /// escapes stay as they are written.
    pub text: String,
}

/// Returns all string literals, in order. Character literals are not included.
pub fn literals(text: &str, kinds: &[Kind]) -> Vec<Literal> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < kinds.len() {
        let length = kinds[at..]
            .iter()
            .take_while(|kind| **kind == Kind::Literal)
            .count();
        let inside = text
            .get(at..at + length)
            .filter(|inside| !inside.is_empty());
        if let Some(inside) = inside
            && !text[..at].ends_with('\'')
        {
            found.push(Literal {
                line: line_of(text, at),
                text: joined(inside),
            });
        }
        at += length.max(1);
    }
    found
}

fn joined(inside: &str) -> String {
    // The rest are the marks of a raw string.
    let inside = inside.trim_matches(['#', '"']);
    let mut pieces = inside.split("\\\n");
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |text, piece| text + piece.trim_start())
}

#[cfg(test)]
mod tests {
    use super::super::scan::classify;
    use super::*;

    fn found(text: &str) -> Vec<(usize, String)> {
        let all = literals(text, &classify(text));
        all.into_iter()
            .map(|found| (found.line, found.text))
            .collect()
    }

    #[test]
    fn strings_are_found_with_their_lines() {
        let text = "let a = \"one\";\nlet b = ('c', \"two \\\n      three\", \"\");\n// \"four\"\n";
        let expected = [(1, "one".to_owned()), (2, "two three".to_owned())];
        assert_eq!(found(text), expected);
    }

    #[test]
    fn raw_strings_and_words_of_several_bytes_are_whole() {
        assert_eq!(found("r#\"a \"b\" – c\"#"), [(1, "a \"b\" – c".to_owned())]);
        assert_eq!(found("\"Θ\" \"x\"").len(), 2);
    }
}
