//! Sessions to one server, shared by all threads.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use longhaul_gridftp::Error;
use longhaul_gridftp::location::Location;
use longhaul_gridftp::session::{Options, Session, TransferMode};
use longhaul_proto::manifest::Timestamp;
use longhaul_system::queue::lock;

use super::as_io;

/// Maximum number of sessions: the number of concurrent connections that the paper of NCSA
/// Genomics finds enough (003, Conclusion 2).
const SESSIONS: usize = 4;

/// Data connections of a shared session, which fetches small files and parts.
const SHARED_CONNECTIONS: u8 = 2;

/// Data connections of a session for one large file: a lost packet slows only one of them.
const LARGE_CONNECTIONS: u8 = 8;

/// Attempts at an operation whose connection is lost.
const ATTEMPTS: usize = 3;

/// Sessions in a row that may fail to open. Afterwards all files fail at once: each attempt may
/// take half a minute.
const MAXIMUM_FAILURES: u32 = 6;

/// Reply code: the server cannot open a data connection.
const NO_DATA_CONNECTION: u16 = 425;

/// Sessions to one server.
pub struct Sessions {
    location: Location,
    options: Options,
    /// Time of entries whose server tells none. It makes them newer than all copies.
    started: Timestamp,
    /// True if the server could not connect to this host.
    streams_only: AtomicBool,
    /// True if the server rejected a session beside the shared ones.
    is_limited: AtomicBool,
    /// Number of sessions in a row that could not be opened.
    failures: AtomicU32,
    state: Mutex<State>,
    freed: Condvar,
}

struct State {
    idle: Vec<Session>,
    /// Number of sessions that exist or are being opened.
    open: usize,
    /// Maximum number of sessions. It shrinks if the server rejects one.
    most: usize,
}

/// Returns the current time.
fn now() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanoseconds: since.subsec_nanos(),
    }
}

impl Sessions {
    /// Opens no session yet.
    pub fn new(location: Location, options: Options) -> Sessions {
        Sessions {
            location,
            options,
            started: now(),
            streams_only: AtomicBool::new(false),
            is_limited: AtomicBool::new(false),
            failures: AtomicU32::new(0),
            state: Mutex::new(State {
                idle: Vec::new(),
                open: 0,
                most: SESSIONS,
            }),
            freed: Condvar::new(),
        }
    }

    /// Returns the time of entries whose server tells none.
    pub fn started(&self) -> Timestamp {
        self.started
    }

    /// True if the server permits sessions beside the shared ones, as far as is known.
    pub fn permits_more(&self) -> bool {
        !self.is_limited.load(Ordering::Relaxed)
    }

    /// Opens a session that is not shared, for a large file.
    ///
    /// # Errors
    ///
    /// As [`Session::open`].
    pub fn open_for_file(&self) -> Result<Session, Error> {
        self.open(LARGE_CONNECTIONS)
    }

    /// Opens the first shared session, which reports errors of the login.
    ///
    /// # Errors
    ///
    /// As [`Session::open`].
    pub fn open_first(&self) -> Result<Session, Error> {
        self.open(SHARED_CONNECTIONS)
    }

    fn open(&self, connections: u8) -> Result<Session, Error> {
        if self.failures.load(Ordering::Relaxed) >= MAXIMUM_FAILURES {
            let text = "the server could not be reached several times in a row";
            return Err(Error::Unexpected(text.to_owned()));
        }
        let mut options = self.options.clone();
        options.connections = connections;
        if self.streams_only.load(Ordering::Relaxed) {
            options.mode = TransferMode::Stream;
        }
        let opened = Session::open(&self.location, options);
        match &opened {
            Ok(_) => self.failures.store(0, Ordering::Relaxed),
            // A rejected login may be a limit of the number of sessions.
            Err(Error::Refused { .. }) => self.is_limited.store(true, Ordering::Relaxed),
            Err(_) => {
                self.failures.fetch_add(1, Ordering::Relaxed);
            }
        }
        opened
    }

    /// Adds a session to the shared ones.
    pub fn add(&self, session: Session) {
        let mut state = lock(&self.state);
        state.open += 1;
        state.idle.push(session);
    }

    /// Runs an operation, which may run again if its connection is lost.
    ///
    /// # Errors
    ///
    /// The error of the operation, or of a new session.
    pub fn with<T>(
        &self,
        mut operation: impl FnMut(&mut Session) -> Result<T, Error>,
    ) -> io::Result<T> {
        let mut attempt = 1;
        loop {
            let mut session = self.take().map_err(as_io)?;
            let result = operation(&mut session);
            let Err(error) = result else {
                self.give_back(session);
                return result.map_err(as_io);
            };
            if error.ends_session() {
                drop(session);
                self.forget();
            } else {
                self.give_back(session);
            }
            if attempt == ATTEMPTS || !self.may_succeed_again(&error) {
                return Err(as_io(error));
            }
            attempt += 1;
        }
    }

    /// True if another attempt may succeed. Chooses stream mode if the server cannot connect.
    fn may_succeed_again(&self, error: &Error) -> bool {
        let cannot_connect = match error {
            Error::NoDataConnection { .. } => true,
            Error::Refused { code, .. } => *code == NO_DATA_CONNECTION,
            _ => false,
        };
        if cannot_connect {
            let before = self.streams_only.swap(true, Ordering::Relaxed);
            let mut state = lock(&self.state);
            state.open -= state.idle.len();
            state.idle.clear();
            return !before;
        }
        match error {
            Error::Closed | Error::Io { .. } | Error::Silent { .. } => true,
            Error::Refused { code, .. } => *code == 421,
            _ => false,
        }
    }

    /// Takes an idle session, or opens one, or waits for one.
    fn take(&self) -> Result<Session, Error> {
        let mut state = lock(&self.state);
        loop {
            if let Some(session) = state.idle.pop() {
                return Ok(session);
            }
            if state.open < state.most {
                state.open += 1;
                drop(state);
                let opened = self.open(SHARED_CONNECTIONS);
                state = lock(&self.state);
                match opened {
                    Ok(session) => return Ok(session),
                    Err(error) => {
                        state.open -= 1;
                        if state.open == 0 {
                            return Err(error);
                        }
                        // The server may limit the number of sessions.
                        state.most = state.open;
                        continue;
                    }
                }
            }
            state = self
                .freed
                .wait(state)
                .unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    fn give_back(&self, session: Session) {
        lock(&self.state).idle.push(session);
        self.freed.notify_one();
    }

    fn forget(&self) {
        let mut state = lock(&self.state);
        state.open -= 1;
        state.most = state.most.max(1);
        self.freed.notify_one();
    }
}
