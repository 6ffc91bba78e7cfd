//! Channels to a job through this host, where the user asked for it: some wait for
//! it at any time, and each that it took or that was lost is replaced. Over SSH to
//! both hosts each is joined here to a channel to the other one, and both wait. A
//! daemon waits for nobody who is silent: it is connected to when the job has taken
//! the channel, and the two speak TLS with each other over it, so that this host
//! sees nothing of what it carries.

use std::io::{self, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longhaul_engine::session::DialError;
use longhaul_engine::session::opening::OpenError;
use longhaul_net::{Stream, clear, relay};
use longhaul_proto::handshake::{Refusal, Task};

use crate::client::connection::Daemon;
use crate::console::say;
use crate::ssh::PROTECTION;
use crate::ssh::command::Start;
use crate::ssh::further::log_in_somehow;
use crate::ssh::process::SshProcess;
use crate::stop::{Exit, Stop};

/// Channels that wait to be taken, where a daemon has the job: that takes several
/// at once, and until each is replaced three round trips go by.
const WAITING: usize = 8;

/// Channels at a time, those that wait among them.
const MOST: usize = 64;

/// Both of those where SSH leads to the job: each is a login, and a TCP connection
/// with a window of its own.
const OVER_SSH: usize = 4;

/// How long to wait where none could be had, or one ended that nobody took: the
/// next try would fail at once, and the next.
const PAUSE: Duration = Duration::from_secs(1);

/// What a channel that was taken begins with, in bytes at most: the greeting of
/// TLS is shorter.
const FIRST_BYTES: usize = 16 << 10;

/// The host that runs the job, and what channels are asked for under there.
pub enum Runs {
    /// A daemon.
    Daemon(Box<Daemon>, String),
    /// One that ssh reaches.
    Ssh(Start, String),
}

/// The other host.
pub enum Beyond {
    /// A daemon.
    Daemon(Box<Daemon>),
    /// One that ssh reaches, and what channels are asked for under there.
    Ssh(Start, String),
}

/// A channel, and its ssh, which ends after it; `None` if somebody else ends that.
type Opened<S> = (S, Option<SshProcess>);

/// The first channel to each host, as far as they are there already.
type First = (Option<Stream>, Option<UnixStream>);

/// The channels; no further ones come once it is dropped.
pub struct RelayChannels(Arc<Shared>);

struct Shared {
    runs: Runs,
    other: Beyond,
    state: Mutex<State>,
    changed: Condvar,
    /// That the other one cannot be connected to was said.
    told: AtomicBool,
    /// Whether a further channel was ever had, where only the first asked somebody.
    logged_in: AtomicBool,
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
        self.0.changed.notify_all();
    }
}

/// Why there is no channel.
enum Lost {
    /// It ended, or none could be had now.
    Once,
    /// None can be had any more.
    ForGood,
}

impl RelayChannels {
    /// Opens channels from now on, beside the first to the job, and to the other
    /// host where there is one.
    ///
    /// # Errors
    ///
    /// Where the system gives no thread.
    pub fn begin(
        runs: Runs,
        other: Beyond,
        (job, beyond): (Stream, Option<UnixStream>),
    ) -> Result<RelayChannels, Stop> {
        // Over SSH others follow the first login of a further one: several that fail at
        // the same time, where somebody typed a password, have sshd refuse this host
        // for a while.
        let is_daemon = matches!(runs, Runs::Daemon(..));
        let shared = Arc::new(Shared {
            runs,
            other,
            state: Mutex::default(),
            changed: Condvar::new(),
            told: AtomicBool::new(false),
            logged_in: AtomicBool::new(is_daemon),
        });
        let channels_through = RelayChannels(Arc::clone(&shared));
        shared.start((Some(job), beyond))?;
        let further = if is_daemon { shared.waiting() - 1 } else { 1 };
        for _ in 0..further {
            shared.start(First::default())?;
        }
        Ok(channels_through)
    }
}

impl Drop for RelayChannels {
    fn drop(&mut self) {
        self.0.lock().over = true;
        self.0.changed.notify_all();
    }
}

