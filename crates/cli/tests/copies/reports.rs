//! Reports of `cp` about each entry, and its ends before all entries are done.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::support::Daemon;
use crate::support::process::{longhaul, run};
use crate::support::tree::{set_modified, write};
use crate::support::ways::{WAYS, copy, slashed};
use serde_json::Value;

fn place() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    for (root, name, text, time) in [
        (&from, "new", "new", 5),
        (&from, "same", "same", 5),
        (&to, "same", "same", 5),
        (&from, "newer", "old", 5),
        (&to, "newer", "new", 9),
        (&from, "x.o", "object", 5),
        (&from, "large", "more than eight", 5),
        (&from, "conflict", "file", 5),
        (&to, "conflict/x", "x", 5),
    ] {
        write(&root.join(name), text.as_bytes());
        set_modified(&root.join(name), time, 0);
    }
    place
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn lines(report: &Path) -> Vec<Value> {
    let text = fs::read_to_string(report).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn entry<'a>(lines: &'a [Value], path: &str) -> &'a Value {
    let mut found = lines.iter().filter(|line| line["path"] == path);
    let first = found.next().unwrap_or_else(|| panic!("{path}: {lines:?}"));
    assert!(found.next().is_none(), "{path} twice: {lines:?}");
    first
}

#[test]
fn each_entry_has_a_line_on_every_route() {
    for way in WAYS {
        let place = place();
        let daemon = Daemon::start(place.path());
        let (report, log) = (place.path().join("report"), place.path().join("log"));
        let [from, to] = ["from", "to"].map(|name| place.path().join(name));
        let command = copy((&daemon, place.path()), way, (&from, &to));
        let mut command = command.with(&["-r", "-u", "--exclude=*.o", "--max-size=8"]);
        command
            .arg("--report")
            .arg(&report)
            .arg("--log-file")
            .arg(&log);
        run(&mut command).expect(2);
        let lines = lines(&report);
        for (path, what) in [
            ("new", "copied"),
            ("same", "unchanged"),
            ("newer", "left"),
            ("x.o", "skipped"),
            ("large", "skipped"),
            ("conflict", "failed"),
        ] {
            assert_eq!(entry(&lines, path)["entry"], what, "{way:?}: {lines:?}");
        }
        assert_eq!(lines.len(), 6, "{way:?}: {lines:?}");
        assert_eq!(entry(&lines, "newer")["reason"], "newer");
        assert_eq!(entry(&lines, "x.o")["rule"], "- *.o");
        assert_eq!(entry(&lines, "large")["reason"], "size");
        assert_eq!(entry(&lines, "conflict")["kind"], "Conflict");
        let log = fs::read_to_string(&log).unwrap();
        // Unchanged entries have no line in the log.
        assert_eq!(log.lines().count(), 7, "{log}");
        assert!(log.contains("skipped x.o (rule: - *.o)"), "{log}");
        let first = log.lines().next().unwrap();
        assert!(
            first.contains(" begun: ") && first.contains(" to "),
            "{log}"
        );
        assert!(first.contains("from/") && first.contains("to"), "{log}");
    }
}

