//! Retries a whole transfer that failed for a possibly temporary reason. A retry is equivalent to
//! running the command again: it resumes the work of the earlier tries.

use std::time::{Duration, Instant};

use super::observer::{Again, Control, Observer};
use crate::spec::Limits;
use crate::stop::{Exit, Stop};

/// Default first pause and longest pause between two tries.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Result of one try.
pub(super) struct Tried {
    pub(super) result: Result<Exit, Stop>,
    /// Number of entries that failed for a possibly temporary reason.
    pub(super) passing: u64,
}

impl Tried {
    /// Returns the exit code and message if another try may succeed.
    fn may_pass(&self) -> Option<(Exit, String)> {
        match &self.result {
            Ok(Exit::Done) => None,
            Ok(exit) if self.passing > 0 => {
                let count = self.passing;
                Some((*exit, format!("{count} of what failed may not fail again")))
            }
            Ok(_) => None,
            Err(stop) => stop.may_pass().then(|| (stop.exit, stop.text.clone())),
        }
    }
}

/// Runs a transfer up to the maximum number of tries. After the other end reported its restart,
/// further tries within `restarts_within` are not counted.
///
/// # Errors
///
/// Errors of the last try, or of the wait for the next one.
pub(super) fn each(
    (limits, restarts_within): (Limits, Option<Duration>),
    (control, observer): (&Control, &dyn Observer),
    mut once: impl FnMut() -> Tried,
) -> Result<Exit, Stop> {
    let tries = limits.retries.unwrap_or(1);
    let mut pauses = pauses(limits.retries_sleep.map(Duration::from_millis));
    let mut restarts = Restarts {
        within: restarts_within,
        until: None,
    };
    let mut number = 1;
    loop {
        let tried = once();
        // After a cancellation or the time limit, the error may look like a lost connection.
        let why = tried.may_pass().filter(|_| !control.was_cancelled());
        let Some((exit, text)) = why else {
            return tried.result;
        };
        let pause = if restarts.excuse(&tried) {
            FIRST_PAUSE
        } else if number < tries {
            number += 1;
            pauses.next().unwrap_or(LONGEST_PAUSE)
        } else {
            return tried.result;
        };
        observer.again(&Again {
            text: &text,
            exit,
            failed: (number - 1).max(1),
            tries: tries.max(2),
            pause,
        });
        control.pause(pause)?;
    }
}

/// Restart of the other end.
struct Restarts {
    /// Time that the other end has to come back; `None` if it is not waited for.
    within: Option<Duration>,
    until: Option<Instant>,
}

impl Restarts {
    /// True if a try failed because the other end restarts.
    fn excuse(&mut self, tried: &Tried) -> bool {
        let (Err(stop), Some(within)) = (&tried.result, self.within) else {
            return false;
        };
        if stop.restarts {
            self.until = Some(Instant::now() + within);
        }
        let is_apart = stop.exit == Exit::Connection;
        is_apart && self.until.is_some_and(|until| Instant::now() < until)
    }
}

/// Returns the pauses between tries.
fn pauses(fixed: Option<Duration>) -> impl Iterator<Item = Duration> {
    let longer = move |pause: &Duration| Some(fixed.unwrap_or((*pause * 2).min(LONGEST_PAUSE)));
    std::iter::successors(Some(fixed.unwrap_or(FIRST_PAUSE)), longer)
}

#[cfg(test)]
mod tests {
    use super::super::observer::Unobserved;
    use super::*;

    fn of(result: Result<Exit, Exit>, passing: u64) -> Tried {
        let result = result.map_err(|exit| Stop::new(exit, "why"));
        Tried { result, passing }
    }

    /// Returns the exit code and the number of tries.
    fn tried(limits: Limits, of: impl Fn(u32) -> Tried) -> (Exit, u32) {
        let mut count = 0;
        let ended = each((limits, None), (&Control::default(), &Unobserved), || {
            count += 1;
            of(count)
        });
        (ended.unwrap_or_else(|stop| stop.exit), count)
    }

    fn limits(retries: Option<u32>) -> Limits {
        Limits {
            retries,
            retries_sleep: Some(0),
            ..Limits::default()
        }
    }

    #[test]
    fn a_copy_is_tried_until_it_succeeds_or_reaches_its_maximum() {
        let lost = |_| of(Err(Exit::Connection), 0);
        assert_eq!(tried(limits(None), lost), (Exit::Connection, 1));
        assert_eq!(tried(limits(Some(3)), lost), (Exit::Connection, 3));
        let third = |count| match count {
            1 => of(Err(Exit::Local), 0),
            2 => of(Ok(Exit::Partial), 1),
            _ => of(Ok(Exit::Done), 0),
        };
        assert_eq!(tried(limits(Some(9)), third), (Exit::Done, 3));
    }

    #[test]
    fn permanent_failures_are_not_tried_again() {
        for exit in [
            Exit::Usage,
            Exit::Partial,
            Exit::Authentication,
            Exit::Integrity,
            Exit::Superseded,
            Exit::TimeOver,
            Exit::Interrupted,
        ] {
            assert_eq!(tried(limits(Some(3)), |_| of(Err(exit), 1)), (exit, 1));
        }
        let release = |_| Tried {
            result: Err(Stop::new(Exit::Connection, "another release").that_stays()),
            passing: 0,
        };
        assert_eq!(tried(limits(Some(3)), release), (Exit::Connection, 1));
        let named = |_| of(Ok(Exit::Partial), 0);
        assert_eq!(tried(limits(Some(3)), named), (Exit::Partial, 1));
    }

    #[test]
    fn tries_during_a_restart_are_not_counted() {
        let restart = || Stop::new(Exit::Connection, "it restarts").that_restarts();
        let tried = |within: Option<Duration>| {
            let mut count = 0;
            let ended = each(
                (limits(None), within),
                (&Control::default(), &Unobserved),
                || {
                    count += 1;
                    let result = match count {
                        1 => Err(restart()),
                        2 => Err(Stop::new(Exit::Connection, "refused")),
                        _ => Ok(Exit::Done),
                    };
                    Tried { result, passing: 0 }
                },
            );
            (ended.unwrap_or_else(|stop| stop.exit), count)
        };
        let long = Some(Duration::from_secs(3600));
        assert_eq!(tried(long), (Exit::Done, 3));
        assert_eq!(tried(None), (Exit::Connection, 1));
    }

    #[test]
    fn a_cancellation_ends_the_wait() {
        let control = Control::default();
        let cancels = control.clone();
        let ended = each((limits(Some(3)), None), (&control, &Unobserved), || {
            cancels.cancel();
            of(Err(Exit::Connection), 0)
        });
        // The result is the same as without retries.
        assert_eq!(ended.unwrap_err().exit, Exit::Connection);
        let asleep = Control::default();
        let waker = asleep.clone();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| asleep.pause(Duration::from_secs(3600)));
            waker.cancel();
            assert_eq!(waits.join().unwrap().unwrap_err().exit, Exit::Interrupted);
        });
    }

    #[test]
    fn pauses_grow_unless_they_are_fixed() {
        let first = |fixed| pauses(fixed).map(|pause| pause.as_secs()).take(8);
        let grown: Vec<u64> = first(None).collect();
        assert_eq!(grown, [1, 2, 4, 8, 16, 32, 60, 60]);
        let fixed = Some(Duration::from_secs(7));
        assert!(first(fixed).all(|pause| pause == 7));
    }
}
