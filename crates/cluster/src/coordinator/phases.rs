//! The phases of a transfer: the survey, the tasks and the last session.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use longhaul_proto::assembly::Assembly;
use longhaul_proto::byte_string::ByteString;
use longhaul_proto::options::Operation;
use longhaul_transfer::stop::{Exit, Stop};
use longhaul_units::ByteCount;
use serde_json::json;

use super::assemblies::Assemblies;
use super::copy::{ClusterCopy, Viewer};
use super::spool::{Spool, spool_failed};
use super::workers::Workers;
use crate::ledger::Ledger;
use crate::moment::Moment;
use crate::protocol::{Ended, Kind, MOST_FOUND, Order, SessionNumber, Start};
use crate::queue::{Delivery, Here, MOST_ATTEMPTS, Queue, WorkerNumber};
use crate::task::{Found, Packer, Parts, Task, TaskName};

/// Maximum number of tasks that wait in memory.
const MOST_WAITING: usize = 64;

/// A task is late if it takes this many times as long as expected.
const LATE: u32 = 3;

/// Interval of progress.
const PROGRESS: Duration = Duration::from_secs(1);

/// A running session.
struct Session {
    job: Job,
    source: WorkerNumber,
    destination: WorkerNumber,
    since: Moment,
}

/// Operation of a running session.
enum Job {
    Survey,
    Pack(Delivery),
    Finish,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The survey lists files, and tasks run.
    Survey,
    /// The survey is complete, and tasks run.
    Tasks,
    /// The last session runs.
    Finish,
}

/// Totals of the tasks.
#[derive(Default)]
struct Totals {
    files: u64,
    bytes: u64,
    /// Time of complete tasks.
    busy: Duration,
    complete: u32,
}

/// State of a transfer.
pub struct Phases<'a> {
    copy: &'a ClusterCopy,
    viewer: &'a dyn Viewer,
    lease: Duration,
    phase: Phase,
    /// Number of surveys or of last sessions that failed, in this phase.
    failed: u32,
    sessions: BTreeMap<SessionNumber, Session>,
    last_session: SessionNumber,
    packer: Packer,
    queue: Here,
    spool: Spool,
    ledger: Ledger,
    assemblies: Assemblies,
    totals: Totals,
    /// True if every task copied all of its files.
    clean: bool,
    begun: Moment,
    shown: Moment,
    exit: Option<Exit>,
}