#[test]
fn existing_directories_have_no_line_on_any_route() {
    for way in WAYS {
        let place = tempfile::tempdir().unwrap();
        let daemon = Daemon::start(place.path());
        let [from, to] = ["from", "to"].map(|name| place.path().join(name));
        write(&from.join("deep/er/a"), b"a");
        fs::create_dir(from.join("empty")).unwrap();
        let report = place.path().join("report");
        let log = place.path().join("log");
        let run_it = |flags: &[&str]| {
            let command = copy((&daemon, place.path()), way, (&from, &to));
            let mut command = command.with(&["-r"]);
            command.arg("--report").arg(&report).args(flags);
            run(command.arg("--log-file").arg(&log)).expect(0);
            let lines = lines(&report);
            let named = lines.iter().map(|line| {
                let path = line["path"].as_str().unwrap();
                (path.to_owned(), line["entry"].as_str().unwrap().to_owned())
            });
            let mut named: Vec<(String, String)> = named.collect();
            named.sort();
            named
        };
        let of = |path: &str, what: &str| (path.to_owned(), what.to_owned());
        let made = ["deep", "deep/er", "deep/er/a", "empty"].map(|path| of(path, "copied"));
        assert_eq!(run_it(&[]), made, "{way:?}");
        fs::remove_file(&log).unwrap();
        assert_eq!(run_it(&[]), [of("deep/er/a", "unchanged")], "{way:?}");
        let quiet = fs::read_to_string(&log).unwrap();
        assert_eq!(quiet.lines().count(), 2, "{quiet}");
        assert!(quiet.contains("0 copied, 1 unchanged"), "{quiet}");
        run_it(&["-v"]);
        let asked = fs::read_to_string(&log).unwrap();
        assert!(asked.contains("unchanged deep/er/a"), "{asked}");
        // A directory that gets a file is not a new entry. Only its time is corrected.
        write(&from.join("empty/b"), b"b");
        let expected = [
            of("deep/er/a", "unchanged"),
            of("empty", "attributes"),
            of("empty/b", "copied"),
        ];
        assert_eq!(run_it(&[]), expected, "{way:?}");
        // A directory that gets a file and had the time of the source is unchanged.
        write(&from.join("deep/er/c"), b"c");
        for root in [&from, &to] {
            set_modified(&root.join("deep/er"), 77, 0);
        }
        let expected = [
            of("deep/er/a", "unchanged"),
            of("deep/er/c", "copied"),
            of("empty/b", "unchanged"),
        ];
        assert_eq!(run_it(&[]), expected, "{way:?}");
        run_it(&["-n"]);
        let dry = fs::read_to_string(&log).unwrap();
        assert!(
            dry.contains("(dry run)\n") && dry.contains("0 would be copied"),
            "{dry}"
        );
    }
}

/// Makes `from` and `to` the same, and then changes owner, mode or time at `to`.
fn place_with_other_attributes() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| place.path().join(name));
    for root in [&from, &to] {
        for file in ["mode", "same", "d_time/a", "d_mode/b", "d_same/c", "time"] {
            write(&root.join(file), b"data");
            set_modified(&root.join(file), 5, 0);
        }
        std::os::unix::fs::symlink("same", root.join("link")).unwrap();
        set_modified(&root.join("link"), 5, 0);
        for directory in ["d_time", "d_mode", "d_same"] {
            set_modified(&root.join(directory), 5, 0);
        }
    }
    set_mode(&to.join("mode"), 0o600);
    set_mode(&to.join("d_mode"), 0o700);
    for changed in ["d_time", "link", "time"] {
        set_modified(&to.join(changed), 9, 0);
    }
    place
}

/// A copy reports the same entries as its dry run: those of which only owner, mode or time differs.
#[test]
fn changes_of_attributes_are_reported_as_in_a_dry_run_on_every_route() {
    for way in WAYS {
        for flags in [&["-rc"][..], &["-ac"], &["-rc", "-H"]] {
            let place = place_with_other_attributes();
            let daemon = Daemon::start(place.path());
            let [from, to] = ["from", "to"].map(|name| place.path().join(name));
            let (report, log) = (place.path().join("report"), place.path().join("log"));
            let run_it = |more: &[&str]| {
                let command = copy((&daemon, place.path()), way, (&from, &to));
                let mut command = command.with(&[flags, &["--json"], more].concat());
                command.arg("--report").arg(&report);
                let summary = run(command.arg("--log-file").arg(&log)).expect(0).summary();
                let named = lines(&report).into_iter().map(|line| {
                    let path = line["path"].as_str().unwrap().to_owned();
                    (path, line["entry"].as_str().unwrap().to_owned())
                });
                let named: std::collections::BTreeMap<String, String> = named.collect();
                let counts = ["fixed_entries", "skipped_entries", "skipped_bytes"];
                (named, counts.map(|count| summary[count].as_u64().unwrap()))
            };
            let planned = run_it(&["-n"]);
            assert_eq!(run_it(&[]), planned, "{way:?} {flags:?}");
            let (named, counts) = planned;
            let changed = named.iter().filter(|(_, what)| *what == "attributes");
            let changed: Vec<&str> = changed.map(|(path, _)| path.as_str()).collect();
            assert_eq!(changed, ["d_mode", "d_time", "link", "mode", "time"]);
            assert_eq!(counts, [5, 7, 24], "{named:?}");
            let log = fs::read_to_string(&log).unwrap();
            assert!(log.contains(" attributes d_mode\n"), "{log}");
            assert!(
                log.contains("0 copied, 4 unchanged, 5 with other attributes"),
                "{log}"
            );
            let (again, [0, ..]) = run_it(&[]) else {
                panic!("{way:?} {flags:?}: it does not converge");
            };
            assert!(again.values().all(|what| what == "unchanged"), "{again:?}");
        }
    }
}

