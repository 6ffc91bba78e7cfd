//! `longhaul doctor`: what is in the way of a copy, and what to do about it.
//!
//! - [`gather`]: asks both ends, and tries what opens between them
//! - [`rights`]: what a principal may do at a daemon
//! - [`output`]: for people and for programs

mod gather;
mod output;
mod rights;

use longhaul_instrument::doctor::findings::{Weight, findings};

use crate::arguments::DoctorArguments;
use crate::endpoint::Endpoint;
use crate::messages::{Exit, Stop, finish};

/// Runs it.
pub fn run(arguments: &DoctorArguments) -> Exit {
    finish(examine(arguments))
}

fn examine(arguments: &DoctorArguments) -> Result<Exit, Stop> {
    if arguments.connection.nice {
        let text = "--nice: the path is filled for some seconds to see what it carries, which \
                    cannot yield to others: leave it out";
        return Err(Stop::new(Exit::Usage, text));
    }
    let endpoint = Endpoint::parse_checked(&arguments.endpoint);
    let endpoint = endpoint.map_err(|error| Stop::because(Exit::Usage, error))?;
    let gathered = gather::gather(&endpoint, arguments)?;
    let found = findings(&gathered.facts);
    output::print(
        &arguments.endpoint.to_string_lossy(),
        &found,
        arguments.json,
    );
    let problems = found.iter().any(|one| one.weight == Weight::Problem);
    Ok(match (gathered.failed, problems) {
        (Some(exit), _) => exit,
        (None, true) => Exit::Partial,
        (None, false) => Exit::Done,
    })
}
