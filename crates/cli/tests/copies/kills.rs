//! Kills either end at random points. The same command resumes the copy, the trees become
//! identical, and no data that were reported durable are sent or read again.
//!
//! The tests count the bytes that are sent again. Let T be the bytes of the tree, m(i) the bytes
//! that attempt i sent, each once, and d(i) the bytes that it reported durable before it was
//! killed. Every attempt must have
//!
//! ```text
//! m(i) <= T - (d(1) + ... + d(i-1))
//! ```
//!
//! The last attempt completes. Summed over all attempts, this is
//!
//! ```text
//! m(1) + ... + m(n) - T <= (m(1) - d(1)) + ... + (m(n-1) - d(n-1))
//! ```
//!
//! So the bytes that are sent again are at most those that were sent and not reported durable at
//! the kills. No checkpoint has to be added.
//!
//! `LONGHAUL_KILLS`, `LONGHAUL_KILL_BYTES` and `LONGHAUL_KILL_FILES` make the test larger.
//! `LONGHAUL_SEED` repeats a run. `TMPDIR` contains the trees.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::channel;

use crate::support::process::{Finished, Running, limit, longhaul_with};
use crate::support::proxy::Proxy;
use crate::support::random::{Random, random_from_environment};
use crate::support::snapshot::{Snapshot, Whole};
use crate::support::{Daemon, assert_no_leftovers, daemon, tree};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// Small files that a kill may cost.
const FILES_AGAIN: u64 = 5000;

/// Trees from this size on are large. Memory and checkpoint are not scaled down for them.
const LARGE_BYTES: u64 = 1 << 30;

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

/// Settings of a trial, which stay the same over all attempts.
#[derive(Debug)]
struct Plan {
    way: Way,
    checkpoint: Option<String>,
    memory: u64,
}

/// Most kills in one copy. The number is low enough that every plan has its turn, and that most of
/// a large tree is not copied repeatedly.
fn kills_per_copy(bytes: u64) -> u64 {
    if bytes < LARGE_BYTES { 3 } else { 5 }
}

/// Every way with and without `--checkpoint`.
fn plans(bytes: u64) -> Vec<Plan> {
    let (checkpoint, memory) = if bytes < LARGE_BYTES {
        ("1MiB", 8 * MIB)
    } else {
        ("16MiB", 64 * MIB)
    };
    let plan = |way, often: bool| Plan {
        way,
        checkpoint: often.then(|| checkpoint.to_owned()),
        memory,
    };
    vec![
        plan(Way::Push, true),
        plan(Way::Pull, false),
        plan(Way::Local, true),
        plan(Way::Push, false),
        plan(Way::Pull, true),
        plan(Way::Local, false),
    ]
}

/// The tree to be copied.
struct Source {
    path: PathBuf,
    snapshot: Snapshot,
    bytes: u64,
    files: u64,
}

impl Source {
    /// Makes a tree of at least this number of files and bytes.
    fn make(path: PathBuf, files: u64, bytes: u64) -> Source {
        tree::mixed_tree(&path, files, bytes);
        let made = Snapshot::of(&path);
        if let Some(missing @ 1..) = bytes.checked_sub(made.bytes()) {
            let text = Random::new(5).bytes(missing as usize);
            tree::write(&path.join("the rest"), &text);
            tree::set_times(&path);
        }
        let snapshot = Snapshot::of(&path);
        let (bytes, files) = (snapshot.bytes(), snapshot.files());
        println!("a tree with {files} files of {bytes} bytes together");
        Source {
            path,
            snapshot,
            bytes,
            files,
        }
    }
}

/// The client's reports over all attempts.
#[derive(Default)]
struct Told {
    /// Files that have their names.
    committed: BTreeSet<String>,
    committed_bytes: u64,
    /// Durable bytes of files without a name yet.
    partial: BTreeMap<String, u64>,
}

