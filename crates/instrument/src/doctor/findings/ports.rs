//! What addresses look like from the other side, and what to do about it.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::{Finding, Known, advice, bad, good, not_checked};

/// How a port looks from the other side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opening {
    /// The end that was meant answered.
    Open,
    /// A packet said no: nothing listens, or a firewall rejects.
    Reset(String),
    /// Nothing came back.
    Silent(Duration),
    /// No way leads there.
    Unreachable(String),
    /// Somebody else answered.
    WrongHost(String),
    /// It opened, and then large packets were lost.
    Stalled(String),
}

/// One try to connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// Where to.
    pub address: SocketAddr,
    /// What came of it.
    pub opening: Opening,
}

/// Connections that the far side makes to this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inward {
    /// What the far side saw at each of this end's addresses.
    pub tried: Vec<Tried>,
    /// This end's own addresses.
    pub own: Vec<IpAddr>,
    /// The address under which the far side sees this one.
    pub seen: Option<IpAddr>,
}

/// Connections from here.
pub(super) fn outward(known: &Known<Vec<Tried>>) -> Vec<Finding> {
    const TOPIC: &str = "ports outward";
    let tried = match known {
        Ok(tried) => tried,
        Err(why) => return vec![not_checked(TOPIC, why.clone())],
    };
    if tried.is_empty() {
        return vec![not_checked(
            TOPIC,
            "the far side names no address to connect to",
        )];
    }
    let open = tried.iter().any(|tried| tried.opening == Opening::Open);
    let found = tried.iter().map(|Tried { address, opening }| {
        let (text, remedy) = match opening {
            Opening::Open => return good(TOPIC, format!("{address} opens from here")),
            Opening::Reset(cause) => (
                format!("{address} says no ({cause})"),
                "a firewall there rejects it: have a range opened, and name it with --ports",
            ),
            Opening::Silent(waited) => (
                format!("{address} is silent ({:.0} s)", waited.as_secs_f64()),
                "a firewall drops it, or the address is another network's: have a range opened, \
                 and name it with --ports",
            ),
            Opening::Unreachable(cause) => (
                format!("no way leads to {address} ({cause})"),
                "a private address, or a missing route: name the host by an address that has a way \
                 from here",
            ),
            Opening::WrongHost(cause) => (
                format!("somebody else answers at {address} ({cause})"),
                "a private address that another host has here as well, or a proxy between: name the \
                 host by an address of its own",
            ),
            Opening::Stalled(cause) => (
                format!("{address} opens and then stands still ({cause})"),
                "large packets are lost (an MTU black hole): sysctl -w net.ipv4.tcp_mtu_probing=1 \
                 at both ends, and let ICMP \"fragmentation needed\" through",
            ),
        };
        // One way is enough.
        match (open, opening) {
            (true, Opening::Stalled(_)) | (false, _) => bad(TOPIC, text, remedy),
            (true, _) => good(TOPIC, format!("{text}; another address opens")),
        }
    });
    found.collect()
}

/// Connections to here.
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
            return good(TOPIC, format!("the far side connects to {address} here"));
        };
        if inward.seen == Some(address.ip()) && !inward.own.contains(&address.ip()) {
            text += "; the far side sees this host so, and it is none of its own (NAT)";
            remedy = "forward a range to this host, and name it with --ports";
        }
        // One way is enough, and outward is the usual one.
        if open {
            good(TOPIC, format!("{text}; another address opens"))
        } else {
            advice(TOPIC, text, format!("if no port opens outward: {remedy}"))
        }
    });
    found.collect()
}

/// How an address of this end's looks from there, and what to do about it; `None` if it opens.
fn seen_from_there(Tried { address, opening }: &Tried) -> Option<(String, &'static str)> {
    Some(match opening {
        Opening::Open => return None,
        Opening::Reset(cause) => (
            format!("{address} here says no to the far side ({cause})"),
            "have this host's firewall open a range, and name it with --ports",
        ),
        Opening::Silent(waited) => (
            format!(
                "{address} here is silent to the far side ({:.0} s)",
                waited.as_secs_f64()
            ),
            "a firewall drops it, or the address is another network's there: have a range opened, \
             and name it with --ports",
        ),
        Opening::Unreachable(cause) => (
            format!("no way leads from the far side to {address} here ({cause})"),
            "a private address, or a missing route there: give this host an address that has one",
        ),
        Opening::WrongHost(cause) => (
            format!("somebody else answers the far side at {address} ({cause})"),
            "a private address that another host has there as well, or a proxy between: give this \
             host an address of its own",
        ),
        Opening::Stalled(cause) => (
            format!("{address} here opens to the far side and then stands still ({cause})"),
            "large packets may be lost (an MTU black hole): sysctl -w net.ipv4.tcp_mtu_probing=1 at \
             both ends, and let ICMP \"fragmentation needed\" through",
        ),
    })
}
