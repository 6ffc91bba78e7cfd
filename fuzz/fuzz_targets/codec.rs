//! Payloads that are decoded into a room of the announced size.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::content::codec(bytes));
