//! `longhaul doctor`: finds obstacles to a copy and suggests remedies.

use longhaul_instrument::doctor::findings::{Weight, findings};
use longhaul_instrument::doctor::gather::gather;
use longhaul_instrument::doctor::output::{object, text};
use longhaul_transfer::endpoint::Endpoint;

use crate::arguments::DoctorArguments;
use crate::messages::{Exit, Stop, finish, print_json, write_output};

/// Runs `longhaul doctor`.
pub fn run(arguments: &DoctorArguments) -> Exit {
    finish(examine(arguments))
}

fn examine(arguments: &DoctorArguments) -> Result<Exit, Stop> {
    if arguments.connection.nice {
        let text = "--nice: doctor fills the path for some seconds to measure its capacity, so it \
                    cannot yield to other traffic: remove --nice";
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
