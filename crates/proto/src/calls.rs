//! What an end says of the addresses at which it tried to connect to the other.

use minicbor::{Decode, Encode};

/// Most addresses in a report: an end names no more of its own.
pub const MAXIMUM_CALLS: usize = 24;

/// Longest address in bytes: an IPv6 one with its zone and port has 58.
pub const MAXIMUM_ADDRESS_BYTES: usize = 64;

/// Longest cause in bytes.
pub const MAXIMUM_CAUSE_BYTES: usize = 256;

/// What came of one address.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Call {
    /// Address and port as written, at most [`MAXIMUM_ADDRESS_BYTES`].
    #[n(0)]
    pub address: String,
    /// How it looked.
    #[n(1)]
    pub look: CallLook,
    /// Why, in words, at most [`MAXIMUM_CAUSE_BYTES`]; empty where it opened.
    #[n(2)]
    pub cause: String,
}

/// How an address looks to the side that connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum CallLook {
    /// The end that was meant answered.
    #[n(0)]
    Open,
    /// A packet said no.
    #[n(1)]
    Reset,
    /// Nothing came back.
    #[n(2)]
    Silent,
    /// No way leads there.
    #[n(3)]
    Unreachable,
    /// Somebody else answered.
    #[n(4)]
    WrongHost,
    /// It opened, and nothing more came.
    #[n(5)]
    Stalled,
}

impl Call {
    /// One whose cause is cut to its bound; an address is within its own.
    pub fn new(address: &impl std::fmt::Display, look: CallLook, cause: &str) -> Call {
        let cut = cause.floor_char_boundary(MAXIMUM_CAUSE_BYTES);
        Call {
            address: address.to_string(),
            look,
            cause: cause[..cut].to_owned(),
        }
    }

    /// Whether it is within its bounds.
    fn is_valid(&self) -> bool {
        self.address.len() <= MAXIMUM_ADDRESS_BYTES && self.cause.len() <= MAXIMUM_CAUSE_BYTES
    }
}

/// Whether a report may have these calls: their number, and each within its bounds.
pub fn are_valid(calls: &[Call]) -> bool {
    calls.len() <= MAXIMUM_CALLS && calls.iter().all(Call::is_valid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(cause: &str) -> Call {
        // As long as any is.
        let address = "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff%4294967295]:65535";
        Call::new(&address, CallLook::Reset, cause)
    }

    #[test]
    fn what_is_made_is_within_the_bounds() {
        let long = call(&"é".repeat(MAXIMUM_CAUSE_BYTES));
        assert_eq!(long.cause.len(), MAXIMUM_CAUSE_BYTES);
        assert!(are_valid(&vec![long; MAXIMUM_CALLS]));
    }

    #[test]
    fn what_is_beyond_them_is_refused() {
        let mut wordy = call("");
        wordy.cause = "x".repeat(MAXIMUM_CAUSE_BYTES + 1);
        let mut nowhere = call("");
        nowhere.address = "x".repeat(MAXIMUM_ADDRESS_BYTES + 1);
        for bad in [
            vec![wordy],
            vec![nowhere],
            vec![call(""); MAXIMUM_CALLS + 1],
        ] {
            assert!(!are_valid(&bad), "{bad:?}");
        }
    }
}
