//! Compares the optimiser with an independent solver: CBC, which reads the program from a file.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use longhaul_model::optimise::program::{Program, Relation};
use longhaul_model::optimise::{Bound, best_rate, rate_program};

use super::random::{Chance, larger_graph};

/// Returns the number of graphs to compare. `LONGHAUL_GRAPHS` can increase it.
fn graphs() -> u64 {
    let more = std::env::var("LONGHAUL_GRAPHS").ok();
    more.and_then(|text| text.parse().ok()).unwrap_or(500)
}

/// Returns a program as text in CPLEX's LP format. Variables are `x0`, `x1` and so on, in the order
/// in which they were made.
pub fn to_lp(program: &Program) -> String {
    let mut text = String::from("Maximize\n obj:");
    let terms = |text: &mut String, terms: &mut dyn Iterator<Item = (usize, f64)>| {
        for (number, (at, factor)) in terms.enumerate() {
            let sign = if factor < 0.0 { '-' } else { '+' };
            // Lines of this format are short: solvers stop at 510 characters.
            let line = if number % 8 == 7 { "\n" } else { "" };
            write!(text, "{line} {sign} {:e} x{at}", factor.abs()).unwrap();
        }
        text.push('\n');
    };
    terms(&mut text, &mut program.objective_terms());
    text.push_str("Subject To\n");
    for (number, (row, relation, right)) in program.row_terms().enumerate() {
        write!(text, " c{number}:").unwrap();
        terms(&mut text, &mut row.into_iter());
        let relation = match relation {
            Relation::Le => "<=",
            Relation::Eq => "=",
            Relation::Ge => ">=",
        };
        // On the line before its end.
        text.pop();
        writeln!(text, " {relation} {right:e}").unwrap();
    }
    text.push_str("Bounds\n");
    let mut whole = String::new();
    for (at, (most, is_whole)) in program.column_bounds().enumerate() {
        writeln!(text, " 0 <= x{at} <= {most:e}").unwrap();
        if is_whole {
            writeln!(whole, " x{at}").unwrap();
        }
    }
    if !whole.is_empty() {
        text.push_str("General\n");
        text.push_str(&whole);
    }
    text + "End\n"
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
        let other = objective(directory.path(), &to_lp(&program)) * scale;
        assert!(
            (rate - other).abs() <= 1e-4 * other + 1e-3 && gap == 0.0,
            "seed {seed}: {rate} instead of {other}, gap {gap}\n{graph:#?}"
        );
    }
}