impl<'a> Phases<'a> {
    /// Creates the state before the survey.
    ///
    /// # Errors
    ///
    /// The file of waiting tasks cannot be made.
    pub fn new(
        copy: &'a ClusterCopy,
        lease: Duration,
        viewer: &'a dyn Viewer,
    ) -> Result<Phases<'a>, Stop> {
        let spool = Spool::new().map_err(|error| {
            let text = format!("cannot make a file for waiting tasks: {error}");
            Stop::new(Exit::Local, text)
        })?;
        let is_copy = copy.spec.options.operation == Operation::Copy;
        let now = Moment::now();
        let mut phases = Phases {
            copy,
            viewer,
            lease,
            phase: if is_copy {
                Phase::Survey
            } else {
                Phase::Finish
            },
            failed: 0,
            sessions: BTreeMap::new(),
            last_session: 0,
            packer: Packer::new("", false),
            queue: Here::new(lease, MOST_WAITING),
            spool,
            ledger: Ledger::default(),
            assemblies: Assemblies::default(),
            totals: Totals::default(),
            clean: true,
            begun: now,
            shown: now,
            exit: None,
        };
        phases.packer = phases.new_packer();
        Ok(phases)
    }

    fn new_packer(&self) -> Packer {
        let transfer = format!("{} {}", self.copy.from.shown(), self.copy.to.shown());
        Packer::new(&transfer, self.failed > 0)
    }

    /// Shows a line.
    pub fn note(&self, text: &str) {
        self.viewer.note(text);
    }

    /// Writes to standard output.
    pub fn print(&self, bytes: &[u8]) {
        self.viewer.print(bytes);
    }

    /// Extends the leases of a worker that gave a sign of life.
    pub fn extend(&mut self, number: WorkerNumber, now: Moment) {
        self.queue.extend(number, now);
    }

    /// Makes tasks of files that the survey found.
    ///
    /// # Errors
    ///
    /// The report is invalid, or the file of waiting tasks cannot be written.
    pub fn found(&mut self, session: SessionNumber, files: Vec<Found>) -> Result<(), Stop> {
        let found = self.sessions.get(&session);
        let is_survey = found.is_some_and(|session| matches!(session.job, Job::Survey));
        if !is_survey || files.len() > MOST_FOUND {
            // A survey that was given up.
            return Ok(());
        }
        for file in files {
            if let Some(parts) = self.packer.parts(&file) {
                self.publish_parts(file.path, parts)?;
                continue;
            }
            for task in self.packer.add(file) {
                self.publish(task)?;
            }
        }
        Ok(())
    }

    fn publish_parts(&mut self, path: ByteString, mut parts: Parts) -> Result<(), Stop> {
        while let Some(part) = parts.next(&self.packer) {
            self.assemblies.add_part(&part.name, &path);
            self.publish(part)?;
        }
        self.ledger.open(&parts.whole.name);
        self.assemblies.add(path, parts.count(), parts.whole);
        Ok(())
    }

    /// Publishes the last task of a file if this task was the last of its parts.
    fn settle_part(&mut self, name: &TaskName) -> Result<(), Stop> {
        match self.assemblies.settle(name) {
            Some(whole) => self.publish(whole),
            None => Ok(()),
        }
    }

    fn publish(&mut self, task: Task) -> Result<(), Stop> {
        self.ledger.open(&task.name);
        let task = if self.spool.is_empty() {
            self.queue.publish(task).err()
        } else {
            Some(task)
        };
        match task {
            Some(task) => self.spool.push(&task).map_err(spool_failed),
            None => Ok(()),
        }
    }

    /// Moves tasks from the disk to the queue.
    fn refill(&mut self) -> Result<(), Stop> {
        while self.queue.has_room()
            && let Some(task) = self.spool.pop().map_err(spool_failed)?
        {
            if let Err(task) = self.queue.publish(task) {
                self.spool.push(&task).map_err(spool_failed)?;
                break;
            }
        }
        Ok(())
    }

    /// Starts sessions, and takes back those of silent workers. Returns the result of the transfer
    /// when it has ended.
    ///
    /// # Errors
    ///
    /// The transfer cannot continue.
    pub fn advance(&mut self, workers: &mut Workers, now: Moment) -> Result<Option<Exit>, Stop> {
        if self.exit.is_some() {
            return Ok(self.exit);
        }
        self.check_time(workers, now)?;
        for number in workers.silent(now) {
            self.note(&format!("{}: no sign of life", workers.name(number)));
            self.leave(workers, number, now)?;
        }
        for ended in self.queue.expire(now) {
            self.take_back(workers, &ended, now)?;
        }
        self.refill()?;
        let is_drained = self.ledger.is_settled() && self.spool.is_empty();
        match self.phase {
            // A repeated survey must not list files of running tasks.
            Phase::Survey if self.failed == 0 || is_drained => {
                self.start_single(workers, Job::Survey, now)?;
            }
            Phase::Survey => {}
            Phase::Tasks if is_drained => {
                (self.phase, self.failed) = (Phase::Finish, 0);
            }
            Phase::Tasks => {}
            Phase::Finish => self.start_single(workers, Job::Finish, now)?,
        }
        if self.phase != Phase::Finish {
            self.start_tasks(workers, now)?;
            self.show_progress(now);
        }
        Ok(None)
    }

    fn check_time(&self, workers: &Workers, now: Moment) -> Result<(), Stop> {
        let running = now.since(self.begun);
        let most = self.copy.spec.limits.stop_after.map(Duration::from_millis);
        if most.is_some_and(|most| running >= most) {
            let text = "its time was over (--stop-after, --stop-at); the same command resumes it";
            return Err(Stop::new(Exit::TimeOver, text));
        }
        let timeout = self.copy.spec.connection.timeout;
        let waits = self.last_session == 0 && workers.counts().contains(&0);
        if waits && !timeout.is_zero() && running >= timeout {
            let text = "no worker of a site started within --timeout: check ssh and longhaul there";
            return Err(Stop::new(Exit::Connection, text));
        }
        Ok(())
    }

    /// Starts the survey or the last session, unless it runs.
    fn start_single(&mut self, workers: &mut Workers, job: Job, now: Moment) -> Result<(), Stop> {
        let is_single = |session: &Session| !matches!(session.job, Job::Pack(_));
        if self.sessions.values().any(is_single) {
            return Ok(());
        }
        let free = workers.free_sources(now);
        let pair = free.first().and_then(|source| {
            let destination = workers.destination(*source, now)?;
            Some([*source, destination])
        });
        match pair {
            Some(pair) => self.start(workers, pair, job, now),
            None => Ok(()),
        }
    }

    fn start_tasks(&mut self, workers: &mut Workers, now: Moment) -> Result<(), Stop> {
        loop {
            let mut started = false;
            for source in workers.free_sources(now) {
                let Some(destination) = workers.destination(source, now) else {
                    return Ok(());
                };
                let Some(delivery) = self.next_task(source, now) else {
                    continue;
                };
                self.start(workers, [source, destination], Job::Pack(delivery), now)?;
                started = true;
            }
            if !started {
                return Ok(());
            }
        }
    }

    fn next_task(&mut self, source: WorkerNumber, now: Moment) -> Option<Delivery> {
        if let Some(delivery) = self.queue.next(source, now) {
            return Some(delivery);
        }
        if self.phase != Phase::Tasks || self.totals.complete == 0 {
            return None;
        }
        let totals = &self.totals;
        let mean = totals.busy / totals.complete;
        let rate = totals.bytes as f64 / totals.busy.as_secs_f64().max(1e-3);
        let least = self.lease * 2;
        self.queue.last(source, now, &|task| {
            let expected = Duration::try_from_secs_f64(task.bytes as f64 / rate.max(1.0));
            let expected = expected.unwrap_or(Duration::MAX).saturating_add(mean);
            expected.saturating_mul(LATE).max(least)
        })
    }

    fn start(
        &mut self,
        workers: &mut Workers,
        [source, destination]: [WorkerNumber; 2],
        job: Job,
        now: Moment,
    ) -> Result<(), Stop> {
        let Some(to) = workers.peer(destination).cloned() else {
            return Ok(());
        };
        self.last_session += 1;
        let session = self.last_session;
        let kind = match &job {
            Job::Survey => Kind::Survey {
                update: self.failed > 0,
            },
            Job::Pack(delivery) => Kind::Pack {
                task: delivery.task.name.0.clone(),
                files: delivery.task.files.clone(),
                update: is_repeated(delivery),
                assembly: delivery.task.assembly,
            },
            Job::Finish => Kind::Finish {
                update: self.has_tasks(),
            },
        };
        workers.order(source, &Order::Start(Start { session, kind, to }))?;
        workers.join([source, destination]);
        let since = now;
        let running = Session {
            job,
            source,
            destination,
            since,
        };
        self.sessions.insert(session, running);
        Ok(())
    }

    fn has_tasks(&self) -> bool {
        self.ledger.counts().1 > 0
    }

    /// Takes back the sessions of a worker that has ended or is silent.
    ///
    /// # Errors
    ///
    /// The file of waiting tasks cannot be written.
    pub fn leave(
        &mut self,
        workers: &mut Workers,
        number: WorkerNumber,
        now: Moment,
    ) -> Result<(), Stop> {
        let is_of = |session: &Session| [session.source, session.destination].contains(&number);
        let sessions = self.sessions.iter().filter(|(_, session)| is_of(session));
        let sessions: Vec<SessionNumber> = sessions.map(|(number, _)| *number).collect();
        for session in sessions {
            self.abandon(workers, session, now)?;
        }
        Ok(())
    }

    /// Ends a session whose result will not be waited for.
    fn abandon(
        &mut self,
        workers: &mut Workers,
        session: SessionNumber,
        now: Moment,
    ) -> Result<(), Stop> {
        let Some(running) = self.sessions.remove(&session) else {
            return Ok(());
        };
        // A worker that does not run cannot be told.
        let _ = workers.order(running.source, &Order::Cancel { session });
        workers.part([running.source, running.destination], false, now);
        match running.job {
            Job::Survey | Job::Finish => {
                self.failed += 1;
                Ok(())
            }
            Job::Pack(delivery) => self.give_back(&delivery),
        }
    }

    fn give_back(&mut self, delivery: &Delivery) -> Result<(), Stop> {
        let name = &delivery.task.name;
        let ended = self.queue.give_back(name, delivery.attempt);
        if ended.is_some_and(|ended| ended.given_up) {
            return self.give_up(name);
        }
        Ok(())
    }

    fn give_up(&mut self, name: &TaskName) -> Result<(), Stop> {
        self.ledger.give_up(name);
        self.clean = false;
        self.settle_part(name)
    }

    /// Ends the session whose lease expired.
    fn take_back(
        &mut self,
        workers: &mut Workers,
        ended: &crate::queue::Ended,
        now: Moment,
    ) -> Result<(), Stop> {
        if ended.given_up {
            self.give_up(&ended.name)?;
        }
        let found = self.sessions.iter().find(|(_, session)| {
            matches!(&session.job, Job::Pack(delivery)
                if delivery.task.name == ended.name && delivery.attempt == ended.attempt)
        });
        match found.map(|(number, _)| *number) {
            Some(session) => self.abandon(workers, session, now),
            None => Ok(()),
        }
    }

    /// Handles the end of a session.
    ///
    /// # Errors
    ///
    /// The transfer cannot continue.
    pub fn end(
        &mut self,
        workers: &mut Workers,
        (number, ended): (WorkerNumber, Ended),
        now: Moment,
    ) -> Result<(), Stop> {
        let is_own = |session: &Session| session.source == number;
        if !self.sessions.get(&ended.session).is_some_and(is_own) {
            // It was taken back before.
            return Ok(());
        }
        let Some(session) = self.sessions.remove(&ended.session) else {
            return Ok(());
        };
        let failed = ended.text.is_some();
        workers.part([session.source, session.destination], failed, now);
        match session.job {
            Job::Pack(delivery) => self.end_task(&delivery, &ended, now.since(session.since)),
            Job::Survey => self.end_survey(ended),
            Job::Finish => self.finish(workers, ended, now),
        }
    }

    fn end_task(&mut self, delivery: &Delivery, ended: &Ended, took: Duration) -> Result<(), Stop> {
        self.totals.files += ended.files;
        self.totals.bytes += match delivery.task.assembly {
            None => ended.bytes,
            Some(Assembly::Part { .. }) if ended.exit == Exit::Done.code() => delivery.task.bytes,
            // The parts were counted.
            Some(_) => 0,
        };
        if ended.text.is_some() {
            return self.give_back(delivery);
        }
        self.queue.acknowledge(&delivery.task.name);
        if self.ledger.complete(&delivery.task.name, delivery.attempt) {
            self.totals.busy += took;
            self.totals.complete += 1;
        }
        // A file that is newer may have been so before the transfer, or was edited after an earlier
        // attempt had committed it.
        let is_unclear = ended.newer > 0 && delivery.task.replaces && is_repeated(delivery);
        self.clean &= ended.exit == Exit::Done.code() && !is_unclear;
        self.settle_part(&delivery.task.name)
    }

    fn end_survey(&mut self, ended: Ended) -> Result<(), Stop> {
        if let Some(task) = self.packer.rest() {
            self.publish(task)?;
        }
        let Some(text) = ended.text else {
            self.phase = Phase::Tasks;
            return Ok(());
        };
        self.fail(Exit::of_code(ended.exit), text)?;
        self.packer = self.new_packer();
        Ok(())
    }

    /// Counts a failure of a survey or of the last session.
    fn fail(&mut self, exit: Exit, text: String) -> Result<(), Stop> {
        self.failed += 1;
        let may_pass = matches!(exit, Exit::Connection | Exit::Local | Exit::Interrupted);
        if may_pass && self.failed < MOST_ATTEMPTS {
            self.note(&format!("{text}; trying again"));
            Ok(())
        } else {
            Err(Stop::new(exit, text))
        }
    }

    fn finish(&mut self, workers: &Workers, ended: Ended, now: Moment) -> Result<(), Stop> {
        let mut exit = Exit::of_code(ended.exit);
        if let Some(text) = ended.text {
            return self.fail(exit, text);
        }
        let newer = ended.newer;
        if self.has_tasks() && newer > 0 && !self.copy.spec.updates() {
            if self.clean {
                self.note(&format!(
                    "files changed at the destination after they were copied, which stay: {newer}"
                ));
            } else {
                self.note(&format!(
                    "newer files at the destination stay, because a host failed and they may have \
                     been changed after they were copied: {newer}; the same command replaces them"
                ));
                if exit == Exit::Done {
                    exit = Exit::Partial;
                }
            }
        }
        self.summarise(workers, now);
        self.exit = Some(exit);
        Ok(())
    }

    fn summarise(&self, workers: &Workers, now: Moment) {
        let Totals { files, bytes, .. } = self.totals;
        let [sources, destinations] = workers.counts();
        let seconds = now.since(self.begun).as_secs_f64();
        let (complete, all, _) = self.ledger.counts();
        let output = self.copy.output;
        if output.json {
            let event = json!({
                "schema": 1, "event": "cluster", "sources": sources,
                "destinations": destinations, "tasks": all, "complete_tasks": complete,
                "files": files, "bytes": bytes, "seconds": seconds,
            });
            self.print(format!("{event}\n").as_bytes());
        } else if !output.quiet && self.has_tasks() {
            let rate = ByteCount((bytes as f64 / seconds.max(1e-3)) as u64);
            self.note(&format!(
                "tasks: {files} files, {} from {sources} to {destinations} hosts in {seconds:.1} s \
                 ({rate}/s), {all} tasks",
                ByteCount(bytes)
            ));
        }
    }

    fn show_progress(&mut self, now: Moment) {
        if now.since(self.shown) < PROGRESS {
            return;
        }
        self.shown = now;
        let (complete, all, _) = self.ledger.counts();
        let Totals { files, bytes, .. } = self.totals;
        let more = if self.phase == Phase::Survey { "+" } else { "" };
        self.viewer.progress(&format!(
            "{complete} of {all}{more} tasks, {files} files, {}, {} sessions",
            ByteCount(bytes),
            self.sessions.len()
        ));
    }
}

/// True if an earlier session may have committed files of a task.
fn is_repeated(delivery: &Delivery) -> bool {
    let task: &Arc<Task> = &delivery.task;
    task.again || delivery.attempt > 1
}
