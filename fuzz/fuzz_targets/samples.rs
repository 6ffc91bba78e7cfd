//! TCP samples of a run.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::results::samples(bytes));
