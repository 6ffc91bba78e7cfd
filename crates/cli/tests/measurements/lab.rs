//! Labs from the command line: arbitrary commands, and copies over a wide-area path. Labs are
//! killed at random moments, and the next start removes all leftovers.
//!
//! The tests need root and `/dev/net/tun`, and are skipped without them. `LONGHAUL_LAB_KILLS` sets
//! the number of kills; `LONGHAUL_SEED` repeats a run.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::process::{Finished, Running, binary_in, longhaul_with, run};
use crate::support::random::{Random, random_from_environment};
use crate::support::tree;
use rustix::process::{Signal, kill_process_group};
use serde_json::Value;

fn labs_work() -> bool {
    let works = crate::support::is_root() && Path::new("/dev/net/tun").exists();
    if !works {
        longhaul_testing::skip("labs need root and /dev/net/tun");
    }
    works
}

/// `longhaul lab run` with these options and a shell command.
fn lab_run(options: &[&str], command: &str) -> Command {
    let mut lab = longhaul_with(&["lab", "run", "--quiet"]);
    lab.args(options).args(["--", "sh", "-c", command]);
    lab
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap().trim()
}

#[test]
fn a_report_of_a_lab_has_whole_lines() {
    if !labs_work() {
        return;
    }
    let path = [
        "lab", "run", "--rtt", "1ms", "--rate", "1gbit", "--", "true",
    ];
    let errors = run(&mut longhaul_with(&path)).expect(0).errors;
    let begins = |text: &str| errors.lines().any(|line| line.starts_with(text));
    assert!(
        begins("longhaul: path rtt=1ms,rate=1gbit,queue="),
        "{errors}"
    );
    assert!(begins("longhaul: a to b: "), "{errors}");
    assert!(begins("longhaul: emulator: "), "{errors}");
    assert!(!errors.contains('\u{fffd}'), "{errors}");
}

#[test]
fn a_command_runs_on_its_host_and_sets_the_exit_code() {
    if !labs_work() {
        return;
    }
    let show = "echo $LONGHAUL_LAB_HOST $LONGHAUL_LAB_A $LONGHAUL_LAB_B2 $LONGHAUL_LAB_PATH; \
                cat /proc/sys/net/ipv4/tcp_congestion_control; exit 7";
    let path = [
        "--hosts",
        "1x2",
        "--rtt",
        "20ms",
        "--on",
        "b2",
        "--congestion",
        "reno",
    ];
    let finished = run(&mut lab_run(&path, show)).expect(7);
    let expected = "b2 198.18.10.1 198.18.20.2 rtt=20ms\nreno";
    assert_eq!(text(&finished.output), expected);
    run(&mut lab_run(&["--rtt", "x"], "true"))
        .expect(1)
        .says(&["rtt"]);
    run(&mut lab_run(&["--on", "c1"], "true"))
        .expect(1)
        .says(&["no host"]);
    run(&mut lab_run(&["--server", "exit 3"], "true"))
        .expect(6)
        .says(&["before it listened"]);
}

#[test]
fn a_cable_connects_two_hosts_and_has_no_settings() {
    if !labs_work() {
        return;
    }
    let show = "echo $LONGHAUL_LAB_PATH; cat /proc/sys/net/ipv4/tcp_congestion_control";
    let finished = run(&mut lab_run(&["--veth"], show)).expect(0);
    assert_eq!(text(&finished.output), "veth\ncubic");
    for settings in [["--rtt", "1ms"], ["--hosts", "1x2"], ["--nat", "a"]] {
        run(&mut lab_run(&[&["--veth"], &settings[..]].concat(), "true"))
            .expect(1)
            .says(&["--veth", "leave out"]);
    }
}

#[test]
fn signals_reach_the_command_and_no_process_outlives_it() {
    if !labs_work() {
        return;
    }
    let started = Running::start(&mut lab_run(&[], "sleep 300 & echo begun; exec sleep 300"));
    assert_eq!(started.line().as_deref(), Some("begun"));
    started.signal(Signal::TERM);
    // The exit code is 128 and SIGTERM. The reader of the output ends only after the last process
    // that has it, which includes the sleeper in the background.
    started.wait().expect(143);
}

