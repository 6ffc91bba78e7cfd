//! A sweep: experiments described in a file, with one record per run.
//!
//! - [`mod@file`]: the sweep file
//! - [`plan`]: configurations, and their runs in order
//! - [`best_again`]: repeats the fastest configurations
//! - [`listing`]: lists the runs without performing them
//! - [`ledger`]: the file of records; recorded runs are done
//! - [`content`]: content of generated files
//! - [`dataset`]: generates the files and compares the copies
//! - [`command`]: command lines of a run
//! - [`step`], [`inside`]: one run in its own process, with the lab around it
//! - [`watcher`], [`longhaul_net::sockets`], [`accounts`]: streams and processor
//!   time, observed from outside
//! - [`warm`]: keeps memory equally warm for every method
//! - [`outcome`], [`lab_report`], [`host`]: create the record
//! - [`event`]: progress events

pub mod accounts;
pub mod best_again;
pub mod command;
pub mod content;
pub mod dataset;
pub mod estimate;
pub mod event;
pub mod file;
pub mod host;
pub mod inside;
pub mod lab_report;
pub mod ledger;
pub mod listing;
pub mod outcome;
pub mod plan;
pub mod step;
pub mod warm;
pub mod watcher;

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use longhaul_measure::host::HostDescription;
use longhaul_measure::record::{Ended, Measures, RunIdentity, RunRecord};
use longhaul_system::clock;

use crate::sidecar::{Hosts, HostsFile, samples_beside};
use dataset::{Set, Shape};
use estimate::Estimate;
use event::{Ran, SweepEvent};
use file::{Method, SweepFile, Unread};
use ledger::Ledger;
use outcome::About;
use plan::{Cell, Plan, Planned};
use step::{Step, StepResult};
use warm::WarmMemory;

/// Maximum number of files of a dataset that is removed between runs. ext4 does not reuse
/// an inode for minutes and searches for free ones one by one. Removing more files would
/// slow down the following writes and distort the measurement.
const MANY_FILES: u64 = 1000;

/// Settings of a sweep.
#[derive(Clone, Debug)]
pub struct SweepSettings {
    /// Path of the sweep file (TOML).
    pub file: PathBuf,
    /// Path of the records. Runs recorded there are not repeated. `None` means
    /// `NAME.jsonl`.
    pub output: Option<PathBuf>,
    /// Directory for source and destination files, removed at the end. `None` means the
    /// records' path with the extension `.work`.
    pub work: Option<PathBuf>,
    /// Maximum duration. A run that would end later is not started.
    pub duration: Option<Duration>,
    /// Names of the methods to run; empty means all.
    pub methods: Vec<String>,
    /// Names of the datasets to use; empty means all.
    pub data: Vec<String>,
    /// Settings `KEY=VALUE` that select paths. Of several values of one key, any may
    /// match.
    pub paths: Vec<String>,
    /// Maximum number of repetitions, from 1.
    pub repetitions: Option<u64>,
    /// If true, the directory of data is kept at the end.
    pub keep: bool,
    /// Build of the method `longhaul`, for the records.
    pub build: Option<String>,
    /// Program with arguments that performs one run: it passes its standard input to
    /// [`Step::read`] and the result to [`inside::run`].
    pub step_command: Vec<OsString>,
}

/// End of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepEnd {
    /// Every run is recorded.
    Done,
    /// Some runs are missing: the time was over, or a method could not run.
    Partial,
}

/// Reasons why a sweep cannot run.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The file or the settings are invalid.
    #[error("{0}")]
    Wrong(String),
    /// A file of this host cannot be read or written.
    #[error("{0}")]
    Local(String),
}

impl From<Unread> for SweepError {
    fn from(unread: Unread) -> SweepError {
        match unread {
            Unread::Closed(text) => SweepError::Local(text),
            Unread::Wrong(text) => SweepError::Wrong(text),
        }
    }
}

/// Reads the sweep file, applies the selections, and returns it with the plan and the
/// path of the records.
fn read(settings: &SweepSettings) -> Result<(SweepFile, Plan, PathBuf), SweepError> {
    let mut file = file::read(&settings.file)?;
    file.choose(&settings.methods, settings.repetitions)
        .map_err(SweepError::Wrong)?;
    file.choose_data(&settings.data)
        .map_err(SweepError::Wrong)?;
    file.choose_paths(&settings.paths)
        .map_err(SweepError::Wrong)?;
    let plan = Plan::of(&file)
        .map_err(|error| SweepError::Wrong(format!("{}: {error}", settings.file.display())))?;
    let output = match &settings.output {
        Some(output) => output.clone(),
        None => PathBuf::from(format!("{}.jsonl", file.name)),
    };
    Ok((file, plan, output))
}

