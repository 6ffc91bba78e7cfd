//! Limits the number of open files. The process's maximum is divided between its uses in advance,
//! so that a low limit slows a copy down but does not make it fail.

use std::cell::Cell;
use std::io;
use std::time::Duration;

use rustix::io::Errno;

use crate::limits::files;
use crate::seats;

thread_local! {
    /// Set while this thread holds a lock that threads which close files may need.
    static AT_ONCE: Cell<Option<AtOnce>> = const { Cell::new(None) };
}

/// Result of opening files while waiting is not permitted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AtOnce {
    /// Enough descriptors were available.
    Served,
    /// No descriptor was available.
    Wanting,
}

/// Runs `what`, which holds a lock. No call in it waits for a descriptor, because a thread that
/// closes files may need that lock. A thread that may wait does so around the lock
/// ([`patiently_around`]).
pub fn at_once<T>(what: impl FnOnce() -> T) -> T {
    let outer = AT_ONCE.get();
    AT_ONCE.set(Some(outer.unwrap_or(AtOnce::Served)));
    let done = what();
    if outer.is_none() {
        AT_ONCE.set(None);
    }
    done
}

/// Runs `what`, which takes locks, opens files under them, and may be repeated after a failure. If
/// it fails for lack of a descriptor, and another session may close some, it is repeated for up to
/// 30 s. `is_last` marks the last attempt.
pub fn patiently_around<T, E>(mut what: impl FnMut(bool) -> Result<T, E>) -> Result<T, E> {
    if AT_ONCE.get().is_some() {
        return what(true);
    }
    let mut left = PATIENCE;
    loop {
        let is_last = left.is_zero() || !seats::has_others();
        let (done, was_wanting) = at_once(|| (what(is_last), is_wanting()));
        if done.is_ok() || !was_wanting || is_last {
            return done;
        }
        pause();
        left = left.saturating_sub(PAUSE);
    }
}

/// True if no descriptor was available for a call since [`at_once`] began.
pub fn is_wanting() -> bool {
    AT_ONCE.get() == Some(AtOnce::Wanting)
}

/// Runs `open`, which opens a file. If this process has reached its limit of open files, and
/// another session may close some, `open` is repeated for up to 30 s, unless a lock is held
/// ([`at_once`]).
pub fn patiently<T>(mut open: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    #[cfg(any(test, feature = "simulated-scarcity"))]
    let mut open = || scarce::or_open(&mut open);
    let mut left = PATIENCE;
    loop {
        match open() {
            Err(error @ (Errno::MFILE | Errno::NFILE)) if AT_ONCE.get().is_some() => {
                AT_ONCE.set(Some(AtOnce::Wanting));
                return Err(error);
            }
            Err(Errno::MFILE | Errno::NFILE) if !left.is_zero() && seats::has_others() => {
                pause();
                left = left.saturating_sub(PAUSE);
            }
            done => return done,
        }
    }
}

/// Runs `what`, which needs a descriptor or a process. If the limit of this process or its user is
/// reached, `what` is repeated for up to 30 s, because ending commands and closed files free some.
pub fn until_free<T>(
    wanted: &dyn Fn() -> bool,
    mut what: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    let mut left = PATIENCE;
    loop {
        let done = what();
        let error = done.as_ref().err().and_then(Errno::from_io_error);
        let is_scarce = matches!(error, Some(Errno::MFILE | Errno::NFILE | Errno::AGAIN));
        if !is_scarce || left.is_zero() || !wanted() {
            return done;
        }
        pause();
        left = left.saturating_sub(PAUSE);
    }
}

/// Maximum time to wait for a descriptor, and pause between attempts.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);

fn pause() {
    #[cfg(any(test, feature = "simulated-scarcity"))]
    scarce::note_wait();
    // tidy: reason: the kernel tells nobody when a descriptor is free again.
    std::thread::sleep(PAUSE);
}

/// Returns one part in `parts` of the maximum number of descriptors, at least one and at most
/// `most`.
pub fn share(parts: usize, most: usize) -> usize {
    (files() / parts.max(1)).clamp(1, most)
}

/// Returns a [`share`] of the descriptors that remain after `others`.
pub fn share_after(others: usize, parts: usize, most: usize) -> usize {
    (files().saturating_sub(others) / parts.max(1)).clamp(1, most)
}

