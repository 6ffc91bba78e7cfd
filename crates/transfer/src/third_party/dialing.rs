//! Which daemons this one connects to on behalf of a principal: none, unless its client said so.
//! What is connected to is spoken to in TLS alone, and only if it shows the key that the principal
//! named.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use longhaul_net::candidates::interface_addresses;
use longhaul_net::tcp::{self, HostPort, TcpOptions};

/// The policy's word where any host is allowed.
const ANY: &str = "any";

/// How its word begins where only some are; each follows after a comma.
const THESE: &str = "these";

/// The longest name of a host, in bytes, and of one of its parts: as in DNS.
const MAXIMUM_HOST_BYTES: usize = 253;
const MAXIMUM_LABEL_BYTES: usize = 63;

/// The policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Dialing {
    /// Nobody is connected to.
    #[default]
    Never,
    /// Any address but those that mean this host or its own wire.
    Outside,
    /// Hosts of these names or addresses.
    These(Vec<String>),
}

impl Dialing {
    /// As `serve` was told: none, without a host, or with some.
    pub fn new(hosts: Option<&[String]>) -> Dialing {
        match hosts {
            None => Dialing::Never,
            Some([]) => Dialing::Outside,
            Some(hosts) => Dialing::These(hosts.to_vec()),
        }
    }

    /// In one word of a command line.
    pub fn word(&self) -> Option<String> {
        match self {
            Dialing::Never => None,
            Dialing::Outside => Some(ANY.to_owned()),
            Dialing::These(hosts) => {
                let words = std::iter::once(THESE).chain(hosts.iter().map(String::as_str));
                Some(words.collect::<Vec<&str>>().join(","))
            }
        }
    }

    /// From [`Dialing::word`].
    pub fn of_word(word: Option<&str>) -> Dialing {
        match word {
            None => Dialing::Never,
            Some(ANY) => Dialing::Outside,
            // What was not written here allows nobody.
            Some(word) => Dialing::These(word.split(',').skip(1).map(str::to_owned).collect()),
        }
    }

    /// The addresses of a host that may be connected to.
    ///
    /// # Errors
    ///
    /// Why there are none.
    pub fn addresses(&self, host: &HostPort) -> Result<Vec<SocketAddr>, Closed> {
        let is_named = match self {
            Dialing::Never => return Err(Closed::Forbidden(FORBIDDEN.to_owned())),
            Dialing::Outside => true,
            Dialing::These(hosts) => hosts
                .iter()
                .any(|named| named.eq_ignore_ascii_case(host.host())),
        };
        let not_this = || {
            Closed::Forbidden(format!(
                "this daemon may not connect to {}: its --allow-dial does not name it",
                host.host()
            ))
        };
        if !is_named {
            return Err(not_this());
        }
        let unknown = |error: &dyn std::fmt::Display| Closed::Apart(error.to_string());
        let mut allowed = tcp::addresses_of(host).map_err(|error| unknown(&error))?;
        if *self == Dialing::Outside {
            let own = interface_addresses().map_err(|error| unknown(&error))?;
            allowed.retain(|found| is_outside(found.ip(), &own));
        }
        if allowed.is_empty() {
            Err(not_this())
        } else {
            Ok(allowed)
        }
    }

    /// Connects to a host, and says nothing yet.
    ///
    /// # Errors
    ///
    /// Why not.
    pub fn connect(&self, host: &HostPort, patience: Duration) -> Result<TcpStream, Closed> {
        let addresses = self.addresses(host)?;
        let options = TcpOptions::default();
        let connected = tcp::connect_to(host, &addresses, patience, &options);
        connected.map_err(|error| Closed::Apart(error.to_string()))
    }
}

/// Why a host is not connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closed {
    /// It may not be.
    Forbidden(String),
    /// It cannot be.
    Apart(String),
}

/// What a daemon says that connects to nobody.
const FORBIDDEN: &str = "this daemon connects to no other: start it with --allow-dial";

/// What a principal hears of a host that cannot be connected to. The reason is only for the log,
/// so that a principal cannot explore this host's network.
pub fn apart(host: &HostPort) -> String {
    format!("{host} cannot be connected to from there: the daemon's log says why")
}

/// A host as `--allow-dial` takes it: a name or an IP address.
///
/// # Errors
///
/// Where it is neither.
pub fn parse_host(text: &str) -> Result<String, String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_label = |label: &str| {
        (1..=MAXIMUM_LABEL_BYTES).contains(&label.len()) && label.bytes().all(allowed)
    };
    // Of addresses of one link the interface is part.
    let address = text.split_once('%').map_or(text, |(address, _)| address);
    let is_address = address.parse::<IpAddr>().is_ok() && text.bytes().all(is_scoped);
    let is_name = text.len() <= MAXIMUM_HOST_BYTES && text.split('.').all(is_label);
    if is_address || is_name {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "{text:?} is no host: write names or IP addresses without brackets, with commas \
         between them, or --allow-dial alone for any"
        ))
    }
}

