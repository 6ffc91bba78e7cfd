//! The repository stays small: no large file, and measurements within a bound
//! that only shrinks.

use super::Finding;
use super::tree::Tree;

const RULE: &str = "sizes";

/// The most that one file may have, in bytes. Records are compressed (`longhaul records
/// compress`); time series stay where they were measured, unless a page plots them.
const LARGEST_FILE: u64 = 1 << 20;

/// The directory of measurements.
const RUNS: &str = "bench/runs/";

/// The most bytes of all measurements together.
const MOST_OF_RUNS: u64 = 1_100_000;

/// The most files of measurements: each question keeps its last page and its records.
const MOST_RUNS: usize = 80;

/// Checks every tracked file of any type.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let large = tree.files.iter().filter(|file| file.bytes > LARGEST_FILE);
    let mut findings: Vec<Finding> = large
        .map(|file| {
            let message = format!(
                "{} bytes, more than {LARGEST_FILE}: compress it, or leave it out",
                file.bytes
            );
            Finding::new(&file.path, 1, RULE, message)
        })
        .collect();
    let runs = tree.files.iter().filter(|file| file.path.starts_with(RUNS));
    let (count, runs) = runs.fold((0, 0), |(count, bytes), file| {
        (count + 1, bytes + file.bytes)
    });
    if count > MOST_RUNS {
        let message = format!(
            "{count} files of measurements, more than {MOST_RUNS}: keep the last page of each \
             question with its records, and add the earlier results to history.md"
        );
        findings.push(Finding::new(RUNS, 1, RULE, message));
    }
    if runs > MOST_OF_RUNS {
        let message = format!(
            "{runs} bytes of measurements, more than {MOST_OF_RUNS}: compress records (longhaul \
             records compress --remove FILE), and remove samples that no page plots"
        );
        findings.push(Finding::new(RUNS, 1, RULE, message));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::tree::sample;
    use super::*;

    #[test]
    fn large_files_and_large_measurements_are_found() {
        let mut tree = sample(&[
            ("a.md", "x"),
            ("bench/runs/one.jsonl.zst", ""),
            ("bench/runs/two.jsonl.zst", ""),
        ]);
        tree.files[1].bytes = LARGEST_FILE;
        assert_eq!(check(&tree), []);
        tree.files[0].bytes = LARGEST_FILE + 1;
        assert_eq!(check(&tree)[0].path, "a.md");
        tree.files[0].bytes = 1;
        tree.files[2].bytes = MOST_OF_RUNS;
        let found = check(&tree);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.iter().any(|finding| finding.path == RUNS));
    }
}
