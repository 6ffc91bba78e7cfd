//! Sessions of a source's worker: each sends from the root to a destination's daemon.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longhaul_net::tcp::HostPort;
use longhaul_proto::assembly::Assembly;
use longhaul_proto::options::Operation;
use longhaul_transfer::client::observer::{Control, Observer, Unobserved};
use longhaul_transfer::client::run::{self, Place};
use longhaul_transfer::endpoint::Endpoint;
use longhaul_transfer::settings::ConnectionSettings;
use longhaul_transfer::spec::{TransferSpec, ValidSpec};
use longhaul_transfer::stop::{Exit, Stop};

use super::observing::{Finishing, Packing, Surveying, Tally};
use super::reports::Reports;
use crate::private::Private;
use crate::protocol::{Begin, Ended, Kind, Peer, Report, SessionNumber, Start};
use crate::task;

/// Time for the sessions to end after the coordinator is gone.
const END_WITHIN: Duration = Duration::from_secs(2);

/// The running sessions of a worker.
pub struct Sessions {
    root: PathBuf,
    begin: Arc<Begin>,
    private: Arc<Private>,
    reports: Reports,
    running: Arc<Running>,
}

#[derive(Default)]
struct Running {
    controls: Mutex<BTreeMap<SessionNumber, Control>>,
    /// Signals the end of a session.
    ended: Condvar,
}

impl Running {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<SessionNumber, Control>> {
        self.controls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn usage(text: impl Into<String>) -> Stop {
    Stop::new(Exit::Usage, text)
}

impl Sessions {
    /// Creates the sessions of a transfer.
    pub fn new(
        root: &Path,
        (begin, private): (&Arc<Begin>, &Arc<Private>),
        reports: &Reports,
    ) -> Sessions {
        Sessions {
            root: root.to_owned(),
            begin: Arc::clone(begin),
            private: Arc::clone(private),
            reports: reports.clone(),
            running: Arc::default(),
        }
    }

    /// Starts a session on a thread of its own. Its result is reported.
    ///
    /// # Errors
    ///
    /// The order is invalid.
    pub fn start(&self, start: Start) -> Result<(), Stop> {
        if !start.to.is_valid() {
            return Err(usage("an order names an invalid daemon"));
        }
        if let Kind::Pack { files, .. } = &start.kind
            && !task::are_valid(files)
        {
            return Err(usage(
                "an order names files outside of the root, or too many",
            ));
        }
        let control = Control::default();
        let before = self.running.lock().insert(start.session, control.clone());
        if before.is_some() {
            return Err(usage("an order uses the number of a running session"));
        }
        let spec = spec_of(&self.begin, (&self.root, &self.private), &start);
        let (running, reports) = (Arc::clone(&self.running), self.reports.clone());
        let begin = Arc::clone(&self.begin);
        let number = start.session;
        let session = move || {
            let tally = Arc::new(Tally::default());
            let observer = observer_of(&start, &begin, (&tally, &reports));
            let result =
                spec.and_then(|spec| run::run(spec, Place::default(), &control, &observer));
            let (exit, text) = match result {
                Ok(exit) => (exit, None),
                Err(stop) => (stop.exit, Some(stop.text)),
            };
            running.lock().remove(&number);
            running.ended.notify_all();
            reports.send(&Report::Ended(Ended {
                session: number,
                exit: exit.code(),
                text,
                ..tally.ended()
            }));
        };
        let thread = std::thread::Builder::new().name("session".into());
        let started = thread.spawn(session);
        started
            .map(drop)
            .map_err(|error| Stop::new(Exit::Local, format!("cannot start a thread: {error}")))
    }

    /// Ends a session.
    pub fn cancel(&self, session: SessionNumber) {
        if let Some(control) = self.running.lock().get(&session) {
            control.cancel();
        }
    }

