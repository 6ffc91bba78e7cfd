//! Runs a command on a host of a running lab, optionally with a server at the other end.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Pid;

use crate::isolate::{came_from_terminal, pass_on};
use crate::processes::{Event, listens};
use crate::running::Running;

/// A command to run in a lab.
#[derive(Clone, Debug)]
pub struct LabCommand {
    /// The program and its arguments.
    pub words: Vec<OsString>,
    /// Name of the host that runs the command.
    pub on: String,
    /// Server to run on site B's first host until the command ends.
    pub server: Option<Server>,
}

/// A server at the other end of the path.
#[derive(Clone, Debug)]
pub struct Server {
    /// Shell command that starts the server. Its output goes to standard error.
    pub command: String,
    /// TCP port on which the server listens. With `None`, a listener on any port counts.
    pub port: Option<u16>,
    /// Maximum time until the server listens.
    pub wait: Duration,
}

/// Reasons why a command did not run to its end.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The lab has no host of this name.
    #[error("the lab has no host \"{0}\"")]
    NoHost(String),
    /// The program does not exist or cannot be run.
    #[error("{program}: {error}")]
    Program {
        /// Name of the program.
        program: String,
        /// The operating system's error.
        #[source]
        error: io::Error,
    },
    /// The server ended before it listened.
    #[error("the server ended with exit code {code} before it listened: {command}")]
    ServerEnded {
        /// Exit code of the server.
        code: u8,
        /// Shell command of the server.
        command: String,
    },
    /// The server did not listen in time.
    #[error("the server did not listen within {wait:?}: {command}")]
    ServerSilent {
        /// Time waited.
        wait: Duration,
        /// Shell command of the server.
        command: String,
    },
    /// A signal arrived before the command started.
    #[error("interrupted")]
    Interrupted,
    /// The channel that delivers signals has closed.
    #[error("the lab no longer receives signals: start it again")]
    LostSignals,
    /// A system call failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Interval between checks whether the server listens: short beside the start time of a
/// command, which takes milliseconds.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Time for the server to end by itself after the command has ended.
const SERVER_ENDS_WITHIN: Duration = Duration::from_secs(2);

/// Runs a command to its end and returns its exit code. The server, if any, is ended
/// afterwards. Calls `server_failed` with the exit code of a server that ends with
/// another code than 0.
///
/// # Errors
///
/// Returns an error if the command cannot be started or the server does not listen in
/// time.
pub fn run(
    running: &mut Running,
    command: &LabCommand,
    server_failed: impl FnMut(u8),
) -> Result<u8, CommandError> {
    let server = match &command.server {
        Some(server) => Some(start_server(running, server)?),
        None => None,
    };
    let (program, arguments) = command
        .words
        .split_first()
        .ok_or(CommandError::Io(io::ErrorKind::InvalidInput.into()))?;
    let mut started = Command::new(program);
    started.args(arguments);
    let pid = start_on(running, &command.on, &mut started)?;
    let code = attend(running, pid, server, server_failed)?;
    if let Some(server) = server {
        running.processes.end_group(server, SERVER_ENDS_WITHIN);
    }
    Ok(code)
}

/// Starts a command on a host and returns its process id.
fn start_on(running: &Running, host: &str, command: &mut Command) -> Result<Pid, CommandError> {
    let lab = running.lab();
    let host = lab
        .host(host)
        .ok_or_else(|| CommandError::NoHost(host.to_owned()))?;
    running
        .processes
        .start(&lab, host, command)
        .map_err(|error| {
            let program = command.get_program().to_string_lossy().into_owned();
            CommandError::Program { program, error }
        })
}

/// Starts the server and waits until it listens. The server has its own process group, so
/// that signals from a terminal reach the command only.
fn start_server(running: &mut Running, server: &Server) -> Result<Pid, CommandError> {
    let errors = io::stderr().as_fd().try_clone_to_owned();
    let mut command = Command::new("sh");
    command
        .args(["-c", &server.command])
        .stdin(Stdio::null())
        .stdout(errors?)
        .process_group(0);
    let pid = start_on(running, "b1", &mut command)?;
    let deadline = Instant::now() + server.wait;
    loop {
        let lab = running.lab();
        let listening = match lab.host("b1") {
            Some(host) => listens(host, server.port)?,
            None => false,
        };
        drop(lab);
        if listening {
            return Ok(pid);
        }
        match running.processes.next(Some(LOOK_AGAIN)) {
            Some(Event::Ended(ended, code)) if ended == pid => {
                let command = server.command.clone();
                return Err(CommandError::ServerEnded { code, command });
            }
            Some(Event::Signal(signal)) if signal != signal_hook::consts::SIGUSR1 => {
                return Err(CommandError::Interrupted);
            }
            _ => {}
        }
        if Instant::now() > deadline {
            return Err(CommandError::ServerSilent {
                wait: server.wait,
                command: server.command.clone(),
            });
        }
    }
}

/// Waits until the command ends and returns its exit code. Passes signals on to the
/// command.
fn attend(
    running: &mut Running,
    command: Pid,
    server: Option<Pid>,
    mut server_failed: impl FnMut(u8),
) -> Result<u8, CommandError> {
    loop {
        match running.processes.next(None) {
            Some(Event::Ended(pid, code)) if pid == command => return Ok(code),
            Some(Event::Ended(pid, code)) if Some(pid) == server && code != 0 => {
                server_failed(code);
            }
            Some(Event::Signal(signal)) if !came_from_terminal(signal) => pass_on(command, signal),
            Some(Event::Down) => pass_on(command, signal_hook::consts::SIGTERM),
            Some(_) => {}
            None => return Err(CommandError::LostSignals),
        }
    }
}