/// Returns a list of the remaining runs and their expected time as text, without running
/// them.
///
/// # Errors
///
/// Returns an error if the settings are invalid or a file cannot be read.
pub fn list(settings: &SweepSettings) -> Result<String, SweepError> {
    let (file, plan, output) = read(settings)?;
    listing::list(&file, &plan, &output).map_err(SweepError::Local)
}

/// Runs or resumes a sweep.
///
/// # Errors
///
/// Returns an error if the settings are invalid, or a file cannot be read or written. A
/// failed run is a record, and a method that cannot run is an event.
pub fn run(
    settings: &SweepSettings,
    tell: &mut dyn FnMut(&SweepEvent),
) -> Result<SweepEnd, SweepError> {
    let (file, plan, output) = read(settings)?;
    let (ledger, found) = Ledger::open(&output).map_err(SweepError::Local)?;
    if let Some(line) = found.dropped {
        let records = output.clone();
        tell(&SweepEvent::CutOff { records, line });
    }
    let mut sweep = Sweep::new((&file, &plan), ledger, output, settings, tell)?;
    sweep.estimate.learn(&found.runs);
    found.runs.iter().for_each(|record| sweep.note(record));
    Ok(sweep.go_on())
}

/// Returns identity and goodput of a run that counts for the choice of the fastest
/// configurations.
fn deciding_rate(record: &RunRecord) -> Option<(&str, f64)> {
    let run = &record.run;
    let decides = record.outcome.ended == Ended::Done && !run.warm_up && !run.again;
    decides.then(|| (run.id.as_str(), record.outcome.goodput.bits_per_second()))
}

/// A running sweep.
struct Sweep<'a> {
    file: &'a SweepFile,
    plan: &'a Plan,
    ledger: Ledger,
    /// File of host descriptions; `None` if records are not written to a regular file.
    hosts: Option<HostsFile>,
    output: PathBuf,
    work: PathBuf,
    settings: &'a SweepSettings,
    tell: &'a mut dyn FnMut(&SweepEvent),
    estimate: Estimate,
    /// Runs of the plan, and at the end the repetitions of the fastest.
    runs: Vec<Planned>,
    has_best_again: bool,
    /// Goodput of the runs that count for the choice of the fastest, by identity.
    swept: HashMap<String, f64>,
    sets: HashMap<PathBuf, Set>,
    versions: HashMap<String, String>,
    /// Methods that cannot run here, or failed to start.
    left_out: HashSet<String>,
    failures: u64,
    warm: WarmMemory,
    began: Instant,
}

