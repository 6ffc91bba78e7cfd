//! Carries a job's channels through this host, where the user asked for it:
//! each joins one ssh to the host that runs the job and one to the other, or a
//! stream to the daemon there.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longhaul_engine::net::{Stream, relay};

use crate::commands::connection::Daemon;
use crate::messages::{Exit, Stop};
use crate::ssh::command::Start;
use crate::ssh::greeting::{Line, REMOTE};
use crate::ssh::process::{Login, SshProcess, await_greeting};

/// Further channels: each is two TCP connections with windows of their own.
const FURTHER: usize = 3;

/// How long one login may take.
const LOGIN_WITHIN: Duration = Duration::from_secs(30);

/// An end that further channels join.
#[derive(Clone)]
pub enum End {
    /// Over SSH.
    Ssh {
        /// How ssh reaches it.
        start: Start,
        /// What channels join there.
        channel: String,
    },
    /// A daemon, which knows this host.
    Daemon(Arc<Daemon>),
}

/// A channel, and the ssh that it is one of.
type Opened = (Option<SshProcess>, UnixStream);

impl End {
    /// One more channel, where nobody need be asked.
    fn open(&self) -> Option<Opened> {
        match self {
            End::Ssh { start, channel } => {
                let (process, channel) = log_in(start, channel)?;
                Some((Some(process), channel))
            }
            End::Daemon(daemon) => Some((None, channel_to(daemon).ok()?)),
        }
    }
}

/// The channels that are carried; they end with it.
#[derive(Clone, Default)]
pub struct Carried {
    processes: Arc<Mutex<Vec<SshProcess>>>,
}

impl Carried {
    /// Carries between two channels, and opens further ones where nobody need
    /// be asked.
    ///
    /// # Errors
    ///
    /// Where the system gives no thread.
    pub fn begin(first: [UnixStream; 2], ends: [End; 2]) -> io::Result<Carried> {
        pump(first)?;
        let carried = Carried::default();
        let own = carried.clone();
        let thread = std::thread::Builder::new().name("channels".into());
        thread.spawn(move || {
            for _ in 0..FURTHER {
                // One who wants a password has one channel.
                if own.add(&ends).is_none() {
                    return;
                }
            }
        })?;
        Ok(carried)
    }

    /// One more channel.
    fn add(&self, ends: &[End; 2]) -> Option<()> {
        let [left, right] = ends;
        let (left, right) = (left.open()?, right.open()?);
        pump([left.1, right.1]).ok()?;
        let mut processes = self
            .processes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        processes.extend(left.0.into_iter().chain(right.0));
        Some(())
    }
}

/// A channel to a daemon: what goes over it is encrypted from here to there.
///
/// # Errors
///
/// Where the daemon cannot be reached.
pub fn channel_to(daemon: &Daemon) -> Result<UnixStream, Stop> {
    carried(daemon.first_stream()?)
}

/// A local socket whose bytes a stream carries.
///
/// # Errors
///
/// Where the system gives no socket or thread.
pub fn carried(stream: Stream) -> Result<UnixStream, Stop> {
    let local = |error: io::Error| Stop::because(Exit::Local, error);
    let (near, far) = UnixStream::pair().map_err(local)?;
    relay::carry_stream(stream, far, ()).map_err(local)?;
    Ok(near)
}

fn log_in(start: &Start, channel: &str) -> Option<(SshProcess, UnixStream)> {
    let line = start.further(channel);
    let (process, channel) = SshProcess::start(&line, Login::Silent).ok()?;
    channel.set_read_timeout(Some(LOGIN_WITHIN)).ok()?;
    let Ok(Line::Greeting(_)) = await_greeting(&channel, REMOTE) else {
        return None;
    };
    channel.set_read_timeout(None).ok()?;
    Some((process, channel))
}

/// Carries both ways until both have ended.
fn pump([left, right]: [UnixStream; 2]) -> io::Result<()> {
    let back = (right.try_clone()?, left.try_clone()?);
    for (mut from, mut to) in [(left, right), back] {
        let thread = std::thread::Builder::new().name("carry".into());
        thread.spawn(move || {
            // The ends of the session notice what is lost.
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Write);
        })?;
    }
    Ok(())
}
