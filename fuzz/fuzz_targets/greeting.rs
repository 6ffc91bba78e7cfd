//! The first line of each end of an SSH channel.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::greetings::greeting(bytes));