impl Runs {
    /// One more channel to the job.
    fn open(&self) -> Result<Opened<Stream>, Lost> {
        match self {
            Runs::Ssh(start, name) => {
                let (socket, process) = over_ssh(start, name)?;
                Ok((clear::over_local(socket, PROTECTION), process))
            }
            Runs::Daemon(daemon, name) => match daemon.control_request(Task::Channel(name.clone()))
            {
                Ok(Ok(stream)) => Ok((stream, None)),
                // Of all that is refused only a busy daemon is another one later.
                Ok(Err(OpenError::Refused(refused))) if refused.refusal != Refusal::Busy => {
                    Err(Lost::ForGood)
                }
                Ok(Err(_)) | Err(_) => Err(Lost::Once),
            },
        }
    }
}

fn over_ssh(start: &Start, name: &str) -> Result<Opened<UnixStream>, Lost> {
    match log_in_somehow(start, name) {
        Ok((socket, process)) => Ok((socket, Some(process))),
        Err(DialError::Network(_)) => Err(Lost::Once),
        // One who wants a password has one channel.
        Err(DialError::Refused(_)) => Err(Lost::ForGood),
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waiting(&self) -> usize {
        match self.runs {
            Runs::Daemon(..) => WAITING,
            Runs::Ssh(..) => OVER_SSH,
        }
    }

    fn most(&self) -> usize {
        match self.runs {
            Runs::Daemon(..) => MOST,
            Runs::Ssh(..) => OVER_SSH,
        }
    }

    /// Begins to keep one waiting.
    fn start(self: &Arc<Shared>, first: First) -> Result<(), Stop> {
        let shared = Arc::clone(self);
        let thread = std::thread::Builder::new().name("channel".into());
        let started = thread.spawn(move || shared.keep(first));
        started
            .map(drop)
            .map_err(|error| Stop::because(Exit::Local, error))
    }

    /// A further channel was had: others will be.
    fn note_login(self: &Arc<Shared>) {
        if !self.logged_in.swap(true, Ordering::Relaxed) {
            for _ in 2..self.waiting() {
                // Without a thread there are fewer.
                let _ = self.start(First::default());
            }
        }
    }

    /// Keeps one waiting.
    fn keep(self: &Arc<Shared>, mut first: First) {
        while let Some(held) = self.hold() {
            match self.offer(std::mem::take(&mut first), held) {
                Ok(()) => {}
                Err(Lost::Once) => self.pause(),
                Err(Lost::ForGood) => return,
            }
        }
    }

    /// Waits for room for one more; none comes where it is over.
    fn hold(self: &Arc<Shared>) -> Option<Held> {
        let full = |state: &mut State| state.channels >= self.most() && !state.over;
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

    /// Offers the job a channel, and carries it, to a daemon once it is taken.
    fn offer(self: &Arc<Shared>, (job, beyond): First, held: Held) -> Result<(), Lost> {
        let to_job = || match job {
            Some(stream) => Ok((stream, None)),
            None => self.runs.open().inspect(|_| self.note_login()),
        };
        match &self.other {
            Beyond::Daemon(daemon) => self.carry(daemon, to_job()?, held),
            Beyond::Ssh(start, name) => {
                // What the job is offered leads to somebody.
                let beyond =
                    beyond.map_or_else(|| over_ssh(start, name), |socket| Ok((socket, None)))?;
                let job = to_job()?;
                let held = (held, job.1, beyond.1);
                relay::carry_stream(job.0, beyond.0, held).map_err(|_| Lost::Once)
            }
        }
    }

    /// The daemon is connected to when something is there to say to it.
    fn carry(&self, daemon: &Daemon, mut job: Opened<Stream>, held: Held) -> Result<(), Lost> {
        let mut first = vec![0; FIRST_BYTES];
        let Ok(count @ 1..) = job.0.reader.read(&mut first) else {
            return Err(Lost::Once);
        };
        match connect(daemon, &first[..count]) {
            // The ends of the session notice what is lost.
            Ok(socket) => drop(relay::carry_stream(job.0, socket, (held, job.1))),
            Err(stop) => {
                if !self.told.swap(true, Ordering::Relaxed) {
                    say(&stop.text);
                }
                return Err(Lost::Once);
            }
        }
        Ok(())
    }
}

fn connect(daemon: &Daemon, first: &[u8]) -> Result<TcpStream, Stop> {
    let mut socket = daemon.dial()?;
    let said = socket.write_all(first);
    said.map_err(|error: io::Error| Stop::because(Exit::Connection, error))?;
    Ok(socket)
}
