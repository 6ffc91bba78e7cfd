//! A user's file of tokens.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::credentials::client_tokens(bytes));
