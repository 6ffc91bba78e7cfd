//! `cp --filter-cmd`: what a command makes of a file gets its name, whole or not at all.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::daemon::with_roots;
use crate::support::process::{Running, await_process, longhaul, run, with_open_files};
use crate::support::sshd::{self, Sshd};
use crate::support::tree::{set_modified, write};
use crate::support::ways::{WAYS, Way, contents, copy, names, slashed};
use crate::support::{Daemon, assert_no_leftovers};
use longhaul_testing::await_that;
use rustix::process::Signal;

/// Larger than what goes in one block.
const LARGE: usize = 5 << 20;

fn source(root: &Path) {
    for name in ["plain", "with ' and $(touch injected)", "dir/inner", "old"] {
        write(&root.join(name), b"lower case");
        set_modified(&root.join(name), 1_000_000, 5);
    }
    write(&root.join("nothing"), b"");
    write(&root.join("large"), &vec![b'x'; LARGE]);
    fs::set_permissions(root.join("plain"), fs::Permissions::from_mode(0o440)).unwrap();
    symlink("plain", root.join("link")).unwrap();
}

/// Returns the contents after `tr a-z A-Z`.
fn upper(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = contents(root);
    let files = all.iter_mut().filter(|(path, _)| !path.ends_with("link"));
    files.for_each(|(_, text)| text.make_ascii_uppercase());
    all
}

fn local(from: &Path, to: &Path, options: &[&str]) -> Command {
    let mut command = longhaul();
    command.arg("cp").arg("-r").args(options);
    command.arg(slashed(from)).arg(to);
    command
}