/// The names on the terminal are those of the dry run.
#[test]
fn a_copy_names_changed_attributes_as_its_dry_run_does() {
    let place = place_with_other_attributes();
    let [from, to] = ["from", "to"].map(|name| place.path().join(name));
    let names = |flags: &[&str]| {
        let mut command = longhaul();
        command.args(["cp", "-rc"]).args(flags).arg(slashed(&from));
        let finished = run(command.arg(&to)).expect(0);
        let text = String::from_utf8(finished.output).unwrap() + &finished.errors;
        let lines = text.lines().filter(|line| line.starts_with("attributes "));
        let mut lines: Vec<String> = lines.map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let planned = names(&["-nv"]);
    assert_eq!(planned.len(), 5, "{planned:?}");
    assert_eq!(names(&["-v"]), planned);
}

/// A hole moves as a note of a few bytes.
#[test]
fn holes_are_counted_and_excluded_from_rates_on_every_route() {
    for way in WAYS {
        let place = tempfile::tempdir().unwrap();
        let daemon = Daemon::start(place.path());
        let [from, to] = ["from", "to"].map(|name| place.path().join(name));
        fs::create_dir(&from).unwrap();
        let file = fs::File::create(from.join("f")).unwrap();
        file.set_len(64 << 20).unwrap();
        drop(file);
        let run_it = |flags: &[&str]| {
            let command = copy((&daemon, place.path()), way, (&from, &to));
            run(&mut command.with(flags)).expect(0)
        };
        run_it(&["-r"]).says(&["(0 B/s, ", "holes, which are in no rate: 67.1 MB"]);
        fs::remove_file(to.join("f")).unwrap();
        assert_eq!(run_it(&["-r", "--json"]).summary()["hole_bytes"], 64 << 20);
    }
}

/// A file with different contents is copied, and is not counted as corrected.
#[test]
fn a_file_with_different_contents_and_mode_is_reported_as_copied_only() {
    let place = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| place.path().join(name));
    for (root, text, mode) in [(&from, b"one", 0o640), (&to, b"two", 0o600)] {
        write(&root.join("f"), text);
        set_mode(&root.join("f"), mode);
        set_modified(&root.join("f"), 5, 0);
        set_modified(root, 5, 0);
    }
    let mut command = longhaul();
    command.args(["cp", "-r", "--verify", "--json"]);
    let summary = run(command.arg(slashed(&from)).arg(&to))
        .expect(0)
        .summary();
    assert_eq!(
        (&summary["files"], &summary["fixed_entries"]),
        (&1.into(), &0.into())
    );
}

