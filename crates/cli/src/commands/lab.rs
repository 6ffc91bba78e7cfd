//! `longhaul lab`: any command across an emulated wide area.
//!
//! - [`session`]: labs that stay: up, exec, status, set, down
//! - [`mod@copy`]: both ends of `longhaul cp`

mod copy;
mod session;

use std::process::ExitCode;

use longhaul_lab::command::{self, CommandError};
use longhaul_lab::isolate::{Inside, Outside};
use longhaul_lab::report::LabReport;
use longhaul_lab::running::{Prepared, RunError, Running, Start};

use crate::arguments::CopyArguments;
use crate::arguments::lab::{LabCommand, LabRunArguments};
use crate::messages::{Exit, Stop, finish, say};

/// Runs it; the exit code is the command's own where there is one.
pub fn run(command: LabCommand) -> ExitCode {
    let ended = match command {
        LabCommand::Run(arguments) => run_command(*arguments),
        LabCommand::Up(arguments) => session::up(*arguments),
        LabCommand::Exec(arguments) => session::exec(&arguments),
        LabCommand::Status(arguments) => session::status(&arguments),
        LabCommand::Set(arguments) => session::set(&arguments),
        LabCommand::Down(arguments) => session::down(&arguments),
    };
    exit_code(ended)
}

/// A lab for as long as a command runs.
fn run_command(arguments: LabRunArguments) -> Result<u8, Stop> {
    let settings = arguments.scenario.settings().map_err(usage)?;
    let name = arguments.name.clone();
    let name = name.unwrap_or_else(|| format!("run-{}", std::process::id()));
    let start = Start { settings, name };
    in_lab(Outside::Attached, start, |inside, prepared| {
        let mut running = Running::start(inside, prepared).map_err(not_run)?;
        let server_failed = |code| say(&format!("the server ended with exit code {code}"));
        let ended = command::run(&mut running, &arguments.command(), server_failed);
        let code = ended.map_err(not_ended)?;
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
    })
}

/// A command does not run to its end.
fn not_ended(error: CommandError) -> Stop {
    match error {
        CommandError::NoHost(_) | CommandError::Program { .. } => usage(error),
        CommandError::Interrupted => Stop::because(Exit::Interrupted, error),
        error => local(error),
    }
}

/// `longhaul cp --lab`.
pub fn copy(arguments: CopyArguments) -> ExitCode {
    exit_code(copy::run(arguments))
}

fn exit_code(ended: Result<u8, Stop>) -> ExitCode {
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(stop) => finish(Err(stop)).into(),
    }
}

/// Does `work` in a lab's own process, and says there why it ended early.
fn in_lab(
    outside: Outside,
    start: Start,
    work: impl FnOnce(Inside, Prepared) -> Result<u8, Stop>,
) -> Result<u8, Stop> {
    let inside = |inside, prepared| match work(inside, prepared) {
        Ok(code) => code,
        Err(stop) => finish(Err(stop)).code(),
    };
    longhaul_lab::running::in_lab(outside, start, inside).map_err(not_run)
}

/// What a lab did; what speaks against it goes to standard error.
fn report(running: &Running) -> Option<LabReport> {
    match running.report() {
        Ok(report) => {
            for doubt in report.doubts() {
                say(&format!("doubt: {doubt}"));
            }
            Some(report)
        }
        Err(error) => {
            say(&error.to_string());
            None
        }
    }
}

/// A lab does not run.
fn not_run(error: RunError) -> Stop {
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
