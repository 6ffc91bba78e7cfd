//! Interface through which a caller observes a transfer and controls it while it runs.

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

/// Last message of an interrupted command.
pub const INTERRUPTED: &str = "interrupted; the same command resumes it";

/// Receives the events of a transfer.
pub trait Observer: Send + Sync {
    /// Reports a change of an entry or a stream. Several threads call it.
    fn event(&self, event: &Event);

    /// Reports that the transfer runs. Must not block.
    fn begun(&self, running: &Running);

    /// True if the caller wants a forecast and its outcome.
    fn wants_forecast(&self) -> bool {
        false
    }

    /// Passes the forecast, made from the facts known when the session opened. The transfer runs
    /// meanwhile.
    fn foreseen(&self, _: &Foreseen) {}

    /// Reports that the transfer failed for a possibly temporary reason and starts again after a
    /// pause.
    fn again(&self, _: &Again<'_>) {}

    /// Reports the end of the transfer, complete or not. Called once for each try.
    ///
    /// # Errors
    ///
    /// A file that belongs to the transfer could not be written.
    fn concluded(&self, outcome: &Outcome<'_>) -> Result<(), Stop>;
}

/// Observer that ignores all events.
pub struct Unobserved;

impl Observer for Unobserved {
    fn event(&self, _: &Event) {}

    fn begun(&self, _: &Running) {}

    fn concluded(&self, _: &Outcome<'_>) -> Result<(), Stop> {
        Ok(())
    }
}

/// A failed try that another one will follow.
pub struct Again<'a> {
    /// Reason of the failure.
    pub text: &'a str,
    /// Exit code that the failure would have given.
    pub exit: Exit,
    /// Number of the failed try, starting at 1.
    pub failed: u32,
    /// Maximum number of tries.
    pub tries: u32,
    /// Time until the next try.
    pub pause: Duration,
}

impl Again<'_> {
    /// Returns the message for the user.
    pub fn line(&self) -> String {
        let (failed, tries) = (self.failed, self.tries);
        let pause = self.pause.as_secs_f64();
        format!(
            "try {failed} of {tries} failed: {}; again in {pause} s",
            self.text
        )
    }
}

/// A running transfer.
#[derive(Clone)]
pub struct Running(Arc<Transfer>);

impl Running {
    /// Returns the current progress.
    pub fn progress(&self) -> Progress {
        self.0.measurements().progress()
    }

    /// Waits until the transfer ends, but at most `span`. True if it has ended.
    pub fn wait_for(&self, span: Duration) -> bool {
        self.0.wait_for(span)
    }
}

/// Outcome of a transfer.
pub struct Outcome<'a> {
    /// Operation that was done.
    pub operation: Operation,
    /// Progress at the end.
    pub progress: Progress,
    /// End of its session.
    pub ending: &'a Ending,
    /// Number of streams and other settings at the end.
    pub steered: &'a Steered,
    /// Route of the data, if there is more than one possible route.
    pub route: Option<&'a Route>,
    /// Description of the pipe whose data was copied completely.
    pub pipe: Option<WholeStream>,
    /// Rate limit of the transfer.
    pub limit: Limit,
    /// Features that the user requested by name. A missing one counts as a failure.
    pub asked: &'a [NoticeKind],
    /// Integrity and encryption of the data, in a short and a full description.
    pub described: [String; 2],
    /// Forecast and its outcome, if requested.
    pub explained: Option<Explained>,
}

impl Outcome<'_> {
    /// True if all possible work was done.
    pub fn is_complete(&self) -> bool {
        self.ending.farewell == Farewell::Complete
    }

    /// True if the other end has reported the result of all data sent. Always true for a
    /// verification, which sends only checksums.
    pub fn is_heard(&self) -> bool {
        is_heard(self.operation, self.ending)
    }

    /// Returns the factor that limited the transfer, in the terms of plans; `None` if no layer was
    /// full.
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

