//! Ranges that a peer names, before and within the hasher.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::decoders::digest(bytes));
