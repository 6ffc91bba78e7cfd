//! The tests at full size, one after the other, resumable.
//!
//! - [`parts`]: all parts and their sizes
//! - [`state`]: finished steps, kept below `target/`
//! - [`suites`]: steps that are tests of the workspace at a larger size
//! - [`fuzzing`]: one step for each fuzz target
//! - [`copies`]: a daemon, copies from and to it, and their costs
//! - [`million`], [`entries`], [`links`], [`sparse`], [`rekey`]: steps that are copies
//! - [`record`]: results as Markdown and JSON
//!
//! A part is made of steps. A step that passed runs again only with `--again`; a step that failed
//! always runs again.

mod copies;
mod entries;
mod fuzzing;
mod links;
mod million;
mod parts;
mod record;
mod rekey;
mod sparse;
mod state;
mod suites;

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Instant;

use crate::workspace;
use parts::{PARTS, Part, Step};
use state::{Finished, State};

/// Arguments of the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Names of parts; if empty, all parts.
    parts: Vec<String>,
    /// If true, finished steps run again.
    again: bool,
    list: bool,
    /// Fuzz targets at a time.
    jobs: usize,
    /// Executions after which a fuzz target is done.
    fuzz_runs: u64,
    /// Maximum seconds for a fuzz target.
    fuzz_seconds: u64,
    /// Binary for the copies; `None` to build one.
    binary: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            parts: Vec::new(),
            again: false,
            list: false,
            jobs: 1,
            fuzz_runs: 10_000_000,
            fuzz_seconds: 600,
            binary: None,
        }
    }
}

/// Environment of a step.
pub struct Soak {
    /// Arguments of the command.
    options: Options,
    /// Directory for a step's files, on the disk of the workspace.
    directory: PathBuf,
    /// Directory for a step's files in memory.
    memory: PathBuf,
}

/// Notes of a step that passed, or the reason of its failure.
pub type Outcome = Result<Vec<String>, String>;

/// Runs the selected parts.
///
/// # Errors
///
/// If the arguments are wrong, or a step failed. The other steps run first.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let options = parse(arguments)?;
    let chosen = chosen(&options)?;
    if options.list {
        for part in chosen {
            println!("{:10} {}", part.name, part.about);
        }
        return Ok(());
    }
    let directory = workspace::target_directory()?.join("soak");
    std::fs::create_dir_all(&directory)
        .map_err(|error| format!("{}: {error}", directory.display()))?;
    let state = State::open(&directory.join("state.jsonl"))?;
    let memory = match std::path::Path::new("/dev/shm") {
        shared if shared.is_dir() => shared.to_path_buf(),
        _ => directory.clone(),
    };
    let soak = Soak {
        options,
        directory,
        memory,
    };
    let state = Mutex::new(state);
    let mut failed = Vec::new();
    for part in &chosen {
        failed.extend(run_part(&soak, part, &state)?);
        record::write(&lock(&state))?;
    }
    if failed.is_empty() {
        Ok(())
    } else {
        Err(format!("failed: {}", failed.join(", ")))
    }
}

fn lock(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Runs the steps of a part, several at a time where it allows that; gives
/// those that failed.
fn run_part(soak: &Soak, part: &Part, state: &Mutex<State>) -> Result<Vec<String>, String> {
    let mut steps = (part.steps)(soak)?;
    if !soak.options.again {
        steps.retain(|step| !lock(state).passed(part.name, &step.name, &step.size));
    }
    let jobs = if part.parallel { soak.options.jobs } else { 1 };
    let waiting = Mutex::new(steps.into_iter());
    let failed = Mutex::new(Vec::new());
    let work = || -> Result<(), String> {
        loop {
            let next = waiting.lock().map_err(|error| error.to_string())?.next();
            let Some(step) = next else {
                return Ok(());
            };
            let finished = run_step(soak, part, &step)?;
            if !finished.passed {
                let name = format!("{} {}", part.name, step.name);
                failed.lock().map_err(|error| error.to_string())?.push(name);
            }
            lock(state).add(finished)?;
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| {
            worker
                .join()
                .unwrap_or_else(|_| Err("a step panicked".to_owned()))
        })
    })?;
    failed.into_inner().map_err(|error| error.to_string())
}