/// Rate limit of a transfer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limit {
    /// Limit; `None` means unlimited.
    pub rate: Option<BandwidthLimit>,
    /// True if the limit was changed while the transfer ran.
    pub changed: bool,
}

impl Limit {
    /// True if the transfer used the whole rate. Always false if the limit was changed, since the
    /// usage under the last limit alone is unknown.
    fn is_used_up(self, progress: &Progress, heard: bool) -> bool {
        is_at_rate(progress, heard, self.rate.filter(|_| !self.changed))
    }

    /// Returns the seconds that codecs saved; negative if they slowed the transfer down. `None` if
    /// the limit was changed, since only its last value is known.
    pub fn saved_seconds(self, progress: &Progress, heard: bool) -> Option<f64> {
        let seconds = || uncoded::saved_seconds(progress, heard, self.rate);
        (!self.changed).then(seconds).flatten()
    }
}

/// Handle that cancels a transfer or changes its rate from another thread.
#[derive(Clone, Default)]
pub struct Control {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    cancelled: AtomicBool,
    /// Reason of an early end other than a cancellation by the user.
    early: Mutex<Option<Early>>,
    /// Maximum and current number of failures.
    errors: (AtomicU64, AtomicU64),
    limit: Mutex<Limit>,
    running: Mutex<Option<Weak<Transfer>>>,
    /// Signals a cancellation.
    woken: Condvar,
}

