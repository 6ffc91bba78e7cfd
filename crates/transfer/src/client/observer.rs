//! What a caller hears of a transfer, and how it changes one that runs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use longhaul_engine::flows::LayerUse;
use longhaul_engine::send::stream::WholeStream;
use longhaul_engine::session::{Ending, Event, Progress, Transfer, Watch};
use longhaul_model::limit::Limit as Limiting;
use longhaul_proto::handshake::Operation;
use longhaul_proto::message::{FailureKind, Farewell};
use longhaul_proto::notice::NoticeKind;

use super::steering::Steered;
use crate::planning::foresight::{self, Ended, Explained, Foreseeing, Foreseen};
use crate::planning::history;
use crate::planning::limiting::{all_layers, full_layer, is_at_rate};
use crate::planning::uncoded;
use crate::rate_limit::BandwidthLimit;
use crate::spec::Limits;
use crate::ssh::route::Route;
use crate::stop::{Exit, Stop};

/// What an interrupted command says last.
pub const INTERRUPTED: &str = "interrupted; the same command resumes it";

/// Hears of a transfer.
pub trait Observer: Send + Sync {
    /// Something became of an entry or of a stream. Comes from several threads.
    fn event(&self, event: &Event);

    /// The transfer runs; waits for nothing.
    fn begun(&self, running: &Running);

    /// Whether a forecast is wanted, and its outcome.
    fn wants_forecast(&self) -> bool {
        false
    }

    /// What the transfer is expected to do, from what was known as its session opened. It runs
    /// meanwhile.
    fn foreseen(&self, _: &Foreseen) {}

    /// It failed for a reason that may pass, and begins again after a pause.
    fn again(&self, _: &Again<'_>) {}

    /// The transfer is over, whole or not. With several tries each of them ends.
    ///
    /// # Errors
    ///
    /// Where something that belongs to the transfer could not be written.
    fn concluded(&self, outcome: &Outcome<'_>) -> Result<(), Stop>;
}

/// Hears nothing.
pub struct Unobserved;

impl Observer for Unobserved {
    fn event(&self, _: &Event) {}

    fn begun(&self, _: &Running) {}

    fn concluded(&self, _: &Outcome<'_>) -> Result<(), Stop> {
        Ok(())
    }
}

/// A try that failed, and will be followed by another one.
pub struct Again<'a> {
    /// Why.
    pub text: &'a str,
    /// What the exit code would have been.
    pub exit: Exit,
    /// Its number, from 1 on.
    pub failed: u32,
    /// Tries there may be.
    pub tries: u32,
    /// Until the next one.
    pub pause: Duration,
}

impl Again<'_> {
    /// For people.
    pub fn line(&self) -> String {
        let (failed, tries) = (self.failed, self.tries);
        let pause = self.pause.as_secs_f64();
        format!(
            "try {failed} of {tries} failed: {}; again in {pause} s",
            self.text
        )
    }
}

/// A transfer that runs.
#[derive(Clone)]
pub struct Running(Arc<Transfer>);

impl Running {
    /// How far it is.
    pub fn progress(&self) -> Progress {
        self.0.progress()
    }

    /// Waits until it is over, or for so long; whether it is over.
    pub fn wait_for(&self, span: Duration) -> bool {
        self.0.wait_for(span)
    }
}

/// How a transfer ended.
pub struct Outcome<'a> {
    /// What was done.
    pub operation: Operation,
    /// How far it came.
    pub progress: Progress,
    /// How its session ended.
    pub ending: &'a Ending,
    /// How its streams were steered.
    pub steered: &'a Steered,
    /// How the data went, where there is more than one way.
    pub route: Option<&'a Route>,
    /// The pipe of data that was copied whole.
    pub pipe: Option<WholeStream>,
    /// The rate that it was bound to.
    pub limit: Limit,
    /// What was asked for by name: not to get it is a failure.
    pub asked: &'a [NoticeKind],
    /// How the data were verified and encrypted, briefly and in full.
    pub described: [String; 2],
    /// The forecast and what came of it, where that was wanted.
    pub explained: Option<Explained>,
}

impl Outcome<'_> {
    /// Whether all was done that could be.
    pub fn is_complete(&self) -> bool {
        self.ending.farewell == Farewell::Complete
    }

    /// Whether the other end said what came of all that it was sent. A comparison sends
    /// checksums alone.
    pub fn is_heard(&self) -> bool {
        is_heard(self.operation, self.ending)
    }

    /// What limited it, in the vocabulary of plans; `None` if no layer was full.
    pub fn limited_by(&self) -> Option<Limiting> {
        if self.limit.is_used_up(&self.progress, self.is_heard()) {
            return Some(Limiting::Rate);
        }
        let layers: Vec<LayerUse> = all_layers(&self.progress).copied().collect();
        full_layer(&layers, self.steered.bound)
    }
}