fn digest(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

// Promise 86.
#[test]
fn the_destination_gets_the_output_on_every_route() {
    at_either_end("destination", Way::Push);
}

/// The same before files are sent.
// Promise 86.
#[test]
fn a_source_filter_sends_the_output_on_every_route() {
    at_either_end("source", Way::Pull);
}

/// On one route the daemon runs its own command.
fn at_either_end(end: &str, daemons: Way) {
    let place = tempfile::tempdir().unwrap();
    let log = place.path().join("log");
    let text = format!("echo >> '{}'; tr a-z A-Z", log.display());
    let named = format!("upper={text}");
    let daemon = Daemon::with(place.path(), &["--write", "--filter-cmd", &named]);
    let from = place.path().join("from");
    source(&from);
    for way in WAYS {
        let to = place.path().join(format!("{way:?}"));
        write(&to.join("old"), b"what was there");
        let text = if way == daemons { "upper" } else { &text };
        let options = ["-r", "--json", "--filter-cmd", text, "--filter-at", end];
        let command = || copy((&daemon, place.path()), way, (&from, &to));
        let finished = run(&mut command().with(&options)).expect(0);
        assert_eq!(contents(&to), upper(&from), "{way:?}");
        assert_no_leftovers(&to);
        let summary = finished.summary();
        let lists = ["layers", "peer_layers"].map(|list| summary[list].as_array().cloned());
        let mut layers = lists.into_iter().flatten().flatten();
        assert!(layers.any(|layer| layer["layer"] == "filter"), "{summary}");
        let status = |root: &Path| fs::metadata(root.join("plain")).unwrap();
        assert_eq!(status(&to).mode(), status(&from).mode());
        assert_eq!(status(&to).mtime(), status(&from).mtime());
        // The digest is that of the output.
        for (name, output) in [
            ("plain", b"LOWER CASE".to_vec()),
            ("large", vec![b'X'; LARGE]),
        ] {
            let events = finished.events().into_iter();
            let mut of =
                events.filter(|event| event["path"] == name && event["event"] == "committed");
            let event = of.next().unwrap_or_else(|| panic!("{name}, {way:?}"));
            assert_eq!(event["blake3"], digest(&output), "{name}, {way:?}");
        }
        // With a filter, a file counts as unchanged if its time is the same, whatever its size is.
        fs::remove_file(&log).unwrap();
        run(&mut command().with(&options)).expect(0);
        assert!(!log.exists(), "{way:?}");
    }
    assert!(!place.path().join("injected").exists());
}

/// A command may read only a part of its input. Its output may be shorter or longer.
#[test]
fn the_output_has_any_size() {
    let place = tempfile::tempdir().unwrap();
    let from = place.path().join("from");
    source(&from);
    let texts = ["head -c 3", "cat; echo; head -c 70000 /dev/zero", "true"];
    let texts = texts.into_iter().enumerate();
    let ends = ["source", "destination"];
    for ((number, text), end) in texts.flat_map(|text| ends.map(|end| (text, end))) {
        let to = place.path().join(format!("{number} {end}"));
        for copied in [true, false] {
            let options = ["--json", "--filter-at", end, "--filter-cmd", text];
            let summary = run(&mut local(&from, &to, &options)).expect(0).summary();
            assert_eq!(summary["skipped_entries"] == 0, copied, "{text}");
        }
        let there = contents(&to);
        for (path, bytes) in contents(&from) {
            if from.join(&path).symlink_metadata().unwrap().is_file() {
                let expected = match number {
                    0 => bytes[..bytes.len().min(3)].to_vec(),
                    1 => [&bytes[..], b"\n", &[0; 70_000]].concat(),
                    _ => Vec::new(),
                };
                assert_eq!(there[&path], expected, "{text}, {path:?}");
            }
        }
        assert_no_leftovers(&to);
    }
}

// Promise 86.
#[test]
fn a_filter_that_fails_fails_its_file_alone() {
    fails_alone("destination");
}

#[test]
fn a_filter_that_fails_at_the_source_fails_its_file_alone() {
    fails_alone("source");
}

/// The other files are copied, existing files stay, and no incomplete output gets a name.
fn fails_alone(end: &str) {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    source(&from);
    write(&to.join("old"), b"what was there");
    let fails = "cat; case $LONGHAUL_NAME in old|large) echo broken >&2; exit 3;; esac";
    for _ in 0..2 {
        let options = ["--json", "--filter-at", end, "--filter-cmd", fails];
        let finished = run(&mut local(&from, &to, &options)).expect(2);
        let finished = finished.says(&["old: ", "large: ", "exit code 3: broken"]);
        let failed = finished.events().into_iter();
        let failed: Vec<_> = failed.filter(|event| event["event"] == "failed").collect();
        assert_eq!(failed.len(), 2);
        assert!(failed.iter().all(|event| event["kind"] == "Other"));
        assert_eq!(fs::read(to.join("old")).unwrap(), b"what was there");
        assert!(!to.join("large").exists());
        assert_eq!(fs::read(to.join("dir/inner")).unwrap(), b"lower case");
    }
    let options = ["--filter-at", end, "--filter-cmd", "tr a-z A-Z"];
    run(&mut local(&from, &to, &options)).expect(0);
    assert_eq!(fs::read(to.join("large")).unwrap(), vec![b'X'; LARGE]);
    assert_eq!(fs::read(to.join("old")).unwrap(), b"LOWER CASE");
    assert_no_leftovers(&to);
}

// Promise 86.
#[test]
fn a_kill_leaves_no_partly_filtered_file() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    source(&from);
    let begun = place.path().join("begun");
    let stays = longhaul_testing::until("false");
    let waits = format!("head -c 5; echo $$ > '{}'; {stays}", begun.display());
    for signal in [Signal::KILL, Signal::INT] {
        let _ = fs::remove_file(&begun);
        // One command runs at a time, so that the test can end the command that the kill leaves.
        let options = ["--filter-flows=1", "--filter-cmd", &waits];
        let running = Running::start(&mut local(&from, &to, &options));
        let process = await_process(&begun);
        running.signal(signal);
        running.wait();
        // Only a kill leaves commands.
        let left = rustix::process::test_kill_process(process).is_ok();
        assert_eq!(left, signal == Signal::KILL);
        let _ = rustix::process::kill_process_group(process, Signal::KILL);
        let there = names(&to).into_iter();
        let there: Vec<_> = there.filter(|path| to.join(path).is_file()).collect();
        let is_own = |path: &PathBuf| path.to_string_lossy().contains(".longhaul-");
        assert!(there.iter().all(is_own), "{there:?}");
    }
    run(&mut local(&from, &to, &["--filter-cmd", "tr a-z A-Z"])).expect(0);
    assert_eq!(contents(&to), upper(&from));
}

#[test]
fn filters_have_separate_flows_and_run_before_on_commit() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    source(&from);
    let daemon = Daemon::start(place.path());
    let checks = "test \"$LONGHAUL_BLAKE3\" != '' && ! grep -q '[a-z]' \"$1\"";
    let options = [
        &["-r", "--json", "--filter-cmd", "tr a-z A-Z"][..],
        &["--filter-flows", "3", "--on-commit", checks],
    ]
    .concat();
    let command = copy((&daemon, place.path()), Way::Pull, (&from, &to));
    let summary = run(&mut command.with(&options)).expect(0).summary();
    let layers = summary["layers"].as_array().unwrap();
    let layer = layers.iter().find(|layer| layer["layer"] == "filter");
    assert_eq!(layer.expect("a separate layer")["flows"], 3);
    assert_eq!(contents(&to), upper(&from));
}

