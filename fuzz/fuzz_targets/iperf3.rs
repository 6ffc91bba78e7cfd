//! Results of iperf3.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::results::iperf3(bytes));