    /// Ends all sessions, and waits for a short time until they have ended.
    pub fn end(&self) {
        let controls = self.running.lock();
        for control in controls.values() {
            control.cancel();
        }
        // A session that does not end in time ends with the process.
        let _ = self
            .running
            .ended
            .wait_timeout_while(controls, END_WITHIN, |left| !left.is_empty());
    }
}

fn observer_of(
    start: &Start,
    begin: &Begin,
    (tally, reports): (&Arc<Tally>, &Reports),
) -> Arc<dyn Observer> {
    let tally = Arc::clone(tally);
    match start.kind {
        Kind::Survey { .. } => Arc::new(Surveying::new(start.session, reports)),
        Kind::Pack { assembly, .. } if assembly.is_some_and(Assembly::is_part) => {
            Arc::new(Unobserved)
        }
        Kind::Pack { .. } => Arc::new(Packing::new(begin.output, tally, reports)),
        Kind::Finish { .. } => Arc::new(Finishing::new(begin.output, tally, reports)),
    }
}

/// Returns the specification of a session.
fn spec_of(
    begin: &Begin,
    (root, private): (&Path, &Private),
    start: &Start,
) -> Result<ValidSpec, Stop> {
    let whole = begin.spec.clone();
    let local = |error: io::Error| Stop::new(Exit::Local, format!("cannot keep a token: {error}"));
    let connection = connection_of(&whole, private, &start.to).map_err(local)?;
    let mut source = root.as_os_str().as_bytes().to_vec();
    source.push(b'/');
    let destination = format!("longhaul://{}@{}/", start.to.principal, host_of(&start.to));
    let destination = Endpoint::parse(&OsString::from(destination));
    let destination = destination.map_err(|error| Stop::because(Exit::Usage, error))?;
    let (options, limits, task) = match &start.kind {
        Kind::Finish { update } => (whole.options.updating(*update), whole.limits, None),
        Kind::Survey { update } => {
            let mut options = whole.options.of_part(*update);
            options.operation = Operation::DryRun;
            (options, whole.limits.share(1), None)
        }
        Kind::Pack {
            task,
            files,
            update,
            assembly,
        } => {
            let mut options = whole.options.of_part(*update);
            options.assembly = *assembly;
            options.filter.files = Some(files.clone());
            options.filter.files_recursive = false;
            let limits = whole.limits.share(begin.sessions);
            (options, limits, Some(task.clone()))
        }
    };
    let spec = TransferSpec {
        version: whole.version,
        options,
        sources: vec![Endpoint::local(source)],
        destination,
        limits,
        flows: whole.flows,
        policy: whole.policy,
        path_rate: whole.path_rate,
        task,
        connection,
    };
    spec.validate()
        .map_err(|error| Stop::because(Exit::Usage, error))
}

/// Returns the settings for the destination's daemon: the user's settings for the network, and the
/// daemon's key and token.
fn connection_of(
    whole: &TransferSpec,
    private: &Private,
    to: &Peer,
) -> io::Result<ConnectionSettings> {
    let host = host_of(to);
    let line = format!("{host} {} {}\n", to.principal, to.token);
    let name: String = blake3::hash(line.as_bytes())
        .to_hex()
        .chars()
        .take(32)
        .collect();
    let asked = whole.connection.clone();
    Ok(ConnectionSettings {
        fingerprint: to.fingerprint.parse().ok(),
        token_file: Some(private.keep(&name, &line)?),
        data_security: asked.data_security,
        congestion: asked.congestion,
        nice: asked.nice,
        mptcp: asked.mptcp,
        buffer: asked.buffer,
        timeout: asked.timeout,
        ..ConnectionSettings::default()
    })
}

fn host_of(to: &Peer) -> HostPort {
    HostPort::new(&to.address, to.port)
}

#[cfg(test)]
mod tests {
    use longhaul_net::identity::Fingerprint;
    use longhaul_proto::deletion::Deletion;
    use longhaul_transfer::rate_limit::BandwidthLimit;

    use super::*;
    use crate::protocol::{Output, VERSION};

    #[test]
    fn sessions_use_only_the_root_and_the_named_daemon() {
        let ends = ["user@elsewhere:/etc", "longhaul://other/"];
        let [from, to] = ends.map(|text| Endpoint::parse(text.as_ref()).unwrap());
        let mut spec = TransferSpec::copy(vec![from], to);
        spec.options.selection.recursive = true;
        spec.options.deletion = Some(Deletion::default());
        spec.connection.accept_new = true;
        spec.limits.rate = BandwidthLimit::of_bytes_per_second(4000).unwrap();
        let begin = Begin {
            version: VERSION.to_owned(),
            spec,
            output: Output::default(),
            sessions: 2,
            alive_milliseconds: 1000,
        };
        let private = Private::new().unwrap();
        let start = |kind| Start {
            session: 1,
            kind,
            to: Peer {
                address: "fd00::2".into(),
                port: 5,
                fingerprint: Fingerprint::of_digest([0; 32]).to_string(),
                principal: "user".into(),
                token: "t".into(),
            },
        };
        let spec = |kind| spec_of(&begin, (Path::new("/data"), &private), &start(kind)).unwrap();
        let update = true;
        let pack = spec(Kind::Pack {
            task: "t".into(),
            files: vec![b"a"[..].into()],
            update,
            assembly: None,
        });
        for spec in [
            &pack,
            &spec(Kind::Survey { update }),
            &spec(Kind::Finish { update }),
        ] {
            assert_eq!(spec.sources[0].text(), b"/data/");
            assert_eq!(spec.destination.text(), b"longhaul://user@[fd00::2]:5/");
            assert!(spec.connection.fingerprint.is_some() && !spec.connection.accept_new);
            assert!(spec.updates());
        }
        assert_eq!(pack.options.deletion, None);
        assert_eq!(pack.limits.rate.unwrap().bytes_per_second(), 2000);
        assert_eq!(pack.task.as_deref(), Some("t"));
        let last = spec(Kind::Finish { update: false });
        assert!(last.options.deletion.is_some() && last.task.is_none());
        assert_eq!(last.limits.rate.unwrap().bytes_per_second(), 4000);
    }
}
