//! A test names every promise of SEMANTICS.md. Other promises are listed under "Untested" with a
//! reason.
//!
//! A test names a promise in a comment: `// Promise 66.`, or `/// Promises 12, 13 and 16.`

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::tree::Tree;

const RULE: &str = "promises";

/// The document of promises.
const DOCUMENT: &str = "SEMANTICS.md";

/// The heading of the list of promises without a test, each `- NUMBER: reason`.
const UNTESTED: &str = "## Untested";

/// Compares the promises with the comments of all crates.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let Some(document) = tree.get(DOCUMENT) else {
        return Vec::new();
    };
    let (promises, mut findings) = promises(&document.text);
    let untested = untested(&document.text);
    let mut tested = BTreeSet::new();
    let product = |path: &str| path.starts_with("crates/");
    for (file, _) in tree.rust().filter(|(file, _)| product(&file.path)) {
        for (index, line) in file.text.lines().enumerate() {
            for number in named(line) {
                tested.insert(number);
                if !promises.contains_key(&number) {
                    let message = format!("{DOCUMENT} has no promise {number}");
                    findings.push(Finding::new(&file.path, index + 1, RULE, message));
                }
            }
        }
    }
    for (number, line) in &promises {
        if tested.contains(number) == untested.contains_key(number) {
            let message = if tested.contains(number) {
                format!("promise {number} has a test: remove it from \"{UNTESTED}\"")
            } else {
                format!(
                    "no test names promise {number}: add \"// Promise {number}.\" to its test, or \
                     list it under \"{UNTESTED}\" with a reason"
                )
            };
            findings.push(Finding::new(DOCUMENT, *line, RULE, message));
        }
    }
    for (number, line) in untested {
        if !promises.contains_key(&number) {
            let message = format!("there is no promise {number}");
            findings.push(Finding::new(DOCUMENT, line, RULE, message));
        }
    }
    findings
}

/// Promises with their lines, by their headings `### NUMBER. Title`, and those that occur twice.
fn promises(text: &str) -> (BTreeMap<u32, usize>, Vec<Finding>) {
    let mut lines = BTreeMap::new();
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let heading = line.strip_prefix("### ").and_then(|h| h.split_once(". "));
        let Some(number) = heading.and_then(|(number, _)| number.parse().ok()) else {
            continue;
        };
        if lines.insert(number, index + 1).is_some() {
            let message = format!("promise {number} occurs twice");
            findings.push(Finding::new(DOCUMENT, index + 1, RULE, message));
        }
    }
    (lines, findings)
}

/// Promises without a test, with their lines.
fn untested(text: &str) -> BTreeMap<u32, usize> {
    let lines = text.lines().enumerate();
    let mut section = lines.skip_while(|(_, line)| *line != UNTESTED);
    section.next();
    section
        .take_while(|(_, line)| !line.starts_with('#'))
        .filter_map(|(index, line)| {
            let (number, reason) = line.strip_prefix("- ")?.split_once(": ")?;
            (!reason.trim().is_empty()).then_some((number.parse().ok()?, index + 1))
        })
        .collect()
}

/// The promises that a comment line names.
fn named(line: &str) -> Vec<u32> {
    let line = line.trim_start();
    let comment = line
        .strip_prefix("//")
        .map(|rest| rest.trim_start_matches(['/', '!']));
    let Some(comment) = comment else {
        return Vec::new();
    };
    let words: Vec<&str> = comment.split_whitespace().collect();
    let mut numbers = Vec::new();
    for (at, word) in words.iter().enumerate() {
        if !matches!(*word, "Promise" | "Promises") {
            continue;
        }
        let list = words[at + 1..].iter().filter(|word| **word != "and");
        let list = list.map_while(|word| {
            word.trim_end_matches(['.', ',', ':', ';'])
                .parse::<u32>()
                .ok()
        });
        numbers.extend(list);
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::super::tree::sample;
    use super::*;

    fn found(document: &str, test: &str) -> Vec<String> {
        let tree = sample(&[("SEMANTICS.md", document), ("crates/a/tests/a.rs", test)]);
        check(&tree)
            .into_iter()
            .map(|found| found.message)
            .collect()
    }

    #[test]
    fn lists_of_numbers_are_read() {
        assert_eq!(
            named("    /// Promises 12, 13 and 16: the same command."),
            [12, 13, 16]
        );
        assert_eq!(named("// Promise 66."), [66]);
        assert_eq!(named("let a = \"Promise 66\";"), [0; 0]);
        assert_eq!(named("// Promise of 5 files."), [0; 0]);
    }

    #[test]
    fn a_promise_needs_a_test_or_a_reason() {
        let document = "### 1. One\n\n### 2. Two\n\n## Untested\n\n- 2: no kernel can do it.\n";
        assert_eq!(found(document, "// Promise 1.\n"), [""; 0]);
        assert_eq!(found(document, "").len(), 1);
        assert_eq!(found(document, "// Promises 1 and 2.\n").len(), 1);
        assert_eq!(found(document, "// Promises 1 and 3.\n").len(), 1);
    }

    #[test]
    fn a_number_is_unique() {
        assert_eq!(
            found("### 1. One\n### 1. Two\n", "// Promise 1.\n").len(),
            1
        );
    }
}
