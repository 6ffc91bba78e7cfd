//! Every fuzz target is built and has a corpus.

use std::collections::BTreeSet;

use super::Finding;
use super::tree::Tree;

const RULE: &str = "fuzzing";
const MANIFEST: &str = "fuzz/Cargo.toml";

/// Compares the files in `fuzz/fuzz_targets` with the manifest's `[[bin]]`s
/// and the committed corpora.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let manifest = tree.get(MANIFEST).map_or("", |file| file.text.as_str());
    let built = bin_paths(manifest);
    let mut findings = Vec::new();
    let mut names = BTreeSet::new();
    for file in &tree.files {
        let Some(source) = file.path.strip_prefix("fuzz/fuzz_targets/") else {
            continue;
        };
        let Some(name) = source.strip_suffix(".rs") else {
            continue;
        };
        names.insert(name);
        if !built.iter().any(|(_, path)| path.ends_with(source)) {
            let message = format!("has no [[bin]] in {MANIFEST}");
            findings.push(Finding::new(&file.path, 1, RULE, message));
        }
        if !tree.exists(&format!("fuzz/corpus/{name}")) {
            let message = format!("has no input in fuzz/corpus/{name}: add a few small ones");
            findings.push(Finding::new(&file.path, 1, RULE, message));
        }
    }
    for (line, path) in &built {
        if !tree.exists(&format!("fuzz/{path}")) {
            findings.push(Finding::new(
                MANIFEST,
                *line,
                RULE,
                format!("{path} is missing"),
            ));
        }
    }
    for file in &tree.files {
        let corpus = file.path.strip_prefix("fuzz/corpus/");
        let name = corpus.and_then(|rest| rest.split_once('/'));
        if let Some((name, _)) = name.filter(|(name, _)| !names.contains(name)) {
            let message = format!("there is no fuzz target {name}");
            findings.push(Finding::new(&file.path, 1, RULE, message));
        }
    }
    findings
}

/// Paths of the manifest's binaries with their lines.
fn bin_paths(manifest: &str) -> Vec<(usize, &str)> {
    manifest
        .lines()
        .enumerate()
        .filter_map(|(index, line)| {
            let path = line.strip_prefix("path = \"")?.strip_suffix('"')?;
            path.ends_with(".rs").then_some((index + 1, path))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tree::sample;
    use super::*;

    #[test]
    fn a_whole_target_passes() {
        let tree = sample(&[
            (
                MANIFEST,
                "[[bin]]\nname = \"a\"\npath = \"fuzz_targets/a.rs\"\n",
            ),
            ("fuzz/fuzz_targets/a.rs", ""),
            ("fuzz/corpus/a/empty", ""),
        ]);
        assert_eq!(check(&tree), []);
    }

    #[test]
    fn halves_are_found() {
        let tree = sample(&[
            (
                MANIFEST,
                "[[bin]]\nname = \"b\"\npath = \"fuzz_targets/b.rs\"\n",
            ),
            ("fuzz/fuzz_targets/a.rs", ""),
            ("fuzz/corpus/c/empty", ""),
        ]);
        assert_eq!(check(&tree).len(), 4);
    }
}
