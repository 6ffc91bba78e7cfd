//! `cp --delete`: deletes the same names as rsync, within a host, to a daemon and from one. It
//! deletes no name if a name could not be looked up.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::Daemon;
use crate::support::process::{Finished, longhaul, run};
use crate::support::tree::{set_modified, write};
use crate::support::ways::{WAYS, Way, copy, names, rsync, slashed};
use serde_json::Value;

fn source(root: &Path) {
    for name in ["a.c", "dir/b.c", "dir/deep/c", "same", "skip/x", "big"] {
        write(&root.join(name), b"source");
    }
    write(&root.join("dir/.rsync-filter"), b"- *.o\nP *.keep\n");
}

/// Makes the destination of a mirror: the entries of the source, and further ones.
fn there(root: &Path) {
    for name in [
        "a.c",
        "dir/b.c",
        "dir/old",
        "dir/gone.o",
        "dir/x.keep",
        "dir/deep/more/a",
        "gone/one",
        "gone/two/three",
        "gone/two/four.o",
        "half/safe.o",
        "half/gone",
        "skip/there",
        "zzz",
        "old.o",
    ] {
        write(&root.join(name), b"there");
    }
    fs::create_dir_all(root.join("empty/inner")).unwrap();
    symlink("dir", root.join("link")).unwrap();
    symlink("/etc", root.join("dir/outside")).unwrap();
}

fn daemon(root: &Path) -> Daemon {
    Daemon::with(root, &["--write", "--delete"])
}

// tidy: long because each way is compared with what rsync did.
// Promise 66.
#[test]
fn a_mirror_deletes_the_same_names_as_rsync_on_every_route() {
    let place = tempfile::tempdir().unwrap();
    let daemon = daemon(place.path());
    let from = place.path().join("from");
    source(&from);
    write(&place.path().join("rules"), b"- *.o\n- /skip/\n");
    write(&place.path().join("others"), b"- zzz\n");
    write(&from.join(".list"), b"*.o\n!\nzzz\n");
    write(&from.join("dir/.list.s"), b"- *.o\n- c\n");
    if Command::new("rsync").arg("--version").output().is_err() {
        return longhaul_testing::skip("there is no rsync: install the package rsync");
    }
    for (number, flags) in [
        &["--delete"][..],
        &["--delete", "--exclude=*.o"],
        &["--delete", "--exclude=*.o", "--delete-excluded"],
        &[
            "--delete",
            "--exclude=*.o",
            "--delete-excluded",
            "-f",
            "P zzz",
        ],
        &["--delete", "-f", "P /gone/", "-f", "H *.c"],
        &["--delete", "-f", "P gone/one"],
        &["--delete", "-f", "R *.o", "-f", "- *.o", "-f", "-r zzz"],
        &["--delete", "--exclude=/skip"],
        &["--delete", "-f", "-s /skip/"],
        &["--delete", "-F"],
        &["--delete", "--max-size=1"],
        &["--delete", "-x", "--exclude=inner/"],
        &["--delete", "--delete-excluded", "-f", "-sr /skip/"],
        &[
            "--delete",
            "--delete-excluded",
            "-f",
            "-rs *.o",
            "-f",
            "-s zzz",
        ],
        &[
            "--delete",
            "--delete-excluded",
            "-f",
            "+sr /old.o",
            "-f",
            "-sr *.o",
        ],
        &["--delete", "-f", ".s ../rules", "-f", ".r ../others"],
        &[
            "--delete",
            "--delete-excluded",
            "-f",
            ".sr ../rules",
            "-f",
            ". ../others",
        ],
        &["--delete", "--delete-excluded", "-f", ":-sr .list"],
        &["--delete", "-f", ":-r .list"],
        &["--delete", "-f", ":s .list.s"],
        &["--delete", "-f", ":-w .list"],
    ]
    .into_iter()
    .enumerate()
    {
        let to = |way: &str| {
            let to = place.path().join(format!("{way}{number}"));
            there(&to);
            to
        };
        let expected = to("rsync");
        let mut rsync = Command::new("rsync");
        rsync
            .current_dir(&from)
            .arg("-rlt")
            .arg("--delete-after")
            .args(flags);
        let status = rsync.arg(slashed(&from)).arg(&expected).status().unwrap();
        assert!(status.success(), "{flags:?}");
        let expected = names(&expected);
        let local = to("local");
        let before = names(&local);
        let mut command = longhaul();
        command.current_dir(&from).args(["cp", "-rn"]).args(flags);
        let dry = run(command.arg(slashed(&from)).arg(&local)).expect(0);
        assert_eq!(names(&local), before, "{flags:?}");
        let output = String::from_utf8(dry.output).unwrap();
        let told = output.lines().filter_map(|line| {
            let (_, path) = line.strip_prefix("would delete ")?.split_once(' ')?;
            Some(PathBuf::from(path))
        });
        let told: BTreeSet<PathBuf> = told.collect();
        let gone: BTreeSet<PathBuf> = before.difference(&expected).cloned().collect();
        assert_eq!(told, gone, "{flags:?}");
        let top = from.clone();
        let copy = |mut command: Command, from: OsString, to: OsString| {
            command.current_dir(&top).arg("-r").args(flags);
            run(command.arg(from).arg(to)).expect(0);
        };
        let mut command = longhaul();
        command.arg("cp");
        copy(command, slashed(&from), local.clone().into());
        assert_eq!(names(&local), expected, "{flags:?}");
        let pushed = to("push");
        copy(
            daemon.command("cp"),
            slashed(&from),
            daemon.url(format!("push{number}/")),
        );
        assert_eq!(names(&pushed), expected, "{flags:?}: to a daemon");
        let pulled = to("pull");
        copy(
            daemon.command("cp"),
            daemon.url("from/"),
            pulled.clone().into(),
        );
        assert_eq!(names(&pulled), expected, "{flags:?}: from a daemon");
    }
}