fn is_heard(operation: Operation, ending: &Ending) -> bool {
    ending.totals.is_some() || operation == Operation::Verify
}

/// The rate that a transfer is bound to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limit {
    /// The rate; none: it is not bound.
    pub rate: Option<BandwidthLimit>,
    /// It was another one before.
    pub changed: bool,
}

impl Limit {
    /// Whether that rate was used up. What was used of several says nothing of the last.
    fn is_used_up(self, progress: &Progress, heard: bool) -> bool {
        is_at_rate(progress, heard, self.rate.filter(|_| !self.changed))
    }

    /// Seconds that codecs saved, negative if they were the limit. `None` if the rate was changed:
    /// only its last value is known.
    pub fn saved_seconds(self, progress: &Progress, heard: bool) -> Option<f64> {
        let seconds = || uncoded::saved_seconds(progress, heard, self.rate);
        (!self.changed).then(seconds).flatten()
    }
}

/// Cancels a transfer, or changes its rate, from elsewhere.
#[derive(Clone, Default)]
pub struct Control {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    cancelled: AtomicBool,
    /// It ended before it was done, though nobody cancelled it.
    early: Mutex<Option<Early>>,
    /// Failures that may be, and that were.
    errors: (AtomicU64, AtomicU64),
    limit: Mutex<Limit>,
    running: Mutex<Option<Weak<Transfer>>>,
    /// It was cancelled.
    woken: Condvar,
}

/// Why a transfer ends before it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Early {
    /// This number of entries failed.
    Errors(u64),
    /// Its time was over.
    Time,
}

impl Early {
    fn stop(self) -> Stop {
        match self {
            Early::Errors(count) => {
                let text = format!(
                    "ended after {count} failures (--max-errors); the same command resumes it"
                );
                Stop::new(Exit::Partial, text)
            }
            Early::Time => {
                let text =
                    "its time was over (--stop-after, --stop-at); the same command resumes it";
                Stop::new(Exit::TimeOver, text)
            }
        }
    }
}

impl Control {
    /// Ends the transfer in order once so much time has passed.
    ///
    /// # Errors
    ///
    /// Where the system has no thread for it.
    pub(super) fn end_after(&self, span: Duration) -> Result<(), Stop> {
        let control = self.clone();
        let timer = std::thread::Builder::new().name("stop".into());
        let started = timer.spawn(move || {
            // Nothing comes: it waits until its time is over.
            let (_open, nothing) = std::sync::mpsc::channel::<()>();
            let _ = nothing.recv_timeout(span);
            control.end_early(Early::Time);
        });
        started.map(drop).map_err(|error| {
            let text = format!("cannot start a thread for --stop-after: {error}");
            Stop::new(Exit::Local, text)
        })
    }

    /// Waits between two tries.
    ///
    /// # Errors
    ///
    /// Where it is cancelled meanwhile, or its time is over.
    pub(super) fn pause(&self, span: Duration) -> Result<(), Stop> {
        let until = Instant::now() + span;
        let mut running = self.running();
        while !self.was_cancelled() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let waited = self.shared.woken.wait_timeout(running, left);
            running = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(running);
        let interrupted = || Stop::new(Exit::Interrupted, INTERRUPTED);
        Err(self.early().map_or_else(interrupted, Early::stop))
    }

    fn count_failure(&self) {
        let (bound, count) = &self.shared.errors;
        let failed = count.fetch_add(1, Ordering::Relaxed) + 1;
        if failed > bound.load(Ordering::Relaxed) {
            self.end_early(Early::Errors(failed));
        }
    }

    fn end_early(&self, early: Early) {
        let mut known = self
            .shared
            .early
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if self.was_cancelled() || known.is_some() {
            return;
        }
        *known = Some(early);
        drop(known);
        self.cancel();
    }

