//! What a principal has the daemon do beside any session: copies with another
//! daemon, as jobs. Each is a process of its own, `longhaul remote`, that says and
//! hears over the principal's stream what it would over SSH. His jobs are kept in
//! a directory of his own, so that he finds no other's.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use longhaul_engine::net::Stream;
use longhaul_engine::net::identity::Fingerprint;
use longhaul_engine::net::principals::Principal;
use longhaul_engine::net::relay;
use longhaul_engine::net::tcp::HostPort;
use longhaul_engine::net::tls::{TlsClient, TlsOptions};
use longhaul_engine::net::trust::ServerTrust;
use longhaul_engine::session::opening;
use longhaul_proto::handshake::{Answer, Begun, Errand, Feature, Refusal, Refused, Target, Task};

use super::admission::{Visitor, authenticate, refuse, refused};
use super::setup::write_private;
use super::{Daemon, LAST_WORDS};
use crate::between::confined::CONNECT_WITHIN;
use crate::between::dialing::{Closed, Dialing};
use crate::between::job::make_private;
use crate::between::speech::is_name;
use crate::messages::say;

/// What is under way for principals at the same time, jobs among it.
const MOST_ERRANDS: usize = 64;

/// Those beyond which no further job begins, so that one can still be looked at
/// and ended.
const MOST_JOBS: usize = 48;

/// This binary, also where its file was replaced.
const OWN_BINARY: &str = "/proc/self/exe";

/// What jobs need of the daemon.
#[derive(Clone, Debug)]
pub struct Jobs {
    /// Where a directory for each principal lies.
    pub directory: PathBuf,
    /// Whom it connects to.
    pub dialing: Dialing,
}

/// A place among those that run.
struct Held(Arc<Daemon>);

impl Held {
    fn take(daemon: &Arc<Daemon>, most: usize) -> Option<Held> {
        let held = Held(Arc::clone(daemon));
        // Dropped, it gives back what it took here.
        (daemon.errands.fetch_add(1, Ordering::Relaxed) < most).then_some(held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.errands.fetch_sub(1, Ordering::Relaxed);
    }
}

fn busy() -> Refused {
    let text = "the daemon runs as many jobs as it may: try again later";
    refused(Refusal::Busy, text)
}

/// What an errand came to.
enum Came {
    /// It is done.
    Done,
    /// Its process is at the other end of this.
    Channel(UnixStream),
}

impl Daemon {
    /// Answers, and carries what is said until either end has enough.
    pub(super) fn run_errand(
        self: &Arc<Daemon>,
        mut stream: Stream,
        errand: &Errand,
        features: Vec<Feature>,
        mut visitor: Visitor,
    ) {
        let peer = visitor.peer.clone();
        let came = match features.contains(&Feature::JOBS) {
            true => self.begin_errand(errand, &stream, &mut visitor),
            false => Err(refused(Refusal::Malformed, "jobs were not offered")),
        };
        let came = match came {
            Ok(came) => came,
            Err(refused) => return refuse(&mut stream, refused, &peer),
        };
        let begun = opening::send(&mut stream, &Answer::Begun(Begun { features }));
        match came {
            Came::Done => opening::close(&mut stream, LAST_WORDS),
            Came::Channel(socket) if begun.is_ok() => {
                if let Err(error) = relay::carry_stream(stream, socket) {
                    say(&format!("{peer}: no thread for what it asked: {error}"));
                }
            }
            // The process hears that nobody is there.
            Came::Channel(_) => {}
        }
    }