/// Bits that a destination does not keep for a small file are reported once, although the file
/// first has two temporary names.
#[test]
fn dropped_bits_are_reported_once() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    for name in ["small", "large"] {
        let bytes = if name == "small" { 4 } else { LARGE };
        write(&from.join(name), &vec![b'x'; bytes]);
        fs::set_permissions(from.join(name), fs::Permissions::from_mode(0o4755)).unwrap();
    }
    // A daemon without that right.
    let daemon = Daemon::with(place.path(), &["--write", "--filter-cmd", "cat=cat"]);
    let options = ["-r", "--json", "--filter-cmd", "cat"];
    let command = copy((&daemon, place.path()), Way::Push, (&from, &to));
    let summary = run(&mut command.with(&options)).expect(0).summary();
    let notices = summary["notices"].as_array().unwrap().iter();
    let told: Vec<_> = notices
        .map(|notice| (&notice["kind"], &notice["count"]))
        .collect();
    assert_eq!(told.len(), 1, "{summary}");
    assert_eq!(
        (told[0].0.as_str(), told[0].1.as_u64()),
        (Some("set_id_dropped"), Some(2))
    );
    assert_eq!(
        fs::metadata(to.join("small")).unwrap().mode() & 0o7777,
        0o755
    );
}

/// If a large file arrived in part, its output is never combined with that of another run. A
/// command at the destination runs on the complete file, and no output is left behind.
// Promise 86.
#[test]
fn two_outputs_are_never_mixed() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    let (begun, log) = (place.path().join("begun"), place.path().join("log"));
    fs::create_dir(&to).unwrap();
    write(&to.join("not empty"), b"");
    write(&from.join("large"), &vec![b'x'; 40 << 20]);
    // Each run of the command writes a different byte, as often as its input has bytes.
    let text = format!(
        "echo >> '{0}'; tr x $(wc -l < '{0}' | tr -d ' ')",
        begun.display()
    );
    let options = [
        "--filter-at",
        "source",
        "--filter-cmd",
        &text,
        "--bwlimit",
        "5MB/s",
        "--checkpoint",
        "1MiB",
    ];
    let running = Running::start(&mut local(&from, &to, &options));
    let is_part = |path: &PathBuf| {
        let size = fs::metadata(to.join(path)).map_or(0, |status| status.len());
        path.to_string_lossy().contains(".longhaul-") && size > 4 << 20
    };
    await_that(|| names(&to).iter().any(is_part));
    running.kill();
    let counts = format!("echo \"$LONGHAUL_NAME\" >> '{}'", log.display());
    let options = [
        "--filter-at",
        "source",
        "--filter-cmd",
        &text,
        "--on-commit",
        &counts,
    ];
    run(&mut local(&from, &to, &options)).expect(0);
    assert_eq!(fs::read(to.join("large")).unwrap(), vec![b'2'; 40 << 20]);
    assert_eq!(fs::read_to_string(log).unwrap(), "large\n");
    assert_no_leftovers(&to);
}

/// If `--on-commit` failed after a filter at the source, its command runs again for the file.
#[test]
fn a_failed_command_runs_again_for_any_size_of_output() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    let log = place.path().join("log");
    write(&from.join("file"), b"some bytes");
    let filter = ["--filter-at", "source", "--filter-cmd", "head -c 3"];
    let run_with = |text: &str| {
        run(&mut local(
            &from,
            &to,
            &[&filter[..], &["--on-commit", text]].concat(),
        ))
    };
    run_with("exit 3").expect(2);
    run_with(&format!("echo >> '{}'", log.display())).expect(0);
    run_with(&format!("echo >> '{}'", log.display())).expect(0);
    assert_eq!(fs::read(log).unwrap(), b"\n");
    assert_eq!(fs::read(to.join("file")).unwrap(), b"som");
}

/// Files are filtered one after the other while others are sent, and more wait than have room.
#[test]
fn many_files_are_filtered_before_they_are_sent() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    for number in 0..300 {
        write(
            &from.join(number.to_string()),
            format!("file {number}").as_bytes(),
        );
    }
    let options = ["--filter-at", "source", "--filter-cmd", "tr a-z A-Z"];
    run(&mut local(&from, &to, &options)).expect(0);
    assert_eq!(contents(&to), upper(&from));
}

