//! Restarts of a daemon: a drain, options from a file, and a check of its settings.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::Daemon;
use crate::support::process::{Running, longhaul, run};
use crate::support::random::Random;
use crate::support::tree;

fn moves(event: &Value) -> bool {
    event["moved_bytes"].as_u64() > Some(0)
}

#[test]
fn a_drained_daemon_ends_after_its_last_session() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("data");
    let bytes = Random::new(1).bytes(3 << 20);
    tree::write(&root.join("large"), &bytes);
    let daemon = Daemon::with(&root, &["--drain", "1h"]);
    let mut pull = daemon.command("cp");
    pull.args(["--json", "--timeout", "20", "--bwlimit", "2MB/s"]);
    pull.arg(daemon.url("large")).arg(place.path().join("copy"));
    let pull = Running::start(&mut pull);
    pull.event(moves).unwrap();
    daemon.running().signal(Signal::TERM);
    daemon.running().await_words("no new sessions are accepted");
    let mut late = daemon.command("cp");
    late.args(["--timeout", "1"]).arg(daemon.url("large"));
    let late = run(late.arg(place.path().join("late")));
    assert_ne!(late.code, Some(0));
    assert!(late.errors.contains("restarting"), "{}", late.errors);
    pull.wait().expect(0);
    assert_eq!(fs::read(place.path().join("copy")).unwrap(), bytes);
    daemon.wait().expect(0);
}

#[test]
fn copies_resume_with_the_restarted_daemon_in_both_directions() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("data");
    let bytes = Random::new(2).bytes(4 << 20);
    tree::write(&root.join("large"), &bytes);
    let mut daemon = Daemon::with(&root, &["--write", "--drain", "1h"]);
    let copy = |from: std::ffi::OsString, to: std::ffi::OsString| {
        let mut copy = daemon.command("cp");
        copy.args(["--json", "--timeout", "60", "--bwlimit", "1MB/s"]);
        Running::start(copy.arg(from).arg(to))
    };
    let copies = [
        copy(daemon.url("large"), place.path().join("pulled").into()),
        copy(root.join("large").into(), daemon.url("pushed")),
    ];
    for copy in &copies {
        copy.event(moves).unwrap();
    }
    // The second signal does not wait for the sessions.
    daemon.running().signal(Signal::TERM);
    daemon.running().await_words("no new sessions are accepted");
    daemon.running().signal(Signal::TERM);
    daemon.end().expect(0);
    daemon.start_again();
    for copy in copies {
        copy.wait().expect(0);
    }
    for name in ["pulled", "data/pushed"] {
        assert!(
            fs::read(place.path().join(name)).unwrap() == bytes,
            "{name}"
        );
    }
}

#[test]
fn options_of_a_file_are_those_of_the_command_line() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("data");
    fs::create_dir(&root).unwrap();
    let config = place.path().join("serve.toml");
    let text = format!("root = {:?}\nwrite = true\nsessions = 7\n", root.display());
    fs::write(&config, &text).unwrap();
    let arguments = vec!["--config".into(), config.clone().into()];
    let daemon = Daemon::of(arguments, |command| command);
    let file = place.path().join("file");
    fs::write(&file, "text").unwrap();
    run(daemon.command("cp").arg(&file).arg(daemon.url(""))).expect(0);
    assert_eq!(fs::read(root.join("file")).unwrap(), b"text");
    for (more, says) in [
        ("sesions = 8", "sesions"),
        ("check = true", "no option for a file"),
        ("x = [", "serve.toml"),
    ] {
        fs::write(&config, format!("{text}{more}\n")).unwrap();
        let mut serve = longhaul();
        serve.args(["serve", "--check", "--config"]).arg(&config);
        run(&mut serve).expect(1).says(&[says]);
    }
}

#[test]
fn a_check_creates_no_files() {
    let place = tempfile::tempdir().unwrap();
    let (root, state) = (place.path().join("data"), place.path().join("state"));
    fs::create_dir(&root).unwrap();
    let check = |root: &std::path::Path| {
        let mut serve = longhaul();
        serve.args(["serve", "--check", "--root"]).arg(root);
        run(serve.arg("--state").arg(&state))
    };
    let checked = check(&root).expect(0);
    let said = String::from_utf8(checked.output).unwrap();
    assert!(said.contains("number of principals: 1"), "{said}");
    assert!(!state.exists());
    check(&place.path().join("missing")).expect(6);
    check(place.path())
        .expect(6)
        .says(&["holds the daemon's state"]);
}
