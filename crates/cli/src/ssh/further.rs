//! Further ssh processes, where no direct stream opens: each is a TCP
//! connection of its own, so that one connection's window is not the limit.
//! Nobody is asked for anything; a host that wants a password has one channel.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longhaul_engine::net::Stream;
use longhaul_engine::net::clear;
use longhaul_engine::session::DialError;

use super::PROTECTION;
use super::command::Start;
use super::far::was_refused;
use super::greeting::{Line, REMOTE};
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
    /// What they join on the far side; none where it takes none.
    channel: Option<String>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    logging_in: usize,
    /// Those that carry something, or did.
    running: Vec<SshProcess>,
    /// Most of them at once.
    most: usize,
    /// Why there can be no more.
    refused: Option<String>,
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many carried something at once, and why there were no more where
    /// there could not be.
    pub fn count(&self) -> (usize, Option<String>) {
        let state = self.lock();
        (state.most, state.refused.clone())
    }

    /// One more, of at most so many.
    ///
    /// # Errors
    ///
    /// Refused where there can be no more, else to be tried again.
    pub fn open(&self, most: usize) -> Result<Stream, DialError> {
        self.enter(most)?;
        let opened = self.log_in();
        let mut state = self.lock();
        state.logging_in -= 1;
        self.changed.notify_all();
        match opened {
            Ok((process, stream)) => {
                state.running.push(process);
                state.most = state.most.max(state.running.len());
                Ok(stream)
            }
            Err(error) => {
                if let DialError::Refused(text) = &error {
                    state.refused = Some(text.clone());
                }
                Err(error)
            }
        }
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

    /// Waits until a login may begin.
    fn enter(&self, most: usize) -> Result<(), DialError> {
        let mut state = self.lock();
        loop {
            state.running.retain(|process| !process.has_ended());
            if let Some(text) = &state.refused {
                return Err(DialError::Refused(text.clone()));
            }
            if state.running.len() + state.logging_in >= most {
                return Err(DialError::Network("there are as many as help".to_owned()));
            }
            if state.logging_in < LOGINS_AT_ONCE {
                state.logging_in += 1;
                return Ok(());
            }
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn log_in(&self) -> Result<(SshProcess, Stream), DialError> {
        let network = |error: std::io::Error| DialError::Network(error.to_string());
        let Some(channel) = &self.channel else {
            let text = "the far side takes no further channels";
            return Err(DialError::Refused(text.to_owned()));
        };
        let line = self.start.further(channel);
        let (mut process, channel) = SshProcess::start(&line, Login::Silent).map_err(network)?;
        channel
            .set_read_timeout(Some(LOGIN_WITHIN))
            .map_err(network)?;
        match await_greeting(&channel, REMOTE) {
            Ok(Line::Greeting(_)) => {
                channel.set_read_timeout(None).map_err(network)?;
                Ok((process, clear::over_local(channel, PROTECTION)))
            }
            _ => {
                drop(channel);
                process.end();
                let said = process.said();
                let why = said.lines().last().unwrap_or("it said nothing").to_owned();
                // Anything else may be sshd that had enough for the moment.
                Err(match was_refused(&said) || said.contains(ENDED) {
                    true => DialError::Refused(why),
                    false => DialError::Network(why),
                })
            }
        }
    }
}
