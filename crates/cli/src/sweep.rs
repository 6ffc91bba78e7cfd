//! `longhaul sweep`: experiments from a file, one record a run.
//!
//! - [`mod@file`]: the file, as one writes it
//! - [`plan`]: configurations, and runs in their order
//! - [`finals`]: the fastest, measured again
//! - [`listing`]: what would be run
//! - [`ledger`]: the records; who is in them is done
//! - [`dataset`]: what is moved, and whether it arrived
//! - [`command`]: the command lines of a run
//! - [`step`], [`inside`]: one run, in a process of its own with the lab around it
//! - [`watcher`], [`longhaul_engine::net::sockets`], [`accounts`]: streams and processor
//!   time from outside
//! - [`warm`]: memory that is as warm for each method
//! - [`outcome`], [`lab_report`], [`host`]: the record

pub mod accounts;
pub mod command;
pub mod dataset;
pub mod estimate;
pub mod file;
pub mod finals;
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
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use longhaul_engine::clock;
use longhaul_measure::host::HostDescription;
use longhaul_measure::record::{Ended, Measures, RunIdentity, RunRecord};

use crate::arguments::SweepArguments;
use crate::beside::{HostsFile, samples_beside};
use crate::messages::{Exit, Stop, say, write_output};
use dataset::{Set, Shape};
use estimate::Estimate;
use file::{Method, SweepFile, Unread};
use ledger::Ledger;
use outcome::About;
use plan::{Cell, Plan, Planned};
use step::StepResult;
use warm::WarmMemory;

/// Sets with more files are not removed between runs: ext4 does not use an inode
/// again for minutes, and looks for another one by one, so that whoever removes and
/// writes in turns measures that.
const MANY_FILES: u64 = 1000;

fn local(text: String) -> Stop {
    Stop::new(Exit::Local, text)
}

