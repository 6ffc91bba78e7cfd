//! No module has an empty name, because such a module attracts code that belongs elsewhere.

use super::Finding;
use super::rust_source::word_offsets;
use super::tree::Tree;

const RULE: &str = "names";

/// Words that do not describe the contents of a module.
const EMPTY_WORDS: [&str; 7] = [
    "util", "utils", "common", "helper", "helpers", "manager", "misc",
];

/// Checks the paths of Rust files and the modules within files.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, rust) in tree.rust() {
        let stem = file.path.trim_end_matches(".rs");
        if let Some(part) = stem.split('/').find(|part| is_empty_name(part)) {
            findings.push(finding(&file.path, 1, part));
        }
        for (line, code) in rust.code() {
            for at in word_offsets(code, "mod") {
                let name = code[at + 3..].trim().trim_end_matches([';', '{', '}', ' ']);
                if is_empty_name(name) {
                    findings.push(finding(&file.path, line, name));
                }
            }
        }
    }
    findings
}

fn is_empty_name(name: &str) -> bool {
    name.split(['_', '-'])
        .any(|word| EMPTY_WORDS.contains(&word))
}

fn finding(path: &str, line: usize, name: &str) -> Finding {
    let message = format!("\"{name}\" says nothing: name it for what it is about");
    Finding::new(path, line, RULE, message)
}

#[cfg(test)]
mod tests {
    use super::super::tree::sample;
    use super::*;

    #[test]
    fn telling_names_pass() {
        let tree = sample(&[
            (
                "crates/a/src/credit.rs",
                "mod utility_function;\nmod commonality {}\n",
            ),
            ("docs/utils.md", ""),
        ]);
        assert_eq!(check(&tree), []);
    }

    #[test]
    fn empty_names_are_found() {
        let tree = sample(&[
            ("crates/a/src/utils.rs", ""),
            ("crates/a/src/net_helpers/mod.rs", ""),
            ("crates/a/tests/common/mod.rs", ""),
            ("crates/a/src/lib.rs", "pub mod misc {\n}\n// mod util;\n"),
        ]);
        let lines: Vec<_> = check(&tree).into_iter().map(|f| (f.path, f.line)).collect();
        assert_eq!(lines.len(), 4, "{lines:?}");
        assert!(lines.contains(&("crates/a/src/lib.rs".to_owned(), 1)));
    }
}
