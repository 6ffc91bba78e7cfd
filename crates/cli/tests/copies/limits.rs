//! Limits of threads and memory, and silent programs. A copy works with fewer threads and less
//! memory, or ends soon and names the reason.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::support::{
    is_root,
    process::{self, Finished, Running, run},
    tree,
};
use longhaul_units::ByteCount;
use tempfile::TempDir;

const LONGHAUL: &str = env!("CARGO_BIN_EXE_longhaul");

/// A place that any user may write to, with files in `data`.
fn place() -> TempDir {
    let place = tempfile::tempdir().unwrap();
    let everybody = || PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(place.path(), everybody()).unwrap();
    tree::mixed_tree(&place.path().join("data"), 300, 3 << 20);
    std::fs::set_permissions(place.path().join("data"), everybody()).unwrap();
    place
}

/// Returns a copy within this host by a user without other processes, who may have this number of
/// threads.
fn with_threads(place: &Path, most: u32) -> Command {
    // Another one in each test that runs at the same time.
    let user = 20_000 + std::process::id() % 800 * 50 + most;
    let user = user.to_string();
    let limit = format!("--nproc={most}");
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", &user, "--regid", &user, "--clear-groups"])
        .args(["prlimit", &limit, LONGHAUL, "cp", "-r"])
        .arg(place.join("data"))
        .arg(place.join(format!("with {most}")))
        .env("HOME", place);
    command
}

// Promise 37.
#[test]
fn with_few_threads_there_are_fewer_flows() {
    if !is_root() {
        return;
    }
    let place = place();
    for most in [17, 20, 30] {
        run(&mut with_threads(place.path(), most)).expect(0);
        let there = place.path().join(format!("with {most}"));
        tree::assert_same(&place.path().join("data"), &there.join("data"));
    }
}

// Promise 37.
#[test]
fn with_too_few_threads_the_limit_is_named_at_once() {
    if !is_root() {
        return;
    }
    let place = place();
    for most in [3, 6, 9, 12] {
        run(&mut with_threads(place.path(), most)).expect(6).says(&[
            "cannot start a thread",
            "ulimit -u",
            "raise",
        ]);
    }
}

/// A copy within this host in a shell that limits its address space.
fn with_memory(place: &Path, most: ByteCount) -> Command {
    let mut command = Command::new("sh");
    let script = "ulimit -v $0; exec \"$@\"";
    command
        .args(["-c", script, &(most.0 >> 10).to_string()])
        .args([LONGHAUL, "cp", "-r"])
        .arg(place.join("data"))
        .arg(place.join(most.0.to_string()));
    command
}

// Promise 37.
#[test]
fn little_memory_is_enough_or_named() {
    let place = place();
    // The limits range from too little to load the program to more than enough.
    for mebibytes in [64, 96, 128, 192, 256, 384] {
        let most = ByteCount(mebibytes << 20);
        let output = with_memory(place.path(), most).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(0) => {
                let there = place.path().join(most.0.to_string());
                tree::assert_same(&place.path().join("data"), &there.join("data"));
            }
            // The dynamic linker prints its own message.
            Some(127) => {}
            code => {
                assert_eq!(code, Some(6), "{mebibytes} MiB: {said}");
                assert!(said.contains("ulimit -v"), "{mebibytes} MiB: {said}");
            }
        }
    }
    let output = with_memory(place.path(), ByteCount(512 << 20)).output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// Returns the path of a program that is started instead of ssh.
fn ssh_that(place: &Path, name: &str, script: &str) -> String {
    let file = process::script(place.join(name), &format!("#!/bin/sh\n{script}\n"));
    file.to_str().unwrap().to_owned()
}

/// Answers the questions that ssh answers on this host, for its configuration and for a master, as
/// ssh does: at once.
const QUERIES: &str = "case \" $* \" in *' -G '*) exit 0;; *' -O check '*) exit 255;; esac";

fn over(ssh: &str, place: &Path, timeout: &str, words: &[&str]) -> Command {
    let mut command = Command::new(LONGHAUL);
    command
        .args(words)
        .args(["--timeout", timeout, "--ssh", ssh])
        .current_dir(place)
        .env("HOME", place)
        .env_remove("XDG_CONFIG_HOME");
    command
}

/// Starts all commands before it waits for one: each waits for its time to pass.
fn side_by_side(commands: impl IntoIterator<Item = Command>) -> Vec<Finished> {
    let commands = commands.into_iter();
    let running: Vec<Running> = commands.map(|mut one| Running::start(&mut one)).collect();
    running.into_iter().map(Running::wait).collect()
}

// Promise 18.
#[test]
fn a_remote_shell_that_waits_for_input_is_given_up() {
    let place = place();
    let place = place.path();
    let ssh = ssh_that(place, "ssh", &format!("{QUERIES}\nexec sleep 300"));
    // This program does not answer `ssh -G` either.
    let silent = ssh_that(place, "silent", "exec sleep 300");
    let commands = [
        &["cp", "-r", "data", "host:"][..],
        &["cp", "-r", "host:data", "back"],
        &["cp", "-r", "--install-remote", "data", "host:"],
        &["cp", "-r", "one:data", "other:"],
        &["verify", "data", "host:data"],
        &["ls", "host:"],
        &["jobs", "host"],
        &["attach", "host:12345678"],
        &["cancel", "host:12345678"],
    ];
    let commands = commands.map(|words| over(&ssh, place, "1s", words));
    let with_silent = over(&silent, place, "1s", &["ls", "host:"]);
    for done in side_by_side(commands.into_iter().chain([with_silent])) {
        done.expect(3)
            .says(&["did not start there within 1 s", "start-up file"]);
    }
    // A shell that waits for a line ends when its input ends.
    let shells = ["exec sleep 300", "read line; exit 1", "read line; exit 255"];
    let commands = shells.into_iter().enumerate().map(|(number, waiting)| {
        let text = format!("{QUERIES}\n{waiting}");
        let ssh = ssh_that(place, &format!("ssh-{number}"), &text);
        over(&ssh, place, "1s", &["doctor", "host:"])
    });
    for done in side_by_side(commands) {
        let done = done.expect(3);
        let found = String::from_utf8_lossy(&done.output).into_owned();
        assert!(
            found.contains("a start-up file of the shell may wait"),
            "{found}"
        );
    }
}

#[test]
fn a_remote_end_that_is_silent_after_its_greeting_is_given_up() {
    let place = place();
    let place = place.path();
    let version = env!("CARGO_PKG_VERSION");
    let key = format!("sha256:{}", "A".repeat(43));
    let words = format!("software={version} protocol=1 key={key} channel=x");
    let greeting = format!("{QUERIES}\nprintf '\\nlonghaul-remote/1 {words}\\n'; exec sleep 300");
    let ssh = ssh_that(place, "ssh", &greeting);
    // The timeout is long enough for the greeting on a busy host.
    let between = over(&ssh, place, "10s", &["cp", "-r", "one:data", "other:"]);
    let commands = [
        &["cp", "-r", "data", "host:"][..],
        &["cp", "-r", "host:data", "back"],
        &["verify", "data", "host:data"],
        &["ls", "host:"],
    ];
    let commands = commands.map(|words| over(&ssh, place, "10s", words));
    let mut done = side_by_side([between].into_iter().chain(commands)).into_iter();
    let between = done.next().unwrap().expect(3);
    between.says(&["did not begin the job within 10 s"]);
    for done in done {
        done.expect(3).says(&["did not answer within 10 s"]);
    }
}
