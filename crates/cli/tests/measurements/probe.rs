//! Reports of a probe about a path to a daemon, and its refusals.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::support::process::{longhaul_with, run};
use crate::support::{Daemon, tree};
use serde_json::Value;

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
    // This is the record of a probe that was killed while it wrote.
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
        let by_streams = direction["by_streams"].as_array().unwrap();
        let counts: Vec<u64> = by_streams
            .iter()
            .map(|figures| figures["streams"].as_u64().unwrap())
            .collect();
        assert_eq!(counts, [1, 2]);
        for figures in by_streams {
            let rate = |name: &str| figures[name].as_f64().unwrap();
            assert!(
                rate("loss_rate") <= rate("retransmission_rate"),
                "{figures}"
            );
        }
    }
    for end in ["here", "daemon"] {
        let host = &path[end]["host"];
        assert_eq!(host["version"], env!("CARGO_PKG_VERSION"), "{host}");
        let wmem = host["sysctls"]["net.ipv4.tcp_wmem"].as_str().unwrap();
        assert_eq!(wmem.split(' ').count(), 3, "{wmem}");
    }
    assert_eq!(probe["external"][0]["tool"], "iperf3");
    check_records(&records);
    // The probe left no files at either end.
    assert_eq!(
        fs::read_dir(directory.path().join("root")).unwrap().count(),
        0
    );
}

fn check_trials(trials: &[Value]) {
    let number = |trial: &Value, name: &str| trial[name].as_u64().unwrap();
    let streams: Vec<u64> = trials.iter().map(|t| number(t, "streams")).collect();
    assert_eq!(
        streams,
        [1, 2, 2, 1],
        "each round begins with another number of streams"
    );
    for trial in trials {
        assert!(number(trial, "bytes") > 0, "{trial}");
        // The sender reported the segments that it sent, and the retransmitted ones among them.
        assert!(
            number(trial, "sent_segments") >= number(trial, "retransmitted_segments"),
            "{trial}"
        );
        assert!(number(trial, "sent_segments") > 0, "{trial}");
        let lost = number(trial, "lost_segments");
        assert!(lost <= number(trial, "retransmitted_segments"), "{trial}");
        assert_eq!(trial["most_streams"], trial["streams"], "{trial}");
    }
}

/// Checks eight records of the probe and one of iperf3, which `profile` reads, after the existing
/// records.
fn check_records(records: &Path) {
    let text = fs::read_to_string(records).unwrap();
    assert_eq!(text.lines().count(), 10);
    let own: Vec<Value> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .filter(|record: &Value| record["method"]["name"] == "longhaul")
        .collect();
    assert_eq!(own.len(), 8);
    let hosts = fs::read_to_string(records.with_extension("hosts.ndjson")).unwrap();
    let hosts: Vec<Value> = hosts
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    // Both ends are this host, which is described once.
    assert_eq!(hosts.len(), 1);
    for record in &own {
        let ends = [&record["source"], &record["destination"]];
        for end in ends {
            assert_eq!(end["description"], hosts[0]["digest"], "{record}");
            assert_eq!(end["kernel"], hosts[0]["host"]["kernel"], "{record}");
        }
        let names = ends.map(|end| end["name"].as_str().unwrap());
        let path = record["path"]["name"].as_str().unwrap();
        if record["knobs"]["direction"] == "to" {
            assert_eq!(names, ["here", "daemon"]);
        } else {
            assert_eq!(names, ["daemon", "here"]);
        }
        assert_eq!(
            path.starts_with("back from"),
            names[0] == "daemon",
            "{path}"
        );
        assert_eq!(
            record["tcp"]["streams"], record["knobs"]["streams"],
            "{record}"
        );
        let samples = records.with_file_name(record["samples"]["file"].as_str().unwrap());
        let lines = fs::read_to_string(samples).unwrap().lines().count();
        assert_eq!(record["samples"]["count"], lines, "{record}");
    }
    let records = records.to_str().unwrap();
    let profile = ["profile", "--json", "--skip-faults", records];
    let profile = longhaul_with(&profile).output();
    let profile: Value = serde_json::from_slice(&profile.unwrap().stdout).unwrap();
    let memory = profile["memory"].as_array().unwrap();
    assert_eq!(
        memory.len(),
        5,
        "four of the probe and one of iperf3: {profile}"
    );
}

