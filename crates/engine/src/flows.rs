//! Data flows of a layer: threads that do the same work. Their number can be changed while they
//! run, or adapts itself, and their utilisation is measured.

mod adapting;

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use adapting::Adapting;
use longhaul_system::queue::lock;

/// Maximum number of flows in a layer.
pub const MAXIMUM_FLOWS: usize = 512;

/// Work of a layer. Each flow calls it once; it returns when the flow is no longer wanted or no
/// work is left.
type Work = dyn Fn(&Flow) + Send + Sync;

/// Number of flows of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// A fixed number.
    Fixed(usize),
    /// As many as there is work for, one at the start and at most this number.
    UpTo(usize),
}

/// Flows of one layer.
pub struct FlowGroup {
    layer: &'static str,
    shared: Arc<Shared>,
    work: Arc<Work>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    adapting: Mutex<Option<Adapting>>,
    ended: OnceLock<Instant>,
}

struct Shared {
    began: Instant,
    wanted: AtomicUsize,
    running: AtomicUsize,
    work: Mutex<WorkTime>,
    there: Mutex<ThereTime>,
}

/// Time that flows existed, summed over all of them.
#[derive(Clone, Copy, Default)]
struct ThereTime {
    sum: Duration,
    /// End of the counted time, since the group began.
    at: Duration,
}

impl ThereTime {
    /// Adds the time until `now` for this number of flows.
    fn add(&mut self, flows: usize, now: Duration) {
        let flows = u32::try_from(flows).unwrap_or(u32::MAX);
        self.sum += now.saturating_sub(self.at).saturating_mul(flows);
        self.at = now;
    }
}

/// Time that flows worked. Work may take seconds, so work in progress counts too. Times are since
/// the group began.
#[derive(Clone, Copy, Default)]
struct WorkTime {
    /// Time of completed work.
    done: Duration,
    /// Number of pieces of work in progress, and sum of their start times.
    pieces: u32,
    begun: Duration,
}

impl WorkTime {
    fn begin(&mut self, now: Duration) {
        self.pieces += 1;
        self.begun += now;
    }

    fn end(&mut self, began: Duration, now: Duration) {
        self.pieces = self.pieces.saturating_sub(1);
        self.begun = self.begun.saturating_sub(began);
        self.done += now.saturating_sub(began);
    }

    fn until(&self, now: Duration) -> Duration {
        let in_hand = (now * self.pieces).saturating_sub(self.begun);
        self.done + in_hand
    }
}

/// A flow, as its own thread uses it.
pub struct Flow {
    shared: Arc<Shared>,
    /// True if it was superfluous and has ended.
    ended: Cell<bool>,
}

/// Utilisation of a layer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LayerUse {
    /// Name of the layer.
    pub layer: &'static str,
    /// Current number of flows.
    pub flows: usize,
    /// Nanoseconds in which flows worked, summed over all of them.
    pub busy: u64,
    /// Fraction of the flows' time in which they worked, from 0 to 1.
    pub utilisation: f64,
}

impl std::fmt::Debug for FlowGroup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FlowGroup({})", self.layer)
    }
}

impl Flow {
    /// True if this flow should continue. If there are too many flows, the first ones to call this
    /// end.
    pub fn is_wanted(&self) -> bool {
        if self.ended.get() {
            return false;
        }
        // Counted down here, not when the thread ends, so that simultaneous callers do not end more
        // flows than are superfluous.
        let wanted = self.shared.wanted.load(Ordering::Relaxed);
        let running = &self.shared.running;
        let fewer = |running: usize| (running > wanted).then(|| running - 1);
        let ends = running.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer);
        self.ended.set(ends.is_ok());
        ends.is_err()
    }

    /// Runs a piece of work and counts its time.
    pub fn busy<T>(&self, work: impl FnOnce() -> T) -> T {
        self.shared.busy(work)
    }
}

impl Shared {
    fn new() -> Shared {
        Shared {
            began: Instant::now(),
            wanted: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            work: Mutex::default(),
            there: Mutex::default(),
        }
    }

