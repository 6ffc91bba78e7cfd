//! `--retries`: the whole copy is tried again where it failed for a reason that may pass.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::Daemon;
use crate::support::process::{Running, longhaul, run};
use crate::support::tree::write;
use crate::support::ways::{contents, slashed};
use rustix::process::Signal;

/// Retries without limit at short intervals. The test makes the awaited change in the meantime.
const SOON: [&str; 2] = ["--retries=1000000", "--retries-sleep=50ms"];

/// Retries after a day, so that the wait lasts until the test ends it.
const LATE: [&str; 2] = ["--retries=9", "--retries-sleep=1d"];

fn local(options: &[&str], from: impl AsRef<std::ffi::OsStr>, to: &Path) -> Command {
    let mut command = longhaul();
    command.args(["cp", "-r"]).args(options).arg(from).arg(to);
    command
}

// Promise 81.
#[test]
fn a_retry_copies_to_a_daemon_that_returned() {
    let (root, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let from = place.path().join("from");
    write(&from.join("a"), b"a");
    write(&from.join("sub/b"), b"b");
    let mut daemon = Daemon::start(root.path());
    daemon.kill();
    let mut command = daemon.command("cp");
    command.arg("-r").args(SOON).arg(slashed(&from));
    let copying = Running::start(command.arg(daemon.url("to")));
    copying.await_words("try 1 of 1000000 failed: ");
    assert!(!root.path().join("to").exists());
    daemon.start_again();
    copying.wait().expect(0);
    assert_eq!(contents(&root.path().join("to")), contents(&from));
}

#[test]
fn a_retry_copies_a_source_that_appeared() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    run(&mut local(&[], slashed(&from), &to)).expect(6);
    let mut command = local(&SOON, slashed(&from), &to);
    let copying = Running::start(command.arg("--json"));
    let again = copying.event(|event| event["event"] == "again").unwrap();
    assert_eq!((&again["try"], &again["exit"]), (&1.into(), &6.into()));
    write(&place.path().join("made/x"), b"x");
    fs::rename(place.path().join("made"), &from).unwrap();
    let summary = copying.event(|event| event["event"] == "summary").unwrap();
    assert_eq!(summary["files"], 1);
    copying.wait().expect(0);
}

/// A later try copies an entry that failed, and the reports cover all tries.
// Promise 81.
#[test]
fn a_later_try_copies_failed_entries() {
    let place = tempfile::tempdir().unwrap();
    let [from, to, list, report, manifest] =
        ["from", "to", "list", "report", "manifest"].map(|name| place.path().join(name));
    write(&from.join("here"), b"here");
    write(&list, b"here\nlate\n");
    let mut command = local(&SOON, slashed(&from), &to);
    command.arg("--files-from").arg(&list);
    command.arg("--report").arg(&report);
    command.arg("--manifest").arg(&manifest);
    let copying = Running::start(&mut command);
    copying.await_words("1 of what failed may not fail again; again in 0.05 s");
    write(&place.path().join("made"), b"late");
    fs::rename(place.path().join("made"), from.join("late")).unwrap();
    copying.wait().expect(0);
    assert_eq!(contents(&to), contents(&from));
    let names = |file| -> Vec<String> {
        let text = fs::read_to_string(file).unwrap();
        let names = text.lines().map(|line| line[66..].to_owned());
        names.collect()
    };
    assert_eq!(names(&manifest), ["here", "late"]);
    let report = fs::read_to_string(&report).unwrap();
    let last: Vec<&str> = report.split("\"entry\":\"again\"").collect();
    assert!(last.len() > 1 && last[0].contains("\"failed\""), "{report}");
    let last = last.last().unwrap();
    assert!(
        last.contains("\"copied\"") && last.contains("\"unchanged\"") && !last.contains("failed\""),
        "{report}"
    );
}

// Promise 81.
#[test]
fn permanent_failures_are_tried_once() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    write(&from.join("a"), b"file");
    fs::create_dir_all(to.join("a")).unwrap();
    let once = run(&mut local(&SOON, slashed(&from), &to)).expect(2);
    assert!(!once.errors.contains("try 1"), "{}", once.errors);
    for (from, to, why) in [
        ("-", "to", "read or written once"),
        ("one:a", "two:b", "between two remote hosts"),
    ] {
        let mut command = longhaul();
        command.args(["cp", "--retries=2", from]).arg(to);
        run(&mut command).expect(1).says(&["--retries: ", why]);
    }
    run(&mut local(&["--retries=0"], &from, &to)).expect(1);
    run(&mut local(&["--retries-sleep=1s"], &from, &to)).expect(1);
}

#[test]
fn an_interrupt_ends_the_wait_between_tries() {
    let place = tempfile::tempdir().unwrap();
    let missing = place.path().join("missing");
    let mut command = local(&LATE, &missing, place.path());
    let waiting = Running::start(&mut command);
    waiting.await_words("again in 86400 s");
    waiting.signal(Signal::INT);
    waiting.wait().expect(130);
    // The time that it may take is that of all tries together.
    let mut command = local(&LATE, &missing, place.path());
    run(command.arg("--stop-after=1s"))
        .expect(8)
        .says(&["again in 86400 s", "its time was over"]);
}

/// A job of this host also retries.
#[test]
fn a_job_tries_again() {
    let [root, state, place] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let daemon = Daemon::start(root.path());
    let from = place.path().join("from");
    let with_state = |command: &mut Command| {
        command.env("XDG_STATE_HOME", state.path());
    };
    let mut command = daemon.command("cp");
    with_state(&mut command);
    command.args(["-r", "--detach"]).args(SOON).arg(&from);
    let begun = run(command.arg(daemon.url("to"))).output;
    let begun = String::from_utf8(begun).unwrap();
    let name = begun.lines().next_back().unwrap();
    let mut command = longhaul();
    with_state(&mut command);
    let following = Running::start(command.args(["attach", name]));
    following.await_words("try 1 of 1000000 failed: ");
    write(&place.path().join("made/x"), b"x");
    fs::rename(place.path().join("made"), &from).unwrap();
    following.wait().expect(0);
    assert_eq!(fs::read(root.path().join("to/from/x")).unwrap(), b"x");
}