/// Returns the leftovers of labs: entries in the state directory.
fn labs_left() -> Vec<String> {
    let state = Path::new("/run/longhaul-lab");
    let entries = std::fs::read_dir(state).map(|entries| {
        let entries = entries.flatten().filter(|entry| entry.path().is_dir());
        entries
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect()
    });
    entries.unwrap_or_default()
}

/// Returns the congestion controls that this machine allows to all users.
fn allowed_congestion() -> BTreeSet<String> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control");
    let words = text.unwrap();
    words.split_whitespace().map(ToOwned::to_owned).collect()
}

/// Processes that carry a mark in their environment.
fn processes_with(mark: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let marked = processes.filter(|process| {
        let environment = std::fs::read(process.path().join("environ")).unwrap_or_default();
        environment
            .windows(mark.len())
            .any(|window| window == mark.as_bytes())
    });
    marked.count()
}

#[test]
fn the_next_start_cleans_up_after_a_killed_lab() {
    if !labs_work() {
        return;
    }
    let mut random = random_from_environment();
    let kills = std::env::var("LONGHAUL_LAB_KILLS").map_or(4, |kills| kills.parse().unwrap());
    let before = allowed_congestion();
    let behind = tempfile::tempdir().unwrap();
    let device = format!("{}:rate=100MBps", behind.path().display());
    let mut storages = 0;
    for turn in 0..kills {
        let name = format!("kill-{}-{turn}", std::process::id());
        let mark = format!("LONGHAUL_TEST_MARK={name}");
        let mut command = longhaul_with(&["lab", "run", "--rtt", "1ms", "--name", &name]);
        command.env("LONGHAUL_TEST_MARK", &name);
        // Some have storage, few of them daemons of a file system.
        let storage = match random.below(5) {
            0 | 1 => Some(device.as_str()),
            2 if kills > 20 && gluster_works() => Some("gluster:nodes=2,brick-rate=50MBps"),
            _ => None,
        };
        command.args(
            storage
                .into_iter()
                .flat_map(|storage| ["--storage", storage]),
        );
        storages += usize::from(storage.is_some());
        command.args([
            "--server",
            "sleep 300 & exec sleep 300",
            "--",
            "sleep",
            "300",
        ]);
        let victim = Running::start(&mut command);
        // tidy: reason: the random pause covers all states, from before the start to the time when
        // all processes run. The result does not depend on its length.
        std::thread::sleep(Duration::from_micros(random.below(120_000)));
        let group = victim.pid();
        if random.below(2) == 0 {
            // The outer process alone; what is inside must notice.
            rustix::process::kill_process(group, Signal::KILL).unwrap();
            victim.wait();
        } else {
            victim.kill();
        }
        run(&mut lab_run(&["--name", &format!("{name}-next")], "true")).expect(0);
        let left: Vec<String> = labs_left()
            .into_iter()
            .filter(|lab| lab.starts_with(&name))
            .collect();
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(processes_with(&mark), 0);
    }
    // A lab that just starts beside this allows more for a moment.
    longhaul_testing::await_that(|| allowed_congestion().is_subset(&before));
    println!("{kills} labs killed, {storages} of them with storage");
}

