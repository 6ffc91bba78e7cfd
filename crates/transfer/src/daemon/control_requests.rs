//! Requests of a principal outside any session: copies with another daemon, which run as jobs. Each
//! is a process, `longhaul remote`, that uses the principal's stream in place of SSH. Each
//! principal has a separate directory for its jobs, so that it cannot access others. The directory
//! also contains the sockets of jobs that connect to no host. Further streams of the principal are
//! forwarded to them.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use longhaul_engine::session::opening;
use longhaul_net::Stream;
use longhaul_net::identity::Fingerprint;
use longhaul_net::principals::Principal;
use longhaul_net::relay;
use longhaul_net::tcp::HostPort;
use longhaul_net::tls::{TlsClient, TlsOptions};
use longhaul_net::token::fill_random;
use longhaul_net::trust::ServerTrust;
use longhaul_proto::handshake::{Answer, ControlRequest, Refusal, Refused, Target, Task};

use super::admission::{Visitor, authenticate, refused, restarting};
use super::audit::job::job_variable;
use super::quotas::{Held, Most};
use super::{Daemon, LAST_WORDS, systemd};
use crate::between_hosts::channels::{self, Place};
use crate::between_hosts::confined::CONNECT_WITHIN;
use crate::between_hosts::dialing::{self, Closed, Dialing};
use crate::between_hosts::job_protocol::is_name;
use crate::console::{MAXIMUM_LOGGED_BYTES, one_line};
use crate::own_binary;
use crate::state::make_private;

/// Limits on simultaneous control requests, including jobs.
const MOST_CONTROL_REQUESTS: Most = Most {
    of_all: 64,
    of_one: 16,
};

/// Limits above which no further job starts. They are lower, so that running jobs can still be
/// followed and ended.
const MOST_JOBS: Most = Most {
    of_all: 48,
    of_one: 12,
};

/// Limits on channels to jobs that connect to no host. A copy through another host has one channel
/// per stream, and each channel needs two threads.
const MOST_CHANNELS: Most = Most {
    of_all: 512,
    of_one: 128,
};

/// Prefix of a principal's directory name.
const OF: &str = "of-";

/// Settings for jobs.
#[derive(Clone, Debug)]
pub struct Jobs {
    /// Directory that contains a directory for each principal.
    pub directory: PathBuf,
    /// Hosts to which jobs may connect.
    pub dialing: Dialing,
}

/// Describes a request for the log.
fn described(what: &Task) -> &'static str {
    match what {
        Task::Drive | Task::DriveThrough => "beginning a job",
        Task::Attach(_) => "following a job",
        Task::Jobs => "listing jobs",
        Task::Reach(_) => "asking whether another daemon can be reached",
        Task::Channel(_) => "opening a channel to a job",
    }
}

fn busy() -> Refused {
    let text = "the daemon runs as many jobs as it may: try again later";
    refused(Refusal::Busy, text)
}

/// Kind of process that runs for a principal.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Runs a job and connects to the other end.
    Dials,
    /// Runs a job and receives channels.
    TakesChannels,
    /// Lists or follows jobs.
    Tells,
}

impl Kind {
    fn is_job(self) -> bool {
        self != Kind::Tells
    }
}

/// Result of a control request.
enum Came {
    /// The request is complete.
    Done,
    /// The local end of a channel to the process, and the reservation that is held until the
    /// channel ends.
    Channel(UnixStream, Option<Held>),
}

impl Daemon {
    /// Answers the request and forwards the channel until either end closes it.
    pub(super) fn run_control_request(
        self: &Arc<Daemon>,
        mut stream: Stream,
        control_request: &ControlRequest,
        mut visitor: Visitor,
    ) {
        let peer = visitor.peer.clone();
        let came = self.begin_control_request(control_request, &stream, &mut visitor);
        let came = match came {
            Ok(came) => came,
            Err(refused) => {
                let who = self.described(control_request.credential.as_ref(), &stream, &peer);
                let who = format!("{who}, {},", described(&control_request.what));
                return self.refuse(&mut stream, refused, &who);
            }
        };
        let begun = opening::send(&mut stream, &Answer::Begun);
        match came {
            Came::Done => opening::close(&mut stream, LAST_WORDS),
            Came::Channel(socket, held) if begun.is_ok() => {
                if let Err(error) = relay::carry_stream(stream, socket, held) {
                    tracing::error!(%peer, "{peer}: no thread for what it asked: {error}");
                }
            }
            // The process receives an end of file.
            Came::Channel(..) => {}
        }
    }

