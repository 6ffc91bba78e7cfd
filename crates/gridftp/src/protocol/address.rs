//! Ports and addresses of data connections.

use core::net::{IpAddr, SocketAddr};

/// Returns the port in a reply to `EPSV`: `(|||53577|)`, with any separator (RFC 2428).
pub fn extended_port(text: &[u8]) -> Option<u16> {
    let open = text.iter().position(|byte| *byte == b'(')?;
    let inside = &text[open + 1..];
    let close = inside.iter().position(|byte| *byte == b')')?;
    let inside = &inside[..close];
    let separator = *inside.first()?;
    if separator.is_ascii_digit() {
        return None;
    }
    let fields: Vec<&[u8]> = inside.split(|byte| *byte == separator).collect();
    match fields[..] {
        [_, _, _, port, _] => port_of(port),
        _ => None,
    }
}

/// Returns the port in a reply to `PASV`: six numbers from 0 to 255. The address is ignored, so
/// that a server cannot direct this client to another host.
pub fn passive_port(text: &[u8]) -> Option<u16> {
    let start = text
        .iter()
        .position(u8::is_ascii_digit)
        .filter(|_| text.contains(&b','))?;
    let numbers = text[start..]
        .split(|byte| !byte.is_ascii_digit())
        .take(6)
        .map(|digits| std::str::from_utf8(digits).ok()?.parse::<u8>().ok());
    let numbers = numbers.collect::<Option<Vec<u8>>>()?;
    match numbers[..] {
        [_, _, _, _, high, low] => Some(u16::from_be_bytes([high, low])).filter(|port| *port != 0),
        _ => None,
    }
}

fn port_of(digits: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(digits).ok()?;
    let all_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| all_digits && *port != 0)
}

/// Returns the command that names an address of this host to the server: `PORT` for IPv4,
/// `EPRT` for IPv6.
pub fn active(address: SocketAddr) -> (&'static str, String) {
    let [high, low] = address.port().to_be_bytes();
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => {
            let [a, b, c, d] = ip.octets();
            ("PORT", format!("{a},{b},{c},{d},{high},{low}"))
        }
        IpAddr::V6(ip) => ("EPRT", format!("|2|{ip}|{}|", address.port())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read() {
        for (text, port) in [
            ("Entering Extended Passive Mode (|||53577|)", Some(53577)),
            ("ok (!!!1!).", Some(1)),
            ("(|||0|)", None),
            ("(|||65536|)", None),
            ("(|||+1|)", None),
            ("(||1|)", None),
            ("(11111)", None),
            ("()", None),
            ("|||1|", None),
        ] {
            assert_eq!(extended_port(text.as_bytes()), port, "{text}");
        }
        for (text, port) in [
            ("Entering Passive Mode (127,0,0,1,62,212).", Some(16084)),
            ("Entering Passive Mode 10,0,0,1,0,21", Some(21)),
            ("(127,0,0,1,0,0)", None),
            ("(127,0,0,1,256,0)", None),
            ("(127,0,0,1,2)", None),
            ("", None),
        ] {
            assert_eq!(passive_port(text.as_bytes()), port, "{text}");
        }
    }

    #[test]
    fn addresses_are_written() {
        let four = "10.0.0.1:513".parse().unwrap();
        assert_eq!(active(four), ("PORT", "10,0,0,1,2,1".to_owned()));
        let mapped = "[::ffff:10.0.0.1]:513".parse().unwrap();
        assert_eq!(active(mapped), ("PORT", "10,0,0,1,2,1".to_owned()));
        let six = "[2001:db8::1]:513".parse().unwrap();
        assert_eq!(active(six), ("EPRT", "|2|2001:db8::1|513|".to_owned()));
    }
}
