//! Limits on simultaneous work of a daemon, in total and per principal, so that one principal
//! cannot use all of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

/// Number of reserved items of each principal, by name.
#[derive(Default)]
pub struct Quotas(Mutex<BTreeMap<String, usize>>);

impl Quotas {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
    fn one_principal_has_three_quarters_and_at_least_one() {
        let of_one = [1, 2, 3, 4, 64].map(|of_all| Most::shared(of_all).of_one);
        assert_eq!(of_one, [1, 2, 3, 3, 48]);
    }
}
