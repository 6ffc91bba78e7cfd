//! The control channel against a peer that says anything.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::decoders::control(bytes));
