//! Parses the address on which a daemon listens.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::endpoint::DEFAULT_PORT;

/// Parses the address on which a daemon listens.
///
/// # Errors
///
/// Returns a message with an example if the text is invalid.
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
            "write an IP address of this host and a port, such as {example} (all addresses: [::]:4960)"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_contain_a_fitting_example() {
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
            assert!(error.contains(&format!("such as {example} ")), "{error}");
        }
    }
}
