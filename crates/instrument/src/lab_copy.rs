//! Both ends of a copy across a lab, on this machine.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use longhaul_engine::net::identity::Fingerprint;
use longhaul_engine::send::select::Selected;
use longhaul_lab::isolate::Inside;
use longhaul_lab::lab::congestion_here;
use longhaul_lab::netns;
use longhaul_lab::processes::Event;
use longhaul_lab::running::{Prepared, RunError, Running, Start};
use longhaul_lab::scenario::{PathSettings, Scenario};
use longhaul_lab::settings::LabSettings;
use longhaul_lab::state::DAEMON;
use longhaul_transfer::client::observer::INTERRUPTED;
use longhaul_transfer::client::self_copy;
use longhaul_transfer::endpoint::Endpoint;
use rustix::process::Pid;
use serde_json::Value;
use signal_hook::consts::{SIGINT, SIGTERM};

use longhaul_transfer::stop::{Exit, Stop};

/// A daemon ends within this time once its only client has.
const DAEMON_ENDS_WITHIN: Duration = Duration::from_secs(5);

/// What the daemon says once it listens.
struct Daemon {
    pid: Pid,
    address: String,
    fingerprint: String,
    token_file: String,
}

/// A copy across a lab.
#[derive(Clone, Debug)]
pub struct LabCopy {
    /// The emulated path; `None` is the usual one.
    pub path: Option<String>,
    /// Sources and, last, the destination: all on this machine.
    pub paths: Vec<OsString>,
    /// Symbolic links are copied as links.
    pub as_links: bool,
    /// What the source does not have is deleted at the destination.
    pub deletes: bool,
}

/// How the copy on site A reaches the daemon on site B.
#[derive(Clone, Debug)]
pub struct AcrossLab {
    /// The destination, as an address of that daemon.
    pub destination: OsString,
    /// The daemon's key.
    pub fingerprint: Fingerprint,
    /// Where its token is.
    pub token_file: PathBuf,
}

impl LabCopy {
    /// The lab that it runs in, and a notice where that is not as asked.
    ///
    /// # Errors
    ///
    /// Where the path makes no sense, or an end is not a file or directory of this machine.
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
                "the lab's hosts use {congestion}: this machine keeps {} for root outside of \
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

    /// Starts a daemon on site B that may write anywhere this user may, and does `copy` on site A:
    /// this thread, and those that it starts, are there from then on. Gives the lab, to be asked
    /// what it did, and what `copy` gave.
    ///
    /// # Errors
    ///
    /// Where the lab or the daemon does not start, or an interrupt came meanwhile.
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

/// A lab does not run.
pub fn not_run(error: RunError) -> Stop {
    match error {
        RunError::Name(error) => usage(error),
        error => local(error),
    }
}

/// This machine, or its rights, do not allow it.
fn local(error: impl std::fmt::Display) -> Stop {
    Stop::because(Exit::Local, error)
}

/// The command line makes no sense.
fn usage(error: impl std::fmt::Display) -> Stop {
    Stop::because(Exit::Usage, error)
}

/// Both ends are on this machine, and not the same.
fn check_local(paths: &[OsString], how: (bool, bool)) -> Result<(), Stop> {
    let ends = paths.iter().map(|path| Endpoint::parse(path));
    let ends: Vec<Endpoint> = ends.collect::<Result<_, _>>().map_err(usage)?;
    if ends.iter().any(|end| end.place().is_some()) {
        return Err(usage("with --lab source and destination are local paths"));
    }
    if ends.contains(&Endpoint::Standard) {
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

/// An interrupt that came while the lab was made, where it ends nothing by itself.
/// From here on the copy hears of them.
fn check_interrupts(running: &mut Running) -> Result<(), Stop> {
    while let Some(event) = running.processes.next(Some(Duration::ZERO)) {
        if matches!(event, Event::Signal(SIGINT | SIGTERM)) {
            return Err(Stop::new(Exit::Interrupted, INTERRUPTED));
        }
    }
    Ok(())
}

/// This thread, and those that it starts, are on host a1 from here on.
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
            // Nobody but this process reaches it, and what may be copied is all of its user's.
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

/// A local path as in the daemon; `null:` stays what it is.
fn across(address: &str, destination: &OsStr) -> Result<OsString, Stop> {
    let mut url = OsString::from(format!("longhaul://{address}/"));
    if destination == "null:" {
        url.push(destination);
        return Ok(url);
    }
    // A daemon follows no links below its root, and goes up nowhere.
    let named = Path::new(destination);
    let path = match (named.parent(), named.file_name()) {
        (Some(parent), Some(name)) if !named.is_dir() => self_copy::resolved(parent).join(name),
        _ => self_copy::resolved(named),
    };
    url.push(path.strip_prefix("/").unwrap_or(&path));
    // At the end it means what is in it.
    if destination.as_bytes().ends_with(b"/") {
        url.push("/");
    }
    Ok(url)
}
