//! Copies between two daemons. One of them runs a job, which continues after its command has ended.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::support::process::{Running, longhaul, run};
use crate::support::site::{
    DIAL, Driven, PRINCIPALS, Shared, Site, control_request, jobs_of, plain_spec, sample, spec,
};
use crate::support::{assert_no_leftovers, tree};
use longhaul_engine::session::opening::OpenError;
use longhaul_proto::handshake::{Refusal, Task};
use longhaul_transfer::between_hosts::job_protocol::JobEvent;
use serde_json::Value;

#[test]
fn a_tree_is_copied_between_two_daemons_in_both_directions() {
    let site = Site::new(&["--write", DIAL], &["--write"]);
    let data = site.root("one").join("data");
    sample(&data);
    let done = run(&mut site.copy(&["-r", "--json"], "data", "there")).expect(0);
    let summary = done.summary();
    assert_eq!(summary["complete"], true);
    let [one, two] = [&site.one, &site.two].map(|daemon| format!("longhaul://{}", daemon.address));
    let way = serde_json::json!({ "from": one, "to": two, "dialer": one, "dialled": two });
    assert_eq!(
        (&summary["route"], &summary["between"]),
        (&"outward".into(), &way)
    );
    let there = site.root("two").join("there/data");
    tree::assert_same(&data, &there);
    assert_no_leftovers(&site.root("two"));
    let verify = || {
        let mut command = site.command("verify");
        command.arg(site.one.url("data"));
        run(command.arg(site.two.url("there/data")))
    };
    verify().expect(0).says(&["the same: "]);
    std::fs::write(there.join("one more"), "x").unwrap();
    verify().expect(5).says(&["one more"]);
    // The one that may connect has the destination now.
    let mut back = site.command("cp");
    back.arg("-r").arg(site.two.url("there/data/hard"));
    run(back.arg(site.one.url("back")))
        .expect(0)
        .says(&[&format!(
            "{one} dialled {two}, data flowed directly {two} -> {one}"
        )]);
    tree::assert_same(&there.join("hard"), &site.root("one").join("back/hard"));
    // One file is copied to a new name in both directions.
    std::fs::write(site.root("one").join("file"), "here").unwrap();
    run(&mut site.copy(&[], "file", "new")).expect(0);
    assert_eq!(
        std::fs::read(site.root("two").join("new")).unwrap(),
        b"here"
    );
    let jobs = site.jobs(&site.one);
    let compare = |job: &&Value| job["command"] == "verify";
    assert_eq!((jobs.len(), jobs.iter().filter(compare).count()), (5, 2));
    assert!(site.jobs(&site.two).is_empty());
}

/// The command is refused on each route before any file is copied.
#[test]
fn too_many_source_names_give_the_same_message_on_both_routes() {
    let site = Site::new(&["--write", DIAL], &["--write"]);
    let many = (0..4097).map(|number| number.to_string());
    let long = (0..600).map(|number| format!("{number:0200}"));
    let here = tempfile::tempdir().unwrap();
    for names in [many.collect::<Vec<String>>(), long.collect()] {
        for to in [site.two.url("to/"), here.path().into()] {
            let mut copy = site.command("cp");
            copy.args(names.iter().map(|name| site.one.url(name)));
            let done = run(copy.arg(to)).expect(1);
            let words = "longhaul: the sources are too many, or their names too long, for one";
            assert!(done.errors.contains(words), "{}", done.errors);
        }
    }
}

