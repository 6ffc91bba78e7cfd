//! Performs one operation on many files or names: in sequence if each takes microseconds, in
//! parallel if each is a round trip to the server of the file system.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Duration above which an operation is slow. Faster operations are done sooner by one thread than
/// by several.
const SLOW: Duration = Duration::from_micros(200);

/// Default number of parallel threads of a [`Pace`].
const THREADS: usize = 16;

/// Minimum number of files or names for parallel threads.
const FEW: usize = 4;

/// A file system counts as slow if at least this many of its last 32 operations were slow. Fewer
/// can be caused by a busy CPU.
const MOSTLY: u32 = 24;

/// Durations of recent operations.
#[derive(Debug)]
pub struct Pace {
    /// Number of parallel threads for slow operations.
    threads: usize,
    /// One bit for each recent operation, the latest lowest: 1 if it was slow. Updates of several
    /// threads may overwrite each other.
    latest: AtomicU32,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace::with_threads(THREADS)
    }
}

impl Pace {
    /// Uses this many threads, at least 1, for slow operations.
    pub fn with_threads(threads: usize) -> Pace {
        Pace {
            threads,
            latest: AtomicU32::new(0),
        }
    }

    /// True if parallel operations are worthwhile.
    pub fn is_slow(&self) -> bool {
        self.latest.load(Ordering::Relaxed).count_ones() >= MOSTLY
    }

    /// Applies `look` to each item, and returns the results in their order.
    pub fn look<T: Sync, R: Send + Sync>(&self, at: &[T], look: impl Fn(&T) -> R + Sync) -> Vec<R> {
        let many = self.is_slow() && at.len() >= FEW;
        let threads = if many { self.threads } else { 1 };
        each_by(threads, at, |one| self.time(|| look(one)))
    }

    /// Runs `look` once, and records its duration.
    pub fn time<R>(&self, look: impl FnOnce() -> R) -> R {
        let began = Instant::now();
        let found = look();
        let slow = u32::from(began.elapsed() > SLOW);
        let latest = self.latest.load(Ordering::Relaxed);
        self.latest.store(latest << 1 | slow, Ordering::Relaxed);
        found
    }
}

/// Applies `look` to each item, in parallel threads if `at_once` is true. Returns the results in
/// their order.
pub fn each<T: Sync, R: Send + Sync>(
    at: &[T],
    at_once: bool,
    look: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let threads = if at_once { THREADS } else { 1 };
    each_by(threads, at, look)
}

/// Applies `look` to each item with at most this many threads.
fn each_by<T: Sync, R: Send + Sync>(
    threads: usize,
    at: &[T],
    look: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    if threads <= 1 {
        return at.iter().map(look).collect();
    }
    let found: Vec<OnceLock<R>> = at.iter().map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((one, room)) = next_of(at, &found, &next) {
            // Each item has a separate slot, so it cannot be set already.
            let _ = room.set(look(one));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(at.len()) {
            let started = std::thread::Builder::new()
                .name("look".into())
                .spawn_scoped(scope, work);
            if started.is_err() {
                // The threads that were started do the work.
                break;
            }
        }
        work();
    });
    found.into_iter().filter_map(OnceLock::into_inner).collect()
}

fn next_of<'a, T, R>(
    at: &'a [T],
    found: &'a [OnceLock<R>],
    next: &AtomicUsize,
) -> Option<(&'a T, &'a OnceLock<R>)> {
    let place = next.fetch_add(1, Ordering::Relaxed);
    at.get(place).zip(found.get(place))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::Mutex;

    #[test]
    fn slow_looks_are_many_at_once_and_quick_ones_one_by_one() {
        let numbers: Vec<u32> = (0..300).collect();
        let threads = Mutex::new(HashSet::new());
        let look = |span: Duration| {
            let threads = &threads;
            move |number: &u32| {
                threads.lock().unwrap().insert(std::thread::current().id());
                // tidy: a slow file system
                std::thread::sleep(span);
                number * 2
            }
        };
        let twice: Vec<u32> = numbers.iter().map(|number| number * 2).collect();
        let pace = Pace::default();
        assert_eq!(pace.look(&numbers, |number| number * 2), twice);
        assert!(!pace.is_slow());
        assert_eq!(
            pace.look(&numbers[..40], look(Duration::from_millis(2))),
            twice[..40]
        );
        assert!(pace.is_slow() && threads.lock().unwrap().len() == 1);
        assert_eq!(pace.look(&numbers, look(Duration::from_millis(2))), twice);
        assert!(threads.lock().unwrap().len() > 1);
        assert_eq!(pace.look(&numbers[..3], look(Duration::ZERO)), twice[..3]);
        pace.look(&numbers, |_| ());
        assert!(!pace.is_slow());
    }
}
