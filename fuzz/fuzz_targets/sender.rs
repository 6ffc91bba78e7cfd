//! The sending state machine against a hostile receiver.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::sender::sender(bytes));
