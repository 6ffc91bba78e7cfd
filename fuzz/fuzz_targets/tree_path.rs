//! Bytes that become a `TreePath` cannot name anything outside the anchor.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::decoders::tree_path(bytes));
