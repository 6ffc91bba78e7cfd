//! Requests to a running lab.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::lab::lab_request(bytes));
