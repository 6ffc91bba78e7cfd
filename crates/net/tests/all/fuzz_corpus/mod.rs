//! Runs the committed inputs of the fuzz targets of this crate. `cargo test -p longhaul-net
//! --test all fuzz_corpus:: -- --ignored` writes the samples again.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../../../../fuzz/src/corpus.rs"]
#[allow(dead_code)]
mod corpus;
#[path = "../../../../../fuzz/src/credentials.rs"]
mod credentials;
mod samples;
#[path = "../../../../../fuzz/src/sockets.rs"]
mod sockets;

#[test]
fn corpora_are_replayed() {
    corpus::replay("principals", credentials::principals);
    corpus::replay("known_hosts", credentials::known_hosts);
    corpus::replay("client_tokens", credentials::client_tokens);
    corpus::replay("sock_diag", sockets::sock_diag);
}

#[test]
#[ignore = "writes into fuzz/corpus"]
fn samples_are_made() {
    for (target, name, text) in samples::texts() {
        corpus::save(target, name, text.as_bytes());
    }
    for (name, bytes) in samples::kernel_answers() {
        corpus::save("sock_diag", name, &bytes);
    }
}
