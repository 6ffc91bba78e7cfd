//! Few test binaries: each links everything that its crate needs, so that a file of tests is a
//! module of an existing binary.

use std::collections::BTreeMap;

use super::Finding;
use super::tree::Tree;

const RULE: &str = "test binaries";

/// Crates with more than one binary, and their number: the bound only shrinks. Tests of commands
/// are in three groups; tests of memory look at their whole process.
const SEVERAL: [(&str, usize); 2] = [("cli", 3), ("engine", 3)];

/// Finds the files of crates with too many binaries.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (file, _) in tree.rust() {
        if let Some(krate) = crate_of_binary(&file.path) {
            crates.entry(krate).or_default().push(&file.path);
        }
    }
    let mut findings = Vec::new();
    for (krate, files) in crates {
        let several = SEVERAL.iter().find(|(name, _)| *name == krate);
        let most = several.map_or(1, |(_, most)| *most);
        if files.len() > most {
            let message = format!(
                "one of {} test binaries of this crate, which may have {most}: make it a module of \
                 another one (a directory with main.rs)",
                files.len()
            );
            let found = files
                .iter()
                .map(|file| Finding::new(file, 1, RULE, message.clone()));
            findings.extend(found);
        }
    }
    findings
}

/// Returns the crate of a file that cargo builds as a test binary: `crates/A/tests/B.rs` or
/// `crates/A/tests/B/main.rs`.
fn crate_of_binary(path: &str) -> Option<&str> {
    let (krate, inside) = path.strip_prefix("crates/")?.split_once("/tests/")?;
    let is_binary = match inside.split_once('/') {
        None => true,
        Some((_, file)) => file == "main.rs",
    };
    (is_binary && !krate.contains('/')).then_some(krate)
}

#[cfg(test)]
mod tests {
    use super::super::tree::sample;
    use super::*;

    #[test]
    fn a_second_binary_of_a_crate_is_found() {
        let mut files = vec![
            ("crates/a/tests/all/main.rs", ""),
            ("crates/a/tests/all/one.rs", ""),
            ("crates/a/tests/support/mod.rs", ""),
            ("crates/a/src/one/tests/two.rs", ""),
            ("crates/cli/tests/copies/main.rs", ""),
            ("crates/cli/tests/hosts/main.rs", ""),
        ];
        assert_eq!(check(&sample(&files)), []);
        files.push(("crates/a/tests/two.rs", ""));
        let found = check(&sample(&files));
        let paths: Vec<&str> = found.iter().map(|finding| finding.path.as_str()).collect();
        assert_eq!(
            paths,
            ["crates/a/tests/all/main.rs", "crates/a/tests/two.rs"]
        );
    }
}
