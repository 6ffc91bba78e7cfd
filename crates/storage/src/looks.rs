//! Does one operation on many files or names: one after the other if each takes microseconds, many
//! at once if each is a round trip to the server of the file system.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// An operation counts as slow if it takes longer. One thread does faster ones sooner than several.
const SLOW: Duration = Duration::from_micros(200);

/// Threads that work at once, unless a [`Pace`] has another number.
const THREADS: usize = 16;

/// Fewer files or names than this are not worth threads.
const FEW: usize = 4;

/// A file system counts as slow if at least this many of its last 32 operations were slow. Fewer
/// can be caused by a busy CPU.
const MOSTLY: u32 = 24;

/// How long recent operations took.
#[derive(Debug)]
pub struct Pace {
    /// Threads that work at once if operations are slow.
    threads: usize,
    /// A bit for each, the latest lowest: whether it was slow. Threads that share it may
    /// overwrite each other's.
    latest: AtomicU32,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace::with_threads(THREADS)
    }
}

impl Pace {
    /// With this many threads, at least 1, if operations are slow.
    pub fn with_threads(threads: usize) -> Pace {
        Pace {
            threads,
            latest: AtomicU32::new(0),
        }
    }

    /// Whether it is worth while to look at many at once.
    pub fn is_slow(&self) -> bool {
        self.latest.load(Ordering::Relaxed).count_ones() >= MOSTLY
    }

    /// Looks at each, and gives what was found in their order.
    pub fn look<T: Sync, R: Send + Sync>(&self, at: &[T], look: impl Fn(&T) -> R + Sync) -> Vec<R> {
        let many = self.is_slow() && at.len() >= FEW;
        let threads = if many { self.threads } else { 1 };
        each_by(threads, at, |one| self.time(|| look(one)))
    }

    /// Looks once, and notes how long that takes.
    pub fn time<R>(&self, look: impl FnOnce() -> R) -> R {
        let began = Instant::now();
        let found = look();
        let slow = u32::from(began.elapsed() > SLOW);
        let latest = self.latest.load(Ordering::Relaxed);
        self.latest.store(latest << 1 | slow, Ordering::Relaxed);
        found
    }
}

/// Looks at each, by several threads where that is to be at once, and gives what was found in
/// their order.
pub fn each<T: Sync, R: Send + Sync>(
    at: &[T],
    at_once: bool,
    look: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let threads = if at_once { THREADS } else { 1 };
    each_by(threads, at, look)
}

/// The same, with at most this many threads.
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
            // Each has its own room.
            let _ = room.set(look(one));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(at.len()) {
            let started = std::thread::Builder::new()
                .name("look".into())
                .spawn_scoped(scope, work);
            if started.is_err() {
                // Those that there are do it too.
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