impl<'a> Sweep<'a> {
    fn new(
        (file, plan): (&'a SweepFile, &'a Plan),
        ledger: Ledger,
        output: PathBuf,
        settings: &'a SweepSettings,
        tell: &'a mut dyn FnMut(&SweepEvent),
    ) -> Result<Sweep<'a>, SweepError> {
        let beside = || output.with_extension("work");
        let work = settings.work.clone().unwrap_or_else(beside);
        let made = fs::create_dir_all(&work).and_then(|()| fs::canonicalize(&work));
        let local = |error| SweepError::Local(format!("{}: {error}", work.display()));
        let work = made.map_err(local)?;
        let hosts = match HostsFile::open(&output).map_err(SweepError::Local)? {
            Hosts::Kept(hosts) => Some(hosts),
            Hosts::NoFile => None,
            Hosts::LeftOut(why) => {
                tell(&SweepEvent::HostsNotDescribed(why));
                None
            }
        };
        let missing = listing::missing(file, plan);
        let mut left_out = HashSet::new();
        for (method, program) in missing {
            left_out.insert(method.clone());
            tell(&SweepEvent::Skipped { method, program });
        }
        Ok(Sweep {
            file,
            plan,
            ledger,
            hosts,
            output,
            work,
            settings,
            tell,
            estimate: Estimate::default(),
            runs: plan.runs.clone(),
            has_best_again: false,
            swept: HashMap::new(),
            sets: HashMap::new(),
            versions: HashMap::new(),
            left_out,
            failures: 0,
            warm: WarmMemory::default(),
            began: Instant::now(),
        })
    }

    fn id(&self, run: Planned) -> String {
        listing::identity(self.file, self.plan, run)
    }

    /// Performs the remaining runs.
    fn go_on(&mut self) -> SweepEnd {
        let mut runs = self.plan.runs.iter();
        let some = runs.any(|run| self.ledger.has(&self.id(*run)));
        if self.open(0).next().is_none() {
            self.add_best_again();
        }
        if some && self.open(0).next().is_none() {
            (self.tell)(&SweepEvent::NothingLeft(self.output.clone()));
        }
        let mut next = 0;
        loop {
            let Some(run) = self.runs.get(next).copied() else {
                if self.add_best_again() {
                    continue;
                } else {
                    break;
                }
            };
            let place = next;
            next += 1;
            let cell = &self.plan.cells[run.cell];
            if self.is_left_out(cell) || self.ledger.has(&self.id(run)) {
                continue;
            }
            let expected = self.estimate.of(cell);
            if let Some(limit) = self.settings.duration
                && self.began.elapsed() + expected > limit
            {
                let (of, left) = (self.runs.len(), self.left(place));
                (self.tell)(&SweepEvent::TimeUp {
                    passed: place,
                    of,
                    left,
                });
                return SweepEnd::Partial;
            }
            match self.run_one(run) {
                Ok(record) => self.tell_of(place, &record),
                Err(why) => {
                    let method = cell.method.name.clone();
                    self.left_out.insert(method.clone());
                    (self.tell)(&SweepEvent::LeftOut { method, why });
                    self.failures += 1;
                }
            }
        }
        self.clean_up();
        if self.failures > 0 {
            SweepEnd::Partial
        } else {
            SweepEnd::Done
        }
    }

    /// Stores the goodput of a record for the choice of the fastest.
    fn note(&mut self, record: &RunRecord) {
        if let Some((id, rate)) = deciding_rate(record) {
            self.swept.insert(id.to_owned(), rate);
        }
    }

    /// Adds repetitions of the fastest configurations, once. False without repetitions to add.
    fn add_best_again(&mut self) -> bool {
        if std::mem::replace(&mut self.has_best_again, true) {
            return false;
        }
        let mut rates: HashMap<usize, Vec<f64>> = HashMap::new();
        for run in &self.plan.runs {
            if let Some(rate) = self.swept.get(&self.id(*run)) {
                rates.entry(run.cell).or_default().push(*rate);
            }
        }
        let again = best_again::best_again(self.file, self.plan, &rates);
        self.runs.extend(&again);
        !again.is_empty()
    }

    fn is_left_out(&self, cell: &Cell) -> bool {
        listing::methods_of(cell).any(|method| self.left_out.contains(method))
    }

    /// Returns the remaining runs, starting at index `from`.
    fn open(&self, from: usize) -> impl Iterator<Item = &Planned> {
        let rest = self.runs.iter().skip(from);
        rest.filter(|run| {
            !self.is_left_out(&self.plan.cells[run.cell]) && !self.ledger.has(&self.id(**run))
        })
    }

    /// Returns the expected time of the remaining runs.
    fn left(&self, from: usize) -> Duration {
        let open = self.open(from);
        open.map(|run| self.estimate.of(&self.plan.cells[run.cell]))
            .sum()
    }

    fn tell_of(&mut self, place: usize, record: &RunRecord) {
        let run = self.runs[place];
        let ran = Ran {
            number: place + 1,
            of: self.runs.len(),
            again: run.again,
            configuration: self.plan.cells[run.cell].title(),
            outcome: record.outcome.clone(),
            cap: self.file.cap,
            left: self.left(place + 1),
        };
        (self.tell)(&SweepEvent::Ran(Box::new(ran)));
    }

    /// Performs a run and writes its record.
    fn run_one(&mut self, run: Planned) -> Result<RunRecord, String> {
        let cell = &self.plan.cells[run.cell];
        let began = Instant::now();
        let id = self.id(run);
        let shape = cell.shape;
        let place = command::Place::prepare(&self.work, cell, &id)?;
        if cell.method.measures == Measures::Transfer {
            let is_local = cell.path.is_local();
            if self.prepare_data(&place, shape, is_local).is_err() {
                // Files kept from earlier runs may occupy the space.
                place.remove_old()?;
                self.prepare_data(&place, shape, is_local)?;
            }
        }
        let source = place.sets_source(self.sets.get(&set_key(&place.sets, shape)));
        self.set_up(&cell.method)?;
        self.warm.make_ready(cell.bytes);
        let sidecar = self.sidecar(&id)?;
        let seed = cell.path.seed_in(self.file.seed, run.round);
        let sidecar_of = sidecar.as_ref();
        let step = command::step(self.file, cell, &place, &source, shape, sidecar_of, seed)?;
        let started = clock::now();
        let result = make(&step, &self.settings.step_command)?;
        let record = outcome::record(
            About {
                run: RunIdentity {
                    id,
                    sweep: self.file.name.clone(),
                    round: (run.round > 0).then_some(run.round),
                    seed,
                    started,
                    again: run.again,
                    warm_up: run.round == 0,
                },
                cell,
                dataset: shape.record(&cell.data.name),
                version: self.version(&cell.method),
                command: step.clients[0].command.clone(),
                build: self.settings.build.as_deref().unwrap_or_default(),
                output: &step.clients[0].output,
                errors: &step.clients[0].errors,
                storage: host::storage(&place.sets),
                sidecar: sidecar.map(|(_, name)| name),
                descriptions: self.describe(&result)?,
            },
            result,
        );
        self.ledger.add(&record)?;
        self.note(&record);
        place.put_away(shape.files() > MANY_FILES)?;
        self.estimate
            .note(cell, record.outcome.wall, began.elapsed());
        Ok(record)
    }

    /// Adds both hosts to the file of hosts and returns their digests.
    fn describe(&mut self, result: &StepResult) -> Result<[String; 2], String> {
        let mut digest_of = |host: Option<&HostDescription>| match (&mut self.hosts, host) {
            (Some(hosts), Some(host)) => hosts.add(host),
            _ => Ok(String::new()),
        };
        let source = digest_of(Some(&result.source_host))?;
        Ok([source, digest_of(result.destination_host.as_ref())?])
    }

    /// Generates the source files and checks the space for the copies if they are on this
    /// host.
    fn prepare_data(
        &mut self,
        place: &command::Place,
        shape: Shape,
        is_local: bool,
    ) -> Result<(), String> {
        self.prepare_set(&place.sets, shape)?;
        if is_local {
            dataset::check_room(&place.destinations, shape.bytes())
        } else {
            Ok(())
        }
    }

    /// Generates the source files once and reads them into memory.
    fn prepare_set(&mut self, below: &Path, shape: Shape) -> Result<(), String> {
        let key = set_key(below, shape);
        if !self.sets.contains_key(&key) {
            self.sets.insert(key.clone(), Set::prepare(shape, below)?);
        }
        self.sets.get(&key).map_or(Ok(()), Set::warm)
    }

    /// Runs the set-up command of a method and of background methods, once.
    fn set_up(&mut self, method: &Method) -> Result<(), String> {
        let others = self.file.methods.iter().filter(|m| m.only_beside);
        for method in others.chain([method]) {
            let Some(setup) = &method.setup else { continue };
            let directory = self.work.join("setup").join(&method.name);
            if directory.join(".done").exists() {
                continue;
            }
            // An interrupted set-up is discarded.
            let _ = fs::remove_dir_all(&directory);
            fs::create_dir_all(&directory)
                .map_err(|error| format!("{}: {error}", directory.display()))?;
            let output = Command::new("sh")
                .args(["-c", setup])
                .current_dir(&directory)
                .output();
            let output = output.map_err(|error| format!("sh: {error}"))?;
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr);
                let said: Vec<&str> = said.lines().map(str::trim).collect();
                return Err(format!("its set-up failed: {}", said.join("; ")));
            }
            fs::write(directory.join(".done"), "")
                .map_err(|error| format!("{}: {error}", directory.display()))?;
        }
        Ok(())
    }

    /// Returns the path of the samples and the name for the record.
    fn sidecar(&self, id: &str) -> Result<Option<(PathBuf, String)>, String> {
        if self.file.samples.is_zero() {
            return Ok(None);
        }
        samples_beside(&self.output, id).map(Some)
    }

    fn version(&mut self, method: &Method) -> String {
        let known = self.versions.entry(method.name.clone());
        let ask = || match (&method.version, method.longhaul) {
            (Some(command), _) => outcome::version_of(command),
            (None, true) => env!("CARGO_PKG_VERSION").to_owned(),
            (None, false) => String::new(),
        };
        known.or_insert_with(ask).clone()
    }

    /// Removes only the directories that the sweep created.
    fn clean_up(&self) {
        if self.settings.keep {
            return;
        }
        for name in command::OWN_DIRECTORIES {
            // Remaining files are harmless.
            let _ = fs::remove_dir_all(self.work.join(name));
        }
        let _ = fs::remove_dir(&self.work);
        let foreign = self.file.storage.iter();
        for directory in foreign.filter_map(|storage| storage.destination.as_deref()) {
            let _ = fs::remove_dir_all(directory.join(command::FOREIGN_DESTINATION));
        }
    }
}

fn set_key(below: &Path, shape: Shape) -> PathBuf {
    below.join(format!("{shape:?}"))
}

/// Performs a run in a separate process.
fn make(step: &Step, command: &[OsString]) -> Result<StepResult, String> {
    let json = serde_json::to_vec(step).map_err(|error| error.to_string())?;
    let (program, arguments) = command
        .split_first()
        .ok_or("there is no command that makes a run")?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .spawn()
        .map_err(|error| format!("the process of the run: {error}"))?;
    let told = child.stdin.take().map(|mut to| to.write_all(&json));
    let status = child.wait().map_err(|error| error.to_string())?;
    told.transpose()
        .map_err(|error| format!("the process of the run: {error}"))?;
    let result =
        fs::read(&step.result).map_err(|_| format!("the run was not performed ({status})"))?;
    serde_json::from_slice(&result).map_err(|error| error.to_string())
}
