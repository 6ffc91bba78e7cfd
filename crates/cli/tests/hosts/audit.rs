//! The audit log of a daemon: records of sessions and files, also after a kill or a full disk.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::Daemon;
use crate::support::process::{Running, run};
use crate::support::random::Random;
use crate::support::site::{DIAL, Site as TwoDaemons};
use crate::support::tree;
use longhaul_testing::await_that;

struct Site {
    place: TempDir,
}

impl Site {
    fn new() -> Site {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("data")).unwrap();
        Site { place }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// Starts a daemon that writes its audit log to `log`.
    fn daemon(&self, log: &Path, flags: &[&str]) -> Daemon {
        let mut all = vec!["--write", "--delete", "--audit", log.to_str().unwrap()];
        all.extend(flags);
        Daemon::with(&self.path("data"), &all)
    }
}

/// Returns the records of a log. Each line must be a record.
fn records(log: &Path) -> Vec<Value> {
    let text = fs::read_to_string(log).unwrap_or_default();
    // A kill may have left a part of a line.
    let lines = text.split_inclusive('\n').filter(|l| l.ends_with('\n'));
    lines
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line:?}")))
        .collect()
}

fn of<'a>(records: &'a [Value], event: &str) -> Vec<&'a Value> {
    records.iter().filter(|r| r["event"] == event).collect()
}

#[test]
fn each_session_has_a_record_of_its_beginning_and_end() {
    let site = Site::new();
    let log = site.path("audit.jsonl");
    let daemon = site.daemon(&log, &[]);
    tree::write(&site.path("src/a"), &[1; 1000]);
    // A name that would forge a record.
    let forged = "x\n{\"event\":\"end\",\"principal\":\"root\"}\u{202e}\u{2028}";
    tree::write(&site.path("src").join(forged), &[2; 500]);
    let mut push = daemon.command("cp");
    push.arg("-r").arg(site.path("src/.")).arg(daemon.url(""));
    run(&mut push).expect(0);
    fs::remove_file(site.path("src").join(forged)).unwrap();
    let mut mirror = daemon.command("cp");
    mirror.args(["-r", "--delete"]).arg(site.path("src/."));
    run(mirror.arg(daemon.url(""))).expect(0);
    let mut pull = daemon.command("cp");
    run(pull.arg(daemon.url("a")).arg(site.path("b"))).expect(0);
    run(daemon.command("ls").arg(daemon.url(""))).expect(0);
    let mut refused = daemon.command("cp");
    run(refused.arg(daemon.url("missing")).arg(site.path("c"))).expect(6);
    daemon.running().signal(Signal::TERM);
    daemon.wait().expect(0);

    let records = records(&log);
    let (begin, end) = (of(&records, "begin"), of(&records, "end"));
    let actions: Vec<&Value> = end.iter().map(|r| &r["action"]).collect();
    assert_eq!(actions, ["write", "write", "read", "read"], "{records:?}");
    assert_eq!(begin.len(), 4);
    for (begin, end) in begin.iter().zip(&end) {
        assert_eq!(begin["session"], end["session"]);
        assert_eq!(end["principal"], "user");
        assert!(end["peer"].as_str().unwrap().starts_with("127.0.0.1:"));
    }
    assert_eq!(
        (&end[0]["bytes"], &end[0]["files"]),
        (&1500.into(), &2.into())
    );
    assert_eq!(end[0]["outcome"], "complete");
    assert_eq!(
        (&end[1]["deletes"], &end[1]["deleted"]),
        (&true.into(), &1.into())
    );
    assert_eq!(
        (&end[2]["bytes"], &end[2]["paths"][0]),
        (&1000.into(), &"/a".into())
    );
    let outcome = end[3]["outcome"].as_str().unwrap();
    assert!(outcome.starts_with("refused: "), "{outcome}");
    assert_eq!(of(&records, "listed")[0]["path"], "/");
    assert_eq!(of(&records, "intent").len(), 0);
}