    fn early(&self) -> Option<Early> {
        *self
            .shared
            .early
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the transfer in order, or lets none begin; true where it was cancelled before.
    pub fn cancel(&self) -> bool {
        let before = self.shared.cancelled.swap(true, Ordering::Relaxed);
        let transfer = self.running().as_ref().and_then(Weak::upgrade);
        self.shared.woken.notify_all();
        if let Some(transfer) = transfer.filter(|_| !before) {
            transfer.end(Farewell::Cancelled);
        }
        before
    }

    /// Whether it was cancelled.
    pub fn was_cancelled(&self) -> bool {
        self.shared.cancelled.load(Ordering::Relaxed)
    }

    /// Whether there is, or was, a transfer.
    pub fn has_begun(&self) -> bool {
        self.running().is_some()
    }

    /// Binds the transfer to another rate, or to none: the one that runs, or will.
    pub fn bind(&self, rate: Option<BandwidthLimit>) {
        let changed = true;
        // Set before one looks whether it runs: whatever begins it looks after that.
        *self.lock_limit() = Limit { rate, changed };
        let transfer = self.running().as_ref().and_then(Weak::upgrade);
        if let Some(transfer) = transfer {
            transfer.limit(rate.map(BandwidthLimit::bytes_per_second));
        }
    }

    /// The rate that the transfer is bound to.
    pub fn limit(&self) -> Limit {
        *self.lock_limit()
    }

    /// A transfer begins with these limits. Its rate counts until another one was asked for. After
    /// more failures than these it ends in order.
    pub(super) fn begin_with(&self, limits: Limits) {
        // No transfer runs: who interrupts the command while it connects ends it at once.
        *self.running() = None;
        let (bound, count) = &self.shared.errors;
        bound.store(limits.errors.unwrap_or(u64::MAX), Ordering::Relaxed);
        count.store(0, Ordering::Relaxed);
        let mut limit = self.lock_limit();
        if !limit.changed {
            limit.rate = limits.rate;
        }
    }

    /// What was asked for before concerns this transfer.
    fn attach(&self, transfer: &Arc<Transfer>) {
        *self.running() = Some(Arc::downgrade(transfer));
        if self.was_cancelled() {
            transfer.end(Farewell::Cancelled);
        }
        let limit = self.limit();
        if limit.changed {
            transfer.limit(limit.rate.map(BandwidthLimit::bytes_per_second));
        }
    }

    fn lock_limit(&self) -> MutexGuard<'_, Limit> {
        let limit = self.shared.limit.lock();
        limit.unwrap_or_else(PoisonError::into_inner)
    }

    fn running(&self) -> MutexGuard<'_, Option<Weak<Transfer>>> {
        let running = self.shared.running.lock();
        running.unwrap_or_else(PoisonError::into_inner)
    }
}

/// The failures of a transfer, counted once for the exit code and for all reports.
#[derive(Debug, Default)]
struct Tally {
    failed: AtomicU64,
    /// Of those the ones that mean that data differ.
    differing: AtomicU64,
    /// And those whose reason may pass.
    passing: AtomicU64,
}

/// Whether an entry that failed so may be copied by another try, although nobody changes its name
/// or its kind.
fn passes(kind: FailureKind) -> bool {
    !matches!(
        kind,
        FailureKind::Conflict | FailureKind::Special | FailureKind::Name
    )
}

impl Tally {
    fn count(&self, event: &Event) {
        let (Event::Failed { failure, .. } | Event::Undeleted { failure }) = event else {
            return;
        };
        self.failed.fetch_add(1, Ordering::Relaxed);
        // Nothing is deleted for a reason that is a failure itself, or that stays.
        if passes(failure.kind) && matches!(event, Event::Failed { .. }) {
            self.passing.fetch_add(1, Ordering::Relaxed);
        }
        let differs = [
            FailureKind::Differs,
            FailureKind::Extra,
            FailureKind::Corrupt,
        ];
        if differs.contains(&failure.kind) {
            self.differing.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn exit(&self, operation: Operation) -> Exit {
        let failed = self.failed.load(Ordering::Relaxed) > 0;
        let differing = self.differing.load(Ordering::Relaxed) > 0;
        match (failed, differing) {
            (_, true) => Exit::Integrity,
            (true, false) if operation == Operation::Verify => Exit::Integrity,
            (true, false) => Exit::Partial,
            (false, false) => Exit::Done,
        }
    }
}

/// A transfer's caller, as the transfer tells it.
pub(super) struct Caller {
    control: Control,
    observer: Arc<dyn Observer>,
    tally: Arc<Tally>,
}

/// How the data of a transfer went.
#[derive(Default)]
pub(super) struct Went<'a> {
    pub(super) steered: Option<&'a super::steering::Shared>,
    pub(super) route: Option<Route>,
    /// One pipe of data was copied, and this is what was read of it.
    pub(super) pipe: Option<Option<WholeStream>>,
    /// What was asked for by name.
    pub(super) asked: &'a [NoticeKind],
    /// What it is expected to do.
    pub(super) foreseeing: Option<Foreseeing>,
    /// The other host and whether this end receives, where the transfer is to be remembered.
    pub(super) remembered: Option<(String, bool)>,
}

impl Caller {
    pub(super) fn new(control: &Control, observer: &Arc<dyn Observer>) -> Caller {
        Caller {
            control: control.clone(),
            observer: Arc::clone(observer),
            tally: Arc::default(),
        }
    }

