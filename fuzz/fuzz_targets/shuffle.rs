//! Shuffles before codecs, and their inverses.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::content::shuffle(bytes));