#[test]
fn a_job_between_daemons_outlives_its_command() {
    let site = Site::new(&["--write", DIAL], &["--write"]);
    let moved = |event: &Value| event["moved_bytes"].as_u64().filter(|bytes| *bytes > 0);
    let running = Running::start(&mut site.copy(&["--json"], "zero:1TB", "null:"));
    let then = running.event(|event| moved(event).is_some());
    let then = moved(&then.unwrap()).unwrap();
    running.kill();
    let listed = run(site.command("jobs").arg("--json")).expect(0).events();
    assert_eq!((listed.len(), &listed[0]["state"]), (1, &"running".into()));
    let name = listed[0]["job"].as_str().unwrap().to_owned();
    let mut attach = site.command("attach");
    // Without a limit the job continues at full speed.
    let attached = Running::start(attach.args(["--json", "--bwlimit", "none", &name]));
    let further = |event: &Value| moved(event) > Some(then + 50_000_000);
    assert!(attached.event(further).is_some());
    attached.kill();
    // The same without following it.
    run(site.command("limit").args([&name, "1MB/s"]))
        .expect(0)
        .says(&["is now limited to 1.00 MB/s"]);
    run(site.command("limit").arg(&name))
        .expect(1)
        .says(&["name a rate"]);
    // The principal is known to the other daemon, but has no job there.
    let elsewhere = format!("longhaul://{}:{name}", site.two.address);
    run(site.command("cancel").arg(elsewhere))
        .expect(1)
        .says(&["has no job"]);
    run(site.command("cancel").arg(&name))
        .expect(0)
        .says(&["is cancelled"]);
    run(site.command("attach").arg(&name))
        .expect(130)
        .says(&["interrupted"]);
    // The command printed this form of the job's name.
    let there = format!("longhaul://{}:{name}", site.one.address);
    run(site.command("attach").arg(there)).expect(130);
    assert_eq!(site.jobs(&site.one)[0]["exit"], 130);
    let ended = run(site.command("attach").args(["--json", &name])).expect(130);
    assert_eq!(ended.summary()["bwlimit_bytes_per_second"], 1_000_000);
}

// Promise 62.
#[test]
fn a_daemon_connects_only_to_allowed_hosts() {
    let site = Site::new(&["--write"], &["--write", "--allow-dial"]);
    sample(&site.root("one").join("data"));
    // The permission to connect to any host does not include the daemon's own host.
    run(&mut site.copy(&["-r"], "data", ""))
        .expect(4)
        .says(&["neither daemon connects to the other", "--allow-dial"]);
    assert!(jobs_of(&site.one).is_empty() && jobs_of(&site.two).is_empty());
    assert_eq!(std::fs::read_dir(site.root("two")).unwrap().count(), 0);
    // A message that both daemons send is printed once.
    let site = Site::new(&["--write"], &["--write"]);
    let done = run(&mut site.copy(&["-r"], "", "")).expect(4);
    let says = "this daemon connects to no other: start it with --allow-dial";
    assert_eq!(done.errors.matches(says).count(), 1, "{done:?}");
    for daemon in [&site.one, &site.two] {
        assert!(
            done.errors.contains(&daemon.address.to_string()),
            "{done:?}"
        );
    }
}

#[test]
fn the_daemon_that_may_connect_runs_the_copy() {
    let site = Site::new(&[], &["--write", DIAL]);
    let data = site.root("one").join("data");
    sample(&data);
    run(&mut site.copy(&["-r"], "data", "")).expect(0);
    tree::assert_same(&data, &site.root("two").join("data"));
    assert_eq!(site.jobs(&site.two).len(), 1);
    assert!(site.jobs(&site.one).is_empty());
}

// Promise 62.
#[test]
fn rights_and_roots_apply_to_jobs() {
    let site = Site::new(&[DIAL], &["--write"]);
    sample(&site.root("one").join("data"));
    std::os::unix::fs::symlink("/etc", site.root("one").join("out")).unwrap();
    // The first may be read from alone.
    let mut back = site.command("cp");
    std::fs::write(site.root("two").join("file"), "x").unwrap();
    back.arg(site.two.url("file")).arg(site.one.url("new"));
    run(&mut back)
        .expect(4)
        .says(&["has no right to write at /new"]);
    assert!(!site.root("one").join("new").exists());
    for (outside, code) in [("../one/data", 4), ("out/passwd", 6), ("out/", 6)] {
        let copied = run(&mut site.copy(&["-r"], outside, "in/"));
        assert_eq!(copied.code, Some(code), "{outside}: {copied:?}");
    }
    assert!(!site.root("two").join("in").exists());
}

