//! The book's table of contents, `docs/SUMMARY.md`, names every page below `docs` exactly once.
//! [`super::documents`] checks that its links resolve.

use super::Finding;
use super::documents::links;
use super::tree::Tree;

const RULE: &str = "book";

/// Directory of the book's pages.
const PAGES: &str = "docs/";

/// The table of contents, below [`PAGES`].
const SUMMARY: &str = "SUMMARY.md";

/// Compares the pages with the table of contents.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let path = format!("{PAGES}{SUMMARY}");
    let Some(summary) = tree.get(&path) else {
        return vec![Finding::new(&path, 1, RULE, "is missing")];
    };
    let mut findings = Vec::new();
    let named = links(&summary.text);
    for (index, (line, page)) in named.iter().enumerate() {
        if named[..index].iter().any(|(_, earlier)| earlier == page) {
            let message = format!("\"{page}\" is named twice");
            findings.push(Finding::new(&path, *line, RULE, message));
        }
    }
    for file in &tree.files {
        let page = file.path.strip_prefix(PAGES);
        let Some(page) = page.filter(|page| page.ends_with(".md") && *page != SUMMARY) else {
            continue;
        };
        if !named.iter().any(|(_, target)| *target == page) {
            let message = format!("{path} does not name this page");
            findings.push(Finding::new(&file.path, 1, RULE, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::tree::sample;
    use super::*;

    #[test]
    fn a_whole_table_of_contents_passes() {
        let tree = sample(&[
            ("docs/SUMMARY.md", "- [A](a.md)\n  - [B](b/c.md)\n"),
            ("docs/a.md", ""),
            ("docs/b/c.md", ""),
            ("docs/plot.svg", ""),
            ("README.md", ""),
        ]);
        assert_eq!(check(&tree), []);
    }

    #[test]
    fn pages_without_or_with_two_entries_are_found() {
        let tree = sample(&[
            ("docs/SUMMARY.md", "- [A](a.md)\n- [A](a.md)\n"),
            ("docs/a.md", ""),
            ("docs/b.md", ""),
        ]);
        let found: Vec<_> = check(&tree).into_iter().map(|f| (f.path, f.line)).collect();
        let expected = [
            ("docs/SUMMARY.md".to_owned(), 2),
            ("docs/b.md".to_owned(), 1),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_missing_table_of_contents_is_found() {
        assert_eq!(check(&sample(&[])).len(), 1);
    }
}
