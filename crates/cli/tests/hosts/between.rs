//! Copies between two hosts with real sshds, steered from a third, and the jobs
//! that run them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::daemon::{Daemon, url};
use crate::support::lan::Lan;
use crate::support::process::{Finished, Running, longhaul_with, run};
use crate::support::sshd::is_possible;
use crate::support::{assert_no_leftovers, tree};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

/// Three hosts; the left one has `data`.
fn with_data() -> (Lan, PathBuf) {
    let lan = Lan::new();
    let data = lan.left.home().join("data");
    tree::mixed_tree(&data, 60, 6 << 20);
    tree::hard_tree(&data.join("hard"));
    (lan, data)
}

fn endless(lan: &Lan) -> Command {
    let mut command = lan.copy();
    command.args(["--json", "left:zero:1TB", "right:null:"]);
    command
}

fn moved(event: &Value) -> Option<u64> {
    event["moved_bytes"].as_u64().filter(|bytes| *bytes > 0)
}

/// The jobs that are listed.
fn jobs(lan: &Lan, arguments: &[&str]) -> Vec<Value> {
    let mut command = lan.command("jobs");
    run(command.arg("--json").args(arguments))
        .expect(0)
        .events()
}

fn copied(lan: &Lan) -> Finished {
    let mut command = lan.copy();
    run(command.args(["-r", "--json", "left:data", "right:there"])).expect(0)
}

// Promise 58.
#[test]
fn a_tree_is_copied_between_two_remote_hosts() {
    if !is_possible() {
        return;
    }
    let (lan, data) = with_data();
    let done = copied(&lan);
    assert_eq!(done.summary()["route"], "outward");
    let there = lan.right.home().join("there/data");
    tree::assert_same(&data, &there);
    assert_no_leftovers(&lan.right.home());
    let committed = |event: &&Value| event["event"] == "committed" && event["file"] == true;
    let events = done.events();
    let files = events.iter().filter(committed).count();
    assert_eq!(done.summary()["files"], files);
    let mut again = lan.copy();
    run(again.args(["-r", "left:data", "right:there"]))
        .expect(0)
        .says(&[
            "already there",
            "direct connections between the two hosts: left dialled right at ",
            "data flowed directly left -> right",
        ]);
    let verify = || {
        let mut command = lan.command("verify");
        run(command.args(["left:data", "right:there/data"]))
    };
    verify().expect(0);
    std::fs::write(there.join("one more"), "x").unwrap();
    verify().expect(5).says(&["one more"]);
    let mut back = lan.copy();
    run(back.args(["right:there/data/hard", "-r", "left:back"])).expect(0);
    tree::assert_same(&there.join("hard"), &lan.left.home().join("back/hard"));
    // No shell saw the names at the host where they are.
    let mut wild = lan.copy();
    run(wild.args(["left:d?ta/h*d", "-r", "right:wild"])).expect(0);
    tree::assert_same(&data.join("hard"), &lan.right.home().join("wild/hard"));
}

#[test]
fn either_host_can_open_the_connections() {
    if !is_possible() {
        return;
    }
    let (lan, data) = with_data();
    lan.close("left", "right");
    let summary = copied(&lan).summary();
    assert_eq!(summary["route"], "inward");
    let way = serde_json::json!({
        "from": "left", "to": "right", "dialer": "right", "dialled": "left",
    });
    assert_eq!(summary["between"], way);
    let mut bound = lan.copy();
    run(bound.args(["--bwlimit", "1MB/s", "left:zero:1500kB", "right:null:"]))
        .expect(0)
        .says(&["--bwlimit 1.00 MB/s"]);
    tree::assert_same(&data, &lan.right.home().join("there/data"));
}

// Promise 58.
#[test]
fn without_direct_connections_the_copy_fails_unless_through_local_is_given() {
    if !is_possible() {
        return;
    }
    let (lan, data) = with_data();
    lan.close("left", "right");
    lan.close("right", "left");
    let mut command = lan.copy();
    run(command.args(["-r", "left:data", "right:there"]))
        .expect(3)
        .says(&[
            "no direct connection opens between left and right",
            "--ports",
            "--through-local",
            "from right to left no connection opened: 10.80.",
        ]);
    assert!(!lan.right.home().join("there").exists());
    let mut command = lan.copy();
    command.args([
        "-r",
        "--json",
        "--through-local",
        "left:data",
        "right:there",
    ]);
    let summary = run(&mut command).expect(0).summary();
    assert_eq!(summary["route"], "through");
    let way = &summary["between"];
    assert_eq!(
        (&way["from"], &way["to"]),
        (&"left".into(), &"right".into())
    );
    assert!(way["dialer"].is_null() && way["dialled"].is_null(), "{way}");
    tree::assert_same(&data, &lan.right.home().join("there/data"));
    assert_no_leftovers(&lan.right.home());
}