fn mirror(flags: &[&str], from: &Path, to: &Path) -> Finished {
    let mut command = longhaul();
    command.args(["cp", "-r", "--delete"]).args(flags);
    run(command.arg(slashed(from)).arg(to))
}

#[test]
fn only_copied_directories_are_searched_for_deletion() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    source(&from);
    write(&to.join("from/old"), b"x");
    write(&to.join("beside"), b"x");
    let mut command = longhaul();
    run(command.args(["cp", "-r", "--delete"]).arg(&from).arg(&to)).expect(0);
    assert!(to.join("beside").exists() && !to.join("from/old").exists());
    // A directory that was made without what it holds was not listed.
    write(&to.join("from/dir/deep/old"), b"x");
    write(&to.join("from/old"), b"x");
    let mut command = longhaul();
    command.args(["cp", "-r", "--delete", "--max-depth=2"]);
    run(command.arg(&from).arg(&to)).expect(0);
    assert!(to.join("from/dir/deep/old").exists() && !to.join("from/old").exists());
}

// Promise 66.
#[test]
fn a_failure_or_an_empty_source_or_too_many_names_prevents_deletion() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    source(&from);
    there(&to);
    let before = names(&to);
    let kept = |finished: Finished, code: i32, text: &str| {
        finished.expect(code).says(&["nothing was deleted", text]);
        assert!(before.is_subset(&names(&to)), "{text}");
    };
    let count = before.len();
    kept(mirror(&["--max-delete=3"], &from, &to), 2, "--max-delete");
    kept(
        mirror(&["-n", "--max-delete=0"], &from, &to),
        2,
        "--max-delete",
    );
    // The rules of the source cannot be used.
    write(&from.join("dir/.rsync-filter"), b"nothing\n");
    kept(mirror(&["-F"], &from, &to), 2, "entries failed");
    fs::remove_file(from.join("dir/.rsync-filter")).unwrap();
    // A conflict at the destination.
    write(&to.join("a.c"), b"there");
    write(&to.join("a.c~/file"), b"x");
    kept(mirror(&["-b"], &from, &to), 2, "entries failed");
    fs::remove_dir_all(to.join("a.c~")).unwrap();
    let empty = place.path().join("nothing");
    fs::create_dir(&empty).unwrap();
    kept(mirror(&[], &empty, &to), 2, "is empty");
    kept(mirror(&["-n"], &empty, &to), 2, "is empty");
    // If there are no names to delete, an empty source is not an error.
    let other = place.path().join("empty, too");
    for flags in [&[][..], &["-n"], &["--exclude=kept"]] {
        mirror(flags, &empty, &other).expect(0);
        if flags.is_empty() {
            write(&other.join("kept"), b"kept");
            kept(mirror(&[], &empty, &other), 2, "is empty");
            fs::remove_file(other.join("kept")).unwrap();
        }
    }
    write(&other.join("kept"), b"kept");
    mirror(&["--exclude=kept"], &empty, &other).expect(0);
    assert!(other.join("kept").exists());
    let mut command = longhaul();
    command.args(["cp", "-r", "--delete"]);
    let missing = place.path().join("missing");
    run(command.arg(&missing).arg(&from).arg(&to)).expect(2);
    assert!(before.is_subset(&names(&to)) && count > 20);
    fs::remove_dir_all(to.join("from")).unwrap();
    mirror(&["--max-delete=30"], &from, &to).expect(0);
    assert_eq!(names(&to), names(&from));
}

