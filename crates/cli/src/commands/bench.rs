//! `longhaul bench`: what a host can do alone, as one JSON file.
//!
//! - [`jobs`]: what is measured of a disk, of codecs, of TLS
//! - [`pace`]: how long a job takes, so that the budget is kept
//! - [`profile`]: the file; a stopped run goes on from it
//! - [`host`], [`file_system`]: what belongs to the figures
//! - [`text`]: tables and doubts

mod file_system;
mod host;
mod jobs;
mod pace;
mod profile;
mod text;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::arguments::{AllArguments, BenchCommand, BenchOptions};
use crate::messages::{Exit, Stop, clear_line, finish, print_line, progress_line, write_output};
use jobs::{Job, Section};
use longhaul_engine::probe::Limit;
use pace::Pace;
use profile::HostProfile;

/// Runs it.
pub fn run(command: &BenchCommand) -> Exit {
    finish(bench(command))
}

fn bench(command: &BenchCommand) -> Result<Exit, Stop> {
    // What is read or made before the first job counts too.
    let began = Instant::now();
    let (options, sections) = match command {
        BenchCommand::Disk(disk) => {
            let section = jobs::disk(&disk.path, &disk.size, &disk.options)?;
            (&disk.options, vec![(section, 1.0)])
        }
        BenchCommand::Codec(codec) => {
            let section = jobs::codec(&codec.files, &codec.options)?;
            (&codec.options, vec![(section, 1.0)])
        }
        BenchCommand::Tls(tls) => (&tls.options, vec![(jobs::tls(&tls.options), 1.0)]),
        BenchCommand::All(all) => (&all.options, all_sections(all)?),
    };
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // A second one ends the process at once.
        let _ = signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop));
        let _ = signal_hook::flag::register(signal, Arc::clone(&stop));
    }
    let mut profile = HostProfile::open(&options.output)?;
    profile.set_host(host::facts());
    let (mut share, mut left, mut names) = (0.0, Vec::new(), Vec::new());
    for (mut section, part) in sections {
        share += part;
        let until = began + options.budget.mul_f64(f64::min(share, 1.0));
        if options.again {
            profile.forget(&section.name);
        }
        profile.describe(&section.name, &section.about);
        let limit = Limit::new(&stop, until);
        let measured = measure(&mut profile, &mut section, options, &limit, &stop);
        clear_line();
        names.push(section.name.clone());
        // What was measured is kept, however it ended; dropping the section
        // cleans up.
        drop(section);
        profile.save()?;
        left.extend(measured?);
    }
    match options.json {
        true => print_line!("{}", profile.to_json()),
        false => {
            write_output(text::text(&profile, &names).as_bytes());
            print_line!("host profile: {}", options.output.display());
        }
    }
    if !left.is_empty() {
        crate::messages::say(&unfinished(&left, options.budget));
    }
    Ok(Exit::Done)
}

/// A job that the budget had no time for, and how long it would take, as far as is known.
type Left = (String, Duration);

fn unfinished(left: &[Left], budget: Duration) -> String {
    let budget_seconds = budget.as_secs_f64();
    let longest = left.iter().max_by_key(|(_, expected)| *expected);
    match longest.filter(|(_, expected)| *expected > budget) {
        Some((job, expected)) => format!(
            "the budget of {budget_seconds:.0} s is kept, and \"{job}\" would take {:.0} s: give \
             it a larger --budget, or smaller files with --size; what was measured is kept",
            expected.as_secs_f64().ceil()
        ),
        None => format!(
            "the budget of {budget_seconds:.0} s is over; the same command goes on where it stopped"
        ),
    }
}

fn all_sections(all: &AllArguments) -> Result<Vec<(Section, f64)>, Stop> {
    let disk = jobs::disk(&all.path, &all.size, &all.options)?;
    let tls = jobs::tls(&all.options);
    if all.files.is_empty() {
        return Ok(vec![(tls, 0.2), (disk, 0.8)]);
    }
    let codec = jobs::codec(&all.files, &all.options)?;
    Ok(vec![(tls, 0.15), (codec, 0.25), (disk, 0.6)])
}

