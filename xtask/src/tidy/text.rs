//! Whitespace, comments that fit, and no paths of one machine.

use super::Finding;
use super::tree::{TrackedFile, Tree};

const WHITESPACE: &str = "whitespace";
const WIDTH: &str = "width";
const MACHINE: &str = "machine";

/// Characters in a line with a comment; code is rustfmt's affair.
const MAXIMUM_WIDTH: usize = 100;

/// Directories that exist on one machine only, without their slashes (which
/// would make this file find itself).
const MACHINE_DIRECTORIES: [&str; 3] = ["work", "root", "home"];

/// All three rules.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        check_whitespace(file, &mut findings);
        check_width(file, &mut findings);
        check_machine_paths(file, &mut findings);
    }
    findings
}

fn check_whitespace(file: &TrackedFile, findings: &mut Vec<Finding>) {
    if ![".rs", ".md", ".toml"]
        .iter()
        .any(|end| file.path.ends_with(end))
    {
        return;
    }
    for (index, line) in file.text.lines().enumerate() {
        let message = if line.ends_with([' ', '\t']) {
            "whitespace at the end of the line"
        } else if line.contains('\t') {
            "a tab: indent with spaces, write \\t in a literal"
        } else {
            continue;
        };
        findings.push(Finding::new(&file.path, index + 1, WHITESPACE, message));
    }
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        let message = "no newline at the end of the file";
        let last = file.text.lines().count();
        findings.push(Finding::new(&file.path, last, WHITESPACE, message));
    }
}

fn check_width(file: &TrackedFile, findings: &mut Vec<Finding>) {
    let Some(rust) = &file.rust else { return };
    for (index, line) in file.text.lines().enumerate() {
        let width = line.chars().count();
        // An address cannot be broken.
        let comment = rust.comment(index + 1);
        if width > MAXIMUM_WIDTH && !comment.is_empty() && !comment.contains("://") {
            let message = format!("{width} characters, more than {MAXIMUM_WIDTH}");
            findings.push(Finding::new(&file.path, index + 1, WIDTH, message));
        }
    }
}

fn check_machine_paths(file: &TrackedFile, findings: &mut Vec<Finding>) {
    for (index, line) in file.text.lines().enumerate() {
        if let Some(directory) = MACHINE_DIRECTORIES.iter().find(|d| names_below(line, d)) {
            let message = format!("a path below /{directory} means nothing on another machine");
            findings.push(Finding::new(&file.path, index + 1, MACHINE, message));
        }
    }
}

/// True if a line names a path below a top directory: an absolute path, not the middle of a longer
/// one.
fn names_below(line: &str, directory: &str) -> bool {
    let pattern = format!("/{directory}/");
    line.match_indices(&pattern).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + pattern.len()..].chars().next();
        let absolute = !before.is_some_and(|c| c.is_alphanumeric() || "._-~}/*".contains(c));
        absolute && after.is_some_and(|c| c.is_alphanumeric() || "._-".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::super::tree::sample;
    use super::*;

    #[test]
    fn clean_text_passes() {
        let long = format!("// https://example.org/{}\n", "x".repeat(100));
        let tree = sample(&[
            ("a.rs", &long),
            ("b.rs", "let a = \"\\t\";\n"),
            ("c.md", "see src/home/page and ~/work/x\n"),
            ("Makefile", "all:\n\techo\n"),
        ]);
        assert_eq!(check(&tree), []);
    }

    #[test]
    fn whitespace_is_found() {
        let tree = sample(&[("a.rs", "a \n\tb\nc\n"), ("b.md", "no newline")]);
        let found: Vec<_> = check(&tree).into_iter().map(|f| (f.rule, f.line)).collect();
        assert_eq!(found, [(WHITESPACE, 1), (WHITESPACE, 2), (WHITESPACE, 1)]);
    }

    #[test]
    fn wide_comments_are_found() {
        let text = format!(
            "fn a() {{}} // {}\n// {}\n",
            "x".repeat(100),
            "y".repeat(97)
        );
        let found: Vec<_> = check(&sample(&[("a.rs", &text)]));
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].rule, found[0].line), (WIDTH, 1));
    }

    #[test]
    fn machine_paths_are_found() {
        for directory in MACHINE_DIRECTORIES {
            let text = format!("cd \"/{directory}/x\"\n");
            let found = check(&sample(&[("script", &text)]));
            assert_eq!(found.len(), 1, "{text}");
            assert_eq!(found[0].rule, MACHINE);
        }
    }
}
