//! Sweeps from the command line: measurements, resumes and refusals.
//!
//! Both ends are on this host, so that most tests need no rights. Tests with a lab run if the
//! rights for it exist.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::time::Instant;

use crate::support::process::{self, longhaul_with, run};
use serde_json::Value;

/// A copy by a command, one that damages what it copies, and one that is not there.
const COMMANDS: &str = r#"
name = "trial"
repetitions = 2
warm-up = 0
samples = "0s"
[[paths]]
here = true
rtt = "1ms"
capacity = "1gbit"
[[data]]
name = "few"
files = 3
smallest = "1000B"
largest = "5000B"
[[methods]]
name = "copy"
command = "exec cp -r $SWEEP_SOURCE/. $SWEEP_DESTINATION/"
knobs = { how = ["one", "other"] }
[[methods]]
name = "damage"
command = "cp -r $SWEEP_SOURCE $SWEEP_DESTINATION/data; printf x >>$SWEEP_DESTINATION/data/f1"
[[methods]]
name = "absent"
needs = ["no-such-program-anywhere"]
command = "false"
[[methods]]
name = "fails"
command = "echo out of luck >&2; exit 3"
"#;

fn records(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Returns the list of runs that the sweep would still make.
fn listed(file: &Path, output: &Path, also: &[&str]) -> String {
    let mut command = longhaul_with(&["sweep", "--dry-run"]);
    command.args(also).arg(file).arg("-o").arg(output);
    let listed = run(&mut command).expect(0).output;
    String::from_utf8(listed).unwrap()
}

/// Checks that neither finished nor impossible runs are in the list.
fn tell_what_is_left(file: &Path, output: &Path) {
    let nothing = listed(file, output, &[]);
    assert!(
        nothing.contains("5 configurations, 0 runs to make, about 0 s; 8 in "),
        "{nothing}"
    );
    assert!(nothing.contains("; 2 skipped"), "{nothing}");
    assert_eq!(nothing.matches(": done\n").count(), 4, "{nothing}");
    let absent = "absent is skipped: no-such-program-anywhere is not installed";
    assert!(nothing.contains(absent), "{nothing}");
    assert!(!listed(file, output, &["--methods", "copy"]).contains("absent"));
}

/// Checks the list for a file with one incomplete line. The dry run does not change the file.
fn tell_that_one_is_left(file: &Path, output: &Path) {
    let before = std::fs::read(output).unwrap();
    let one = listed(file, output, &[]);
    assert!(
        one.contains(", 1 run to make") && one.contains("; 7 in "),
        "{one}"
    );
    assert!(one.contains(": 1 of 2 runs left"), "{one}");
    assert_eq!(std::fs::read(output).unwrap(), before);
}

#[test]
fn runs_are_recorded_and_compared_and_not_repeated() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("trial.toml");
    std::fs::write(&file, COMMANDS).unwrap();
    let output = home.path().join("runs.jsonl");
    let sweep = || {
        let mut command = longhaul_with(&["sweep"]);
        command.arg(&file).arg("-o").arg(&output);
        run(&mut command).expect(0).errors
    };
    let said = sweep();
    assert!(
        said.contains("absent is skipped: no-such-program-anywhere"),
        "{said}"
    );
    let all = records(&output);
    assert_eq!(all.len(), 8);
    // Both ends are this host, which is described once next to the records, also after a second
    // sweep.
    let hosts = || records(&output.with_extension("hosts.ndjson"));
    assert_eq!(hosts().len(), 1);
    let sysctls = &hosts()[0]["host"]["sysctls"];
    assert!(sysctls["net.ipv4.tcp_dsack"].is_string(), "{sysctls}");
    for record in &all {
        for end in [&record["source"], &record["destination"]] {
            assert_eq!(end["description"], hosts()[0]["digest"], "{record}");
        }
        let outcome = &record["outcome"];
        match record["method"]["name"].as_str().unwrap() {
            "copy" => {
                assert_eq!(outcome["ended"], "done", "{record}");
                assert_eq!(outcome["bytes"], record["dataset"]["bytes"]);
            }
            "damage" => {
                assert_eq!(outcome["ended"], "failed");
                assert!(
                    outcome["error"].as_str().unwrap().contains("f1: "),
                    "{outcome}"
                );
                assert!(outcome["bytes"].as_u64() < record["dataset"]["bytes"].as_u64());
            }
            _ => {
                assert_eq!(
                    (&outcome["ended"], &outcome["exit"]),
                    (&"failed".into(), &3.into())
                );
                assert_eq!(outcome["error"], "out of luck");
            }
        }
    }
    assert!(!home.path().join("runs.work").exists());
    tell_what_is_left(&file, &output);
    // Only the run with the incomplete line is repeated.
    let said = sweep();
    assert!(!said.contains(" of 10"), "{said}");
    assert!(said.contains("nothing is left to run"), "{said}");
    let whole = std::fs::read(&output).unwrap();
    std::fs::write(&output, &whole[..whole.len() - 10]).unwrap();
    tell_that_one_is_left(&file, &output);
    let said = sweep();
    assert!(said.contains("line 8 was cut off"), "{said}");
    assert_eq!(said.matches(" of 10").count(), 1, "{said}");
    let again = records(&output);
    assert_eq!((again.len(), hosts().len()), (8, 1));
    assert_eq!(again[7]["run"]["id"], all[7]["run"]["id"]);
    // The analysis reads the records.
    let mut profile = longhaul_with(&["profile"]);
    run(profile.arg(&output)).expect(0);
}

