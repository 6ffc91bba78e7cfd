//! One login for several commands: with the user's own master, and with one that longhaul keeps.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::process::{Running, run, script};
use crate::support::second_factor::{
    CODE, has_two_factors, master_at, runtime, socket, to_master, two_factors,
};
use crate::support::sshd::{Setting, Sshd, at_dtn, is_possible};
use crate::support::terminal::Terminal;
use longhaul_testing::await_end;
use rustix::process::{Signal, kill_process};
use tempfile::TempDir;

/// Excludes binaries in the `PATH` of this machine.
const BARE: &str = "SetEnv PATH=/usr/bin:/bin";

/// Logins that sshd let in; the server ends.
#[track_caller]
fn assert_logins(sshd: Sshd, expected: usize) {
    let log = sshd.log();
    assert_eq!(log.matches("Accepted ").count(), expected, "{log}");
    assert_eq!(
        log.matches("[preauth]").count(),
        0,
        "the log has no refusal: {log}"
    );
}

/// Returns this binary without symbols, as longhaul installs it on a remote host.
fn stripped(place: &Path) -> PathBuf {
    let binary = place.join("longhaul");
    let mut strip = Command::new("strip");
    strip.arg("-o").arg(&binary);
    strip.arg(env!("CARGO_BIN_EXE_longhaul"));
    assert!(strip.status().unwrap().success());
    binary
}

/// A command with these sockets, which keeps its login for a while.
fn keeping(sshd: &Sshd, runtime: &TempDir, subcommand: &str) -> Command {
    let mut command = sshd.command(subcommand);
    command
        .env("XDG_RUNTIME_DIR", runtime.path())
        .args(["--ssh-persist", "60s"]);
    command
}

// Promise 45.
#[test]
fn the_users_own_master_serves_every_command() {
    if !is_possible() {
        return;
    }
    for closed in [false, true] {
        let place = tempfile::tempdir().unwrap();
        let binary = stripped(place.path());
        let sshd = Sshd::with(&Setting {
            apart: closed,
            config: BARE,
            ..Setting::default()
        });
        if closed {
            sshd.close_server();
            sshd.close_client();
        }
        let socket = sshd.at_place("master");
        sshd.configure_client(&format!(" ControlPath {}\n", socket.display()));
        sshd.start_master();
        let source = place.path().join("file");
        std::fs::write(&source, vec![7; 9_000_000]).unwrap();
        let mut copy = sshd.command_of(&binary, "cp");
        copy.args(["--install-remote", "--json"]).arg(&source);
        let copied = run(copy.arg("dtn:file")).expect(0).says(&["put longhaul"]);
        let route = copied.summary()["route"].as_str().unwrap().to_owned();
        assert_eq!(route == "ssh", closed, "{route}");
        let mut list = sshd.command_of(&binary, "ls");
        let listed = run(list.arg("dtn:file")).expect(0);
        assert!(String::from_utf8_lossy(&listed.output).contains("file"));
        run(sshd.command_of(&binary, "jobs").arg("dtn")).expect(0);
        let mut doctor = sshd.command_of(&binary, "doctor");
        let report = run(doctor.arg("dtn:"));
        assert!(matches!(report.code, Some(0 | 2)), "{report:?}");
        assert_eq!(
            std::fs::read(sshd.home().join("file")).unwrap().len(),
            9_000_000
        );
        to_master(&sshd, &socket, "exit");
        assert_logins(sshd, 1);
    }
}

