//! `longhaul doctor`: what it finds at real hosts.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::Command;

use crate::support::Daemon;
use crate::support::process::{Finished, longhaul, run};
use crate::support::sshd::{Setting, Sshd, is_possible};
use serde_json::Value;

/// The findings of a topic.
fn of<'a>(report: &'a Value, topic: &str) -> Vec<&'a Value> {
    let findings = report["findings"].as_array().unwrap();
    let found = findings.iter().filter(|finding| finding["topic"] == topic);
    found.collect()
}

fn report(done: &Finished) -> Value {
    let report: Value = serde_json::from_slice(&done.output).unwrap();
    assert_eq!(report["kind"], "doctor");
    for finding in report["findings"].as_array().unwrap() {
        let weight = finding["weight"].as_str().unwrap();
        let remedy = finding["remedy"].is_string();
        let wants = matches!(weight, "problem" | "advice");
        assert_eq!(remedy, wants, "{finding}");
    }
    report
}

/// All weights of a topic.
fn weights<'a>(report: &'a Value, topic: &str) -> Vec<&'a str> {
    let found = of(report, topic);
    found
        .iter()
        .map(|one| one["weight"].as_str().unwrap())
        .collect()
}

fn examine(mut command: Command, endpoint: &str) -> Finished {
    run(command.args(["--json", endpoint]))
}

// Promise 56.
#[test]
fn doctor_describes_this_host_without_an_endpoint() {
    let place = tempfile::tempdir().unwrap();
    let mut command = longhaul();
    let done = run(command.args(["doctor", "--json"]).arg(place.path())).expect(0);
    let report = report(&done);
    for topic in ["space", "inodes", "rights"] {
        assert_eq!(weights(&report, topic), ["ok"], "{report}");
    }
    assert_eq!(weights(&report, "kernel").len(), 2);
    for absent in ["login", "clock", "ports outward", "path"] {
        assert!(of(&report, absent).is_empty(), "{report}");
    }
    let mut command = longhaul();
    let text = run(command.arg("doctor").arg(place.path())).expect(0);
    let text = String::from_utf8(text.output).unwrap();
    assert!(text.contains("ok           rights: "), "{text}");
    let last = text.lines().last().unwrap();
    assert!(
        last.contains(" findings: ") && last.contains(" ok"),
        "{last}"
    );
    run(longhaul().args(["doctor", "null:"]))
        .expect(1)
        .says(&["name a path"]);
}

fn apart(config: &str) -> Sshd {
    Sshd::with(&Setting {
        apart: true,
        config,
        ..Setting::default()
    })
}

// Promise 56.
#[test]
fn an_open_host_accepts_connections_in_both_directions() {
    if !is_possible() {
        return;
    }
    let sshd = apart("");
    let done = examine(sshd.command("doctor"), "dtn:not/there");
    let report = report(&done);
    assert_eq!(weights(&report, "longhaul"), ["ok"], "{report}");
    assert!(
        weights(&report, "ports outward").contains(&"ok"),
        "{report}"
    );
    assert_eq!(weights(&report, "ports inward"), ["ok"], "{report}");
    assert_eq!(weights(&report, "window scaling"), ["ok"], "{report}");
    // Both are this machine.
    assert_eq!(weights(&report, "clock"), ["ok"], "{report}");
    let paths = of(&report, "path");
    assert_eq!(paths.len(), 2, "{report}");
    for path in paths {
        // A host that is very busy sees too little.
        assert_ne!(path["weight"], "problem", "{report}");
    }
    assert!(!weights(&report, "mtu").contains(&"problem"), "{report}");
    let space = of(&report, "space");
    assert!(
        space[0]["text"]
            .as_str()
            .unwrap()
            .starts_with("the remote host")
    );
}

#[test]
fn a_closed_port_is_named_with_the_result_of_the_attempt() {
    if !is_possible() {
        return;
    }
    let sshd = apart("");
    sshd.close_server();
    sshd.close_client();
    let done = examine(sshd.command("doctor"), "dtn:").expect(2);
    let report = report(&done);
    let outward = of(&report, "ports outward");
    let text = outward[0]["text"].as_str().unwrap();
    assert!(text.contains("10.79.0.2:500"), "{report}");
    assert!(
        outward.iter().all(|one| one["weight"] == "problem"),
        "{report}"
    );
    let inward = of(&report, "ports inward");
    let text = inward[0]["text"].as_str().unwrap();
    assert!(
        text.contains("no way leads from the remote host to 10.79.0.1:500"),
        "{report}"
    );
    // This was not examined, and the report says so.
    assert_eq!(
        weights(&report, "window scaling"),
        ["not checked"],
        "{report}"
    );
    assert_eq!(weights(&report, "path"), ["not checked"], "{report}");
}

