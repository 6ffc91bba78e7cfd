//! The coordinator of a transfer: it runs where the user runs the command, starts a worker on each
//! host, and distributes tasks. No file data pass through it.
//!
//! - `assemblies`: large files that are copied in parts
//! - `copy`: a copy as a value, and its output
//! - `process`: processes of workers
//! - `workers`: states of workers, and the choice of pairs
//! - `spool`: tasks that wait on disk
//! - `phases`: the survey, the tasks and the last session
//!
//! A transfer has three phases. The survey is a dry run that lists the files to copy. Tasks copy
//! them, and begin while the survey runs. The last session runs over the whole tree with all
//! options: it copies the rest, makes links, deletes, and sets the directories' metadata. Its
//! result is the result of the transfer.

mod assemblies;
mod copy;
mod phases;
mod process;
mod spool;
mod workers;

use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use longhaul_transfer::client::observer::INTERRUPTED;
use longhaul_transfer::stop::{Exit, Stop};

use crate::moment::Moment;
use crate::protocol::Report;
use crate::queue::WorkerNumber;
pub use copy::{ClusterCopy, Viewer};
use phases::Phases;
use process::Message;
use workers::Workers;

/// Time for which a task belongs to a worker that gives no sign of life.
const LEASE: Duration = Duration::from_secs(20);

/// Environment variable with another lease in milliseconds, for tests.
const LEASE_VARIABLE: &str = "LONGHAUL_CLUSTER_LEASE_MILLISECONDS";

/// Interval at which leases are checked and progress is reported.
const TICK: Duration = Duration::from_millis(500);

/// Maximum number of unread messages.
const MOST_MESSAGES: usize = 256;

/// Time for the workers to end.
const END_WITHIN: Duration = Duration::from_secs(5);

/// Interrupts a running copy from another thread.
#[derive(Clone)]
pub struct Interrupt(SyncSender<Message>);

impl Interrupt {
    /// Ends the copy.
    pub fn interrupt(&self) {
        // The copy may have ended already.
        let _ = self.0.send(Message::Interrupted);
    }
}

/// Runs a copy to its end. `prepare` receives a handle that interrupts it.
///
/// # Errors
///
/// The copy could not start or did not end.
pub fn run(
    copy: &ClusterCopy,
    viewer: &dyn Viewer,
    prepare: impl FnOnce(Interrupt),
) -> Result<Exit, Stop> {
    if let Some(fault) = copy.spec.fault_between_clusters() {
        return Err(Stop::new(Exit::Usage, format!("--cluster: {fault}")));
    }
    let lease = std::env::var(LEASE_VARIABLE).ok();
    let lease = lease.and_then(|text| text.parse().ok());
    let lease = lease.map_or(LEASE, Duration::from_millis);
    let (sender, messages) = sync_channel(MOST_MESSAGES);
    prepare(Interrupt(sender.clone()));
    let mut workers = Workers::start(copy, (lease, &sender), viewer)?;
    let mut phases = Phases::new(copy, lease, viewer)?;
    let result = loop {
        let message = match messages.recv_timeout(TICK.min(lease / 4)) {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => break Err(interrupted()),
        };
        let now = Moment::now();
        let step = handle(message, (&mut workers, &mut phases), now);
        match step.and_then(|()| phases.advance(&mut workers, now)) {
            Ok(None) => {}
            Ok(Some(exit)) => break Ok(exit),
            Err(stop) => break Err(stop),
        }
    };
    workers.close();
    let until = Moment::now().after(END_WITHIN);
    while workers.are_running() {
        let left = until.since(Moment::now());
        match messages.recv_timeout(left) {
            Ok(Message::Lost(number, _)) => workers.set_lost(number),
            Ok(_) => {}
            Err(_) => break,
        }
    }
    result
}

fn interrupted() -> Stop {
    Stop::new(Exit::Interrupted, INTERRUPTED)
}

fn handle(
    message: Option<Message>,
    (workers, phases): (&mut Workers, &mut Phases<'_>),
    now: Moment,
) -> Result<(), Stop> {
    match message {
        None => Ok(()),
        Some(Message::Interrupted) => Err(interrupted()),
        Some(Message::Said(number, text)) => {
            phases.note(&format!("{}: {text}", workers.name(number)));
            Ok(())
        }
        Some(Message::Lost(number, reason)) => lose(number, reason, (workers, phases), now),
        Some(Message::Report(number, report)) => {
            workers.hear(number, now);
            receive(number, report, (workers, phases), now)
        }
    }
}

fn lose(
    number: WorkerNumber,
    reason: Option<String>,
    (workers, phases): (&mut Workers, &mut Phases<'_>),
    now: Moment,
) -> Result<(), Stop> {
    if !workers.is_running(number) {
        return Ok(());
    }
    let name = workers.name(number);
    let reason = reason.map_or(String::new(), |reason| format!(" ({reason})"));
    phases.note(&format!("{name}: the worker ended{reason}"));
    workers.set_lost(number);
    phases.leave(workers, number, now)?;
    workers.check_sites()
}

fn receive(
    number: WorkerNumber,
    report: Report,
    (workers, phases): (&mut Workers, &mut Phases<'_>),
    now: Moment,
) -> Result<(), Stop> {
    match report {
        Report::Ready { version } => workers.begin(number, &version),
        Report::Serving {
            port,
            fingerprint,
            principal,
            token,
        } => workers.serve(number, port, [fingerprint, principal, token]),
        Report::Alive {} => {
            phases.extend(number, now);
            Ok(())
        }
        Report::Found { session, files } => phases.found(session, files),
        Report::Print { bytes } => {
            phases.print(&bytes);
            Ok(())
        }
        Report::Note { text } => {
            phases.note(&text);
            Ok(())
        }
        Report::Ended(ended) => phases.end(workers, (number, ended), now),
        Report::Failed { text, .. } => lose(number, Some(text), (workers, phases), now),
    }
}
