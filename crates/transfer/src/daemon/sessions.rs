//! The sessions that run at a daemon.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use longhaul_engine::session::Transfer;
use longhaul_proto::handshake::{RequestPath, Secret, SessionId};
use longhaul_proto::message::Farewell;

use super::quotas::{Held, Most, Quotas};
use super::turns::{Rank, Turn, Turns};

/// How long a stopping daemon waits for its sessions.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// The identity of a transfer: a client with the same one takes over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Who.
    pub principal: String,
    /// Hash of the sending host and its sources.
    pub source: [u8; 32],
    /// Where it goes.
    pub destination: Vec<u8>,
}

/// Where a transfer goes, as in its key: the kind of the path, then its bytes.
pub fn destination_of(path: &RequestPath) -> Vec<u8> {
    match path {
        RequestPath::Path(path) => [b"path ", path.as_slice()].concat(),
        RequestPath::Stream(path) => [b"pipe ", path.as_slice()].concat(),
        RequestPath::Zero(size) => [&b"zero "[..], &size.to_le_bytes()].concat(),
        RequestPath::Null => b"null".to_vec(),
    }
}

/// A session.
pub struct Running {
    /// Its end here.
    pub transfer: Arc<Transfer>,
    /// What further streams join with.
    pub secret: Secret,
    /// Which transfer it is; none for one that writes nothing here.
    pub key: Option<Key>,
    /// That of the request that began it.
    pub rank: Rank,
    /// Its place among them.
    pub place: Held,
}

/// The last message of a daemon that ends to its clients.
fn stopped() -> Farewell {
    Farewell::Broken("the daemon was stopped".to_owned())
}

/// All sessions.
pub struct Sessions {
    most: Most,
    /// Of those that run or are about to.
    places: Arc<Quotas>,
    turns: Arc<Turns>,
    /// One began, or the client that would begin one has gone.
    begun: AtomicBool,
    /// The daemon ends: sessions that begin now end at once.
    ending: AtomicBool,
    running: Mutex<HashMap<SessionId, Running>>,
    changed: Condvar,
}

impl Sessions {
    /// At most this many at a time.
    pub fn new(most: usize) -> Sessions {
        Sessions {
            most: Most::shared(most),
            places: Arc::default(),
            turns: Arc::default(),
            begun: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            running: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it is a request's turn to take over its transfer. `None` if a newer request of
    /// that came, or runs already. The turn is to be kept until the session was added.
    pub fn take_turn(&self, key: &Key, rank: Rank) -> Option<Turn> {
        let turn = self.turns.take(key, rank)?;
        let newer = |running: &Running| running.key.as_ref() == Some(key) && running.rank > rank;
        let overtaken = self.lock().values().any(newer);
        (!overtaken).then_some(turn)
    }

    /// A place for one more session of a principal; `None` if there is none, or the principal has
    /// its share. Sessions that are done and only wait for a client make room, and so do older
    /// ones of the same transfer, which the new one would fence.
    pub fn take_place(&self, principal: &str, key: Option<&Key>) -> Option<Held> {
        if let Some(place) = self.places.take(principal, self.most) {
            return Some(place);
        }
        if let Some(key) = key {
            self.fence(key);
        }
        let makes_room = |running: &Running| {
            running.transfer.is_left_alone() || key.is_some() && running.key.as_ref() == key
        };
        let left: Vec<Running> = self
            .lock()
            .extract_if(|_, running| makes_room(running))
            .map(|(_, running)| running)
            .collect();
        for Running {
            transfer, place, ..
        } in left
        {
            transfer.end(Farewell::Complete);
            drop(place);
        }
        self.places.take(principal, self.most)
    }

    /// Ends older sessions of the same transfer, whose client began again, and
    /// waits a moment until they have stopped writing: what they did later
    /// would change the times of directories that the new one has finished.
    pub fn fence(&self, key: &Key) {
        let older: Vec<Arc<Transfer>> = self
            .lock()
            .values()
            .filter(|running| running.key.as_ref() == Some(key))
            .map(|running| Arc::clone(&running.transfer))
            .collect();
        for transfer in &older {
            transfer.end(Farewell::Fenced);
        }
        for transfer in &older {
            // One whose disk hangs is fenced all the same, by the journal.
            transfer.wait_until_left(STOP_WITHIN);
        }
    }

    /// Adds a session.
    pub fn add(&self, id: SessionId, running: Running) {
        let mut all = self.lock();
        if self.ending.load(Ordering::Relaxed) {
            running.transfer.end(stopped());
        }
        all.insert(id, running);
        self.begun.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// Nobody will begin one, unless one has begun.
    pub fn give_up(&self) {
        let all = self.lock();
        self.begun.store(true, Ordering::Relaxed);
        self.changed.notify_all();
        drop(all);
    }

    /// Waits until a session has begun and all have ended; none may take longer
    /// to begin than that.
    pub fn wait_for_end(&self, begins_within: Duration) {
        let until = Instant::now() + begins_within;
        let mut running = self.lock();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let begun = self.begun.load(Ordering::Relaxed);
            running = match (begun, running.is_empty()) {
                (true, true) => return,
                (false, _) if left.is_zero() => return,
                (false, _) => {
                    let waited = self.changed.wait_timeout(running, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                (true, false) => {
                    let waited = self.changed.wait(running);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
    }

    /// Removes a session.
    pub fn remove(&self, id: SessionId) {
        self.lock().remove(&id);
        self.changed.notify_all();
    }

    /// The session that a stream may join.
    pub fn find(&self, id: SessionId) -> Option<(Arc<Transfer>, Secret)> {
        self.lock()
            .get(&id)
            .map(|running| (Arc::clone(&running.transfer), running.secret))
    }

    /// Ends all sessions and waits a moment for them; their clients continue when the daemon is
    /// back. Gives how many there were.
    pub fn end_all(&self) -> usize {
        let mut running = self.lock();
        self.ending.store(true, Ordering::Relaxed);
        let count = running.len();
        for session in running.values() {
            session.transfer.end(stopped());
        }
        while !running.is_empty() {
            let waited = self.changed.wait_timeout(running, STOP_WITHIN);
            let (guard, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            running = guard;
            if timeout.timed_out() {
                break;
            }
        }
        count
    }
}
