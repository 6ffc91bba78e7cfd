//! Limits on simultaneous work of a daemon, in total and per principal, so that one principal
//! cannot use all of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum numbers of simultaneous items.
#[derive(Clone, Copy)]
pub struct Most {
    /// Maximum for all principals together.
    pub of_all: usize,
    /// Maximum for each principal.
    pub of_one: usize,
}

impl Most {
    /// Limits one principal to three quarters of the total.
    pub const fn shared(of_all: usize) -> Most {
        Most {
            of_all,
            of_one: of_all - of_all / 4,
        }
    }
}

/// Time for which a refused principal counts as waiting. Clients try again more often.
const WAITS_FOR: Duration = Duration::from_secs(10);

/// Limits that refuse a session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// The limit of all principals together is reached.
    #[error("the daemon has as many sessions as it may ({0}): try again later")]
    All(usize),
    /// The share of one principal is reached.
    #[error(
        "the principal {0} has as many sessions as one principal may now ({1}): try again later"
    )]
    Share(String, usize),
    /// The principal's own limit is reached.
    #[error("the principal {0} has as many sessions as its limit allows ({1}): try again later")]
    Own(String, usize),
}

/// Number of reserved items of each principal, by name.
#[derive(Default)]
pub struct Quotas {
    taken: Mutex<BTreeMap<String, usize>>,
    /// Principals that were refused, and the time of it.
    waiting: Mutex<BTreeMap<String, Instant>>,
}

impl Quotas {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves an item for the principal, or returns the limit that is reached. A principal gets
    /// at most half of all items while another one waits. `own_most` is its own limit.
    pub fn take_fairly(
        self: &Arc<Quotas>,
        (principal, own_most): (&str, Option<usize>),
        most: Most,
        now: Instant,
    ) -> Result<Held, Full> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|_, since| now.saturating_duration_since(*since) < WAITS_FOR);
        let others_wait = waiting.keys().any(|name| name != principal);
        let share = if others_wait {
            (most.of_all / 2).clamp(1, most.of_one)
        } else {
            most.of_one
        };
        let of_one = share.min(own_most.unwrap_or(share));
        if let Some(held) = self.take(principal, Most { of_one, ..most }) {
            waiting.remove(principal);
            return Ok(held);
        }
        let own = self.lock().get(principal).copied().unwrap_or_default();
        let name = || principal.to_owned();
        if own_most.is_some_and(|most| own >= most) {
            return Err(Full::Own(name(), own));
        }
        if own >= share {
            return Err(Full::Share(name(), share));
        }
        waiting.insert(name(), now);
        Err(Full::All(most.of_all))
    }

    /// Reserves an item for the principal, or returns `None` if a limit is reached.
    pub fn take(self: &Arc<Quotas>, principal: &str, most: Most) -> Option<Held> {
        let mut taken = self.lock();
        let own = taken.get(principal).copied().unwrap_or_default();
        if own >= most.of_one || taken.values().sum::<usize>() >= most.of_all {
            return None;
        }
        taken.insert(principal.to_owned(), own + 1);
        Some(Held {
            places: Arc::clone(self),
            principal: principal.to_owned(),
        })
    }
}

/// A reserved item. It is released when dropped.
pub struct Held {
    places: Arc<Quotas>,
    principal: String,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        if let Some(own) = taken.get_mut(&self.principal) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.principal);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_principal_leaves_places_to_others() {
        let places = Arc::new(Quotas::default());
        let most = Most {
            of_all: 3,
            of_one: 2,
        };
        let taken = [(); 2].map(|()| places.take("alice", most).unwrap());
        assert!(places.take("alice", most).is_none());
        let other = places.take("bob", most).unwrap();
        assert!(places.take("carol", most).is_none());
        drop(taken);
        assert!(places.take("alice", most).is_some());
        drop(other);
        assert!(places.lock().is_empty());
    }

    #[test]
    fn a_waiting_principal_gets_its_share() {
        let places = Arc::new(Quotas::default());
        let (most, now) = (Most::shared(4), Instant::now());
        let take = |name, at| places.take_fairly((name, None), most, at);
        let held = [(); 3].map(|()| take("alice", now).unwrap());
        assert_eq!(
            take("alice", now).err(),
            Some(Full::Share("alice".into(), 3))
        );
        let bob = take("bob", now).unwrap();
        assert_eq!(take("carol", now).err(), Some(Full::All(4)));
        let [first, second, third] = held;
        drop(first);
        drop(second);
        // Carol waits, so alice gets no more than half.
        let again = take("alice", now).unwrap();
        assert_eq!(
            take("alice", now).err(),
            Some(Full::Share("alice".into(), 2))
        );
        assert!(take("carol", now).is_ok());
        // Carol no longer waits.
        assert!(take("alice", now + WAITS_FOR).is_ok());
        drop((again, third, bob));
    }

    #[test]
    fn a_principal_has_a_limit_of_its_own() {
        let places = Arc::new(Quotas::default());
        let take = || places.take_fairly(("alice", Some(1)), Most::shared(8), Instant::now());
        let held = take().unwrap();
        assert_eq!(take().err(), Some(Full::Own("alice".into(), 1)));
        drop(held);
        assert!(take().is_ok());
    }

    #[test]
    fn one_principal_has_three_quarters_and_at_least_one() {
        let of_one = [1, 2, 3, 4, 64].map(|of_all| Most::shared(of_all).of_one);
        assert_eq!(of_one, [1, 2, 3, 3, 48]);
    }
}
