//! `longhaul sweep`'s own process for one run.

use std::process::ExitCode;

use crate::messages::finish;
use crate::sweep::run_step;

/// Makes a run that is asked for on standard input.
pub fn step() -> ExitCode {
    match run_step() {
        Ok(code) => ExitCode::from(code),
        Err(stop) => finish(Err(stop)).into(),
    }
}