#[test]
fn dropped_connections_are_distinguished_from_refused_ones() {
    if !is_possible() {
        return;
    }
    let sshd = apart("");
    sshd.drop_calls();
    let done = examine(sshd.command("doctor"), "dtn:");
    let report = report(&done);
    let inward = of(&report, "ports inward");
    let text = inward[0]["text"].as_str().unwrap();
    assert!(text.contains("10.79.0.1:500"), "{report}");
    assert!(
        text.contains("is silent to the remote host (3 s)"),
        "{report}"
    );
    // One working direction is enough.
    assert_eq!(inward[0]["weight"], "advice", "{report}");
}

#[test]
fn a_host_without_longhaul_is_described() {
    if !is_possible() {
        return;
    }
    let sshd = Sshd::with(&Setting {
        config: "SetEnv PATH=/usr/bin:/bin",
        ..Setting::default()
    });
    let done = examine(sshd.bare_command("doctor"), "dtn:").expect(2);
    let report = report(&done);
    let longhaul = of(&report, "longhaul");
    assert_eq!(longhaul[0]["weight"], "problem", "{report}");
    assert!(
        longhaul[0]["remedy"]
            .as_str()
            .unwrap()
            .contains("--install-remote")
    );
    assert_eq!(weights(&report, "space")[0], "ok", "{report}");
    assert_eq!(
        weights(&report, "ports outward"),
        ["not checked"],
        "{report}"
    );
}

#[test]
fn a_remote_binary_that_does_not_start_is_a_finding() {
    if !is_possible() {
        return;
    }
    let sshd = Sshd::start();
    let mut command = sshd.bare_command("doctor");
    command.args(["--remote-longhaul", "/nonexistent/longhaul"]);
    let done = examine(command, "dtn:").expect(2);
    let report = report(&done);
    assert_eq!(weights(&report, "longhaul"), ["problem"], "{report}");
    assert_eq!(
        weights(&report, "ports outward"),
        ["not checked"],
        "{report}"
    );
}

// Promise 56.
#[test]
fn a_failed_login_is_a_finding() {
    if !is_possible() {
        return;
    }
    let sshd = Sshd::start();
    sshd.lock_out();
    let done = examine(sshd.command("doctor"), "dtn:").expect(4);
    let refused = report(&done);
    let login = of(&refused, "login");
    assert!(
        login[0]["text"]
            .as_str()
            .unwrap()
            .contains("Permission denied"),
        "{refused}"
    );
    assert!(of(&refused, "space").is_empty(), "{refused}");
    // Only ssh prints this message.
    assert!(
        !done.errors.contains("Permission denied"),
        "{}",
        done.errors
    );
    sshd.distrust_host_key();
    let done = examine(sshd.command("doctor"), "dtn:").expect(4);
    assert!(
        done.errors.contains("HOST IDENTIFICATION HAS CHANGED"),
        "{}",
        done.errors
    );
    let nobody = format!("{} -o Port=1", sshd.ssh());
    let mut command = sshd.command("doctor");
    command.env("LONGHAUL_SSH", nobody);
    let done = examine(command, "dtn:").expect(3);
    let absent = report(&done);
    let login = of(&absent, "login");
    assert!(
        login[0]["text"]
            .as_str()
            .unwrap()
            .contains("Connection refused"),
        "{absent}"
    );
}

#[test]
fn a_full_or_inaccessible_directory_is_a_finding() {
    if !is_possible() {
        return;
    }
    let sshd = Sshd::with(&Setting {
        before: "mkdir $far/full; mount -t tmpfs -o size=1m none $far/full; \
                 head -c 2000000 /dev/zero >$far/full/all || true; \
                 mkdir $far/shut; mount -t tmpfs none $far/shut; mount -o remount,ro $far/shut",
        config: "SetEnv PATH=/usr/bin:/bin",
        ..Setting::default()
    });
    let done = examine(sshd.bare_command("doctor"), "dtn:full/new").expect(2);
    let full = report(&done);
    assert_eq!(weights(&full, "space"), ["problem"], "{full}");
    let system = of(&full, "file system");
    assert!(
        system[0]["text"].as_str().unwrap().contains("tmpfs"),
        "{full}"
    );
    let done = examine(sshd.bare_command("doctor"), "dtn:shut").expect(2);
    let shut = report(&done);
    assert_eq!(weights(&shut, "rights"), ["advice"], "{shut}");
}