/// Rounds over all jobs until each has its repetitions; which jobs there was no time for.
fn measure(
    profile: &mut HostProfile,
    section: &mut Section,
    options: &BenchOptions,
    limit: &Limit,
    stop: &AtomicBool,
) -> Result<Vec<Left>, Stop> {
    let interrupted = || {
        let text = "interrupted; the same command goes on where it stopped";
        Stop::new(Exit::Interrupted, text)
    };
    let mut pace = known_pace(profile, section);
    let mut left: Vec<Left> = Vec::new();
    for round in 0..=options.rounds as usize {
        for job in &mut section.jobs {
            if profile.count(&section.name, &job.name) > round {
                continue;
            }
            if stop.load(Ordering::Relaxed) {
                return Err(interrupted());
            }
            let efforts = (job.efforts)();
            let expected = pace.expected(&efforts);
            if limit.left() <= expected {
                left.push((job.name.clone(), expected));
                continue;
            }
            progress(round, &job.name, limit);
            let began = Instant::now();
            let sample = (job.run)(limit);
            if stop.load(Ordering::Relaxed) {
                return Err(interrupted());
            }
            match sample {
                Ok(sample) => {
                    let measured = sample["wall_seconds"].as_f64().unwrap_or(0.0);
                    pace.learn(&efforts, measured, began.elapsed().as_secs_f64());
                    profile.add(&section.name, &job.name, &job.about, sample);
                    profile.save()?;
                }
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    left.push((job.name.clone(), expected));
                }
                Err(error) => return Err(failed(&section.name, job, &error)),
            }
        }
    }
    Ok(left)
}

fn failed(section: &str, job: &Job, error: &io::Error) -> Stop {
    let text = format!("{section}: {}: {error}", job.name);
    Stop::new(Exit::Local, text)
}

/// What an earlier run of the same command saw.
fn known_pace(profile: &HostProfile, section: &Section) -> Pace {
    let mut pace = Pace::default();
    for job in &section.jobs {
        let efforts = (job.efforts)();
        let measured = &efforts[..efforts.len().min(1)];
        for sample in profile.samples(&section.name, &job.name) {
            let seconds = sample["wall_seconds"].as_f64().unwrap_or(0.0);
            pace.learn(measured, seconds, seconds);
        }
    }
    pace
}

fn progress(round: usize, job: &str, limit: &Limit) {
    use std::io::IsTerminal;
    if std::io::stderr().is_terminal() {
        let left = limit.left();
        progress_line(&format!(
            "round {round}: {job}; at most {:.0} s left",
            left.as_secs_f64()
        ));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use serde_json::json;

    use super::pace::Effort;
    use super::*;

    #[test]
    fn a_job_that_would_not_end_in_time_is_not_begun() {
        let directory = tempfile::tempdir().unwrap();
        let mut profile = HostProfile::open(&directory.path().join("host.json")).unwrap();
        let ran = Rc::new(Cell::new(0));
        let job = |name: &str, kind: &'static str, amount, error: Option<io::ErrorKind>| {
            let ran = Rc::clone(&ran);
            Job {
                name: name.to_owned(),
                about: json!({}),
                efforts: Box::new(move || vec![Effort::new(kind, amount)]),
                run: Box::new(move |_| {
                    ran.set(ran.get() + amount);
                    error.map_or_else(|| Ok(json!({ "wall_seconds": 0.001 })), |e| Err(e.into()))
                }),
            }
        };
        let mut section = Section {
            name: "disk".to_owned(),
            about: json!({}),
            jobs: vec![
                job("slow", "write", 100, None),
                job("slow, larger", "write", 10_000, None),
                job(
                    "out of time",
                    "sync",
                    1_000_000,
                    Some(io::ErrorKind::TimedOut),
                ),
                job("quick", "read", 10, None),
            ],
        };
        // As an earlier run saw it.
        profile.add("disk", "slow", &json!({}), json!({ "wall_seconds": 1e5 }));
        let options = BenchOptions {
            budget: Duration::from_secs(1000),
            rounds: 1,
            flows: None,
            output: directory.path().join("host.json"),
            again: false,
            json: false,
        };
        let stop = AtomicBool::new(false);
        let limit = Limit::new(&stop, Instant::now() + options.budget);
        let measured = measure(&mut profile, &mut section, &options, &limit, &stop);
        let left = measured.unwrap();
        assert_eq!(ran.get(), 2 * (1_000_000 + 10));
        let names: Vec<&str> = left.iter().map(|(name, _)| name.as_str()).collect();
        let twice = ["slow, larger", "out of time"];
        assert_eq!(names, [&twice[..], &["slow"], &twice].concat());
        let told = unfinished(&left, options.budget);
        assert!(
            told.contains("slow, larger") && told.contains("--budget"),
            "{told}"
        );
        let short = unfinished(&[("quick".to_owned(), Duration::ZERO)], options.budget);
        assert!(short.contains("goes on where it stopped"), "{short}");
    }
}