    fn busy<T>(&self, work: impl FnOnce() -> T) -> T {
        let began = self.began.elapsed();
        lock(&self.work).begin(began);
        let result = work();
        lock(&self.work).end(began, self.began.elapsed());
        result
    }
}

impl FlowGroup {
    /// Creates a layer without flows.
    pub fn new(layer: &'static str, work: Arc<Work>) -> FlowGroup {
        FlowGroup {
            layer,
            shared: Arc::new(Shared::new()),
            work,
            threads: Mutex::new(Vec::new()),
            adapting: Mutex::new(None),
            ended: OnceLock::new(),
        }
    }

    /// Changes the number of flows, at most [`MAXIMUM_FLOWS`]. New ones start at once; superfluous
    /// ones end after their current work, once the caller has woken them. If the system refuses
    /// threads, there are fewer.
    ///
    /// # Errors
    ///
    /// The reason why no thread could be started, if the layer has none now.
    pub fn set(&self, flows: usize) -> io::Result<()> {
        let mut adapting = lock(&self.adapting);
        *adapting = None;
        self.start(flows.min(MAXIMUM_FLOWS))
    }

    /// Changes the number of flows to a fixed or an adapting one.
    ///
    /// # Errors
    ///
    /// Errors of [`FlowGroup::set`].
    pub fn set_count(&self, count: Count) -> io::Result<()> {
        let most = match count {
            Count::Fixed(flows) => return self.set(flows),
            Count::UpTo(most) => most.clamp(1, MAXIMUM_FLOWS),
        };
        let mut adapting = lock(&self.adapting);
        let begun = adapting.insert(Adapting::new(most));
        self.start(begun.flows())
    }

    /// Adapts the number of flows, if it is not fixed, to their utilisation since the last call.
    /// True if some are now superfluous: the caller must wake them.
    pub fn adapt(&self) -> bool {
        let mut adapting = lock(&self.adapting);
        let Some(adapting) = adapting.as_mut() else {
            return false;
        };
        let now = self.shared.began.elapsed();
        let flows = adapting.handle_look(now, lock(&self.shared.work).until(now));
        let before = self.shared.wanted.load(Ordering::Relaxed);
        if flows != before {
            // An error is ignored, because the existing flows continue.
            let _ = self.start(flows);
        }
        flows < before
    }

    fn start(&self, flows: usize) -> io::Result<()> {
        let mut threads = lock(&self.threads);
        threads.retain(|thread| !thread.is_finished());
        let before = self.shared.wanted.swap(flows, Ordering::Relaxed);
        lock(&self.shared.there).add(before, self.shared.began.elapsed());
        while self.shared.running.load(Ordering::Relaxed) < flows {
            let flow = Flow {
                shared: Arc::clone(&self.shared),
                ended: Cell::new(false),
            };
            let work = Arc::clone(&self.work);
            self.shared.running.fetch_add(1, Ordering::Relaxed);
            let started = std::thread::Builder::new()
                .name(self.layer.to_owned())
                .spawn(move || {
                    work(&flow);
                    if !flow.ended.get() {
                        flow.shared.running.fetch_sub(1, Ordering::Relaxed);
                    }
                });
            match started {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    // The system refuses more threads: continue with fewer.
                    let others = self.shared.running.fetch_sub(1, Ordering::Relaxed) - 1;
                    return match others {
                        0 => Err(error),
                        _ => Ok(()),
                    };
                }
            }
        }
        Ok(())
    }

    /// Runs a piece of the layer's work on a thread that is not one of its flows, and counts its
    /// time.
    pub fn busy<T>(&self, work: impl FnOnce() -> T) -> T {
        self.shared.busy(work)
    }

    /// Waits until every flow has ended. The caller has already ended their work.
    pub fn join(&self) {
        let threads = std::mem::take(&mut *lock(&self.threads));
        for thread in threads {
            // The thread has already reported its panic.
            let _ = thread.join();
        }
        // An error is ignored: on a second call the time is set already.
        let _ = self.ended.set(Instant::now());
    }

    /// Returns the utilisation of the layer since it began.
    pub fn usage(&self) -> LayerUse {
        let flows = self.shared.wanted.load(Ordering::Relaxed);
        let mut there = *lock(&self.shared.there);
        there.add(flows, self.lasted());
        self.usage_in(there.sum, flows)
    }

    /// Returns the utilisation if this number of threads did its work all the time.
    pub fn usage_of(&self, flows: usize) -> LayerUse {
        let mut there = ThereTime::default();
        there.add(flows.max(1), self.lasted());
        self.usage_in(there.sum, flows)
    }

    /// Returns the time since it began, until it ended.
    fn lasted(&self) -> Duration {
        let until = self.ended.get().copied().unwrap_or_else(Instant::now);
        until - self.shared.began
    }

    fn usage_in(&self, there: Duration, flows: usize) -> LayerUse {
        let busy = lock(&self.shared.work).until(self.lasted());
        LayerUse {
            layer: self.layer,
            flows,
            busy: busy.as_nanos() as u64,
            utilisation: (busy.as_secs_f64() / there.as_secs_f64().max(1e-9)).min(1.0),
        }
    }
}

