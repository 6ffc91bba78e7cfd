//! `--bwlimit`: what goes never goes faster, whoever sends.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::process::Command;

use support::Daemon;
use support::process::{longhaul, run};

const RATE: f64 = 1_000_000.0;

/// Bytes that are moved: a second's worth and a half.
const BYTES: f64 = 1_500_000.0;

/// A copy of zeros took no less than the rate allows: the clock that paces it
/// and the one that tells are the same, so that no busy host changes that.
fn assert_paced(mut command: Command) {
    let done = run(command.args(["--json", "--bwlimit", "1MB/s"])).expect(0);
    let summary = done.summary();
    assert_eq!(summary["bwlimit_bytes_per_second"], 1_000_000);
    assert_eq!(summary["bytes"], BYTES as u64);
    let seconds = summary["seconds"].as_f64().unwrap();
    let kept = RATE / 20.0;
    assert!(seconds >= (BYTES - kept) / RATE, "{seconds} s");
}

#[test]
fn no_way_is_faster_than_the_rate() {
    let place = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(place.path());
    let mut there = daemon.command("cp");
    there.arg("zero:1500kB").arg(daemon.url("null:"));
    assert_paced(there);
    let mut back = daemon.command("cp");
    back.arg(daemon.url("zero:1500kB")).arg("null:");
    assert_paced(back);
    let mut here = longhaul();
    here.args(["cp", "zero:1500kB", "null:"]);
    assert_paced(here);
}

#[test]
fn a_low_rate_has_small_blocks_and_still_arrives_whole() {
    let place = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(place.path());
    let file = place.path().join("file");
    let data: Vec<u8> = (0..30_000_u32).map(|number| number as u8).collect();
    std::fs::write(&file, &data).unwrap();
    let mut command = daemon.command("cp");
    command.args(["--bwlimit", "20kB/s"]).arg(&file);
    run(command.arg(daemon.url("copy")))
        .expect(0)
        .says(&["--bwlimit 20.0 kB/s"]);
    assert_eq!(std::fs::read(place.path().join("copy")).unwrap(), data);
}

#[test]
fn what_is_no_rate_is_explained() {
    run(longhaul().args(["cp", "--bwlimit", "fast", "zero:1kB", "null:"]))
        .expect(1)
        .says(&["is not a rate", "100Mbit/s"]);
    run(longhaul().args(["cp", "--bwlimit", "100m", "zero:1kB", "null:"]))
        .expect(1)
        .says(&[
            "bits or bytes",
            "100Mbit/s",
            "100MiB/s",
            "KiB/s, as in rsync",
        ]);
}
