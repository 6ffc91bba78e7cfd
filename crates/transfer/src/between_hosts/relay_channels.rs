//! Relays channels of a job through this host, if the user asked for it. Some channels always wait
//! for the job, and each one that is taken or lost is replaced. If SSH leads to both hosts, each
//! waiting channel is already joined to one to the other host. A daemon closes silent connections,
//! so it is connected to only when the job takes the channel. The job and the daemon speak TLS
//! within the channel, so this host sees only encrypted data.

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

/// Number of waiting channels if a daemon runs the job. The job takes several at once, and
/// replacing one takes three round trips.
const WAITING: usize = 8;

/// Maximum number of channels, including the waiting ones.
const MOST: usize = 64;

/// Both of these limits if SSH leads to the job. Each channel is a login and a TCP connection with
/// its own window.
const OVER_SSH: usize = 4;

/// Pause after a channel could not be opened or ended unused, because an immediate attempt would
/// fail too.
const PAUSE: Duration = Duration::from_secs(1);

/// Maximum size of the first data of a channel, in bytes. A TLS ClientHello is shorter.
const FIRST_BYTES: usize = 16 << 10;

/// The host that runs the job, with the name under which it accepts channels.
pub enum Runs {
    /// A daemon.
    Daemon(Box<Daemon>, String),
    /// A host that ssh reaches.
    Ssh(Start, String),
}

/// The other host.
pub enum Beyond {
    /// A daemon.
    Daemon(Box<Daemon>),
    /// A host that ssh reaches, with the name under which it accepts channels.
    Ssh(Start, String),
}

/// A channel, and its ssh process, which ends after it. `None` if another owner ends the process.
type Opened<S> = (S, Option<SshProcess>);

/// The first channel to each host, if it is already open.
type First = (Option<Stream>, Option<UnixStream>);

/// The relayed channels. No further ones are opened once this is dropped.
pub struct RelayChannels(Arc<Shared>);

struct Shared {
    runs: Runs,
    other: Beyond,
    state: Mutex<State>,
    changed: Condvar,
    /// True if the failure to connect to the other host was already reported.
    told: AtomicBool,
    /// True if a further channel was opened. Over SSH, only the first login may have asked the
    /// user.
    logged_in: AtomicBool,
}

#[derive(Default)]
struct State {
    channels: usize,
    over: bool,
}

/// One of the channels. Dropping it makes room for another.
struct Held(Arc<Shared>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.lock().channels -= 1;
        self.0.changed.notify_all();
    }
}

/// The reason why there is no channel.
enum Lost {
    /// The channel ended, or cannot be opened at the moment.
    Once,
    /// No further channel can be opened.
    ForGood,
}

impl RelayChannels {
    /// Opens channels in addition to the first one to the job and, if given, the first one to the
    /// other host.
    ///
    /// # Errors
    ///
    /// Fails if the system cannot start a thread.
    pub fn begin(
        runs: Runs,
        other: Beyond,
        (job, beyond): (Stream, Option<UnixStream>),
    ) -> Result<RelayChannels, Stop> {
        // Over SSH only one further login is tried at first. If the user typed a password, further
        // logins fail, and several failures at once make sshd block this host for a while.
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
    /// Opens one more channel to the job.
    fn open(&self) -> Result<Opened<Stream>, Lost> {
        match self {
            Runs::Ssh(start, name) => {
                let (socket, process) = over_ssh(start, name)?;
                Ok((clear::over_local(socket, PROTECTION), process))
            }
            Runs::Daemon(daemon, name) => match daemon.control_request(Task::Channel(name.clone()))
            {
                Ok(Ok(stream)) => Ok((stream, None)),
                // A busy daemon may accept later; other refusals are final.
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
        // If the login needs a password, there is only the first channel.
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

    /// Starts a thread that keeps one channel waiting.
    fn start(self: &Arc<Shared>, first: First) -> Result<(), Stop> {
        let shared = Arc::clone(self);
        let thread = std::thread::Builder::new().name("channel".into());
        let started = thread.spawn(move || shared.keep(first));
        started
            .map(drop)
            .map_err(|error| Stop::because(Exit::Local, error))
    }

    /// Starts the remaining threads once a further channel was opened.
    fn note_login(self: &Arc<Shared>) {
        if !self.logged_in.swap(true, Ordering::Relaxed) {
            for _ in 2..self.waiting() {
                // Without a thread there are fewer channels.
                let _ = self.start(First::default());
            }
        }
    }

    /// Keeps one channel waiting.
    fn keep(self: &Arc<Shared>, mut first: First) {
        while let Some(held) = self.hold() {
            match self.offer(std::mem::take(&mut first), held) {
                Ok(()) => {}
                Err(Lost::Once) => self.pause(),
                Err(Lost::ForGood) => return,
            }
        }
    }

    /// Waits for room for one more channel; `None` once the relay has ended.
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
        // The caller checks in both cases if the relay has ended.
        drop(self.changed.wait_timeout_while(self.lock(), PAUSE, waits));
    }

    /// Offers the job a channel, and relays it. A daemon is connected to once the channel is taken.
    fn offer(self: &Arc<Shared>, (job, beyond): First, held: Held) -> Result<(), Lost> {
        let to_job = || match job {
            Some(stream) => Ok((stream, None)),
            None => self.runs.open().inspect(|_| self.note_login()),
        };
        match &self.other {
            Beyond::Daemon(daemon) => self.carry(daemon, to_job()?, held),
            Beyond::Ssh(start, name) => {
                // The channel beyond is opened first, so that an offered channel always leads to
                // the other host.
                let beyond =
                    beyond.map_or_else(|| over_ssh(start, name), |socket| Ok((socket, None)))?;
                let job = to_job()?;
                let held = (held, job.1, beyond.1);
                relay::carry_stream(job.0, beyond.0, held).map_err(|_| Lost::Once)
            }
        }
    }

    /// Connects to the daemon when the job has sent the first data, and relays the channel.
    fn carry(&self, daemon: &Daemon, mut job: Opened<Stream>, held: Held) -> Result<(), Lost> {
        let mut first = vec![0; FIRST_BYTES];
        let Ok(count @ 1..) = job.0.reader.read(&mut first) else {
            return Err(Lost::Once);
        };
        match connect(daemon, &first[..count]) {
            // The ends of the session notice a lost channel.
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
