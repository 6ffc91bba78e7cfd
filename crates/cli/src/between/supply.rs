//! Channels to a job at a daemon, for a copy between two daemons of which none
//! connects to the other: some wait there at any time, and each that the job takes
//! is joined here to a connection to the other daemon, and replaced. The two speak
//! TLS with each other over it: this host sees nothing of what it carries.

use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longhaul_engine::net::{Stream, relay};
use longhaul_engine::session::opening::OpenError;
use longhaul_proto::handshake::{Refusal, Task};

use crate::commands::connection::{Daemon, open_stop};
use crate::messages::{Exit, Stop, say};

/// Channels that wait to be taken: a job takes several at once, and until each is
/// replaced three round trips go by.
const WAITING: usize = 8;

/// Channels at a time, those that wait among them.
const MOST: usize = 64;

/// How long to wait where none could be had, or one ended that nobody took: the
/// next try would fail at once, and the next.
const PAUSE: Duration = Duration::from_secs(1);

/// What a channel that was taken begins with, in bytes at most: the greeting of
/// TLS is shorter.
const FIRST_BYTES: usize = 16 << 10;

/// Both daemons.
pub struct Ends {
    /// The one that runs the job.
    pub runs: Daemon,
    /// As it is named in a URL.
    pub host: String,
    /// What channels are asked for under there.
    pub name: String,
    /// The other one.
    pub other: Daemon,
}

/// The channels; no further ones come once it is dropped.
pub struct Supply(Arc<Shared>);

struct Shared {
    ends: Ends,
    state: Mutex<State>,
    changed: Condvar,
    /// That the other one cannot be connected to was said.
    told: AtomicBool,
}

#[derive(Default)]
struct State {
    channels: usize,
    over: bool,
}

/// One of the channels; given back when dropped.
struct Held(Arc<Shared>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.lock().channels -= 1;
        self.0.changed.notify_one();
    }
}

impl Supply {
    /// Opens channels from now on.
    ///
    /// # Errors
    ///
    /// Where the first cannot be had, or the system gives no thread.
    pub fn begin(ends: Ends) -> Result<Supply, Stop> {
        let shared = Arc::new(Shared {
            ends,
            state: Mutex::default(),
            changed: Condvar::new(),
            told: AtomicBool::new(false),
        });
        let ends = &shared.ends;
        let mut first = Some(
            ends.channel()?
                .map_err(|error| open_stop(&ends.host, &error))?,
        );
        let supply = Supply(Arc::clone(&shared));
        for _ in 0..WAITING {
            let (shared, first) = (Arc::clone(&shared), first.take());
            let thread = std::thread::Builder::new().name("channel".into());
            let started = thread.spawn(move || shared.keep(first));
            started.map_err(|error| Stop::because(Exit::Local, error))?;
        }
        Ok(supply)
    }
}

impl Drop for Supply {
    fn drop(&mut self) {
        self.0.lock().over = true;
        self.0.changed.notify_all();
    }
}

impl Ends {
    /// One more channel to the job, or why there is none.
    fn channel(&self) -> Result<Result<Stream, OpenError>, Stop> {
        self.runs.errand(Task::Channel(self.name.clone()))
    }
}

/// What became of a channel.
enum Came {
    /// The job took it.
    Taken,
    /// It ended, or there was none.
    Nothing,
    /// The job is gone.
    Gone,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps one waiting.
    fn keep(self: &Arc<Shared>, mut first: Option<Stream>) {
        while let Some(held) = self.hold() {
            match self.offer(first.take(), held) {
                Came::Taken => {}
                Came::Gone => return,
                Came::Nothing => self.pause(),
            }
        }
    }

    /// Waits for room for one more; none comes where it is over.
    fn hold(self: &Arc<Shared>) -> Option<Held> {
        let full = |state: &mut State| state.channels >= MOST && !state.over;
        let waited = self.changed.wait_while(self.lock(), full);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        if state.over {
            return None;
        }
        state.channels += 1;
        Some(Held(Arc::clone(self)))
    }

    fn pause(&self) {
        let waits = |state: &mut State| !state.over;
        // Either way it is looked whether it is over.
        drop(self.changed.wait_timeout_while(self.lock(), PAUSE, waits));
    }

    /// Offers the job a channel, and carries it once it is taken.
    fn offer(&self, channel: Option<Stream>, held: Held) -> Came {
        let channel = match channel.map_or_else(|| self.ends.channel(), |channel| Ok(Ok(channel))) {
            Ok(Ok(channel)) => channel,
            Ok(Err(OpenError::Refused(refused))) if refused.refusal == Refusal::NoSession => {
                return Came::Gone;
            }
            Ok(Err(_)) | Err(_) => return Came::Nothing,
        };
        self.carry(channel, held)
    }

    /// The other daemon is connected to when something is there to say to it: it
    /// does not wait long for who is silent.
    fn carry(&self, mut channel: Stream, held: Held) -> Came {
        let mut first = vec![0; FIRST_BYTES];
        let Ok(count @ 1..) = channel.reader.read(&mut first) else {
            return Came::Nothing;
        };
        match self.connect(&first[..count]) {
            // The ends of the session notice what is lost.
            Ok(socket) => drop(relay::carry_stream(channel, socket, held)),
            Err(stop) if !self.told.swap(true, Ordering::Relaxed) => say(&stop.text),
            Err(_) => {}
        }
        Came::Taken
    }

    fn connect(&self, first: &[u8]) -> Result<TcpStream, Stop> {
        let mut socket = self.ends.other.dial()?;
        let said = socket.write_all(first);
        said.map_err(|error: io::Error| Stop::because(Exit::Connection, error))?;
        Ok(socket)
    }
}