/// Checks the list for records without the last one, which is a repetition of one of the fastest
/// configurations.
fn tell_which_is_left_again(file: &Path, output: &Path) {
    let whole = std::fs::read_to_string(output).unwrap();
    let (rest, _) = whole.trim_end().rsplit_once('\n').unwrap();
    let fewer = output.with_file_name("fewer.jsonl");
    std::fs::write(&fewer, format!("{rest}\n")).unwrap();
    let one = listed(file, &fewer, &[]);
    assert_eq!(one.matches("\nagain copy how=").count(), 3, "{one}");
    assert_eq!(one.matches(": 1 of 2 runs left\n").count(), 1, "{one}");
    assert!(
        one.contains(", 1 run to make") && one.contains("; 10 in "),
        "{one}"
    );
    assert!(listed(file, output, &[]).contains(", 0 runs to make"));
}

/// Four equal methods, and one that fails without a message.
const ALIKE: &str = r#"
[[methods]]
name = "copy"
command = "exec cp -r $SWEEP_SOURCE/. $SWEEP_DESTINATION/"
knobs = { how = [1, 2, 3, 4] }
[[methods]]
name = "mute"
command = "exit 3"
"#;

#[test]
fn the_fastest_configurations_are_measured_again_at_the_end() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("trial.toml");
    let start = COMMANDS.find("[[methods]]").unwrap();
    let head = COMMANDS[..start].replace("repetitions = 2", "repetitions = 1\nagain = 2");
    std::fs::write(&file, head + ALIKE).unwrap();
    let output = home.path().join("runs.jsonl");
    let sweep = || {
        let mut command = longhaul_with(&["sweep"]);
        command.arg(&file).arg("-o").arg(&output);
        run(&mut command).expect(0).errors
    };
    let before = listed(&file, &output, &[]);
    assert!(
        before.contains("configurations of each path 2 more times: 6 runs,"),
        "{before}"
    );
    assert!(
        before.contains("5 configurations, 5 runs to make"),
        "{before}"
    );
    let said = sweep();
    assert!(said.contains("11 of 11: again copy how="), "{said}");
    let all = records(&output);
    assert_eq!(all.len(), 11);
    let (swept, again) = all.split_at(5);
    let mute = swept.iter().find(|r| r["method"]["name"] == "mute");
    assert_eq!(
        mute.unwrap()["outcome"]["error"],
        "no error output; exit code 3"
    );
    let copies = swept.iter().filter(|r| r["outcome"]["ended"] == "done");
    let rate = |r: &&Value| r["outcome"]["goodput_bits_per_second"].as_f64().unwrap();
    let slowest = copies.min_by(|a, b| rate(a).total_cmp(&rate(b))).unwrap();
    let mut made: Vec<(u64, u64)> = again
        .iter()
        .map(|r| {
            assert_eq!(r["run"]["again"], true, "{r}");
            assert_ne!(r["knobs"]["how"], slowest["knobs"]["how"], "{r}");
            let number = |value: &Value| value.as_u64().unwrap();
            (number(&r["run"]["round"]), number(&r["knobs"]["how"]))
        })
        .collect();
    made.sort_unstable();
    made.dedup();
    assert_eq!(
        made.len(),
        6,
        "expected three runs in each of two rounds: {made:?}"
    );
    assert!(sweep().contains("nothing is left to run"));
    tell_which_is_left_again(&file, &output);
    let mut profile = longhaul_with(&["profile"]);
    let told = run(profile.arg(&output)).expect(0).output;
    let told = String::from_utf8(told).unwrap();
    assert!(told.contains("best of 4 at 1 ms: copy how="), "{told}");
}

