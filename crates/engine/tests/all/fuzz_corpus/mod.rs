//! The corpora of the fuzz targets, through what the targets do. `cargo test -p
//! longhaul-engine --test all fuzz_corpus:: -- --ignored` makes the samples anew.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../../../../fuzz/src/choices.rs"]
#[allow(dead_code)]
mod choices;
#[path = "../../../../../fuzz/src/content.rs"]
mod content;
#[path = "../../../../../fuzz/src/corpus.rs"]
#[allow(dead_code)]
mod corpus;
#[path = "../../../../../fuzz/src/credentials.rs"]
mod credentials;
mod samples;
#[path = "../../../../../fuzz/src/sockets.rs"]
mod sockets;
#[path = "../../../../../fuzz/src/texts.rs"]
mod texts;

#[test]
fn corpora_are_replayed() {
    corpus::replay("codec", content::codec);
    corpus::replay("shuffle", content::shuffle);
    corpus::replay("recognised", content::recognised);
    corpus::replay("principals", credentials::principals);
    corpus::replay("known_hosts", credentials::known_hosts);
    corpus::replay("client_tokens", credentials::client_tokens);
    corpus::replay("words", texts::words);
    corpus::replay("sock_diag", sockets::sock_diag);
}

#[test]
#[ignore = "writes into fuzz/corpus"]
fn samples_are_made() {
    for (index, payload) in samples::payloads().iter().enumerate() {
        corpus::save("codec", &format!("sample-{index}"), payload);
    }
    for (target, name, text) in samples::texts() {
        corpus::save(target, name, text.as_bytes());
    }
    for (name, bytes) in samples::kernel_answers() {
        corpus::save("sock_diag", name, &bytes);
    }
}
