//! Divides the resources of this process between its sessions: open files, memory and threads. The
//! principals with sessions get equal shares, and so do the sessions of each principal.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use crate::limits::{memory_left, part_of_files};
use crate::queue::lock;

/// Role of an end, which determines its needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The end reads files and sends them.
    Sending,
    /// The end receives files and writes them.
    Receiving,
}

/// The sessions of this process.
static SEATS: Seats = Seats(Mutex::new(State {
    sessions: BTreeMap::new(),
    parts: 0,
}));

struct Seats(Mutex<State>);

struct State {
    /// Number of sessions of each principal in each role. Zeros are not stored.
    sessions: BTreeMap<Role, BTreeMap<Arc<str>, usize>>,
    /// Number of descriptors granted for incomplete files.
    parts: usize,
}

/// A session's registration. Dropping it ends the registration.
pub struct Seat {
    role: Role,
    principal: Arc<str>,
    /// Number of descriptors granted to the session for incomplete files.
    parts: usize,
}

/// Number of descriptors of an incomplete file: its data and its journal.
const FILES_OF_PART: usize = 2;

/// Divisor of the permitted open files for incomplete files. Each session is granted half of the
/// remaining part, so a few sessions get many, and later ones still get some.
const PARTS_PART: usize = 4;

/// Divisor of that part for the minimum grant of a session.
const LEAST_GRANT: usize = 128;

/// Divisor of the host's memory for the state of unfinished work of all sessions.
const REMEMBERED_PART: usize = 16;
/// Minimum number of bytes for a session's state ([`Seat::remembered_bytes`]), enough for the
/// windows of longhaul's own sender.
pub const LEAST_REMEMBERED: usize = 12 << 20;

/// Threads per core that other ends may request in a layer, and their minimum and maximum for a
/// session.
const THREADS_OF_CORE: usize = 64;
const LEAST_THREADS: usize = 8;
const MOST_THREADS: usize = 64;

/// Divisor of the permitted open files for streams, and the minimum number of streams of a session.
const STREAMS_PART: usize = 4;
const LEAST_STREAMS: usize = 8;

impl Seat {
    /// Registers a session of a principal.
    pub fn take(role: Role, principal: &str) -> Seat {
        let mut state = lock(&SEATS.0);
        let principal: Arc<str> = principal.into();
        let sessions = state.sessions.entry(role).or_default();
        *sessions.entry(Arc::clone(&principal)).or_default() += 1;
        let parts = match role {
            Role::Receiving => {
                let whole = part_of_files(PARTS_PART);
                let granted = granted(whole, state.parts);
                state.parts += granted;
                granted
            }
            Role::Sending => 0,
        };
        Seat {
            role,
            principal,
            parts,
        }
    }

    /// Returns the session's current share of `whole`, at least `least` and at most `most`.
    pub fn share(&self, whole: usize, least: usize, most: usize) -> usize {
        let state = lock(&SEATS.0);
        let (mut principals, mut own) = (1, 1);
        if let Some(sessions) = state.sessions.get(&self.role) {
            principals = sessions.len().max(1);
            own = sessions.get(&self.principal).copied().unwrap_or(1).max(1);
        }
        (whole / principals / own).clamp(least.min(most), most)
    }

    /// Returns the session's share of one part in `parts` of the permitted open files.
    pub fn files(&self, parts: usize, least: usize, most: usize) -> usize {
        self.share(part_of_files(parts), least, most)
    }

    /// Returns the maximum number of incomplete files that the session may have open.
    pub fn parts(&self) -> usize {
        self.parts / FILES_OF_PART
    }

    /// Returns the maximum size in bytes of the session's state of unfinished work.
    pub fn remembered_bytes(&self, most: usize) -> usize {
        let memory = usize::try_from(memory()).unwrap_or(usize::MAX);
        self.share(memory / REMEMBERED_PART, LEAST_REMEMBERED, most)
    }

    /// Returns the maximum number of threads that the other end may request in one layer.
    pub fn threads(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        self.share(
            cores.saturating_mul(THREADS_OF_CORE),
            LEAST_THREADS,
            MOST_THREADS,
        )
    }

    /// Returns the maximum number of streams that the other end may open.
    pub fn streams(&self, most: usize) -> usize {
        self.files(STREAMS_PART, LEAST_STREAMS, most)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = lock(&SEATS.0);
        state.parts = state.parts.saturating_sub(self.parts);
        let Some(sessions) = state.sessions.get_mut(&self.role) else {
            return;
        };
        if let Some(count) = sessions.get_mut(&self.principal) {
            *count -= 1;
            if *count == 0 {
                sessions.remove(&self.principal);
            }
        }
    }
}

/// True if this process has other sessions in the same role, which may close files. The two ends of
/// a copy within this host, one in each role, would wait for each other.
pub(crate) fn has_others() -> bool {
    let state = lock(&SEATS.0);
    let of_role = |sessions: &BTreeMap<Arc<str>, usize>| sessions.values().sum::<usize>();
    state.sessions.values().map(of_role).any(|count| count > 1)
}

/// Returns the number of descriptors that a new session is granted of `whole` for incomplete files.
fn granted(whole: usize, taken: usize) -> usize {
    let half = whole.saturating_sub(taken) / 2;
    let least = (whole / LEAST_GRANT).max(FILES_OF_PART);
    half.max(least)
}

/// Returns the host's memory in bytes, or the amount that limits leave to this process if that is
/// less, as of the first call.
fn memory() -> u64 {
    static MEMORY: OnceLock<u64> = OnceLock::new();
    *MEMORY.get_or_init(|| {
        let info = rustix::system::sysinfo();
        let all = (info.totalram as u64).saturating_mul(u64::from(info.mem_unit));
        memory_left().map_or(all, |left| left.min(all))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other tests in this process register sessions at the same time, of other principals.
    #[test]
    fn sessions_of_one_principal_divide_its_share() {
        let alone = Seat::take(Role::Sending, "shares: alice");
        let before = alone.share(1 << 20, 1, usize::MAX);
        let more: Vec<Seat> = (0..7)
            .map(|_| Seat::take(Role::Sending, "shares: alice"))
            .collect();
        assert!(alone.share(1 << 20, 1, usize::MAX) <= before);
        assert!(alone.share(1 << 20, 1, usize::MAX) <= (1 << 20) / 8);
        let other = Seat::take(Role::Sending, "shares: bob");
        assert!(alone.share(1 << 20, 1, usize::MAX) <= (1 << 20) / 16);
        assert!(other.share(1 << 20, 1, usize::MAX) >= 8 * alone.share(1 << 20, 1, usize::MAX));
        assert_eq!(alone.share(4, 2, 3), 2);
        drop(more);
        assert!(alone.share(1 << 20, 1, usize::MAX) > (1 << 20) / 1024);
    }

    #[test]
    fn grants_stay_within_twice_the_total() {
        let (whole, mut taken) = (4994, 0);
        let grants: Vec<usize> = (0..64)
            .map(|_| {
                let one = granted(whole, taken);
                taken += one;
                one
            })
            .collect();
        assert_eq!(grants[0], whole / 2);
        assert!(grants.iter().all(|grant| *grant >= whole / LEAST_GRANT));
        assert!(taken < 2 * whole, "{taken}");
        assert_eq!(granted(4, 4), FILES_OF_PART);
    }
}
