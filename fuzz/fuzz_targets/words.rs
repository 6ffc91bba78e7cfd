//! Tokens, hashes, fingerprints, hosts, sizes, staging names.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::texts::words(bytes));
