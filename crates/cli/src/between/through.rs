//! Carries a job's channels through this host, where the user asked for it:
//! each joins one ssh to the host that runs the job and one to the other.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::ssh::command::Start;
use crate::ssh::greeting::{Line, REMOTE};
use crate::ssh::process::{Login, SshProcess, await_greeting};

/// Further channels: each is two TCP connections with windows of their own.
const FURTHER: usize = 3;

/// How long one login may take.
const LOGIN_WITHIN: Duration = Duration::from_secs(30);

/// An end that further channels join: how ssh reaches it, and its name there.
#[derive(Clone)]
pub struct End {
    /// How ssh reaches it.
    pub start: Start,
    /// What channels join.
    pub channel: String,
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
        let (left, right) = (log_in(left)?, log_in(right)?);
        pump([left.1, right.1]).ok()?;
        let mut processes = self
            .processes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        processes.extend([left.0, right.0]);
        Some(())
    }
}

fn log_in(end: &End) -> Option<(SshProcess, UnixStream)> {
    let line = end.start.further(&end.channel);
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