/// Reasons to end a transfer before it is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Early {
    /// The limit on failures was exceeded; holds the number of failures.
    Errors(u64),
    /// The time limit has passed.
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
    /// Ends the transfer cleanly after `span`.
    ///
    /// # Errors
    ///
    /// No thread can be started.
    pub(super) fn end_after(&self, span: Duration) -> Result<(), Stop> {
        let control = self.clone();
        let timer = std::thread::Builder::new().name("stop".into());
        let started = timer.spawn(move || {
            // The channel never receives a message, so this waits for the whole span.
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
    /// The transfer is cancelled or its time limit passes during the wait.
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

    /// Ends the transfer cleanly, or keeps a later one from starting. Returns true if it was
    /// already cancelled.
    pub fn cancel(&self) -> bool {
        let before = self.shared.cancelled.swap(true, Ordering::Relaxed);
        let transfer = self.running().as_ref().and_then(Weak::upgrade);
        self.shared.woken.notify_all();
        if let Some(transfer) = transfer.filter(|_| !before) {
            transfer.end(Farewell::Cancelled);
        }
        before
    }

    /// True if the transfer was cancelled.
    pub fn was_cancelled(&self) -> bool {
        self.shared.cancelled.load(Ordering::Relaxed)
    }

    /// True if a transfer has started, even if it has ended since.
    pub fn has_begun(&self) -> bool {
        self.running().is_some()
    }

    /// Changes the rate limit of the running or next transfer. `None` removes the limit.
    pub fn bind(&self, rate: Option<BandwidthLimit>) {
        let changed = true;
        // Store the limit before reading `running`. A transfer that starts meanwhile reads the
        // limit after it has stored itself there.
        *self.lock_limit() = Limit { rate, changed };
        let transfer = self.running().as_ref().and_then(Weak::upgrade);
        if let Some(transfer) = transfer {
            transfer
                .regulator()
                .limit(rate.map(BandwidthLimit::bytes_per_second));
        }
    }

    /// Returns the current rate limit.
    pub fn limit(&self) -> Limit {
        *self.lock_limit()
    }

    /// Applies the limits of a new transfer. Its rate counts unless [`Control::bind`] has changed
    /// it. The transfer ends cleanly after more failures than allowed.
    pub(super) fn begin_with(&self, limits: Limits) {
        // Until the transfer runs, an interrupt ends the command at once, even while it connects.
        *self.running() = None;
        let (bound, count) = &self.shared.errors;
        bound.store(limits.errors.unwrap_or(u64::MAX), Ordering::Relaxed);
        count.store(0, Ordering::Relaxed);
        let mut limit = self.lock_limit();
        if !limit.changed {
            limit.rate = limits.rate;
        }
    }

    /// Registers a transfer and applies earlier requests to it.
    fn attach(&self, transfer: &Arc<Transfer>) {
        *self.running() = Some(Arc::downgrade(transfer));
        if self.was_cancelled() {
            transfer.end(Farewell::Cancelled);
        }
        let limit = self.limit();
        if limit.changed {
            transfer
                .regulator()
                .limit(limit.rate.map(BandwidthLimit::bytes_per_second));
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

/// Numbers of failures of a transfer, counted once for the exit code and all reports.
#[derive(Debug, Default)]
struct Tally {
    failed: AtomicU64,
    /// Number of failures that mean that data differs.
    differing: AtomicU64,
    /// Number of failures whose reason may be temporary.
    passing: AtomicU64,
}

/// True if another try may succeed although the entry's name and type stay the same.
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
        // A deletion is skipped because of another failure, which is counted itself, or for a
        // permanent reason.
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

/// Caller of a transfer, which receives its events.
pub(super) struct Caller {
    control: Control,
    observer: Arc<dyn Observer>,
    tally: Arc<Tally>,
}

/// Facts about a finished transfer, needed for its outcome.
#[derive(Default)]
pub(super) struct Went<'a> {
    pub(super) steered: Option<&'a super::steering::Shared>,
    pub(super) route: Option<Route>,
    /// Set if one pipe was copied; the inner value describes the data read from it.
    pub(super) pipe: Option<Option<WholeStream>>,
    /// Features that the user requested by name.
    pub(super) asked: &'a [NoticeKind],
    /// Forecast in progress.
    pub(super) foreseeing: Option<Foreseeing>,
    /// The other host, and true if this end receives. Set if the transfer is to be added to the
    /// history.
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

    /// Returns the function that receives the transfer's events.
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

    /// Registers a running transfer and reports it.
    pub(super) fn follow(&self, transfer: &Arc<Transfer>) {
        self.control.attach(transfer);
        self.observer.begun(&Running(Arc::clone(transfer)));
    }

    pub(super) fn was_cancelled(&self) -> bool {
        self.control.was_cancelled()
    }

    /// Returns the number of failures whose reason may be temporary.
    pub(super) fn passing(&self) -> u64 {
        self.tally.passing.load(Ordering::Relaxed)
    }

    pub(super) fn observer(&self) -> &Arc<dyn Observer> {
        &self.observer
    }

    /// Reports the outcome to the observer and adds it to the history if requested.
    pub(super) fn conclude(
        &self,
        transfer: &Transfer,
        (ending, operation): (&Ending, Operation),
        mut went: Went<'_>,
    ) -> Result<(), Stop> {
        let mut progress = transfer.measurements().progress();
        if went.pipe.is_some() {
            // A pipe counts as one file, regardless of the number of pieces.
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
            // A failure to write the history does not change the result of the copy.
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
            described: [
                transfer.summary().describe_briefly(),
                transfer.summary().describe(),
            ],
        })
    }

    /// Returns the reason of an early end other than a cancellation by the user.
    pub(super) fn ended_early(&self) -> Option<Stop> {
        self.control.early().map(Early::stop)
    }

    /// Returns the exit code of a transfer that was not ended early.
    pub(super) fn exit(&self, operation: Operation) -> Exit {
        self.tally.exit(operation)
    }
}

/// Counts the pieces of a pipe as one file, either complete or missing.
fn as_one_file(progress: &mut Progress, done: bool) {
    progress.files = done.into();
    progress.done_entries = done.into();
    if !done {
        // The destination discards the data of an incomplete pipe.
        progress.done_bytes = 0;
        progress.settled_bytes = 0;
        progress.account.durable_bytes = 0;
    }
}

/// Returns the message about a stream with corrupt data.
pub fn stream_damage(stream: u32, error: &str) -> String {
    format!(
        "connection {stream} is replaced, for what came on it was damaged on its way: {error}; \
         what was under way on it is sent again"
    )
}
