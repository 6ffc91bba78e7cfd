//! Copies between two daemons that cannot connect to each other: the data go through the user's
//! host.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use crate::support::process::{Finished, Running, run};
use crate::support::proxy::Proxy;
use crate::support::site::{
    DIAL, Driven, PRINCIPALS, Shared, Site, control_request, plain_spec, sample, spec,
};
use crate::support::{assert_no_leftovers, tree};
use longhaul_engine::session::opening::OpenError;
use longhaul_proto::handshake::{Refusal, Task};
use longhaul_transfer::between_hosts::job_protocol::{JobEvent, Reach};
use rustix::process::Signal;
use tempfile::TempDir;

/// Two daemons that may not connect to each other.
fn closed() -> Site {
    Site::new(&["--write"], &["--write"])
}

fn through(site: &Site, arguments: &[&str], from: &str, to: &str) -> Command {
    let arguments = [&["--through-local"], arguments].concat();
    site.copy(&arguments, from, to)
}

#[test]
fn a_tree_is_copied_between_daemons_through_this_host_in_both_directions() {
    let site = closed();
    let data = site.root("one").join("data");
    sample(&data);
    let refused = run(&mut site.copy(&["-r"], "data", "there")).expect(4);
    refused.says(&["neither daemon connects", "--through-local"]);
    let done = run(&mut through(&site, &["-r", "--json"], "data", "there")).expect(0);
    let summary = done.summary();
    assert_eq!(summary["complete"], true);
    let [one, two] = [&site.one, &site.two].map(|daemon| format!("longhaul://{}", daemon.address));
    let way = serde_json::json!({ "from": one, "to": two, "dialer": null, "dialled": null });
    assert_eq!(
        (&summary["route"], &summary["between"]),
        (&"through".into(), &way)
    );
    let there = site.root("two").join("there/data");
    tree::assert_same(&data, &there);
    assert_no_leftovers(&site.root("two"));
    let verify = || {
        let mut command = site.command("verify");
        command.arg("--through-local").arg(site.one.url("data"));
        run(command.arg(site.two.url("there/data")))
    };
    verify().expect(0).says(&["the same: "]);
    std::fs::write(there.join("one more"), "x").unwrap();
    verify().expect(5).says(&["one more"]);
    let mut back = site.command("cp");
    back.args(["--through-local", "-r"])
        .arg(site.two.url("there/data/hard"));
    run(back.arg(site.one.url("back"))).expect(0).says(&[
        &format!("data flowed {two} -> {one} through the user's host"),
        "within TLS from the one to the other",
    ]);
    tree::assert_same(&there.join("hard"), &site.root("one").join("back/hard"));
    // The source's runs it.
    let lists = [&site.one, &site.two].map(|daemon| site.jobs(daemon).len());
    assert_eq!(lists, [3, 1]);
}

#[test]
fn options_of_a_copy_apply_through_this_host_too() {
    let site = closed();
    std::fs::write(site.root("one").join("file"), "here").unwrap();
    let file = site.user.path().join("file.b3");
    let option = format!("--manifest={}", file.display());
    run(&mut through(&site, &[&option], "file", "new")).expect(0);
    let copied = std::fs::read(site.root("two").join("new")).unwrap();
    assert_eq!(copied, b"here");
    let digest = blake3::hash(b"here").to_hex();
    let manifest = std::fs::read_to_string(&file).unwrap();
    assert!(manifest.starts_with(digest.as_str()), "{manifest}");
    let slow = ["--bwlimit", "1MB/s", "--streams", "7"];
    run(&mut through(&site, &slow, "zero:1500kB", "null:"))
        .expect(0)
        .says(&["--bwlimit 1.00 MB/s"]);
    run(&mut through(&site, &["-r"], "missing", ""))
        .expect(6)
        .says(&["missing"]);
    let clear = ["-r", "--data-security", "clear"];
    run(&mut through(&site, &clear, "file", ""))
        .expect(1)
        .says(&["are encrypted"]);
    // Within one daemon as between two.
    let mut own = site.command("cp");
    own.arg("--through-local").arg(site.one.url("file"));
    run(own.arg(site.one.url("twin"))).expect(0);
    let twin = std::fs::read(site.root("one").join("twin")).unwrap();
    assert_eq!(twin, b"here");
}

