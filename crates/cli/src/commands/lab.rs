//! `longhaul lab`: any command across an emulated wide area.
//!
//! - [`mod@run`]: a lab for as long as a command runs
//! - [`session`]: labs that stay: up, exec, status, set, down
//! - [`mod@copy`]: both ends of `longhaul cp`
//! - [`inside`]: what all of them have in the lab's process

mod copy;
pub mod inside;
mod run;
mod session;

use std::process::ExitCode;

use crate::arguments::CopyArguments;
use crate::arguments::lab::LabCommand;
use crate::messages::{Exit, Stop, finish};

/// Runs it; the exit code is the command's own where there is one.
pub fn run(command: LabCommand) -> ExitCode {
    let ended = match command {
        LabCommand::Run(arguments) => run::run(*arguments),
        LabCommand::Up(arguments) => session::up(*arguments),
        LabCommand::Exec(arguments) => session::exec(&arguments),
        LabCommand::Status(arguments) => session::status(&arguments),
        LabCommand::Set(arguments) => session::set(&arguments),
        LabCommand::Down(arguments) => session::down(&arguments),
    };
    exit_code(ended)
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

/// This machine, or its rights, do not allow it.
fn local(error: impl std::fmt::Display) -> Stop {
    Stop::because(Exit::Local, error)
}

/// The command line makes no sense.
fn usage(error: impl std::fmt::Display) -> Stop {
    Stop::because(Exit::Usage, error)
}
