//! Kills the processes that carry a copy between two remote hosts. The copy continues, or the same
//! command resumes it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::Command;

use crate::support::lan::Lan;
use crate::support::process::{Finished, Running, run};
use crate::support::sshd::is_possible;
use crate::support::{assert_no_leftovers, tree};
use rustix::process::{Signal, kill_process};

fn copy(lan: &Lan) -> Command {
    let mut command = lan.copy();
    command.args(["-r", "--json", "--checkpoint", "1MiB", "--timeout", "20s"]);
    command.args(["left:data", "right:"]);
    command
}

/// Starts a copy and kills the processes of one host whose command line contains `of`. Returns the
/// hosts and the end of the command.
fn with_killed(host: &str, of: &str) -> (Lan, Finished) {
    let lan = Lan::new();
    tree::mixed_tree(&lan.left.home().join("data"), 200, 384 << 20);
    // On a busy host, a copy without a limit could end before the kill.
    let mut slow = copy(&lan);
    let running = Running::start(slow.args(["--bwlimit", "60MB/s"]));
    let under_way = running.event(|event| event["event"] == "durable");
    assert!(under_way.is_some());
    let pids = lan.processes(host, of);
    assert!(!pids.is_empty());
    for pid in pids {
        // The process may have ended together with another one.
        let _ = kill_process(pid, Signal::KILL);
    }
    let ended = running.wait();
    (lan, ended)
}

fn assert_whole(lan: &Lan) {
    let (data, there) = (lan.left.home().join("data"), lan.right.home().join("data"));
    tree::assert_same(&data, &there);
    assert_no_leftovers(&lan.right.home());
}

fn job(lan: &Lan) -> serde_json::Value {
    let listed = run(lan.command("jobs").arg("--json")).expect(0);
    listed.events().pop().unwrap()
}

// Promise 59.
#[test]
fn a_killed_job_is_listed_as_killed_and_the_same_command_resumes() {
    if !is_possible() {
        return;
    }
    let (lan, ended) = with_killed("left", "--drive");
    ended.expect(3).says(&["the connection to left was lost"]);
    let job = job(&lan);
    assert_eq!(job["state"], "killed");
    run(lan.command("attach").arg(job["job"].as_str().unwrap()))
        .expect(3)
        .says(&["was killed", "the same command resumes it"]);
    run(&mut copy(&lan)).expect(0);
    assert_whole(&lan);
}

#[test]
fn a_job_ends_if_its_other_end_is_killed_and_the_same_command_resumes() {
    if !is_possible() {
        return;
    }
    let (lan, ended) = with_killed("right", "--meet");
    ended.expect(3).says(&["the transfer broke off"]);
    assert_eq!(job(&lan)["exit"], 3);
    run(&mut copy(&lan)).expect(0);
    assert_whole(&lan);
}

#[test]
fn a_job_outlives_the_ssh_process_that_started_it() {
    if !is_possible() {
        return;
    }
    let (lan, ended) = with_killed("here", "ssh -F");
    ended
        .expect(3)
        .says(&["the job continues there", "longhaul attach"]);
    let job = job(&lan);
    run(lan.command("attach").arg(job["job"].as_str().unwrap())).expect(0);
    assert_whole(&lan);
}
