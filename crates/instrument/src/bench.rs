//! Benchmarks of a single host, saved as one JSON file.
//!
//! - `jobs`: measurements of disks, codecs and TLS
//! - `pace`: predicts the duration of a job, so that the budget is kept
//! - [`profile`]: the file; a stopped run resumes from it
//! - `host`, `file_system`: descriptions of the host and of a file system
//! - [`text`]: tables and doubts

mod file_system;
mod host;
mod jobs;
mod pace;
pub mod profile;
pub mod text;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use longhaul_engine::benchmark::Limit;
use longhaul_units::ByteCount;

use jobs::{Job, Section};
use pace::Pace;
use profile::HostProfile;

/// Subject of a benchmark.
#[derive(Clone, Debug)]
pub enum Subject {
    /// A file system.
    Disk {
        /// A directory on the file system.
        path: PathBuf,
        /// Sizes of the test files in bytes; each size is measured separately.
        sizes: Vec<ByteCount>,
    },
    /// Codecs, measured on these files.
    Codec(Vec<PathBuf>),
    /// Encryption.
    Tls,
    /// Disk, TLS and codecs.
    All {
        /// A directory on the file system.
        path: PathBuf,
        /// Sizes of the test files on disk in bytes; each size is measured separately.
        sizes: Vec<ByteCount>,
        /// Files for the codecs. Without files, codecs are not measured.
        files: Vec<PathBuf>,
    },
}

/// Duration, repetitions and output of a benchmark.
#[derive(Clone, Debug)]
pub struct BenchSettings {
    /// Maximum duration. The next run resumes from the saved profile.
    pub budget: Duration,
    /// Number of counted repetitions, after one warm-up.
    pub rounds: u32,
    /// Maximum number of threads or streams. `None` means 16 for disks, else one per
    /// core.
    pub flows: Option<u32>,
    /// Path of the host profile, to which results are added.
    pub output: PathBuf,
    /// If true, earlier samples of the measured sections are discarded.
    pub again: bool,
}

/// Results of this run and of earlier runs.
pub struct Measured {
    /// The saved host profile.
    pub profile: HostProfile,
    /// Names of the measured sections.
    pub sections: Vec<String>,
    /// Sentence about jobs for which the budget was too short, with a remedy.
    pub unfinished: Option<String>,
}

/// The next measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress<'a> {
    /// Number of the repetition; 0 is the warm-up.
    pub round: usize,
    /// Name of the job.
    pub job: &'a str,
    /// Remaining time of the section's budget.
    pub left: Duration,
}

/// Reasons why a benchmark stops.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A file, a disk or a limit of this host prevents the measurement.
    #[error("{0}")]
    Local(String),
    /// A signal arrived; finished samples are saved.
    #[error("interrupted; the same command resumes it")]
    Interrupted,
}

