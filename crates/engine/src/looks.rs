//! Looks at many names: one after the other if each takes microseconds, many at once if each is a
//! round trip to the server of the file system.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What takes no longer is done sooner by one thread than by several.
const SLOW: Duration = Duration::from_micros(200);

/// Threads that look at once.
const THREADS: usize = 16;

/// Names worth the threads.
const FEW: usize = 4;

/// Of the latest 32 this many are slow where the file system is: a thread that had to wait for a
/// processor now and then is none.
const MOSTLY: u32 = 24;

/// How long looks take of late.
#[derive(Debug, Default)]
pub struct Pace {
    /// A bit for each, the latest lowest: whether it was slow. Threads that share it may
    /// overwrite each other's.
    latest: AtomicU32,
}

impl Pace {
    /// Whether it is worth while to look at many at once.
    pub fn is_slow(&self) -> bool {
        self.latest.load(Ordering::Relaxed).count_ones() >= MOSTLY
    }

    /// Looks at each, and gives what was found in their order.
    pub fn look<T: Sync, R: Send + Sync>(&self, at: &[T], look: impl Fn(&T) -> R + Sync) -> Vec<R> {
        let at_once = self.is_slow() && at.len() >= FEW;
        each(at, at_once, |one| self.time(|| look(one)))
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
pub(crate) fn each<T: Sync, R: Send + Sync>(
    at: &[T],
    at_once: bool,
    look: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    if !at_once {
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
        for _ in 1..THREADS.min(at.len()) {
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
