//! What a daemon does at the same time for all, and for one principal, so that some is left for
//! others.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What may be under way at the same time.
#[derive(Clone, Copy)]
pub struct Most {
    /// For all principals.
    pub of_all: usize,
    /// For one of them.
    pub of_one: usize,
}

impl Most {
    /// One principal may have three quarters of them.
    pub const fn shared(of_all: usize) -> Most {
        Most {
            of_all,
            of_one: of_all - of_all / 4,
        }
    }
}

/// What is under way for each principal, by name.
#[derive(Default)]
pub struct Quotas(Mutex<BTreeMap<String, usize>>);

impl Quotas {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more for the principal, if there is room.
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

/// A place among those that run; given back when dropped.
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
    fn whoever_is_alone_has_three_quarters_and_one_at_least() {
        let of_one = [1, 2, 3, 4, 64].map(|of_all| Most::shared(of_all).of_one);
        assert_eq!(of_one, [1, 2, 3, 3, 48]);
    }
}
