//! Which daemons this one connects to on behalf of a principal: none, unless
//! whoever started it said so. What is connected to is spoken to in TLS alone,
//! and only if it shows the key that the principal named.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use longhaul_engine::net::tcp::{self, HostPort, TcpOptions};

/// Stands for any host in the policy's words.
const ANY: &str = "any";

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
            Dialing::These(hosts) => Some(hosts.join(",")),
        }
    }

    /// From [`Dialing::word`].
    pub fn of_word(word: Option<&str>) -> Dialing {
        match word {
            None => Dialing::Never,
            Some(ANY) => Dialing::Outside,
            Some(hosts) => Dialing::These(hosts.split(',').map(str::to_owned).collect()),
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
        let found = tcp::addresses_of(host).map_err(|error| Closed::Apart(error.to_string()))?;
        let mut allowed = found.into_iter();
        let allowed: Vec<SocketAddr> = match self {
            Dialing::Outside => allowed.filter(|found| is_outside(found.ip())).collect(),
            Dialing::Never | Dialing::These(_) => allowed.by_ref().collect(),
        };
        match allowed.is_empty() {
            true => Err(not_this()),
            false => Ok(allowed),
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
const FORBIDDEN: &str = "this daemon connects to no other: have it started with --allow-dial";

/// Whether an address is neither this host's own nor good on one wire alone:
/// what listens there trusts whoever comes from here.
fn is_outside(address: IpAddr) -> bool {
    match address.to_canonical() {
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
        ];
        for name in own {
            assert!(forbidden(&outside, name), "{name}");
        }
        let these = Dialing::new(Some(&["127.0.0.1".to_owned()]));
        assert!(these.addresses(&host("127.0.0.1")).is_ok());
        assert!(forbidden(&these, "192.0.2.1"));
    }

    #[test]
    fn a_word_says_it_all() {
        let hosts = ["a".to_owned(), "192.0.2.1".to_owned()];
        for dialing in [None, Some(&[][..]), Some(&hosts)].map(Dialing::new) {
            assert_eq!(Dialing::of_word(dialing.word().as_deref()), dialing);
        }
    }
}
