//! `--stack paired`: one thread for each stream at either end, with the same promises.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use crate::support::daemon::Daemon;
use crate::support::process::{Running, longhaul_with, run};
use crate::support::random::random_from_environment;
use crate::support::{assert_no_leftovers, tree};
use rustix::process::Pid;

const BYTES: usize = 24 << 20;

/// Names of a process's threads, without numbers.
fn threads(pid: Pid) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).unwrap();
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    let bare = |name: String| {
        name.split_whitespace()
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    names.map(bare).collect()
}

fn source(place: &Path) -> std::path::PathBuf {
    let source = place.join("source");
    tree::mixed_tree(&source.join("small"), 200, 2 << 20);
    tree::write(&source.join("big"), &random_from_environment().bytes(BYTES));
    source
}

#[test]
fn a_killed_paired_copy_resumes_and_has_only_stream_threads() {
    let place = tempfile::tempdir().unwrap();
    let (source, root) = (source(place.path()), place.path().join("root"));
    std::fs::create_dir(&root).unwrap();
    let daemon = Daemon::start(&root);
    let copy = || {
        let mut command = daemon.command("cp");
        command.args(["--json", "--stack", "paired", "--streams", "3", "-r"]);
        command.args(["--block-size", "256KiB", "--checkpoint", "1MiB"]);
        // The source is copied by its contents, because a resumed copy finds an existing directory.
        command.arg(source.join("")).arg(daemon.url("copy"));
        command
    };
    let mut slow = copy();
    slow.args(["--bwlimit", "2MB/s"]);
    let running = Running::start(&mut slow);
    let durable = running.event(|event| event["event"] == "durable");
    assert!(durable.is_some(), "the copy ended before the kill");
    for pid in [running.pid(), daemon.running().pid()] {
        let names = threads(pid);
        for layer in ["read", "compress", "decompress", "write"] {
            assert!(!names.iter().any(|name| name == layer), "{names:?}");
        }
        let streams = names.iter().filter(|name| *name == "send").count();
        assert!((1..=3).contains(&streams), "{names:?}");
    }
    running.kill();
    let finished = run(&mut copy()).expect(0);
    let summary = finished.summary();
    assert!(summary["resumed_bytes"].as_u64().unwrap() > 0, "{summary}");
    tree::assert_same(&source.join("small"), &root.join("copy/small"));
    let [left, right] = [source.join("big"), root.join("copy/big")].map(std::fs::read);
    assert!(left.unwrap() == right.unwrap(), "big differs");
    assert_no_leftovers(&root);
    let mut verify = daemon.command("verify");
    verify.args(["--stack", "paired"]).arg(&source);
    run(verify.arg(daemon.url("copy"))).expect(0);
    tree::write(&root.join("copy/small/extra"), b"x");
    std::fs::write(source.join("small/extra"), b"y").unwrap();
    let mut verify = daemon.command("verify");
    verify.args(["--stack", "paired"]).arg(&source);
    run(verify.arg(daemon.url("copy"))).expect(5);
}

#[test]
fn pulls_and_local_copies_can_be_paired() {
    let place = tempfile::tempdir().unwrap();
    let (source, there) = (source(place.path()), place.path().join("there"));
    let daemon = Daemon::start(&source);
    let mut command = daemon.command("cp");
    command.args(["--stack", "paired", "--compress", "zstd", "-r", "-v"]);
    command.arg(daemon.url("small")).arg(&there);
    run(&mut command)
        .expect(0)
        .says(&["one thread for all its work"]);
    tree::assert_same(&source.join("small"), &there.join("small"));
    let here = place.path().join("here");
    let mut local = longhaul_with(&["cp", "--stack", "paired", "-r"]);
    run(local.arg(source.join("small")).arg(&here)).expect(0);
    tree::assert_same(&source.join("small"), &here.join("small"));
}

#[test]
fn the_paired_stack_refuses_flow_options_and_pipes() {
    let mut pipe = longhaul_with(&["cp", "--stack", "paired", "a", "-"]);
    run(&mut pipe).expect(1).says(&["leave out --stack"]);
    for flag in ["--readers", "--compressors", "--decompressors", "--writers"] {
        let mut command = longhaul_with(&["cp", "--stack", "paired", flag, "2", "a", "b"]);
        run(&mut command).expect(1).says(&["leave out", flag]);
    }
}
