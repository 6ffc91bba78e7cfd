//! Tokens: secrets by which a principal authenticates at a daemon.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::rand;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use longhaul_proto::secret::are_equal;

/// Number of random bytes in a token.
const SECRET_BYTES: usize = 32;

/// Number of bytes of salt in a hash.
const SALT_BYTES: usize = 16;

/// Prefix that makes tokens recognisable, for example to scanners for committed secrets.
const TOKEN_PREFIX: &str = "lht_";

const HASH_PREFIX: &str = "lhh1";

/// Context of the hash (BLAKE3's key derivation). The hash of a token for any other purpose is
/// different.
const HASH_CONTEXT: &str = "longhaul 2026-11 daemon token hash v1";

/// A secret of 256 random bits, written as `lht_` and 43 characters of URL-safe Base64. Only
/// [`Token::reveal`] returns that text.
#[derive(Clone)]
pub struct Token([u8; SECRET_BYTES]);

impl PartialEq for Token {
    fn eq(&self, other: &Token) -> bool {
        are_equal(&self.0, &other.0)
    }
}

impl Eq for Token {}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Error for text that is not a token or a token's hash. It does not contain the text, which may be
/// a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseTokenError {
    /// The text is not a token.
    #[error("not a token: it is written `lht_` and 43 characters, as it was shown when made")]
    Token,
    /// The text is not a token's hash.
    #[error("not a token's hash: it is written `lhh1$...$...`, as it was shown when made")]
    Hash,
}

/// Error if the system provides no random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the system gives no random bytes: check that getrandom is allowed in this sandbox")]
pub struct NoRandomness;

/// Fills a buffer with random bytes of the system.
///
/// # Errors
///
/// [`NoRandomness`].
pub fn fill_random(bytes: &mut [u8]) -> Result<(), NoRandomness> {
    rand::fill(bytes).map_err(|_| NoRandomness)
}

fn random<const N: usize>() -> Result<[u8; N], NoRandomness> {
    let mut bytes = [0; N];
    rand::fill(&mut bytes).map_err(|_| NoRandomness)?;
    Ok(bytes)
}

impl Token {
    /// Generates a new token.
    ///
    /// # Errors
    ///
    /// [`NoRandomness`].
    pub fn generate() -> Result<Token, NoRandomness> {
        random().map(Token)
    }

    /// Returns the text of the token for its owner.
    pub fn reveal(&self) -> String {
        format!("{TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(self.0))
    }

    /// Returns a hash for the daemon to store, with a new salt for each call.
    ///
    /// # Errors
    ///
    /// [`NoRandomness`].
    pub fn hash(&self) -> Result<TokenHash, NoRandomness> {
        let salt = random()?;
        Ok(TokenHash {
            salt,
            hash: self.hash_with(&salt),
        })
    }

    /// Hashes the token with a salt. Slow hashes protect weak passwords from guessing. A token has
    /// 256 random bits and cannot be guessed, so a single fast hash is sufficient, and clients
    /// cannot make the daemon do expensive work. The salt hides that two files contain the same
    /// token.
    fn hash_with(&self, salt: &[u8; SALT_BYTES]) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_derive_key(HASH_CONTEXT);
        hasher.update(salt);
        hasher.update(&self.0);
        *hasher.finalize().as_bytes()
    }
}

impl FromStr for Token {
    type Err = ParseTokenError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let decode = || {
            let bytes = URL_SAFE_NO_PAD.decode(text.strip_prefix(TOKEN_PREFIX)?);
            bytes.ok()?.try_into().ok().map(Token)
        };
        decode().ok_or(ParseTokenError::Token)
    }
}

/// A salted hash of a token, written `lhh1$salt$hash`.
#[derive(Clone)]
pub struct TokenHash {
    salt: [u8; SALT_BYTES],
    hash: [u8; 32],
}

impl PartialEq for TokenHash {
    fn eq(&self, other: &TokenHash) -> bool {
        self.salt == other.salt && are_equal(&self.hash, &other.hash)
    }
}

impl Eq for TokenHash {}

impl TokenHash {
    /// True if this is the hash of `token`. The duration does not depend on either.
    pub fn verify(&self, token: &Token) -> bool {
        let hash = token.hash_with(&self.salt);
        are_equal(&hash, &self.hash)
    }

    /// Returns a hash that matches no token, and takes as long to verify as others.
    pub(super) const fn of_nothing() -> TokenHash {
        TokenHash {
            salt: [0; SALT_BYTES],
            hash: [0; 32],
        }
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash(..)")
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [salt, hash] = [&self.salt[..], &self.hash[..]].map(|b| URL_SAFE_NO_PAD.encode(b));
        write!(f, "{HASH_PREFIX}${salt}${hash}")
    }
}

impl FromStr for TokenHash {
    type Err = ParseTokenError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let decode = || {
            let (salt, hash) = text
                .strip_prefix(HASH_PREFIX)?
                .strip_prefix('$')?
                .split_once('$')?;
            Some(TokenHash {
                salt: URL_SAFE_NO_PAD.decode(salt).ok()?.try_into().ok()?,
                hash: URL_SAFE_NO_PAD.decode(hash).ok()?.try_into().ok()?,
            })
        };
        decode().ok_or(ParseTokenError::Hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_itself_verifies() {
        let [token, other] = [(); 2].map(|()| Token::generate().unwrap());
        let hash = token.hash().unwrap();
        assert!(hash.verify(&token) && !hash.verify(&other));
        assert!(!TokenHash::of_nothing().verify(&token));
        assert_ne!(hash, token.hash().unwrap());
    }

    #[test]
    fn written_tokens_are_parsed() {
        let token = Token::generate().unwrap();
        assert_eq!(token.reveal().parse(), Ok(token.clone()));
        let hash = token.hash().unwrap();
        assert_eq!(hash.to_string().parse(), Ok(hash.clone()));
        assert!(!format!("{token:?}{hash:?}").contains(&token.reveal()[4..]));
    }

    #[test]
    fn invalid_tokens_are_refused() {
        let good = Token::generate().unwrap().reveal();
        for bad in ["", "lht_", &good[4..], &good[..46], &format!("{good}A")] {
            assert_eq!(bad.parse::<Token>(), Err(ParseTokenError::Token), "{bad}");
        }
        for bad in ["", "lhh1", "lhh1$$", "lhh1$AA$AA", &good] {
            assert_eq!(
                bad.parse::<TokenHash>(),
                Err(ParseTokenError::Hash),
                "{bad}"
            );
        }
    }
}
