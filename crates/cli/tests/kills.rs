//! Either end is killed at random points: the same command goes on, the trees
//! become identical, and nothing that was committed is sent again.
//!
//! `LONGHAUL_KILLS`, `LONGHAUL_KILL_BYTES` and `LONGHAUL_KILL_FILES` make it
//! larger; `LONGHAUL_SEED` repeats a run's choices.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::channel;

use rustix::process::{Pid, Signal, kill_process};
use support::process::{Finished, LIMIT, Running, longhaul_with};
use support::proxy::Proxy;
use support::random::Random;
use support::{Daemon, assert_no_leftovers, daemon, tree};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// What a pipeline holds beyond its last checkpoint at a kill, each end's
/// memory and the sockets between them: sent, and not reported durable.
const IN_FLIGHT: u64 = 3 * 8 * MIB;

fn setting(name: &str, otherwise: u64) -> u64 {
    let set = std::env::var(name).ok();
    set.map_or(otherwise, |value| value.parse().expect(name))
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Push,
    Pull,
    Local,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Victim {
    Client,
    Daemon,
}

/// How a trial is run, the same each time.
struct Plan {
    way: Way,
    checkpoint: Option<&'static str>,
}

impl Plan {
    /// Bytes that may have been received and not be durable.
    fn unreported(&self) -> u64 {
        match self.checkpoint {
            Some(_) => MIB,
            None => 256 * MIB,
        }
    }
}

/// A copy that is killed again and again, until it completes.
struct Trial<'a> {
    plan: &'a Plan,
    source: &'a Path,
    directory: TempDir,
    daemon: Option<(Daemon, Arc<Proxy>)>,
    committed: BTreeSet<String>,
}

impl<'a> Trial<'a> {
    fn new(plan: &'a Plan, source: &'a Path) -> Trial<'a> {
        let directory = tempfile::tempdir().unwrap();
        let root = match plan.way {
            Way::Push => Some(directory.path()),
            Way::Pull => source.parent(),
            Way::Local => None,
        };
        let daemon = root.map(|root| {
            let daemon = Daemon::with(root, &["--write", "--memory", "8MiB"]);
            let proxy = Arc::new(Proxy::to(daemon.address));
            (daemon, proxy)
        });
        Trial {
            plan,
            source,
            directory,
            daemon,
            committed: BTreeSet::new(),
        }
    }

    fn destination(&self) -> PathBuf {
        self.directory.path().join("copy/data")
    }

    fn command(&self) -> Command {
        let mut command = longhaul_with(&["cp", "-r", "--json", "--memory", "8MiB"]);
        if let Some(checkpoint) = self.plan.checkpoint {
            command.args(["--checkpoint", checkpoint]);
        }
        if let Some((daemon, proxy)) = &self.daemon {
            command
                .args(["--fingerprint", &daemon.fingerprint, "--token-file"])
                .arg(daemon.tokens_for(proxy.address));
        }
        match (self.plan.way, &self.daemon) {
            (Way::Push, Some((_, proxy))) => command
                .arg(self.source)
                .arg(daemon::url(proxy.address, "copy")),
            (Way::Pull, Some((_, proxy))) => command
                .arg(daemon::url(proxy.address, "data"))
                .arg(self.directory.path().join("copy")),
            _ => command
                .arg(self.source)
                .arg(self.directory.path().join("copy")),
        };
        command
    }

    /// Runs the command to its end.
    fn complete(&mut self) -> Finished {
        let finished = Running::start(&mut self.command()).wait().expect(0);
        self.note(&finished);
        finished
    }

    /// Runs the command and kills one end; none where it was done before.
    fn kill(&mut self, random: &mut Random, span: u64) -> Option<Victim> {
        let victim = match (&self.daemon, random.below(2)) {
            (Some(_), 0) => Victim::Daemon,
            _ => Victim::Client,
        };
        let running = Running::start(&mut self.command());
        let killed = match victim {
            Victim::Daemon => self.kill_daemon(&running, random.below(span)),
            Victim::Client => self.kill_client(&running, random, span),
        };
        let mut finished = match (killed, victim) {
            (true, Victim::Client) => running.kill(),
            // The session went with the daemon, so the client gives up as soon
            // as the next daemon says so.
            _ => running.wait(),
        };
        let over = finished.code == Some(0);
        if killed && victim == Victim::Daemon && !over {
            finished = finished.expect(3);
        }
        self.note(&finished);
        tree::assert_nothing_half_written(self.source, &self.destination());
        match over {
            true => None,
            false => Some(victim),
        }
    }

    /// Kills it once so many bytes have passed.
    fn kill_at(&self, pid: Pid, running: &Running, bytes: u64) -> bool {
        let (_, proxy) = self.daemon.as_ref().unwrap();
        proxy.after(bytes, move || {
            let _ = kill_process(pid, Signal::KILL);
        });
        // The end of its output is the end of the process, or its killing.
        let told = running.event(|_| false);
        assert!(told.is_none());
        !proxy.disarm()
    }

    fn kill_client(&self, running: &Running, random: &mut Random, span: u64) -> bool {
        if self.daemon.is_some() {
            return self.kill_at(running.pid(), running, random.below(span));
        }
        // A copy within the host has no wire to count bytes on: its events.
        let events = random.below(200);
        (0..events).all(|_| running.line().is_some())
    }

    /// Waits for the daemon's end, or the client's, whichever comes first: a
    /// client without a daemon goes on trying.
    fn kill_daemon(&mut self, running: &Running, bytes: u64) -> bool {
        let (daemon, proxy) = self.daemon.as_mut().unwrap();
        let pid = daemon.running().pid();
        let (due, done) = channel();
        let gone = due.clone();
        proxy.after(bytes, move || {
            let _ = kill_process(pid, Signal::KILL);
            let _ = due.send(true);
        });
        running.when_ended(move || {
            let _ = gone.send(false);
        });
        let killed = done.recv_timeout(LIMIT).expect("neither end ended");
        let killed = killed || !proxy.disarm();
        if killed {
            daemon.kill();
            daemon.start_again();
        }
        killed
    }

    /// What was committed once is never committed again.
    fn note(&mut self, finished: &Finished) {
        for event in finished.events() {
            if event["event"] == "committed" && event["file"] == true {
                let path = event["path"].to_string();
                assert!(self.committed.insert(path), "sent again: {event}");
            }
        }
    }
}

