//! Transfers as values.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::specs::transfer_spec(bytes));