/// Measures until all jobs are done, the budget is over, or `stop` is set. Finished
/// samples are saved in every case.
///
/// # Errors
///
/// Returns an error if a job fails, the profile cannot be saved, or `stop` was set.
pub fn run(
    subject: &Subject,
    settings: &BenchSettings,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(&Progress<'_>),
) -> Result<Measured, BenchError> {
    // Preparations before the first job count as part of the budget.
    let began = Instant::now();
    let sections = sections(subject, settings)?;
    let mut profile = HostProfile::open(&settings.output)?;
    profile.set_host(host::facts());
    let (mut share, mut left, mut names) = (0.0, Vec::new(), Vec::new());
    for (mut section, part) in sections {
        share += part;
        let until = began + settings.budget.mul_f64(f64::min(share, 1.0));
        if settings.again {
            profile.forget(&section.name);
        }
        profile.describe(&section.name, &section.about);
        let limit = Limit::new(stop, until);
        let measured = measure(
            &mut profile,
            &mut section,
            settings.rounds,
            &limit,
            stop,
            tell,
        );
        names.push(section.name.clone());
        // Samples are saved even after an error. Dropping the section removes its test
        // files.
        drop(section);
        profile.save()?;
        left.extend(measured?);
    }
    let unfinished = (!left.is_empty()).then(|| unfinished(&left, settings.budget));
    Ok(Measured {
        profile,
        sections: names,
        unfinished,
    })
}

/// Returns the sections, each with its fraction of the budget.
fn sections(
    subject: &Subject,
    settings: &BenchSettings,
) -> Result<Vec<(Section, f64)>, BenchError> {
    Ok(match subject {
        Subject::Disk { path, sizes } => vec![(jobs::disk(path, sizes, settings)?, 1.0)],
        Subject::Codec(files) => vec![(jobs::codec(files, settings)?, 1.0)],
        Subject::Tls => vec![(jobs::tls(settings), 1.0)],
        Subject::All { path, sizes, files } => {
            let disk = jobs::disk(path, sizes, settings)?;
            let tls = jobs::tls(settings);
            if files.is_empty() {
                return Ok(vec![(tls, 0.2), (disk, 0.8)]);
            }
            let codec = jobs::codec(files, settings)?;
            vec![(tls, 0.15), (codec, 0.25), (disk, 0.6)]
        }
    })
}

/// A job that did not fit into the budget, and its expected duration.
type Left = (String, Duration);

fn unfinished(left: &[Left], budget: Duration) -> String {
    let budget_seconds = budget.as_secs_f64();
    let longest = left.iter().max_by_key(|(_, expected)| *expected);
    match longest.filter(|(_, expected)| *expected > budget) {
        Some((job, expected)) => format!(
            "the budget of {budget_seconds:.0} s is too short for \"{job}\", which takes {:.0} s: \
             set a larger --budget, or smaller files with --size; results so far are saved",
            expected.as_secs_f64().ceil()
        ),
        None => format!("the budget of {budget_seconds:.0} s is over; the same command resumes it"),
    }
}

/// Runs all jobs in rounds until each has its repetitions. Returns the jobs that did not
/// fit into the budget.
fn measure(
    profile: &mut HostProfile,
    section: &mut Section,
    rounds: u32,
    limit: &Limit,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(&Progress<'_>),
) -> Result<Vec<Left>, BenchError> {
    let mut pace = known_pace(profile, section);
    let mut left: Vec<Left> = Vec::new();
    for round in 0..=rounds as usize {
        for job in &mut section.jobs {
            if profile.count(&section.name, &job.name) > round {
                continue;
            }
            if stop.load(Ordering::Relaxed) {
                return Err(BenchError::Interrupted);
            }
            let efforts = (job.efforts)();
            let expected = pace.expected(&efforts);
            if limit.left() <= expected {
                left.push((job.name.clone(), expected));
                continue;
            }
            tell(&Progress {
                round,
                job: &job.name,
                left: limit.left(),
            });
            let began = Instant::now();
            let sample = (job.run)(limit);
            if stop.load(Ordering::Relaxed) {
                return Err(BenchError::Interrupted);
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

fn failed(section: &str, job: &Job, error: &io::Error) -> BenchError {
    BenchError::Local(format!("{section}: {}: {error}", job.name))
}

/// Returns the pace of samples from earlier runs.
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use serde_json::json;

    use super::pace::Effort;
    use super::*;

    #[test]
    fn a_job_that_would_exceed_the_budget_is_not_started() {
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
        // A sample of an earlier run.
        profile.add("disk", "slow", &json!({}), json!({ "wall_seconds": 1e5 }));
        let budget = Duration::from_secs(1000);
        let stop = AtomicBool::new(false);
        let limit = Limit::new(&stop, Instant::now() + budget);
        let measured = measure(&mut profile, &mut section, 1, &limit, &stop, &mut |_| {});
        let left = measured.unwrap();
        assert_eq!(ran.get(), 2 * (1_000_000 + 10));
        let names: Vec<&str> = left.iter().map(|(name, _)| name.as_str()).collect();
        let twice = ["slow, larger", "out of time"];
        assert_eq!(names, [&twice[..], &["slow"], &twice].concat());
        let told = unfinished(&left, budget);
        assert!(
            told.contains("slow, larger") && told.contains("--budget"),
            "{told}"
        );
        let short = unfinished(&[("quick".to_owned(), Duration::ZERO)], budget);
        assert!(short.contains("the same command resumes it"), "{short}");
    }
}