#[test]
fn records_of_a_real_path_have_no_invented_values_of_the_other_end() {
    let home = tempfile::tempdir().unwrap();
    let (file, far) = (home.path().join("real.toml"), home.path().join("far"));
    std::fs::create_dir(&far).unwrap();
    let start = COMMANDS.find("[[methods]]").unwrap();
    let there = format!("endpoint = \"ssh://127.0.0.1{}\"", far.display());
    let head = COMMANDS[..start].replace("here = true", &there);
    let method = "[[methods]]\nname = \"copy\"\n\
                  command = \"exec cp -r $SWEEP_SOURCE ${SWEEP_ENDPOINT#*127.0.0.1}/$SWEEP_ID\"\n";
    std::fs::write(&file, head + method).unwrap();
    let output = home.path().join("real.jsonl");
    let mut command = longhaul_with(&["sweep", "--repetitions", "1"]);
    run(command.arg(&file).arg("-o").arg(&output)).expect(0);
    let [record] = records(&output).try_into().unwrap();
    assert_eq!(record["outcome"]["ended"], "done", "{record}");
    assert_eq!(record["doubts"][0]["kind"], "not_compared", "{record}");
    assert!(record["source"]["storage"].is_string(), "{record}");
    let other = &record["destination"];
    assert_eq!((&other["cores"], &other["kernel"]), (&0.into(), &"".into()));
    assert!(other.get("storage").is_none(), "{other}");
    assert_eq!(std::fs::read_dir(&far).unwrap().count(), 1);
}

#[test]
fn a_longhaul_copy_is_measured_with_its_daemon() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("own.toml");
    let start = COMMANDS.find("[[methods]]").unwrap();
    let text = COMMANDS[..start].replace("samples = \"0s\"", "samples = \"20ms\"");
    let method = "[[methods]]\nname = \"longhaul\"\nlonghaul = true\nknobs = { streams = 2 }\n";
    std::fs::write(&file, text + method).unwrap();
    let output = home.path().join("own.jsonl");
    let mut command = longhaul_with(&["sweep", "--repetitions", "1"]);
    command.arg(&file).arg("-o").arg(&output);
    run(&mut command).expect(0);
    let [record] = records(&output).try_into().unwrap();
    assert_eq!(record["outcome"]["ended"], "done", "{record}");
    assert_eq!(record["knobs"]["streams"], 2);
    assert_eq!(record["outcome"]["said"]["corrupt_blocks"], 0.0);
    let layers: Vec<&str> = record["layers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|layer| layer["layer"].as_str().unwrap())
        .collect();
    // The last ones are the daemon's.
    for name in ["read", "wire", "write", "commit"] {
        assert!(layers.contains(&name), "{layers:?}");
    }
}

#[test]
fn an_invalid_sweep_is_refused_before_it_starts() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("bad.toml");
    for (from, to, part) in [
        ("here = true", "here = true\nspeed = 5", "speed"),
        ("files = 3", "files = 0", "few"),
        (
            "name = \"trial\"",
            "name = \"trial\"\nuse = [\"rsync\"]",
            "rsync",
        ),
    ] {
        std::fs::write(&file, COMMANDS.replacen(from, to, 1)).unwrap();
        let mut command = longhaul_with(&["sweep", "--dry-run"]);
        let said = run(command.arg(&file)).expect(1).errors;
        assert!(said.contains(part) && said.contains("bad.toml"), "{said}");
    }
    std::fs::write(&file, COMMANDS).unwrap();
    let mut command = longhaul_with(&["sweep", "--dry-run", "--methods", "copy"]);
    let listed = run(command.arg(&file)).expect(0).output;
    let listed = String::from_utf8(listed).unwrap();
    assert!(listed.contains("2 configurations, 4 runs"), "{listed}");
    let mut command = longhaul_with(&["sweep", "--dry-run", "--data", "few"]);
    let few = run(command.arg(&file)).expect(0).output;
    let mut command = longhaul_with(&["sweep", "--dry-run"]);
    assert_eq!(run(command.arg(&file)).expect(0).output, few);
    let more = format!(
        "{COMMANDS}[[data]]\nname = \"more\"\nfiles = 9\nsmallest = \"1B\"\nlargest = \"1B\"\n"
    );
    std::fs::write(&file, more).unwrap();
    let mut command = longhaul_with(&["sweep", "--dry-run", "--data", "few"]);
    assert_eq!(run(command.arg(&file)).expect(0).output, few);
    let mut command = longhaul_with(&["sweep", "--dry-run", "--data", "many"]);
    run(command.arg(&file))
        .expect(1)
        .says(&["no dataset \"many\""]);
}

