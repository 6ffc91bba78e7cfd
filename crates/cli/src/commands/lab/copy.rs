//! Both ends of a copy across a lab: `longhaul cp --lab`.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use longhaul_lab::isolate::{Inside, Outside};
use longhaul_lab::lab::congestion_here;
use longhaul_lab::netns;
use longhaul_lab::processes::Event;
use longhaul_lab::running::{Prepared, Running, Start};
use longhaul_lab::scenario::{PathSettings, Scenario};
use longhaul_lab::settings::LabSettings;
use longhaul_lab::state::DAEMON;
use longhaul_transfer::client::observer::INTERRUPTED;
use longhaul_transfer::client::self_copy;
use longhaul_transfer::endpoint::Endpoint;
use rustix::process::Pid;
use serde_json::Value;
use signal_hook::consts::{SIGINT, SIGTERM};

use super::{in_lab, local, not_run, report, usage};
use crate::arguments::CopyArguments;
use crate::commands::cp;
use crate::messages::{Exit, Stop, say};

/// A daemon ends within this time once its only client has.
const DAEMON_ENDS_WITHIN: Duration = Duration::from_secs(5);

/// What the daemon says once it listens.
struct Daemon {
    pid: Pid,
    address: String,
    fingerprint: String,
    token_file: String,
}

/// Runs it: a daemon on site B that may write anywhere this user may, and the
/// copy from site A to it.
pub fn run(arguments: CopyArguments) -> Result<u8, Stop> {
    let path: PathSettings = match &arguments.lab {
        Some(text) => text.parse().map_err(usage)?,
        None => PathSettings::default(),
    };
    cp::check_ends(&arguments.paths)?;
    check_local(
        &arguments.paths,
        arguments.recursive && !arguments.copy_links,
    )?;
    let usual = Scenario::default();
    let congestion = congestion_here(&usual.congestion);
    if congestion != usual.congestion && !arguments.quiet {
        say(&format!(
            "the lab's hosts use {congestion}: this machine keeps {} for root outside of namespaces",
            usual.congestion
        ));
    }
    let start = Start {
        settings: LabSettings {
            scenario: Scenario {
                path,
                congestion,
                ..usual
            },
            host_sysctls: Vec::new(),
        },
        name: format!("cp-{}", std::process::id()),
    };
    in_lab(Outside::Attached, start, |inside, prepared| {
        run_inside(inside, prepared, arguments)
    })
}

/// Both ends are on this machine, and not the same.
fn check_local(paths: &[OsString], as_links: bool) -> Result<(), Stop> {
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
        Some((destination, sources)) => self_copy::refuse(sources, destination, as_links),
        None => Ok(()),
    }
}

fn run_inside(
    inside: Inside,
    prepared: Prepared,
    mut arguments: CopyArguments,
) -> Result<u8, Stop> {
    let mut running = Running::start(inside, prepared).map_err(not_run)?;
    let daemon = start_daemon(&running)?;
    let quiet = arguments.quiet || arguments.json;
    if let Some(destination) = arguments.paths.pop() {
        arguments.paths.push(across(&daemon.address, &destination)?);
    }
    arguments.connection.fingerprint = Some(daemon.fingerprint.parse().map_err(local)?);
    arguments.connection.token_file = Some(daemon.token_file.clone().into());
    enter_site_a(&running)?;
    check_interrupts(&mut running)?;
    let exit = cp::run(&arguments);
    running.processes.end_group(daemon.pid, DAEMON_ENDS_WITHIN);
    if let Some(report) = report(&running).filter(|_| !quiet) {
        say(&report.to_string());
    }
    Ok(exit.code())
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
fn across(address: &str, destination: &OsString) -> Result<OsString, Stop> {
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