#[test]
fn simultaneous_labs_do_not_interfere() {
    if !labs_work() {
        return;
    }
    let names = ["one", "two"].map(|name| format!("{name}-{}", std::process::id()));
    for (name, rtt) in names.iter().zip(["1ms", "30ms"]) {
        let up = ["lab", "up", name.as_str(), "--rtt", rtt, "--rate", "1gbit"];
        run(&mut longhaul_with(&up)).expect(0).says(&[]);
    }
    let up_again = ["lab", "up", names[0].as_str()];
    run(&mut longhaul_with(&up_again))
        .expect(6)
        .says(&["is running"]);
    // Both labs have the same addresses, and in each lab an address leads to its own host.
    for name in &names {
        let mut exec = longhaul_with(&["lab", "exec", name, "b", "--", "sh", "-c"]);
        exec.arg("echo $LONGHAUL_LAB_HOST $LONGHAUL_LAB_PATH; exit 9");
        let finished = run(&mut exec).expect(9);
        let rtt = if name == &names[0] {
            "rtt=1ms"
        } else {
            "rtt=30ms"
        };
        assert!(text(&finished.output).starts_with(&format!("b1 {rtt},")));
    }
    run(&mut longhaul_with(&[
        "lab", "set", &names[0], "loss=0.5", "rtt=2ms",
    ]))
    .expect(0);
    let status = |name: &str| {
        let finished = run(&mut longhaul_with(&["lab", "status", name, "--json"])).expect(0);
        serde_json::from_slice::<Value>(&finished.output).unwrap()
    };
    assert!(
        status(&names[0])["path"]
            .as_str()
            .unwrap()
            .contains("loss=5e-1")
    );
    assert!(!status(&names[1])["path"].as_str().unwrap().contains("loss"));
    run(&mut longhaul_with(&["lab", "set", &names[0], "rtt=-1"])).expect(1);
    for name in &names {
        run(&mut longhaul_with(&["lab", "down", name])).expect(0);
        run(&mut longhaul_with(&["lab", "down", name])).expect(1);
        assert!(!labs_left().contains(name));
    }
}

/// Returns `longhaul cp --lab` for a tree.
fn copy_across(path: &str, options: &[&str], from: &Path, to: &Path) -> Command {
    let mut copy = longhaul_with(&["cp", "-r", "--lab", path]);
    copy.args(options).arg(from).arg(to);
    copy
}

#[test]
fn a_tree_is_copied_over_a_long_lossy_path() {
    if !labs_work() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    tree::hard_tree(&from);
    let path = "rtt=60ms,rate=1gbit,loss=1e-3,jitter=2ms,reorder=1e-3:3ms,duplicate=1e-4";
    let finished = run(&mut copy_across(path, &[], &from, &to)).expect(0);
    assert!(finished.errors.contains(" lost"), "{}", finished.errors);
    tree::assert_same(&from, &to.join("from"));
    crate::support::assert_no_leftovers(directory.path());
}

/// TCP does not detect this damage. TLS ends the stream; in clear, the checksum of the block
/// differs. In both cases the data are sent again and arrive intact.
#[test]
fn damage_that_tcp_does_not_detect_is_caught() {
    if !labs_work() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let from = directory.path().join("from");
    let bytes = Random::new(3).bytes(12 << 20);
    tree::write(&from.join("data"), &bytes);
    for (name, security) in [("tls", "tls"), ("clear", "clear")] {
        let to = directory.path().join(name);
        let options = ["--data-security", security];
        let path = "rtt=2ms,rate=1gbit,corrupt-unseen=2e-4";
        let finished = run(&mut copy_across(path, &options, &from, &to)).expect(0);
        assert!(
            finished.errors.contains("corrupted unseen"),
            "{}",
            finished.errors
        );
        assert!(std::fs::read(to.join("from/data")).unwrap() == bytes);
    }
}