impl Told {
    fn durable_bytes(&self) -> u64 {
        self.committed_bytes + self.partial.values().sum::<u64>()
    }

    /// Notes what an attempt reported. What was committed once is never
    /// committed again; what was durable of a file is not sent again.
    fn note(&mut self, events: &[Value], source: &Source, complete: bool) {
        let before = self.partial.clone();
        let mut found = BTreeSet::new();
        for event in events {
            let kind = event["event"].as_str().unwrap();
            assert_ne!(kind, "failed", "{event}");
            let Some(path) = event["path"].as_str().map(str::to_owned) else {
                continue;
            };
            // Paths begin with the name of the tree.
            let beneath = path.strip_prefix("data/").unwrap_or("");
            match kind {
                "committed" if event["file"] == true => {
                    self.partial.remove(&path);
                    self.committed_bytes += source.snapshot.size(beneath);
                    assert!(self.committed.insert(path), "sent again: {event}");
                }
                "skipped" if event["file"] == true => {
                    // The file has its name, but the kill prevented the report.
                    self.partial.remove(&path);
                    if self.committed.insert(path.clone()) {
                        self.committed_bytes += source.snapshot.size(beneath);
                    }
                    found.insert(path);
                }
                "resumed" => {
                    let there = event["durable"].as_u64().unwrap();
                    let least = before.get(&path).copied().unwrap_or(0);
                    assert!(there >= least, "{least} bytes were durable: {event}");
                    found.insert(path);
                }
                "durable" if !self.committed.contains(&path) => {
                    let known = self.partial.entry(path).or_default();
                    *known = event["durable"].as_u64().unwrap().max(*known);
                }
                _ => {}
            }
        }
        let forgotten = before.keys().find(|path| !found.contains(*path));
        assert!(
            !complete || forgotten.is_none(),
            "{forgotten:?} began from zero"
        );
    }
}

/// A copy that is killed again and again, until it completes.
struct Trial<'a> {
    plan: &'a Plan,
    source: &'a Source,
    directory: TempDir,
    daemon: Option<(Daemon, Arc<Proxy>)>,
    told: Told,
    whole: Whole,
    /// Bytes that the attempts sent, where each attempt counts a byte once.
    moved: u64,
}

