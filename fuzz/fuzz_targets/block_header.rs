//! A block's header, and the sizes that follow from it.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::decoders::block_header(bytes));
