//! A copy across a lab with both ends on this machine.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use longhaul_engine::send::select::Selected;
use longhaul_lab::isolate::Inside;
use longhaul_lab::lab::congestion_here;
use longhaul_lab::netns;
use longhaul_lab::processes::Event;
use longhaul_lab::running::{Prepared, RunError, Running, Start};
use longhaul_lab::scenario::{PathSettings, Scenario};
use longhaul_lab::settings::LabSettings;
use longhaul_lab::state::DAEMON;
use longhaul_net::identity::Fingerprint;
use longhaul_transfer::client::observer::INTERRUPTED;
use longhaul_transfer::client::self_copy;
use longhaul_transfer::endpoint::Endpoint;
use rustix::process::Pid;
use serde_json::Value;
use signal_hook::consts::{SIGINT, SIGTERM};

use longhaul_transfer::stop::{Exit, Stop};

/// Time for the daemon to end after its only client has ended.
const DAEMON_ENDS_WITHIN: Duration = Duration::from_secs(5);

/// Announcement of the daemon when it listens.
struct Daemon {
    pid: Pid,
    address: String,
    fingerprint: String,
    token_file: String,
}

/// Settings of a copy across a lab.
#[derive(Clone, Debug)]
pub struct LabCopy {
    /// Settings of the emulated path. `None` means the default path.
    pub path: Option<String>,
    /// Sources and, last, the destination, all on this machine.
    pub paths: Vec<OsString>,
    /// If true, symbolic links are copied as links.
    pub as_links: bool,
    /// If true, files that the source does not have are deleted at the destination.
    pub deletes: bool,
}

/// Address of the daemon on site B, for the copy on site A.
#[derive(Clone, Debug)]
pub struct AcrossLab {
    /// The destination as a URL of that daemon.
    pub destination: OsString,
    /// Fingerprint of the daemon's key.
    pub fingerprint: Fingerprint,
    /// File with the daemon's token.
    pub token_file: PathBuf,
}

impl LabCopy {
    /// Returns the lab's settings, and a notice if its congestion control is not the
    /// default.
    ///
    /// # Errors
    ///
    /// Returns an error if the path's settings are invalid, or an end is not a file or
    /// directory of this machine.
    pub fn start(&self) -> Result<(Start, Option<String>), Stop> {
        let path: PathSettings = match &self.path {
            Some(text) => text.parse().map_err(usage)?,
            None => PathSettings::default(),
        };
        check_local(&self.paths, (self.as_links, self.deletes))?;
        let usual = Scenario::default();
        let congestion = congestion_here(&usual.congestion);
        let notice = (congestion != usual.congestion).then(|| {
            format!(
                "the lab's hosts use {congestion}: this machine reserves {} for root outside of \
                 namespaces",
                usual.congestion
            )
        });
        let settings = LabSettings {
            scenario: Scenario {
                path,
                congestion,
                ..usual
            },
            host_sysctls: Vec::new(),
        };
        let name = format!("cp-{}", std::process::id());
        Ok((Start { settings, name }, notice))
    }

    /// Starts a daemon on site B with the rights of this user, and runs `copy` on site A.
    /// This thread, and threads that it starts, stay on site A. Returns the running lab,
    /// for its report, and the result of `copy`.
    ///
    /// # Errors
    ///
    /// Returns an error if the lab or the daemon cannot be started, or an interrupt
    /// arrived.
    pub fn run<T>(
        &self,
        inside: Inside,
        prepared: Prepared,
        copy: impl FnOnce(&AcrossLab) -> T,
    ) -> Result<(Running, T), Stop> {
        let mut running = Running::start(inside, prepared).map_err(not_run)?;
        let daemon = start_daemon(&running)?;
        let to = self.paths.last().map(OsString::as_os_str);
        let way = AcrossLab {
            destination: across(&daemon.address, to.unwrap_or_default())?,
            fingerprint: daemon.fingerprint.parse().map_err(local)?,
            token_file: daemon.token_file.clone().into(),
        };
        enter_site_a(&running)?;
        check_interrupts(&mut running)?;
        let done = copy(&way);
        running.processes.end_group(daemon.pid, DAEMON_ENDS_WITHIN);
        Ok((running, done))
    }
}