#[test]
fn names_in_the_records_of_files_forge_no_line() {
    let site = Site::new();
    let log = site.path("audit.jsonl");
    let daemon = site.daemon(&log, &["--audit-files"]);
    let forged = "x\n{\"event\":\"end\"}\u{202e}\u{2028}\u{85}";
    tree::write(&site.path("src").join(forged), &[2; 500]);
    tree::write(&site.path("src/large"), &[3; 9 << 20]);
    let mut push = daemon.command("cp");
    push.arg("-r").arg(site.path("src/.")).arg(daemon.url(""));
    run(&mut push).expect(0);
    let mut pull = daemon.command("cp");
    pull.arg("--move").arg(daemon.url("large"));
    run(pull.arg(site.path("moved"))).expect(0);
    fs::remove_file(site.path("src").join(forged)).unwrap();
    let mut mirror = daemon.command("cp");
    mirror.args(["-r", "--delete"]).arg(site.path("src/."));
    run(mirror.arg(daemon.url(""))).expect(0);
    drop(daemon);

    let text = fs::read_to_string(&log).unwrap();
    assert!(!text.contains(['\u{202e}', '\u{2028}', '\u{85}']), "{text}");
    let records = records(&log);
    let intended = |change: &str| {
        let intents = of(&records, "intent").into_iter();
        let mut paths: Vec<String> = intents
            .filter(|r| r["change"] == change)
            .map(|r| r["path"].as_str().unwrap().to_owned())
            .collect();
        paths.sort();
        paths
    };
    assert_eq!(intended("commit"), ["large", "large", forged]);
    assert_eq!(intended("remove-source"), ["large"]);
    assert_eq!(intended("delete"), [forged]);
    let committed = of(&records, "committed");
    let bytes = |r: &&Value| r["bytes"].as_u64().unwrap();
    let total: u64 = committed.iter().map(bytes).sum();
    assert_eq!(total, 500 + 2 * (9 << 20));
    let deleted: Vec<&Value> = of(&records, "deleted").iter().map(|r| &r["path"]).collect();
    assert_eq!(deleted, ["large", forged]);
    assert_eq!(of(&records, "sent")[0]["path"], "large");
    let intent = of(&records, "intent")[0];
    let host = intent["host_path"].as_str().unwrap();
    let root = site.path("data").canonicalize().unwrap();
    assert!(Path::new(host).starts_with(root), "{host}");
}

#[test]
fn a_stopped_daemon_records_the_end_of_each_session() {
    let site = Site::new();
    let log = site.path("audit.jsonl");
    let daemon = site.daemon(&log, &[]);
    tree::write(&site.path("data/large"), &Random::new(1).bytes(8 << 20));
    let mut pull = daemon.command("cp");
    pull.args(["--json", "--timeout", "20", "--bwlimit", "1MB/s"]);
    pull.arg(daemon.url("large")).arg(site.path("copy"));
    let pull = Running::start(&mut pull);
    let moves = |event: &Value| event["moved_bytes"].as_u64() > Some(0);
    pull.event(moves).unwrap();
    daemon.running().signal(Signal::TERM);
    daemon.wait().expect(0);
    pull.kill();
    let records = records(&log);
    let end = of(&records, "end");
    assert_eq!(end.len(), 1);
    assert_eq!(end[0]["outcome"], "the daemon was stopped");
    assert!(end[0]["transferred_bytes"].as_u64() > Some(0));
    assert_eq!(end[0]["bytes"], 0);
}