    fn begin_errand(
        self: &Arc<Daemon>,
        errand: &Errand,
        stream: &Stream,
        visitor: &mut Visitor,
    ) -> Result<Came, Refused> {
        let Some(jobs) = &self.jobs else {
            let text = "this is the far side of one session, and runs no jobs";
            return Err(refused(Refusal::Malformed, text));
        };
        let principals = self.principals();
        // Whom somebody vouched for is here for one session.
        let principal = authenticate(&principals, errand.credential.as_ref(), stream)?;
        if !errand.is_valid() {
            return Err(refused(Refusal::Malformed, "the errand makes no sense"));
        }
        drop(visitor.ticket.take());
        let mut words = vec!["remote".to_owned()];
        match &errand.what {
            Task::Reach(target) => {
                let _held = Held::take(self, MOST_ERRANDS).ok_or_else(busy)?;
                return reach(&jobs.dialing, target).map(|()| Came::Done);
            }
            Task::Drive if jobs.dialing == Dialing::Never => {
                let text = "this daemon runs no copies with another: have it started with \
                            --allow-dial";
                return Err(refused(Refusal::Forbidden, text));
            }
            Task::Drive => words.push("--drive".to_owned()),
            Task::Jobs => words.push("--jobs".to_owned()),
            Task::Attach(name) if is_name(name) => words.push(format!("--attach={name}")),
            Task::Attach(_) => {
                return Err(refused(Refusal::Malformed, "that is no job's name"));
            }
        }
        let most = match errand.what {
            Task::Drive => MOST_JOBS,
            _ => MOST_ERRANDS,
        };
        self.spawn(jobs, principal, (words, most))
            .map(Came::Channel)
    }

    fn spawn(
        self: &Arc<Daemon>,
        jobs: &Jobs,
        principal: &Principal,
        (words, most): (Vec<String>, usize),
    ) -> Result<UnixStream, Refused> {
        let failed = |error: &dyn std::fmt::Display| {
            say(&format!(
                "a job for {} cannot begin: {error}",
                principal.name()
            ));
            let text = "the daemon cannot keep a job: its administrator finds why in its log";
            refused(Refusal::Path, text)
        };
        let held = Held::take(self, most).ok_or_else(busy)?;
        let own = prepare(&jobs.directory, principal).map_err(|error| failed(&error))?;
        let (near, far) = UnixStream::pair().map_err(|error| failed(&error))?;
        let output = far.try_clone().map_err(|error| failed(&error))?;
        let mut command = Command::new(OWN_BINARY);
        command
            .args(words)
            .arg("--confined")
            .arg(own.join(PRINCIPAL))
            .args(jobs.dialing.word().map(|word| format!("--dial={word}")))
            .arg(format!("--memory={}", self.terms.memory.0))
            .arg(match self.terms.expiry {
                Some(age) => format!("--expire-leftovers={}s", age.as_secs()),
                None => "--expire-leftovers=never".to_owned(),
            })
            .env("XDG_STATE_HOME", &own)
            .env_remove("SSH_CONNECTION")
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(far)))
            .stdout(Stdio::from(OwnedFd::from(output)));
        let mut child = command.spawn().map_err(|error| failed(&error))?;
        let thread = std::thread::Builder::new().name("job".into());
        let waiting = thread.spawn(move || {
            let _held = held;
            // It tells whoever asked for it how it ended.
            let _ = child.wait();
        });
        waiting.map(|_| near).map_err(|error| failed(&error))
    }
}

/// The name of the file with a principal's roots.
const PRINCIPAL: &str = "principal.toml";

/// A principal's directory, with his roots as they are now.
fn prepare(directory: &Path, principal: &Principal) -> Result<PathBuf, String> {
    // Some names are those of directories.
    let own = directory.join(format!("of-{}", principal.name()));
    make_private(&own).map_err(|error| format!("{}: {error}", own.display()))?;
    let written = write_private(&own.join(PRINCIPAL), &principal.written());
    written.map_err(|stop| stop.text)?;
    Ok(own)
}

/// Whether a daemon of that key answers. A stranger's port sees the beginning of
/// a TLS session, and nothing that anybody here asked for.
fn reach(dialing: &Dialing, target: &Target) -> Result<(), Refused> {
    let host = HostPort::new(&target.host, target.port);
    let socket = dialing.connect(&host, CONNECT_WITHIN);
    let socket = socket.map_err(|closed| match closed {
        Closed::Forbidden(text) => refused(Refusal::Forbidden, text),
        Closed::Apart(text) => refused(Refusal::Unreachable, text),
    })?;
    let trust = ServerTrust::Fingerprint(Fingerprint::of_digest(target.key));
    let tls = TlsClient::new(trust, None, TlsOptions::default());
    let spoken = tls.handshake(socket, &host).map(drop);
    spoken.map_err(|error| refused(Refusal::Unreachable, error.to_string()))
}
