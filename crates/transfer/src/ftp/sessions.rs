//! Sessions to one server, shared by all threads.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

use longhaul_engine::recv::landing::file_time_now;
use longhaul_gridftp::Error;
use longhaul_gridftp::location::Location;
use longhaul_gridftp::protocol::features::{ChecksumKind, Features};
use longhaul_gridftp::session::{Options, Session, TransferMode};
use longhaul_model::control::start::initial_streams;
use longhaul_proto::manifest::Timestamp;
use longhaul_system::queue::lock;

use super::as_io;

/// Maximum number of sessions: the number of concurrent connections that the paper of NCSA
/// Genomics finds enough (003, Conclusion 2).
pub const SESSIONS: usize = 4;

/// Data connections of a shared session, which fetches small files and parts.
const SHARED_CONNECTIONS: u8 = 2;

/// Maximum number of data connections of a session.
const MOST_CONNECTIONS: u32 = 64;

/// Time for which a session without a file is kept for the next large file. Servers end idle
/// sessions after a minute or more.
const KEPT: Duration = Duration::from_secs(20);

/// Attempts at an operation whose connection is lost.
const ATTEMPTS: usize = 3;

/// Attempts of a thread to open a session while others exist. Afterwards, it waits for one of them.
const OPEN_ATTEMPTS: usize = 2;

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
    /// Requested number of data connections of a large file.
    requested: Option<u32>,
    /// Number of data connections of a large file.
    connections: OnceLock<u8>,
    /// Sessions that have transferred a large file, with the time since which they are idle.
    kept: Mutex<Vec<(Instant, Session)>>,
    /// Abilities of the server.
    features: OnceLock<Features>,
    /// True if the first session was in extended block mode.
    is_extended: OnceLock<bool>,
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

