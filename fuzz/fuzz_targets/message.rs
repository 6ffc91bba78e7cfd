//! A message of a session, without its frame.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::decoders::message(bytes));
