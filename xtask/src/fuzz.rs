//! Builds and runs fuzz targets. libFuzzer needs coverage counters, which the
//! pinned stable compiler can insert through its LLVM passes; the sanitizers,
//! which need nightly, find little in safe code.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::workspace;

/// Compiler options that insert the counters: edges with inline 8-bit counters, the table of their
/// addresses, and comparisons with their operands.
const COVERAGE_FLAGS: [&str; 7] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Clink-dead-code",
    "--cfg=fuzzing",
];

/// Memory of a target. A decoder that allocates more than its input justifies fails here.
const MEMORY_LIMIT_MIB: u32 = 1024;

/// Seconds that one input may take.
const INPUT_TIMEOUT_SECONDS: u32 = 10;

/// Seconds for a target by default.
const DEFAULT_SECONDS: u64 = 60;

/// Limits of a run of a target without a finding. The first one that is reached ends it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Executions.
    pub runs: Option<u64>,
    /// Seconds.
    pub seconds: Option<u64>,
}

/// The targets to run.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Selection {
    One(String),
    All,
    List,
}

/// Builds and runs the selected targets.
///
/// # Errors
///
/// If the arguments are wrong, or if a target does not build or has a finding.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let (selection, budget) = parse(arguments)?;
    let known = known_targets()?;
    let chosen = match selection {
        Selection::List => {
            println!("{}", known.join("\n"));
            return Ok(());
        }
        Selection::All => known,
        Selection::One(name) if known.contains(&name) => vec![name],
        Selection::One(name) => {
            return Err(format!(
                "there is no target \"{name}\"; there are: {}",
                known.join(", ")
            ));
        }
    };
    let binaries = build(&package(), &workshop()?, &chosen)?;
    for target in &chosen {
        run_target(target, budget, &binaries, None)?;
    }
    Ok(())
}

/// Directory of the targets and their corpora.
fn package() -> PathBuf {
    workspace::root().join("fuzz")
}

/// Directory of the builds and of new inputs.
fn workshop() -> Result<PathBuf, String> {
    Ok(workspace::target_directory()?.join("fuzz"))
}

/// The names of all targets.
///
/// # Errors
///
/// If they cannot be listed.
pub fn known_targets() -> Result<Vec<String>, String> {
    targets(&package())
}

/// Builds all targets and gives the directory with their binaries.
///
/// # Errors
///
/// If one does not build.
pub fn build_all() -> Result<PathBuf, String> {
    build(&package(), &workshop()?, &known_targets()?)
}

fn parse(arguments: &[String]) -> Result<(Selection, Budget), String> {
    let mut selection = None;
    let mut budget = Budget::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut number = || {
            let value = rest.next().map_or("", String::as_str);
            value
                .parse()
                .map_err(|_| format!("{argument} wants a whole number, not \"{value}\""))
        };
        match argument.as_str() {
            "--runs" => budget.runs = Some(number()?),
            "--seconds" => budget.seconds = Some(number()?),
            "--all" => selection = Some(Selection::All),
            "--list" => selection = Some(Selection::List),
            name if name.starts_with('-') => return Err(format!("unknown option {name}")),
            name => selection = Some(Selection::One(name.to_owned())),
        }
    }
    if budget == Budget::default() {
        budget.seconds = Some(DEFAULT_SECONDS);
    }
    let selection = selection.ok_or("name a target, or --all, or --list")?;
    Ok((selection, budget))
}

/// Each file in `fuzz_targets` is one target.
fn targets(package: &Path) -> Result<Vec<String>, String> {
    let directory = package.join("fuzz_targets");
    let names = std::fs::read_dir(&directory)
        .map_err(|error| format!("{}: {error}", directory.display()))?;
    let mut targets: Vec<String> = names
        .flatten()
        .filter_map(|name| {
            let name = name.file_name().into_string().ok()?;
            Some(name.strip_suffix(".rs")?.to_owned())
        })
        .collect();
    targets.sort();
    Ok(targets)
}

/// Builds targets and gives the directory with their binaries.
fn build(package: &Path, workshop: &Path, targets: &[String]) -> Result<PathBuf, String> {
    let host = workspace::host_triple()?;
    let mut command = workspace::cargo();
    command
        .args(["build", "--release", "--manifest-path"])
        .arg(package.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(workshop)
        // With an explicit `--target`, the flags do not apply to build scripts.
        .args(["--target", &host])
        .env("RUSTFLAGS", COVERAGE_FLAGS.join(" "));
    for target in targets {
        command.args(["--bin", target]);
    }
    workspace::run(&mut command)?;
    Ok(workshop.join(host).join("release"))
}

/// Runs a target. Its output goes to `log`, or is shown. New inputs go to the workshop; the
/// committed corpus is only read.
///
/// # Errors
///
/// If it cannot be run, or has a finding.
pub fn run_target(
    target: &str,
    budget: Budget,
    binaries: &Path,
    log: Option<File>,
) -> Result<(), String> {
    let (package, found) = (package(), workshop()?.join("corpus").join(target));
    let artifacts = package.join("artifacts").join(target);
    for directory in [&found, &artifacts] {
        std::fs::create_dir_all(directory)
            .map_err(|error| format!("{}: {error}", directory.display()))?;
    }
    let limits = [
        budget.runs.map(|runs| format!("-runs={runs}")),
        budget
            .seconds
            .map(|seconds| format!("-max_total_time={seconds}")),
    ];
    let limits: Vec<String> = limits.into_iter().flatten().collect();
    println!("fuzz: {target} {}", limits.join(" "));
    let mut command = Command::new(binaries.join(target));
    command
        .args(limits)
        .arg(format!("-rss_limit_mb={MEMORY_LIMIT_MIB}"))
        .arg(format!("-timeout={INPUT_TIMEOUT_SECONDS}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg("-print_final_stats=1")
        .arg(&found)
        .arg(package.join("corpus").join(target));
    if let Some(log) = log {
        let second = log.try_clone().map_err(|error| error.to_string())?;
        command.stdout(second).stderr(log);
    }
    workspace::run(&mut command).map_err(|error| {
        format!(
            "{target}: a finding, see {}; once fixed, keep the input in fuzz/corpus/{target}\n{error}",
            artifacts.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<(Selection, Budget), String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&words)
    }

    #[test]
    fn reads_its_arguments() {
        let one = Selection::One("tree_path".to_owned());
        let budget = |runs, seconds| Budget { runs, seconds };
        let runs = budget(Some(7), None);
        assert_eq!(parsed("tree_path --runs 7"), Ok((one, runs)));
        assert_eq!(
            parsed("--seconds 5 --all --runs 9"),
            Ok((Selection::All, budget(Some(9), Some(5))))
        );
        assert_eq!(
            parsed("--list"),
            Ok((Selection::List, budget(None, Some(DEFAULT_SECONDS))))
        );
    }

    #[test]
    fn unknown_arguments_are_refused() {
        for line in ["", "--runs", "a --runs x", "a --fast"] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