// Promise 62.
#[test]
fn a_daemon_with_a_different_key_is_refused() {
    let site = Site::new(&["--write", DIAL], &["--write", DIAL]);
    sample(&site.root("one").join("data"));
    site.know([site.one.fingerprint.clone(), site.one.fingerprint.clone()]);
    run(&mut site.copy(&["-r"], "data", ""))
        .expect(4)
        .says(&["has changed"]);
    let key = site.one.fingerprint.clone();
    run(&mut site.copy(&["-r", "--fingerprint", &key], "data", ""))
        .expect(1)
        .says(&["two daemons have two", "known_hosts"]);
    // The suggested command works for each daemon.
    let (one, file) = (&site.one, site.user.path().join("known_hosts"));
    std::fs::write(&file, "").unwrap();
    let unknown = run(&mut site.copy(&["-r"], "data", "")).expect(4);
    let line = format!("{} {}", one.address, one.fingerprint);
    assert!(
        unknown.errors.contains(&format!("put the line \"{line}\"")),
        "{unknown:?}"
    );
    assert!(!unknown.errors.contains("--fingerprint"), "{unknown:?}");
    assert_eq!(std::fs::read_dir(site.root("two")).unwrap().count(), 0);
}

#[test]
fn a_manifest_is_sent_to_the_command_that_requested_it() {
    let site = Site::new(&["--write", DIAL], &["--write"]);
    let data = site.root("one").join("data");
    sample(&data);
    let file = site.user.path().join("data.b3");
    let option = format!("--manifest={}", file.display());
    run(&mut site.copy(&["-r", &option], "data", "")).expect(0);
    let manifest = std::fs::read_to_string(&file).unwrap();
    for line in manifest.lines().filter(|line| !line.starts_with('\\')) {
        let (digest, name) = line.split_once("  ").unwrap();
        let bytes = std::fs::read(site.root("two").join(name)).unwrap();
        assert_eq!(digest, blake3::hash(&bytes).to_hex().as_str(), "{name}");
    }
    assert!(manifest.lines().count() > 60, "{manifest}");
    // Names that are no text stand beside it.
    let raw = std::fs::read(site.user.path().join("data.b3.raw")).unwrap();
    assert!(raw.split(|byte| *byte == 0).count() > 1);
    // The manifest is kept if no client was connected at the end of the job.
    let later = site.user.path().join("later.b3");
    let mut attach = site.command("attach");
    attach.arg("--manifest").arg(&later);
    let name = site.jobs(&site.one)[0]["job"].as_str().unwrap().to_owned();
    run(attach.arg(&name)).expect(0);
    assert_eq!(std::fs::read_to_string(&later).unwrap(), manifest);
}

#[test]
fn options_that_two_daemons_do_not_support_are_refused() {
    let site = Site::new(&["--write", DIAL], &["--write"]);
    run(&mut site.copy(&["-r", "--data-security", "clear"], "data", ""))
        .expect(1)
        .says(&["data are encrypted"]);
    assert!(site.jobs(&site.one).is_empty());
    let missing = run(&mut site.copy(&["-r"], "missing", ""));
    missing.expect(6).says(&["missing"]);
}

#[test]
fn allow_dial_refuses_invalid_host_names() {
    for host in ["", "a b", "[::1]"] {
        let mut command = longhaul();
        command.args(["serve", "--root", "/nonexistent"]);
        run(command.arg(format!("--allow-dial={host}")))
            .expect(1)
            .says(&["is no host"]);
    }
    // A host may be called as what allows any.
    let site = Site::new(&["--write", "--allow-dial=any"], &["--write"]);
    let token = std::fs::read_to_string(site.one.token_file.as_ref().unwrap()).unwrap();
    let token = token.split_whitespace().last().unwrap();
    let driven = Driven::new(&site.one, "user", token).unwrap();
    let spec = plain_spec("/a", "longhaul://192.0.2.1/b");
    let told = driven.begin(&site.two.fingerprint, &spec);
    assert!(matches!(told, JobEvent::Failed(_, Some(4))), "{told:?}");
}

#[test]
fn many_simultaneous_control_requests_all_end() {
    let site = Site::new(&["--write", DIAL], &["--write"]);
    let names = ["a", "b", "c", "d", "e", "f"];
    let copies = names.map(|name| {
        std::fs::write(site.root("one").join(name), name).unwrap();
        Running::start(&mut site.copy(&[], name, name))
    });
    let listings = names.map(|_| {
        let mut command = site.command("jobs");
        Running::start(command.arg("--json").arg(site.one.url("")))
    });
    for running in copies.into_iter().chain(listings) {
        running.wait().expect(0);
    }
    for name in names {
        let copied = std::fs::read(site.root("two").join(name)).unwrap();
        assert_eq!(copied, name.as_bytes());
    }
    assert_eq!(site.jobs(&site.one).len(), names.len());
    let own = site.one.state().join("jobs/of-user");
    let left = std::fs::read_dir(own).unwrap().flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["longhaul"]);
}

