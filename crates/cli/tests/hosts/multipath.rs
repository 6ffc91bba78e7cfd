//! Several paths at once: `cp --mptcp` between two hosts that two wires join,
//! and `--bind` with an address on each.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::process::Command;

use longhaul_net::multipath::is_available;
use serde_json::Value;

use crate::support::daemon::Daemon;
use crate::support::process::{Finished, Running, run};
use crate::support::random::random_from_environment;
use crate::support::wires::Wires;
use crate::support::{assert_no_leftovers, is_root, tree};

const BYTES: usize = 24 << 20;

struct Trial {
    wires: Wires,
    daemon: Daemon,
    _place: tempfile::TempDir,
    source: std::path::PathBuf,
    root: std::path::PathBuf,
}

impl Trial {
    /// Returns `None`, with a message, if this machine cannot have two hosts.
    fn new(multipath: [bool; 2]) -> Option<Trial> {
        if !is_root() {
            return None;
        }
        if multipath != [false; 2] && !is_available() {
            longhaul_testing::skip_without_kernel(
                "this kernel does no Multipath TCP (net.mptcp.enabled)",
            );
            return None;
        }
        let wires = Wires::new()?;
        if is_available() {
            for (host, on) in ["near", "far"].into_iter().zip(multipath) {
                wires.set_multipath(host, on);
            }
        }
        if multipath == [true; 2] {
            wires.announce();
        }
        let place = tempfile::tempdir().unwrap();
        let [source, root] = ["source", "root"].map(|name| place.path().join(name));
        std::fs::create_dir(&root).unwrap();
        let content = random_from_environment().bytes(BYTES);
        tree::write(&source.join("big"), &content);
        let arguments = vec!["--root".into(), root.clone().into(), "--write".into()];
        let address = "10.81.1.2:0".parse().unwrap();
        let daemon = Daemon::new(address, arguments, |command| wires.on("far", &command));
        Some(Trial {
            wires,
            daemon,
            _place: place,
            source,
            root,
        })
    }

    fn command(&self, flags: &[&str]) -> Command {
        let mut command = self.daemon.command("cp");
        command.args(["--json", "--streams", "2", "--block-size", "256KiB"]);
        command.args(flags);
        self.wires.on("near", &command)
    }

    fn push(&self, flags: &[&str]) -> Command {
        let mut command = self.command(flags);
        command.arg(self.source.join("big"));
        command.arg(self.daemon.url("copy"));
        command
    }

    fn assert_copied(&self) {
        assert_same(&self.source.join("big"), &self.root.join("copy"));
        assert_no_leftovers(&self.root);
    }
}

fn assert_same(left: &Path, right: &Path) {
    let [left, right] = [left, right].map(|path| std::fs::read(path).unwrap());
    assert!(left == right, "{} and {} bytes", left.len(), right.len());
}

/// Returns the bytes of each path from the summary.
fn paths(finished: &Finished, field: &str) -> Vec<(String, u64)> {
    let summary = finished.summary();
    let paths = summary["paths"].as_array().unwrap();
    let path = |path: &Value| {
        let local = path["local"].as_str().unwrap().to_owned();
        assert!(path["rtt_seconds"].as_f64().unwrap() > 0.0, "{path}");
        (local, path[field].as_u64().unwrap())
    };
    paths.iter().map(path).collect()
}

/// Fails unless each of two paths carried at least a tenth of the bytes.
fn assert_both(bytes: &[u64], of: usize) {
    assert_eq!(bytes.len(), 2, "{bytes:?}");
    let tenth = of as u64 / 10;
    assert!(bytes.iter().all(|path| *path > tenth), "{bytes:?}");
}

#[test]
fn both_paths_carry_a_push() {
    let Some(trial) = Trial::new([true; 2]) else {
        return;
    };
    let before = trial.wires.sent();
    let finished = run(&mut trial.push(&["--mptcp"])).expect(0);
    let after = trial.wires.sent();
    assert!(
        !finished.errors.contains("plain TCP"),
        "{}",
        finished.errors
    );
    assert_both(&[after[0] - before[0], after[1] - before[1]], BYTES);
    let told = paths(&finished, "sent_bytes");
    let locals: Vec<&str> = told.iter().map(|path| path.0.as_str()).collect();
    assert_eq!(locals, ["10.81.1.1", "10.81.2.1"]);
    assert_both(&told.iter().map(|path| path.1).collect::<Vec<_>>(), BYTES);
    trial.assert_copied();
}

#[test]
fn both_paths_carry_a_pull() {
    let Some(trial) = Trial::new([true; 2]) else {
        return;
    };
    std::fs::rename(trial.source.join("big"), trial.root.join("big")).unwrap();
    let fetched = trial.source.join("fetched");
    let mut command = trial.command(&["--mptcp"]);
    command.arg(trial.daemon.url("big")).arg(&fetched);
    let finished = run(&mut command).expect(0);
    let told = paths(&finished, "received_bytes");
    assert_both(&told.iter().map(|path| path.1).collect::<Vec<_>>(), BYTES);
    assert_same(&trial.root.join("big"), &fetched);
}

#[test]
fn a_copy_continues_if_one_path_is_cut() {
    for wire in [1, 2] {
        let Some(trial) = Trial::new([true; 2]) else {
            return;
        };
        let running = Running::start(&mut trial.push(&["--mptcp", "--checkpoint", "2MiB"]));
        let begun = running.event(|event| event["event"] == "durable");
        assert!(begun.is_some(), "the copy ended before the cut");
        trial.wires.cut(wire);
        let cut = trial.wires.sent();
        let finished = running.wait().expect(0);
        let after = trial.wires.sent();
        let other = 2 - wire as usize;
        assert!(after[other] > cut[other], "{cut:?} {after:?}");
        assert_eq!(finished.summary()["complete"], true);
        trial.assert_copied();
    }
}

#[test]
fn an_end_without_multipath_tcp_uses_plain_tcp_and_reports_it() {
    for (multipath, word) in [
        ([true, false], "10.81.1.2"),
        ([false, true], "this host's kernel has no Multipath TCP"),
    ] {
        let Some(trial) = Trial::new(multipath) else {
            return;
        };
        let finished = run(&mut trial.push(&["--mptcp"])).expect(0);
        let told = finished.errors.matches("plain TCP").count();
        let said = &finished.errors;
        assert!(told == 1 && said.contains(word), "{said}");
        assert_eq!(paths(&finished, "sent_bytes").len(), 1);
        trial.assert_copied();
    }
}

#[test]
fn each_bound_address_is_a_separate_path() {
    let Some(trial) = Trial::new([false; 2]) else {
        return;
    };
    let before = trial.wires.sent();
    // Packets from the second address use the second wire.
    let flags = ["--bind", "10.81.1.1", "--bind", "10.81.2.1"];
    trial.wires.route_by_address();
    let finished = run(&mut trial.push(&flags)).expect(0);
    let after = trial.wires.sent();
    assert_both(&[after[0] - before[0], after[1] - before[1]], BYTES);
    let mut told = paths(&finished, "sent_bytes");
    told.sort();
    assert_eq!(told[1].0, "10.81.2.1");
    assert_both(&told.iter().map(|path| path.1).collect::<Vec<_>>(), BYTES);
    trial.assert_copied();
}
