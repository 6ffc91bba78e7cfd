//! A range of TCP ports.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::str::FromStr;

use longhaul_engine::net::tcp::{self, ListenError, TcpOptions};

use crate::endpoint::DEFAULT_PORT;

/// Ports that may be listened on, as a firewall's administrator opened them;
/// `0-0` is any that the system gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    first: u16,
    last: u16,
}

impl std::fmt::Display for Ports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
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
    /// Listens on the first of them that is free, on all addresses of this
    /// host.
    ///
    /// # Errors
    ///
    /// Why the last one could not be listened on.
    pub fn listen(self) -> Result<TcpListener, ListenError> {
        let mut port = self.first;
        loop {
            match listen_on(port) {
                Err(ListenError::InUse { .. }) if port < self.last => port += 1,
                other => return other,
            }
        }
    }
}

/// On IPv6 with IPv4; on IPv4 alone where the system has no other.
fn listen_on(port: u16) -> Result<TcpListener, ListenError> {
    let any = |address: IpAddr| SocketAddr::new(address, port);
    let options = TcpOptions::default();
    match tcp::listen(any(Ipv6Addr::UNSPECIFIED.into()), &options) {
        Err(ListenError::Other { .. }) => tcp::listen(any(Ipv4Addr::UNSPECIFIED.into()), &options),
        other => other,
    }
}

/// Reads where a daemon listens.
///
/// # Errors
///
/// How it is written.
pub fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let example = match text.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(address) => SocketAddr::new(address, DEFAULT_PORT),
        Err(_) => {
            let port = text.trim_start_matches(':').parse();
            SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port.unwrap_or(DEFAULT_PORT))
        }
    };
    text.parse().map_err(|_| {
        format!(
            "write an IP address of this host and a port, as {example} (all addresses: [::]:4960)"
        )
    })
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
    }

    #[test]
    fn an_address_without_a_port_is_told_how_it_is_written() {
        assert!(parse_listen("0.0.0.0:4960").is_ok() && parse_listen("[::1]:7").is_ok());
        for (text, example) in [
            ("0.0.0.0", "0.0.0.0:4960"),
            ("::1", "[::1]:4960"),
            ("[::1]", "[::1]:4960"),
            (":7000", "[::]:7000"),
            ("7000", "[::]:7000"),
            ("localhost:4960", "[::]:4960"),
        ] {
            let error = parse_listen(text).unwrap_err();
            assert!(error.contains(&format!("as {example} ")), "{error}");
        }
    }
}
