//! Collects facts from both ends and tries connections between them. Conclusions are
//! drawn in [`mod@super::findings`].

use longhaul_measure::sources::Direction;
use longhaul_transfer::client::connection::Daemon;
use longhaul_transfer::endpoint::{Endpoint, HostAccess, Remote};
use longhaul_transfer::settings::ConnectionSettings;
use longhaul_transfer::ssh::command::RELEASE;
use longhaul_transfer::stop::{Exit, Stop};

use super::far_side::over_ssh;
use super::findings::ports::{Opening, Tried};
use super::findings::{Facts, Known, Lead, Software};
use super::measuring::{STREAMS, ask, measured_of};
use super::rights::rights_at;
use super::shell::facts_here;
use super::tries::{PATIENCE, opening_of, options_at};
use crate::probe::result::Clock;

/// Result of the collection.
pub struct Gathered {
    /// The collected facts.
    pub facts: Facts,
    /// Exit code of the failure that ended the collection early, if any.
    pub failed: Option<Exit>,
}

/// Collects the facts about an endpoint.
///
/// # Errors
///
/// Returns an error if the endpoint is not a path, and so cannot be examined.
pub fn gather(endpoint: &Endpoint, connection: &ConnectionSettings) -> Result<Gathered, Stop> {
    let mut facts = Facts {
        reached: None,
        software: None,
        here: facts_here(endpoint.local_path().unwrap_or(b".")),
        far: None,
        outward: None,
        inward: None,
        mortal: false,
        rights: None,
        clock: None,
        options: None,
        measured: Vec::new(),
    };
    let reached = match endpoint.access() {
        Some(HostAccess::Login(remote)) => over_ssh(remote, connection, &mut facts),
        Some(HostAccess::Daemon(remote)) => at_daemon(remote, connection, &mut facts),
        None if endpoint.local_path().is_some() => Ok(()),
        None => {
            let text =
                "name a path on this or another host: PATH, host:path or longhaul://host/path";
            return Err(Stop::new(Exit::Usage, text));
        }
    };
    let failed = match reached {
        Ok(()) => None,
        Err(stop) => {
            facts.reached = Some(Err(stop.text));
            Some(stop.exit)
        }
    };
    Ok(Gathered { facts, failed })
}

pub(super) fn unknown<T>(text: impl Into<String>) -> Option<Known<T>> {
    Some(Err(text.into()))
}

fn at_daemon(
    remote: &Remote,
    connection: &ConnectionSettings,
    facts: &mut Facts,
) -> Result<(), Stop> {
    let daemon = Daemon::new(remote, connection)?;
    let first = daemon.first_stream()?;
    let key = first.handle.peer_fingerprint();
    drop(first);
    facts.reached = Some(Ok(format!("the daemon at {} answers", remote.host)));
    if let Some(path) = remote.path.as_path() {
        // An unknown principal cannot collect more facts.
        let of = |direction| ask(connection, direction, 1);
        facts.rights = Some(Ok(rights_at(&daemon, path, of)?));
    }
    let addresses = daemon.addresses()?;
    let tried: Vec<Tried> = addresses
        .iter()
        .map(|&address| Tried {
            address,
            opening: match daemon.at(key, address, None).try_stream(PATIENCE) {
                Ok(()) => Opening::Open,
                Err(error) => opening_of(&error),
            },
        })
        .collect();
    let open = tried.iter().find(|tried| tried.opening == Opening::Open);
    facts.options = Some(options_at(open.map(|tried| tried.address)));
    facts.outward = Some(Ok(tried));
    facts.inward = unknown("a daemon only accepts connections");
    facts.far = unknown("a daemon does not describe its host: examine user@host:path as well");
    for direction in [Direction::To, Direction::From] {
        let sessions = STREAMS.map(|streams| ask(connection, direction, streams).run(&daemon));
        if let [Ok(session), _] = &sessions {
            facts.software = Some(Ok(software_said(&session.software)));
            let least = session.seen.least_rtt().unwrap_or_default();
            facts.clock = session
                .clock_lead
                .map(|lead| Clock::of(lead, least))
                .map(|clock| {
                    Ok(Lead {
                        ahead: clock.ahead,
                        uncertainty: clock.uncertainty,
                    })
                });
        }
        facts.measured.push(measured_of(direction, sessions));
    }
    let why = "known only after a measurement, which the daemon did not allow";
    facts.software.get_or_insert(Err(why.to_owned()));
    facts.clock.get_or_insert(Err(why.to_owned()));
    Ok(())
}

fn software_said(said: &str) -> Software {
    if said == format!("longhaul {RELEASE}") {
        Software::Same
    } else {
        Software::Other(said.to_owned())
    }
}
