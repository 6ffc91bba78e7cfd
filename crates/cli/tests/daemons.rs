//! Copies between two daemons: one of them runs a job, whoever asked for it may
//! be gone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::Daemon;
use support::process::{Running, longhaul, run};
use support::{assert_no_leftovers, tree};
use tempfile::TempDir;

/// Lets a daemon connect to others on this host.
const DIAL: &str = "--allow-dial=127.0.0.1";

/// Two daemons, and a user with tokens for both.
struct Site {
    one: Daemon,
    two: Daemon,
    user: TempDir,
    place: TempDir,
}

impl Site {
    fn new(one: &[&str], two: &[&str]) -> Site {
        let (place, user) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let start = |name: &str, flags: &[&str]| {
            let root = place.path().join(name);
            std::fs::create_dir(&root).unwrap();
            Daemon::with(&root, flags)
        };
        let (one, two) = (start("one", one), start("two", two));
        let tokens: Vec<String> = [&one, &two]
            .iter()
            .map(|daemon| std::fs::read_to_string(daemon.token_file.as_ref().unwrap()).unwrap())
            .collect();
        let file = user.path().join("tokens");
        std::fs::write(&file, tokens.concat()).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        let site = Site {
            one,
            two,
            user,
            place,
        };
        site.know([&site.one, &site.two].map(|daemon| daemon.fingerprint.clone()));
        site
    }

    /// The user knows the daemons by these keys.
    fn know(&self, keys: [String; 2]) {
        let addresses = [self.one.address, self.two.address];
        let lines = addresses.iter().zip(keys);
        let lines = lines.map(|(address, key)| format!("{address} {key}\n"));
        let file = self.user.path().join("known_hosts");
        std::fs::write(file, lines.collect::<String>()).unwrap();
    }

    fn root(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn command(&self, subcommand: &str) -> Command {
        let mut command = longhaul();
        command
            .arg(subcommand)
            .env("LONGHAUL_CONFIG_DIR", self.user.path())
            .env("XDG_STATE_HOME", self.user.path().join("state"));
        command
    }

    /// A copy from the first to the second.
    fn copy(&self, arguments: &[&str], from: &str, to: &str) -> Command {
        let mut command = self.command("cp");
        command
            .args(arguments)
            .arg(self.one.url(from))
            .arg(self.two.url(to));
        command
    }

    fn jobs(&self, daemon: &Daemon) -> Vec<Value> {
        let mut command = self.command("jobs");
        command.arg("--json").arg(daemon.url(""));
        run(&mut command).expect(0).events()
    }
}

/// Processes of jobs that a daemon runs.
fn jobs_of(daemon: &Daemon) -> Vec<Pid> {
    let state = daemon.token_file.as_ref().unwrap().parent().unwrap();
    let of = format!("--confined {}", state.join("jobs").display());
    let listed = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = listed.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_job = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line)
            .replace('\0', " ")
            .contains(&of)
    };
    pids.filter(is_job).filter_map(Pid::from_raw).collect()
}

