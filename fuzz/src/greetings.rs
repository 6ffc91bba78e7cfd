//! The first line of each end of an SSH channel.

use longhaul_transfer::ssh::greeting::{ABSENT, CLIENT, Line, MAXIMUM_ADDRESSES, REMOTE, parse};

/// Checks that a parsed greeting is within its bounds, and is parsed again after it is printed.
pub fn greeting(bytes: &[u8]) {
    for begins in [REMOTE, CLIENT] {
        match parse(bytes, begins) {
            Some(Line::Greeting(greeting)) => {
                assert!(greeting.addresses.len() <= MAXIMUM_ADDRESSES);
                assert_ne!(greeting.port, Some(0));
                let line = greeting.line(begins);
                let again = parse(line.trim_end_matches('\n').as_bytes(), begins);
                assert_eq!(again, Some(Line::Greeting(greeting)), "{line}");
            }
            Some(Line::Absent(system)) => {
                assert!(bytes.starts_with(ABSENT.as_bytes()));
                assert!(!system.chars().any(char::is_control));
            }
            None => {}
        }
    }
}
