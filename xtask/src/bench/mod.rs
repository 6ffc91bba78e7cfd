//! Measures the cost of each piece of a copy alone on this host, and the cost of a copy over
//! loopback. Ratios show the overhead of the whole copy.
//!
//! - [`work`]: the pieces, the standard tools, the copies
//! - [`samples`]: samples, kept so that a stopped run resumes
//! - [`small`]: small files, compared with [`local_writer`], the maximum speed of a file system
//! - [`storage`]: threads compared with `io_uring`, ways to make small files durable
//! - [`record`]: medians, spread and ratios as Markdown and JSON
//! - [`lab`]: the lab compared with its settings; [`worker`]: programs on its hosts; [`kept`]: the
//!   results
//! - [`plan`]: the time of plans, compared with their limits
//! - [`scenario`]: the experiments of `bench/scenarios`, run by the product itself
//!
//! The first round is discarded as a warm-up. Then rounds are interleaved, so that a slow minute of
//! a shared host affects all works equally.

mod kept;
mod lab;
pub mod local_writer;
mod plan;
mod record;
mod samples;
mod scenario;
mod small;
mod storage;
mod work;
mod worker;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::demo::janitor::Janitor;
use crate::workspace;
use kept::Kept;
use samples::Samples;
use work::Bench;

/// Rounds that count, after the one that does not.
const ROUNDS: usize = 5;

/// A run ends after this long, whatever it has: it is resumable.
const LONGEST: Duration = Duration::from_secs(8 * 60);

/// Runs the selected benchmark.
///
/// # Errors
///
/// If a step fails.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (what, again) = match words.as_slice() {
        ["plan"] => return plan::run(),
        ["local-writer", rest @ ..] => return local_writer::run(rest),
        ["storage"] => return storage::run(false),
        ["storage", "--again"] => return storage::run(true),
        ["storage-inside", directory, kept] => {
            return storage::run_inside(Path::new(directory), Path::new(kept));
        }
        ["worker", rest @ ..] => return worker::run(rest),
        ["lab", "--record"] => return record_so_far(),
        [what @ ("pieces" | "small" | "lab")] => (*what, false),
        [what @ ("pieces" | "small" | "lab"), "--again"] => (*what, true),
        [name, rest @ ..] => return scenario::run(name, rest),
        _ => return Err(USAGE.to_owned()),
    };
    let target = workspace::target_directory()?;
    let directory = target.join(format!("bench-{}", std::process::id()));
    let about = about()?;
    let run = Run {
        about,
        target,
        directory,
        again,
    };
    match what {
        "pieces" | "small" => run.copies(what),
        "lab" => run.lab(),
        _ => Err(USAGE.to_owned()),
    }
}

const USAGE: &str =
    "write: bench (pieces | small | storage | lab) [--again], bench plan, or bench NAME";

/// File in the target directory with the results of the lab.
const LAB_RESULTS: &str = "bench-lab.jsonl";

/// Writes the results of a run that was stopped.
fn record_so_far() -> Result<(), String> {
    let about = about()?;
    let kept = Kept::open(
        &workspace::target_directory()?.join(LAB_RESULTS),
        &about,
        false,
    )?;
    lab::write(&about, &kept)
}

const TIME_IS_UP: &str = "time is up: the same command resumes";

/// One call of this.
struct Run {
    about: record::About,
    target: PathBuf,
    directory: PathBuf,
    again: bool,
}

impl Run {
    fn janitor(&self) -> Result<Janitor, String> {
        std::fs::create_dir_all(&self.directory)
            .map_err(|error| format!("{}: {error}", self.directory.display()))?;
        Janitor::start(&self.directory)
    }

    fn copies(&self, what: &str) -> Result<(), String> {
        let kept = self.target.join(format!("bench-{what}.jsonl"));
        let mut samples = Samples::open(&kept, &self.about, self.again)?;
        build(&["-p", "longhaul"])?;
        build(&["-p", "longhaul-engine", "--example", "pieces"])?;
        let janitor = self.janitor()?;
        let measure = match what {
            "small" => small::measure,
            _ => measure,
        };
        let measured = measure(&self.target, &self.directory, &janitor, &mut samples);
        janitor.finish()?;
        if !measured? {
            return Err(TIME_IS_UP.to_owned());
        }
        let runs = workspace::root().join("bench/runs");
        match what {
            "small" => small::write(&runs, &self.about, &samples)?,
            _ => record::write(&runs, &self.about, &samples)?,
        }
        samples.forget()
    }

    fn lab(&self) -> Result<(), String> {
        let path = self.target.join(LAB_RESULTS);
        let mut kept = Kept::open(&path, &self.about, self.again)?;
        build(&["-p", "longhaul"])?;
        let janitor = self.janitor()?;
        let hosts = lab::Hosts::new(&self.target, &self.directory, &janitor);
        let measured = lab::measure(&hosts, &mut kept);
        janitor.finish()?;
        if !measured? {
            return Err(TIME_IS_UP.to_owned());
        }
        lab::write(&self.about, &kept)?;
        kept.forget()
    }
}

fn build(what: &[&str]) -> Result<(), String> {
    let release = ["build", "--locked", "--release"];
    workspace::run(workspace::cargo().args(release).args(what))
}

/// False where time was up.
fn measure(
    target: &Path,
    directory: &Path,
    janitor: &Janitor,
    samples: &mut Samples,
) -> Result<bool, String> {
    let began = Instant::now();
    let release = target.join("release");
    let bench = Bench::prepare(&release, directory, janitor)?;
    for round in 0..=ROUNDS {
        for work in work::ALL {
            if samples.count(work.name) > round {
                continue;
            }
            if began.elapsed() > LONGEST {
                return Ok(false);
            }
            match bench.run(work, janitor)? {
                Some(sample) => {
                    println!("bench: round {round}: {:12} {sample}", work.name);
                    samples.add(work.name, sample)?;
                }
                None if round == 0 => println!("bench: {} is not installed", work.name),
                None => {}
            }
        }
    }
    bench.stop(janitor)?;
    Ok(true)
}

/// Returns date, commit and machine.
fn about() -> Result<record::About, String> {
    let text = |program: &str, arguments: &[&str]| {
        let output = workspace::output_of(
            Command::new(program)
                .args(arguments)
                .current_dir(workspace::root()),
        )?;
        Ok::<String, String>(output.trim().to_owned())
    };
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let value = |key: &str| {
        let line = cpus.lines().find(|line| line.starts_with(key));
        line.and_then(|line| line.split(": ").nth(1))
            .unwrap_or("unknown")
    };
    let count = cpus.matches("processor\t").count();
    Ok(record::About {
        date: text("date", &["+%F"])?,
        commit: text("git", &["describe", "--always", "--dirty", "--exclude=*"])?,
        machine: format!("{count} cores {}", value("model name")),
        kernel: text("uname", &["-r"])?,
    })
}
