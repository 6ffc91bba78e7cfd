//! Compares the optimiser with an independent solver: CBC, which reads the program from a file.

use std::fs;
use std::path::Path;
use std::process::Command;

use longhaul_model::optimise::{Bound, best_rate, rate_program};

use super::random::{Chance, larger_graph};

/// Returns the number of graphs to compare. `LONGHAUL_GRAPHS` can increase it.
fn graphs() -> u64 {
    let more = std::env::var("LONGHAUL_GRAPHS").ok();
    more.and_then(|text| text.parse().ok()).unwrap_or(500)
}

/// Returns the optimum that CBC finds for a program.
fn objective(directory: &Path, text: &str) -> f64 {
    let (program, solution) = (directory.join("program.lp"), directory.join("solution.txt"));
    fs::write(&program, text).unwrap();
    let output = Command::new("cbc")
        .arg(&program)
        .args([
            "-ratioGap",
            "0",
            "-allowableGap",
            "0",
            "-primalTolerance",
            "1e-8",
        ])
        // CBC's preprocessing loses optima: for seed 1000269, 1.4 %.
        .args(["-preprocess", "off", "-solve", "-solu"])
        .arg(&solution)
        .output()
        .unwrap();
    assert!(output.status.success());
    let found = fs::read_to_string(&solution).unwrap();
    let first = found.lines().next().unwrap();
    assert!(first.starts_with("Optimal"), "{first}\n{text}");
    let value: f64 = first.rsplit(' ').next().unwrap().parse().unwrap();
    // CBC minimises the negative of the objective.
    value.abs()
}

#[test]
fn another_solver_agrees() {
    if Command::new("cbc").arg("-quit").output().is_err() {
        longhaul_testing::skip("cbc is missing: install the Debian package coinor-cbc");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for seed in 0..graphs() {
        let graph = larger_graph(&mut Chance::new(1_000_000 + seed));
        let (rate, gap) = best_rate(&graph, Bound::DEFAULT).unwrap();
        let (program, scale) = rate_program(&graph).unwrap();
        let other = objective(directory.path(), &program.to_lp()) * scale;
        assert!(
            (rate - other).abs() <= 1e-4 * other + 1e-3 && gap == 0.0,
            "seed {seed}: {rate} instead of {other}, gap {gap}\n{graph:#?}"
        );
    }
}