impl Drop for Site {
    fn drop(&mut self) {
        for pid in [&self.one, &self.two].into_iter().flat_map(jobs_of) {
            // It may just have ended.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

fn sample(at: &Path) {
    tree::mixed_tree(at, 60, 6 << 20);
    tree::hard_tree(&at.join("hard"));
}

#[test]
fn a_tree_goes_from_one_daemon_to_the_other_and_back() {
    let site = Site::new(&["--write", DIAL], &["--write"]);
    let data = site.root("one").join("data");
    sample(&data);
    let done = run(&mut site.copy(&["-r", "--json"], "data", "there")).expect(0);
    assert_eq!(done.summary()["complete"], true);
    let there = site.root("two").join("there/data");
    tree::assert_same(&data, &there);
    assert_no_leftovers(&site.root("two"));
    let verify = || {
        let mut command = site.command("verify");
        command.arg(site.one.url("data"));
        run(command.arg(site.two.url("there/data")))
    };
    verify().expect(0).says(&["the same: "]);
    std::fs::write(there.join("one more"), "x").unwrap();
    verify().expect(5).says(&["one more"]);
    // The one that may connect has the destination now.
    let mut back = site.command("cp");
    back.arg("-r").arg(site.two.url("there/data/hard"));
    run(back.arg(site.one.url("back"))).expect(0);
    tree::assert_same(&there.join("hard"), &site.root("one").join("back/hard"));
    // One file to a new name, either way.
    std::fs::write(site.root("one").join("file"), "here").unwrap();
    run(&mut site.copy(&[], "file", "new")).expect(0);
    assert_eq!(
        std::fs::read(site.root("two").join("new")).unwrap(),
        b"here"
    );
    let jobs = site.jobs(&site.one);
    let compare = |job: &&Value| job["command"] == "verify";
    assert_eq!((jobs.len(), jobs.iter().filter(compare).count()), (5, 2));
    assert!(site.jobs(&site.two).is_empty());
}

#[test]
fn a_job_goes_on_without_who_asked_for_it() {
    let site = Site::new(&["--write", DIAL], &["--write"]);
    let moved = |event: &Value| event["moved_bytes"].as_u64().filter(|bytes| *bytes > 0);
    let running = Running::start(&mut site.copy(&["--json"], "zero:1TB", "null:"));
    let then = running.event(|event| moved(event).is_some());
    let then = moved(&then.unwrap()).unwrap();
    running.kill();
    let listed = run(site.command("jobs").arg("--json")).expect(0).events();
    assert_eq!((listed.len(), &listed[0]["state"]), (1, &"running".into()));
    let name = listed[0]["job"].as_str().unwrap().to_owned();
    let mut attach = site.command("attach");
    // No rate: it goes on as it did.
    let attached = Running::start(attach.args(["--json", "--bwlimit", "none", &name]));
    let further = |event: &Value| moved(event) > Some(then + 50_000_000);
    assert!(attached.event(further).is_some());
    attached.kill();
    let mut attach = site.command("attach");
    let attached = Running::start(attach.args(["--json", "--bwlimit", "1MB/s", &name]));
    assert!(attached.event(|event| moved(event).is_some()).is_some());
    attached.kill();
    // Whom the other daemon knows has no job there.
    let elsewhere = format!("longhaul://{}:{name}", site.two.address);
    run(site.command("cancel").arg(elsewhere))
        .expect(1)
        .says(&["has no job"]);
    run(site.command("cancel").arg(&name))
        .expect(0)
        .says(&["is cancelled"]);
    run(site.command("attach").arg(&name))
        .expect(130)
        .says(&["interrupted"]);
    assert_eq!(site.jobs(&site.one)[0]["exit"], 130);
    let ended = run(site.command("attach").args(["--json", &name])).expect(130);
    assert_eq!(ended.summary()["bwlimit_bytes_per_second"], 1_000_000);
}

#[test]
fn a_daemon_connects_to_nobody_unless_it_may() {
    let site = Site::new(&["--write"], &["--write", "--allow-dial"]);
    sample(&site.root("one").join("data"));
    // Where it may connect to any host, this one is none of them.
    run(&mut site.copy(&["-r"], "data", ""))
        .expect(4)
        .says(&["neither daemon connects to the other", "--allow-dial"]);
    assert!(jobs_of(&site.one).is_empty() && jobs_of(&site.two).is_empty());
    assert_eq!(std::fs::read_dir(site.root("two")).unwrap().count(), 0);
}

#[test]
fn the_daemon_that_may_connect_runs_the_copy() {
    let site = Site::new(&[], &["--write", DIAL]);
    let data = site.root("one").join("data");
    sample(&data);
    run(&mut site.copy(&["-r"], "data", "")).expect(0);
    tree::assert_same(&data, &site.root("two").join("data"));
    assert_eq!(site.jobs(&site.two).len(), 1);
    assert!(site.jobs(&site.one).is_empty());
}

#[test]
fn rights_and_roots_hold_for_jobs() {
    let site = Site::new(&[DIAL], &["--write"]);
    sample(&site.root("one").join("data"));
    std::os::unix::fs::symlink("/etc", site.root("one").join("out")).unwrap();
    // The first may be read from alone.
    let mut back = site.command("cp");
    std::fs::write(site.root("two").join("file"), "x").unwrap();
    back.arg(site.two.url("file")).arg(site.one.url("new"));
    run(&mut back).expect(4).says(&["not with that right"]);
    assert!(!site.root("one").join("new").exists());
    for (outside, code) in [("../one/data", 4), ("out/passwd", 6), ("out/", 6)] {
        let copied = run(&mut site.copy(&["-r"], outside, "in/"));
        assert_eq!(copied.code, Some(code), "{outside}: {copied:?}");
    }
    assert!(!site.root("two").join("in").exists());
}

#[test]
fn a_daemon_with_another_key_is_not_spoken_to() {
    let site = Site::new(&["--write", DIAL], &["--write", DIAL]);
    sample(&site.root("one").join("data"));
    site.know([site.one.fingerprint.clone(), site.one.fingerprint.clone()]);
    run(&mut site.copy(&["-r"], "data", ""))
        .expect(4)
        .says(&["has changed"]);
    let key = site.one.fingerprint.clone();
    run(&mut site.copy(&["-r", "--fingerprint", &key], "data", ""))
        .expect(1)
        .says(&["two daemons have two"]);
    assert_eq!(std::fs::read_dir(site.root("two")).unwrap().count(), 0);
}

#[test]
fn a_manifest_comes_to_whoever_asked_for_it() {
    let site = Site::new(&["--write", DIAL], &["--write"]);
    let data = site.root("one").join("data");
    sample(&data);
    let file = site.user.path().join("data.b3");
    let option = format!("--manifest={}", file.display());
    run(&mut site.copy(&["-r", &option], "data", "")).expect(0);
    let manifest = std::fs::read_to_string(&file).unwrap();
    for line in manifest.lines().filter(|line| !line.starts_with('\\')) {
        let (digest, name) = line.split_once("  ").unwrap();
        let bytes = std::fs::read(site.root("two").join(name)).unwrap();
        assert_eq!(digest, blake3::hash(&bytes).to_hex().as_str(), "{name}");
    }
    assert!(manifest.lines().count() > 60, "{manifest}");
    // Names that are no text stand beside it.
    let raw = std::fs::read(site.user.path().join("data.b3.raw")).unwrap();
    assert!(raw.split(|byte| *byte == 0).count() > 1);
    // Nor is it lost where nobody was there to take it.
    let later = site.user.path().join("later.b3");
    let mut attach = site.command("attach");
    attach.arg("--manifest").arg(&later);
    let name = site.jobs(&site.one)[0]["job"].as_str().unwrap().to_owned();
    run(attach.arg(&name)).expect(0);
    assert_eq!(std::fs::read_to_string(&later).unwrap(), manifest);
}

#[test]
fn what_two_daemons_cannot_do_is_said() {
    let site = Site::new(&["--write", DIAL], &["--write"]);
    run(&mut site.copy(&["-r", "--through-local"], "data", ""))
        .expect(1)
        .says(&["leave it out"]);
    let missing = run(&mut site.copy(&["-r"], "missing", ""));
    missing.expect(6).says(&["missing"]);
}
