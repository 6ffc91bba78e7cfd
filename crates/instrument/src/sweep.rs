//! A sweep: experiments from a file, one record a run.
//!
//! - [`mod@file`]: the file, as one writes it
//! - [`plan`]: configurations, and runs in their order
//! - [`best_again`]: the fastest, measured again
//! - [`listing`]: what would be run
//! - [`ledger`]: the records; who is in them is done
//! - [`content`]: what files hold
//! - [`dataset`]: what is moved, and whether it arrived
//! - [`command`]: the command lines of a run
//! - [`step`], [`inside`]: one run, in a process of its own with the lab around it
//! - [`watcher`], [`longhaul_engine::net::sockets`], [`accounts`]: streams and processor
//!   time from outside
//! - [`warm`]: memory that is as warm for each method
//! - [`outcome`], [`lab_report`], [`host`]: the record
//! - [`event`]: what happens meanwhile

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

/// Sets with more files are not removed between runs: ext4 does not reuse an inode for minutes,
/// and searches for others one by one. A sweep that removes and writes in turns would measure
/// that.
const MANY_FILES: u64 = 1000;

/// What a sweep is asked for.
#[derive(Clone, Debug)]
pub struct SweepSettings {
    /// What is to be run (TOML).
    pub file: PathBuf,
    /// The records; those that are in it are not made again. None: `NAME.jsonl`.
    pub output: Option<PathBuf>,
    /// A directory for what is moved and where it arrives, which is removed at the end. None:
    /// beside the records, with `.work`.
    pub work: Option<PathBuf>,
    /// No run is begun that would end later than so long from the start.
    pub duration: Option<Duration>,
    /// Only these methods, by name; empty: all.
    pub methods: Vec<String>,
    /// Only these data, by name; empty: all.
    pub data: Vec<String>,
    /// Only paths with these settings, `KEY=VALUE`; of several of one name any.
    pub paths: Vec<String>,
    /// This many repetitions at most, from 1.
    pub repetitions: Option<u64>,
    /// The directory of data is kept at the end.
    pub keep: bool,
    /// What the method `longhaul` was built from, for the records.
    pub build: Option<String>,
    /// The program and its arguments that make one run: it gives its standard input to
    /// [`Step::read`] and that to [`inside::run`].
    pub step_command: Vec<OsString>,
}

/// How a sweep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepEnd {
    /// Every run is in the records.
    Done,
    /// Some are not: time was up, or a method could not run.
    Partial,
}

/// Why a sweep does not run.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The file or the settings make no sense: correct them.
    #[error("{0}")]
    Wrong(String),
    /// This host cannot: a file cannot be read or written.
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

/// A sweep's file as it was chosen from, its plan, and where its records go.
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

/// What is left to be run, and how long that takes, as text; nothing is run.
///
/// # Errors
///
/// Where the settings make no sense, or a file cannot be read.
pub fn list(settings: &SweepSettings) -> Result<String, SweepError> {
    let (file, plan, output) = read(settings)?;
    listing::list(&file, &plan, &output).map_err(SweepError::Local)
}

/// Runs a sweep, or resumes it.
///
/// # Errors
///
/// Where the settings make no sense, or a file cannot be read or written. A run that fails is
/// a record, and a method that cannot run an event.
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

/// The identity and the goodput of a run that decides who is fastest.
fn deciding_rate(record: &RunRecord) -> Option<(&str, f64)> {
    let run = &record.run;
    let decides = record.outcome.ended == Ended::Done && !run.warm_up && !run.again;
    decides.then(|| (run.id.as_str(), record.outcome.goodput.bits_per_second()))
}