// Promise 68.
#[test]
fn deletion_at_a_daemon_needs_its_own_right() {
    let place = tempfile::tempdir().unwrap();
    source(&place.path().join("from"));
    there(&place.path().join("to"));
    let daemon = Daemon::start(place.path());
    for dry in [&["-n"][..], &[]] {
        let mut command = daemon.command("cp");
        command.args(["-r", "--delete"]).args(dry);
        command.arg(slashed(&place.path().join("from")));
        let refused = run(command.arg(daemon.url("to/")));
        refused
            .expect(4)
            .says(&["has no right to delete at /to", "serve --write --delete"]);
        assert!(place.path().join("to/zzz").exists());
    }
}

#[test]
fn directories_keep_their_modes_and_times() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    source(&from);
    there(&to);
    fs::set_permissions(from.join("dir"), fs::Permissions::from_mode(0o555)).unwrap();
    fs::create_dir(to.join("gone/closed")).unwrap();
    write(&to.join("gone/closed/x"), b"x");
    fs::set_permissions(to.join("gone/closed"), fs::Permissions::from_mode(0o555)).unwrap();
    set_modified(&from.join("dir"), 1_000_000, 5);
    mirror(&[], &from, &to).expect(0);
    assert_eq!(names(&to), names(&from));
    let status = fs::metadata(to.join("dir")).unwrap();
    assert_eq!(status.mode() & 0o7777, 0o555);
    assert_eq!((status.mtime(), status.mtime_nsec()), (1_000_000, 5));
    fs::set_permissions(from.join("dir"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(to.join("dir"), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn deleted_names_are_counted_and_listed() {
    let place = tempfile::tempdir().unwrap();
    let daemon = daemon(place.path());
    let from = place.path().join("from");
    source(&from);
    for (flags, planned) in [(&["-n"][..], true), (&[], false)] {
        for pulls in [true, false] {
            let to = place.path().join(format!("to{planned}{pulls}"));
            source(&to);
            write(&to.join("gone/one"), b"12345");
            let mut command = daemon.command("cp");
            command.args(["-r", "--delete", "--json"]).args(flags);
            if pulls {
                command.arg(daemon.url("from/")).arg(&to)
            } else {
                let url = daemon.url(to.file_name().unwrap());
                command.arg(slashed(&from)).arg(url)
            };
            let output = String::from_utf8(run(&mut command).expect(0).output).unwrap();
            let events: Vec<Value> = output
                .lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect();
            let deleted = events.iter().filter(|event| event["event"] == "deleted");
            let deleted: Vec<&Value> = deleted.collect();
            assert_eq!(deleted.len(), 2, "{output}");
            assert_eq!(deleted[0]["path"], "gone/one");
            assert_eq!(deleted[0]["size"], 5);
            assert_eq!(deleted[0]["planned"], planned);
            assert_eq!(deleted[1]["directory"], true);
            let summary = events.last().unwrap();
            assert_eq!(summary["deleted_entries"], 2);
            assert_eq!(summary["deleted_bytes"], 5);
            assert_eq!(to.join("gone").exists(), planned);
        }
    }
}

#[test]
fn impossible_deletions_are_refused_with_a_reason() {
    let place = tempfile::tempdir().unwrap();
    let from = place.path().join("from");
    source(&from);
    let list = place.path().join("list");
    write(&list, b"dir\n");
    let files = format!("--files-from={}", list.display());
    for (flags, sources, text) in [
        (&["--delete"][..], &["from/"][..], "add -r"),
        (
            &["-r", "--delete"],
            &["from/", "from/dir/"],
            "several sources",
        ),
        (&["-r", "--delete", &files], &["from/"], "listed files"),
    ] {
        let mut command = longhaul();
        command.current_dir(place.path()).arg("cp").args(flags);
        let refused = run(command.args(sources).arg("to"));
        refused.expect(1).says(&[text]);
    }
    let mut command = longhaul();
    command
        .args(["cp", "-r", "--delete"])
        .arg(&from)
        .arg("null:");
    run(&mut command).expect(1).says(&["null:"]);
}

/// Files of rules that are not copied also protect, in a dry run too. The destination's files of
/// rules protect in addition.
// Promise 67.
#[test]
fn rules_that_are_not_copied_protect() {
    let place = tempfile::tempdir().unwrap();
    let daemon = daemon(place.path());
    let from = place.path().join("from");
    source(&from);
    for way in WAYS {
        let to = place.path().join(format!("to{way:?}"));
        there(&to);
        // This file clears its own rules, but not those of the source.
        write(&to.join("dir/.rsync-filter"), b"!\nP own\n");
        write(&to.join("dir/own"), b"there");
        let before = names(&to);
        let flags = ["-r", "-v", "--delete", "-FF"];
        let copy = |more: &[&str]| {
            let command = copy((&daemon, place.path()), way, (&from, &to));
            let done = run(&mut command.with(&[&flags[..], more].concat())).expect(0);
            String::from_utf8(done.output).unwrap()
        };
        let planned = copy(&["-n"]);
        assert_eq!(names(&to), before);
        assert!(
            planned.contains("dir/old") && !planned.contains("gone.o"),
            "{planned}"
        );
        copy(&[]);
        for kept in ["dir/gone.o", "dir/x.keep", "dir/own", "dir/.rsync-filter"] {
            assert!(to.join(kept).exists(), "{kept}, {way:?}");
        }
        assert!(!to.join("dir/old").exists() && !to.join("old.o").exists());
    }
}

/// A per-directory file names another file of rules, which is a link at the source.
#[test]
fn rules_of_files_that_a_per_directory_file_names_protect() {
    let place = tempfile::tempdir().unwrap();
    let daemon = daemon(place.path());
    let from = place.path().join("from");
    source(&from);
    write(&from.join("more"), b"- *.keep\n");
    symlink("../more", from.join("dir/rules")).unwrap();
    write(&from.join("dir/.rsync-filter"), b". ./rules\n. ./../more\n");
    for way in WAYS {
        for flag in ["-F", "-FF"] {
            let to = place.path().join(format!("to{way:?}{flag}"));
            there(&to);
            let before = names(&to);
            let copy = |more: &[&str]| {
                let command = copy((&daemon, place.path()), way, (&from, &to));
                let flags = ["-r", "-v", "--delete", flag];
                let done = run(&mut command.with(&[&flags[..], more].concat())).expect(0);
                String::from_utf8(done.output).unwrap()
            };
            let planned = copy(&["-n"]);
            assert_eq!(names(&to), before);
            assert!(!planned.contains("x.keep"), "{way:?} {flag}: {planned}");
            assert!(planned.contains("dir/old"), "{way:?} {flag}: {planned}");
            copy(&[]);
            assert!(to.join("dir/x.keep").exists(), "{way:?} {flag}");
            assert!(!to.join("dir/old").exists(), "{way:?} {flag}");
            // This directory has its own rules and is missing at the source.
            write(&to.join("gone/.rsync-filter"), b". ./rules\n");
            write(&to.join("gone/rules"), b"P kept\n");
            write(&to.join("gone/kept"), b"there");
            write(&to.join("gone/not"), b"there");
            copy(&[]);
            assert!(to.join("gone/kept").exists(), "{way:?} {flag}");
            assert!(!to.join("gone/not").exists(), "{way:?} {flag}");
        }
    }
}

/// The rules in the destination directory itself apply to the copied directory, as with rsync's -F.
// Promise 67.
#[test]
fn rules_above_the_copied_directories_protect() {
    let place = tempfile::tempdir().unwrap();
    let from = place.path().join("from");
    source(&from);
    let Some(mut rsync) = rsync() else { return };
    let [ours, theirs] = ["ours", "theirs"].map(|name| place.path().join(name));
    for to in [&ours, &theirs] {
        there(&to.join("from"));
        write(&to.join(".rsync-filter"), b"P zzz\n");
    }
    let status = rsync
        .args(["-r", "-F", "--delete-after"])
        .arg(&from)
        .arg(&theirs)
        .status();
    assert!(status.unwrap().success());
    let mut command = longhaul();
    run(command
        .args(["cp", "-r", "-F", "--delete"])
        .arg(&from)
        .arg(&ours))
    .expect(0);
    assert_eq!(names(&ours), names(&theirs));
    assert!(ours.join("from/zzz").exists());
}

/// In a directory that the source does not have, entries below a certain depth stay.
// Promise 66.
#[test]
fn very_deep_entries_are_not_deleted() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    write(&from.join("same"), b"same");
    let deep = ["d"; 105].join("/");
    write(&to.join("gone").join(&deep).join("file"), b"deep");
    write(&to.join("gone/file"), b"gone");
    mirror(&["--delete"], &from, &to)
        .expect(2)
        .says(&["more than 100 directories lie within each other"]);
    assert!(to.join("gone").join(deep).join("file").exists());
    assert!(!to.join("gone/file").exists());
}

/// Runs a script with the binary and two directories in a mount namespace. Returns `None`, with a
/// message, if mounts are not allowed.
fn mounting(script: &str, (from, to): (&Path, &Path)) -> Option<Finished> {
    if !crate::support::is_root() {
        return None;
    }
    let mut shell = Command::new("unshare");
    shell.args(["-m", "sh", "-c", script]);
    shell.arg(longhaul().get_program()).args([from, to]);
    shell.env("LONGHAUL_CONFIG_DIR", "/nonexistent/longhaul");
    shell.env("XDG_STATE_HOME", "/nonexistent/state");
    Some(run(&mut shell))
}

/// A bind mount has the device of the file system that it is of, which may be the same.
// Promise 66.
#[test]
fn mount_points_at_the_destination_are_not_deleted() {
    let place = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| place.path().join(name));
    write(&from.join("same"), b"same");
    write(&place.path().join("elsewhere/precious"), b"precious");
    fs::create_dir_all(to.join("gone/mounted")).unwrap();
    write(&to.join("gone/file"), b"gone");
    let script = "mount --bind \"$1/../elsewhere\" \"$2/gone/mounted\" || exit 99\n\
                  exec \"$0\" cp -r --delete \"$1/\" \"$2\"";
    let Some(done) = mounting(script, (&from, &to)) else {
        return;
    };
    done.expect(2).says(&["gone/mounted", "mount point"]);
    assert!(place.path().join("elsewhere/precious").exists());
    assert!(!to.join("gone/file").exists());
}

/// If a file system of the source is unmounted before the names are compared, its mount point is an
/// empty directory. The copied files must not be deleted.
// Promise 66.
#[test]
fn an_unmount_at_the_source_during_the_copy_prevents_deletion() {
    let place = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| place.path().join(name));
    fs::create_dir_all(from.join("a/disk")).unwrap();
    write(&from.join("z"), &vec![7; 6 << 20]);
    write(&to.join("gone"), b"gone");
    // The large file is copied last and slowly.
    let script = "mount -t tmpfs tmpfs \"$1/a/disk\" || exit 99\n\
                  echo x >\"$1/a/disk/file\"\n\
                  \"$0\" cp -r --delete --bwlimit 1MB/s \"$1/\" \"$2\" & copy=$!\n\
                  until [ -e \"$2/a/disk/file\" ]; do kill -0 $copy || exit 98; sleep 0.02; done\n\
                  umount -l \"$1/a/disk\" || exit 97\n\
                  wait $copy";
    let Some(done) = mounting(script, (&from, &to)) else {
        return;
    };
    done.expect(2)
        .says(&["a/disk", "another file system than when it was copied"]);
    assert!(to.join("a/disk/file").exists() && to.join("gone").exists());
}

