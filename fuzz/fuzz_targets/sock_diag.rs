//! The kernel's answers about TCP sockets.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::sockets::sock_diag(bytes));
