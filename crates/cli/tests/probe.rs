//! What a probe says of a path to a daemon, and of what it cannot measure.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use support::process::{longhaul_with, run};
use support::{Daemon, tree};

const IPERF3: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../fuzz/corpus/iperf3/two_streams.json"
);

#[test]
fn a_path_is_measured_in_both_directions_and_recorded() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("root")).unwrap();
    let daemon = Daemon::with(&directory.path().join("root"), &[]);
    let records = directory.path().join("runs.jsonl");
    // Whoever wrote it was stopped in the middle.
    fs::write(&records, "{\"schema\":1,\"run\":").unwrap();
    let mut command = daemon.command("probe");
    command
        .args([
            "--json",
            "--streams",
            "1,2",
            "--rounds",
            "2",
            "--pings",
            "5",
        ])
        .args(["--time", "2s", "--iperf3", IPERF3, "--records"])
        .arg(&records)
        .arg(daemon.url(""));
    let finished = run(&mut command).expect(0);
    let probe: Value = serde_json::from_slice(&finished.output).unwrap();
    let path = &probe["paths"][0];
    assert_eq!(path["rtt_seconds"]["all"].as_array().unwrap().len(), 5);
    assert!(path["path_mtu_bytes"].as_u64().unwrap() >= 1280, "{path}");
    assert!(path["clock"]["ahead_seconds"].as_f64().unwrap().abs() < 60.0);
    for end in ["here", "daemon"] {
        let controls = path[end]["congestion_controls"].as_array().unwrap();
        assert!(
            controls.contains(&path[end]["congestion_control"]),
            "{path}"
        );
    }
    let directions = path["directions"].as_array().unwrap();
    let names: Vec<&str> = directions
        .iter()
        .map(|d| d["direction"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["to", "from"]);
    for direction in directions {
        check_trials(direction["trials"].as_array().unwrap());
    }
    assert_eq!(probe["external"][0]["tool"], "iperf3");
    check_records(&records);
    // Nothing was left at either end.
    assert_eq!(
        fs::read_dir(directory.path().join("root")).unwrap().count(),
        0
    );
}

fn check_trials(trials: &[Value]) {
    let number = |trial: &Value, name: &str| trial[name].as_u64().unwrap();
    let streams: Vec<u64> = trials.iter().map(|t| number(t, "streams")).collect();
    assert_eq!(streams, [1, 2, 2, 1], "each round begins with another one");
    for trial in trials {
        assert!(number(trial, "bytes") > 0, "{trial}");
        assert_eq!(trial["most_streams"], trial["streams"], "{trial}");
    }
}

/// Eight of its own and one of iperf3's, which `profile` reads, after what was there.
fn check_records(records: &Path) {
    assert_eq!(fs::read_to_string(records).unwrap().lines().count(), 10);
    let records = records.to_str().unwrap();
    let profile = ["profile", "--json", "--skip-faults", records];
    let profile = longhaul_with(&profile).output();
    let profile: Value = serde_json::from_slice(&profile.unwrap().stdout).unwrap();
    let memory = profile["memory"].as_array().unwrap();
    assert_eq!(memory.len(), 5, "four of its own and iperf3's: {profile}");
}

#[test]
fn what_cannot_be_probed_is_named() {
    run(&mut longhaul_with(&["probe", "/tmp"]))
        .expect(1)
        .says(&["longhaul://HOST"]);
    run(&mut longhaul_with(&[
        "probe",
        "--iperf3",
        "/nonexistent.json",
    ]))
    .expect(6)
    .says(&["/nonexistent.json"]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("none.json");
    tree::write(&file, b"{}");
    run(&mut longhaul_with(&[
        "probe",
        "--pscheduler",
        file.to_str().unwrap(),
    ]))
    .expect(6)
    .says(&["this is no result of pscheduler"]);
    let finished = run(&mut longhaul_with(&["probe", "--iperf3", IPERF3])).expect(0);
    let text = String::from_utf8(finished.output).unwrap();
    assert!(text.contains("2 streams"), "{text}");
}

/// The same command line, bound by permissions as root is not; root's own files are its.
fn without_override(command: &Command) -> Command {
    let mut bound = Command::new("setpriv");
    bound.arg("--bounding-set=-dac_override,-dac_read_search");
    bound.arg(command.get_program()).args(command.get_args());
    bound
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn records_that_one_may_only_append_to_are_appended_to() {
    if !support::is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("root")).unwrap();
    let daemon = Daemon::with(&directory.path().join("root"), &[]);
    let records = directory.path().join("runs.jsonl");
    fs::write(&records, "{}\n").unwrap();
    chmod(&records, 0o222);
    let mut command = daemon.command("probe");
    command
        .args(["--streams", "1", "--rounds", "1", "--pings", "1"])
        .args(["--direction", "to", "--time", "1s", "--records"])
        .arg(&records)
        .arg(daemon.url(""));
    run(&mut without_override(&command)).expect(0);
    assert_eq!(fs::read_to_string(&records).unwrap().lines().count(), 2);
    // Where nothing may be appended it is said before anything is measured.
    chmod(&records, 0o444);
    let finished = run(&mut without_override(&command));
    let finished = finished.expect(6).says(&["runs.jsonl", "denied"]);
    assert!(finished.output.is_empty(), "measured in vain");
}
