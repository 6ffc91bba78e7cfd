//! Lists of files (`--files-from`). The listed files are copied as by rsync, and each line that
//! cannot be copied is a failure.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::support::Daemon;
use crate::support::process::{Finished, longhaul, run};
use crate::support::tree::{paths, write};
use tempfile::TempDir;

fn place() -> TempDir {
    let place = tempfile::tempdir().unwrap();
    for name in ["a", "sub/n", "d/f", "d/e/g", "real/x"] {
        write(&place.path().join("s").join(name), b"1");
    }
    symlink("real", place.path().join("s/ld")).unwrap();
    place
}

/// Paths beneath a directory.
fn beneath(root: &Path) -> Vec<String> {
    let all = paths(root).into_iter();
    let all = all.map(|path| path.to_str().unwrap().to_owned());
    all.filter(|path| !path.is_empty()).collect()
}

/// The command that copies the files of `list`, on this host or from a daemon; without its
/// destination.
fn command(place: &Path, daemon: Option<&Daemon>, options: &[&str]) -> Command {
    let mut command = daemon.map_or_else(longhaul, |daemon| daemon.command("cp"));
    if daemon.is_none() {
        command.arg("cp");
    }
    command
        .current_dir(place)
        .args(options)
        .arg("--files-from=list");
    match daemon {
        Some(daemon) => command.arg(daemon.url("s")),
        None => command.arg("s"),
    };
    command
}

/// Copies the files of these lines into an empty directory `l`.
fn copy(place: &Path, daemon: Option<&Daemon>, options: &[&str], lines: &str) -> Finished {
    fs::write(place.join("list"), lines).unwrap();
    let _ = fs::remove_dir_all(place.join("l"));
    fs::create_dir(place.join("l")).unwrap();
    run(command(place, daemon, options).arg("l"))
}

// Promise 63.
#[test]
fn lists_are_copied_as_rsync_copies_them() {
    if Command::new("rsync").arg("--version").output().is_err() {
        return longhaul_testing::skip("there is no rsync: install the package rsync");
    }
    let place = place();
    let daemon = Daemon::start(place.path());
    for lines in [
        ".\n",
        "d\n",
        "d/\n",
        "d/.\n",
        "./\n",
        "d/./f\n",
        "d/./e\n",
        "sub/./n\nd/./f\n",
        "d/./\n",
        "d/e/../f\n",
        "/d/f\n",
        "d/./e/\n",
        ".\nd/e/g\n",
        "a\nd\nd/e\n",
    ] {
        for options in [&["-a"][..], &["-ar"], &["-r"]] {
            let reference = place.path().join("r");
            let _ = fs::remove_dir_all(&reference);
            fs::create_dir(&reference).unwrap();
            fs::write(place.path().join("list"), lines).unwrap();
            let mut rsync = Command::new("rsync");
            rsync.current_dir(place.path()).args(["-lpt"]).args(options);
            let status = rsync.args(["--files-from=list", "s", "r"]).status();
            assert!(status.unwrap().success());
            let expected = beneath(&reference);
            for daemon in [None, Some(&daemon)] {
                copy(place.path(), daemon, options, lines).expect(0);
                let found = beneath(&place.path().join("l"));
                assert_eq!(found, expected, "{lines:?} {options:?}");
            }
        }
    }
}

// Promise 63.
#[test]
fn each_line_that_cannot_be_copied_is_a_failure() {
    let place = place();
    let daemon = Daemon::start(place.path());
    let long = format!("a\n{}\n", "x".repeat(300));
    for daemon in [None, Some(&daemon)] {
        for (options, lines, code, text, expected) in [
            (
                &["-r"][..],
                "ld/x\na\n",
                2,
                "ld/x: ld is a link",
                &["a"][..],
            ),
            (&["-a"], "ld/\na\n", 2, "ld is a link", &["a"]),
            (&["-a"], "ld\nld/x\n", 2, "ld is a link", &["ld"]),
            (&["-aL"], "ld/x\n", 0, "", &["ld", "ld/x"]),
            (
                &["-a"],
                "a/y\nd/f\n",
                2,
                "a/y: a is not a directory",
                &["d", "d/f"],
            ),
            (
                &["-a"],
                "real/x/y/z\n",
                2,
                "real/x/y/z: real/x is not",
                &["real"],
            ),
            (&["-a"], "a\na/y\n", 2, "a/y: a is not a directory", &["a"]),
            (
                &["-a"],
                "a\n..\n",
                2,
                "..: it leads out of the source",
                &["a"],
            ),
            (&["-a"], "../s/a\na\n", 2, "leads out", &["a"]),
            (&["-a"], "missing\na\n", 2, "missing", &["a"]),
            (
                &["-ar"],
                "d\nd/missing\n",
                2,
                "d/missing",
                &["d", "d/e", "d/f", "d/e/g"],
            ),
            (
                &["-a"],
                "d/\nd/missing/x\n",
                2,
                "d/missing",
                &["d", "d/e", "d/f"],
            ),
            (&["-a"], "none/./x\na\n", 2, "none", &["a"]),
            (&["-a"], &long, 2, "listed path", &["a"]),
            (&["-a"], "# none\n", 0, "", &[]),
        ] {
            copy(place.path(), daemon, options, lines)
                .expect(code)
                .says(&[text]);
            assert_eq!(beneath(&place.path().join("l")), expected, "{lines:?}");
        }
    }
}

// Promise 63.
#[test]
fn the_destination_gets_the_mode_of_the_source_only_if_the_source_is_listed() {
    let place = place();
    let daemon = Daemon::start(place.path());
    let mode = |path: &str, mode: u32| {
        fs::set_permissions(place.path().join(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    mode("s", 0o700);
    for daemon in [None, Some(&daemon)] {
        for (lines, expected) in [
            ("a\n", 0o755),
            (".\n", 0o700),
            ("a\n./\n", 0o700),
            ("d/./f\n", 0o755),
        ] {
            fs::write(place.path().join("list"), lines).unwrap();
            let _ = fs::remove_dir_all(place.path().join("m"));
            fs::create_dir(place.path().join("m")).unwrap();
            mode("m", 0o755);
            run(command(place.path(), daemon, &["-a"]).arg("m")).expect(0);
            let found = fs::metadata(place.path().join("m")).unwrap().mode() & 0o777;
            assert_eq!(found, expected, "{lines:?}");
        }
    }
}

// Promise 65.
#[test]
fn a_pull_accepts_a_long_list() {
    let place = place();
    let daemon = Daemon::start(place.path());
    let lines: String = (0..4000)
        .map(|at| format!("many/a rather long name of file {at}\n"))
        .collect();
    for line in lines.lines().step_by(40) {
        write(&place.path().join("s").join(line), b"1");
    }
    let done = copy(place.path(), Some(&daemon), &["-a", "-q"], &lines).expect(2);
    done.says(&["many/a rather long name of file 1:"]);
    assert_eq!(beneath(&place.path().join("l")).len(), 101);
    // The client receives a refusal while it still sends the list.
    let mut command = daemon.command("cp");
    command
        .current_dir(place.path())
        .args(["-a", "--files-from=list"]);
    run(command.arg(daemon.url("../outside")).arg("l"))
        .expect(4)
        .says(&["no such path"]);
}