// Promise 61.
#[test]
fn a_job_belongs_to_one_principal() {
    let site = Site::new(&[], &["--write"]);
    let shared = Shared::new();
    let mut copy = shared.command(0, &site, "cp");
    copy.arg("--detach").arg(shared.daemon.url("zero:1TB"));
    let started = run(copy.arg(site.two.url("null:"))).expect(0);
    let name = String::from_utf8(started.output).unwrap().trim().to_owned();
    assert!(shared.jobs(1, &site).is_empty());
    let job = format!("longhaul://{}:{name}", shared.daemon.address);
    for subcommand in ["attach", "cancel"] {
        let mut command = shared.command(1, &site, subcommand);
        run(command.arg(&job)).expect(1).says(&["has no job"]);
    }
    let listed = shared.jobs(0, &site);
    assert_eq!((listed.len(), &listed[0]["state"]), (1, &"running".into()));
    let mut cancel = shared.command(0, &site, "cancel");
    run(cancel.arg(&job)).expect(0).says(&["is cancelled"]);
}

// Promise 62.
#[test]
fn one_principal_does_not_use_the_jobs_of_another() {
    let site = Site::new(&[], &["--write"]);
    let shared = Shared::new();
    let idle: Vec<Driven> = (0..12).map(|_| shared.drive(0).unwrap()).collect();
    match shared.drive(0) {
        Err(OpenError::Refused(refused)) => assert_eq!(refused.refusal, Refusal::Busy),
        other => panic!("{:?}", other.map(|_| ())),
    }
    // He finds what he has there still, and the other one is not concerned.
    assert!(shared.jobs(0, &site).is_empty());
    shared.drive(1).unwrap();
    drop(idle);
}

#[test]
fn a_forbidden_job_is_refused_without_a_previous_check() {
    let site = Site::new(&[], &[]);
    let mut shared = Shared::new();
    let forged = "\nlonghaul: forged\x1b[2J";
    let to = "longhaul://127.0.0.1/b";
    for (spec, code) in [
        (plain_spec("/a", "longhaul://192.0.2.1/b"), 4),
        (plain_spec("/a", "host:b"), 1),
        (spec("/a", to, ("token_file", "/x".into())), 1),
        ("serve --root /".to_owned(), 1),
        (spec("/a", to, (forged, true.into())), 1),
    ] {
        let driven = shared.drive(0).unwrap();
        let told = driven.begin(&site.two.fingerprint, &spec);
        let refused = matches!(&told, JobEvent::Failed(_, Some(given)) if *given == code);
        assert!(refused, "{spec}: {told:?}");
    }
    let log = shared.daemon.kill().errors;
    assert!(log.contains("alice: a job was refused"), "{log}");
    assert!(
        !log.contains("\nlonghaul: forged") && !log.contains('\x1b'),
        "{log}"
    );
}

#[test]
fn the_other_daemon_runs_the_copy_if_one_is_busy() {
    let site = Site::new(&[], &["--write", DIAL]);
    let shared = Shared::new();
    let file = shared.place.path().join("root/file");
    std::fs::write(&file, "x").unwrap();
    let mut copy = shared.command(0, &site, "cp");
    copy.arg("--detach").arg(shared.daemon.url("zero:1TB"));
    let started = run(copy.arg(site.two.url("null:"))).expect(0);
    let name = String::from_utf8(started.output).unwrap().trim().to_owned();
    // He has all of his places there.
    let idle: Vec<Driven> = (0..11).map(|_| shared.drive(0).unwrap()).collect();
    let attached = [(); 4].map(|()| {
        let who = (PRINCIPALS[0], shared.tokens[0].as_str());
        control_request(&shared.daemon, who, Task::Attach(name.clone())).unwrap()
    });
    let mut copy = shared.command(0, &site, "cp");
    copy.arg(shared.daemon.url("file"))
        .arg(site.two.url("file"));
    run(&mut copy).expect(0);
    assert!(site.root("two").join("file").exists());
    assert_eq!(site.jobs(&site.two).len(), 1);
    drop((idle, attached));
}