/// Only payload can be damaged without detection. Packets without it, such as pings, do not count
/// as damaged.
#[test]
fn damage_is_counted_only_for_packets_with_payload() {
    if !labs_work() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("report").display().to_string();
    let options = ["--corrupt-unseen", "100%", "--report", &report];
    run(&mut lab_run(&options, "ping -q -c 1 -W 5 lab-b")).expect(0);
    let report: Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    let way = &report["directions"][0];
    assert!(way["segments"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(way["corrupted_unseen"], 0, "{report}");
}

/// A signal to a process group reaches a lab's process twice: directly, and from the process
/// outside, which forwards it.
#[test]
fn an_interrupt_is_reported_and_the_same_command_resumes() {
    if !labs_work() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    tree::write(&from.join("data"), &Random::new(5).bytes(4 << 20));
    let copy = Running::start(&mut copy_across("rate=10mbit", &["--json"], &from, &to));
    copy.event(|event| event["event"] == "progress").unwrap();
    kill_process_group(copy.pid(), Signal::INT).unwrap();
    let interrupted = copy.wait().expect(130);
    interrupted.says(&["interrupted", "the same command"]);
    run(&mut copy_across("rate=1gbit", &[], &from, &to)).expect(0);
    tree::assert_same(&from, &to.join("from"));
}

/// In a network namespace even root may not change the congestion controls that the machine allows
/// to its namespaces.
#[test]
fn a_lab_works_within_a_network_namespace() {
    if !labs_work() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    tree::write(&from.join("data"), b"data");
    let copy = copy_across("rtt=1ms", &[], &from, &to);
    let mut within = Command::new("unshare");
    within
        .arg("--net")
        .arg(copy.get_program())
        .args(copy.get_args());
    within.env("LONGHAUL_CONFIG_DIR", "/nonexistent/longhaul");
    run(&mut within).expect(0).says(&["hosts use"]);
    tree::assert_same(&from, &to.join("from"));
}

/// Data that were durable before the cut are not sent again.
#[test]
fn a_copy_continues_after_a_cut() {
    if !labs_work() {
        return;
    }
    const FILES: u64 = 24;
    const EACH: u64 = 256 << 10;
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    let mut random = Random::new(4);
    for file in 0..FILES {
        tree::write(&from.join(file.to_string()), &random.bytes(EACH as usize));
    }
    // The path is slow until the cut, so that the cut comes in the middle of the copy on every
    // machine.
    let path = "rtt=20ms,rate=4mbit";
    let copy = Running::start(&mut copy_across(path, &["--json"], &from, &to));
    let mut durable = 0;
    while durable < 4 * EACH {
        let file = |event: &Value| event["event"] == "committed" && event["file"] == true;
        durable += copy.event(file).unwrap()["size"].as_u64().unwrap();
    }
    let name = format!("cp-{}", copy.pid().as_raw_nonzero());
    let set = |what: &str| run(&mut longhaul_with(&["lab", "set", &name, what])).expect(0);
    set("cut=5s");
    // The change applies while data are in flight.
    loop {
        let status = run(&mut longhaul_with(&["lab", "status", &name, "--json"])).expect(0);
        let report: Value = serde_json::from_slice(&status.output).unwrap();
        if report["directions"][0]["cut"].as_u64().unwrap() > 0 {
            break;
        }
    }
    set("rate=1gbit");
    let finished = copy.wait().expect(0);
    tree::assert_same(&from, &to.join("from"));
    let summary = finished.summary();
    let bytes = |field: &str| summary[field].as_u64().unwrap();
    let again = bytes("moved_again_bytes");
    assert_eq!(bytes("moved_bytes") - again, FILES * EACH, "{summary}");
    assert!(again <= FILES * EACH - durable, "{durable}: {summary}");
}

#[test]
fn a_copy_survives_bursts_of_losses() {
    if !labs_work() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    tree::write(&from.join("data"), &Random::new(7).bytes(12 << 20));
    for congestion in ["cubic", "reno", "bbr"] {
        let options = ["--congestion", congestion];
        let path = "rtt=20ms,rate=1gbit,loss=2e-3/8";
        let finished = run(&mut copy_across(path, &options, &from, &to)).expect(0);
        assert!(finished.errors.contains(" lost"), "{}", finished.errors);
        tree::assert_same(&from, &to.join("from"));
        std::fs::remove_dir_all(&to).unwrap();
    }
}

/// Runs a shell command next to a daemon in a lab. `$COPY OPTIONS SOURCE $TO` copies to the
/// daemon's `null:`.
fn beside_daemon(lab: &[&str], command: &str) -> Finished {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().display().to_string();
    let binary = env!("CARGO_BIN_EXE_longhaul");
    let root = directory.path().join("root").display().to_string();
    std::fs::create_dir(&root).unwrap();
    let state = format!("{state}/state");
    let server =
        format!("{binary} serve --root {root} --state {state} --listen $LONGHAUL_LAB_B:4960");
    let mut lab = lab_run(&[lab, &["--server", server.as_str()]].concat(), command);
    let copy = format!("{binary} cp --json --accept-new --token-file {state}/tokens");
    lab.env("COPY", copy)
        .env("TO", "longhaul://198.18.20.1/null:");
    lab.env("LONGHAUL_CONFIG_DIR", &state);
    run(&mut lab)
}

/// Runs one copy to the daemon, with these options and this source.
fn copy_to_daemon(lab: &[&str], copy: &str) -> Finished {
    beside_daemon(lab, &format!("$COPY {copy} $TO"))
}

/// If a kernel's limit bounds the windows, the summary names it, provided that one of many spans
/// had no queue. Other processes use this host too.
#[test]
fn a_limiting_kernel_setting_is_named() {
    if !labs_work() {
        return;
    }
    let path = ["--rtt", "60ms", "--rate", "200mbit"];
    for (host, limit) in [("a", "net.ipv4.tcp_wmem"), ("b", "net.ipv4.tcp_rmem")] {
        let sysctl = format!("{host}:{limit}=4096 16384 131072");
        let lab = [&path[..], &["--sysctl", &sysctl]].concat();
        let summary = copy_to_daemon(&lab, "--streams 1 zero:12MB")
            .expect(0)
            .summary();
        let advice = summary["advice"].as_str().unwrap_or_default();
        assert!(advice.contains(limit), "{summary}");
    }
}

/// Streams use Reno in slow start until the path is full, and then their own congestion control.
/// The test reads the output of `ss` repeatedly.
#[test]
fn streams_use_reno_in_slow_start_and_then_their_own_congestion_control() {
    if !labs_work() {
        return;
    }
    if run(Command::new("ss").arg("-V")).code != Some(0) {
        longhaul_testing::skip("ss is missing (Debian: iproute2)");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let looks = directory.path().join("looks").display().to_string();
    // The slow start takes at least four round trips, so some samples of `ss` fall into it at any
    // speed of the host.
    let path = ["--rtt", "300ms", "--rate", "200mbit"];
    let looking = format!(
        "$COPY zero:60MB $TO & while kill -0 $!; do \
         ss -Htin state established dport 4960; echo look; done >{looks}; wait $!"
    );
    beside_daemon(&path, &looking).expect(0);
    let looks = std::fs::read_to_string(&looks).unwrap();
    let of = |name: &str| {
        let has = |look: &str| look.split_whitespace().any(|word| word == name);
        let looks = looks.split("look").enumerate();
        let seen: Vec<usize> = looks
            .filter(|look| has(look.1))
            .map(|look| look.0)
            .collect();
        seen
    };
    let (reno, cubic) = (of("reno"), of("cubic"));
    assert!(!reno.is_empty(), "{looks}");
    assert!(reno.last() < cubic.last(), "{reno:?} {cubic:?}");
}

/// A nice copy detects other traffic and yields to it. The queue of that traffic exists nearly all
/// the time. A single span may not show it on a busy host, so there are many.
#[test]
fn a_nice_copy_yields_to_other_traffic() {
    if !labs_work() {
        return;
    }
    let path = ["--rtt", "20ms", "--rate", "50mbit", "--background", "8"];
    let a_while = "timeout -s INT 10 $COPY --nice zero:100MB $TO";
    let summary = beside_daemon(&path, a_while).expect(124).summary();
    let decisions = summary["decisions"].as_array().unwrap();
    // Less than the ninth that would be its share; now and then it finds room.
    let yields = |decision: &&Value| {
        let reason = decision["reason"].as_str().unwrap();
        let pace = decision["pace_bytes_per_second"].as_f64();
        reason.contains("others use the path") && pace.is_some_and(|pace| pace < 50e6 / 8.0 / 9.0)
    };
    assert!(
        decisions.iter().any(|decision| yields(&decision)),
        "{summary}"
    );
}

#[test]
fn a_blocked_port_is_named() {
    if !labs_work() {
        return;
    }
    copy_to_daemon(&["--block", "b:4960:reset"], "zero:1MB")
        .expect(3)
        .says(&["198.18.20.1:4960", "refused"]);
    copy_to_daemon(&["--block", "a:4960"], "zero:1MB").expect(0);
}

/// FUSE mounts, as the lab makes them.
fn mounts_work() -> bool {
    let works = labs_work() && Path::new("/dev/fuse").exists();
    if !works {
        longhaul_testing::skip("storage needs /dev/fuse");
    }
    works
}

/// If each lookup, open and creation takes a round trip, many run at a time. The copy arrives
/// unchanged, and a second copy finds the files unchanged.
#[test]
fn remote_file_systems_are_copied_from_and_to() {
    if !mounts_work() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).display().to_string();
    let (source, sink) = (at("source"), at("sink"));
    let mut random = Random::new(7);
    for number in 0..240 {
        let name = format!("d{}/f{number}", number % 3);
        let length = random.below(9000) as usize;
        tree::write(&Path::new(&source).join(name), &random.bytes(length));
    }
    let first = Path::new(&source).join("d0");
    tree::write(&first.join(".longhaul-x"), b"not sent");
    tree::set_modified(&first, 1_400_000_000, 7);
    tree::write(&Path::new(&source).join("d1/f9x/in/the/middle"), b"deep");
    std::fs::create_dir(&sink).unwrap();
    let far = |path: &str| format!("{path}:operation-latency=500us");
    let options = ["--storage", &far(&source), "--storage", &far(&sink)];
    let longhaul = env!("CARGO_BIN_EXE_longhaul");
    let copy = format!("{longhaul} cp -r --json {source}/ {sink}/");
    let command = format!("{copy} && echo again && {copy}");
    let finished = run(&mut lab_run(&options, &command)).expect(0);
    let said = text(&finished.output);
    let (_, again) = said.split_once("\nagain\n").unwrap();
    let files = |text: &str| text.matches("\"committed\",\"file\":true").count();
    assert_eq!((files(said), files(again)), (241, 0), "{again}");
    std::fs::remove_file(first.join(".longhaul-x")).unwrap();
    tree::set_modified(&first, 1_400_000_000, 7);
    for name in ["d0", "d1", "d2"] {
        let [from, to] = [&source, &sink].map(|place| Path::new(place).join(name));
        assert_eq!(tree::difference(&from, &to), None, "{name}");
    }
}

/// Within the lab, two directories are behind separate modelled devices under the same names.
/// Outside they do not change.
#[test]
fn modelled_devices_exist_only_within_the_lab() {
    if !mounts_work() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).display().to_string();
    let (source, sink, report) = (at("source"), at("sink"), at("report"));
    let bytes = Random::new(5).bytes(3 << 20);
    tree::write(Path::new(&source).join("data").as_path(), &bytes);
    std::fs::create_dir(&sink).unwrap();
    let storage = [
        format!("{source}:read-rate=100MBps"),
        format!("{sink}:rate=200MBps,latency=1ms"),
    ];
    let command = format!(
        "test $LONGHAUL_LAB_STORAGE = {source} && cp {source}/data $LONGHAUL_LAB_STORAGE_2 && \
         stat -f -c %T {source} {sink}"
    );
    let options = ["--storage", &storage[0], "--storage", &storage[1]];
    let options = [&options[..], &["--report", &report]].concat();
    let finished = run(&mut lab_run(&options, &command)).expect(0);
    assert_eq!(text(&finished.output), "fuseblk\nfuseblk");
    assert!(std::fs::read(Path::new(&sink).join("data")).unwrap() == bytes);
    let report = std::fs::read(&report).unwrap();
    let report: Value = serde_json::from_slice(&report).unwrap();
    let way = |storage: usize, way: &str| {
        let devices = &report["storage"][storage]["devices"];
        devices[0][way]["bytes"].as_u64().unwrap()
    };
    // The kernel asks for whole requests, also beyond the file's end.
    assert!(way(0, "read") >= 3 << 20);
    assert_eq!((way(0, "write"), way(1, "write")), (0, 3 << 20));
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(&source) && !mounts.contains(&sink));
    run(&mut lab_run(&["--storage", "/missing:rate=1MBps"], "true"))
        .expect(6)
        .says(&["/missing"]);
    run(&mut lab_run(&["--storage", "gluster:nodes=9"], "true"))
        .expect(1)
        .says(&["1 to 8"]);
}