/// A sweep over a real path to a daemon, which is on this host.
fn sweep_to(daemon: &Daemon, home: &Path) -> std::path::PathBuf {
    let file = home.join("real.toml");
    let endpoint = daemon.url("");
    let text = format!(
        "name = \"real\"\nrepetitions = 2\nsamples = \"20ms\"\n\
         [[paths]]\nendpoint = \"{}\"\nrtt = \"0.1ms\"\ncapacity = \"100gbit\"\n\
         [[data]]\nname = \"few\"\nfiles = 3\nsmallest = \"1MB\"\nlargest = \"5MB\"\n\
         [[methods]]\nname = \"longhaul\"\nlonghaul = true\nknobs = {{ streams = 2 }}\n\
         options = [\"--fingerprint={}\", \"--token-file={}\"]\n",
        endpoint.to_str().unwrap(),
        daemon.fingerprint,
        daemon.token_file.as_ref().unwrap().display()
    );
    fs::write(&file, text).unwrap();
    file
}

#[test]
fn a_probe_is_the_reference_of_a_sweep_over_the_same_path() {
    let directory = tempfile::tempdir().unwrap();
    let (home, root) = (directory.path(), directory.path().join("root"));
    fs::create_dir(&root).unwrap();
    let address = "[::1]:0".parse().unwrap();
    let arguments = vec!["--root".into(), root.into(), "--write".into()];
    let daemon = Daemon::new(address, arguments, |command| command);
    let file = sweep_to(&daemon, home);
    let [swept, probed, strange] = ["swept", "probed", "strange"].map(|name| home.join(name));
    run(longhaul_with(&["sweep"]).arg(&file).arg("-o").arg(&swept)).expect(0);
    let text = fs::read_to_string(&swept).unwrap();
    let runs: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(runs.len(), 3, "one warm-up and two runs");
    for record in &runs {
        assert_eq!(record["outcome"]["ended"], "done", "{record}");
        // The daemon's address identifies the streams of the transfer.
        assert!(record["samples"]["count"].as_u64() > Some(0), "{record}");
        assert!(record["source"]["description"].is_string(), "{record}");
        assert!(
            record["destination"].get("description").is_none(),
            "{record}"
        );
    }
    let probe = |with: &[&str], records: &Path| {
        let mut command = daemon.command("probe");
        command
            .args(["--streams", "1,2", "--rounds", "2", "--pings", "2"])
            .args(["--time", "1s", "--records"])
            .arg(records)
            .args(with)
            .arg(daemon.url(""));
        run(&mut command).expect(0);
    };
    probe(&["--sweep", file.to_str().unwrap()], &probed);
    probe(&["--direction", "to"], &strange);
    let profile = |records: &Path| {
        let mut command = longhaul_with(&["profile", "--json"]);
        let finished = run(command.arg(&swept).arg(records)).expect(0);
        let profile: Value = serde_json::from_slice(&finished.output).unwrap();
        profile
    };
    let told = profile(&probed);
    let [transfer] = told["transfers"].as_array().unwrap().as_slice() else {
        panic!("one transfer: {told}");
    };
    // The reference is one of four trials: the one in the same direction with the same number of
    // streams.
    let tcp = transfer["tcp"].as_str().unwrap();
    assert!(
        tcp.contains("direction=to") && tcp.contains("streams=2"),
        "{tcp}"
    );
    assert!(transfer["scheme"].is_object(), "{transfer}");
    assert_eq!(told["memory"].as_array().unwrap().len(), 4, "{told}");
    // A probe without the path of the sweep is not its reference.
    let told = profile(&strange);
    assert!(told["transfers"][0]["tcp"].is_null(), "{told}");
}

#[test]
fn endpoints_that_cannot_be_probed_are_named() {
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
    .says(&["this result of pscheduler cannot be used"]);
    let finished = run(&mut longhaul_with(&["probe", "--iperf3", IPERF3])).expect(0);
    let text = String::from_utf8(finished.output).unwrap();
    assert!(text.contains("2 streams"), "{text}");
}

/// Runs the same command bound by file permissions, which root otherwise ignores. Root's own files
/// stay accessible.
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
fn records_are_added_to_an_append_only_file() {
    if !crate::support::is_root() {
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
    // An unwritable file of records is reported before the measurement.
    chmod(&records, 0o444);
    let finished = run(&mut without_override(&command));
    let finished = finished.expect(6).says(&["runs.jsonl", "denied"]);
    assert!(
        finished.output.is_empty(),
        "the probe measured although the file is unwritable"
    );
}
