//! `longhaul verify`: a copy that sends checksums instead of data and writes
//! nothing.

use longhaul_transfer::endpoint::check_colons;

use super::cp::Command;
use crate::arguments::VerifyArguments;
use crate::messages::{Exit, Stop, finish};

/// Runs it.
pub fn run(arguments: &VerifyArguments) -> Exit {
    finish(verify(arguments))
}

fn verify(arguments: &VerifyArguments) -> Result<Exit, Stop> {
    let paths = [&arguments.left, &arguments.right];
    check_colons(paths).map_err(|error| Stop::because(Exit::Usage, error))?;
    let command = Command {
        spec: &arguments.spec()?,
        paths: paths.to_vec(),
        shown: arguments.shown(),
        manifest: None,
        between: &arguments.between,
        remembers: false,
        writes: &arguments.writes,
    };
    command.run()
}
