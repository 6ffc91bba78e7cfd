//! `cp --filter-cmd`: what a command makes of a file gets its name, whole or not at all.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use support::process::{Running, limit, longhaul, run};
use support::sshd::{self, Sshd};
use support::tree::{set_modified, write};
use support::ways::{WAYS, Way, contents, copy, names, slashed};
use support::{Daemon, assert_no_leftovers};

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

/// What `tr a-z A-Z` makes of it.
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

#[test]
fn the_destination_has_the_output_on_every_way() {
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
        let text = if way == Way::Push { "upper" } else { &text };
        let options = ["-r", "--json", "--filter-cmd", text];
        let command = || copy((&daemon, place.path()), way, (&from, &to));
        let finished = run(&mut command().with(&options)).expect(0);
        assert_eq!(contents(&to), upper(&from), "{way:?}");
        assert_no_leftovers(&to);
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
        // Whatever its size is: unchanged is what has the same time.
        fs::remove_file(&log).unwrap();
        run(&mut command().with(&options)).expect(0);
        assert!(!log.exists(), "{way:?}");
    }
    assert!(!place.path().join("injected").exists());
}

/// A command that reads a part is none that fails; its output may be shorter or longer.
#[test]
fn the_output_has_any_size() {
    let place = tempfile::tempdir().unwrap();
    let from = place.path().join("from");
    source(&from);
    for (number, text) in ["head -c 3", "cat; echo; head -c 70000 /dev/zero", "true"]
        .into_iter()
        .enumerate()
    {
        let to = place.path().join(number.to_string());
        for copied in [true, false] {
            let options = ["--json", "--filter-cmd", text];
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

/// The others are done, what was there stays, and nothing half written gets a name.
#[test]
fn a_filter_that_fails_fails_its_file_alone() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    source(&from);
    write(&to.join("old"), b"what was there");
    let fails = "cat; case $LONGHAUL_NAME in old|large) echo broken >&2; exit 3;; esac";
    for _ in 0..2 {
        let options = ["--json", "--filter-cmd", fails];
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
    run(&mut local(&from, &to, &["--filter-cmd", "tr a-z A-Z"])).expect(0);
    assert_eq!(fs::read(to.join("large")).unwrap(), vec![b'X'; LARGE]);
    assert_eq!(fs::read(to.join("old")).unwrap(), b"LOWER CASE");
    assert_no_leftovers(&to);
}

#[test]
fn a_kill_leaves_nothing_half_filtered() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    source(&from);
    let begun = place.path().join("begun");
    let waits = format!("head -c 5; echo $$ > '{}'; sleep 3600", begun.display());
    for signal in [Signal::KILL, Signal::INT] {
        let _ = fs::remove_file(&begun);
        let running = Running::start(&mut local(&from, &to, &["--filter-cmd", &waits]));
        let began = std::time::Instant::now();
        let process = loop {
            let text = fs::read_to_string(&begun).unwrap_or_default();
            if let Some(number) = text.strip_suffix('\n') {
                break rustix::process::Pid::from_raw(number.parse().unwrap()).unwrap();
            }
            assert!(began.elapsed() < limit());
            std::thread::sleep(std::time::Duration::from_millis(10));
        };
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
fn filters_have_flows_of_their_own_and_commands_follow_them() {
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
    assert_eq!(layer.expect("a layer of its own")["flows"], 3);
    assert_eq!(contents(&to), upper(&from));
}

/// What a destination does not keep of a small file is told once, though that has two names
/// before it has its own.
#[test]
fn what_is_not_kept_is_told_once() {
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

#[test]
fn it_is_refused_where_the_output_would_be_compared_with_the_source() {
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
    // A dry run filters nothing.
    let touch = format!("touch '{}'", place.path().join("ran").display());
    run(&mut local(&from, &to, &["-n", "--filter-cmd", &touch])).expect(0);
    assert!(!place.path().join("ran").exists() && !to.exists());
    // A client's own text is nothing to a daemon.
    let daemon = Daemon::with(place.path(), &["--write", "--filter-cmd", "other=cat"]);
    let command = copy((&daemon, place.path()), Way::Push, (&from, &to));
    let refused = run(&mut command.with(&["-r", "--filter-cmd", "cat"])).expect(4);
    refused.says(&["one of other"]);
    assert!(!to.exists());
}

#[test]
fn over_ssh_files_are_filtered_on_the_far_side() {
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
