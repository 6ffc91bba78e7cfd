//! `longhaul verify`: compares two trees by checksums. It sends no data and writes no
//! files.

use longhaul_transfer::endpoint::check_colons;

use super::cp::Command;
use crate::arguments::VerifyArguments;
use crate::messages::{Exit, Stop, finish};

/// Runs `longhaul verify`.
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
