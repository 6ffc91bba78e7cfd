//! Orders the requests that take over the same transfer by the time of their run's first request.
//!
//! Each request is handled on a separate thread and may wait for an older session to stop writing.
//! Without an order, a request whose client is already dead could claim the destination after a
//! newer request and fence it.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use std::time::{Duration, Instant};

use super::sessions::Key;

/// Maximum waiting time that a run may claim. Longer claims are reduced to it.
const LONGEST_WAIT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Order of two requests: by the first request of their run, then by the number of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    asked: Instant,
    connection: u64,
}

impl Rank {
    /// Returns the rank of a connection that arrives now.
    pub fn now(connection: u64) -> Rank {
        Rank {
            asked: Instant::now(),
            connection,
        }
    }

    /// Returns the rank of a request whose run was refused before and first asked earlier by
    /// `waited`, at most `LONGEST_WAIT`.
    pub fn after_waiting(self, waited: Duration) -> Rank {
        let asked = self.asked.checked_sub(waited.min(LONGEST_WAIT));
        Rank {
            asked: asked.unwrap_or(self.asked),
            ..self
        }
    }
}

/// Requests in progress.
#[derive(Default)]
pub struct Turns {
    waiting: Mutex<Vec<(Key, Rank)>>,
    changed: Condvar,
}

impl Turns {
    fn lock(&self) -> MutexGuard<'_, Vec<(Key, Rank)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no older request of this transfer is in progress. Returns `None` if a newer
    /// request arrives.
    pub fn take(self: &Arc<Turns>, key: &Key, rank: Rank) -> Option<Turn> {
        let mut waiting = self.lock();
        waiting.push((key.clone(), rank));
        let turn = Turn {
            turns: Arc::clone(self),
            key: key.clone(),
            rank,
        };
        // Wakes older requests, which can give up now.
        self.changed.notify_all();
        loop {
            let (older, newer) = neighbours(&waiting, key, rank);
            if newer {
                // Dropping the turn takes the lock again.
                drop(waiting);
                drop(turn);
                return None;
            }
            if !older {
                return Some(turn);
            }
            let woken = self.changed.wait(waiting);
            waiting = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Returns two flags: an older request of the transfer is in progress, and a newer one is.
fn neighbours(waiting: &[(Key, Rank)], key: &Key, rank: Rank) -> (bool, bool) {
    let same = || waiting.iter().filter(|(known, _)| known == key);
    let older = same().any(|(_, other)| *other < rank);
    let newer = same().any(|(_, other)| *other > rank);
    (older, newer)
}

/// Turn of a request. It ends when dropped.
pub struct Turn {
    turns: Arc<Turns>,
    key: Key,
    rank: Rank,
}

impl Turn {
    /// True if no newer request of this transfer has arrived.
    pub fn is_newest(&self) -> bool {
        let (_, newer) = neighbours(&self.turns.lock(), &self.key, self.rank);
        !newer
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut waiting = self.turns.lock();
        let own = |(key, rank): &(Key, Rank)| *key == self.key && *rank == self.rank;
        if let Some(at) = waiting.iter().position(own) {
            waiting.swap_remove(at);
        }
        drop(waiting);
        self.turns.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use longhaul_testing::await_that;

    fn rank(connection: u64) -> Rank {
        static BEGAN: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
        Rank {
            asked: *BEGAN,
            connection,
        }
    }

    fn key(destination: &[u8]) -> Key {
        Key {
            principal: "alice".to_owned(),
            source: [1; 32],
            destination: destination.to_vec(),
        }
    }

    #[test]
    fn a_request_waits_for_older_ones_of_its_transfer_alone() {
        let turns = Arc::new(Turns::default());
        let first = turns.take(&key(b"x"), rank(1)).unwrap();
        let _other = turns.take(&key(b"y"), rank(2)).unwrap();
        let (took, taken) = channel();
        let waiting = Arc::clone(&turns);
        let newer = std::thread::spawn(move || {
            let turn = waiting.take(&key(b"x"), rank(3));
            took.send(turn.is_some()).unwrap();
        });
        await_that(|| !first.is_newest());
        assert!(taken.try_recv().is_err(), "the older one may claim yet");
        drop(first);
        assert!(taken.recv().unwrap());
        newer.join().unwrap();
        drop(_other);
        assert!(turns.lock().is_empty());
    }

    #[test]
    fn an_overtaken_request_does_not_take_over() {
        let turns = Arc::new(Turns::default());
        let newer = turns.take(&key(b"x"), rank(5)).unwrap();
        assert!(turns.take(&key(b"x"), rank(4)).is_none());
        assert!(newer.is_newest());
    }

    #[test]
    fn a_run_that_was_refused_keeps_its_rank() {
        let turns = Arc::new(Turns::default());
        let newer = turns.take(&key(b"x"), Rank::now(1)).unwrap();
        let again = Rank::now(2).after_waiting(Duration::from_secs(9));
        // With a later rank, the request would wait for the other one.
        assert!(again < newer.rank);
        assert!(turns.take(&key(b"x"), again).is_none());
        assert!(newer.is_newest());
        let longest = Rank::now(3).after_waiting(LONGEST_WAIT);
        let endless = Rank::now(4).after_waiting(Duration::MAX);
        assert!(longest < again && endless < again);
    }

    #[test]
    fn a_waiting_request_ends_when_a_newer_one_arrives() {
        let turns = Arc::new(Turns::default());
        let first = turns.take(&key(b"x"), rank(1)).unwrap();
        let between = Arc::clone(&turns);
        let second = std::thread::spawn(move || between.take(&key(b"x"), rank(2)).is_none());
        await_that(|| turns.lock().len() >= 2);
        let last = Arc::clone(&turns);
        let third = std::thread::spawn(move || last.take(&key(b"x"), rank(3)).is_some());
        assert!(second.join().unwrap());
        drop(first);
        assert!(third.join().unwrap());
    }
}
