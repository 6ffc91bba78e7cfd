//! Replays the corpora of the fuzz targets through the functions of the targets.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../../../fuzz/src/corpus.rs"]
#[allow(dead_code)]
mod corpus;
#[path = "../../../../fuzz/src/facts.rs"]
mod facts;

#[test]
fn corpora_are_replayed() {
    corpus::replay("host_facts", facts::host_facts);
}

#[test]
#[ignore = "writes into fuzz/corpus"]
fn samples_are_made() {
    for (name, lines) in [
        ("clock", "longhaul-fact/1 clock 1795276800.25\n"),
        ("old_date", "longhaul-fact/1 clock 1795276800.N\n"),
        (
            "room",
            "longhaul-fact/1 space /dev/my disk 1000 400 600 40% /srv/my data\nlonghaul-fact/1 \
             inodes tank - - - - /tank\n",
        ),
        (
            "kernel",
            "Welcome!\nlonghaul-fact/1 net.ipv4.tcp_wmem 4096 16384 4194304\nlonghaul-fact/1 \
             open_files unlimited\nlonghaul-fact/1 writable no\n",
        ),
    ] {
        corpus::save("host_facts", name, lines.as_bytes());
    }
}
