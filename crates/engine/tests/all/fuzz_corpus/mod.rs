//! Runs the corpora of the fuzz targets through the code of the targets. `cargo test -p
//! longhaul-engine --test all fuzz_corpus:: -- --ignored` creates the samples again.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../../../../fuzz/src/choices.rs"]
#[allow(dead_code)]
mod choices;
#[path = "../../../../../fuzz/src/content.rs"]
mod content;
#[path = "../../../../../fuzz/src/corpus.rs"]
#[allow(dead_code)]
mod corpus;
mod samples;
#[path = "../../../../../fuzz/src/texts.rs"]
mod texts;

#[test]
fn corpora_are_replayed() {
    corpus::replay("codec", content::codec);
    corpus::replay("shuffle", content::shuffle);
    corpus::replay("recognised", content::recognised);
    corpus::replay("words", texts::words);
}

#[test]
#[ignore = "writes into fuzz/corpus"]
fn samples_are_made() {
    for (index, payload) in samples::payloads().iter().enumerate() {
        corpus::save("codec", &format!("sample-{index}"), payload);
    }
    for (name, text) in samples::words() {
        corpus::save("words", name, text.as_bytes());
    }
}
