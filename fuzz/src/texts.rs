//! Words that users and peers write: tokens, fingerprints, hosts, sizes, names of staging files.

use longhaul_net::identity::Fingerprint;
use longhaul_net::tcp::HostPort;
use longhaul_net::token::{Token, TokenHash};
use longhaul_storage::journal::names::{self, StagingName};
use longhaul_units::{BitRate, ByteCount, parse_share, parse_span, share_text};

/// Parses one text with every parser of words.
pub fn words(bytes: &[u8]) {
    if let Some(StagingName::Part(key, number)) = names::parse(bytes) {
        assert_eq!(&*key.part(number), bytes);
    }
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(token) = text.parse::<Token>() {
        assert_eq!(token.reveal(), text);
    }
    if let Ok(hash) = text.parse::<TokenHash>() {
        assert_eq!(hash.to_string(), text);
    }
    if let Ok(fingerprint) = text.parse::<Fingerprint>() {
        assert_eq!(fingerprint.to_string(), text);
    }
    let host = HostPort::new(text, 1);
    let again = HostPort::new(host.host(), 1);
    assert!(again.port() == 1 && !host.to_string().is_empty());
    if let Ok(count) = text.parse::<ByteCount>() {
        let _ = count.to_string();
    }
    if let Ok(rate) = text.parse::<BitRate>() {
        let _ = rate.to_string();
    }
    let _ = parse_span(text);
    if let Ok(share) = parse_share(text) {
        assert_eq!(parse_share(&share_text(share)), Ok(share));
    }
}
