//! Hosts that records name, and what a daemon says of its own.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::results::hosts(bytes));