    fn begin_control_request(
        self: &Arc<Daemon>,
        control_request: &ControlRequest,
        stream: &Stream,
        visitor: &mut Visitor,
    ) -> Result<Came, Refused> {
        let Some(jobs) = &self.jobs else {
            let text = "this is the remote host of one session, and runs no jobs";
            return Err(refused(Refusal::Malformed, text));
        };
        let principals = self.principals();
        // A host that was vouched for may open one session but no jobs.
        let principal = authenticate(&principals, control_request.credential.as_ref(), stream)?;
        if !control_request.is_valid() {
            return Err(refused(
                Refusal::Malformed,
                "the control request makes no sense",
            ));
        }
        drop(visitor.ticket.take());
        let (word, kind) = match &control_request.what {
            Task::Reach(target) => {
                let held = self
                    .control_requests
                    .take(principal.name(), MOST_CONTROL_REQUESTS);
                let _held = held.ok_or_else(busy)?;
                return reach(&jobs.dialing, target, principal).map(|()| Came::Done);
            }
            Task::Drive if jobs.dialing == Dialing::Never => {
                let text = "this daemon runs no copies with another: start it with \
                            --allow-dial";
                return Err(refused(Refusal::Forbidden, text));
            }
            Task::Drive | Task::DriveThrough if self.sessions.is_draining() => {
                return Err(restarting());
            }
            Task::Channel(name) => return self.channel(jobs, principal, name),
            Task::Drive => ("--drive".to_owned(), Kind::Dials),
            Task::DriveThrough => ("--drive".to_owned(), Kind::TakesChannels),
            Task::Jobs => ("--jobs".to_owned(), Kind::Tells),
            Task::Attach(name) if is_name(name) => (format!("--attach={name}"), Kind::Tells),
            Task::Attach(_) => {
                return Err(refused(Refusal::Malformed, "that is no job's name"));
            }
        };
        let spawned = self.spawn((jobs, &visitor.peer), principal, (&word, kind));
        spawned.map(|socket| Came::Channel(socket, None))
    }

    /// Opens a channel to one of the principal's jobs. The channel's data is checked by the job,
    /// not here.
    fn channel(&self, jobs: &Jobs, principal: &Principal, name: &str) -> Result<Came, Refused> {
        let held = self.channels.take(principal.name(), MOST_CHANNELS);
        let held = held.ok_or_else(|| {
            let text = "the daemon carries as many channels as it may: try again later";
            refused(Refusal::Busy, text)
        })?;
        let own = own_path(&jobs.directory, principal);
        let socket = channels::connect(&own, name).map_err(|_| {
            let text = "no job of this principal takes channels under that name, or not any more: \
                        run the command again";
            refused(Refusal::NoSession, text)
        })?;
        Ok(Came::Channel(socket, Some(held)))
    }

    fn spawn(
        self: &Arc<Daemon>,
        (jobs, peer): (&Jobs, &str),
        principal: &Principal,
        (word, kind): (&str, Kind),
    ) -> Result<UnixStream, Refused> {
        let failed = |error: &dyn std::fmt::Display| {
            let principal = principal.name();
            tracing::error!(principal, "a job for {principal} cannot begin: {error}");
            let text = "the daemon cannot keep a job: its administrator finds why in its log";
            refused(Refusal::Path, text)
        };
        let most = if kind.is_job() {
            MOST_JOBS
        } else {
            MOST_CONTROL_REQUESTS
        };
        let held = self.control_requests.take(principal.name(), most);
        let held = held.ok_or_else(busy)?;
        let own = own_directory(&jobs.directory, principal).map_err(|error| failed(&error))?;
        // Reports on jobs need no access to the principal's roots.
        let written = kind.is_job().then(|| Written::new(&own, principal));
        let written = written.transpose().map_err(|error| failed(&error))?;
        let place = (kind == Kind::TakesChannels).then(|| Place::new(&own));
        let place = place.transpose().map_err(|error| failed(&error))?;
        let (near, far) = UnixStream::pair().map_err(|error| failed(&error))?;
        let output = far.try_clone().map_err(|error| failed(&error))?;
        let mut command = own_binary::command();
        command
            .args(["remote", word])
            .args(place.iter().flat_map(words_of))
            .args(written.iter().flat_map(Written::words))
            .args(jobs.dialing.word().map(|word| format!("--dial={word}")))
            .arg(format!("--memory={}B", self.terms.memory.0))
            .arg(match self.terms.expiry {
                Some(age) => format!("--expire-leftovers={}s", age.as_secs()),
                None => "--expire-leftovers=never".to_owned(),
            })
            .env("XDG_STATE_HOME", &own)
            .env(
                super::JSON_LOG,
                if self.terms.logs_json { "1" } else { "0" },
            )
            .envs(self.audit.iter().map(|audit| job_variable(audit, peer)))
            .env_remove(systemd::SOCKET)
            .env_remove("SSH_CONNECTION")
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(far)))
            .stdout(Stdio::from(OwnedFd::from(output)));
        let mut child = command.spawn().map_err(|error| failed(&error))?;
        let thread = std::thread::Builder::new().name("job".into());
        let waiting = thread.spawn(move || {
            let _held = (held, written, place);
            // The process reports its result to the client.
            let _ = child.wait();
        });
        waiting.map(|_| near).map_err(|error| failed(&error))
    }
}

