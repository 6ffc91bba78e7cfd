//! Frames of extended block mode.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::gridftp::block(bytes));
