//! Further ssh processes, where no direct stream opens: each is a TCP
//! connection of its own, so that one connection's window is not the limit.
//! Nobody is asked for anything; a host that wants a password has one channel.

use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longhaul_engine::session::DialError;
use longhaul_net::Stream;
use longhaul_net::clear;

use super::PROTECTION;
use super::command::Start;
use super::far::was_refused;
use super::greeting::{Line, REMOTE};
use super::master::{NO_MORE_SESSIONS, Through};
use super::process::{Login, SshProcess, await_greeting};

/// Logins at the same time: sshd drops some of those beyond ten (MaxStartups),
/// and others log in too.
const LOGINS_AT_ONCE: usize = 4;

/// What the far side says where the session is not there any more.
pub const ENDED: &str = "cannot join the session";

/// How long one login may take.
const LOGIN_WITHIN: Duration = Duration::from_secs(30);

/// The further ssh processes of a session.
pub struct Further {
    start: Start,
    /// What they join on the far side; `None` if it takes none.
    channel: Option<String>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    logging_in: usize,
    /// Those that are logged in for the caller next; none are kept ready any more once a better
    /// way is known. A stream goes before its process, which ends with it.
    ready: Vec<(Stream, SshProcess)>,
    abandoned: bool,
    /// Those that carry something, or did.
    running: Vec<SshProcess>,
    /// Most of them at once.
    most: usize,
    /// Why there can be no more.
    refused: Option<String>,
    /// One login at a time, until one has succeeded.
    careful: bool,
    /// Why the first of the ways to the host are closed, one reason for each.
    refusals: Vec<String>,
}

impl State {
    /// This many logins at the same time.
    fn at_once(&self) -> usize {
        if self.careful { 1 } else { LOGINS_AT_ONCE }
    }

    /// One that is logged in already, if any is.
    fn take_ready(&mut self) -> Option<Stream> {
        self.ready.retain(|(_, process)| !process.has_ended());
        let ready = self.ready.pop()?;
        Some(self.run(ready))
    }

    /// This one carries something from now on.
    fn run(&mut self, (stream, process): (Stream, SshProcess)) -> Stream {
        self.running.push(process);
        self.most = self.most.max(self.running.len());
        stream
    }
}

impl Further {
    /// None yet.
    pub fn new(start: Start, channel: Option<String>) -> Further {
        Further {
            start,
            channel,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Somebody may have typed a password: one login is tried before others. Several
    /// that fail at the same time have sshd refuse this host for a while (its
    /// PerSourcePenalties).
    pub fn be_careful(&self) {
        self.lock().careful = true;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many carried something at once, and why there were no more where
    /// there could not be.
    pub fn count(&self) -> (usize, Option<String>) {
        let state = self.lock();
        (state.most, state.refused.clone())
    }

    /// Logs in in the background until there are this many, or a better way is known: a login
    /// takes a dozen round trips, as long as direct ways are looked for. `is_ready` is called for
    /// each.
    pub fn prepare(self: &Arc<Further>, most: usize, is_ready: &Arc<dyn Fn() + Send + Sync>) {
        for _ in 0..LOGINS_AT_ONCE.min(most) {
            let (further, is_ready) = (Arc::clone(self), Arc::clone(is_ready));
            // Without it the login is made when it is needed.
            let _ = std::thread::Builder::new()
                .name("log in".to_owned())
                .spawn(move || {
                    while further.make_ready(most) {
                        is_ready();
                    }
                });
        }
    }

    /// Whether there is one more.
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
        // Ending a process takes a moment.
        drop(unwanted);
        false
    }

    /// Whether one is logged in that carries nothing yet.
    pub fn is_ready(&self) -> bool {
        !self.lock().ready.is_empty()
    }

    /// One that is logged in already.
    pub fn take_ready(&self) -> Option<Stream> {
        self.lock().take_ready()
    }

    /// A better way is known, and a stream on it carries what there is: nothing is
    /// kept ready, and what carried something meanwhile is ended. What it had not
    /// brought goes over others.
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
            // Nobody waits for their end.
            let _ = std::thread::Builder::new()
                .name("log out".to_owned())
                .spawn(move || {
                    running.into_iter().for_each(SshProcess::kill);
                    drop(ready);
                });
        }
    }

    /// A login has ended.
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

    /// One more, of at most this many.
    ///
    /// # Errors
    ///
    /// Refused where there can be no more, else to be tried again.
    pub fn open(&self, most: usize) -> Result<Stream, DialError> {
        if let Some(ready) = self.enter(most, true)? {
            return Ok(ready);
        }
        let opened = self.log_in();
        let mut state = self.leave(&opened);
        opened.map(|opened| state.run(opened))
    }

    /// One to a session that has lost all its streams: refused only where that
    /// has ended, since the others may come back.
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

    /// Waits until a login may begin; gives one that is ready, if it is wanted,
    /// instead.
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
            // One that logs in may be nobody's yet.
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
            let text = "the far side takes no further channels";
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

/// By the first way that is not refused.
///
/// # Errors
///
/// As [`log_in`].
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

/// A further channel to the session that takes them under that name.
///
/// # Errors
///
/// Refused where there can be none, else to be tried again.
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
                // A master that does not serve once is left.
                (false, Through::Master) => {
                    DialError::Refused(if said.contains(NO_MORE_SESSIONS) {
                        "MaxSessions of the host's sshd takes no more channels".to_owned()
                    } else {
                        why
                    })
                }
                // It may be sshd that had enough for the moment.
                (false, Through::Itself) => DialError::Network(why),
            })
        }
    }
}
