//! Records of runs, line by line.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::results::run_record(bytes));
