//! Decides which daemons this daemon may connect to on behalf of a principal. The default is to
//! connect to no daemon. Such connections use TLS only, and the other daemon must show the key that
//! the principal named.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use longhaul_net::candidates::interface_addresses;
use longhaul_net::tcp::{self, HostPort, TcpOptions};

/// Text form of [`Dialing::Outside`].
const ANY: &str = "any";

/// Prefix of the text form of [`Dialing::These`]. The hosts follow, each after a comma.
const THESE: &str = "these";

/// Maximum length of a host name and of one of its labels, in bytes, as in DNS.
const MAXIMUM_HOST_BYTES: usize = 253;
const MAXIMUM_LABEL_BYTES: usize = 63;

/// The hosts to which a daemon may connect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Dialing {
    /// No host.
    #[default]
    Never,
    /// Any address except those of this host and link-local ones.
    Outside,
    /// Hosts with one of these names or addresses.
    These(Vec<String>),
}

impl Dialing {
    /// Converts the option of `serve`: absent, without hosts, or with hosts.
    pub fn new(hosts: Option<&[String]>) -> Dialing {
        match hosts {
            None => Dialing::Never,
            Some([]) => Dialing::Outside,
            Some(hosts) => Dialing::These(hosts.to_vec()),
        }
    }

    /// Formats the policy as one argument of a command line.
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

    /// Parses the text of [`Dialing::word`].
    pub fn of_word(word: Option<&str>) -> Dialing {
        match word {
            None => Dialing::Never,
            Some(ANY) => Dialing::Outside,
            // The first word is the prefix. A text without hosts allows no host.
            Some(word) => Dialing::These(word.split(',').skip(1).map(str::to_owned).collect()),
        }
    }

    /// Resolves a host to the addresses to which the daemon may connect.
    ///
    /// # Errors
    ///
    /// Returns the reason if there are no such addresses.
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

    /// Connects to a host without sending any data.
    ///
    /// # Errors
    ///
    /// Returns the reason if it cannot connect.
    pub fn connect(&self, host: &HostPort, patience: Duration) -> Result<TcpStream, Closed> {
        let addresses = self.addresses(host)?;
        let options = TcpOptions::default();
        let connected = tcp::connect_to(host, &addresses, patience, &options);
        connected.map_err(|error| Closed::Apart(error.to_string()))
    }
}

/// The reason why the daemon does not connect to a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The policy forbids the connection.
    Forbidden(String),
    /// The connection failed.
    Apart(String),
}

/// Refusal of a daemon that connects to no other daemon.
const FORBIDDEN: &str = "this daemon connects to no other: start it with --allow-dial";

/// Returns the message for a principal about a host that cannot be reached. Only the log has the
/// reason, so that a principal cannot explore this host's network.
pub fn apart(host: &HostPort) -> String {
    format!("{host} cannot be connected to from there: the daemon's log says why")
}

/// Parses a host of `--allow-dial`: a name or an IP address.
///
/// # Errors
///
/// Returns a message if it is neither.
pub fn parse_host(text: &str) -> Result<String, String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_label = |label: &str| {
        (1..=MAXIMUM_LABEL_BYTES).contains(&label.len()) && label.bytes().all(allowed)
    };
    // A link-local address includes the interface after a `%`.
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

/// True if the byte may occur in an IP address with an interface.
fn is_scoped(byte: u8) -> bool {
    byte.is_ascii_graphic() && byte != b','
}

/// True if an address is neither one of this host's `own` interface addresses nor link-local.
/// Servers at such addresses may trust any client from this host.
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

/// Returns the IPv4 address behind an address with the well-known NAT64 prefix 64:ff9b::/96 (RFC
/// 6052, section 2.1).
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
    fn connections_are_made_only_to_allowed_hosts() {
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
    fn the_permission_is_written_as_one_word() {
        let hosts = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            Dialing::new(Some(&names))
        };
        // A host may have the same name as a keyword.
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
    fn invalid_host_names_are_not_connected_to() {
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
