//! Tokens and limits of principals.

use longhaul_units::{ByteCount, microseconds_of};
use serde::{Deserialize, Serialize};

use crate::identity::Fingerprint;
use crate::token::TokenHash;

/// Maximum number of tokens of a principal.
const MOST_TOKENS: usize = 16;

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawToken {
    hash: String,
    expires: Option<toml::value::Datetime>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLimits {
    sessions: Option<u32>,
    streams: Option<u32>,
    memory: Option<String>,
}

/// A token by which a principal authenticates.
#[derive(Debug)]
pub(super) struct PrincipalToken {
    pub hash: TokenHash,
    /// Time from which it is invalid, in seconds since 1970.
    pub expires: Option<i64>,
}

/// Limits of a principal's sessions. `None` means that only the limits of the daemon apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrincipalLimits {
    /// Maximum number of simultaneous sessions.
    pub sessions: Option<u32>,
    /// Maximum number of streams of a session.
    pub streams: Option<u32>,
    /// Memory for blocks of a session.
    pub memory: Option<ByteCount>,
}

impl RawLimits {
    pub(super) fn check(self) -> Result<PrincipalLimits, String> {
        let RawLimits {
            sessions,
            streams,
            memory,
        } = self;
        if sessions == Some(0) || streams == Some(0) {
            return Err("write a number above 0".to_owned());
        }
        let memory = memory.map(|text| text.parse::<ByteCount>());
        let memory = memory.transpose();
        Ok(PrincipalLimits {
            sessions,
            streams,
            memory: memory.map_err(|error| error.to_string())?,
        })
    }
}

/// Returns the tokens of an entry.
pub(super) fn tokens_of(
    single: Option<&str>,
    several: &[RawToken],
) -> Result<Vec<PrincipalToken>, String> {
    if several.len() > MOST_TOKENS {
        let text = format!("a principal has at most {MOST_TOKENS} tokens");
        return Err(text);
    }
    let parsed = |hash: &str, expires| {
        let hash = hash.parse::<TokenHash>();
        let hash = hash.map_err(|error| error.to_string())?;
        Ok(PrincipalToken { hash, expires })
    };
    let single = single.into_iter().map(|hash| parsed(hash, None));
    let several = several.iter().map(|token| {
        let expires = token.expires.as_ref().map(ToString::to_string);
        let expires = expires.map(|text| {
            microseconds_of(&text)
                .map(|at| at / 1_000_000)
                .ok_or_else(|| {
                    format!("expires = {text}: write a time in UTC, such as 2027-01-31T00:00:00Z")
                })
        });
        parsed(&token.hash, expires.transpose()?)
    });
    single.chain(several).collect()
}

/// Credential by which a client was authenticated.
#[derive(Clone, Debug, PartialEq)]
pub enum Proof {
    /// The token with this hash.
    Token(TokenHash),
    /// The certificate with this key.
    Certificate(Fingerprint),
    /// The client owns the process.
    Owner,
}

/// Reasons to refuse a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenRefused {
    /// The principal is unknown, or the token is not its own.
    Unknown,
    /// The token expired at this time, in seconds since 1970. Only its owner learns this.
    Expired(i64),
}
