//! The receiving state machine against a hostile sender.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::receiver::receiver(bytes));
