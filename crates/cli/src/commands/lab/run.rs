//! A lab for as long as a command runs.

use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use longhaul_lab::isolate::{Inside, Outside, came_from_terminal, pass_on};
use longhaul_lab::processes::{Event, listens};
use longhaul_lab::running::{Prepared, Running, Start};
use rustix::process::Pid;

use super::{in_lab, local, not_run, report, usage};
use crate::arguments::lab::LabRunArguments;
use crate::messages::{Exit, Stop, say};

/// Between two looks whether a server listens: a command that takes
/// milliseconds to start is not kept waiting longer than that.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// A server has so long to end by itself once its client has ended.
const SERVER_ENDS_WITHIN: Duration = Duration::from_secs(2);

/// Runs it.
pub fn run(arguments: LabRunArguments) -> Result<u8, Stop> {
    let settings = arguments.scenario.settings().map_err(usage)?;
    let name = arguments
        .name
        .clone()
        .unwrap_or_else(|| format!("run-{}", std::process::id()));
    let start = Start { settings, name };
    in_lab(Outside::Attached, start, |inside, prepared| {
        run_inside(inside, prepared, &arguments)
    })
}

fn run_inside(inside: Inside, prepared: Prepared, arguments: &LabRunArguments) -> Result<u8, Stop> {
    let mut running = Running::start(inside, prepared).map_err(not_run)?;
    let server = match &arguments.server {
        Some(server) => Some(start_server(&mut running, server, arguments)?),
        None => None,
    };
    let mut command = Command::new(&arguments.command[0]);
    command.args(&arguments.command[1..]);
    let pid = start_on(&running, &arguments.on, &mut command)?;
    let code = attend(&mut running, pid, server)?;
    if let Some(server) = server {
        running.processes.end_group(server, SERVER_ENDS_WITHIN);
    }
    if let Some(report) = report(&running) {
        if !arguments.quiet {
            say(&report.to_string());
        }
        if let Some(file) = &arguments.report {
            std::fs::write(file, format!("{}\n", report.to_json()))
                .map_err(|error| local(format!("{}: {error}", file.display())))?;
        }
    }
    Ok(code)
}

/// Starts a command on a host.
pub fn start_on(running: &Running, host: &str, command: &mut Command) -> Result<Pid, Stop> {
    let lab = running.lab();
    let host = lab
        .host(host)
        .ok_or_else(|| usage(format!("the lab has no host \"{host}\"")))?;
    running
        .processes
        .start(&lab, host, command)
        .map_err(|error| {
            let program = command.get_program().to_string_lossy();
            Stop::new(Exit::Usage, format!("{program}: {error}"))
        })
}

/// In a group of its own: what a terminal sends is for the command.
fn start_server(
    running: &mut Running,
    server: &str,
    arguments: &LabRunArguments,
) -> Result<Pid, Stop> {
    let errors = std::io::stderr().as_fd().try_clone_to_owned();
    let mut command = Command::new("sh");
    command
        .args(["-c", server])
        .stdin(Stdio::null())
        .stdout(errors.map_err(local)?)
        .process_group(0);
    let pid = start_on(running, "b1", &mut command)?;
    let deadline = Instant::now() + arguments.server_wait;
    loop {
        let lab = running.lab();
        let listening = match lab.host("b1") {
            Some(host) => listens(host, arguments.server_port).map_err(local)?,
            None => false,
        };
        drop(lab);
        if listening {
            return Ok(pid);
        }
        match running.processes.next(Some(LOOK_AGAIN)) {
            Some(Event::Ended(ended, code)) if ended == pid => {
                return Err(local(format!(
                    "the server ended with exit code {code} before it listened: {server}"
                )));
            }
            Some(Event::Signal(signal)) if signal != signal_hook::consts::SIGUSR1 => {
                return Err(Stop::new(Exit::Interrupted, "interrupted"));
            }
            _ => {}
        }
        if Instant::now() > deadline {
            return Err(local(format!(
                "the server does not listen after {:?}: {server}",
                arguments.server_wait
            )));
        }
    }
}

/// Until the command ends; gives its exit code. Signals are for the command.
pub fn attend(running: &mut Running, command: Pid, server: Option<Pid>) -> Result<u8, Stop> {
    loop {
        match running.processes.next(None) {
            Some(Event::Ended(pid, code)) if pid == command => return Ok(code),
            Some(Event::Ended(pid, code)) if Some(pid) == server && code != 0 => {
                say(&format!("the server ended with exit code {code}"));
            }
            Some(Event::Signal(signal)) if !came_from_terminal(signal) => pass_on(command, signal),
            Some(Event::Down) => pass_on(command, signal_hook::consts::SIGTERM),
            Some(_) => {}
            None => return Err(local("the lab has lost its signals")),
        }
    }
}