impl<'a> Trial<'a> {
    fn new(plan: &'a Plan, source: &'a Source) -> Trial<'a> {
        let directory = tempfile::tempdir().unwrap();
        let root = match plan.way {
            Way::Push => Some(directory.path()),
            Way::Pull => source.path.parent(),
            Way::Local => None,
        };
        let daemon = root.map(|root| {
            let memory = format!("{}B", plan.memory);
            let daemon = Daemon::with(root, &["--write", "--memory", &memory]);
            let proxy = Arc::new(Proxy::to(daemon.address));
            (daemon, proxy)
        });
        Trial {
            plan,
            source,
            directory,
            daemon,
            told: Told::default(),
            whole: Whole::default(),
            moved: 0,
        }
    }

    fn destination(&self) -> PathBuf {
        self.directory.path().join("copy/data")
    }

    fn command(&self) -> Command {
        let memory = format!("{}B", self.plan.memory);
        let mut command = longhaul_with(&["cp", "-r", "--json", "--memory", &memory]);
        if let Some(checkpoint) = &self.plan.checkpoint {
            command.args(["--checkpoint", checkpoint]);
        }
        if let Some((daemon, proxy)) = &self.daemon {
            command
                .args(["--fingerprint", &daemon.fingerprint, "--token-file"])
                .arg(daemon.tokens_for(proxy.address));
        }
        let (source, copy) = (&self.source.path, self.directory.path().join("copy"));
        match (self.plan.way, &self.daemon) {
            (Way::Push, Some((_, proxy))) => {
                command.arg(source).arg(daemon::url(proxy.address, "copy"))
            }
            (Way::Pull, Some((_, proxy))) => {
                command.arg(daemon::url(proxy.address, "data")).arg(copy)
            }
            _ => command.arg(source).arg(copy),
        };
        command
    }

    /// Runs the command to its end.
    fn complete(&mut self) {
        self.take_passed();
        let finished = Running::start(&mut self.command()).wait().expect(0);
        self.note(&finished, true);
    }

    /// Runs the command and kills one end. Returns `None` if the copy completed before the kill.
    fn kill(&mut self, random: &mut Random) -> Option<Victim> {
        self.take_passed();
        let victim = match (&self.daemon, random.below(2)) {
            (Some(_), 0) => Victim::Daemon,
            _ => Victim::Client,
        };
        let running = Running::start(&mut self.command());
        let killed = match victim {
            Victim::Daemon => self.kill_daemon(&running, random.below(self.span())),
            Victim::Client => self.kill_client(&running, random),
        };
        let mut finished = match (killed, victim) {
            (true, Victim::Client) => running.kill(),
            // The session ended with the daemon. The client gives up after the answer of the next
            // daemon.
            _ => running.wait(),
        };
        let over = finished.code == Some(0);
        if killed && victim == Victim::Daemon && !over {
            finished = finished.expect(3);
        }
        self.note(&finished, over);
        let copy = self.destination();
        let snapshot = &self.source.snapshot;
        snapshot.assert_nothing_half_written(&copy, &mut self.whole);
        (!over).then_some(victim)
    }

    /// The largest number of bytes on the wire before a kill: most of the remaining data, and the
    /// questions about existing entries.
    fn span(&self) -> u64 {
        let left = self.source.bytes - self.told.durable_bytes();
        left / 4 * 3 + 100 * self.source.files
    }

    /// Kills the process after this number of bytes.
    fn kill_at(&self, pid: Pid, running: &Running, bytes: u64) -> bool {
        let (_, proxy) = self.daemon.as_ref().unwrap();
        proxy.after(bytes, move || {
            let _ = kill_process(pid, Signal::KILL);
        });
        // The end of its output is the end of the process, or its killing.
        while running.line().is_some() {}
        !proxy.disarm()
    }

    fn kill_client(&self, running: &Running, random: &mut Random) -> bool {
        if self.daemon.is_some() {
            return self.kill_at(running.pid(), running, random.below(self.span()));
        }
        // A copy within the host has no wire on which bytes can be counted. Instead it counts
        // events, of which there is one for each file.
        let events = random.below(self.source.files);
        (0..events).all(|_| running.line().is_some())
    }

    /// Waits for the end of the daemon or the client. A client without a daemon does not end.
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
        let killed = done.recv_timeout(limit()).expect("neither end ended");
        let killed = killed || !proxy.disarm();
        if killed {
            daemon.kill();
            daemon.start_again();
        }
        killed
    }

    /// Checks what an attempt reported against what earlier ones did.
    fn note(&mut self, finished: &Finished, complete: bool) {
        let events = finished.events();
        let (left, files_left) = (
            self.source.bytes - self.told.durable_bytes(),
            self.source.files - self.told.committed.len() as u64,
        );
        // Counts only grow, so the last account is that of the attempt. Events of a killed client
        // may report files after that account.
        let mut moved = 0;
        for event in events.iter().filter(|event| event["moved_bytes"].is_u64()) {
            moved = self.check_account(event, left, files_left);
        }
        self.moved += moved;
        if complete {
            self.check_balance(events.last().unwrap());
        }
        self.told.note(&events, self.source, complete);
    }

    /// Checks that no durable data, and no files with names, were sent or read again, and that a
    /// kill now would cost no more files than promised. Returns the bytes sent, each once.
    fn check_account(&self, event: &Value, left: u64, files_left: u64) -> u64 {
        let number = |name: &str| event[name].as_u64().expect(name);
        let again = number("moved_again_bytes");
        let moved = number("moved_bytes") - again;
        assert!(moved <= left, "only {left} bytes were left: {event}");
        // A receiving client does not read existing files for their digests. A sender may have read
        // data again that it has not yet sent.
        let complete = event["complete"] == true;
        let held = if complete { 0 } else { self.plan.memory };
        let excused = again + number("discarded_bytes") + held;
        let reads = match self.plan.way {
            Way::Pull => 0,
            Way::Push | Way::Local => left + excused,
        };
        assert!(
            number("read_bytes") <= reads,
            "only {left} bytes were left: {event}"
        );
        let digests_read = event["digests_read"].as_u64();
        assert!(matches!(digests_read, None | Some(0)), "{event}");
        let files = number("moved_files");
        assert!(
            files <= files_left,
            "only {files_left} files were left: {event}"
        );
        let open = files - number("files").min(files);
        assert!(
            open <= FILES_AGAIN,
            "a kill now would cost {open} files: {event}"
        );
        moved
    }

    /// Checks that all bytes of the tree either arrived now or existed before.
    fn check_balance(&self, summary: &Value) {
        assert_eq!(summary["event"], "summary");
        let number = |name: &str| summary[name].as_u64().expect(name);
        let there = number("skipped_bytes") + number("resumed_bytes");
        let moved = number("moved_bytes") - number("moved_again_bytes");
        assert_eq!(there + moved, self.source.bytes, "{summary}");
        assert_eq!(
            there + number("durable_bytes"),
            self.source.bytes,
            "{summary}"
        );
        if let Some((_, proxy)) = &self.daemon {
            // The bytes on the wire agree with the account: frames with headers, TLS, and
            // questions.
            let (passed, moved) = (proxy.take_passed(), number("moved_bytes"));
            let most = moved + moved / 50 + 600 * self.source.files + MIB;
            assert!(moved <= passed && passed <= most, "{passed}: {summary}");
        }
    }

    fn take_passed(&self) {
        if let Some((_, proxy)) = &self.daemon {
            proxy.take_passed();
        }
    }
}