#[test]
fn a_comparison_has_a_report_and_a_log() {
    let place = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(place.path());
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    for (root, name, text) in [
        (&from, "same", "same"),
        (&to, "same", "same"),
        (&from, "other", "one"),
        (&to, "other", "two"),
        (&from, "gone/x", "x"),
        (&from, "x.o", "object"),
    ] {
        write(&root.join(name), text.as_bytes());
    }
    fs::create_dir(from.join("cache")).unwrap();
    let local = |path: &Path| slashed(path);
    let ends = [
        (local(&from), local(&to)),
        (local(&from), daemon.url("to/")),
        (daemon.url("from/"), local(&to)),
    ];
    for (left, right) in ends {
        let (report, log) = (place.path().join("report"), place.path().join("log"));
        let mut command = daemon.command("verify");
        command
            .args(["--exclude=*.o", "--json", "--report"])
            .arg(&report);
        command.arg("--log-file").arg(&log).arg(&left).arg(&right);
        let finished = run(&mut command).expect(5);
        finished.says(&["cache: is missing at the destination"]);
        let errors = run(daemon
            .command("verify")
            .arg("--exclude=*.o")
            .arg(&left)
            .arg(&right));
        let errors = errors.expect(5).errors;
        assert!(errors.contains("differ: "), "{errors}");
        assert!(
            !errors.contains("failed: ") && !errors.contains("meanwhile"),
            "{errors}"
        );
        let lines = lines(&report);
        assert_eq!(entry(&lines, "same")["entry"], "compared");
        assert_eq!(entry(&lines, "other")["kind"], "Differs");
        assert_eq!(entry(&lines, "cache")["kind"], "Differs");
        assert_eq!(entry(&lines, "x.o")["rule"], "- *.o");
        let log = fs::read_to_string(&log).unwrap();
        assert!(
            log.contains(" compared with ") && !log.contains("compared same"),
            "{log}"
        );
        assert!(log.contains("1 the same, "), "{log}");
        let verified = run(daemon
            .command("verify")
            .args(["--exclude=*.o", "--json"])
            .arg(&left)
            .arg(&right));
        let verified = verified.expect(5);
        let events = verified.events();
        let of = |kind: &str| events.iter().filter(|event| event["event"] == kind).count();
        assert_eq!((of("compared"), of("committed")), (1, 0));
        fs::remove_file(place.path().join("log")).unwrap();
    }
}

#[test]
fn a_report_names_deleted_entries() {
    let place = place();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    fs::remove_dir_all(to.join("conflict")).unwrap();
    write(&to.join("gone/x"), b"123");
    let report = place.path().join("report");
    for (flags, what) in [(&["-n"][..], "would_delete"), (&[], "deleted")] {
        let mut command = longhaul();
        command
            .args(["cp", "-r", "--delete", "--report"])
            .arg(&report);
        command.args(flags).arg(slashed(&from)).arg(&to);
        run(&mut command).expect(0);
        let lines = lines(&report);
        let gone = entry(&lines, "gone/x");
        assert_eq!((&gone["entry"], &gone["bytes"]), (&what.into(), &3.into()));
        assert_eq!(entry(&lines, "gone")["directory"], true);
    }
}

fn many(place: &Path) -> (PathBuf, PathBuf) {
    let (from, to) = (place.join("from"), place.join("to"));
    for number in 0..20 {
        write(&from.join(format!("f{number:02}")), b"x");
        write(&to.join(format!("f{number:02}/x")), b"x");
    }
    (from, to)
}

// Promise 41.
#[test]
fn a_copy_ends_after_max_errors() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = many(place.path());
    let mut command = longhaul();
    command
        .args(["cp", "-r", "--max-errors=3"])
        .arg(slashed(&from));
    run(command.arg(&to))
        .expect(2)
        .says(&["--max-errors", "resumes"]);
    let mut command = longhaul();
    command
        .args(["cp", "-r", "--max-errors=20"])
        .arg(slashed(&from));
    let finished = run(command.arg(&to)).expect(2);
    assert!(
        !finished.errors.contains("--max-errors"),
        "{}",
        finished.errors
    );
}

