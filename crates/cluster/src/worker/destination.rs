//! The daemon of a destination's worker. It serves the root to the sources' workers of one
//! transfer, with a key and a token of its own.

use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use longhaul_proto::options::Operation;
use longhaul_system::limits;
use longhaul_transfer::daemon::{DaemonSettings, Listening, Terms};
use longhaul_transfer::settings::DataSecurity;
use longhaul_transfer::stop::{Exit, Stop};
use longhaul_units::ByteCount;
use rustix::process::{Signal, getpid, kill_process};

use super::reports::Reports;
use crate::private::Private;
use crate::protocol::{Begin, Report, Serve};

/// Maximum number of sessions at the same time.
const SESSIONS: usize = 512;

/// Time for which a session outlives its last connection.
const LINGER: Duration = Duration::from_secs(30);

/// A running daemon.
pub struct Serving(JoinHandle<()>);

/// Starts the daemon and reports its address.
///
/// # Errors
///
/// The root cannot be served.
pub fn start(
    root: &Path,
    serve: &Serve,
    (begin, private): (&Begin, &Arc<Private>),
    reports: &Reports,
) -> Result<Serving, Stop> {
    let root = existing(root, begin, private)?;
    let daemon = Listening::new(settings(root, serve, (begin, private)))?;
    let announcement = daemon.announcement()?;
    let token = std::fs::read_to_string(private.path().join("token"));
    let token = token.map_err(|error| Stop::because(Exit::Local, error))?;
    let report = Report::Serving {
        port: announcement.address.port(),
        fingerprint: announcement.fingerprint.to_string(),
        principal: announcement.principal.unwrap_or_default().to_owned(),
        token: token.trim().to_owned(),
    };
    let failing = reports.clone();
    let run = move || {
        if let Err(stop) = daemon.serve() {
            let (exit, text) = (stop.exit.code(), stop.text);
            failing.send(&Report::Failed { exit, text });
        }
    };
    let thread = std::thread::Builder::new().name("daemon".into());
    let started = thread.spawn(run);
    let started = started.map_err(|error| Stop::because(Exit::Local, error))?;
    reports.send(&report);
    Ok(Serving(started))
}

/// Ends the daemon and its sessions.
pub fn end(serving: Serving) {
    // The daemon handles this signal.
    if kill_process(getpid(), Signal::TERM).is_ok() {
        // A panic of the thread was reported when it happened.
        let _ = serving.0.join();
    }
}

/// Returns the directory to serve. A missing root is made, except in a dry run, which compares with
/// an empty directory instead.
fn existing(root: &Path, begin: &Begin, private: &Arc<Private>) -> Result<PathBuf, Stop> {
    let failed = |path: &Path, error: std::io::Error| {
        let text = format!("cannot make the directory {}: {error}", path.display());
        Stop::new(Exit::Local, text)
    };
    if root.exists() {
        return Ok(root.to_owned());
    }
    if begin.spec.options.operation == Operation::Copy {
        std::fs::create_dir_all(root).map_err(|error| failed(root, error))?;
        return Ok(root.to_owned());
    }
    let empty = private.beside();
    let mut builder = std::fs::DirBuilder::new();
    let made = builder.mode(0o700).recursive(true).create(&empty);
    made.map_err(|error| failed(&empty, error))?;
    Ok(empty)
}

fn settings(
    root: PathBuf,
    serve: &Serve,
    (begin, private): (&Begin, &Arc<Private>),
) -> DaemonSettings {
    let spec = &begin.spec;
    let options = &spec.options;
    let terms = Terms {
        allow_clear: spec.connection.data_security == DataSecurity::Clear,
        memory: limits::for_blocks(ByteCount(spec.limits.memory)),
        linger: LINGER,
        expiry: spec.limits.expiry(),
        logs_json: false,
    };
    let usual = DaemonSettings::of_root(root, private.path().to_owned(), terms);
    let (listen, ports) = match serve.loopback {
        Some(address) => (SocketAddr::new(address, 0), None),
        None => (usual.listen, serve.ports.or(usual.ports)),
    };
    DaemonSettings {
        listen,
        ports,
        write: true,
        keep_set_ids: options.selection.keep_set_ids,
        keep_owners: options.operation == Operation::Copy,
        make_devices: options.keep.devices,
        delete: options.deletion.is_some(),
        sessions: SESSIONS,
        ..usual
    }
}
