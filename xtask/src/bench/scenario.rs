//! Experiments of `bench/scenarios`: `longhaul sweep` runs them, with a release build
//! of the commit at hand; records are kept below `bench/runs`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::workspace;

/// Exit code of a sweep that was not finished.
const UNFINISHED: i32 = 2;

/// Runs or resumes a scenario. Further arguments are those of the sweep.
///
/// # Errors
///
/// If no scenario has that name, if it fails, or if it is not finished.
pub fn run(name: &str, further: &[&str]) -> Result<(), String> {
    let root = workspace::root();
    let file = root.join(format!("bench/scenarios/{name}.toml"));
    if !file.is_file() {
        return Err(format!(
            "there is no scenario \"{name}\": bench/scenarios has {}",
            names(&root.join("bench/scenarios")).join(", ")
        ));
    }
    let about = super::about()?;
    let release = ["build", "--locked", "--release", "-p", "longhaul"];
    workspace::run(workspace::cargo().args(release))?;
    let target = workspace::target_directory()?;
    let work = target.join(format!("bench-{name}"));
    let output = output_of(&root, &work, name, &about.date)?;
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let status = Command::new(target.join("release/longhaul"))
        .arg("sweep")
        .arg(&file)
        .arg("--output")
        .arg(&output)
        .arg("--work")
        .arg(work.join("work"))
        .args(["--build", &format!("{} release", about.commit)])
        .args(further)
        .env("LONGHAUL_XTASK", own)
        .status()
        .map_err(|error| format!("longhaul sweep: {error}"))?;
    match status.code() {
        Some(0) => {
            println!("bench: {}", output.display());
            fs::remove_dir_all(&work).map_err(|error| format!("{}: {error}", work.display()))
        }
        Some(UNFINISHED) => Err("some runs are missing: the same command resumes".to_owned()),
        _ => Err(format!("longhaul sweep: {status}")),
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let files = entries.map(|entry| entry.path());
    let scenarios = files.filter(|path| path.extension().is_some_and(|kind| kind == "toml"));
    let stems = scenarios.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()));
    let mut names: Vec<String> = stems.collect();
    names.sort();
    names
}

/// Returns the unfinished records, otherwise new ones of today.
fn output_of(root: &Path, work: &Path, name: &str, date: &str) -> Result<PathBuf, String> {
    let begun = work.join("records");
    let at = |error: std::io::Error| format!("{}: {error}", begun.display());
    if let Ok(path) = fs::read_to_string(&begun) {
        return Ok(PathBuf::from(path.trim()));
    }
    let output = root.join(format!("bench/runs/{date}-{name}.jsonl"));
    fs::create_dir_all(work).map_err(at)?;
    fs::write(&begun, output.display().to_string()).map_err(at)?;
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unfinished_scenario_keeps_its_records() {
        let directory = format!("longhaul-scenario-test-{}", std::process::id());
        let work = std::env::temp_dir().join(directory);
        let root = workspace::root();
        let first = output_of(&root, &work, "x", "2026-01-01").unwrap();
        assert_eq!(first, root.join("bench/runs/2026-01-01-x.jsonl"));
        assert_eq!(output_of(&root, &work, "x", "2026-01-02").unwrap(), first);
        fs::remove_dir_all(&work).unwrap();
    }

    #[test]
    fn scenarios_are_named() {
        assert!(run("no-such", &[]).unwrap_err().contains("profile"));
    }
}