/// Runs a sweep, or goes on with it.
pub fn run(arguments: &SweepArguments) -> Result<Exit, Stop> {
    let usage = |text: String| Stop::new(Exit::Usage, text);
    let file = file::read(&arguments.file);
    let mut file = file.map_err(|unread| match unread {
        Unread::Closed(text) => local(text),
        Unread::Wrong(text) => usage(text),
    })?;
    file.choose(&arguments.methods, arguments.repetitions)
        .map_err(usage)?;
    file.choose_data(&arguments.data).map_err(usage)?;
    file.choose_paths(&arguments.paths).map_err(usage)?;
    let plan =
        Plan::of(&file).map_err(|error| usage(format!("{}: {error}", arguments.file.display())))?;
    let output = match &arguments.output {
        Some(output) => output.clone(),
        None => PathBuf::from(format!("{}.jsonl", file.name)),
    };
    if arguments.dry_run {
        let text = listing::list(&file, &plan, &output).map_err(local)?;
        write_output(text.as_bytes());
        return Ok(Exit::Done);
    }
    let (ledger, found) = Ledger::open(&output).map_err(local)?;
    if let Some(line) = found.dropped {
        say(&format!(
            "{}: line {line} was cut off and is dropped: that run is made again",
            output.display()
        ));
    }
    let work = arguments
        .work
        .clone()
        .unwrap_or_else(|| output.with_extension("work"));
    let mut sweep = Sweep::new(&file, &plan, ledger, output, work, arguments)?;
    sweep.estimate.learn(&found.runs);
    found.runs.iter().for_each(|record| sweep.note(record));
    sweep.go_on()
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
    /// None where records go to no file.
    hosts: Option<HostsFile>,
    output: PathBuf,
    work: PathBuf,
    arguments: &'a SweepArguments,
    estimate: Estimate,
    /// The plan's runs, and at the end those of the fastest.
    runs: Vec<Planned>,
    has_finals: bool,
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
        file: &'a SweepFile,
        plan: &'a Plan,
        ledger: Ledger,
        output: PathBuf,
        work: PathBuf,
        arguments: &'a SweepArguments,
    ) -> Result<Sweep<'a>, Stop> {
        let made = fs::create_dir_all(&work).and_then(|()| fs::canonicalize(&work));
        let work = made.map_err(|error| local(format!("{}: {error}", work.display())))?;
        let hosts = HostsFile::open(&output).map_err(local)?;
        let missing = listing::missing(file, plan);
        for (method, program) in &missing {
            say(&format!("{method} is skipped: {program} is not installed"));
        }
        let left_out = missing.into_keys().collect();
        Ok(Sweep {
            file,
            plan,
            ledger,
            hosts,
            output,
            work,
            arguments,
            estimate: Estimate::default(),
            runs: plan.runs.clone(),
            has_finals: false,
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
    fn go_on(&mut self) -> Result<Exit, Stop> {
        let mut runs = self.plan.runs.iter();
        let some = runs.any(|run| self.ledger.has(&self.id(*run)));
        if self.open(0).next().is_none() {
            self.add_finals();
        }
        if some && self.open(0).next().is_none() {
            let output = self.output.display();
            say(&format!(
                "nothing is left to run: {output} has it; `longhaul profile {output}` tells what it \
                 says"
            ));
        }
        let mut next = 0;
        loop {
            let Some(run) = self.runs.get(next).copied() else {
                match self.add_finals() {
                    true => continue,
                    false => break,
                }
            };
            let place = next;
            next += 1;
            let cell = &self.plan.cells[run.cell];
            if self.is_left_out(cell) || self.ledger.has(&self.id(run)) {
                continue;
            }
            let expected = self.estimate.of(cell);
            if let Some(limit) = self.arguments.duration
                && self.began.elapsed() + expected > limit
            {
                say(&format!(
                    "time is up after {place} of {} runs: the same command goes on, for about {} \
                     more",
                    self.runs.len(),
                    estimate::spoken(self.left(place))
                ));
                return Ok(Exit::Partial);
            }
            match self.run_one(run) {
                Ok(record) => self.tell(place, &record),
                Err(error) => {
                    say(&format!("{} is left out: {error}", cell.method.name));
                    self.left_out.insert(cell.method.name.clone());
                    self.failures += 1;
                }
            }
        }
        self.clean_up();
        Ok(if self.failures > 0 {
            Exit::Partial
        } else {
            Exit::Done
        })
    }

    /// What a record says of who is fastest.
    fn note(&mut self, record: &RunRecord) {
        if let Some((id, rate)) = deciding_rate(record) {
            self.swept.insert(id.to_owned(), rate);
        }
    }

    /// Adds runs of the fastest, once; false where there are none.
    fn add_finals(&mut self) -> bool {
        if std::mem::replace(&mut self.has_finals, true) {
            return false;
        }
        let mut rates: HashMap<usize, Vec<f64>> = HashMap::new();
        for run in &self.plan.runs {
            if let Some(rate) = self.swept.get(&self.id(*run)) {
                rates.entry(run.cell).or_default().push(*rate);
            }
        }
        let finals = finals::finals(self.file, self.plan, &rates);
        self.runs.extend(&finals);
        !finals.is_empty()
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

    fn tell(&self, place: usize, record: &RunRecord) {
        let outcome = &record.outcome;
        let came = match outcome.ended {
            Ended::Done => format!("{} in {:.2} s", outcome.goodput, outcome.wall.as_secs_f64()),
            Ended::Failed => format!("failed: {}", outcome.error),
            Ended::Capped => format!("ended at the cap of {:?}", self.file.cap),
        };
        let run = self.runs[place];
        let cell = &self.plan.cells[run.cell];
        say(&format!(
            "{} of {}: {}{}: {came}; about {} left",
            place + 1,
            self.runs.len(),
            if run.again { "again " } else { "" },
            cell.title(),
            estimate::spoken(self.left(place + 1))
        ));
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
        let result = make(&step)?;
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
                build: self.arguments.build.as_deref().unwrap_or_default(),
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
        match is_local {
            true => dataset::check_room(&place.destinations, shape.bytes()),
            false => Ok(()),
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
                return Err(format!("its set-up failed: {}", said.trim()));
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
        if self.arguments.keep {
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
fn make(step: &step::Step) -> Result<StepResult, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let json = serde_json::to_vec(step).map_err(|error| error.to_string())?;
    let mut child = Command::new(own)
        .arg("sweep-step")
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

/// One run, asked for on standard input.
pub fn run_step() -> Result<u8, Stop> {
    let step = serde_json::from_reader(std::io::stdin().lock());
    let step = step.map_err(|error| Stop::new(Exit::Usage, format!("no step: {error}")))?;
    inside::run(step).map_err(local)
}
