//! Copies between this host and another one that run as jobs of this host.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::process::Command;

use crate::support::Daemon;
use crate::support::process::{Running, longhaul_with, run};
use crate::support::procfs;
use crate::support::second_factor::{CODE, has_two_factors, runtime, to_master, two_factors};
use crate::support::sshd::{Sshd, is_possible};
use crate::support::terminal::Terminal;
use crate::support::tree;
use rustix::process::Signal;
use serde_json::Value;

/// The name of a job, alone on a line.
fn name_in(shown: &str) -> String {
    let is_name = |line: &&str| line.len() == 8 && line.bytes().all(|b| b.is_ascii_hexdigit());
    let mut lines = shown.lines().map(str::trim);
    lines
        .find(is_name)
        .unwrap_or_else(|| panic!("no job: {shown}"))
        .to_owned()
}

fn moved(event: &Value) -> bool {
    event["moved_bytes"].as_u64() > Some(0)
}

/// The jobs that are listed, with a command of that host.
fn jobs(mut command: Command) -> Vec<Value> {
    run(command.arg("--json")).expect(0).events()
}

// Promise 59.
#[test]
fn a_job_of_this_host_outlives_its_terminal() {
    if !is_possible() {
        return;
    }
    let sshd = Sshd::start();
    let mut copy = sshd.command("cp");
    copy.args(["--detach", "--json", "zero:1TB", "dtn:null:"])
        .args(["--ssh-persist", "off"]);
    let (code, shown) = Terminal::start(&copy).wait();
    assert_eq!(code, Some(0), "{shown}");
    let name = name_in(&shown);
    // The terminal is closed.
    let mut attach = sshd.bare_command("attach");
    let following = Running::start(attach.args(["--json", &name]));
    assert!(following.event(moved).is_some());
    following.signal(Signal::INT);
    following
        .wait()
        .expect(130)
        .says(&[&format!("`longhaul attach {name}` shows it again")]);
    let listed = jobs(sshd.bare_command("jobs"));
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(
        (&listed[0]["job"], &listed[0]["state"], &listed[0]["host"]),
        (
            &name.as_str().into(),
            &"running".into(),
            &"this host".into()
        )
    );
    run(sshd.bare_command("cancel").arg(&name)).expect(0);
    run(sshd.bare_command("attach").args(["--json", &name])).expect(130);
    assert_eq!(jobs(sshd.bare_command("jobs"))[0]["exit"], 130);
}

#[test]
fn jobs_copy_trees_in_both_directions() {
    if !is_possible() {
        return;
    }
    let (sshd, place) = (Sshd::start(), tempfile::tempdir().unwrap());
    let data = place.path().join("data");
    tree::mixed_tree(&data, 40, 4 << 20);
    // A job resolves relative paths in the directory in which the command was run.
    let detached = |arguments: &[&str]| {
        let mut copy = sshd.command("cp");
        copy.current_dir(place.path()).args(["--detach", "-r"]);
        let begun = run(copy.args(arguments)).expect(0);
        let name = name_in(&String::from_utf8(begun.output).unwrap());
        let mut attach = sshd.bare_command("attach");
        run(attach.arg(&name)).expect(0)
    };
    detached(&["data", "dtn:there"]).says(&["copied: "]);
    tree::assert_same(&data, &sshd.home().join("there/data"));
    detached(&["dtn:there/data", "back"]);
    tree::assert_same(&data, &place.path().join("back/data"));
}

