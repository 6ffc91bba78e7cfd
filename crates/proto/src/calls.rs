//! Reports about the addresses at which an end tried to connect to the other end.

use minicbor::{Decode, Encode};

/// Maximum number of addresses in a report. An end announces no more addresses.
pub const MAXIMUM_CALLS: usize = 24;

/// Maximum length of an address in bytes. An IPv6 address with its zone and port has 58 bytes.
pub const MAXIMUM_ADDRESS_BYTES: usize = 64;

/// Maximum length of a cause in bytes.
pub const MAXIMUM_CAUSE_BYTES: usize = 256;

/// Result of connecting to one address.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Call {
    /// Address and port as written, at most [`MAXIMUM_ADDRESS_BYTES`].
    #[n(0)]
    pub address: String,
    /// Kind of the result.
    #[n(1)]
    pub look: CallLook,
    /// Explanation, at most [`MAXIMUM_CAUSE_BYTES`]; empty if the connection opened.
    #[n(2)]
    pub cause: String,
}

/// Result of a connection attempt as the connecting end sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum CallLook {
    /// The intended end answered.
    #[n(0)]
    Open,
    /// A packet refused the connection.
    #[n(1)]
    Reset,
    /// No answer arrived.
    #[n(2)]
    Silent,
    /// No route leads to the address.
    #[n(3)]
    Unreachable,
    /// A different host answered.
    #[n(4)]
    WrongHost,
    /// The connection opened, but no data arrived.
    #[n(5)]
    Stalled,
}

impl Call {
    /// Makes a report and cuts its cause to [`MAXIMUM_CAUSE_BYTES`]. The address must be within its
    /// bound.
    pub fn new(address: &impl std::fmt::Display, look: CallLook, cause: &str) -> Call {
        let cut = cause.floor_char_boundary(MAXIMUM_CAUSE_BYTES);
        Call {
            address: address.to_string(),
            look,
            cause: cause[..cut].to_owned(),
        }
    }

    /// True if the texts are within their bounds.
    fn is_valid(&self) -> bool {
        self.address.len() <= MAXIMUM_ADDRESS_BYTES && self.cause.len() <= MAXIMUM_CAUSE_BYTES
    }
}

/// True if the number of calls and each call are within their bounds.
pub fn are_valid(calls: &[Call]) -> bool {
    calls.len() <= MAXIMUM_CALLS && calls.iter().all(Call::is_valid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(cause: &str) -> Call {
        // The longest possible address.
        let address = "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff%4294967295]:65535";
        Call::new(&address, CallLook::Reset, cause)
    }

    #[test]
    fn new_calls_are_within_the_bounds() {
        let long = call(&"é".repeat(MAXIMUM_CAUSE_BYTES));
        assert_eq!(long.cause.len(), MAXIMUM_CAUSE_BYTES);
        assert!(are_valid(&vec![long; MAXIMUM_CALLS]));
    }

    #[test]
    fn calls_beyond_the_bounds_are_refused() {
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