/// Simulates a lack of descriptors, to test where a thread waits for one.
#[cfg(any(test, feature = "simulated-scarcity"))]
pub mod scarce {
    use std::cell::{Cell, RefCell};

    use rustix::io::Errno;

    use crate::seats::{Role, Seat};

    thread_local! {
        static WANTING: Cell<u32> = const { Cell::new(0) };
        static WAITS: RefCell<Option<Box<dyn FnMut()>>> = const { RefCell::new(None) };
    }

    /// Runs `what`. Its first `opens` calls that open a file fail for lack of a descriptor, while
    /// another session may close some. `waits` is called before each wait.
    pub fn during<T>(opens: u32, waits: impl FnMut() + 'static, what: impl FnOnce() -> T) -> T {
        let _seats = [0, 1].map(|_| Seat::take(Role::Receiving, "descriptors"));
        WANTING.set(opens);
        WAITS.set(Some(Box::new(waits)));
        let done = what();
        WAITS.set(None);
        WANTING.set(0);
        done
    }

    pub(super) fn or_open<T>(
        open: &mut impl FnMut() -> rustix::io::Result<T>,
    ) -> rustix::io::Result<T> {
        match WANTING.get().checked_sub(1) {
            Some(left) => {
                WANTING.set(left);
                Err(Errno::MFILE)
            }
            None => open(),
        }
    }

    pub(super) fn note_wait() {
        WAITS.with_borrow_mut(|waits| {
            if let Some(waits) = waits {
                waits();
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanting() -> rustix::io::Result<()> {
        patiently(|| Err(Errno::MFILE))
    }

    #[test]
    fn operations_within_a_lock_do_not_wait_for_descriptors() {
        // Two sessions of one role: each could close files.
        let _seats = [0, 1].map(|_| seats::Seat::take(seats::Role::Receiving, "descriptors"));
        let seen = at_once(|| {
            let inner = at_once(wanting);
            // A later success does not hide the failure.
            at_once(|| ());
            (inner, is_wanting())
        });
        assert_eq!(seen, (Err(Errno::MFILE), true));
        assert!(!is_wanting() && AT_ONCE.get().is_none());
    }

    #[test]
    fn a_holder_of_a_lock_waits_outside_of_it() {
        let _seats = [0, 1].map(|_| seats::Seat::take(seats::Role::Receiving, "descriptors"));
        let lock = std::sync::Mutex::new(());
        let mut tries = 0;
        let done = patiently_around(|is_last| {
            assert!(!is_last);
            let _held = lock.try_lock().unwrap();
            tries += 1;
            match tries {
                1 | 2 => wanting(),
                _ => Ok(()),
            }
        });
        assert_eq!((done, tries), (Ok(()), 3));
        // Other errors are not a lack of descriptors.
        let mut tries = 0;
        let refused: Result<(), Errno> = patiently_around(|_| {
            tries += 1;
            Err(Errno::ACCESS)
        });
        assert_eq!((refused, tries), (Err(Errno::ACCESS), 1));
    }

    #[test]
    fn a_command_waits_for_resources_unless_it_is_no_longer_needed() {
        for scarce in [Errno::MFILE, Errno::NFILE, Errno::AGAIN] {
            let mut tries = 0;
            let done = until_free(&|| true, || {
                tries += 1;
                match tries {
                    1 | 2 => Err(scarce.into()),
                    _ => Ok(tries),
                }
            });
            assert_eq!(done.unwrap(), 3);
            let refused = until_free::<()>(&|| false, || Err(scarce.into()));
            assert_eq!(
                refused.unwrap_err().raw_os_error(),
                Some(scarce.raw_os_error())
            );
        }
        let refused = until_free::<()>(&|| true, || Err(Errno::NOENT.into()));
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_share_is_at_least_one_and_no_more_than_useful() {
        assert_eq!(share(usize::MAX, 64), 1);
        assert_eq!(share(0, 7), share(1, 7));
        assert!(share(2, 64) <= 64);
        assert_eq!(share_after(usize::MAX, 1, 64), 1);
        assert!(share_after(10, 4, 64) <= share(4, 64));
    }
}
