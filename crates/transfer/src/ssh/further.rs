//! Further ssh processes, used if no direct stream opens. Each has its own TCP connection, so the
//! window of one connection is not the limit. They never ask the user; a host that requires a
//! password keeps its single channel.

use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longhaul_engine::session::DialError;
use longhaul_net::Stream;
use longhaul_net::clear;

use super::PROTECTION;
use super::command::Start;
use super::greeting::{Line, REMOTE};
use super::master::{NO_MORE_SESSIONS, Through};
use super::process::{Login, SshProcess, await_greeting};
use super::remote_end::was_refused;

/// Maximum number of simultaneous logins. sshd drops some of those beyond ten (MaxStartups), and
/// other users log in as well.
const LOGINS_AT_ONCE: usize = 4;

/// Message of the remote end if the session has ended.
pub const ENDED: &str = "cannot join the session";

/// Maximum time for one login.
const LOGIN_WITHIN: Duration = Duration::from_secs(30);

/// The further ssh processes of a session.
pub struct Further {
    start: Start,
    /// Name of the remote channel that the processes join; `None` if the remote end accepts no
    /// further channels.
    channel: Option<String>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    logging_in: usize,
    /// Processes that are logged in but unused; emptied once a direct route is known. Each stream
    /// drops before its process, which ends with it.
    ready: Vec<(Stream, SshProcess)>,
    abandoned: bool,
    /// Processes that carry or carried data.
    running: Vec<SshProcess>,
    /// Maximum number that ran at the same time.
    most: usize,
    /// Reason why no more processes can be started.
    refused: Option<String>,
    /// If true, logins run one at a time until one has succeeded.
    careful: bool,
    /// Reasons why the routes tried so far are closed, one per route.
    refusals: Vec<String>,
}

impl State {
    /// Returns the maximum number of simultaneous logins.
    fn at_once(&self) -> usize {
        if self.careful { 1 } else { LOGINS_AT_ONCE }
    }

    /// Takes a stream that is already logged in, if there is one.
    fn take_ready(&mut self) -> Option<Stream> {
        self.ready.retain(|(_, process)| !process.has_ended());
        let ready = self.ready.pop()?;
        Some(self.run(ready))
    }

    /// Moves a process to the running ones and returns its stream.
    fn run(&mut self, (stream, process): (Stream, SshProcess)) -> Stream {
        self.running.push(process);
        self.most = self.most.max(self.running.len());
        stream
    }
}