/// Converts an error of starting a lab.
pub fn not_run(error: RunError) -> Stop {
    match error {
        RunError::Name(error) => usage(error),
        error => local(error),
    }
}

/// Returns a stop for a failure of this machine.
fn local(error: impl std::fmt::Display) -> Stop {
    Stop::because(Exit::Local, error)
}

/// Returns a stop for an invalid command line.
fn usage(error: impl std::fmt::Display) -> Stop {
    Stop::because(Exit::Usage, error)
}

/// Checks that both ends are on this machine and are not the same.
fn check_local(paths: &[OsString], how: (bool, bool)) -> Result<(), Stop> {
    let ends = paths.iter().map(|path| Endpoint::parse(path));
    let ends: Vec<Endpoint> = ends.collect::<Result<_, _>>().map_err(usage)?;
    if ends.iter().any(|end| end.host_name().is_some()) {
        return Err(usage("with --lab source and destination are local paths"));
    }
    if ends.iter().any(|end| end.promises().standard_stream) {
        return Err(usage(
            "with --lab source and destination are files or directories, not -",
        ));
    }
    match ends.split_last() {
        Some((destination, sources)) => {
            self_copy::refuse(sources, destination, how, &Selected::default())
        }
        None => Ok(()),
    }
}

/// Checks for an interrupt that arrived while the lab was created. Later interrupts reach
/// the copy.
fn check_interrupts(running: &mut Running) -> Result<(), Stop> {
    while let Some(event) = running.processes.next(Some(Duration::ZERO)) {
        if matches!(event, Event::Signal(SIGINT | SIGTERM)) {
            return Err(Stop::new(Exit::Interrupted, INTERRUPTED));
        }
    }
    Ok(())
}

/// Moves this thread, and threads that it starts, to host a1.
fn enter_site_a(running: &Running) -> Result<(), Stop> {
    let lab = running.lab();
    let host = lab
        .host("a1")
        .ok_or_else(|| local("the lab has no host a1"))?;
    netns::enter(host.namespace().descriptor()).map_err(local)
}

fn start_daemon(running: &Running) -> Result<Daemon, Stop> {
    let lab = running.lab();
    let host = lab
        .host("b1")
        .ok_or_else(|| local("the lab has no host b1"))?;
    let own = std::env::current_exe().map_err(local)?;
    let mut command = Command::new(own);
    command
        .args([
            "serve",
            "--print-ready",
            "--allow-clear",
            "--write",
            "--delete",
            // Only this process reaches the daemon, and the copy may use all files of its
            // user.
            "--unguarded",
            "--root",
            "/",
        ])
        .args(["--listen", &format!("{}:0", host.address())])
        .arg("--state")
        .arg(running.file(DAEMON))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0);
    lab.place(host, &mut command).map_err(local)?;
    let mut child = command.spawn().map_err(local)?;
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut line).map_err(local)?;
    }
    let ready: Value = serde_json::from_str(&line)
        .map_err(|_| local("the lab's daemon did not start: try \"longhaul serve\" by hand"))?;
    let text = |key: &str| ready[key].as_str().unwrap_or_default().to_owned();
    Ok(Daemon {
        pid: Pid::from_child(&child),
        address: text("listening"),
        fingerprint: text("fingerprint"),
        token_file: text("token_file"),
    })
}

/// Converts a local path to a URL of the daemon. `null:` is kept.
fn across(address: &str, destination: &OsStr) -> Result<OsString, Stop> {
    let mut url = OsString::from(format!("longhaul://{address}/"));
    if destination == "null:" {
        url.push(destination);
        return Ok(url);
    }
    // A daemon follows no links below its root and rejects `..`.
    let named = Path::new(destination);
    let path = match (named.parent(), named.file_name()) {
        (Some(parent), Some(name)) if !named.is_dir() => self_copy::resolved(parent).join(name),
        _ => self_copy::resolved(named),
    };
    url.push(path.strip_prefix("/").unwrap_or(&path));
    // A final slash means the content of the directory.
    if destination.as_bytes().ends_with(b"/") {
        url.push("/");
    }
    Ok(url)
}
