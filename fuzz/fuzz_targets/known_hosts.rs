//! A list of known servers.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::credentials::known_hosts(bytes));