impl Sessions {
    /// Opens no session yet.
    pub fn new(location: Location, options: Options) -> Sessions {
        Sessions {
            location,
            options,
            started: file_time_now(),
            requested: None,
            connections: OnceLock::new(),
            kept: Mutex::default(),
            features: OnceLock::new(),
            is_extended: OnceLock::new(),
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

    /// Sets the number of data connections of a large file. Otherwise it depends on the round-trip
    /// time, as for streams between two longhaul processes.
    #[must_use]
    pub fn with_connections(self, requested: Option<u32>) -> Sessions {
        Sessions { requested, ..self }
    }

    /// Returns the time of entries whose server tells none.
    pub fn started(&self) -> Timestamp {
        self.started
    }

    /// True if the server sets the times of files.
    pub fn sets_times(&self) -> bool {
        self.features
            .get()
            .is_some_and(|features| features.set_time)
    }

    /// True if files must be stored from their front, in stream mode.
    pub fn stores_in_order(&self) -> bool {
        let is_extended = self.is_extended.get() == Some(&true);
        !is_extended || self.streams_only.load(Ordering::Relaxed)
    }

    /// Returns the best checksum of files that the server computes.
    pub fn checksum(&self) -> Option<ChecksumKind> {
        self.features.get()?.checksum
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
        if let Some(session) = self.take_kept() {
            return Ok(session);
        }
        let connections = self.connections.get().copied();
        self.open(connections.unwrap_or(SHARED_CONNECTIONS))
    }

    /// Keeps a session of [`Sessions::open_for_file`] for the next large file, with its data
    /// connections.
    pub fn keep_for_file(&self, session: Session) {
        let mut kept = lock(&self.kept);
        if kept.len() < SESSIONS {
            kept.push((Instant::now(), session));
        }
    }

    fn take_kept(&self) -> Option<Session> {
        let streams_only = self.streams_only.load(Ordering::Relaxed);
        let mut kept = lock(&self.kept);
        kept.retain(|(since, session)| {
            since.elapsed() < KEPT && !(streams_only && session.is_extended())
        });
        kept.pop().map(|(_, session)| session)
    }

    /// Chooses the number of data connections of a large file by the round-trip time.
    fn choose_connections(&self, session: &mut Session) -> Result<(), Error> {
        let began = Instant::now();
        session.commands(&[("NOOP", Vec::new())])?;
        let by_path = initial_streams(began.elapsed(), None, None);
        let count = self.requested.unwrap_or(by_path).clamp(1, MOST_CONNECTIONS);
        self.connections
            .get_or_init(|| u8::try_from(count).unwrap_or(u8::MAX));
        Ok(())
    }

    /// Opens the first shared session, which reports errors of the login.
    ///
    /// # Errors
    ///
    /// As [`Session::open`].
    pub fn open_first(&self) -> Result<Session, Error> {
        let mut session = self.open(SHARED_CONNECTIONS)?;
        self.choose_connections(&mut session)?;
        Ok(session)
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
            Ok(session) => {
                self.failures.store(0, Ordering::Relaxed);
                self.features.get_or_init(|| session.features().clone());
                self.is_extended.get_or_init(|| session.is_extended());
            }
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
            let was_extended = session.is_extended();
            let result = operation(&mut session);
            let Err(error) = result else {
                self.give_back(session);
                return result.map_err(as_io);
            };
            // A server without a data connection rejects them all in this session.
            if error.ends_session() || cannot_connect(&error) {
                drop(session);
                self.forget();
            } else {
                self.give_back(session);
            }
            self.learn_from(&error);
            let may_succeed = error.is_lost_connection() || was_extended && cannot_connect(&error);
            if attempt == ATTEMPTS || !may_succeed {
                return Err(as_io(error));
            }
            attempt += 1;
        }
    }

    /// Runs an operation once in a shared session.
    ///
    /// # Errors
    ///
    /// The error of the operation, or of a new session.
    pub fn once<T>(
        &self,
        operation: impl FnOnce(&mut Session) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut session = self.take()?;
        let result = operation(&mut session);
        if result.as_ref().is_err_and(Error::ends_session) {
            drop(session);
            self.forget();
        } else {
            self.give_back(session);
        }
        result
    }

    /// Chooses stream mode if the server could not connect to this host. Closes the idle sessions
    /// if they are in the other mode, or if a session was lost: the server may have ended them
    /// for the same reason.
    pub fn learn_from(&self, error: &Error) {
        if cannot_connect(error) {
            self.streams_only.store(true, Ordering::Relaxed);
        } else if !error.is_lost_connection() {
            return;
        }
        let mut state = lock(&self.state);
        let closed = std::mem::take(&mut state.idle);
        state.open -= closed.len();
        drop(state);
        self.freed.notify_all();
    }

    /// Takes an idle session, or opens one, or waits for one.
    fn take(&self) -> Result<Session, Error> {
        let mut failed = 0;
        let mut state = lock(&self.state);
        loop {
            if let Some(session) = state.idle.pop() {
                return Ok(session);
            }
            // Without other sessions, no session will become idle.
            if state.open == 0 || (state.open < state.most && failed < OPEN_ATTEMPTS) {
                state.open += 1;
                drop(state);
                let error = match self.open(SHARED_CONNECTIONS) {
                    Ok(session) => return Ok(session),
                    Err(error) => error,
                };
                failed += 1;
                state = lock(&self.state);
                state.open -= 1;
                // Threads that wait for a session may have to open one now.
                self.freed.notify_all();
                if state.open == 0 {
                    return Err(error);
                }
                if matches!(error, Error::Refused { .. }) {
                    // The server may limit the number of sessions.
                    state.most = state.most.min(state.open);
                }
                continue;
            }
            state = self
                .freed
                .wait(state)
                .unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    fn give_back(&self, session: Session) {
        if session.is_extended() && self.streams_only.load(Ordering::Relaxed) {
            drop(session);
            self.forget();
            return;
        }
        lock(&self.state).idle.push(session);
        self.freed.notify_one();
    }

    fn forget(&self) {
        lock(&self.state).open -= 1;
        self.freed.notify_all();
    }
}

/// True if the server could not open a data connection to this host.
pub fn cannot_connect(error: &Error) -> bool {
    match error {
        Error::NoDataConnection { .. } => true,
        Error::Refused { code, .. } => *code == NO_DATA_CONNECTION,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};

    use super::super::test_server::{Answer, TestServer};
    use super::*;

    fn sessions(server: &TestServer) -> Sessions {
        Sessions::new(server.location(), Options::default())
    }

    #[test]
    fn no_thread_waits_for_a_session_if_all_attempts_to_open_one_fail() {
        for (end, most) in [(Answer::Close, SESSIONS), (Answer::Lines("530 no\r\n"), 1)] {
            let all = Arc::new(Barrier::new(SESSIONS));
            let server = TestServer::start("", move |session, _| {
                if session < SESSIONS {
                    all.wait();
                }
                end
            });
            let sessions = sessions(&server);
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..SESSIONS)
                    .map(|_| scope.spawn(|| sessions.with(|_| Ok(()))))
                    .collect();
                for thread in threads {
                    assert!(thread.join().unwrap().is_err());
                }
            });
            let state = lock(&sessions.state);
            assert_eq!((state.open, state.most), (0, most));
        }
    }

