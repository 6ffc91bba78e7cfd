//! Running sessions of a daemon.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use longhaul_engine::session::Transfer;
use longhaul_net::principals::{Principals, Proof};
use longhaul_proto::handshake::{RequestPath, Secret, SessionId};
use longhaul_proto::message::Farewell;

use super::quotas::{Full, Held, Most, Quotas};
use super::turns::{Rank, Turn, Turns};

/// Maximum time that a stopping daemon waits for its sessions.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// Identity of a transfer. A new request with the same key takes over from the older one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Name of the principal.
    pub principal: String,
    /// Hash of the sending host and its sources.
    pub source: [u8; 32],
    /// Destination; see [`destination_of`].
    pub destination: Vec<u8>,
}

/// Encodes a destination for the key: the kind of the path and then its bytes.
pub fn destination_of(path: &RequestPath) -> Vec<u8> {
    match path {
        RequestPath::Path(path) => [b"path ", path.as_slice()].concat(),
        RequestPath::Stream(path) => [b"pipe ", path.as_slice()].concat(),
        RequestPath::Zero(size) => [&b"zero "[..], &size.to_le_bytes()].concat(),
        RequestPath::Null => b"null".to_vec(),
    }
}

/// A running session.
pub struct Running {
    /// The daemon's end of the transfer.
    pub transfer: Arc<Transfer>,
    /// Secret with which further streams join.
    pub secret: Secret,
    /// Identity of the transfer; `None` if it writes nothing here.
    pub key: Option<Key>,
    /// Rank of the request that opened it.
    pub rank: Rank,
    /// Its reserved place.
    pub place: Held,
    /// Principal and credential of its client.
    pub proof: (String, Proof),
    /// Maximum number of its streams.
    pub maximum_streams: u32,
}

/// All sessions of a daemon.
pub struct Sessions {
    most: Most,
    /// Places of running sessions and of those that are about to start.
    places: Arc<Quotas>,
    turns: Arc<Turns>,
    /// True once a session has started or its client has left.
    begun: AtomicBool,
    /// True once the daemon is stopping. New sessions then end at once.
    ending: AtomicBool,
    /// True once the daemon accepts no new sessions, because it is to be started again.
    draining: AtomicBool,
    running: Mutex<HashMap<SessionId, Running>>,
    changed: Condvar,
}

impl Sessions {
    /// Limits the daemon to `most` simultaneous sessions.
    pub fn new(most: usize) -> Sessions {
        Sessions {
            most: Most::shared(most),
            places: Arc::default(),
            turns: Arc::default(),
            begun: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            running: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Returns the maximum number of simultaneous sessions.
    pub fn most(&self) -> usize {
        self.most.of_all
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the last message of a stopping daemon to its clients.
    fn last_message(&self) -> Farewell {
        if self.is_draining() {
            Farewell::Restarting
        } else {
            Farewell::Broken("the daemon was stopped".to_owned())
        }
    }

    /// True if the daemon accepts no new sessions.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Accepts no new sessions from now on. Returns the number of running sessions, or `None` if
    /// this was called before.
    pub fn begin_drain(&self) -> Option<usize> {
        let running = self.lock();
        let first = !self.draining.swap(true, Ordering::Relaxed);
        first.then(|| running.len())
    }

    /// Waits until no session runs, for at most `within`.
    pub fn wait_until_drained(&self, within: Duration) {
        let running = self.lock();
        let waits = |running: &mut HashMap<SessionId, Running>| {
            !running.is_empty() && !self.ending.load(Ordering::Relaxed)
        };
        let waited = self.changed.wait_timeout_while(running, within, waits);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Waits for a request's turn to take over its transfer. Returns `None` if a newer request has
    /// arrived or already runs. Hold the turn until the session has been added.
    pub fn take_turn(&self, key: &Key, rank: Rank) -> Option<Turn> {
        let turn = self.turns.take(key, rank)?;
        let newer = |running: &Running| running.key.as_ref() == Some(key) && running.rank > rank;
        let overtaken = self.lock().values().any(newer);
        (!overtaken).then_some(turn)
    }

    /// Reserves a place for a session of a principal. If a limit is reached, ends sessions that are
    /// complete and only wait for a client, and older sessions of the same transfer. Returns
    /// the limit if there is still no place. `most` is the principal's limit.
    pub fn take_place(
        &self,
        (principal, most): (&str, Option<u32>),
        key: Option<&Key>,
    ) -> Result<Held, Full> {
        let most_of_own = most.map(|most| most as usize);
        let take = || {
            let now = Instant::now();
            self.places
                .take_fairly((principal, most_of_own), self.most, now)
        };
        if let Ok(place) = take() {
            return Ok(place);
        }
        if let Some(key) = key {
            self.fence(key);
        }
        let makes_room = |running: &Running| {
            running.transfer.summary().is_left_alone()
                || key.is_some() && running.key.as_ref() == key
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
        take()
    }

    /// Ends older sessions of the same transfer, whose client has started again. Waits briefly
    /// until they stop writing. Later writes would change the times of directories that the new
    /// session has completed.
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
            // If its disk hangs, the journal still fences the session.
            transfer.wait_until_left(STOP_WITHIN);
        }
    }

    /// Adds a session. Ends it at once if the daemon is stopping.
    pub fn add(&self, id: SessionId, running: Running) {
        let mut all = self.lock();
        if self.ending.load(Ordering::Relaxed) {
            running.transfer.end(self.last_message());
        }
        all.insert(id, running);
        self.begun.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// Records that no session will start, unless one has.
    pub fn give_up(&self) {
        let all = self.lock();
        self.begun.store(true, Ordering::Relaxed);
        self.changed.notify_all();
        drop(all);
    }

    /// Waits until a session has started and all have ended. Gives up if none starts within
    /// `begins_within`.
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

    /// Returns a session and its secret, for a stream that joins.
    /// Also returns the maximum number of its streams.
    pub fn find(&self, id: SessionId) -> Option<(Arc<Transfer>, Secret, u32)> {
        self.lock().get(&id).map(|running| {
            let transfer = Arc::clone(&running.transfer);
            (transfer, running.secret, running.maximum_streams)
        })
    }

    /// Ends the sessions whose credential is no longer accepted. Returns their number.
    pub fn revoke(&self, principals: &Principals) -> usize {
        let running = self.lock();
        let is_revoked = |running: &&Running| {
            let (principal, proof) = &running.proof;
            !principals.accepts(principal, proof)
        };
        let revoked: Vec<&Running> = running.values().filter(is_revoked).collect();
        for session in &revoked {
            let text = "its token or certificate was revoked".to_owned();
            session.transfer.end(Farewell::Broken(text));
        }
        revoked.len()
    }

    /// Ends all sessions and waits a few seconds for them. Their clients resume when the daemon
    /// runs again. Returns the number of sessions.
    pub fn end_all(&self) -> usize {
        let mut running = self.lock();
        self.ending.store(true, Ordering::Relaxed);
        let count = running.len();
        for session in running.values() {
            session.transfer.end(self.last_message());
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