#[test]
fn failures_of_a_remote_copy_are_reported_with_their_exit_codes() {
    if !is_possible() {
        return;
    }
    let (lan, data) = with_data();
    let mut command = lan.copy();
    run(command.args(["left:missing", "right:"]))
        .expect(6)
        .says(&["missing"]);
    std::fs::write(lan.right.home().join("file"), "").unwrap();
    let mut command = lan.copy();
    run(command.args(["-r", "left:data", "right:file/x"])).expect(6);
    std::fs::write(data.join("blocked"), "").unwrap();
    std::fs::create_dir_all(lan.right.home().join("there/data/blocked")).unwrap();
    let mut command = lan.copy();
    run(command.args(["-r", "--quiet", "left:data", "right:there"]))
        .expect(2)
        .says(&["blocked"]);
    for (line, text) in [
        (["--bind", "127.0.0.1", "left:data", "right:"], "--bind"),
        (
            ["--data-security", "clear", "left:data", "right:"],
            "encrypted",
        ),
        (
            ["--through-local", "-r", "left:data", "."],
            "--through-local",
        ),
    ] {
        run(lan.copy().args(line)).expect(1).says(&[text]);
    }
}

// Promise 59.
#[test]
fn a_job_outlives_the_command_that_started_it() {
    if !is_possible() {
        return;
    }
    let lan = Lan::new();
    let running = Running::start(&mut endless(&lan));
    let then = running.event(|event| moved(event).is_some());
    let then = moved(&then.unwrap()).unwrap();
    running.kill();
    let listed = jobs(&lan, &[]);
    assert_eq!((listed.len(), &listed[0]["state"]), (1, &"running".into()));
    assert_eq!(listed[0]["from"], "left:zero:1TB");
    assert_eq!(listed[0]["command"], "cp");
    let name = listed[0]["job"].as_str().unwrap().to_owned();
    let mut attach = lan.command("attach");
    let attached = Running::start(attach.args(["--json", &name]));
    let further = |event: &Value| moved(event) > Some(then + 50_000_000);
    assert!(attached.event(further).is_some());
    // The job continues after `attach` ends.
    attached.signal(Signal::INT);
    attached
        .wait()
        .expect(130)
        .says(&["continues at left", &format!("longhaul attach left:{name}")]);
    assert_eq!(jobs(&lan, &[])[0]["state"], "running");
    run(lan.command("cancel").arg(&name))
        .expect(0)
        .says(&["is cancelled"]);
    let ended = run(lan.command("attach").args(["--json", &name])).expect(130);
    assert_eq!(ended.summary()["route"], "outward");
    let listed = jobs(&lan, &[]);
    assert_eq!(listed[0]["state"], "ended");
    assert_eq!(listed[0]["exit"], 130);
}

#[test]
fn attach_shows_the_rest_of_a_job_and_its_exit_code() {
    if !is_possible() {
        return;
    }
    let lan = Lan::new();
    let data = lan.left.home().join("data");
    tree::mixed_tree(&data, 200, 192 << 20);
    let mut command = lan.copy();
    command.args([
        "-r",
        "--json",
        "--checkpoint",
        "1MiB",
        "left:data",
        "right:",
    ]);
    let running = Running::start(&mut command);
    let under_way = |event: &Value| event["event"] == "committed" || event["event"] == "durable";
    assert!(running.event(under_way).is_some());
    running.kill();
    // The local records of jobs are lost, but the host still has the job.
    lan.forget();
    let name = jobs(&lan, &["left"])[0]["job"].as_str().unwrap().to_owned();
    run(lan.command("attach").arg(&name))
        .expect(1)
        .says(&["was started from here", "longhaul jobs HOST"]);
    let attach = || run(lan.command("attach").arg(format!("left:{name}"))).expect(0);
    let done = attach();
    assert_eq!(done.summary()["complete"], true);
    tree::assert_same(&data, &lan.right.home().join("data"));
    assert_no_leftovers(&lan.right.home());
    // The same output is available long after the end of the job.
    let late = attach();
    assert_eq!(late.summary(), done.summary());
    let files = |done: &Finished| {
        let events = done.events().into_iter();
        events.filter(|event| event["event"] == "committed").count()
    };
    assert_eq!(files(&late), files(&done));
}

