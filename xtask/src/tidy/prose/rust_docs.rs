//! The doc comments of a Rust file, as text to check for words. They include the help of the
//! command line, because clap prints the comments of arguments.

/// Directories whose doc comments are checked. A directory is added once it is clean, and is never
/// removed.
const CHECKED: [&str; 13] = [
    "crates/cli/src/",
    "crates/cluster/src/",
    "crates/engine/src/",
    "crates/instrument/src/",
    "crates/lab/src/",
    "crates/measure/src/",
    "crates/model/src/",
    "crates/net/src/",
    "crates/proto/src/",
    "crates/storage/src/",
    "crates/system/src/",
    "crates/transfer/src/",
    "crates/units/src/",
];

/// A doc comment.
#[derive(Debug, PartialEq, Eq)]
pub struct Comment {
    /// Its first line, counted from 1.
    pub line: usize,
    /// Its text, Markdown.
    pub text: String,
}

/// True if the doc comments of a file are checked.
pub fn is_checked(path: &str) -> bool {
    path.ends_with(".rs") && CHECKED.iter().any(|place| path.starts_with(place))
}

/// The doc comments of a file, in order.
pub fn comments(source: &str) -> Vec<Comment> {
    let mut comments: Vec<Comment> = Vec::new();
    let mut continued = None;
    for (index, line) in source.lines().enumerate() {
        let Some((mark, text)) = marked(line) else {
            continued = None;
            continue;
        };
        match comments.last_mut().filter(|_| continued == Some(mark)) {
            Some(comment) => {
                comment.text.push('\n');
                comment.text += text;
            }
            None => comments.push(Comment {
                line: index + 1,
                text: text.to_owned(),
            }),
        }
        continued = Some(mark);
    }
    comments
}

/// Returns a line's mark and the text after it. A comment with four slashes is not a doc comment.
fn marked(line: &str) -> Option<(&'static str, &str)> {
    let line = line.trim_start();
    let (mark, text) = ["///", "//!"]
        .into_iter()
        .find_map(|mark| Some((mark, line.strip_prefix(mark)?)))?;
    (!text.starts_with('/')).then_some((mark, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_of_neighbouring_lines_are_one() {
        let source = "//! A file.\n//!\n//! More.\n\n/// An item.\n/// Its end.\nfn a() {}\n\
                      //// Nothing.\n// A remark.\n    /// A field.\n    b: u8,\n";
        let found = comments(source);
        let lines: Vec<usize> = found.iter().map(|comment| comment.line).collect();
        assert_eq!(lines, [1, 5, 10]);
        assert_eq!(found[0].text, " A file.\n\n More.");
        assert_eq!(found[1].text, " An item.\n Its end.");
    }

    #[test]
    fn only_clean_places_are_checked() {
        assert!(is_checked("crates/units/src/rate.rs"));
        assert!(is_checked("crates/cli/src/arguments.rs"));
        assert!(!is_checked("xtask/src/main.rs"));
        assert!(!is_checked("crates/units/src/notes.md"));
    }
}