#[test]
fn nothing_is_lost_or_sent_again() {
    let (kills, bytes, files) = (
        setting("LONGHAUL_KILLS", 20),
        setting("LONGHAUL_KILL_BYTES", 48 * MIB),
        setting("LONGHAUL_KILL_FILES", 1200),
    );
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("data");
    tree::mixed_tree(&source, files, bytes);
    let mut random = Random::new();
    let plans = [Way::Push, Way::Pull, Way::Local]
        .map(|way| [Some("1MiB"), None].map(|checkpoint| Plan { way, checkpoint }));
    let plans = plans.as_flattened();
    let whole: Vec<u64> = plans.iter().map(|plan| wire_bytes(plan, &source)).collect();
    let mut killed = 0;
    let mut number = 0;
    while killed < kills {
        let plan = &plans[number % plans.len()];
        let most = (kills - killed).min(5);
        killed += trial(
            plan,
            &source,
            whole[number % plans.len()],
            &mut random,
            most,
        );
        number += 1;
    }
    println!("{killed} kills in {number} copies");
}

/// What an undisturbed copy sends.
fn wire_bytes(plan: &Plan, source: &Path) -> u64 {
    let mut trial = Trial::new(plan, source);
    trial.complete();
    tree::assert_same(source, &trial.destination());
    trial.passed()
}

impl Trial<'_> {
    fn passed(&self) -> u64 {
        self.daemon
            .as_ref()
            .map_or(0, |(_, proxy)| proxy.take_passed())
    }
}

/// One copy with at most so many kills; gives their number.
fn trial(plan: &Plan, source: &Path, whole: u64, random: &mut Random, most: u64) -> u64 {
    let mut trial = Trial::new(plan, source);
    let (mut kills, mut sent) = (0, 0);
    for _ in 0..most {
        let span = if whole > 0 { whole / 2 } else { 1 };
        let victim = trial.kill(random, span);
        let passed = trial.passed();
        sent += passed;
        println!(
            "{:?} {:?}: {victim:?} after {passed} bytes, {} files committed",
            plan.way,
            plan.checkpoint,
            trial.committed.len()
        );
        if victim.is_none() {
            break;
        }
        kills += 1;
    }
    trial.complete();
    sent += trial.passed();
    tree::assert_same(source, &trial.destination());
    assert_no_leftovers(trial.directory.path());
    let again = sent.saturating_sub(whole);
    println!("sent again: {again} bytes after {kills} kills");
    // Asking what is there costs some bytes for each file.
    let asked = kills * 300 * tree::paths(source).len() as u64;
    let bound = kills * (plan.unreported() + IN_FLIGHT) + asked;
    assert!(
        again <= bound,
        "sent again: {again} bytes, more than {bound}"
    );
    kills
}