// Promise 60.
#[test]
fn a_cancelled_job_resumes_with_the_same_command() {
    if !is_possible() {
        return;
    }
    let lan = Lan::new();
    let data = lan.left.home().join("data");
    tree::mixed_tree(&data, 200, 384 << 20);
    let copy = || {
        let mut command = lan.copy();
        command.args([
            "-r",
            "--json",
            "--checkpoint",
            "1MiB",
            "left:data",
            "right:",
        ]);
        command
    };
    // The limit keeps the copy running until the signal, however late a busy host sends it.
    let running = Running::start(copy().args(["--bwlimit", "30MB/s"]));
    assert!(running.event(|event| event["event"] == "durable").is_some());
    running.signal(Signal::INT);
    running.wait().expect(130);
    let there = lan.right.home().join("data");
    tree::assert_nothing_half_written(&data, &there);
    let again = run(&mut copy()).expect(0);
    let resumed = again.summary()["resumed_bytes"].as_u64().unwrap()
        + again.summary()["skipped_bytes"].as_u64().unwrap();
    assert!(resumed > 0, "{}", again.summary());
    tree::assert_same(&data, &there);
    assert_no_leftovers(&lan.right.home());
}

/// Sends invalid messages to a job, which closes the connection.
fn nonsense_disturbs_nobody(lan: &Lan, name: &str) {
    let state = lan.left.home().join(".local/state/longhaul/jobs");
    let mode = std::fs::metadata(state.join(name)).unwrap().mode();
    assert_eq!(mode & 0o7777, 0o700);
    for nonsense in [&b"GET / HTTP/1.0\r\n\r\n  "[..], &[0xff; 4096], b"x"] {
        let mut socket = UnixStream::connect(state.join(name).join("control")).unwrap();
        // The job may close the socket before all bytes are written.
        let _ = socket.write_all(nonsense);
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        assert!(answer.is_empty(), "{answer:?}");
    }
}

#[test]
fn a_detached_job_has_a_name() {
    if !is_possible() {
        return;
    }
    let lan = Lan::new();
    let mut command = lan.copy();
    command.args(["--detach", "left:zero:1TB", "right:null:"]);
    let started = run(&mut command).expect(0);
    let name = String::from_utf8(started.output).unwrap();
    let name = name.trim();
    assert_eq!(jobs(&lan, &[])[0]["job"], name);
    nonsense_disturbs_nobody(&lan, name);
    assert_eq!(jobs(&lan, &["left"])[0]["state"], "running");
    assert!(jobs(&lan, &["right"]).is_empty());
    run(lan.command("cancel").arg(name))
        .expect(0)
        .says(&["is cancelled"]);
    run(lan.command("cancel").arg(name))
        .expect(0)
        .says(&["is cancelled"]);
    run(lan.command("attach").arg(name))
        .expect(130)
        .says(&["interrupted"]);
    for subcommand in ["attach", "cancel"] {
        run(lan.command(subcommand).arg("left:00000000"))
            .expect(1)
            .says(&["left has no job 00000000: `longhaul jobs left` lists them"]);
    }
    for wrong in ["00000000", "../../etc", "-x:00000000"] {
        run(lan.command("attach").arg("--").arg(wrong)).expect(1);
    }
}

/// A daemon on the right host, at the address that is good for everybody.
fn daemon_at(lan: &Lan, root: &Path, port: u16) -> (Daemon, SocketAddr) {
    let arguments = vec!["--root".into(), root.into(), "--write".into()];
    let address = SocketAddr::from(([10, 80, 2, 2], port));
    let daemon = Daemon::new(address, arguments, |command| lan.on("right", &command));
    (daemon, address)
}

