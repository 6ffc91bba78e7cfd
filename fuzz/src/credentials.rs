//! Files with credentials: lists of principals, of known hosts and of tokens.

use std::path::Path;

use longhaul_net::client_tokens::{BadLine, ClientTokens};
use longhaul_net::identity::Fingerprint;
use longhaul_net::known_hosts::{self, Knowledge};
use longhaul_net::principals::Principals;
use longhaul_net::tcp::HostPort;
use longhaul_net::token::Token;

/// A file of principals; what it grants leads beneath a root.
pub fn principals(bytes: &[u8]) {
    let (text, url) = match bytes.iter().position(|&byte| byte == 0) {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (bytes, &b"/data/x"[..]),
    };
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    let parsed = match Principals::parse(text, Path::new("principals.toml")) {
        Ok(parsed) => parsed,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let token: Token = format!("lht_{}", "A".repeat(43))
        .parse()
        .expect("it is a token");
    if let Ok((principal, _)) = parsed.by_token("alice", &token, 0)
        && let Ok(resolved) = principal.resolve(url)
    {
        assert!(resolved.root.is_absolute());
    }
}

/// A list of known hosts.
pub fn known_hosts(bytes: &[u8]) {
    let key: Fingerprint = format!("sha256:{}", "A".repeat(43))
        .parse()
        .expect("it is a fingerprint");
    let host = HostPort::new("host", 1);
    let judged = known_hosts::judge(Path::new("known_hosts"), bytes, &host, &key);
    if let Ok(Knowledge::Changed { line, known }) = judged {
        assert!(line > 0 && known != key);
    }
}

/// A user's file of tokens; errors do not repeat what may be a secret.
pub fn client_tokens(bytes: &[u8]) {
    let lines = bytes.split(|&byte| byte == b'\n').count();
    let tokens = ClientTokens::parse(bytes);
    assert!(tokens.bad_lines().all(|line| (1..=lines).contains(&line)));
    if let Err(BadLine(line)) = tokens.lookup(&HostPort::new("host", 1), Some("alice")) {
        assert!(tokens.bad_lines().any(|bad| bad == line));
    }
}