fn gluster_works() -> bool {
    if let Err(error) = longhaul_lab::storage::gluster::check() {
        longhaul_testing::skip_without_kernel(&error.to_string());
        return false;
    }
    mounts_work()
}

/// Large files are spread over the nodes, and no files remain.
#[test]
fn a_parallel_file_system_spreads_a_file_over_all_nodes() {
    if !gluster_works() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("data");
    let bytes = Random::new(6).bytes(96 << 20);
    tree::write(&file, &bytes);
    let report = directory.path().join("report").display().to_string();
    let name = format!("gluster-{}", std::process::id());
    let storage = "gluster:nodes=2,shard=4MiB,brick-rate=400MBps";
    let options = ["--name", &name, "--report", &report, "--storage", storage];
    let command = format!(
        "cp {0} $LONGHAUL_LAB_STORAGE/data && sync -f $LONGHAUL_LAB_STORAGE && \
         cmp {0} $LONGHAUL_LAB_STORAGE/data",
        file.display()
    );
    run(&mut lab_run(&options, &command)).expect(0);
    let report = std::fs::read(&report).unwrap();
    let report: Value = serde_json::from_slice(&report).unwrap();
    let devices = report["storage"][0]["devices"].as_array().unwrap();
    let written = |device: &Value| device["write"]["bytes"].as_u64().unwrap();
    assert_eq!(devices.len(), 2);
    assert_eq!(devices.iter().map(written).sum::<u64>(), 96 << 20);
    // The place of each of the 24 shards is random, but both devices get some.
    assert!(devices.iter().all(|device| written(device) > 0), "{report}");
    assert!(!labs_left().contains(&name));
}