/// What an IP address with its interface is written in.
fn is_scoped(byte: u8) -> bool {
    byte.is_ascii_graphic() && byte != b','
}

/// Whether an address is neither this host's own (those of its interfaces are `own`) nor
/// link-local: servers there may trust any client from this host.
fn is_outside(address: IpAddr, own: &[IpAddr]) -> bool {
    let address = address.to_canonical();
    if own.contains(&address) {
        return false;
    }
    if let IpAddr::V6(address) = address
        && let Some(behind) = behind_nat64(address)
    {
        return is_outside(IpAddr::V4(behind), own);
    }
    match address {
        IpAddr::V4(address) => {
            !(address.is_loopback()
                || address.is_link_local()
                || address.is_unspecified()
                || address.is_broadcast()
                || address.is_multicast())
        }
        IpAddr::V6(address) => {
            !(address.is_loopback()
                || address.is_unicast_link_local()
                || address.is_unspecified()
                || address.is_multicast())
        }
    }
}

/// The IPv4 address that a translator reaches under one of the well-known prefix
/// 64:ff9b::/96 (RFC 6052, section 2.1).
fn behind_nat64(address: Ipv6Addr) -> Option<Ipv4Addr> {
    match address.octets() {
        [0x00, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d] => {
            Some(Ipv4Addr::new(a, b, c, d))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> HostPort {
        HostPort::new(name, 4960)
    }

    #[test]
    fn nobody_is_connected_to_unless_that_is_allowed() {
        let forbidden = |dialing: &Dialing, name: &str| {
            matches!(dialing.addresses(&host(name)), Err(Closed::Forbidden(_)))
        };
        assert!(forbidden(&Dialing::new(None), "192.0.2.1"));
        let outside = Dialing::new(Some(&[]));
        assert!(outside.addresses(&host("192.0.2.1")).is_ok());
        let own = [
            "127.0.0.1",
            "::1",
            "169.254.169.254",
            "fe80::1",
            "0.0.0.0",
            "::ffff:127.0.0.1",
            "224.0.0.1",
            "64:ff9b::127.0.0.1",
            "64:ff9b::a9fe:a9fe",
        ];
        for name in own {
            assert!(forbidden(&outside, name), "{name}");
        }
        let these = Dialing::new(Some(&["127.0.0.1".to_owned()]));
        assert!(these.addresses(&host("127.0.0.1")).is_ok());
        assert!(forbidden(&these, "192.0.2.1"));
    }

    #[test]
    fn the_addresses_of_this_hosts_interfaces_are_not_outside() {
        let own = ["192.0.2.7", "2001:db8::7"].map(|text| text.parse().unwrap());
        let outside = |text: &str| is_outside(text.parse().unwrap(), &own);
        for text in [
            "192.0.2.7",
            "2001:db8::7",
            "::ffff:192.0.2.7",
            "64:ff9b::c000:207",
        ] {
            assert!(!outside(text), "{text}");
        }
        for text in ["192.0.2.8", "2001:db8::8", "64:ff9b::c000:208", "10.0.0.1"] {
            assert!(outside(text), "{text}");
        }
        let dialing = Dialing::new(Some(&[]));
        for found in interface_addresses().unwrap() {
            let closed = dialing.addresses(&host(&found.to_string()));
            assert!(matches!(closed, Err(Closed::Forbidden(_))), "{found}");
        }
    }

    #[test]
    fn a_word_says_it_all() {
        let hosts = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            Dialing::new(Some(&names))
        };
        // A host may be called as a word is.
        for dialing in [
            Dialing::Never,
            Dialing::Outside,
            hosts(&["a", "192.0.2.1"]),
            hosts(&["any"]),
            hosts(&["these"]),
            hosts(&[""]),
            hosts(&["", "any"]),
            Dialing::These(Vec::new()),
        ] {
            assert_eq!(Dialing::of_word(dialing.word().as_deref()), dialing);
        }
    }

    #[test]
    fn what_is_no_host_is_none_to_connect_to() {
        for text in [
            "any",
            "dtn9.example.org",
            "dtn_9",
            "192.0.2.1",
            "2001:db8::1",
            "fe80::1%eth0",
        ] {
            assert_eq!(parse_host(text).as_deref(), Ok(text));
        }
        let long = "a".repeat(64);
        for text in [
            "",
            "a..b",
            "[::1]",
            "a b",
            "*",
            "a:1",
            "a/b",
            "fe80::1%a,b",
            &long,
        ] {
            assert!(parse_host(text).is_err(), "{text}");
        }
    }
}
