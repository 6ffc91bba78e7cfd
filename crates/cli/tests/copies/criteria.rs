//! When `cp` copies: each criterion does within a host, to a daemon and from one what rsync's
//! option of that name does.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::Daemon;
use crate::support::process::{longhaul, run};
use crate::support::tree::{paths, set_modified, write};
use crate::support::ways::slashed;
use serde_json::Value;

/// Returns the files of a destination with contents and times.
fn state(root: &Path) -> BTreeMap<PathBuf, (Vec<u8>, i64, i64)> {
    let files = paths(root).into_iter();
    let files = files.filter(|path| !path.as_os_str().is_empty());
    files
        .map(|path| {
            let whole = root.join(&path);
            let status = whole.symlink_metadata().unwrap();
            let text = if status.is_file() {
                std::fs::read(&whole).unwrap()
            } else {
                Vec::new()
            };
            // All copies set the times of directories, whatever changed in them.
            let time = if status.is_dir() {
                (0, 0)
            } else {
                (status.mtime(), status.mtime_nsec())
            };
            (path, (text, time.0, time.1))
        })
        .collect()
}

/// Makes a pair of trees with one name for each way in which two files can differ.
fn sides(root: &Path, kind: &str) -> PathBuf {
    let (from, to) = (root.join("from"), root.join(kind));
    for (name, source, there) in [
        ("same", ("text", 5), Some(("text", 5))),
        ("damaged", ("text", 5), Some(("TEXT", 5))),
        ("touched", ("text", 5), Some(("text", 9))),
        ("newer", ("source", 5), Some(("there", 900))),
        ("older", ("source", 900), Some(("there", 5))),
        ("same size", ("one", 5), Some(("two", 7))),
        ("near", ("text", 100), Some(("TEXT", 101))),
        ("near and longer", ("source", 101), Some(("there", 100))),
        (
            "less near and longer",
            ("source", 102),
            Some(("there", 100)),
        ),
        ("as old and longer", ("source", 100), Some(("there", 100))),
        ("new", ("new", 5), None),
        ("there/new", ("new", 5), None),
        ("there/old", ("old", 5), Some(("old", 5))),
        ("absent/deep/new", ("new", 5), None),
    ] {
        let put = |root: &Path, (text, time): (&str, i64)| {
            write(&root.join(name), text.as_bytes());
            set_modified(&root.join(name), time, 0);
        };
        put(&from, source);
        if let Some(there) = there {
            put(&to, there);
        }
    }
    std::fs::create_dir_all(from.join("absent/empty")).unwrap();
    to
}

// Promise 19.
#[test]
fn each_criterion_copies_the_same_files_as_rsync_on_every_route() {
    let place = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(place.path());
    if Command::new("rsync").arg("--version").output().is_err() {
        return longhaul_testing::skip("there is no rsync: install the package rsync");
    }
    for (number, flags) in [
        &[][..],
        &["-c"],
        &["-u"],
        &["--existing"],
        &["--ignore-existing"],
        &["--existing", "--ignore-existing"],
        &["--size-only"],
        &["-I"],
        &["--modify-window=1"],
        &["-u", "-c"],
        &["-u", "--modify-window=1"],
        &["-u", "--modify-window=2"],
        &["-c", "--existing"],
    ]
    .into_iter()
    .enumerate()
    {
        let to = |way: &str| sides(place.path(), &format!("{way}{number}"));
        let from = slashed(&place.path().join("from"));
        let expected = to("rsync");
        let mut rsync = Command::new("rsync");
        rsync.args(["-rlt"]).args(flags).arg(&from).arg(&expected);
        assert!(rsync.status().unwrap().success());
        let expected = state(&expected);
        let copy = |mut command: Command, from: &OsString, to: &OsString| {
            run(command.arg("-r").args(flags).arg(from).arg(to)).expect(0);
        };
        let local = to("local");
        let before = state(&local);
        let mut command = longhaul();
        let dry = run(command
            .args(["cp", "-rn"])
            .args(flags)
            .arg(&from)
            .arg(&local));
        dry.expect(0);
        assert_eq!(state(&local), before, "{flags:?}: a dry run");
        let mut command = longhaul();
        command.arg("cp");
        copy(command, &from, &local.clone().into());
        assert_eq!(state(&local), expected, "{flags:?}");
        let pushed = to("push");
        let url = daemon.url(format!("push{number}/"));
        copy(daemon.command("cp"), &from, &url);
        assert_eq!(state(&pushed), expected, "{flags:?}: to a daemon");
        let pulled = to("pull");
        copy(
            daemon.command("cp"),
            &daemon.url("from/"),
            &pulled.clone().into(),
        );
        assert_eq!(state(&pulled), expected, "{flags:?}: from a daemon");
    }
}

fn summary(command: &mut Command) -> Value {
    let output = run(command).expect(0).output;
    let mut lines = output.split(|byte| *byte == b'\n');
    let last = lines.rfind(|line| !line.is_empty()).unwrap();
    serde_json::from_slice(last).unwrap()
}

// Promise 19.
#[test]
fn entries_that_stay_are_counted_and_are_not_failures() {
    let place = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(place.path());
    sides(place.path(), "to");
    for (flags, field, count) in [
        (&["-u"][..], "newer", 4),
        (&["--existing"], "missing", 6),
        (&["--ignore-existing"], "existing", 11),
    ] {
        for dry in [&["-n"][..], &[]] {
            for pulls in [true, false] {
                sides(place.path(), "to");
                let _ = std::fs::remove_file(place.path().join("to/new"));
                let _ = std::fs::remove_file(place.path().join("to/there/new"));
                let _ = std::fs::remove_dir_all(place.path().join("to/absent"));
                let mut command = daemon.command("cp");
                command.args(["-r", "--json"]).args(flags).args(dry);
                if pulls {
                    command
                        .arg(daemon.url("from/"))
                        .arg(place.path().join("to"))
                } else {
                    command
                        .arg(slashed(&place.path().join("from")))
                        .arg(daemon.url("to"))
                };
                let summary = summary(&mut command);
                assert_eq!(summary["left_out"][field], count, "{flags:?} {summary}");
                assert_eq!(summary["failed_entries"], 0);
            }
        }
    }
}

/// A dry run with `-c` names what verify finds, and the copy mends it.
// Promise 20.
#[test]
fn a_copy_by_contents_fixes_the_differences_that_verify_finds() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    for (root, text) in [(&from, "text"), (&to, "TEXT")] {
        write(&root.join("damaged"), text.as_bytes());
        write(&root.join("same"), b"same");
        set_modified(&root.join("damaged"), 5, 0);
        set_modified(&root.join("same"), 5, 0);
    }
    let verify = || {
        let mut command = longhaul();
        run(command.arg("verify").arg(&from).arg(&to))
    };
    let copy = |flags: &[&str]| {
        let mut command = longhaul();
        command.arg("cp").args(flags).arg(slashed(&from)).arg(&to);
        run(&mut command).expect(0)
    };
    verify().expect(5);
    copy(&["-r"]);
    verify().expect(5);
    let named = copy(&["-rcnv"]).output;
    assert_eq!(String::from_utf8(named).unwrap(), "changed damaged\n");
    verify().expect(5);
    copy(&["-rc"]);
    verify().expect(0);
    let mut command = longhaul();
    command.args(["cp", "-rc", "--integrity=checksum"]);
    let refused = run(command.arg(slashed(&from)).arg(&to));
    refused.expect(1).says(&["--checksum", "--integrity"]);
}
