//! Examines a remote host over SSH: the host, its ports and the path to it.

use std::sync::Arc;

use longhaul_engine::session::{Dialer, Transfer, TransferSettings};
use longhaul_measure::sources::Direction;
use longhaul_proto::handshake::Request;
use longhaul_transfer::client::connection::{Connected, Opened, usual_blocks};
use longhaul_transfer::endpoint::SshRemote;
use longhaul_transfer::settings::ConnectionSettings;
use longhaul_transfer::ssh::command::{RELEASE, start_of};
use longhaul_transfer::ssh::direct::Way;
use longhaul_transfer::ssh::process::Login;
use longhaul_transfer::ssh::remote_end::RemoteEnd;
use longhaul_transfer::stop::Stop;

use super::findings::ports::Opening;
use super::findings::{Facts, Known, Measured, Software};
use super::gather::unknown;
use super::host::HostFacts;
use super::measuring::{STREAMS, ask, measured_of};
use super::shell::{SILENCE, ask_shell};
use super::tries::{options_at, try_all, try_inward};
use crate::probe::session::{Ask, Reach, Session};

/// Collects all facts about the remote host.
///
/// # Errors
///
/// Returns an error if no shell runs on the remote host.
pub(super) fn over_ssh(
    remote: &SshRemote,
    connection: &ConnectionSettings,
    facts: &mut Facts,
) -> Result<(), Stop> {
    let start = start_of(remote, connection, &TransferSettings::default())?;
    let path = remote.path.as_path().unwrap_or(b".");
    let bound = SILENCE.min(connection.timeout);
    let silent = ask_shell(&start, path, (Login::Silent, bound));
    let (told, asks) = match silent {
        Ok(told) => (told, false),
        // The login may need to ask for a password.
        Err(_) => (ask_shell(&start, path, (Login::AskingAside, bound))?, true),
    };
    facts.reached = Some(Ok(format!(
        "ssh logs in to {} and returns these facts within {:.1} s{}",
        start.destination,
        told.took.as_secs_f64(),
        if asks {
            "; each login asks for a password, so that without an open port all data use a single \
             ssh connection: a key in an agent avoids this"
        } else if start.is_joined() {
            " through a shared ssh connection"
        } else {
            ", without asking for a password"
        }
    )));
    facts.clock = Some(told.clock);
    let (software, seen) = (software_in(&told.facts), client_seen(&told.facts));
    facts.far = Some(Ok(told.facts));
    let named = connection.ssh.remote_longhaul.is_some();
    if !named {
        facts.software = Some(Ok(software.clone()));
    }
    if !named && software != Software::Same {
        let why = "it needs longhaul on the remote host";
        facts.outward = unknown(why);
        facts.inward = unknown(why);
        facts.options = unknown(why);
        facts.measured = vec![Err(why.to_owned())];
        return Ok(());
    }
    let far = FarSide {
        remote,
        connection,
        asks,
    };
    if let Err(stop) = far.examine(facts, seen) {
        let why = stop.text;
        if facts.outward.is_none() {
            // No session was opened at all.
            facts.software = Some(Ok(Software::Broken(why.clone())));
        }
        facts.outward.get_or_insert(Err(why.clone()));
        facts.inward.get_or_insert(Err(why.clone()));
        facts.options.get_or_insert(Err(why.clone()));
        facts.measured.push(Err(why));
    }
    Ok(())
}

fn software_in(facts: &HostFacts) -> Software {
    let said = facts.get("cached").or(facts.get("installed"));
    match said {
        Some(said) if said == format!("longhaul {RELEASE}") => Software::Same,
        Some(said) => Software::Other(said.to_owned()),
        None => Software::Absent,
    }
}

/// Returns the address of this host as seen by sshd.
fn client_seen(facts: &HostFacts) -> Option<std::net::IpAddr> {
    let connection = facts.get("ssh_connection")?;
    connection.split_whitespace().next()?.parse().ok()
}

/// A remote host with the same release of longhaul.
struct FarSide<'a> {
    remote: &'a SshRemote,
    connection: &'a ConnectionSettings,
    /// True if each login asks for a password.
    asks: bool,
}

impl FarSide<'_> {
    fn far(&self) -> Result<Arc<RemoteEnd>, Stop> {
        let settings = TransferSettings::default();
        RemoteEnd::new(self.remote, self.connection, &settings, None).map(Arc::new)
    }

    /// Tries the ports within a session, then measures the path.
    fn examine(&self, facts: &mut Facts, seen: Option<std::net::IpAddr>) -> Result<(), Stop> {
        let far = self.far()?;
        let connected = RemoteEnd::connect(&far, usual_blocks())?;
        facts.software = Some(Ok(Software::Same));
        facts.mortal = far.is_mortal();
        let tried = try_all(&far);
        let open = tried.iter().find(|tried| tried.opening == Opening::Open);
        let open = open.map(|tried| tried.address);
        facts.outward = Some(Ok(tried));
        facts.options = Some(options_at(open));
        let ask = self.ask(Direction::To, STREAMS[1]);
        let mut inward = None;
        let session = ask.run_on(&far, connected, |transfer| {
            inward = Some(try_inward(&far, transfer, seen));
        })?;
        facts.inward = inward;
        let opened = far.route().map(|route| route.way);
        let direct = matches!(opened, Some(Way::Outward(_) | Way::Inward));
        facts.measured = if direct {
            self.measure(session)
        } else {
            vec![Err(
                "the data went through ssh, and longhaul cannot read the TCP statistics of that \
                 connection"
                    .to_owned(),
            )]
        };
        Ok(())
    }

    /// Measures both directions, unless each login asks for a password.
    fn measure(&self, first: Session) -> Vec<Known<Measured>> {
        let mut measured = Vec::new();
        for direction in [Direction::To, Direction::From] {
            if self.asks {
                let why = format!(
                    "{} the remote host: not measured, because each login asks for a password",
                    direction.name()
                );
                measured.push(Err(why));
                continue;
            }
            let first = (direction == Direction::To).then(|| first.clone());
            let sessions = STREAMS.map(|streams| match &first {
                Some(session) if streams == STREAMS[1] => Ok(session.clone()),
                _ => self
                    .far()
                    .and_then(|far| self.ask(direction, streams).run(&far)),
            });
            measured.push(measured_of(direction, sessions));
        }
        measured
    }

    fn ask(&self, direction: Direction, streams: u32) -> Ask<'_> {
        ask(self.connection, direction, streams)
    }
}

/// Measures a session over SSH in the same way as a session with a daemon.
impl Reach for Arc<RemoteEnd> {
    fn connect(&self) -> Result<Connected, Stop> {
        RemoteEnd::connect(self, usual_blocks())
    }

    fn open(&self, connected: Connected, request: Request) -> Result<Opened, Stop> {
        RemoteEnd::open(self, connected, request, &[])
    }

    fn dialer(&self, opened: &Opened, transfer: &Arc<Transfer>) -> Dialer {
        RemoteEnd::dialer(self, opened, transfer)
    }
}

#[cfg(test)]
mod tests {
    use super::super::host::FACT;
    use super::*;

    #[test]
    fn the_installed_release_is_recognised() {
        let with = |line: &str| {
            let mut facts = HostFacts::default();
            facts.add_line(&format!("{FACT}{line}"));
            software_in(&facts)
        };
        assert_eq!(with(&format!("cached longhaul {RELEASE}")), Software::Same);
        let other = Software::Other("longhaul 0.0.1".into());
        assert_eq!(with("installed longhaul 0.0.1"), other);
        assert_eq!(with("installed"), Software::Absent);
    }
}
