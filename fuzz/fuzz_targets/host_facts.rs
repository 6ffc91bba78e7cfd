//! What a shell on the remote host tells of its host.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::facts::host_facts(bytes));
