//! The corpora of the fuzz targets, through what the targets do.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../../fuzz/src/corpus.rs"]
#[allow(dead_code)]
mod corpus;
#[path = "../src/endpoint.rs"]
#[allow(dead_code)]
mod endpoint;
#[path = "../../../fuzz/src/urls.rs"]
mod urls;

#[test]
fn corpora_are_replayed() {
    corpus::replay("endpoint", urls::endpoint);
}

#[test]
#[ignore = "writes into fuzz/corpus"]
fn samples_are_made() {
    for (name, url) in [
        (
            "daemon",
            "longhaul://alice@dtn.example.org:7000/data/run 1/",
        ),
        ("address", "longhaul://[::1]:8000/null:"),
        ("zero", "zero:1GiB"),
        ("null", "null:"),
        ("local", "a/b:c"),
        ("ssh", "host:path"),
    ] {
        corpus::save("endpoint", name, url.as_bytes());
    }
}