#[test]
fn a_detached_copy_to_a_daemon_is_a_job_of_this_host() {
    let (root, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let daemon = Daemon::with(root.path(), &["--write"]);
    let with_state = |subcommand: &str| {
        let mut command = daemon.command(subcommand);
        command.env("XDG_STATE_HOME", state.path());
        command
    };
    let mut copy = with_state("cp");
    copy.args(["--detach", "zero:3MiB"]).arg(daemon.url("file"));
    let begun = run(&mut copy).expect(0);
    let name = name_in(&String::from_utf8(begun.output).unwrap());
    let mut attach = crate::support::process::longhaul();
    attach.env("XDG_STATE_HOME", state.path());
    run(attach.args(["attach", &name])).expect(0);
    assert_eq!(root.path().join("file").metadata().unwrap().len(), 3 << 20);
    let mut failing = with_state("cp");
    failing.args(["--detach", "/nonexistent/source"]);
    let failed = run(failing.arg(daemon.url("other")));
    assert!(matches!(failed.code, Some(2..=6)), "{failed:?}");
    assert!(failed.errors.contains("/nonexistent/source"), "{failed:?}");
}

#[test]
fn a_job_with_retries_starts_while_its_daemon_is_down() {
    let [root, state] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mut daemon = Daemon::with(root.path(), &["--write"]);
    daemon.kill();
    let with_state = |mut command: Command| {
        command.env("XDG_STATE_HOME", state.path());
        command
    };
    let begin = |daemon: &Daemon, options: &[&str]| {
        let mut copy = with_state(daemon.command("cp"));
        copy.arg("--detach").args(options).arg("zero:1MiB");
        run(copy.arg(daemon.url("file")))
    };
    begin(&daemon, &[]).expect(3);
    let listed = || {
        let mut command = with_state(crate::support::process::longhaul());
        command.arg("jobs");
        jobs(command)
    };
    assert!(listed().is_empty());
    let begun = begin(&daemon, &["--retries=1000000", "--retries-sleep=50ms"]);
    let begun = begun.expect(0).says(&["the job tries again (--retries)"]);
    let name = name_in(&String::from_utf8(begun.output).unwrap());
    assert_eq!(listed()[0]["state"], "running");
    daemon.start_again();
    let mut attach = with_state(crate::support::process::longhaul());
    run(attach.args(["attach", &name])).expect(0);
    assert_eq!(root.path().join("file").metadata().unwrap().len(), 1 << 20);
}

/// Returns the process of the job with this state directory.
fn process_of_job(state: &Path) -> i32 {
    let of_this_state = |process: &i32| {
        let variables = std::fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        let variables = String::from_utf8_lossy(&variables).into_owned();
        procfs::command_of(*process).contains("--own-job")
            && variables.contains(state.to_str().unwrap())
    };
    let mut processes = procfs::processes().into_iter();
    processes.find(of_this_state).unwrap()
}

#[test]
fn a_running_job_is_listed_with_its_bytes_and_a_killed_one_as_killed() {
    let [root, state] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let daemon = Daemon::with(root.path(), &["--write"]);
    let with_state = |mut command: Command| {
        command.env("XDG_STATE_HOME", state.path());
        command.env("XDG_RUNTIME_DIR", state.path());
        command
    };
    let ask = |arguments: &[&str]| {
        run(with_state(crate::support::process::longhaul()).args(arguments)).expect(0)
    };
    let text = |arguments: &[&str]| String::from_utf8(ask(arguments).output).unwrap();
    let mut copy = with_state(daemon.command("cp"));
    copy.args(["--detach", "--json", "--bwlimit=10kB/s", "zero:1TB"]);
    let begun = run(copy.arg(daemon.url("null:"))).expect(0);
    let name = name_in(&String::from_utf8(begun.output).unwrap());
    let mut attach = with_state(crate::support::process::longhaul());
    let following = Running::start(attach.args(["attach", "--json", &name]));
    assert!(following.event(moved).is_some());
    let listed = jobs(with_state(longhaul_with(&["jobs"])));
    assert!(listed[0]["done_bytes"].is_u64(), "{listed:?}");
    assert_eq!(listed[0]["bwlimit_bytes_per_second"], 10_000);
    for command in [&["limit"][..], &["limit", &name]] {
        let shown = text(command);
        assert!(
            shown.starts_with(&format!("{name}  10.0 kB/s  ")),
            "{shown}"
        );
    }
    assert_eq!(ask(&["limit", "--json"]).events()[0]["job"], name.as_str());
    let process = process_of_job(state.path());
    let shown = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap();
    assert_eq!(shown, "longhaul\n");
    assert!(procfs::command_of(process).starts_with("longhaul remote --own-job"));
    // A host that does not answer hides no job of this one.
    let mut with_silent = with_state(longhaul_with(&["jobs"]));
    with_silent.args(["--ssh", "sh -c 'exec sleep 600'", "silent", "this host"]);
    let waiting = Running::start(&mut with_silent);
    assert!(waiting.line().unwrap().starts_with(&name));
    waiting.await_words("asking silent for its jobs");
    waiting.kill();
    let killed = rustix::process::Pid::from_raw(process).unwrap();
    rustix::process::kill_process(killed, Signal::KILL).unwrap();
    following.wait().expect(3).says(&["was killed"]);
    assert_eq!(
        jobs(with_state(longhaul_with(&["jobs"])))[0]["state"],
        "killed"
    );
    assert_eq!(text(&["limit"]), "");
}

#[test]
fn impossible_jobs_are_refused_before_they_start() {
    let place = tempfile::tempdir().unwrap();
    let refused = |arguments: &[&str], why: &str| {
        let mut copy = crate::support::process::longhaul();
        copy.env("XDG_STATE_HOME", place.path());
        run(copy.args(["cp", "--detach"]).args(arguments))
            .expect(1)
            .says(&[why]);
    };
    refused(
        &["-", "dtn:file"],
        "standard input or output of this command",
    );
    let report = place.path().join("report");
    let report = report.to_str().unwrap();
    refused(
        &["--report", report, "dtn:a", "other:b"],
        "between two others use --json",
    );
    assert!(!Path::new(report).exists());
}

#[test]
fn a_job_uses_the_kept_login_and_is_refused_without_one() {
    if !is_possible() || !has_two_factors() {
        return;
    }
    let (sshd, runtime) = (two_factors("", false), runtime());
    let detached = |options: &[&str]| {
        let mut copy = sshd.command("cp");
        copy.env("XDG_RUNTIME_DIR", runtime.path())
            .args(["--detach", "zero:3MiB", "dtn:file"])
            .args(options);
        let mut terminal = Terminal::start(&copy);
        terminal.await_words("code:");
        terminal.type_line(CODE);
        terminal.wait()
    };
    let (code, shown) = detached(&[]);
    assert_eq!(code, Some(0), "{shown}");
    assert_eq!(shown.matches("code:").count(), 1, "{shown}");
    let mut attach = sshd.bare_command("attach");
    run(attach.arg(name_in(&shown))).expect(0);
    assert_eq!(sshd.home().join("file").metadata().unwrap().len(), 3 << 20);
    let kept = crate::support::second_factor::socket(&runtime).unwrap();
    to_master(&sshd, &kept, "exit");
    let log = sshd.log();
    assert_eq!(log.matches("Accepted ").count(), 1, "{log}");
    let sshd = two_factors("", false);
    let mut copy = sshd.command("cp");
    copy.env("XDG_RUNTIME_DIR", runtime.path()).args([
        "--detach",
        "zero:3MiB",
        "dtn:file",
        "--ssh-persist",
        "off",
    ]);
    let mut terminal = Terminal::start(&copy);
    terminal.await_words("code:");
    terminal.type_line(CODE);
    let (code, shown) = terminal.wait();
    assert_eq!(code, Some(4), "{shown}");
    assert!(shown.contains("asks something at each login"), "{shown}");
    assert!(!sshd.home().join("file").exists());
}

/// A job of this host writes its report and its log where the command was given.
#[test]
fn a_job_writes_a_report_of_each_entry() {
    let [root, state, place] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let daemon = Daemon::with(root.path(), &["--write"]);
    tree::write(&place.path().join("data/a"), b"a");
    tree::write(&place.path().join("data/b.o"), b"b");
    let mut copy = daemon.command("cp");
    copy.env("XDG_STATE_HOME", state.path())
        .current_dir(place.path())
        .args(["-r", "--detach", "--exclude=*.o", "--report=report"])
        .args(["--log-file=log", "data"]);
    let begun = run(copy.arg(daemon.url("there"))).expect(0);
    let name = name_in(&String::from_utf8(begun.output).unwrap());
    let mut attach = crate::support::process::longhaul();
    attach.env("XDG_STATE_HOME", state.path());
    run(attach.args(["attach", &name])).expect(0);
    let read = |name: &str| std::fs::read_to_string(place.path().join(name)).unwrap();
    let (report, log) = (read("report"), read("log"));
    assert!(
        report.contains("\"copied\"") && report.contains("\"- *.o\""),
        "{report}"
    );
    assert!(
        log.contains("copied data/a") && log.contains("ended: "),
        "{log}"
    );
    // The command reports the unwritable directory before any file is copied.
    let mut copy = daemon.command("cp");
    copy.env("XDG_STATE_HOME", state.path());
    copy.current_dir(place.path());
    copy.args(["-r", "--detach", "--report=missing/report", "data"]);
    run(copy.arg(daemon.url("nowhere")))
        .expect(6)
        .says(&["missing/report"]);
    assert!(!root.path().join("nowhere").exists());
}

#[test]
fn an_unwritable_job_directory_is_an_error_of_this_host() {
    let [root, place] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let daemon = Daemon::with(root.path(), &["--write"]);
    tree::write(&place.path().join("data"), b"a");
    // A file in place of the directory.
    tree::write(&place.path().join("state"), b"");
    let mut copy = daemon.command("cp");
    copy.env("XDG_STATE_HOME", place.path().join("state"));
    copy.arg("--detach").arg(place.path().join("data"));
    let done = run(copy.arg(daemon.url("there"))).expect(6);
    assert_eq!(
        done.errors.matches("keeps a record").count(),
        1,
        "{}",
        done.errors
    );
    assert!(!root.path().join("there").exists());
}
