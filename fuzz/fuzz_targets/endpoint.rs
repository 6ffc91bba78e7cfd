//! Endpoints as users write them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::urls::endpoint(bytes));