// Promise 45.
#[test]
fn a_kept_login_serves_later_commands_until_it_ends() {
    if !is_possible() {
        return;
    }
    let (sshd, runtime) = (Sshd::start(), runtime());
    let list = || run(keeping(&sshd, &runtime, "ls").arg("dtn:")).expect(0);
    let first = list().says(&["this login to dtn is kept for 1 min", "-O exit -S"]);
    let kept = socket(&runtime).unwrap();
    assert!(first.errors.contains(kept.to_str().unwrap()));
    let place = kept.parent().unwrap().metadata().unwrap();
    assert_eq!(place.permissions().mode() & 0o7777, 0o700);
    let again = list();
    assert!(!again.errors.contains("kept"), "{}", again.errors);
    // The user ended the master.
    let master = master_at(&sshd, &kept);
    to_master(&sshd, &kept, "exit");
    await_end(master.as_raw_nonzero().get());
    list().says(&["is kept for"]);
    // The master was killed, and its socket remained.
    let master = master_at(&sshd, &kept);
    kill_process(master, Signal::KILL).unwrap();
    await_end(master.as_raw_nonzero().get());
    list().says(&["the kept login to dtn has ended", "is kept for"]);
    // The master is stopped.
    let master = master_at(&sshd, &kept);
    kill_process(master, Signal::STOP).unwrap();
    list().says(&["the kept login to dtn does not answer"]);
    kill_process(master, Signal::KILL).unwrap();
    await_end(master.as_raw_nonzero().get());
    list().says(&["is kept for"]);
    // The option ends the master for new commands. A running copy continues to use it.
    let master = master_at(&sshd, &kept);
    let mut copy = keeping(&sshd, &runtime, "cp");
    let copying = Running::start(copy.args(["--json", "zero:1TB", "dtn:null:"]));
    assert!(
        copying
            .event(|event| event["event"] == "progress")
            .is_some()
    );
    let mut off = sshd.command("ls");
    off.env("XDG_RUNTIME_DIR", runtime.path());
    run(off.args(["--ssh-persist", "off", "dtn:"]))
        .expect(0)
        .says(&["the kept login to dtn is ended"]);
    assert!(
        copying
            .event(|event| event["event"] == "progress")
            .is_some()
    );
    copying.signal(Signal::INT);
    copying.wait().expect(130);
    await_end(master.as_raw_nonzero().get());
    assert_eq!(socket(&runtime), None);
    assert_logins(sshd, 6);
}

#[test]
fn no_login_is_kept_without_a_terminal_or_an_option() {
    if !is_possible() {
        return;
    }
    let (sshd, runtime) = (Sshd::start(), runtime());
    let mut list = sshd.command("ls");
    list.env("XDG_RUNTIME_DIR", runtime.path());
    let listed = run(list.arg("dtn:")).expect(0);
    assert_eq!(listed.errors, "");
    assert!(!runtime.path().join("longhaul").exists());
}

// Promise 45.
#[test]
fn no_login_is_kept_in_a_directory_that_others_can_reach() {
    if !is_possible() {
        return;
    }
    let (sshd, runtime) = (Sshd::start(), runtime());
    let directory = runtime.path().join("longhaul");
    std::fs::create_dir(&directory).unwrap();
    std::os::unix::fs::chown(&directory, Some(4242), None).unwrap();
    // Otherwise the home has a place for it.
    let home = runtime.path().join("nowhere");
    let list = || {
        run(keeping(&sshd, &runtime, "ls")
            .env("HOME", &home)
            .arg("dtn:"))
        .expect(0)
    };
    list().says(&["no login is kept", "belongs to another user"]);
    std::os::unix::fs::chown(&directory, Some(0), None).unwrap();
    std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o770)).unwrap();
    list().says(&["no login is kept", "chmod 700"]);
    assert_eq!(socket(&runtime), None);
    assert_logins(sshd, 2);
}

/// Runs the same command with other mounts.
fn with_mounts(command: &Command, script: &str) -> Command {
    let mut within = Command::new("unshare");
    within
        .args(["--mount", "sh", "-c"])
        .arg(format!("set -e; {script}; exec \"$@\""))
        .arg("sh")
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        within.env(name, value.unwrap());
    }
    within
}

#[test]
fn a_command_logs_in_without_a_master_if_it_cannot_make_a_socket() {
    if !is_possible() {
        return;
    }
    let (sshd, runtime) = (Sshd::start(), runtime());
    let place = runtime.path().display();
    // There is room for the directory, and for no socket in it.
    let full = format!(
        "mount -t tmpfs -o nr_inodes=2,mode=700 none {place}; mkdir -m 700 {place}/longhaul"
    );
    let mut list = keeping(&sshd, &runtime, "ls");
    list.arg("dtn:");
    run(&mut with_mounts(&list, &full))
        .expect(0)
        .says(&["no login is kept: no socket can be made"]);
    assert_logins(sshd, 1);
}