/// With `-x`, other file systems at the destination stay, and this is not a failure.
#[test]
fn mount_points_at_the_destination_stay_with_one_file_system() {
    let place = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| place.path().join(name));
    write(&from.join("same"), b"same");
    write(&place.path().join("elsewhere/precious"), b"precious");
    for name in ["gone/bound", "gone/other", "top"] {
        fs::create_dir_all(to.join(name)).unwrap();
    }
    write(&to.join("gone/file"), b"gone");
    let script = "mount --bind \"$1/../elsewhere\" \"$2/gone/bound\" || exit 99\n\
                  mount -t tmpfs tmpfs \"$2/gone/other\" || exit 99\n\
                  mount -t tmpfs tmpfs \"$2/top\" || exit 99\n\
                  echo kept >\"$2/top/kept\"\n\
                  \"$0\" cp -rx --delete \"$1/\" \"$2\" || exit 98\n\
                  [ -e \"$2/top/kept\" ]";
    let Some(done) = mounting(script, (&from, &to)) else {
        return;
    };
    done.expect(0);
    assert!(place.path().join("elsewhere/precious").exists());
    assert!(!to.join("gone/file").exists());
}

/// Names that the source does not have are names of the source itself, where the destination is a
/// directory around it, within it or the same by another name.
// Promise 66.
#[test]
fn a_destination_that_contains_the_source_or_lies_in_it_is_not_deleted() {
    let place = tempfile::tempdir().unwrap();
    let daemon = Daemon::with(place.path(), &["--write", "--delete"]);
    for way in [Way::Push, Way::Pull] {
        let top = place.path().join(format!("{way:?}"));
        write(&top.join("data/f"), b"data");
        write(&top.join("data/out/kept"), b"data");
        write(&top.join("other"), b"data");
        let mirror = |from: &str, to: &str, options: &[&str]| {
            let ends = (&*top.join(from), &*top.join(to));
            let command = copy((&daemon, place.path()), way, ends);
            run(&mut command.with(&[&["-r", "--delete"], options].concat()))
        };
        mirror("data", "", &[])
            .expect(2)
            .says(&["data", "nothing was deleted at the destination"]);
        mirror("data", "data", &["--delete-excluded", "--exclude=f"])
            .expect(2)
            .says(&["is by another name the directory"]);
        mirror("", "data/out", &["--max-depth=4"]).says(&["nothing was deleted"]);
        for name in ["data/f", "data/out/kept", "other"] {
            assert!(top.join(name).exists(), "{way:?}: {name}");
        }
        crate::support::assert_no_leftovers(&top);
    }
}

