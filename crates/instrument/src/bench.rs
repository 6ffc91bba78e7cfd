//! What a host can do alone, as one JSON file.
//!
//! - `jobs`: what is measured of a disk, of codecs, of TLS
//! - `pace`: how long a job takes, so that the budget is kept
//! - [`profile`]: the file; a stopped run resumes from it
//! - `host`, `file_system`: what belongs to the figures
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

use longhaul_engine::probe::Limit;
use longhaul_units::ByteCount;

use jobs::{Job, Section};
use pace::Pace;
use profile::HostProfile;

/// What is measured.
#[derive(Clone, Debug)]
pub enum Subject {
    /// A file system.
    Disk {
        /// A directory on it.
        path: PathBuf,
        /// Bytes of the files, separately.
        sizes: Vec<ByteCount>,
    },
    /// Codecs on these files.
    Codec(Vec<PathBuf>),
    /// What encryption costs.
    Tls,
    /// All of it.
    All {
        /// A directory on the file system.
        path: PathBuf,
        /// Bytes of the files on disk, separately.
        sizes: Vec<ByteCount>,
        /// Files for the codecs, which are left out without any.
        files: Vec<PathBuf>,
    },
}

/// How long, how often, and where to.
#[derive(Clone, Debug)]
pub struct BenchSettings {
    /// It stops after so long, and resumes there.
    pub budget: Duration,
    /// Repetitions that count, after one that warms up.
    pub rounds: u32,
    /// Most threads or streams; none: 16 for disks, else one a core.
    pub flows: Option<u32>,
    /// The host profile, which is added to.
    pub output: PathBuf,
    /// What is measured begins again.
    pub again: bool,
}

/// What was measured, now and earlier.
pub struct Measured {
    /// The host profile, which is saved.
    pub profile: HostProfile,
    /// The sections that were asked for, by name.
    pub sections: Vec<String>,
    /// What the budget had no time for, and what to do about it, as a sentence.
    pub unfinished: Option<String>,
}

/// What is measured next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress<'a> {
    /// The repetition; 0 warms up.
    pub round: usize,
    /// The job.
    pub job: &'a str,
    /// Time that is left of the section's budget.
    pub left: Duration,
}

/// Why nothing is measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A file, a disk or this host's limits do not allow it.
    #[error("{0}")]
    Local(String),
    /// A signal came; what was measured is saved.
    #[error("interrupted; the same command resumes it")]
    Interrupted,
}

/// Measures until all is measured, the budget is over or `stop` is set. What was measured is
/// saved however it ends.
///
/// # Errors
///
/// Where something cannot be measured or saved, or `stop` was set.
pub fn run(
    subject: &Subject,
    settings: &BenchSettings,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(&Progress<'_>),
) -> Result<Measured, BenchError> {
    // What is read or made before the first job counts too.
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
        // What was measured is kept, however it ended; dropping the section
        // cleans up.
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

/// Each with its share of the budget.
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
        None => format!("the budget of {budget_seconds:.0} s is over; the same command resumes it"),
    }
}

/// Rounds over all jobs until each has its repetitions; which jobs there was no time for.
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
