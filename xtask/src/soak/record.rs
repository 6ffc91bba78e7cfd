//! The record of what was run: a table for people, the same for programs.

use std::fmt::Write;
use std::process::Command;

use serde_json::{Value, json};

use super::parts::PARTS;
use super::state::{Finished, State};
use crate::workspace;

/// Date, commit and machine of a soak.
pub struct About {
    /// Year, month and day.
    pub date: String,
    /// The commit, with `-dirty` where there were changes.
    pub commit: String,
    /// Processors and kernel.
    pub machine: String,
}

/// Returns date, commit and machine.
///
/// # Errors
///
/// If a command for it fails.
pub fn about() -> Result<About, String> {
    let text = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(workspace::root());
        Ok::<String, String>(workspace::output_of(&mut command)?.trim().to_owned())
    };
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| line.split(": ").nth(1));
    let count = cpus.matches("processor\t").count();
    let model = model.unwrap_or("unknown");
    let commit = text("git", &["rev-parse", "--short", "HEAD"])?;
    // The records themselves change while this runs.
    let own = ["status", "--porcelain", "--", ".", ":!bench/runs"];
    let changed = text("git", &own)?;
    Ok(About {
        date: text("date", &["+%F"])?,
        commit: commit + if changed.is_empty() { "" } else { "-dirty" },
        machine: format!("{count} cores {model}, Linux {}", text("uname", &["-r"])?),
    })
}

/// Writes `bench/runs/DATE-soak.md` and `.json`: the last run of each step.
///
/// # Errors
///
/// If they cannot be written.
pub fn write(state: &State) -> Result<(), String> {
    let about = about()?;
    let mut last = state.last();
    last.sort_by_key(|finished| PARTS.iter().position(|part| part.name == finished.part));
    let stem = format!("bench/runs/{}-soak", about.date);
    let save = |name: String, text: String| {
        let path = workspace::root().join(name);
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    };
    save(format!("{stem}.md"), markdown(&about, &last))?;
    let steps: Vec<Value> = last.iter().map(|finished| finished.to_json()).collect();
    let value = json!({ "version": 1, "date": about.date, "steps": steps });
    save(format!("{stem}.json"), format!("{value:#}\n"))
}

fn markdown(about: &About, last: &[&Finished]) -> String {
    let mut text = format!(
        "# Soak\n\n{}, {}. Made by `cargo xtask soak`: the bars at the size they are stated \
         at, the last run of each step. Load: the host's, when the step began and when it \
         ended.\n\n\
         | part | step | size | outcome | seconds | load | date, commit |\n\
         |---|---|---|---|---|---|---|\n",
        about.date, about.machine
    );
    for finished in last {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {:.0} | {:.0} to {:.0} | {} {} |",
            finished.part,
            finished.step,
            finished.size,
            if finished.passed { "passed" } else { "FAILED" },
            finished.seconds,
            finished.load[0],
            finished.load[1],
            finished.date,
            finished.commit
        );
    }
    let missing: Vec<&str> = PARTS
        .iter()
        .map(|part| part.name)
        .filter(|name| last.iter().all(|finished| finished.part != *name))
        .collect();
    if !missing.is_empty() {
        let _ = writeln!(text, "\nNot run: {}.", missing.join(", "));
    }
    for finished in last.iter().filter(|finished| !finished.notes.is_empty()) {
        let _ = writeln!(text, "\n## {} {}\n", finished.part, finished.step);
        for note in &finished.notes {
            let lines: Vec<&str> = note.lines().collect();
            let _ = writeln!(text, "- {}", lines.join("\n  "));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_lists_steps_that_were_not_run() {
        let finished = Finished {
            part: "kills".to_owned(),
            step: "1".to_owned(),
            size: "50 kills".to_owned(),
            passed: false,
            seconds: 12.0,
            load: [1.0, 2.0],
            notes: vec!["LONGHAUL_SEED=7".to_owned()],
            date: "2026-01-01".to_owned(),
            commit: "c".to_owned(),
            machine: "m".to_owned(),
        };
        let about = About {
            date: "2026-01-02".to_owned(),
            commit: "d".to_owned(),
            machine: "m".to_owned(),
        };
        let text = markdown(&about, &[&finished]);
        assert!(text.contains("| kills | 1 | 50 kills | FAILED | 12 |"));
        assert!(text.contains("LONGHAUL_SEED=7"));
        assert!(text.contains(
            "Not run: schedules, graphs, crashes, pipelines, filters, labs, million, \
                 links, entries, sparse, rekey, fuzz."
        ));
    }
}
