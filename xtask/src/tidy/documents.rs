//! Crates say what they are, the promised documents exist, links resolve.

use super::Finding;
use super::tree::{TrackedFile, Tree};

const CRATE_DOCS: &str = "crate-docs";
const DOCUMENTS: &str = "documents";
const LINKS: &str = "links";

/// Documents that the README and DESIGN promise.
const PROMISED: [&str; 5] = [
    "README.md",
    "ARCHITECTURE.md",
    "SEMANTICS.md",
    "FORMAT.md",
    "CONTRIBUTING.md",
];

/// All three rules.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for promised in PROMISED {
        if tree.get(promised).is_none() {
            findings.push(Finding::new(promised, 1, DOCUMENTS, "is missing"));
        }
    }
    for file in &tree.files {
        let is_root = file.path.ends_with("src/lib.rs") || file.path.ends_with("src/main.rs");
        if is_root && !file.text.starts_with("//!") {
            let message = "begin with \"//!\" and what this crate is for";
            findings.push(Finding::new(&file.path, 1, CRATE_DOCS, message));
        }
        if file.path.ends_with(".md") {
            check_links(tree, file, &mut findings);
        }
    }
    findings
}

fn check_links(tree: &Tree, file: &TrackedFile, findings: &mut Vec<Finding>) {
    for (line, target) in links(&file.text) {
        if target.contains("://") || target.starts_with("mailto:") {
            continue;
        }
        let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
        let resolved = resolve(&file.path, path);
        if !tree.exists(&resolved) {
            let message = format!("\"{target}\" leads nowhere");
            findings.push(Finding::new(&file.path, line, LINKS, message));
            continue;
        }
        let document = tree.get(&resolved).filter(|f| f.path.ends_with(".md"));
        let has_anchor = document.is_none_or(|f| anchor.is_empty() || has_heading(f, anchor));
        if !has_anchor {
            let message = format!("{resolved} has no heading for \"#{anchor}\"");
            findings.push(Finding::new(&file.path, line, LINKS, message));
        }
    }
}

/// Targets of inline links with their lines, from 1; code is left out.
pub fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (line, prose) in prose_lines(text) {
        // Every second part between backticks is code.
        for part in prose.split('`').step_by(2) {
            for (at, _) in part.match_indices("](") {
                if let Some((target, _)) = part[at + 2..].split_once(')') {
                    found.push((line, target));
                }
            }
        }
    }
    found
}

/// Lines outside fenced code.
fn prose_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((index + 1, line))
    })
}

/// A link's path, from the repository's root.
fn resolve(from: &str, path: &str) -> String {
    if path.is_empty() {
        return from.to_owned();
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// True if a document has the heading of an anchor.
fn has_heading(file: &TrackedFile, anchor: &str) -> bool {
    prose_lines(&file.text)
        .filter(|(_, line)| line.starts_with('#'))
        .any(|(_, line)| anchor_of(line.trim_start_matches('#').trim()) == anchor)
}

/// The anchor that is made of a heading.
fn anchor_of(heading: &str) -> String {
    heading
        .to_lowercase()
        .replace(' ', "-")
        .chars()
        .filter(|c| c.is_alphanumeric() || "-_".contains(*c))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tree::sample;
    use super::*;

    fn with_documents(files: &[(&str, &str)]) -> Tree {
        let mut all: Vec<(&str, &str)> = PROMISED.iter().map(|path| (*path, "# X\n")).collect();
        all.retain(|(path, _)| files.iter().all(|(other, _)| path != other));
        all.extend(files);
        sample(&all)
    }

    #[test]
    fn whole_documents_pass() {
        let tree = with_documents(&[
            (
                "README.md",
                "# What it is\n[a](docs/a.md#two-words) [b](docs) [c](#what-it-is)\n\
                 [d](https://example.org/x) `[e](nowhere)`\n```\n[f](nowhere)\n```\n",
            ),
            ("docs/a.md", "## Two words\n[up](../README.md)\n"),
            ("crates/a/src/lib.rs", "//! A crate.\n"),
        ]);
        assert_eq!(check(&tree), []);
    }

    #[test]
    fn a_missing_document_is_found() {
        assert_eq!(check(&sample(&[])).len(), PROMISED.len());
    }

    #[test]
    fn broken_links_and_silent_crates_are_found() {
        let tree = with_documents(&[
            (
                "README.md",
                "[a](nowhere.md)\n[b](FORMAT.md#none)\n[c](../out.md)\n",
            ),
            ("crates/a/src/lib.rs", "pub mod a;\n"),
        ]);
        let found: Vec<_> = check(&tree).into_iter().map(|f| (f.rule, f.line)).collect();
        assert_eq!(found, [(LINKS, 1), (LINKS, 2), (LINKS, 3), (CRATE_DOCS, 1)]);
    }
}