/// A sweep that runs.
struct Sweep<'a> {
    file: &'a SweepFile,
    plan: &'a Plan,
    ledger: Ledger,
    /// `None` if records go to no file.
    hosts: Option<HostsFile>,
    output: PathBuf,
    work: PathBuf,
    settings: &'a SweepSettings,
    tell: &'a mut dyn FnMut(&SweepEvent),
    estimate: Estimate,
    /// The plan's runs, and at the end those of the fastest.
    runs: Vec<Planned>,
    has_best_again: bool,
    /// Goodput of what decides who is fastest, by the run's identity.
    swept: HashMap<String, f64>,
    sets: HashMap<PathBuf, Set>,
    versions: HashMap<String, String>,
    /// Methods that cannot run here, or failed to.
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

    /// Runs what is not done.
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

    /// What a record says of who is fastest.
    fn note(&mut self, record: &RunRecord) {
        if let Some((id, rate)) = deciding_rate(record) {
            self.swept.insert(id.to_owned(), rate);
        }
    }

    /// Adds runs of the fastest, once; false where there are none.
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

    /// What is not done from here on.
    fn open(&self, from: usize) -> impl Iterator<Item = &Planned> {
        let rest = self.runs.iter().skip(from);
        rest.filter(|run| {
            !self.is_left_out(&self.plan.cells[run.cell]) && !self.ledger.has(&self.id(**run))
        })
    }

    /// Time for it.
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

    /// Makes a run and writes its record.
    fn run_one(&mut self, run: Planned) -> Result<RunRecord, String> {
        let cell = &self.plan.cells[run.cell];
        let began = Instant::now();
        let id = self.id(run);
        let shape = cell.shape;
        let place = command::Place::prepare(&self.work, cell, &id)?;
        if cell.method.measures == Measures::Transfer {
            let is_local = cell.path.is_local();
            if self.prepare_data(&place, shape, is_local).is_err() {
                // What arrived earlier may be in the way.
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

    /// Both hosts into the file of hosts; gives what it has them by.
    fn describe(&mut self, result: &StepResult) -> Result<[String; 2], String> {
        let mut digest_of = |host: Option<&HostDescription>| match (&mut self.hosts, host) {
            (Some(hosts), Some(host)) => hosts.add(host),
            _ => Ok(String::new()),
        };
        let source = digest_of(Some(&result.source_host))?;
        Ok([source, digest_of(result.destination_host.as_ref())?])
    }

    /// Makes the files, and sees to it that they have room where they arrive, if
    /// that is here.
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

    /// Makes the files, once, and reads them into memory.
    fn prepare_set(&mut self, below: &Path, shape: Shape) -> Result<(), String> {
        let key = set_key(below, shape);
        if !self.sets.contains_key(&key) {
            self.sets.insert(key.clone(), Set::prepare(shape, below)?);
        }
        self.sets.get(&key).map_or(Ok(()), Set::warm)
    }

    /// What a method does once.
    fn set_up(&mut self, method: &Method) -> Result<(), String> {
        let others = self.file.methods.iter().filter(|m| m.only_beside);
        for method in others.chain([method]) {
            let Some(setup) = &method.setup else { continue };
            let directory = self.work.join("setup").join(&method.name);
            if directory.join(".done").exists() {
                continue;
            }
            // What a setup that was stopped left is no set-up.
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

    /// Where samples go, and the name by which the record knows them.
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

    /// Removes what the sweep made for itself, and nothing else.
    fn clean_up(&self) {
        if self.settings.keep {
            return;
        }
        for name in command::OWN_DIRECTORIES {
            // What stays is only in the way.
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

/// Makes a run in a process of its own.
fn make(step: &Step, command: &[OsString]) -> Result<StepResult, String> {
    let json = serde_json::to_vec(step).map_err(|error| error.to_string())?;
    let (program, arguments) = command
        .split_first()
        .ok_or("there is no command that makes a run")?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .spawn()
        .map_err(|error| format!("a process for the run: {error}"))?;
    let told = child.stdin.take().map(|mut to| to.write_all(&json));
    let status = child.wait().map_err(|error| error.to_string())?;
    told.transpose()
        .map_err(|error| format!("a process for the run: {error}"))?;
    let result = fs::read(&step.result).map_err(|_| format!("the run was not made ({status})"))?;
    serde_json::from_slice(&result).map_err(|error| error.to_string())
}