#[test]
fn rights_and_roots_apply_through_this_host() {
    let site = Site::new(&[], &["--write"]);
    std::os::unix::fs::symlink("/etc", site.root("one").join("out")).unwrap();
    std::fs::write(site.root("two").join("file"), "x").unwrap();
    let mut back = site.command("cp");
    back.arg("--through-local").arg(site.two.url("file"));
    run(back.arg(site.one.url("new")))
        .expect(4)
        .says(&["has no right to write at /new"]);
    assert!(!site.root("one").join("new").exists());
    for (outside, code) in [("../one/data", 4), ("out/passwd", 6)] {
        let copied = run(&mut through(&site, &["-r"], outside, "in/"));
        assert_eq!(copied.code, Some(code), "{outside}: {copied:?}");
    }
    assert!(!site.root("two").join("in").exists());
}

/// A copy that is long enough to be ended.
fn long(site: &Site) -> Command {
    let arguments = ["-r", "--json", "--checkpoint", "1MiB", "--timeout", "20s"];
    through(site, &arguments, "data", "")
}

fn with_long_data() -> Site {
    let site = closed();
    tree::mixed_tree(&site.root("one").join("data"), 100, 96 << 20);
    site
}

/// Starts a copy with a rate limit, so that it takes a minute.
fn under_way(site: &Site) -> Running {
    let running = Running::start(long(site).args(["--bwlimit", "2MB/s"]));
    assert!(running.event(|event| event["event"] == "durable").is_some());
    running
}

fn goes_on(site: &Site) {
    let (data, there) = (site.root("one").join("data"), site.root("two").join("data"));
    tree::assert_nothing_half_written(&data, &there);
    let again = run(&mut long(site)).expect(0).summary();
    let had = |name: &str| again[name].as_u64().unwrap();
    assert!(had("resumed_bytes") + had("skipped_bytes") > 0, "{again}");
    tree::assert_same(&data, &there);
    assert_no_leftovers(&site.root("two"));
}

#[test]
fn an_interrupted_copy_resumes_with_the_same_command() {
    let site = with_long_data();
    let running = under_way(&site);
    running.signal(Signal::INT);
    running.wait().expect(130);
    assert_eq!(site.jobs(&site.one)[0]["exit"], 130);
    goes_on(&site);
}

#[test]
fn a_copy_through_this_host_ends_with_its_command_and_resumes() {
    let site = with_long_data();
    let running = under_way(&site);
    running.kill();
    let name = site.jobs(&site.one)[0]["job"].as_str().unwrap().to_owned();
    let mut attach = site.command("attach");
    let there = format!("longhaul://{}:{name}", site.one.address);
    run(attach.arg(there))
        .expect(3)
        .says(&["the transfer broke off"]);
    goes_on(&site);
}

/// The user reaches the second daemon at another address.
fn second_at(site: &Site, address: SocketAddr) {
    for name in ["tokens", "known_hosts"] {
        let file = site.user.path().join(name);
        let text = std::fs::read_to_string(&file).unwrap();
        let own = site.two.address.to_string();
        let further: Vec<String> = text
            .lines()
            .filter(|line| line.starts_with(&own))
            .map(|line| format!("{}\n", line.replace(&own, &address.to_string())))
            .collect();
        assert_eq!(further.len(), 1, "{text}");
        std::fs::write(&file, text + &further.concat()).unwrap();
    }
}

fn copy_by(site: &Site, proxy: &Proxy) -> Finished {
    let mut copy = site.command("cp");
    copy.args(["--through-local", "-r", "--json", "--streams", "6"])
        .arg(site.one.url("data"));
    run(copy.arg(crate::support::daemon::url(proxy.address, "")))
}

#[test]
fn connections_that_are_lost_are_replaced() {
    let site = closed();
    let data = site.root("one").join("data");
    tree::mixed_tree(&data, 60, 24 << 20);
    let proxy = Proxy::to(site.two.address);
    second_at(&site, proxy.address);
    let (handle, again) = (proxy.handle(), proxy.handle());
    proxy.after(4 << 20, move || {
        handle.after(8 << 20, move || again.cut());
        handle.cut();
    });
    copy_by(&site, &proxy).expect(0);
    assert!(!proxy.disarm());
    assert!(
        proxy.take_passed() > 12 << 20,
        "the data took another route"
    );
    tree::assert_same(&data, &site.root("two").join("data"));
    assert_no_leftovers(&site.root("two"));
}

