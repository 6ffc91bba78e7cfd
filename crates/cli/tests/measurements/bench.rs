//! Records of `bench`, and a check that it leaves no files behind.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::process::{Running, longhaul_with, run};
use crate::support::tree;
use rustix::process::Signal;
use serde_json::Value;

fn profile(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn samples(profile: &Value, section: &str) -> Vec<usize> {
    let jobs = profile["sections"][section]["jobs"].as_object().unwrap();
    let counts = jobs
        .values()
        .map(|job| job["samples"].as_array().unwrap().len());
    counts.collect()
}

#[test]
fn a_disk_is_measured_in_several_runs_without_leftovers() {
    let directory = tempfile::tempdir().unwrap();
    let disk = directory.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let output = directory.path().join("host.json");
    let run_for = |budget: &str, again: &[&str]| {
        let mut command = longhaul_with(&["bench", "disk", "--size", "4MiB", "--flows", "1"]);
        command
            .args(["--rounds", "1", "--budget", budget])
            .args(again);
        command.arg("-o").arg(&output).arg(&disk);
        run(&mut command).expect(0)
    };
    // Without time, the profile has a description of the disk and no samples.
    run_for("0s", &[]).says(&["the same command resumes it"]);
    let name = format!("disk {}", disk.canonicalize().unwrap().display());
    let first = profile(&output);
    assert!(first["sections"][&name]["about"]["file_system"].is_string());
    assert!(first["host"]["sysctls"]["net.ipv4.tcp_rmem"].is_string());
    let whole = run_for("300s", &[]);
    let text = String::from_utf8(whole.output).unwrap();
    assert!(
        text.contains("read direct, 1024 KiB × 1 flows, 4 MiB"),
        "{text}"
    );
    assert!(text.contains("small files: create, sync each"), "{text}");
    let last = format!("host profile: {}\n", output.display());
    assert!(text.ends_with(&last), "{text}");
    // Three blocks, four ways; four kinds of small files: twice each.
    assert_eq!(samples(&profile(&output), &name), [2; 16]);
    // A second run has no work to do, unless `--again` is given.
    run_for("0s", &[]);
    assert_eq!(samples(&profile(&output), &name), [2; 16]);
    run_for("0s", &["--again"]);
    assert!(profile(&output)["sections"][&name]["jobs"].is_null());
    assert_eq!(fs::read_dir(&disk).unwrap().count(), 0);
}

#[test]
fn a_signal_keeps_the_measurements_and_leaves_no_files() {
    let directory = tempfile::tempdir().unwrap();
    let disk = directory.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let output = directory.path().join("host.json");
    let mut command = longhaul_with(&["bench", "disk", "--size", "16MiB", "--rounds", "20"]);
    command
        .args(["--budget", "600s", "-o"])
        .arg(&output)
        .arg(&disk);
    let running = Running::start(&mut command);
    let over = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&over);
    running.when_ended(move || ended.store(true, Ordering::Relaxed));
    // Waits until there is a measurement.
    let measured = || fs::read_to_string(&output).is_ok_and(|text| text.contains("samples"));
    while !measured() && !over.load(Ordering::Relaxed) {
        std::thread::yield_now();
    }
    running.signal(Signal::INT);
    running
        .wait()
        .expect(130)
        .says(&["the same command resumes it"]);
    assert_eq!(fs::read_dir(&disk).unwrap().count(), 0);
    assert!(profile(&output)["sections"].as_object().unwrap().len() == 1);
    let beside = fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(beside, 2, "the disk and the profile");
}

#[test]
fn codecs_and_encryption_are_measured_on_given_files() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    tree::write(&data, &b"temperature 23.5 pressure 1013 ".repeat(20_000));
    let output = directory.path().join("host.json");
    let mut command = longhaul_with(&["bench", "all", "--size", "4MiB", "--rounds", "1"]);
    command.args(["--flows", "1", "--budget", "400s", "--json", "-o"]);
    command.arg(&output).arg(directory.path()).arg(&data);
    let printed: Value = serde_json::from_slice(&run(&mut command).expect(0).output).unwrap();
    assert_eq!(printed, profile(&output));
    let section = format!("codec {}", data.display());
    let zstd = &printed["sections"][&section]["jobs"]["zstd:3 × 1 flows"]["samples"][1];
    let (before, after) = (
        zstd["bytes"].as_u64().unwrap(),
        zstd["encoded_bytes"].as_u64().unwrap(),
    );
    assert!(before == 620_000 && after < before / 10, "{zstd}");
    assert_eq!(samples(&printed, "tls"), [2, 2]);
}

#[test]
fn unmeasurable_paths_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("host.json");
    let bench = |arguments: &[&str]| {
        let mut command = longhaul_with(&["bench"]);
        command.args(arguments).arg("-o").arg(&output);
        command
    };
    let here = directory.path().to_str().unwrap();
    run(&mut bench(&["disk", "/nonexistent"]))
        .expect(6)
        .says(&["/nonexistent"]);
    run(&mut bench(&["disk", "--size", "900TB", here]))
        .expect(6)
        .says(&["are needed", "--size"]);
    run(&mut bench(&["codec", here]))
        .expect(6)
        .says(&["is no file"]);
    fs::write(&output, "a thesis").unwrap();
    run(&mut bench(&["tls"]))
        .expect(6)
        .says(&["not a host profile"]);
    assert_eq!(fs::read_to_string(&output).unwrap(), "a thesis");
}