#[test]
fn missing_programs_of_a_parallel_file_system_are_named() {
    if !mounts_work() {
        return;
    }
    let mut lab = longhaul_with(&["lab", "run", "--storage", "gluster:nodes=1", "--", "true"]);
    lab.env("PATH", "/missing");
    run(&mut lab)
        .expect(6)
        .says(&["glusterd", "apt-get install glusterfs-server"]);
}

/// The user is not root and runs in a user namespace.
#[test]
fn an_ordinary_user_can_run_a_lab() {
    if !labs_work() {
        return;
    }
    // The directory must be readable by other users than root.
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(directory.path(), everybody).unwrap();
    let binary = binary_in(directory.path());
    let as_nobody = |congestion: &str, command: &str| {
        let mut lab = Command::new("setpriv");
        lab.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        lab.arg(&binary)
            .args(["lab", "run", "--quiet", "--rtt=1ms"]);
        lab.args(["--congestion", congestion, "--", "sh", "-c", command]);
        lab.env("XDG_RUNTIME_DIR", directory.path());
        lab.current_dir(directory.path());
        run(&mut lab)
    };
    let trial = as_nobody("reno", "true");
    if trial.errors.contains("user namespace") || trial.errors.contains("/dev/net/tun") {
        longhaul_testing::skip_without_kernel(&trial.errors);
        return;
    }
    let finished = as_nobody("reno", "ping -c 1 -q lab-b >&2; echo $LONGHAUL_LAB_HOST").expect(0);
    assert_eq!(text(&finished.output), "a1");
    // A congestion control that needs root is refused with a remedy. A lab of root that starts at
    // the same time allows it to all users for a moment.
    let refused = as_nobody("cubic", "true");
    if refused.code != Some(0) {
        refused.expect(6).says(&["cubic", "sysctl -w"]);
    }
    let state = directory.path().join("longhaul-lab");
    let labs = std::fs::read_dir(state).unwrap().flatten();
    assert_eq!(labs.filter(|entry| entry.path().is_dir()).count(), 0);
}