#[test]
fn a_master_that_accepts_no_more_sessions_is_not_used() {
    if !is_possible() {
        return;
    }
    let sshd = Sshd::with(&Setting {
        config: "MaxSessions 1",
        ..Setting::default()
    });
    let runtime = runtime();
    let mut copy = keeping(&sshd, &runtime, "cp");
    let holds = Running::start(copy.args(["--json", "zero:1TB", "dtn:null:"]));
    assert!(holds.event(|event| event["event"] == "progress").is_some());
    run(keeping(&sshd, &runtime, "ls").arg("dtn:"))
        .expect(0)
        .says(&["takes no more sessions (MaxSessions", "ssh logged in anew"]);
    holds.signal(Signal::INT);
    holds.wait().expect(130);
    let listed = run(keeping(&sshd, &runtime, "ls").arg("dtn:")).expect(0);
    assert_eq!(listed.errors, "");
    to_master(&sshd, &socket(&runtime).unwrap(), "exit");
    assert_logins(sshd, 2);
}

#[test]
fn the_master_of_a_killed_copy_ends_after_its_time() {
    if !is_possible() {
        return;
    }
    let (sshd, runtime) = (Sshd::start(), runtime());
    let mut copy = sshd.command("cp");
    copy.env("XDG_RUNTIME_DIR", runtime.path()).args([
        "--ssh-persist",
        "1s",
        "--timeout",
        "30s",
        "--json",
        "zero:1TB",
        "dtn:null:",
    ]);
    let running = Running::start(&mut copy);
    assert!(
        running
            .event(|event| event["event"] == "progress")
            .is_some()
    );
    let master = master_at(&sshd, &socket(&runtime).unwrap());
    running.kill();
    await_end(master.as_raw_nonzero().get());
    assert_eq!(socket(&runtime), None);
}

#[test]
fn one_channel_carries_all_data_if_a_login_allows_one_session() {
    if !is_possible() || !has_two_factors() {
        return;
    }
    let sshd = two_factors("MaxSessions 1", true);
    sshd.close_server();
    sshd.close_client();
    let (runtime, place) = (runtime(), tempfile::tempdir().unwrap());
    let words = format!("#!/bin/sh\necho {CODE}\n");
    let askpass = script(place.path().join("askpass"), &words);
    let mut copy = keeping(&sshd, &runtime, "cp");
    copy.env("SSH_ASKPASS", &askpass)
        .env("SSH_ASKPASS_REQUIRE", "force");
    let done = run(copy.args(["zero:400MB", "dtn:null:"])).expect(0);
    assert!(done.errors.contains("over SSH"), "{}", done.errors);
    to_master(&sshd, &socket(&runtime).unwrap(), "exit");
    assert_logins(sshd, 1);
}

#[test]
fn four_commands_need_one_two_factor_login() {
    if !is_possible() || !has_two_factors() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let binary = stripped(place.path());
    let (sshd, runtime) = (two_factors(BARE, false), runtime());
    let file = place.path().join("file");
    std::fs::write(&file, "content").unwrap();
    let mut copy = sshd.command_of(&binary, "cp");
    copy.arg("--install-remote").arg(&file).arg(at_dtn("one"));
    let mut list = sshd.command_of(&binary, "ls");
    list.arg("dtn:");
    let mut doctor = sshd.command_of(&binary, "doctor");
    doctor.arg("dtn:");
    let mut back = sshd.command_of(&binary, "cp");
    back.arg("dtn:one").arg(place.path().join("back"));
    let mut asked = 0;
    for (number, mut command) in [copy, list, doctor, back].into_iter().enumerate() {
        command.env("XDG_RUNTIME_DIR", runtime.path());
        let mut terminal = Terminal::start(&command);
        if number == 0 {
            terminal.await_words("code:");
            terminal.type_line(CODE);
        }
        let (code, shown) = terminal.wait();
        assert!(
            code == Some(0) || number == 2 && code == Some(2),
            "{code:?}: {shown}"
        );
        asked += shown.matches("Verification code").count();
        let kept = shown.contains("this login to dtn is kept for 10 min");
        assert_eq!(kept, number == 0, "{shown}");
    }
    assert_eq!(asked, 1);
    assert_eq!(
        std::fs::read(place.path().join("back")).unwrap(),
        b"content"
    );
    to_master(&sshd, &socket(&runtime).unwrap(), "exit");
    assert_logins(sshd, 1);
}