// Promises 12 and 13.
#[test]
fn no_data_are_lost_or_sent_again_after_a_kill() {
    let (kills, bytes, files) = (
        setting("LONGHAUL_KILLS", 20),
        setting("LONGHAUL_KILL_BYTES", 48 * MIB),
        setting("LONGHAUL_KILL_FILES", 1200),
    );
    let directory = tempfile::tempdir().unwrap();
    let source = Source::make(directory.path().join("data"), files, bytes);
    let mut random = random_from_environment();
    let plans = plans(bytes);
    let (mut killed, mut again) = (0, 0);
    let mut number = 0;
    while killed < kills {
        let plan = &plans[number % plans.len()];
        let most = (kills - killed).min(kills_per_copy(bytes));
        let more = trial(plan, &source, &mut random, most);
        killed += more.0;
        again += more.1;
        number += 1;
    }
    println!("{killed} kills in {number} copies; {again} bytes sent again in all");
}

/// Runs one copy with at most this number of kills. Returns the number of kills, and the bytes sent
/// again.
fn trial(plan: &Plan, source: &Source, random: &mut Random, most: u64) -> (u64, u64) {
    let mut trial = Trial::new(plan, source);
    let mut kills = 0;
    for _ in 0..most {
        let victim = trial.kill(random);
        println!(
            "{:?} {:?}: {victim:?}, {} files, {} bytes durable",
            plan.way,
            plan.checkpoint,
            trial.told.committed.len(),
            trial.told.durable_bytes()
        );
        if victim.is_none() {
            break;
        }
        kills += 1;
    }
    trial.complete();
    source.snapshot.assert_same(&trial.destination());
    assert_no_leftovers(trial.directory.path());
    let again = trial.moved.saturating_sub(source.bytes);
    println!("{again} bytes again after {kills} kills");
    (kills, again)
}
