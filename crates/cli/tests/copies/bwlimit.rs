//! `--bwlimit`: no route exceeds the rate, in either direction.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::Command;
use std::time::Instant;

use crate::support::Daemon;
use crate::support::process::{Running, longhaul, run};
use serde_json::Value;

const RATE: f64 = 1_000_000.0;

/// Bytes that are moved: a second's worth and a half.
const BYTES: f64 = 1_500_000.0;

/// A copy of zeros took no less than the rate allows, from before its process began: the end that
/// sends may begin before the clock of the end that receives, so the summary's time does not bound
/// it on a busy host.
fn assert_paced(mut command: Command) {
    let began = Instant::now();
    let done = run(command.args(["--json", "--bwlimit", "1MB/s"])).expect(0);
    let seconds = began.elapsed().as_secs_f64();
    let summary = done.summary();
    assert_eq!(summary["bwlimit_bytes_per_second"], 1_000_000);
    assert_eq!(summary["bytes"], BYTES as u64);
    let kept = RATE / 20.0;
    assert!(seconds >= (BYTES - kept) / RATE, "{seconds} s");
}

// Promise 54.
#[test]
fn no_route_is_faster_than_the_limit() {
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
fn a_low_limit_uses_small_blocks_and_completes() {
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
fn invalid_rates_are_explained() {
    run(longhaul().args(["cp", "--bwlimit", "fast", "zero:1kB", "null:"]))
        .expect(1)
        .says(&["is not a rate", "100Mbit/s"]);
    run(longhaul().args(["cp", "--bwlimit", "100m", "zero:1kB", "null:"]))
        .expect(0)
        .says(&["--bwlimit 105 MB/s"]);
    run(longhaul().args(["cp", "--bwlimit", "100mb", "zero:1kB", "null:"]))
        .expect(1)
        .says(&[
            "bits or bytes",
            "100Mbit/s",
            "100MiB/s",
            "a number alone is in KiB/s",
            "k, M and G alone are KiB/s, MiB/s and GiB/s, as in rsync",
        ]);
}

/// A copy that would take an hour, at a rate that is changed while it runs.
// Promise 54.
#[test]
fn the_rate_of_a_running_copy_is_changed() {
    let place = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(place.path());
    let with_place = |mut command: Command| {
        command.env("XDG_RUNTIME_DIR", place.path());
        command
    };
    let limit = |arguments: &[&str]| {
        let mut command = with_place(longhaul());
        run(command.args(["limit", "--json"]).args(arguments))
    };
    let [from, to] = [daemon.url("zero:40MB"), daemon.url("null:")];
    for (from, to) in [
        ("zero:40MB".into(), to),
        (from, "null:".into()),
        ("zero:40MB".into(), "null:".into()),
    ] {
        let mut command = with_place(daemon.command("cp"));
        command.args(["--json", "--bwlimit", "10kB/s"]).arg(&from);
        let copying = Running::start(command.arg(&to));
        let moves = |event: &Value| event["event"] == "progress";
        assert!(copying.event(moves).is_some());
        let process = copying.pid().as_raw_nonzero().to_string();
        let listed = limit(&[]).expect(0).events();
        assert_eq!(listed.len(), 1, "{listed:?}");
        assert_eq!(listed[0]["bwlimit_bytes_per_second"], 10_000);
        assert_eq!(listed[0]["process"].to_string(), process);
        assert_eq!(listed[0]["to"], to.to_str().unwrap());
        let slower = limit(&[&process, "20kB/s"]).expect(0).events();
        assert_eq!(slower[0]["bwlimit_bytes_per_second"], 20_000);
        let mut command = with_place(longhaul());
        let shown = run(command.args(["limit", &process, "0"])).expect(0);
        let shown = String::from_utf8(shown.output).unwrap();
        assert!(shown.starts_with(&format!("{process}  none  ")), "{shown}");
        let ended = copying.wait().expect(0);
        let summary = ended.summary();
        assert_eq!(summary["bytes"], 40_000_000);
        assert_eq!(summary["bwlimit_bytes_per_second"], Value::Null);
        // At the earlier rates the copy would take half an hour.
        assert!(summary["seconds"].as_f64() < Some(1000.0), "{summary}");
        limit(&[&process])
            .expect(1)
            .says(&["no copy of yours with this process number"]);
    }
    assert!(limit(&[]).expect(0).events().is_empty());
}

#[test]
fn a_killed_copy_is_not_listed() {
    let place = tempfile::tempdir().unwrap();
    let mut command = longhaul();
    command.env("XDG_RUNTIME_DIR", place.path());
    command.args(["cp", "--json", "--bwlimit", "10kB/s", "zero:1GB", "null:"]);
    let copying = Running::start(&mut command);
    let moves = |event: &Value| event["event"] == "progress";
    assert!(copying.event(moves).is_some());
    copying.kill();
    let sockets = place.path().join("longhaul/copies");
    assert_eq!(std::fs::read_dir(&sockets).unwrap().count(), 1);
    let mut list = longhaul();
    list.env("XDG_RUNTIME_DIR", place.path());
    assert!(
        run(list.args(["limit", "--json"]))
            .expect(0)
            .events()
            .is_empty()
    );
    // The socket of the killed copy is removed when another copy starts.
    let mut command = longhaul();
    command.env("XDG_RUNTIME_DIR", place.path());
    run(command.args(["cp", "zero:1kB", "null:"])).expect(0);
    assert_eq!(std::fs::read_dir(&sockets).unwrap().count(), 0);
}
