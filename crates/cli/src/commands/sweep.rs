//! `longhaul sweep`: runs experiments from a file, each run in its own process.

use std::process::ExitCode;

use longhaul_instrument::sweep::step::{Step, StepError};
use longhaul_instrument::sweep::{self, SweepEnd, SweepError, inside};

use crate::arguments::SweepArguments;
use crate::messages::{Exit, Stop, finish, say, write_output};

/// Name of the hidden command that performs one run.
const STEP_COMMAND: &str = "sweep-step";

/// Runs `longhaul sweep`: performs or lists the remaining runs.
pub fn run(arguments: &SweepArguments) -> Exit {
    finish(sweep(arguments))
}

fn sweep(arguments: &SweepArguments) -> Result<Exit, Stop> {
    let own = std::env::current_exe().map_err(|error| Stop::because(Exit::Local, error))?;
    let settings = arguments.settings(vec![own.into(), STEP_COMMAND.into()]);
    if arguments.dry_run {
        write_output(&sweep::list(&settings).map_err(stop)?);
        return Ok(Exit::Done);
    }
    let ended = sweep::run(&settings, &mut |event| say(&event.to_string()));
    Ok(match ended.map_err(stop)? {
        SweepEnd::Done => Exit::Done,
        SweepEnd::Partial => Exit::Partial,
    })
}

fn stop(error: SweepError) -> Stop {
    let exit = match error {
        SweepError::Wrong(_) => Exit::Usage,
        SweepError::Local(_) => Exit::Local,
    };
    Stop::because(exit, error)
}

/// Performs the run that standard input describes.
pub fn step() -> ExitCode {
    let failed = |error: &StepError| {
        let exit = match error {
            StepError::NoStep(_) => Exit::Usage,
            _ => Exit::Local,
        };
        finish(Err(Stop::because(exit, error))).code()
    };
    let made = Step::read(std::io::stdin().lock()).and_then(|step| inside::run(step, failed));
    ExitCode::from(made.unwrap_or_else(|error| failed(&error)))
}