/// A daemon that sends runs only the commands of the root from which the file is read.
#[test]
fn a_daemon_filters_files_that_it_sends_by_the_commands_of_the_root() {
    let place = tempfile::tempdir().unwrap();
    source(&place.path().join("with"));
    source(&place.path().join("without"));
    let root = |name: &str, commands: &str| {
        let path = place.path().join(name);
        format!(
            "[[principal.root]]\nat = \"/{name}\"\npath = {path:?}\nrights = [\"read\"]\n{commands}\n"
        )
    };
    let roots = root("with", "filter-cmd = [\"upper\"]")
        + &root("without", "")
        + "[commands]\nupper = \"tr a-z A-Z\"\n";
    let (daemon, tokens) = with_roots(place.path(), &roots);
    let fetch = |name: &str, command: &str| {
        let mut copy = longhaul();
        copy.args([
            "cp",
            "-r",
            "--fingerprint",
            &daemon.fingerprint,
            "--token-file",
        ]);
        copy.arg(&tokens);
        copy.args(["--filter-at", "source", "--filter-cmd", command]);
        copy.arg(daemon.url(format!("{name}/")));
        run(copy.arg(place.path().join("to")))
    };
    fetch("without", "upper")
        .expect(4)
        .says(&["--filter-cmd", "none is allowed"]);
    fetch("with", "tr a-z A-Z")
        .expect(4)
        .says(&["one of upper"]);
    assert!(!place.path().join("to").exists());
    fetch("with", "upper").expect(0);
    let (from, to) = (place.path().join("with"), place.path().join("to"));
    assert_eq!(contents(&to), upper(&from));
}

#[test]
fn filters_refuse_options_that_compare_contents() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    write(&from.join("file"), b"file");
    for option in [
        "--verify",
        "--checksum",
        "--size-only",
        "--move",
        "--manifest=list",
    ] {
        let options = [option, "--filter-cmd", "cat"];
        run(&mut local(&from, &to, &options))
            .expect(1)
            .says(&["--filter-cmd"]);
    }
    let mut command = longhaul();
    command
        .args(["cp", "--filter-cmd", "cat"])
        .arg(from.join("file"));
    run(command.arg("-")).expect(1).says(&["--filter-cmd"]);
    // A dry run runs no filter.
    let touch = format!("touch '{}'", place.path().join("ran").display());
    for end in ["source", "destination"] {
        let options = ["-n", "--filter-at", end, "--filter-cmd", &touch];
        run(&mut local(&from, &to, &options)).expect(0);
    }
    let mut zeros = longhaul();
    zeros.args([
        "cp",
        "--filter-at",
        "source",
        "--filter-cmd",
        "cat",
        "zero:1MB",
    ]);
    run(zeros.arg(&to)).expect(1).says(&["--filter-cmd"]);
    assert!(!place.path().join("ran").exists() && !to.exists());
    // A daemon does not run a command line of the client.
    let daemon = Daemon::with(place.path(), &["--write", "--filter-cmd", "other=cat"]);
    let command = copy((&daemon, place.path()), Way::Push, (&from, &to));
    let refused = run(&mut command.with(&["-r", "--filter-cmd", "cat"])).expect(4);
    refused.says(&["one of other"]);
    assert!(!to.exists());
}

#[test]
fn files_are_filtered_at_the_remote_host_over_ssh() {
    if !sshd::is_possible() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let from = place.path().join("from");
    source(&from);
    let sshd = Sshd::start();
    let mut command = sshd.command("cp");
    command
        .args(["-r", "--filter-cmd", "tr a-z A-Z"])
        .arg(slashed(&from));
    run(command.arg("dtn:to")).expect(0);
    assert_eq!(contents(&sshd.home().join("to")), upper(&from));
}

/// Outputs and commands have a share of the descriptors: with few of them a copy is slower.
#[test]
fn few_descriptors_make_commands_slower_and_lose_no_file() {
    let place = tempfile::tempdir().unwrap();
    let from = place.path().join("from");
    for number in 0..150 {
        write(&from.join(format!("file {number}")), &[b'x'; 3000]);
    }
    for (number, options) in [
        &["--filter-cmd", "cat"][..],
        &["--filter-cmd", "cat", "--filter-at", "destination"],
        &["--on-commit", "true", "--on-commit-jobs", "32"],
    ]
    .into_iter()
    .enumerate()
    {
        let to = place.path().join(format!("to {number}"));
        run(&mut with_open_files(64, &local(&from, &to, options))).expect(0);
        assert_eq!(names(&to).len(), 150, "{options:?}");
    }
}
