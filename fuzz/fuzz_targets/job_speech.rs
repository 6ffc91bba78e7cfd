//! What a job and whoever follows it say to each other.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::speeches::job_speech(bytes));