#[test]
fn a_daemon_is_described_by_the_facts_that_it_reports() {
    let place = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(place.path());
    let done = daemon_report(&daemon);
    assert_eq!(weights(&done, "longhaul"), ["ok"], "{done}");
    assert_eq!(weights(&done, "ports outward"), ["ok"], "{done}");
    assert_eq!(weights(&done, "clock"), ["ok"], "{done}");
    assert_eq!(weights(&done, "path").len(), 2, "{done}");
    assert!(!weights(&done, "path").contains(&"problem"), "{done}");
    assert_eq!(weights(&done, "host"), ["not checked"], "{done}");
    assert_eq!(weights(&done, "ports inward"), ["not checked"], "{done}");
    // The principal may read and write at this path, and may not delete.
    assert_eq!(weights(&done, "rights"), ["ok", "advice"], "{done}");
    let may_not = &of(&done, "rights")[1];
    assert!(may_not["text"].as_str().unwrap().contains("not delete"));
    let left = std::fs::read_dir(place.path()).unwrap().count();
    assert_eq!(left, 0, "doctor left files");
}

#[test]
fn the_rights_of_a_principal_are_reported() {
    let place = tempfile::tempdir().unwrap();
    let daemon = Daemon::with(place.path(), &[]);
    let done = daemon_report(&daemon);
    let rights = of(&done, "rights");
    assert_eq!(rights[0]["weight"], "advice", "{done}");
    let text = rights[0]["text"].as_str().unwrap();
    assert!(
        text.contains("user may read") && text.contains("not write"),
        "{done}"
    );
    let remedy = rights[0]["remedy"].as_str().unwrap();
    assert!(remedy.contains("serve --write"), "{done}");
    let mut command = daemon.command("doctor");
    let done = run(command.arg("--json").arg(daemon.url("not/there")));
    let absent = report(&done);
    assert_eq!(weights(&absent, "place"), ["problem"], "{absent}");
}

#[test]
fn an_unknown_principal_is_a_finding() {
    let [here, there] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [daemon, other] = [&here, &there].map(|place| Daemon::start(place.path()));
    let tokens = other.tokens_for(daemon.address);
    let mut command = longhaul();
    command
        .args(["doctor", "--json", "--fingerprint", &daemon.fingerprint])
        .arg("--token-file")
        .arg(tokens)
        .arg(daemon.url(""));
    let done = run(&mut command).expect(4);
    let unknown = report(&done);
    assert_eq!(weights(&unknown, "login"), ["problem"], "{unknown}");
}

#[test]
fn a_missing_path_is_a_finding() {
    let place = tempfile::tempdir().unwrap();
    let examined = |path: &str| {
        let mut command = longhaul();
        run(command
            .args(["doctor", "--json"])
            .arg(place.path().join(path)))
    };
    let new = report(&examined("new").expect(0));
    assert_eq!(weights(&new, "place"), ["advice"], "{new}");
    let wrong = report(&examined("not/there").expect(2));
    assert_eq!(weights(&wrong, "place"), ["problem"], "{wrong}");
    let text = of(&wrong, "place")[0]["text"].as_str().unwrap();
    assert!(text.contains("not/there"), "{wrong}");
}

fn daemon_report(daemon: &Daemon) -> Value {
    let mut command = daemon.command("doctor");
    let done = run(command.arg("--json").arg(daemon.url(""))).expect(0);
    report(&done)
}

#[test]
fn a_home_that_runs_no_programs_is_named_with_a_usable_directory() {
    if !is_possible() {
        return;
    }
    let sshd = Sshd::with(&Setting {
        config: "SetEnv PATH=/usr/bin:/bin",
        before: "mkdir $far/.cache; mount -t tmpfs -o noexec none $far/.cache; ulimit -S -t 7200",
        ..Setting::default()
    });
    let done = examine(sshd.bare_command("doctor"), "dtn:").expect(2);
    let report = report(&done);
    let [named] = of(&report, "programs")[..] else {
        panic!("{report}");
    };
    assert_eq!(named["weight"], "problem");
    let has = |field: &str, text: &str| named[field].as_str().unwrap().contains(text);
    assert!(has("text", "/.cache is mounted noexec"), "{named}");
    assert!(has("remedy", "into /var/tmp/longhaul-0"), "{named}");
    assert_eq!(weights(&report, "time"), ["advice"], "{report}");
}

#[test]
fn a_forced_command_is_a_finding() {
    if !is_possible() {
        return;
    }
    let sshd = Sshd::with(&Setting {
        config: "ForceCommand echo only for backups",
        ..Setting::default()
    });
    let done = examine(sshd.bare_command("doctor"), "dtn:");
    let report = report(&done);
    let login = of(&report, "login")[0];
    let text = login["text"].as_str().unwrap();
    assert!(
        text.contains("only for backups") && text.contains("ForceCommand"),
        "{login}"
    );
}
