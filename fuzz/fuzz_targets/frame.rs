//! Frames of every kind, header and body.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::decoders::frame(bytes));