    #[test]
    fn a_lost_attempt_to_open_a_session_does_not_shrink_their_number() {
        let server = TestServer::start("", |session, _| {
            if session == 1 {
                Answer::Close
            } else {
                Answer::Usual
            }
        });
        let sessions = sessions(&server);
        sessions
            .with(|_| {
                // The first session is in use.
                sessions.with(|_| Ok(())).unwrap();
                Ok(())
            })
            .unwrap();
        let state = lock(&sessions.state);
        assert_eq!((state.open, state.most), (2, SESSIONS));
    }

    #[test]
    fn sessions_that_the_server_ended_while_idle_do_not_use_up_the_attempts() {
        let server = TestServer::start("", |session, command| match command {
            "PWD" if session < SESSIONS => Answer::Lines("421 Idle Timeout\r\n"),
            _ => Answer::Usual,
        });
        let sessions = sessions(&server);
        for _ in 0..SESSIONS {
            sessions.add(sessions.open_first().unwrap());
        }
        let status = |session: &mut Session| session.is_directory(b"/").map(|_| ());
        assert!(sessions.with(status).is_ok());
        assert_eq!(lock(&sessions.state).open, 1);
    }

    #[test]
    fn a_session_of_a_large_file_is_used_for_the_next_one() {
        let server = TestServer::start("", |_, _| Answer::Usual);
        let sessions = sessions(&server).with_connections(Some(100));
        sessions.add(sessions.open_first().unwrap());
        assert_eq!(sessions.connections.get(), Some(&64));
        let first = sessions.open_for_file().unwrap();
        sessions.keep_for_file(first);
        let before = server.commands().len();
        let second = sessions.open_for_file().unwrap();
        assert_eq!(server.commands().len(), before);
        sessions.keep_for_file(second);
        lock(&sessions.kept)[0].0 -= KEPT;
        sessions.open_for_file().unwrap();
        assert!(server.commands().len() > before);
    }

    #[test]
    fn each_thread_whose_session_is_behind_a_firewall_continues_in_stream_mode() {
        let server = TestServer::start(" PARALLEL\r\n", |_, _| Answer::Usual);
        let sessions = sessions(&server);
        let both = Barrier::new(2);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        sessions.with(|session| {
                            if !session.is_extended() {
                                return Ok(());
                            }
                            both.wait();
                            Err(Error::NoDataConnection { seconds: 20 })
                        })
                    })
                })
                .collect();
            for thread in threads {
                thread.join().unwrap().unwrap();
            }
        });
    }
}