/// Parameters of the machine: one lab at a time, put back at its end, and by
/// the next start where it was killed.
#[test]
fn settings_of_the_machine_are_restored_after_a_lab() {
    if !labs_work() {
        return;
    }
    let parameter = "/proc/sys/net/core/optmem_max";
    let value = || text(&std::fs::read(parameter).unwrap()).to_owned();
    let before = value();
    let other = (before.parse::<u64>().unwrap() + 1024).to_string();
    let setting = format!("net.core.optmem_max={other}");
    let name = format!("machine-{}", std::process::id());
    let up = [
        "lab",
        "up",
        name.as_str(),
        "--host-sysctl",
        setting.as_str(),
    ];
    run(&mut longhaul_with(&up)).expect(0);
    assert_eq!(value(), other);
    run(&mut lab_run(&["--host-sysctl", &setting], "true"))
        .expect(6)
        .says(&["another lab"]);
    run(&mut longhaul_with(&["lab", "down", &name])).expect(0);
    assert_eq!(value(), before);

    run(&mut longhaul_with(&up)).expect(0);
    let lock = Path::new("/run/longhaul-lab").join(&name).join("lock");
    let owner = std::fs::read_to_string(lock).unwrap();
    let owner = rustix::process::Pid::from_raw(owner.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(owner, Signal::KILL).unwrap();
    run(&mut lab_run(&[], "true")).expect(0);
    assert_eq!(value(), before);
    assert!(!labs_left().contains(&name));
}

/// Traffic of other hosts takes its share of the path, and pauses.
#[test]
fn other_traffic_shares_the_path() {
    if !labs_work() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("report").display().to_string();
    let own = ["--rtt=2ms", "--rate=100mbit", "--report", &report];
    let segments = |further: &[&str]| {
        // A ping returns within the time of some segments of the other traffic.
        run(&mut lab_run(
            &[&own[..], further].concat(),
            "ping -q -c 3 -i 0.1 lab-b",
        ))
        .expect(0);
        let report: Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
        report["directions"][0]["segments"].as_u64().unwrap()
    };
    assert!(segments(&[]) < 100);
    assert!(segments(&["--background", "2"]) > 200);
    assert!(segments(&["--background", "2", "--background-on-off", "10ms/5ms"]) > 100);
    run(&mut lab_run(&["--background-on-off", "1s/1s"], "true")).expect(1);
}

#[test]
fn settings_of_a_path_apply_to_two_of_three_sites() {
    if !labs_work() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("report").display().to_string();
    let options = [
        "--hosts",
        "1x1x1",
        "--path",
        "a-c:loss=100%",
        "--report",
        &report,
    ];
    let ping = "ping -q -c 1 -W 5 lab-b && ! ping -q -c 1 -W 1 lab-c";
    run(&mut lab_run(&options, ping)).expect(0);
    let report: Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    assert_eq!(report["pairs"][0], "a-c:loss=100%");
    let ways = report["directions"].as_array().unwrap();
    let lost = |from: &str, to: &str| {
        let way = ways
            .iter()
            .find(|way| way["from"] == from && way["to"] == to);
        way.unwrap()["losses"].as_u64().unwrap()
    };
    assert_eq!(lost("a", "b"), 0);
    assert!(lost("a", "c") > 0);
    run(&mut lab_run(&["--path", "a-c:rtt=1ms"], "true"))
        .expect(1)
        .says(&["no site c"]);
}