    /// What a transfer tells its events to.
    pub(super) fn watch(&self) -> Watch {
        let (tally, observer) = (Arc::clone(&self.tally), Arc::clone(&self.observer));
        let control = self.control.clone();
        Arc::new(move |event| {
            tally.count(&event);
            observer.event(&event);
            if let Event::Failed { .. } = event {
                control.count_failure();
            }
        })
    }

    /// The transfer runs.
    pub(super) fn follow(&self, transfer: &Arc<Transfer>) {
        self.control.attach(transfer);
        self.observer.begun(&Running(Arc::clone(transfer)));
    }

    pub(super) fn was_cancelled(&self) -> bool {
        self.control.was_cancelled()
    }

    /// Entries that failed for a reason that may pass.
    pub(super) fn passing(&self) -> u64 {
        self.tally.passing.load(Ordering::Relaxed)
    }

    /// Who hears of the transfer.
    pub(super) fn observer(&self) -> &Arc<dyn Observer> {
        &self.observer
    }

    /// Tells how it ended.
    pub(super) fn conclude(
        &self,
        transfer: &Transfer,
        (ending, operation): (&Ending, Operation),
        mut went: Went<'_>,
    ) -> Result<(), Stop> {
        let mut progress = transfer.progress();
        if went.pipe.is_some() {
            // However many pieces it went in.
            let failed = self.tally.failed.load(Ordering::Relaxed) > 0;
            as_one_file(&mut progress, ending.totals.is_some() && !failed);
        }
        let missed = ending.notices.iter();
        let missed = missed.filter(|notice| went.asked.contains(&notice.kind));
        let missed = u64::try_from(missed.count()).unwrap_or(u64::MAX);
        self.tally.failed.fetch_add(missed, Ordering::Relaxed);
        let none = super::steering::Shared::default();
        let steered = went.steered.unwrap_or(&none).lock();
        let steered = steered.unwrap_or_else(PoisonError::into_inner);
        let ended = Ended {
            bound: steered.bound,
            congestion: steered.congestion.as_deref(),
            window: steered.window,
            at_rate: self
                .control
                .limit()
                .is_used_up(&progress, is_heard(operation, ending)),
        };
        let foreseen = went.foreseeing.take().and_then(|it| it.join().ok());
        let explained = foreseen.and_then(|it| it.conclude(foresight::outcome(&progress, ended)));
        if let (Some((host, receives)), true) = (&went.remembered, ending.totals.is_some()) {
            let predicted = explained.as_ref();
            let predicted = predicted.map(|it| it.forecast.prediction.seconds.likely);
            let past = foresight::past((host, *receives), &progress, ended, predicted);
            // What cannot be remembered was copied nevertheless.
            let _ = past.map(|past| history::add(&past));
        }
        self.observer.concluded(&Outcome {
            explained,
            operation,
            pipe: went.pipe.flatten().filter(|_| progress.files > 0),
            progress,
            ending,
            steered: &steered,
            route: went.route.as_ref(),
            limit: self.control.limit(),
            asked: went.asked,
            described: [transfer.describe_briefly(), transfer.describe()],
        })
    }

    /// Why it ended before it was done, though nobody cancelled it.
    pub(super) fn ended_early(&self) -> Option<Stop> {
        self.control.early().map(Early::stop)
    }

    /// The exit code of a transfer that came to its end.
    pub(super) fn exit(&self, operation: Operation) -> Exit {
        self.tally.exit(operation)
    }
}

/// Counts the pieces of a pipe as one file, which is there or not.
fn as_one_file(progress: &mut Progress, done: bool) {
    progress.files = done.into();
    progress.done_entries = done.into();
    if !done {
        // Nothing of a pipe that broke off is kept.
        progress.done_bytes = 0;
        progress.settled_bytes = 0;
        progress.account.durable_bytes = 0;
    }
}

/// What to say of a stream on which damage was noticed.
pub fn stream_damage(stream: u32, error: &str) -> String {
    format!(
        "connection {stream} is replaced, for what came on it was damaged on its way: {error}; \
         what was under way on it is sent again"
    )
}
