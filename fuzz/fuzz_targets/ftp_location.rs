//! URLs of FTP servers.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::gridftp::location(bytes));