fn run_step(soak: &Soak, part: &Part, step: &Step) -> Result<Finished, String> {
    println!("soak: {} {}: {}", part.name, step.name, step.size);
    // The record names the commit at the start of the step, even if others are committed meanwhile.
    let about = record::about()?;
    let (began, load) = (Instant::now(), load());
    let outcome = (step.run)(soak);
    let seconds = began.elapsed().as_secs_f64();
    let passed = outcome.is_ok();
    // A record is read on other hosts.
    let root = workspace::root().display().to_string();
    let mut notes = outcome.unwrap_or_else(|error| vec![error]);
    notes.extend(named(&soak.options));
    let notes: Vec<String> = notes.iter().map(|note| note.replace(&root, ".")).collect();
    println!(
        "soak: {} {}: {} after {seconds:.0} s",
        part.name,
        step.name,
        if passed { "passed" } else { "FAILED" }
    );
    for note in &notes {
        println!("soak:   {note}");
    }
    Ok(Finished {
        part: part.name.to_owned(),
        step: step.name.clone(),
        size: step.size.clone(),
        passed,
        seconds,
        load: [load, self::load()],
        notes,
        date: about.date,
        commit: about.commit,
        machine: about.machine,
    })
}

/// The binary that was named: it need not be of the commit.
fn named(options: &Options) -> Option<String> {
    let mut version = std::process::Command::new(options.binary.as_ref()?);
    let version = workspace::output_of(version.arg("--version"));
    let version = version.unwrap_or_else(|error| error);
    Some(format!(
        "copies by a binary that was there: {}",
        version.trim()
    ))
}

/// Processes that want a processor, averaged over a minute.
fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split(' ').next();
    first.and_then(|first| first.parse().ok()).unwrap_or(0.0)
}

fn chosen(options: &Options) -> Result<Vec<&'static Part>, String> {
    if options.parts.is_empty() {
        return Ok(PARTS.iter().collect());
    }
    let found = options.parts.iter().map(|name| {
        let known = PARTS.iter().find(|part| part.name == name);
        known.ok_or_else(|| {
            let names: Vec<&str> = PARTS.iter().map(|part| part.name).collect();
            format!(
                "there is no part \"{name}\"; there are: {}",
                names.join(", ")
            )
        })
    });
    found.collect()
}

fn parse(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument == "--binary" {
            let named = rest.next().ok_or("--binary wants a file")?;
            let found = std::path::absolute(named).map_err(|error| format!("{named}: {error}"))?;
            options.binary = Some(found);
            continue;
        }
        let mut number = || {
            let value = rest.next().map_or("", String::as_str);
            value
                .parse()
                .map_err(|_| format!("{argument} wants a whole number, not \"{value}\""))
        };
        match argument.as_str() {
            "--again" => options.again = true,
            "--list" => options.list = true,
            "--jobs" => options.jobs = number()? as usize,
            "--fuzz-runs" => options.fuzz_runs = number()?,
            "--fuzz-seconds" => options.fuzz_seconds = number()?,
            name if name.starts_with('-') => return Err(format!("unknown option {name}")),
            name => options.parts.push(name.to_owned()),
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Options, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&words)
    }

    #[test]
    fn reads_its_arguments() {
        let options = parsed("kills fuzz --again --jobs 2 --fuzz-seconds 5").unwrap();
        let expected = Options {
            parts: vec!["kills".to_owned(), "fuzz".to_owned()],
            again: true,
            jobs: 2,
            fuzz_seconds: 5,
            ..Options::default()
        };
        assert_eq!(options, expected);
        assert_eq!(chosen(&options).unwrap().len(), 2);
        assert_eq!(chosen(&Options::default()).unwrap().len(), PARTS.len());
    }

    #[test]
    fn takes_a_binary() {
        let options = parsed("links --binary /b/longhaul").unwrap();
        assert_eq!(options.binary, Some(PathBuf::from("/b/longhaul")));
        assert_eq!(options.parts, ["links"]);
    }

    #[test]
    fn unknown_arguments_are_refused() {
        for line in ["--jobs", "--jobs x", "--fast", "--binary"] {
            assert!(parsed(line).is_err(), "{line}");
        }
        assert!(chosen(&parsed("everything").unwrap()).is_err());
    }
}
