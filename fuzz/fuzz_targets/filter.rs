//! Rules of filters: parsed, and matched in bounded time.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::decoders::filter(bytes));