fn refusal(asked: Result<UnixStream, OpenError>) -> Refusal {
    match asked {
        Err(OpenError::Refused(refused)) => refused.refusal,
        other => panic!("{:?}", other.map(|_| ())),
    }
}

#[test]
fn a_channel_needs_a_running_job_of_the_same_principal() {
    let shared = Shared::new();
    let who = |principal: usize| (PRINCIPALS[principal], shared.tokens[principal].as_str());
    let channel = |principal: usize, name: &str| {
        control_request(&shared.daemon, who(principal), Task::Channel(name.into()))
    };
    let (alice, token) = who(0);
    let (driven, name) = Driven::through(&shared.daemon, alice, token).unwrap();
    let mut own = channel(0, &name).unwrap();
    assert_eq!(refusal(channel(1, &name)), Refusal::NoSession);
    let forged = (alice, shared.tokens[1].as_str());
    let stranger = control_request(&shared.daemon, forged, Task::Channel(name.clone()));
    assert_eq!(refusal(stranger), Refusal::Credential);
    let unknown = "0".repeat(name.len());
    assert_eq!(refusal(channel(0, &unknown)), Refusal::NoSession);
    let elsewhere = format!("x/../../of-alice/channels-{name}");
    assert_eq!(refusal(channel(1, &elsewhere)), Refusal::Malformed);
    // Jobs that connect, and requests that only ask, have no directory for channels.
    let _connects = shared.drive(0).unwrap();
    let own_directory = shared.daemon.state().join("jobs/of-alice");
    let places = || {
        let found = std::fs::read_dir(&own_directory).unwrap().flatten();
        let names = found.map(|entry| entry.file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("channels-")).count()
    };
    assert_eq!(places(), 1);
    drop(driven);
    // Its end is that of what waited there, and of its name.
    assert_eq!(own.read(&mut [0]).unwrap(), 0);
    assert_eq!(refusal(channel(0, &name)), Refusal::NoSession);
}

#[test]
fn the_channels_of_one_principal_do_not_use_those_of_others() {
    let shared = Shared::new();
    let jobs = [0, 1].map(|principal| {
        let token = &shared.tokens[principal];
        Driven::through(&shared.daemon, PRINCIPALS[principal], token).unwrap()
    });
    let channel = |principal: usize| {
        let who = (PRINCIPALS[principal], shared.tokens[principal].as_str());
        control_request(
            &shared.daemon,
            who,
            Task::Channel(jobs[principal].1.clone()),
        )
    };
    let held: Vec<UnixStream> = (0..128).map(|_| channel(0).unwrap()).collect();
    assert_eq!(refusal(channel(0)), Refusal::Busy);
    channel(1).unwrap();
    drop(held);
}

#[test]
fn a_job_with_channels_makes_no_connection() {
    let site = closed();
    let token = std::fs::read_to_string(site.one.token_file.as_ref().unwrap()).unwrap();
    let token = token.split_whitespace().last().unwrap();
    let other = format!("longhaul://{}/b", site.two.address);
    let other = other.as_str();
    let program = serde_json::json!({ "ssh": "sh -c x" });
    for (spec, reach, code) in [
        (plain_spec("/a", other), Reach::Daemon, 4),
        (plain_spec("/a", other), Reach::Through, 1),
        (plain_spec("/a", other), Reach::Direct, 1),
        (plain_spec("/a", "host:b"), Reach::Sealed, 1),
        (plain_spec("/a", "/b"), Reach::Sealed, 1),
        (spec("/a", other, ("ssh", program)), Reach::Sealed, 1),
    ] {
        let (mut driven, _) = Driven::through(&site.one, "user", token).unwrap();
        driven.ask(&site.two.fingerprint, &spec, reach);
        let told = driven.answer();
        let refused = matches!(&told, JobEvent::Failed(_, Some(given)) if *given == code);
        assert!(refused, "{spec} {reach:?}: {told:?}");
    }
    // This also applies if the daemon may connect.
    let site = Site::new(&["--write", DIAL], &["--write"]);
    std::fs::write(site.root("one").join("file"), "x").unwrap();
    let done = run(&mut through(&site, &["--json"], "file", "")).expect(0);
    assert_eq!(done.summary()["route"], "through");
}

