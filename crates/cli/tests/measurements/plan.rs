//! `longhaul plan` as a user runs it.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn plan(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .current_dir(directory)
        .arg("plan")
        .args(arguments)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// A directory with the documented graph.
fn documented() -> tempfile::TempDir {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/graph.md"));
    let page = page.unwrap();
    let example = page.split("```toml\n").nth(1).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("transfer.toml");
    fs::write(path, example.split("```").next().unwrap()).unwrap();
    directory
}

#[test]
fn an_unmeasured_limit_is_called_a_guess() {
    let directory = tempfile::tempdir().unwrap();
    let output = plan(
        directory.path(),
        &[
            "--bytes",
            "1TB",
            "--rtt",
            "1ms",
            "--rate",
            "400gbit",
            "x",
            "h.invalid:y",
        ],
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    assert!(
        printed.contains("(a guess, because it was not measured)"),
        "{printed}"
    );
}

#[test]
fn a_graph_is_planned_and_explained() {
    let directory = documented();
    let output = plan(directory.path(), &["--graph", "transfer.toml"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    for part in [
        "40.0 TB take",
        "The bottleneck is",
        "decompress",
        "next best",
    ] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    let output = plan(
        directory.path(),
        &["--graph", "transfer.toml", "--json", "--policy", "all"],
    );
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["policies"].as_array().unwrap().len(), 5);
    let rate = |at: usize| {
        value["policies"][at]["rate_bytes_per_second"]
            .as_f64()
            .unwrap()
    };
    assert!((1..5).all(|at| rate(at) <= rate(0) * 1.0001), "{value:#}");
}

#[test]
fn other_hardware_is_planned_written_and_drawn() {
    let directory = documented();
    let arguments = [
        "--graph",
        "transfer.toml",
        "--what-if",
        "rtt=20ms,cores=64",
        "--write-graph",
        "other.toml",
        "--plot",
        "plan.svg",
    ];
    let output = plan(directory.path(), &arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let again = plan(directory.path(), &["--graph", "other.toml"]);
    assert_eq!(text(&again.stdout), text(&output.stdout));
    let page = ["--graph", "transfer.toml", "--plot", "plan.html"];
    assert!(plan(directory.path(), &page).status.success());
    let page = fs::read_to_string(directory.path().join("plan.html")).unwrap();
    for part in [
        "<!doctype html>",
        "40.0 TB take",
        "<svg",
        "<table>",
        "</html>",
    ] {
        assert!(page.contains(part), "{part}");
    }
    let drawn = fs::read_to_string(directory.path().join("plan.svg")).unwrap();
    assert!(
        drawn.starts_with("<svg") && drawn.contains("decompress"),
        "{drawn}"
    );
}

#[test]
fn errors_in_a_graph_are_named_with_their_lines() {
    let directory = documented();
    let path = directory.path().join("transfer.toml");
    let wrong = fs::read_to_string(&path)
        .unwrap()
        .replace("\"100 ms\"", "\"100\"");
    fs::write(&path, wrong).unwrap();
    let output = plan(directory.path(), &["--graph", "transfer.toml"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.contains("transfer.toml: line ") && said.contains("no unit"),
        "{said}"
    );
    let output = plan(directory.path(), &["--graph", "absent.toml"]);
    assert_eq!(output.status.code(), Some(6));
}

#[test]
fn a_plan_of_a_copy_moves_no_data() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("run7")).unwrap();
    for file in 0..20 {
        fs::write(
            directory.path().join(format!("run7/{file}")),
            vec![0; 50_000],
        )
        .unwrap();
    }
    let output = plan(
        directory.path(),
        &[
            "--rtt",
            "91.6ms",
            "--rate",
            "1gbit",
            "--loss",
            "0.01%",
            "run7",
            "dtn9:/scratch",
        ],
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    for part in [
        "1.00 MB in 20 files",
        "Path: 91.6 ms",
        "Doubt: the rate of the storage",
    ] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    let output = plan(directory.path(), &["run7", "dtn9:/scratch"]);
    assert!(text(&output.stderr).contains("give --rtt and --rate"));
    let output = plan(
        directory.path(),
        &["--rtt", "1ms", "dtn7:x", "dtn9:/scratch"],
    );
    assert!(
        text(&output.stderr).contains("give --bytes"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn profiles_are_fitted_and_records_checked() {
    let directory = tempfile::tempdir().unwrap();
    let sample = |seconds: f64| serde_json::json!({ "bytes": 1e9, "wall_seconds": seconds, "was_direct": true });
    let job = |kind: &str, flows: u64, seconds: f64| {
        serde_json::json!({
            "about": { "kind": kind, "flows": flows, "block_bytes": 1 << 20, "direct": true },
            "samples": [sample(9.0), sample(seconds), sample(seconds * 1.02), sample(seconds * 0.99)],
        })
    };
    let profile = serde_json::json!({
        "schema": 1, "kind": "host",
        "host": { "name": "dtn7", "kernel": "6.18", "cores": 16 },
        "sections": { "disk /data": { "about": { "path": "/data" }, "jobs": {
            "a": job("read", 1, 2.0), "b": job("read", 4, 0.8), "c": job("read", 16, 0.55),
        } } },
    });
    fs::write(directory.path().join("host.json"), profile.to_string()).unwrap();
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_longhaul"))
            .current_dir(directory.path())
            .arg("model")
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).to_owned()
    };
    let printed = run(&["fit", "host.json", "-o", "fits.json"]);
    assert!(
        printed.contains("read: saturating") && printed.contains("write: not measured"),
        "{printed}"
    );
    let runs = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../bench/runs/2026-11-25-profile.jsonl.zst"
    );
    let printed = run(&["check", "--plot", "check.svg", runs]);
    let fitted = run(&["fit", runs, "-o", "records.json"]);
    assert!(fitted.contains("CPU of the source"), "{fitted}");
    let with = run(&["check", "--fits", "records.json", runs]);
    assert!(with.contains("median error"), "{with}");
    assert!(
        printed.contains("median error") && printed.contains("worst:"),
        "{printed}"
    );
    // A run is found by its file.
    assert!(
        printed.contains("profile.jsonl.zst: predicted"),
        "{printed}"
    );
    assert!(directory.path().join("check.svg").exists());
}

#[test]
fn samples_show_the_gain_of_codecs() {
    let directory = tempfile::tempdir().unwrap();
    let lines = (0..150_000_u64).map(|at| format!("{at} measured at {}\n", at * at % 7919));
    fs::write(directory.path().join("text"), lines.collect::<String>()).unwrap();
    let planned = |rate: &str| {
        let path = ["--rtt", "50ms", "--rate", rate, "--json"];
        let output = plan(
            directory.path(),
            &[&path[..], &["text", "host.invalid:x"]].concat(),
        );
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let slow = planned("10mbit");
    let gain = &slow["compression"];
    assert!(gain["ratio"].as_f64().unwrap() > 2.0, "{slow:#}");
    let plain = gain["plain_rate_bytes_per_second"].as_f64().unwrap();
    assert!((plain / 1.18e6 - 1.0).abs() < 0.01, "{slow:#}");
    assert_eq!(slow["codecs"][0]["part"], "text and records");
}
