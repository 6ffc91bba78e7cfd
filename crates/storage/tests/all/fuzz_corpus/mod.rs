//! Runs the committed inputs of the fuzz targets of this crate. `cargo test -p longhaul-storage
//! --test all fuzz_corpus:: -- --ignored` writes the samples again.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../../../../fuzz/src/choices.rs"]
#[allow(dead_code)]
mod choices;
#[path = "../../../../../fuzz/src/corpus.rs"]
#[allow(dead_code)]
mod corpus;
#[path = "../../../../../fuzz/src/journals.rs"]
mod journals;
mod samples;

#[test]
fn corpora_are_replayed() {
    corpus::replay("journal_entry", journals::journal_entry);
    corpus::replay("journal", journals::journal);
    corpus::replay("kept_digest", journals::kept_digest);
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
    corpus::save("kept_digest", "sample", &samples::kept_digest());
}