#[test]
fn a_job_waits_for_channels_as_long_as_for_connections() {
    let site = closed();
    let token = std::fs::read_to_string(site.one.token_file.as_ref().unwrap()).unwrap();
    let token = token.split_whitespace().last().unwrap();
    let other = format!("longhaul://{}/b", site.two.address);
    let spec = spec("zero:1kB", &other, ("timeout", 1000.into()));
    let (mut driven, name) = Driven::through(&site.one, "user", token).unwrap();
    driven.ask(&site.two.fingerprint, &spec, Reach::Sealed);
    assert_eq!(driven.end(), JobEvent::Ended(3));
    // A channel whose client has closed it does not lengthen the wait.
    let (mut driven, again) = Driven::through(&site.one, "user", token).unwrap();
    assert_ne!(again, name);
    let astray = control_request(&site.one, ("user", token), Task::Channel(again)).unwrap();
    drop(astray);
    driven.ask(&site.two.fingerprint, &spec, Reach::Sealed);
    assert_eq!(driven.end(), JobEvent::Ended(3));
}

#[test]
fn the_destination_runs_the_job_if_the_source_is_busy() {
    let site = closed();
    std::fs::write(site.root("one").join("file"), "x").unwrap();
    let token = std::fs::read_to_string(site.one.token_file.as_ref().unwrap()).unwrap();
    let token = token.split_whitespace().last().unwrap();
    let idle = [(); 12].map(|()| Driven::through(&site.one, "user", token).unwrap());
    run(&mut through(&site, &[], "file", "")).expect(0);
    let copied = std::fs::read(site.root("two").join("file")).unwrap();
    assert_eq!(copied, b"x");
    assert_eq!(site.jobs(&site.two).len(), 1);
    drop(idle);
}

/// A substitute for ssh. It starts the remote end on this host, and records all bytes in both
/// directions.
struct Tapped(TempDir);

impl Tapped {
    fn new() -> Tapped {
        let place = tempfile::tempdir().unwrap();
        let at = place.path().display();
        let script = format!(
            "case \" $* \" in *\" -G \"*) exit 1;; esac\nfor command; do :; done\n\
             export XDG_STATE_HOME={at}/state\n\
             tee {at}/$$.there | sh -c \"$command\" | tee {at}/$$.here\n"
        );
        std::fs::write(place.path().join("ssh"), script).unwrap();
        Tapped(place)
    }

    /// Copies a file there to another place; what went over ssh.
    fn copy(&self, site: &Site, file: &Path, to: &OsStr) -> Vec<u8> {
        let mut copy = site.command("cp");
        copy.args(["--through-local", "--compress=off"])
            .arg(format!("--ssh=sh {}", self.0.path().join("ssh").display()))
            .args(["--remote-longhaul", env!("CARGO_BIN_EXE_longhaul")])
            .arg(format!("there:{}", file.display()))
            .arg(to);
        run(&mut copy).expect(0);
        let files = std::fs::read_dir(self.0.path()).unwrap().flatten();
        let records = files.filter(|file| {
            let name = file.file_name().into_string().unwrap();
            name.ends_with(".there") || name.ends_with(".here")
        });
        records
            .flat_map(|file| {
                let record = std::fs::read(file.path()).unwrap();
                std::fs::remove_file(file.path()).unwrap();
                record
            })
            .collect()
    }
}

#[test]
fn data_to_a_daemon_through_this_host_are_encrypted() {
    let (site, ssh) = (closed(), Tapped::new());
    let file = ssh.0.path().join("file");
    let line = "nobody on the way reads this\n";
    let text = line.repeat((4 << 20) / line.len());
    std::fs::write(&file, &text).unwrap();
    let is_read = |record: &[u8]| {
        assert!(record.len() > text.len() / 2, "the data took another route");
        let line = line.as_bytes();
        record.windows(line.len()).any(|bytes| bytes == line)
    };
    let record = ssh.copy(&site, &file, &site.two.url("copy"));
    assert!(!is_read(&record));
    let copied = std::fs::read_to_string(site.root("two").join("copy"));
    assert!(copied.unwrap() == text);
    // Over SSH from end to end it is ssh that keeps it from others.
    let mut other = OsString::from("other:");
    other.push(ssh.0.path().join("copy"));
    assert!(is_read(&ssh.copy(&site, &file, &other)));
}
