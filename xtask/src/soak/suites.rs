//! Steps that are tests of the workspace at the size of the bar.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use super::parts::Step;
use super::{Outcome, Soak};
use crate::workspace;

/// Kills of one step: what a stopped soak loses.
const KILLS_PER_STEP: u64 = 50;

/// Lines of a failure that are kept.
const LINES_OF_FAILURE: usize = 12;

/// A test, and what makes it larger.
pub struct Test {
    /// Its crate.
    pub package: &'static str,
    /// Arguments of `cargo test` and of the test.
    pub arguments: Vec<&'static str>,
    /// The release profile.
    pub release: bool,
    /// Its variables.
    pub variables: Vec<(&'static str, String)>,
    /// True if the test is one of those that `cargo test` ignores.
    pub ignored: bool,
    /// Lines of its output that are worth keeping contain one of these.
    pub keep: &'static [&'static str],
}

/// Random schedules of the state machines.
pub fn schedules(_: &Soak) -> Result<Vec<Step>, String> {
    let arguments = vec!["--test", "all", "random_schedules"];
    let test = |seeds: &str| Test {
        package: "longhaul-proto",
        arguments: arguments.clone(),
        release: false,
        ignored: false,
        variables: vec![("LONGHAUL_SCHEDULES", seeds.to_owned())],
        keep: &["Met {", "test result"],
    };
    Ok(vec![step("all", "schedules 0 to 99,999", test("100000"))])
}

/// Optima of random graphs beside those of HiGHS. `LONGHAUL_PYTHON` names a Python with `highspy`.
pub fn graphs(_: &Soak) -> Result<Vec<Step>, String> {
    let test = Test {
        package: "longhaul-model",
        arguments: vec!["--test", "all", "highs_agrees"],
        release: true,
        ignored: true,
        variables: vec![("LONGHAUL_GRAPHS", "1000".to_owned())],
        keep: &["reached its limit", "test result"],
    };
    Ok(vec![step("all", "graphs 0 to 999", test)])
}

/// Power lost.
pub fn crashes(_: &Soak) -> Result<Vec<Step>, String> {
    let test = Test {
        package: "longhaul-engine",
        arguments: vec!["--test", "all", "crashes::"],
        release: false,
        ignored: false,
        variables: vec![("LONGHAUL_CRASHES", "2000".to_owned())],
        keep: &["test ", "crashes", "steps"],
    };
    Ok(vec![step("all", "LONGHAUL_CRASHES=2000", test)])
}

/// Transfers while everything about them changes.
pub fn pipelines(_: &Soak) -> Result<Vec<Step>, String> {
    let test = Test {
        package: "longhaul-engine",
        arguments: vec!["--test", "all", "pipeline::"],
        release: false,
        ignored: false,
        variables: vec![("LONGHAUL_PIPELINES", "30".to_owned())],
        keep: &["test ", "seed"],
    };
    Ok(vec![step("all", "LONGHAUL_PIPELINES=30", test)])
}

/// Filters beside rsync's.
pub fn filters(_: &Soak) -> Result<Vec<Step>, String> {
    let test = Test {
        package: "longhaul-engine",
        arguments: vec!["--test", "all", "filters::"],
        release: false,
        ignored: false,
        variables: vec![("LONGHAUL_FILTERS", "10000".to_owned())],
        keep: &["lists of rules", "skipped", "test result"],
    };
    Ok(vec![step("all", "lists 0 to 9,999", test)])
}

/// Makes the steps that kill either end.
pub fn kills(soak: &Soak) -> Result<Vec<Step>, String> {
    let steps = (1..=4).map(|number| {
        let test = Test {
            package: "longhaul",
            arguments: vec!["--test", "copies", "kills::"],
            release: true,
            ignored: false,
            variables: vec![
                ("LONGHAUL_KILLS", KILLS_PER_STEP.to_string()),
                ("LONGHAUL_KILL_BYTES", (2_u64 << 30).to_string()),
                ("LONGHAUL_KILL_FILES", "50000".to_owned()),
                ("LONGHAUL_LIMIT_SECONDS", "3600".to_owned()),
                ("TMPDIR", soak.memory.display().to_string()),
            ],
            keep: &["LONGHAUL_SEED", "kills in", "files of"],
        };
        let size = format!("{KILLS_PER_STEP} kills, 2 GiB, 50,000 files");
        step(&number.to_string(), &size, test)
    });
    Ok(steps.collect())
}

/// Labs killed at random moments.
pub fn labs(_: &Soak) -> Result<Vec<Step>, String> {
    let test = Test {
        package: "longhaul",
        arguments: vec!["--test", "measurements", "a_killed_lab"],
        release: false,
        ignored: false,
        variables: vec![
            ("LONGHAUL_LAB_KILLS", "50".to_owned()),
            ("LONGHAUL_LIMIT_SECONDS", "600".to_owned()),
        ],
        keep: &["LONGHAUL_SEED", "labs killed", "skipped", "test result"],
    };
    Ok(vec![step("all", "50 labs", test)])
}

/// A step that is a test.
pub fn step(name: &str, size: &str, test: Test) -> Step {
    let log = format!("{}-{name}.log", test.package);
    Step {
        name: name.to_owned(),
        size: size.to_owned(),
        run: Box::new(move |soak: &Soak| test.run(&soak.directory.join(&log))),
    }
}

impl Test {
    /// Runs it; its output goes to a file.
    pub fn run(&self, log: &Path) -> Outcome {
        let failed = |error: std::io::Error| format!("{}: {error}", log.display());
        let mut command = workspace::cargo();
        command.args(["test", "--locked", "-p", self.package]);
        command.args(self.release.then_some("--release"));
        command.args(&self.arguments).args(["--", "--nocapture"]);
        command.args(self.ignored.then_some("--ignored"));
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let output = File::create(log).map_err(failed)?;
        command.stdout(output.try_clone().map_err(failed)?);
        command.stderr(output);
        let run = run_to_end(&mut command);
        let text = std::fs::read(log).map_err(failed)?;
        let text = String::from_utf8_lossy(&text);
        match run {
            Ok(()) => Ok(kept(&text, self.keep)),
            Err(error) => Err(format!("{error}\n{}", failure_of(&text))),
        }
    }
}

fn run_to_end(command: &mut Command) -> Result<(), String> {
    command.stdin(std::process::Stdio::null());
    workspace::run(command)
}

/// Returns the lines with one of these words, each once.
fn kept(text: &str, words: &[&str]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let wanted = words.iter().any(|word| line.contains(word));
        if wanted && !lines.iter().any(|known| known == line) {
            lines.push(line.to_owned());
        }
    }
    lines
}

/// Returns the message of the first panic; otherwise the last line.
fn failure_of(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let panic = lines.iter().position(|line| line.contains(" panicked at "));
    let from = panic.unwrap_or(lines.len().saturating_sub(LINES_OF_FAILURE));
    let shown = lines[from..].iter().take(LINES_OF_FAILURE);
    let shown: Vec<String> = shown.map(|line| line.chars().take(400).collect()).collect();
    shown.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_results_are_kept() {
        let text = "compiling\nLONGHAUL_SEED=7\nLONGHAUL_SEED=7\n20 kills in 7 copies\n";
        let expected = ["LONGHAUL_SEED=7", "20 kills in 7 copies"];
        assert_eq!(kept(text, &["SEED", "kills in"]), expected);
        assert_eq!(failure_of(text), text.trim_end());
        let failed = "noise\nthread 'a' panicked at b:1:\nwhy\n";
        assert_eq!(failure_of(failed), "thread 'a' panicked at b:1:\nwhy");
    }
}
