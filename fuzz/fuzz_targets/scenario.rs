//! Paths, hosts, rules and storage of a lab, as users write them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::lab::scenario(bytes));