/// Returns the command-line options that set the location of the channels.
fn words_of(place: &Place) -> [&OsStr; 2] {
    [OsStr::new("--channels"), place.path().as_os_str()]
}

/// Returns the path of a principal's directory.
fn own_path(directory: &Path, principal: &Principal) -> PathBuf {
    // The prefix avoids names such as `..`.
    directory.join(format!("{OF}{}", principal.name()))
}

/// Removes the channel sockets that a killed daemon left. Runs on a separate thread to avoid a
/// delay.
pub(super) fn clear(directory: PathBuf) {
    let clear = move || {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(OF) {
                channels::clear(&entry.path());
            }
        }
    };
    // If no thread starts, the next daemon removes them.
    let _ = std::thread::Builder::new()
        .name("clear channels".into())
        .spawn(clear);
}

/// Returns the principal's directory and creates it if necessary.
fn own_directory(directory: &Path, principal: &Principal) -> Result<PathBuf, String> {
    let own = own_path(directory, principal);
    make_private(&own).map_err(|error| format!("{}: {error}", own.display()))?;
    Ok(own)
}

/// File with a principal's current roots, for one request. Requests may start at the same time, and
/// none may read a file that was written before the rights changed. The process removes the file
/// after reading it; otherwise it is removed when the request ends.
struct Written(PathBuf);

impl Written {
    fn new(own: &Path, principal: &Principal) -> Result<Written, String> {
        let mut random = [0; 8];
        fill_random(&mut random).map_err(|error| error.to_string())?;
        let name = u64::from_ne_bytes(random);
        let file = own.join(format!("principal-{name:016x}.toml"));
        let failed = |error| format!("{}: {error}", file.display());
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut opened = options.open(&file).map_err(failed)?;
        let written = Written(file.clone());
        let text = principal.written();
        opened.write_all(text.as_bytes()).map_err(failed)?;
        Ok(written)
    }
}

impl Written {
    /// Returns the command-line options that name the file.
    fn words(&self) -> [&OsStr; 2] {
        [OsStr::new("--confined"), self.0.as_os_str()]
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        // The process has usually removed the file already.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Tests whether a daemon with the given key answers. Any other server sees only the start of a TLS
/// handshake and no part of the request.
fn reach(dialing: &Dialing, target: &Target, principal: &Principal) -> Result<(), Refused> {
    let host = HostPort::new(&target.host, target.port);
    let apart = |why: &str| {
        let principal = principal.name();
        let text = format!("{principal}: {host} cannot be connected to: {why}");
        tracing::warn!(principal, "{}", one_line(&text, MAXIMUM_LOGGED_BYTES));
        refused(Refusal::Unreachable, dialing::apart(&host))
    };
    let socket = dialing.connect(&host, CONNECT_WITHIN);
    let socket = socket.map_err(|closed| match closed {
        Closed::Forbidden(text) => refused(Refusal::Forbidden, text),
        Closed::Apart(why) => apart(&why),
    })?;
    let trust = ServerTrust::Fingerprint(Fingerprint::of_digest(target.key));
    let tls = TlsClient::new(trust, None, TlsOptions::default());
    let spoken = tls.handshake(socket, &host).map(drop);
    spoken.map_err(|error| apart(&error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simultaneous_control_requests_have_separate_files() {
        let place = tempfile::tempdir().unwrap();
        let first = place.path().join("first");
        std::fs::write(&first, "name = \"alice\"\n").unwrap();
        let alice = Principal::read_back(&first).unwrap();
        let begin = || {
            let own = own_directory(place.path(), &alice).unwrap();
            let written = Written::new(&own, &alice).unwrap();
            assert_eq!(Principal::read_back(&written.0).unwrap().name(), "alice");
            written
        };
        let written: Vec<Written> = std::thread::scope(|scope| {
            let begun = [(); 16].map(|()| scope.spawn(begin));
            begun.map(|begun| begun.join().unwrap()).into()
        });
        let own = place.path().join("of-alice");
        assert_eq!(std::fs::read_dir(&own).unwrap().count(), written.len());
        drop(written);
        assert_eq!(std::fs::read_dir(&own).unwrap().count(), 0);
    }
}
