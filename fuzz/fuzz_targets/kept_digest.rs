//! A digest that is kept beside the journal.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::journals::kept_digest(bytes));