/// An excluded directory is not part of the source.
#[test]
fn a_mirror_within_an_excluded_directory_of_the_source_deletes() {
    let place = tempfile::tempdir().unwrap();
    let daemon = Daemon::with(place.path(), &["--write", "--delete"]);
    for way in [Way::Push, Way::Pull] {
        let top = place.path().join(format!("{way:?}"));
        write(&top.join("f"), b"data");
        write(&top.join("mirror/gone"), b"data");
        let to = top.join("mirror");
        let command = copy((&daemon, place.path()), way, (&top, &to));
        run(&mut command.with(&["-r", "--delete", "--exclude=/mirror/"])).expect(0);
        assert!(
            to.join("f").exists() && !to.join("gone").exists(),
            "{way:?}"
        );
    }
}

/// A directory of the source that is mounted beneath the destination.
#[test]
fn a_source_directory_mounted_at_the_destination_is_not_deleted() {
    let place = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| place.path().join(name));
    write(&from.join("sub/excluded"), b"data");
    write(&from.join("f"), b"data");
    fs::create_dir_all(to.join("sub")).unwrap();
    let script = "mount --bind \"$1/sub\" \"$2/sub\" || exit 99\n\
                  exec \"$0\" cp -r --delete-excluded --exclude=excluded \"$1/\" \"$2\"";
    let Some(done) = mounting(script, (&from, &to)) else {
        return;
    };
    done.expect(2)
        .says(&["nothing was deleted at the destination"]);
    assert!(from.join("sub/excluded").exists());
}