/// Runs a layer's work on a thread that is not one of its flows.
pub(crate) fn busy<T>(layer: &OnceLock<FlowGroup>, work: impl FnOnce() -> T) -> T {
    match layer.get() {
        Some(group) => group.busy(work),
        None => work(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_system::queue::Queue;
    use longhaul_testing::await_that;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn unfinished_work_counts_as_busy() {
        let seconds = Duration::from_secs;
        let mut work = WorkTime::default();
        work.begin(seconds(1));
        work.begin(seconds(3));
        assert_eq!(work.until(seconds(4)), seconds(3 + 1));
        work.end(seconds(1), seconds(5));
        assert_eq!(work.until(seconds(5)), seconds(4 + 2));
        work.end(seconds(3), seconds(6));
        assert_eq!(work.until(seconds(9)), seconds(4 + 3));
    }

    #[test]
    fn flows_are_halved_and_doubled_while_they_work() {
        let queue: Arc<Queue<u64>> = Arc::default();
        let sum = Arc::new(AtomicU64::new(0));
        let (input, output) = (Arc::clone(&queue), Arc::clone(&sum));
        let group = FlowGroup::new(
            "test",
            Arc::new(move |flow: &Flow| {
                while let Some(number) = input.pop(|| flow.is_wanted()) {
                    flow.busy(|| output.fetch_add(number, Ordering::Relaxed));
                }
            }),
        );
        for round in 0..100 {
            group.set([4, 2, 8, 1][round % 4]).unwrap();
            queue.wake();
            queue.push(round as u64);
        }
        await_that(|| sum.load(Ordering::Relaxed) == 4950);
        queue.close();
        group.join();
        assert_eq!(group.usage().flows, 1);
    }

    /// Adapts repeatedly until there are this many flows.
    fn adapt_until(group: &FlowGroup, flows: usize) {
        await_that(|| {
            group.adapt();
            group.usage().flows == flows
        });
    }

    #[test]
    fn flows_start_for_work_and_end_without_work() {
        let works = Arc::new(AtomicBool::new(true));
        let busy = Arc::clone(&works);
        let group = FlowGroup::new(
            "test",
            Arc::new(move |flow: &Flow| {
                while flow.is_wanted() {
                    // tidy: reason: the work of this flow takes time, and nothing else.
                    let pause = || std::thread::sleep(Duration::from_millis(1));
                    if busy.load(Ordering::Relaxed) {
                        flow.busy(pause);
                    } else {
                        pause();
                    }
                }
            }),
        );
        group.set_count(Count::UpTo(4)).unwrap();
        assert_eq!(group.usage().flows, 1);
        adapt_until(&group, 4);
        works.store(false, Ordering::Relaxed);
        adapt_until(&group, 1);
        group.set(3).unwrap();
        assert!(!group.adapt(), "a number that was asked for stays");
        assert_eq!(group.usage().flows, 3);
        group.set(0).unwrap();
        group.join();
    }
}
