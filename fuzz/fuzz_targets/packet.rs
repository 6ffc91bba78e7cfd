//! A packet of whatever runs in a lab, with its note.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::lab::packet(bytes));
