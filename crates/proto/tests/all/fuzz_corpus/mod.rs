//! Runs the corpora of the fuzz targets through the targets' code. After a change of the protocol,
//! `cargo test -p longhaul-proto --test all fuzz_corpus:: -- --ignored` writes the samples again.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../../../../fuzz/src/choices.rs"]
#[allow(dead_code)]
mod choices;
#[path = "../../../../../fuzz/src/corpus.rs"]
#[allow(dead_code)]
mod corpus;
#[path = "../../../../../fuzz/src/decoders.rs"]
mod decoders;
#[path = "../../../../../fuzz/src/receiver.rs"]
mod receiver;
mod samples;
#[path = "../../../../../fuzz/src/sender.rs"]
mod sender;

#[test]
fn corpora_are_replayed() {
    corpus::replay("tree_path", decoders::tree_path);
    corpus::replay("filter", decoders::filter);
    corpus::replay("frame", decoders::frame);
    corpus::replay("message", decoders::message);
    corpus::replay("block_header", decoders::block_header);
    corpus::replay("control", decoders::control);
    corpus::replay("digest", decoders::digest);
    corpus::replay("receiver", receiver::receiver);
    corpus::replay("sender", sender::sender);
}

#[test]
#[ignore = "writes into fuzz/corpus"]
fn samples_are_made() {
    for (index, message) in samples::messages().iter().enumerate() {
        let bytes = minicbor::to_vec(message).unwrap();
        corpus::save("message", &format!("sample-{index:02}"), &bytes);
    }
    for (index, block) in samples::blocks().iter().enumerate() {
        let mut bytes = vec![0];
        minicbor::encode(block, &mut bytes).unwrap();
        corpus::save("block_header", &format!("sample-{index:02}"), &bytes);
    }
    for (index, frame) in samples::frames().iter().enumerate() {
        corpus::save("frame", &format!("sample-{index:02}"), frame);
    }
    for seed in 0..4 {
        for target in ["control", "digest", "receiver", "sender"] {
            let bytes = corpus::choices(seed, 64 << seed);
            corpus::save(target, &format!("choices-{seed}"), &bytes);
        }
    }
}
