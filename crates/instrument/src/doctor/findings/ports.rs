//! Findings about addresses and ports as seen from the other side.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::{Finding, Known, advice, bad, good, not_checked};

/// Result of a connection attempt as seen from the connecting side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opening {
    /// The expected host answered.
    Open,
    /// The connection was refused: no program listens on the port, or a firewall rejects
    /// it.
    Reset(String),
    /// No answer arrived within this time.
    Silent(Duration),
    /// There is no route to the address.
    Unreachable(String),
    /// Another host answered.
    WrongHost(String),
    /// The connection opened, and then large packets were lost.
    Stalled(String),
}

/// A connection attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// Address that was tried.
    pub address: SocketAddr,
    /// Result of the attempt.
    pub opening: Opening,
}

/// Connections from the remote host to this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inward {
    /// Results of the remote host for each address of this host.
    pub tried: Vec<Tried>,
    /// Addresses of this host.
    pub own: Vec<IpAddr>,
    /// Address of this host as seen by the remote host.
    pub seen: Option<IpAddr>,
}

/// Returns the findings about connections from this host.
pub(super) fn outward(known: &Known<Vec<Tried>>) -> Vec<Finding> {
    const TOPIC: &str = "ports outward";
    let tried = match known {
        Ok(tried) => tried,
        Err(why) => return vec![not_checked(TOPIC, why.clone())],
    };
    if tried.is_empty() {
        return vec![not_checked(
            TOPIC,
            "the remote host names no address to connect to",
        )];
    }
    let open = tried.iter().any(|tried| tried.opening == Opening::Open);
    let found = tried.iter().map(|Tried { address, opening }| {
        let (text, remedy) = match opening {
            Opening::Open => return good(TOPIC, format!("{address} opens from here")),
            Opening::Reset(cause) => (
                format!("{address} refuses the connection ({cause})"),
                "a firewall there rejects it: have a range of ports opened, and name it with --ports",
            ),
            Opening::Silent(waited) => (
                format!("{address} is silent ({:.0} s)", waited.as_secs_f64()),
                "a firewall drops it, or the address belongs to another network: have a range of ports opened, \
                 and name it with --ports",
            ),
            Opening::Unreachable(cause) => (
                format!("no way leads to {address} ({cause})"),
                "a private address, or a missing route: name the host by an address that is \
                 reachable from here",
            ),
            Opening::WrongHost(cause) => (
                format!("another host answers at {address} ({cause})"),
                "another host here has the same private address, or a proxy is between: name the \
                 host by a unique address",
            ),
            Opening::Stalled(cause) => (
                format!("{address} accepts a connection and then stalls ({cause})"),
                "large packets are lost (an MTU black hole): sysctl -w net.ipv4.tcp_mtu_probing=1 \
                 at both ends, and let firewalls pass ICMP \"fragmentation needed\"",
            ),
        };
        // One open address is enough.
        match (open, opening) {
            (true, Opening::Stalled(_)) | (false, _) => bad(TOPIC, text, remedy),
            (true, _) => good(TOPIC, format!("{text}; another address is open")),
        }
    });
    found.collect()
}

/// Returns the findings about connections to this host.
pub(super) fn inward(known: &Known<Inward>) -> Vec<Finding> {
    const TOPIC: &str = "ports inward";
    let inward = match known {
        Ok(inward) => inward,
        Err(why) => return vec![not_checked(TOPIC, why.clone())],
    };
    if inward.tried.is_empty() {
        let why = "this host has no address that another could connect to";
        return vec![not_checked(TOPIC, why)];
    }
    let open = inward.tried.iter().any(|one| one.opening == Opening::Open);
    let found = inward.tried.iter().map(|tried| {
        let address = tried.address;
        let Some((mut text, mut remedy)) = seen_from_there(tried) else {
            return good(TOPIC, format!("the remote host connects to {address} here"));
        };
        if inward.seen == Some(address.ip()) && !inward.own.contains(&address.ip()) {
            text += "; the remote host sees this host at that address, which no interface of this host has (NAT)";
            remedy = "forward a range to this host, and name it with --ports";
        }
        // One open address is enough. Most copies connect outward.
        if open {
            good(TOPIC, format!("{text}; another address is open"))
        } else {
            advice(TOPIC, text, format!("if no port opens outward: {remedy}"))
        }
    });
    found.collect()
}

/// Describes how an address of this host appears to the remote host, with a remedy; `None`
/// if it is open.
fn seen_from_there(Tried { address, opening }: &Tried) -> Option<(String, &'static str)> {
    Some(match opening {
        Opening::Open => return None,
        Opening::Reset(cause) => (
            format!("{address} here refuses the remote host's connection ({cause})"),
            "open a range of ports in this host's firewall, and name it with --ports",
        ),
        Opening::Silent(waited) => (
            format!(
                "{address} here is silent to the remote host ({:.0} s)",
                waited.as_secs_f64()
            ),
            "a firewall drops it, or the address belongs to another network there: have a range of ports opened, \
             and name it with --ports",
        ),
        Opening::Unreachable(cause) => (
            format!("no way leads from the remote host to {address} here ({cause})"),
            "a private address, or a missing route there: give this host a reachable address",
        ),
        Opening::WrongHost(cause) => (
            format!("another host answers the remote host at {address} ({cause})"),
            "another host there has the same private address, or a proxy is between: give this \
             host a unique address",
        ),
        Opening::Stalled(cause) => (
            format!(
                "{address} here accepts the remote host's connection and then stalls ({cause})"
            ),
            "large packets may be lost (an MTU black hole): sysctl -w net.ipv4.tcp_mtu_probing=1 at \
             both ends, and let firewalls pass ICMP \"fragmentation needed\"",
        ),
    })
}