#[test]
fn the_records_of_a_killed_daemon_are_reconciled_with_the_files() {
    let site = Site::new();
    let log = site.path("audit.jsonl");
    let mut daemon = site.daemon(&log, &["--audit-files"]);
    for number in 0..200 {
        let size = 10_000 + number * 17;
        tree::write(
            &site.path(&format!("src/{number:03}")),
            &Random::new(number as u64).bytes(size),
        );
    }
    let mut push = daemon.command("cp");
    push.args(["-r", "--timeout", "20", "--bwlimit", "500kB/s"]);
    push.arg(site.path("src/.")).arg(daemon.url(""));
    let push = Running::start(&mut push);
    await_that(|| !of(&records(&log), "intent").is_empty());
    daemon.kill();
    push.kill();
    // The next daemon writes the missing records before it serves.
    daemon.start_again();
    let records = records(&log);
    let end = of(&records, "end");
    assert_eq!(end.len(), 1, "{records:?}");
    assert_eq!(end[0]["outcome"], "the daemon was killed");
    assert_eq!(end[0]["reconciled"], true);
    let arrived: Vec<PathBuf> = fs::read_dir(site.path("data"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| !tree::is_own(path))
        .collect();
    let size = |path: &PathBuf| path.metadata().unwrap().len();
    let bytes: u64 = arrived.iter().map(size).sum();
    let recorded = of(&records, "committed");
    let recorded_bytes = recorded.iter().map(|r| r["bytes"].as_u64().unwrap());
    assert_eq!(recorded.len(), arrived.len());
    assert_eq!(recorded_bytes.sum::<u64>(), bytes);
    assert_eq!(end[0]["bytes"], bytes);
}

#[test]
fn a_full_audit_log_refuses_writes_unless_it_is_optional() {
    let site = Site::new();
    tree::write(&site.path("data/a"), b"a");
    tree::write(&site.path("b"), b"b");
    for (flags, code) in [(&[][..], 6), (&["--audit-optional"], 0)] {
        let daemon = site.daemon(Path::new("/dev/full"), flags);
        let mut push = daemon.command("cp");
        let pushed = run(push.arg(site.path("b")).arg(daemon.url(""))).expect(code);
        if code != 0 {
            pushed.says(&["cannot record who writes"]);
        }
        assert_eq!(site.path("data/b").exists(), code == 0);
        let mut pull = daemon.command("cp");
        run(pull.arg(daemon.url("a")).arg(site.path("c"))).expect(0);
    }
}

#[test]
fn a_renamed_audit_log_is_continued_in_a_new_file() {
    let site = Site::new();
    let log = site.path("audit.jsonl");
    let daemon = site.daemon(&log, &[]);
    tree::write(&site.path("data/large"), &Random::new(1).bytes(8 << 20));
    let mut pull = daemon.command("cp");
    pull.args(["--json", "--timeout", "20", "--bwlimit", "1MB/s"]);
    pull.arg(daemon.url("large")).arg(site.path("copy"));
    let pull = Running::start(&mut pull);
    let moves = |event: &Value| event["moved_bytes"].as_u64() > Some(0);
    pull.event(moves).unwrap();
    fs::rename(&log, site.path("audit.1")).unwrap();
    daemon.running().signal(Signal::TERM);
    daemon.wait().expect(0);
    pull.kill();
    let records = records(&log);
    let events: Vec<&Value> = records.iter().map(|r| &r["event"]).collect();
    assert_eq!(events, ["begin", "end"]);
    assert_eq!(records[0]["continued"], true);
}

#[test]
fn a_job_between_daemons_is_recorded_with_the_address_of_its_client() {
    let place = tempfile::tempdir().unwrap();
    let log = place.path().join("audit.jsonl");
    let file = log.to_str().unwrap();
    let flags = ["--write", DIAL, "--audit", file, "--audit-files"];
    let site = TwoDaemons::new(&flags, &["--write"]);
    tree::write(&site.root("one").join("a"), &[1; 700]);
    run(&mut site.copy(&[], "a", "there")).expect(0);
    let mut back = site.command("cp");
    back.arg(site.two.url("there"));
    run(back.arg(site.one.url("back"))).expect(0);
    let records = records(&log);
    let end = of(&records, "end");
    let field = |name: &str| end.iter().map(|r| r[name].clone()).collect::<Vec<_>>();
    assert_eq!(field("action"), ["read", "write"], "{records:?}");
    assert_eq!(field("bytes"), [700, 700]);
    assert_eq!(field("outcome"), ["complete", "complete"]);
    let peer = end[1]["peer"].as_str().unwrap();
    assert!(peer.starts_with("127.0.0.1:"), "{peer}");
    assert_eq!(of(&records, "intent").len(), 1);
    assert_eq!(of(&records, "committed")[0]["bytes"], 700);
}
