//! `longhaul bench`: what a host can do alone, as one JSON file.
//!
//! - [`jobs`]: what is measured of a disk, of codecs, of TLS
//! - [`profile`]: the file; a stopped run goes on from it
//! - [`host`], [`file_system`]: what belongs to the figures
//! - [`text`]: tables and doubts

mod file_system;
mod host;
mod jobs;
mod profile;
mod text;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::arguments::{AllArguments, BenchCommand, BenchOptions};
use crate::messages::{Exit, Stop, clear_line, finish, print_line, progress_line, write_output};
use jobs::Section;
use profile::HostProfile;

/// Runs it.
pub fn run(command: &BenchCommand) -> Exit {
    finish(bench(command))
}

fn bench(command: &BenchCommand) -> Result<Exit, Stop> {
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
    let began = Instant::now();
    let (mut share, mut complete, mut names) = (0.0, true, Vec::new());
    for (mut section, part) in sections {
        share += part;
        let until = began + options.budget.mul_f64(f64::min(share, 1.0));
        if options.again {
            profile.forget(&section.name);
        }
        profile.describe(&section.name, &section.about);
        let measured = measure(&mut profile, &mut section, options, until, &stop);
        clear_line();
        names.push(section.name.clone());
        // What was measured is kept, however it ended; dropping the section
        // cleans up.
        drop(section);
        profile.save()?;
        complete &= measured?;
    }
    match options.json {
        true => print_line!("{}", profile.to_json()),
        false => {
            write_output(text::text(&profile, &names).as_bytes());
            print_line!("host profile: {}", options.output.display());
        }
    }
    if !complete {
        let text = format!(
            "the budget of {:.0} s is over; the same command goes on where it stopped",
            options.budget.as_secs_f64()
        );
        crate::messages::say(&text);
    }
    Ok(Exit::Done)
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

/// Rounds over all jobs until each has its repetitions; false where time was up.
fn measure(
    profile: &mut HostProfile,
    section: &mut Section,
    options: &BenchOptions,
    until: Instant,
    stop: &AtomicBool,
) -> Result<bool, Stop> {
    let interrupted = || {
        let text = "interrupted; the same command goes on where it stopped";
        Stop::new(Exit::Interrupted, text)
    };
    for round in 0..=options.rounds as usize {
        for job in &mut section.jobs {
            if profile.count(&section.name, &job.name) > round {
                continue;
            }
            if stop.load(Ordering::Relaxed) {
                return Err(interrupted());
            }
            if Instant::now() >= until {
                return Ok(false);
            }
            progress(round, &job.name, until);
            let sample = (job.run)(stop);
            if stop.load(Ordering::Relaxed) {
                return Err(interrupted());
            }
            let sample = sample.map_err(|error| {
                Stop::new(
                    Exit::Local,
                    format!("{}: {}: {error}", section.name, job.name),
                )
            })?;
            profile.add(&section.name, &job.name, &job.about, sample);
            profile.save()?;
        }
    }
    Ok(true)
}

fn progress(round: usize, job: &str, until: Instant) {
    use std::io::IsTerminal;
    if std::io::stderr().is_terminal() {
        let left: Duration = until.saturating_duration_since(Instant::now());
        progress_line(&format!(
            "round {round}: {job}; at most {:.0} s left",
            left.as_secs_f64()
        ));
    }
}
