//! Secrets on the wire and their comparison in constant time.

use minicbor::{Decode, Encode};

/// Proof with which a stream joins a session: the session's secret within TLS, or a ticket that is
/// valid for one stream in clear.
#[derive(Clone, Copy, Encode, Decode)]
#[cbor(transparent)]
pub struct Secret(#[cbor(n(0), with = "minicbor::bytes")] pub [u8; 32]);

impl PartialEq for Secret {
    fn eq(&self, other: &Secret) -> bool {
        are_equal(&self.0, &other.0)
    }
}

impl Eq for Secret {}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// True if two secrets, or two digests of secrets, are equal. The time depends only on their
/// lengths, not on the position of a difference, so that an attacker who measures it learns no
/// byte. All comparisons of secrets, tokens, keys and proofs use this function.
pub fn are_equal(left: &[u8], right: &[u8]) -> bool {
    constant_time_eq::constant_time_eq(left, right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_bit_counts() {
        let secret = Secret([0x61; 32]);
        assert_eq!(secret, Secret([0x61; 32]));
        for bit in 0..256 {
            let mut other = secret;
            other.0[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(secret, other, "bit {bit}");
        }
        assert!(!are_equal(b"abc", b"abcd"));
        assert!(are_equal(b"", b""));
    }

    #[test]
    fn a_secret_is_never_printed() {
        assert!(!format!("{:?}", Secret([0x61; 32])).contains("97"));
    }
}
