//! A command on a host of a lab that runs, with a server at the other end meanwhile.

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

/// What is run.
#[derive(Clone, Debug)]
pub struct LabCommand {
    /// The program and its arguments.
    pub words: Vec<OsString>,
    /// The host that it runs on.
    pub on: String,
    /// What runs on site B's first host meanwhile.
    pub server: Option<Server>,
}

/// A server at the other end.
#[derive(Clone, Debug)]
pub struct Server {
    /// A shell command, whose output goes to standard error.
    pub command: String,
    /// The TCP port that it listens on; none: any.
    pub port: Option<u16>,
    /// How long it may take until it listens.
    pub wait: Duration,
}

/// Why a command did not run to its end.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The lab has no such host: name another.
    #[error("the lab has no host \"{0}\"")]
    NoHost(String),
    /// There is no such program, or it cannot be run.
    #[error("{program}: {error}")]
    Program {
        /// The program.
        program: String,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// The server ended too early.
    #[error("the server ended with exit code {code} before it listened: {command}")]
    ServerEnded {
        /// Its exit code.
        code: u8,
        /// Its command.
        command: String,
    },
    /// The server took too long.
    #[error("the server does not listen after {wait:?}: {command}")]
    ServerSilent {
        /// How long that was.
        wait: Duration,
        /// Its command.
        command: String,
    },
    /// A signal came before the command began.
    #[error("interrupted")]
    Interrupted,
    /// The system reports no more signals.
    #[error("the lab has lost its signals")]
    LostSignals,
    /// The system refuses.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Between two looks whether a server listens: a command that takes
/// milliseconds to start is not kept waiting longer than that.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// A server has so long to end by itself once its client has ended.
const SERVER_ENDS_WITHIN: Duration = Duration::from_secs(2);

/// Runs a command to its end, and its server until then; gives the command's exit code.
/// `server_failed` hears of a server that ends with another exit code than 0.
///
/// # Errors
///
/// Where it does not begin, or the server does not listen.
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

/// Starts a command on a host.
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

/// In a group of its own: what a terminal sends is for the command.
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

/// Until the command ends; gives its exit code. Signals are for the command.
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
