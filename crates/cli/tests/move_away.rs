//! `cp --move`: a source file goes once it is durable at the destination, and no other.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use support::Daemon;
use support::process::{longhaul, run};
use support::tree::{paths, set_modified, write};

fn slashed(path: &Path) -> OsString {
    let mut path = path.as_os_str().to_owned();
    path.push("/");
    path
}

fn names(root: &Path) -> BTreeSet<PathBuf> {
    let names = paths(root).into_iter();
    names.filter(|path| !path.as_os_str().is_empty()).collect()
}

/// Names that stay: directories, and what is not at the destination as it is here.
fn source(root: &Path) {
    for (name, text) in [
        ("new", "new"),
        ("dir/new", "new"),
        ("there", "same"),
        ("damaged", "good"),
        ("newer", "old"),
        ("conflict", "file"),
        ("left.o", "x"),
    ] {
        write(&root.join(name), text.as_bytes());
        set_modified(&root.join(name), 1_000_000, 5);
    }
    write(&root.join("large"), &vec![7; 9 << 20]);
    symlink("new", root.join("link")).unwrap();
}

fn there(root: &Path) {
    for (name, text, time) in [
        ("there", "same", 1_000_000),
        ("damaged", "evil", 1_000_000),
        ("newer", "new", 2_000_000),
        ("conflict/file", "x", 5),
    ] {
        write(&root.join(name), text.as_bytes());
        set_modified(&root.join(name), time, 5);
    }
}

#[test]
fn what_is_durable_there_goes_and_the_rest_stays_on_every_way() {
    let place = tempfile::tempdir().unwrap();
    let daemon = Daemon::with(place.path(), &["--write", "--delete"]);
    for way in ["local", "push", "pull"] {
        let (from, to) = (
            place.path().join(way),
            place.path().join(format!("{way}-to")),
        );
        source(&from);
        there(&to);
        let mut command = match way {
            "local" => {
                let mut command = longhaul();
                command.arg("cp");
                command
            }
            _ => daemon.command("cp"),
        };
        command.args(["-r", "-u", "--move", "--exclude=*.o"]);
        match way {
            "pull" => command.arg(daemon.url("pull/")).arg(&to),
            "push" => command.arg(slashed(&from)).arg(daemon.url("push-to")),
            _ => command.arg(slashed(&from)).arg(&to),
        };
        run(&mut command).expect(2).says(&["conflict"]);
        let left: BTreeSet<PathBuf> = ["dir", "newer", "conflict", "left.o"]
            .into_iter()
            .map(PathBuf::from)
            .collect();
        assert_eq!(names(&from), left, "{way}");
        // What only seemed to be there was copied.
        assert_eq!(fs::read(to.join("damaged")).unwrap(), b"good", "{way}");
        assert_eq!(fs::read(to.join("newer")).unwrap(), b"new");
        assert_eq!(fs::read(to.join("large")).unwrap().len(), 9 << 20);
        assert!(to.join("link").is_symlink() && to.join("dir/new").exists());
    }
}

#[test]
fn a_dry_run_moves_nothing_and_reading_alone_is_no_right() {
    let place = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(place.path());
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    source(&from);
    let before = names(&from);
    let mut command = longhaul();
    command.args(["cp", "-rn", "--move"]).arg(slashed(&from));
    run(command.arg(&to)).expect(0);
    assert_eq!(names(&from), before);
    let mut command = daemon.command("cp");
    command.args(["-r", "--move"]).arg(daemon.url("from/"));
    run(command.arg(&to)).expect(4).says(&["right to delete"]);
    assert_eq!(names(&from), before);
    for (flags, text) in [
        (&["--delete"][..], "would be deleted"),
        (&["-L"], "links"),
        (&["--integrity=checksum"], "--move"),
    ] {
        let mut command = longhaul();
        command
            .args(["cp", "-r", "--remove-source-files"])
            .args(flags);
        run(command.arg(slashed(&from)).arg(&to))
            .expect(1)
            .says(&[text]);
    }
    assert_eq!(names(&from), before);
}
