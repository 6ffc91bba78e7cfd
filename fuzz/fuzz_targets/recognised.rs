//! The beginnings of files, as formats and as samples.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::content::recognised(bytes));
