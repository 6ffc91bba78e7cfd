//! The corpora of the fuzz targets, through what the targets do. `cargo test -p
//! longhaul-engine --test fuzz_corpus -- --ignored` makes the samples anew.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../../../fuzz/src/choices.rs"]
#[allow(dead_code)]
mod choices;
#[path = "../../../../fuzz/src/content.rs"]
mod content;
#[path = "../../../../fuzz/src/corpus.rs"]
#[allow(dead_code)]
mod corpus;
#[path = "../../../../fuzz/src/files.rs"]
mod files;
mod samples;
#[path = "../../../../fuzz/src/sockets.rs"]
mod sockets;
#[path = "../../../../fuzz/src/texts.rs"]
mod texts;

#[test]
fn corpora_are_replayed() {
    corpus::replay("codec", files::codec);
    corpus::replay("shuffle", content::shuffle);
    corpus::replay("recognised", content::recognised);
    corpus::replay("journal_entry", files::journal_entry);
    corpus::replay("journal", files::journal);
    corpus::replay("kept_digest", files::kept_digest);
    corpus::replay("principals", files::principals);
    corpus::replay("known_hosts", files::known_hosts);
    corpus::replay("client_tokens", files::client_tokens);
    corpus::replay("words", texts::words);
    corpus::replay("sock_diag", sockets::sock_diag);
}

#[test]
#[ignore = "writes into fuzz/corpus"]
fn samples_are_made() {
    let bodies = samples::records();
    let mut journal = Vec::new();
    for (index, (kind, body)) in bodies.iter().enumerate() {
        let record = [&[0, *kind][..], body].concat();
        corpus::save("journal_entry", &format!("sample-{index}"), &record);
        let [low, high] = (body.len() as u16).to_le_bytes();
        journal.extend([&[high, low, *kind][..], body].concat());
    }
    corpus::save("journal", "sample", &journal);
    corpus::save("journal", "header-only", &journal[..3 + bodies[0].1.len()]);
    for (index, payload) in samples::payloads().iter().enumerate() {
        corpus::save("codec", &format!("sample-{index}"), payload);
    }
    corpus::save("kept_digest", "sample", &samples::kept_digest());
    for (target, name, text) in samples::texts() {
        corpus::save(target, name, text.as_bytes());
    }
    for (name, bytes) in samples::kernel_answers() {
        corpus::save("sock_diag", name, &bytes);
    }
}
