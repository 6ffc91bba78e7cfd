//! Replays the corpora of the fuzz targets.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../../../fuzz/src/corpus.rs"]
#[allow(dead_code)]
mod corpus;
#[path = "../../../../fuzz/src/results.rs"]
mod results;

#[test]
fn corpora_are_replayed() {
    corpus::replay("run_record", results::run_record);
    corpus::replay("samples", results::samples);
    corpus::replay("hosts", results::hosts);
    corpus::replay("iperf3", results::iperf3);
    corpus::replay("pscheduler", results::pscheduler);
    corpus::replay("table", results::table);
}