// Promise 58.
#[test]
fn a_daemon_accepts_a_host_that_its_principal_introduced() {
    if !is_possible() {
        return;
    }
    let (lan, data) = with_data();
    let root = tempfile::tempdir().unwrap();
    let (daemon, address) = daemon_at(&lan, root.path(), 4960);
    let copy = |token_file: &Path| {
        let mut command = lan.copy();
        command.args(["-r", "--fingerprint", &daemon.fingerprint]);
        command.arg("--token-file").arg(token_file);
        command
    };
    let tokens = daemon.tokens_for(address);
    run(copy(&tokens).arg("left:data").arg(url(address, "in"))).expect(0);
    tree::assert_same(&data, &root.path().join("in/data"));
    run(copy(&tokens).arg(url(address, "in/data")).arg("left:back")).expect(0);
    tree::assert_same(&data, &lan.left.home().join("back/data"));
    // A client with a token that the daemon does not know cannot introduce a host.
    let text = std::fs::read_to_string(&tokens).unwrap();
    let (rest, token) = text.trim().rsplit_once(' ').unwrap();
    let other = run(&mut longhaul_with(&["token"])).expect(0);
    let other = String::from_utf8(other.output).unwrap();
    let made = other
        .split_whitespace()
        .find(|word| word.starts_with("lht_"));
    let (other, wrong) = (made.unwrap(), tokens.with_extension("wrong"));
    assert_ne!(token, other);
    std::fs::copy(&tokens, &wrong).unwrap();
    std::fs::write(&wrong, format!("{rest} {other}\n")).unwrap();
    run(copy(&wrong).arg("left:data").arg(url(address, "in")))
        .expect(4)
        .says(&["no such principal"]);
}

#[test]
fn data_go_through_this_host_to_a_daemon_only_with_the_option() {
    if !is_possible() {
        return;
    }
    let (lan, data) = with_data();
    let root = tempfile::tempdir().unwrap();
    // The daemon listens on one of the ports that are closed below.
    let (daemon, address) = daemon_at(&lan, root.path(), 50000);
    lan.close("left", "right");
    lan.close("right", "left");
    let copy = |through: bool| {
        let mut command = lan.copy();
        command.args(["-r", "--json", "--fingerprint", &daemon.fingerprint]);
        command.arg("--token-file").arg(daemon.tokens_for(address));
        // Only a copy that is refused waits for its time to pass.
        command.args(["--timeout", if through { "60s" } else { "2s" }]);
        command.args(through.then_some("--through-local"));
        command
    };
    run(copy(false).arg("left:data").arg(url(address, "in"))).expect(3);
    let mut clear = copy(true);
    clear.args(["--data-security", "clear", "left:data"]);
    run(clear.arg(url(address, "in")))
        .expect(1)
        .says(&["are encrypted"]);
    assert!(!root.path().join("in").exists());
    let there = run(copy(true).arg("left:data").arg(url(address, "in"))).expect(0);
    assert_eq!(there.summary()["route"], "through");
    tree::assert_same(&data, &root.path().join("in/data"));
    let back = run(copy(true).arg(url(address, "in/data")).arg("left:back")).expect(0);
    assert_eq!(back.summary()["route"], "through");
    tree::assert_same(&data, &lan.left.home().join("back/data"));
}

/// Copies with all channels cut once, midway.
fn copy_cut(lan: &Lan, copy: &mut Command) {
    copy.args(["-r", "--json", "--through-local", "--bwlimit", "1MB/s"]);
    let running = Running::start(copy.args(["--streams", "4"]));
    // The first channel may carry data before the others begin.
    let channels = RefCell::new(Vec::new());
    let joined = running.event(|event| {
        *channels.borrow_mut() = lan.processes("here", "--join");
        moved(event).is_some() && !channels.borrow().is_empty()
    });
    assert!(
        joined.is_some(),
        "the copy ended before the channels joined"
    );
    for channel in channels.into_inner() {
        // The process may have ended in the meantime.
        let _ = kill_process(channel, Signal::KILL);
    }
    let done = running.wait().expect(0);
    assert_eq!(done.summary()["route"], "through");
}

#[test]
fn lost_channels_through_this_host_are_replaced() {
    if !is_possible() {
        return;
    }
    let lan = Lan::new();
    let data = lan.left.home().join("data");
    tree::mixed_tree(&data, 60, 16 << 20);
    copy_cut(&lan, lan.copy().args(["left:data", "right:there"]));
    tree::assert_same(&data, &lan.right.home().join("there/data"));
    let root = tempfile::tempdir().unwrap();
    let (daemon, address) = daemon_at(&lan, root.path(), 4960);
    let to_daemon = || {
        let mut command = lan.copy();
        command.args(["--fingerprint", &daemon.fingerprint]);
        command.arg("--token-file").arg(daemon.tokens_for(address));
        command
    };
    let there = url(address, "in");
    copy_cut(&lan, to_daemon().arg("left:data").arg(there));
    tree::assert_same(&data, &root.path().join("in/data"));
    let back = url(address, "in/data");
    copy_cut(&lan, to_daemon().arg(back).arg("left:back"));
    tree::assert_same(&data, &lan.left.home().join("back/data"));
}