impl Further {
    /// Creates the state without starting a process.
    pub fn new(start: Start, channel: Option<String>) -> Further {
        Further {
            start,
            channel,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Limits logins to one at a time until one succeeds. Used if the user may have typed a
    /// password: several simultaneous failures make sshd reject this host for some time
    /// (PerSourcePenalties).
    pub fn be_careful(&self) {
        self.lock().careful = true;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the maximum number that ran at the same time, and the reason why no more could be
    /// started, if any.
    pub fn count(&self) -> (usize, Option<String>) {
        let state = self.lock();
        (state.most, state.refused.clone())
    }

    /// Logs in further processes in the background, up to `most`, until a direct route is known. A
    /// login takes about twelve round trips, as long as the search for a direct route. Calls
    /// `is_ready` after each login.
    pub fn prepare(self: &Arc<Further>, most: usize, is_ready: &Arc<dyn Fn() + Send + Sync>) {
        for _ in 0..LOGINS_AT_ONCE.min(most) {
            let (further, is_ready) = (Arc::clone(self), Arc::clone(is_ready));
            // If the thread does not start, the login happens on demand.
            let _ = std::thread::Builder::new()
                .name("log in".to_owned())
                .spawn(move || {
                    while further.make_ready(most) {
                        is_ready();
                    }
                });
        }
    }

    /// Logs in one process; true if it is ready for use.
    fn make_ready(&self, most: usize) -> bool {
        if self.enter(most, false).is_err() {
            return false;
        }
        let opened = self.log_in();
        let unwanted = {
            let mut state = self.leave(&opened);
            match opened {
                Ok(opened) if !state.abandoned => {
                    state.ready.push(opened);
                    return true;
                }
                other => other,
            }
        };
        // Ending a process takes time, so the lock is released first.
        drop(unwanted);
        false
    }

    /// True if a process is logged in and unused.
    pub fn is_ready(&self) -> bool {
        !self.lock().ready.is_empty()
    }

    /// Takes a stream that is already logged in, if there is one.
    pub fn take_ready(&self) -> Option<Stream> {
        self.lock().take_ready()
    }

    /// Ends all further processes because a stream on a direct route is open. Blocks that they had
    /// not delivered are sent again over other streams.
    pub fn abandon(&self) {
        let (ready, running) = {
            let mut state = self.lock();
            state.abandoned = true;
            (
                std::mem::take(&mut state.ready),
                std::mem::take(&mut state.running),
            )
        };
        if !ready.is_empty() || !running.is_empty() {
            // A thread ends the processes, so that the caller does not wait.
            let _ = std::thread::Builder::new()
                .name("log out".to_owned())
                .spawn(move || {
                    running.into_iter().for_each(SshProcess::kill);
                    drop(ready);
                });
        }
    }

    /// Records the end of a login.
    fn leave(&self, opened: &Result<(Stream, SshProcess), DialError>) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        state.logging_in -= 1;
        match opened {
            Ok(_) => state.careful = false,
            Err(DialError::Refused(text)) => state.refused = Some(text.clone()),
            Err(DialError::Network(_)) => {}
        }
        self.changed.notify_all();
        state
    }

    /// Opens one more stream if fewer than `most` are open.
    ///
    /// # Errors
    ///
    /// `Refused` if no more can be opened; `Network` if a later attempt may succeed.
    pub fn open(&self, most: usize) -> Result<Stream, DialError> {
        if let Some(ready) = self.enter(most, true)? {
            return Ok(ready);
        }
        let opened = self.log_in();
        let mut state = self.leave(&opened);
        opened.map(|opened| state.run(opened))
    }

    /// Opens a stream to a session that has lost all its streams. Returns `Refused` only if the
    /// session has ended, since other failures may be temporary.
    ///
    /// # Errors
    ///
    /// [`DialError`].
    pub fn reach(&self) -> Result<Stream, DialError> {
        self.open(usize::MAX).map_err(|error| match error {
            DialError::Refused(text) if !text.contains(ENDED) => DialError::Network(text),
            other => other,
        })
    }

    /// Waits until a login may start. If `takes_ready` is true and a stream is already logged in,
    /// returns that stream instead.
    fn enter(&self, most: usize, takes_ready: bool) -> Result<Option<Stream>, DialError> {
        let mut state = self.lock();
        loop {
            state.running.retain(|process| !process.has_ended());
            if takes_ready && let Some(ready) = state.take_ready() {
                return Ok(Some(ready));
            }
            if let Some(text) = &state.refused {
                return Err(DialError::Refused(text.clone()));
            }
            if !takes_ready && state.abandoned {
                return Err(DialError::Network("a better way is known".to_owned()));
            }
            let is_full = state.running.len() + state.ready.len() + state.logging_in >= most;
            // The login in progress may be unclaimed.
            if is_full && !(takes_ready && state.logging_in > 0) {
                return Err(DialError::Network("there are as many as help".to_owned()));
            }
            if !is_full && state.logging_in < state.at_once() {
                state.logging_in += 1;
                return Ok(None);
            }
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn log_in(&self) -> Result<(Stream, SshProcess), DialError> {
        let Some(channel) = &self.channel else {
            let text = "the remote host takes no further channels";
            return Err(DialError::Refused(text.to_owned()));
        };
        let ways = self.start.ways();
        loop {
            let way = self.lock().refusals.len();
            let through = ways.get(way).copied().unwrap_or(Through::Itself);
            let why = match log_in(&self.start, channel, through) {
                Ok((channel, process)) => {
                    return Ok((clear::over_local(channel, PROTECTION), process));
                }
                Err(DialError::Refused(why)) if !why.contains(ENDED) => why,
                Err(error) => return Err(error),
            };
            let mut state = self.lock();
            if state.refusals.len() == way {
                state.refusals.push(why);
            }
            if state.refusals.len() >= ways.len() {
                return Err(DialError::Refused(state.refusals.join("; ")));
            }
        }
    }
}

/// Logs in by the first route that does not refuse.
///
/// # Errors
///
/// See [`log_in`].
pub fn log_in_somehow(start: &Start, channel: &str) -> Result<(UnixStream, SshProcess), DialError> {
    let mut found = Err(DialError::Refused("there is no way".to_owned()));
    for through in start.ways() {
        found = log_in(start, channel, through);
        if !matches!(found, Err(DialError::Refused(_))) {
            break;
        }
    }
    found
}

/// Opens a further channel to the session that listens under this name.
///
/// # Errors
///
/// `Refused` if no channel can be opened; `Network` if a later attempt may succeed.
pub fn log_in(
    start: &Start,
    channel: &str,
    through: Through,
) -> Result<(UnixStream, SshProcess), DialError> {
    let network = |error: std::io::Error| DialError::Network(error.to_string());
    let line = start.further(channel, through);
    let (mut process, channel) = SshProcess::start(&line, Login::Silent).map_err(network)?;
    let heard = await_greeting(process.hear(&channel, LOGIN_WITHIN), REMOTE);
    match heard {
        Ok(Line::Greeting(_)) => Ok((channel, process)),
        _ => {
            drop(channel);
            process.end();
            let said = process.said();
            let why = said.lines().last().unwrap_or("it said nothing").to_owned();
            let is_refused = was_refused(&said) || said.contains(ENDED);
            if through == Through::Itself && was_refused(&said) {
                start.sharing.needs_somebody();
            }
            Err(match (is_refused, through) {
                (true, _) => DialError::Refused(why),
                // A master that fails once is not used again.
                (false, Through::Master) => {
                    DialError::Refused(if said.contains(NO_MORE_SESSIONS) {
                        "MaxSessions of the host's sshd takes no more channels".to_owned()
                    } else {
                        why
                    })
                }
                // sshd may be overloaded temporarily.
                (false, Through::Itself) => DialError::Network(why),
            })
        }
    }
}
