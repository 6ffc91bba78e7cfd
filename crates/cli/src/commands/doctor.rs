//! `longhaul doctor`: what is in the way of a copy, and what to do about it.

use longhaul_instrument::doctor::findings::{Weight, findings};
use longhaul_instrument::doctor::gather::gather;
use longhaul_instrument::doctor::output::{object, text};
use longhaul_transfer::endpoint::Endpoint;

use crate::arguments::DoctorArguments;
use crate::messages::{Exit, Stop, finish, print_json, write_output};

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
    let gathered = gather(&endpoint, &arguments.connection.settings())?;
    let found = findings(&gathered.facts);
    if arguments.json {
        print_json(&object(&arguments.endpoint.to_string_lossy(), &found));
    } else {
        write_output(&text(&found));
    }
    let problems = found.iter().any(|one| one.weight() == Weight::Problem);
    Ok(match (gathered.failed, problems) {
        (Some(exit), _) => exit,
        (None, true) => Exit::Partial,
        (None, false) => Exit::Done,
    })
}
