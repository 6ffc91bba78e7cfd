//! A step for each fuzz target.

use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::parts::Step;
use super::{Outcome, Soak};
use crate::fuzz::{self, Budget};

/// Directory of the built targets, once the first one has been built.
type Built = Arc<Mutex<Option<PathBuf>>>;

/// A step for each target.
pub fn steps(soak: &Soak) -> Result<Vec<Step>, String> {
    let (runs, seconds) = (soak.options.fuzz_runs, soak.options.fuzz_seconds);
    let budget = Budget {
        runs: Some(runs),
        seconds: Some(seconds),
    };
    let built = Built::default();
    let steps = fuzz::known_targets()?.into_iter().map(|target| {
        let (name, built) = (target.clone(), Arc::clone(&built));
        Step {
            name,
            size: format!("{runs} executions or {seconds} s"),
            run: Box::new(move |soak| run(soak, &target, budget, &built)),
        }
    });
    Ok(steps.collect())
}

fn run(soak: &Soak, target: &str, budget: Budget, built: &Built) -> Outcome {
    let mut directory = built.lock().unwrap_or_else(PoisonError::into_inner);
    if directory.is_none() {
        *directory = Some(fuzz::build_all()?);
    }
    let binaries = directory.clone().unwrap_or_default();
    drop(directory);
    let path = soak.directory.join(format!("fuzz-{target}.log"));
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let log = File::create(&path).map_err(failed)?;
    let found = fuzz::run_target(target, budget, &binaries, Some(log));
    let text = std::fs::read(&path).map_err(failed)?;
    let executions = executions(&String::from_utf8_lossy(&text));
    match (found, executions) {
        (Ok(()), Some(count)) => Ok(vec![format!("{count} executions, no finding")]),
        (Ok(()), None) => Err(format!("{} names no executions", path.display())),
        (Err(error), count) => Err(format!("{error}\nafter {count:?} executions")),
    }
}

/// Returns the number of executions from the output of libFuzzer.
fn executions(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("stat::number_of_executed_units:"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::executions;

    #[test]
    fn reads_how_often_it_was_executed() {
        let text = "Done 7\nstat::number_of_executed_units: 1234\nstat::peak_rss_mb: 40\n";
        assert_eq!(executions(text), Some(1234));
        assert_eq!(executions("nothing"), None);
    }
}
