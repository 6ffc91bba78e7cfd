//! A range of TCP ports.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::str::FromStr;

use longhaul_net::tcp::{self, ListenError, TcpOptions};
use serde::{Deserialize, Serialize};

use crate::console::say;

/// Range of ports to listen on, as opened in a firewall; `0-0` is any port that the system chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Ports {
    first: u16,
    last: u16,
}

impl std::fmt::Display for Ports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl From<Ports> for String {
    fn from(ports: Ports) -> String {
        ports.to_string()
    }
}

impl TryFrom<String> for Ports {
    type Error = String;

    fn try_from(text: String) -> Result<Ports, String> {
        text.parse()
    }
}

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Ports, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (Ok(first), Ok(last)) = (first.parse(), last.parse()) else {
            return Err("write FIRST-LAST, as 50000-50009".to_owned());
        };
        match (first, last) {
            (0, 0) => Ok(Ports::default()),
            (1.., _) if first <= last => Ok(Ports { first, last }),
            _ => Err("the first port is from 1 up, and not above the last".to_owned()),
        }
    }
}

impl Ports {
    /// Returns the range of ports. `None` if the system chooses.
    pub fn range(self) -> Option<std::ops::RangeInclusive<u16>> {
        (self != Ports::default()).then_some(self.first..=self.last)
    }

    /// Listens on the first free port of the range, on all addresses of this host.
    ///
    /// # Errors
    ///
    /// Returns the reason for the last port that was tried.
    pub fn listen(self) -> Result<TcpListener, ListenError> {
        let mut port = self.first;
        loop {
            match listen_on(port) {
                Err(ListenError::InUse { .. }) if port < self.last => port += 1,
                other => return other,
            }
        }
    }

    /// Listens for direct streams, without which data go through SSH. Returns `None` with a notice
    /// if all named ports are in use, and without one if no ports are named and the system has no
    /// free one.
    ///
    /// # Errors
    ///
    /// Returns any other error of a named port.
    pub fn listen_if_free(self) -> Result<Option<TcpListener>, ListenError> {
        if self == Ports::default() {
            return Ok(self.listen().ok());
        }
        match self.listen() {
            Ok(listener) => Ok(Some(listener)),
            Err(ListenError::InUse { .. }) => {
                say(&format!(
                    "all ports of --ports {self} are in use on {}: this end accepts no direct \
                     connections",
                    rustix::system::uname().nodename().to_string_lossy()
                ));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Listens on IPv6 and IPv4, or on IPv4 alone if the system has no IPv6.
fn listen_on(port: u16) -> Result<TcpListener, ListenError> {
    let any = |address: IpAddr| SocketAddr::new(address, port);
    let options = TcpOptions::default();
    match tcp::listen(any(Ipv6Addr::UNSPECIFIED.into()), &options) {
        Err(ListenError::Other { .. }) => tcp::listen(any(Ipv4Addr::UNSPECIFIED.into()), &options),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_they_are_written() {
        let range: Ports = "50000-50009".parse().unwrap();
        assert_eq!(range.to_string().parse(), Ok(range));
        assert_eq!("7".parse(), "7-7".parse::<Ports>());
        assert_eq!("0-0".parse(), Ok(Ports::default()));
        for bad in ["", "a-b", "9-8", "0-5", "1-70000", "-"] {
            assert!(bad.parse::<Ports>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_port_in_use_is_left_for_the_next() {
        let held = Ports::default().listen().unwrap();
        let first = held.local_addr().unwrap().port();
        let range = Ports {
            first,
            last: first.saturating_add(50),
        };
        let next = range.listen().unwrap().local_addr().unwrap().port();
        assert!(first < next && next <= range.last);
        let only = Ports { first, last: first };
        assert!(matches!(only.listen(), Err(ListenError::InUse { .. })));
        assert!(only.listen_if_free().unwrap().is_none());
        assert!(range.listen_if_free().unwrap().is_some());
    }
}
