//! Kills the processes that carry a copy over SSH, at either end. The copy continues, or the same
//! command resumes it. Some hosts ask for a password.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ffi::OsString;
use std::process::Command;

use crate::support::process::{Running, make_fifo, run, script};
use crate::support::sshd::{Setting, Sshd, is_possible};
use crate::support::{assert_no_leftovers, tree};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn apart() -> Sshd {
    Sshd::with(&Setting {
        apart: true,
        ..Setting::default()
    })
}

/// Returns the processes whose command line contains the text, with their command lines.
fn all_processes(of: &str) -> Vec<(Pid, String)> {
    let listed = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = listed.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let described = pids.filter_map(|pid| {
        // A process that has just ended has no command line.
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        Some((Pid::from_raw(pid)?, line))
    });
    described.filter(|(_, line)| line.contains(of)).collect()
}

fn namespace(pid: Pid) -> Option<std::path::PathBuf> {
    std::fs::read_link(format!("/proc/{}/ns/pid", pid.as_raw_nonzero())).ok()
}

/// Returns the processes on the remote host whose command line contains the text.
fn far_processes(sshd: &Sshd, of: &str) -> Vec<Pid> {
    let config = sshd.home().with_file_name("sshd_config");
    let config = config.to_str().unwrap();
    let listening = all_processes("sshd -D").into_iter();
    let listening =
        listening.filter(|(_, line)| line.contains(config) && !line.contains("unshare"));
    let inside = listening.filter_map(|(pid, _)| namespace(pid)).next_back();
    let inside = inside.expect("an sshd that listens");
    let found = all_processes(of).into_iter().map(|(pid, _)| pid);
    found
        .filter(|pid| namespace(*pid).as_ref() == Some(&inside))
        .collect()
}

/// The key needs a passphrase, which is given only to an ssh that asks: as
/// where a host wants a password. The variables for such an ssh.
fn ask_for_passphrase(sshd: &Sshd) -> [(&'static str, OsString); 2] {
    let key = sshd.home().with_file_name("user_key");
    let changed = Command::new("ssh-keygen")
        .args(["-q", "-p", "-P", "", "-N", "open sesame", "-f"])
        .arg(key)
        .status();
    assert!(changed.unwrap().success());
    let askpass = sshd.home().with_file_name("askpass");
    let script = script(askpass, "#!/bin/sh\necho open sesame\n");
    [
        ("SSH_ASKPASS", script.into()),
        ("SSH_ASKPASS_REQUIRE", "force".into()),
    ]
}

/// True if a progress event reports at least this number of live streams.
fn has_streams(event: &Value, count: u64) -> bool {
    event["event"] == "progress" && event["streams"].as_u64() >= Some(count)
}

#[test]
fn a_host_with_password_logins_gets_one_channel() {
    if !is_possible() {
        return;
    }
    let (sshd, place) = (apart(), tempfile::tempdir().unwrap());
    sshd.close_server();
    sshd.close_client();
    let asking = ask_for_passphrase(&sshd);
    // Reports the end of an ssh process that may not ask questions. The test reads one report, and
    // further processes do not block.
    let fifo = place.path().join("fifo");
    make_fifo(&fifo);
    let text = format!(
        "#!/bin/sh\n{} \"$@\"; code=$?\n\
         case \"$*\" in *BatchMode=yes*) timeout 60 sh -c \"echo $code >{}\" & esac\n\
         exit $code\n",
        sshd.ssh(),
        fifo.display(),
    );
    let script = script(place.path().join("ssh"), &text);
    let mut command = sshd.command("cp");
    command.arg("--ssh").arg(&script).envs(asking);
    command.args(["--json", "zero:1TB", "dtn:null:"]);
    let running = Running::start(&mut command);
    let code = std::fs::read_to_string(&fifo).unwrap();
    assert!(code.starts_with("255"), "{code}");
    let moved = |event: &Value| event["moved_bytes"].as_u64();
    let then = moved(&running.event(|event| has_streams(event, 1)).unwrap());
    let further = |event: &Value| moved(event) > then.map(|bytes| bytes + (1 << 20));
    assert!(running.event(further).is_some());
    running.signal(Signal::INT);
    let summary = running.wait().expect(130).summary();
    assert_eq!(summary["route"], "ssh");
}

/// Kills processes in the middle of a copy, and runs the same command again.
fn goes_on_after(kill: impl Fn(&Sshd, &Running), ssh_alone: bool, code: Option<i32>) {
    let (sshd, place) = (apart(), tempfile::tempdir().unwrap());
    if ssh_alone {
        sshd.close_server();
        sshd.close_client();
    }
    let data = place.path().join("data");
    tree::mixed_tree(&data, 200, 96 << 20);
    let copy = || {
        let mut command = sshd.command("cp");
        command.args(["-r", "--json", "--checkpoint", "1MiB", "--timeout", "20s"]);
        command
    };
    // The copy must not end before the kill, also on a busy host.
    let mut slow = copy();
    slow.args(["--bwlimit", "10MB/s"]).arg(&data).arg("dtn:");
    let running = Running::start(&mut slow);
    let under_way = |event: &Value| event["event"] == "committed" || event["event"] == "durable";
    assert!(running.event(under_way).is_some());
    kill(&sshd, &running);
    let killed = running.wait();
    assert_eq!(killed.code, code, "{}", killed.errors);
    let there = sshd.home().join("data");
    tree::assert_nothing_half_written(&data, &there);
    run(copy().arg(&data).arg("dtn:")).expect(0);
    tree::assert_same(&data, &there);
    assert_no_leftovers(&sshd.home());
}

fn kill_all(pids: &[Pid]) {
    assert!(!pids.is_empty());
    for pid in pids {
        // The process may have ended together with another one.
        let _ = kill_process(*pid, Signal::KILL);
    }
}

#[test]
fn a_copy_resumes_after_its_client_was_killed() {
    if is_possible() {
        let kill = |_: &Sshd, running: &Running| running.signal(Signal::KILL);
        goes_on_after(kill, false, None);
        goes_on_after(kill, true, None);
    }
}

// Promise 47.
#[test]
fn a_killed_remote_end_is_detected_and_the_copy_resumes() {
    if is_possible() {
        let kill = |sshd: &Sshd, _: &Running| kill_all(&far_processes(sshd, "remote --memory"));
        goes_on_after(kill, false, Some(3));
    }
}

#[test]
fn killed_connections_of_sshd_are_replaced() {
    if is_possible() {
        // This kills all connections that carry data. The listening process continues.
        let kill = |sshd: &Sshd, _: &Running| kill_all(&far_processes(sshd, "sshd: root@notty"));
        goes_on_after(kill, true, Some(0));
    }
}
