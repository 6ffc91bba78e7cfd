//! A daemon's list of principals.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::credentials::principals(bytes));