/// The project's own methods.
const PEERS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../bench/scenarios/peers.inc"
);

fn has(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap();
    let usual = [Path::new("/usr/sbin").to_owned()];
    let mut all = std::env::split_paths(&paths).chain(usual);
    all.any(|directory| directory.join(program).is_file())
}

/// Mounts below a directory, and processes that name it.
fn seen_of(home: &Path) -> Vec<String> {
    let home = home.to_str().unwrap();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mut found: Vec<String> = mounts.lines().map(str::to_owned).collect();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        // A process may end while this function reads its files.
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        found.push(String::from_utf8_lossy(&line).replace('\0', " "));
    }
    found.retain(|line| line.contains(home));
    found
}

/// Returns the processes and mounts that remain longer than the kernel needs to end them.
fn remains(home: &Path) -> Vec<String> {
    let deadline = Instant::now() + process::limit();
    loop {
        let seen = seen_of(home);
        if seen.is_empty() || Instant::now() > deadline {
            return seen;
        }
        std::thread::yield_now();
    }
}

#[test]
fn mounts_of_a_run_end_with_it() {
    let needed = ["sshfs", "unshare", "sshd", "ssh-keygen"];
    if !rustix::process::geteuid().is_root() || !needed.iter().all(|program| has(program)) {
        longhaul_testing::skip(&format!("it takes root and {needed:?}"));
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("mounted.toml");
    let start = COMMANDS.find("[[methods]]").unwrap();
    let head = COMMANDS[..start]
        .replace("samples = \"0s\"", "samples = \"20ms\"\ncap = \"4s\"")
        .replace("repetitions = 2", "use = [\"sshfs\", \"sshfs-read\"]")
        .replace("largest = \"5000B\"", "largest = \"300000B\"");
    let peers = std::fs::read_to_string(PEERS).unwrap();
    let sweep = |output: &str, peers: String| {
        let include = home.path().join(format!("{output}.inc"));
        std::fs::write(&include, peers).unwrap();
        let include = include.file_name().unwrap().to_str().unwrap();
        std::fs::write(&file, format!("include = \"{include}\"\n{head}")).unwrap();
        let output = home.path().join(output);
        let mut command = longhaul_with(&["sweep", "--repetitions", "1"]);
        let finished = run(command.arg(&file).arg("-o").arg(&output));
        (finished, records(&output))
    };
    let (finished, all) = sweep("whole", peers.clone());
    finished.expect(0);
    assert_eq!(all.len(), 2);
    for record in &all {
        assert_eq!(record["outcome"]["ended"], "done", "{record}");
        // The data used a TCP connection, which the sending end observed.
        assert!(record["samples"]["count"].as_u64() > Some(0), "{record}");
        let is_read = record["method"]["name"] == "sshfs-read";
        for cpu in record["cpu"].as_array().unwrap() {
            let is_server = cpu["process"].as_str().unwrap().starts_with("sshd");
            let side = if is_server == is_read {
                "source"
            } else {
                "destination"
            };
            assert_eq!(cpu["side"], side, "{record}");
        }
    }
    assert_eq!(remains(home.path()), [""; 0]);
    // One copy fails, and the other one runs until the cap.
    for (name, instead) in [("failed", "false\n"), ("capped", "sleep 60\n")] {
        let (_, all) = sweep(name, peers.replace("cp -r", &format!("{instead}cp -r")));
        assert_eq!(all.len(), 2);
        assert!(
            all.iter().all(|record| record["outcome"]["ended"] == name),
            "{all:?}"
        );
        assert_eq!(remains(home.path()), [""; 0], "{name}");
    }
}