// Promise 41.
#[test]
fn a_copy_ends_in_order_at_its_time_limit_and_resumes() {
    let place = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(place.path());
    let from = place.path().join("from");
    write(&from.join("large"), &vec![7; 30 << 20]);
    let copy = |flags: &[&str]| {
        let mut command = daemon.command("cp");
        command.arg("-r").args(flags).arg(slashed(&from));
        run(command.arg(daemon.url("to/")))
    };
    let slow = ["--stop-after=2s", "--bwlimit=5MB/s", "--compress=off"];
    let stopped = copy(&slow).expect(8);
    stopped.says(&["its time was over", "resumes"]);
    assert!(!place.path().join("to/large").exists());
    copy(&["--stop-after=10"]).expect(0);
    let copied = fs::read(place.path().join("to/large")).unwrap();
    assert_eq!(copied.len(), 30 << 20);
    copy(&["--stop-at=2001-01-01T00:00"])
        .expect(1)
        .says(&["is over"]);
}

#[test]
fn short_help_is_short_and_long_help_complete() {
    let short = run(longhaul().args(["cp", "-h"])).expect(0).output;
    let short = String::from_utf8(short).unwrap();
    assert!(
        short.lines().count() < 60 && short.contains("--delete"),
        "{short}"
    );
    let long = run(longhaul().args(["cp", "--help"])).expect(0).output;
    let long = String::from_utf8(long).unwrap();
    assert!(long.contains("--stop-at") && long.contains("--decompressors"));
    assert!(short.lines().count() < long.lines().count());
}

// Promise 39.
#[test]
fn a_report_contains_no_control_characters() {
    let place = tempfile::tempdir().unwrap();
    let name = "a\u{9b}2J\u{202e}b\u{7f}";
    write(&place.path().join("from").join(name), b"a");
    let report = place.path().join("report");
    let mut command = longhaul();
    command
        .args(["cp", "-r", "--json", "--report"])
        .arg(&report);
    command
        .arg(place.path().join("from/"))
        .arg(place.path().join("to"));
    let output = String::from_utf8(run(&mut command).expect(0).output).unwrap();
    let text = fs::read_to_string(&report).unwrap();
    for text in [&output, &text] {
        let hidden = ['\u{1b}', '\u{9b}', '\u{202e}', '\u{7f}'];
        assert!(!text.contains(hidden), "{text:?}");
    }
    assert_eq!(entry(&lines(&report), name)["entry"], "copied");
}

/// In a directory that several users write, such a link leads to a file of its victim.
// Promise 39.
#[test]
fn links_of_other_users_are_not_followed() {
    if !crate::support::is_root() {
        return longhaul_testing::skip("only root makes links of other users");
    }
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    fs::create_dir(path("shared")).unwrap();
    write(&path("from/a"), b"a");
    write(&path("victim"), b"kept\n");
    write(&path("list"), b"secret-word\n");
    let link = |name: &str, to: &str| {
        std::os::unix::fs::symlink(path(to), path(name)).unwrap();
        std::os::unix::fs::lchown(path(name), Some(65_000), None).unwrap();
    };
    link("shared/out", "victim");
    link("shared/raw.raw", "victim");
    link("shared/in", "list");
    let copy = |option: &str, file: &str| {
        let mut command = longhaul();
        command.args(["cp", "-r", option]).arg(path(file));
        run(command.arg(path("from/")).arg(path("to")))
    };
    for option in ["--log-file", "--report", "--manifest"] {
        copy(option, "shared/out")
            .expect(6)
            .says(&["a link of another user (number 65000)"]);
        assert_eq!(fs::read(path("victim")).unwrap(), b"kept\n");
    }
    for option in ["--exclude-from", "--include-from", "--files-from"] {
        let done = copy(option, "shared/in");
        assert_ne!(done.code, Some(0), "{option}");
        assert!(
            done.errors.contains("a link of another user"),
            "{}",
            done.errors
        );
        assert!(!done.errors.contains("secret-word"), "{}", done.errors);
    }
    // A link of the user is followed.
    std::os::unix::fs::symlink(path("log"), path("own")).unwrap();
    copy("--log-file", "own").expect(0);
    assert!(fs::read_to_string(path("log")).unwrap().contains("ended"));
}
