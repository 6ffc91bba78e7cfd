//! `cp --move`: a source file goes once it is durable at the destination, and no other.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::process::{Finished, longhaul, run};
use crate::support::proxy::Proxy;
use crate::support::random::Random;
use crate::support::sshd::{Sshd, at_dtn, is_possible};
use crate::support::tree::{set_modified, write};
use crate::support::ways::{WAYS, Way, copy, names, slashed};
use crate::support::{Daemon, daemon};
use rustix::fs::{Timespec, Timestamps};

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

// Promise 69.
#[test]
fn durable_sources_are_removed_and_the_others_stay_on_every_route() {
    let place = tempfile::tempdir().unwrap();
    let daemon = Daemon::with(place.path(), &["--write", "--delete"]);
    for way in WAYS {
        let [from, to] = ["from", "to"].map(|name| place.path().join(format!("{name}{way:?}")));
        source(&from);
        there(&to);
        let command = copy((&daemon, place.path()), way, (&from, &to));
        let mut command = command.with(&["-r", "-u", "--move", "--exclude=*.o"]);
        run(&mut command).expect(2).says(&["conflict"]);
        let left: BTreeSet<PathBuf> = ["dir", "newer", "conflict", "left.o"]
            .into_iter()
            .map(PathBuf::from)
            .collect();
        assert_eq!(names(&from), left, "{way:?}");
        // A file with equal size and time but other contents was copied.
        assert_eq!(fs::read(to.join("damaged")).unwrap(), b"good", "{way:?}");
        assert_eq!(fs::read(to.join("newer")).unwrap(), b"new");
        assert_eq!(fs::read(to.join("large")).unwrap().len(), 9 << 20);
        assert!(to.join("link").is_symlink() && to.join("dir/new").exists());
    }
}

#[test]
fn a_dry_run_moves_no_file_and_moving_needs_more_than_the_right_to_read() {
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
    run(command.arg(&to))
        .expect(4)
        .says(&["has no right to delete", "--delete"]);
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

/// Another process may write to a source between its last check and its removal. The changed source
/// must stay, because the copy has the older contents.
// Promise 69.
#[test]
fn a_source_that_changed_after_its_copy_stays() {
    const LENGTH: usize = 200 << 10;
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("root");
    fs::create_dir(&root).unwrap();
    let daemon = Daemon::start(&root);
    let proxy = Proxy::to(daemon.address);
    let file = place.path().join("from/file");
    let data = Random::new(42).bytes(LENGTH);
    write(&file, &data);
    // The whole file was read and sent, and the answer was held back.
    let (handle, changes, changed) = (
        proxy.handle(),
        file.clone(),
        Arc::new(AtomicBool::new(false)),
    );
    let noted = Arc::clone(&changed);
    proxy.after(LENGTH as u64, move || {
        handle.hold(|| fs::write(&changes, b"changed").unwrap());
        noted.store(true, Ordering::Relaxed);
    });
    let mut command = longhaul();
    command
        .args(["cp", "-r", "--move", "--fingerprint", &daemon.fingerprint])
        .arg("--token-file")
        .arg(daemon.tokens_for(proxy.address))
        .arg(slashed(&place.path().join("from")))
        .arg(daemon::url(proxy.address, "to"));
    run(&mut command)
        .expect(2)
        .says(&["it was copied, and then changed at the source, where it stays"]);
    assert!(changed.load(Ordering::Relaxed));
    assert_eq!(fs::read(&file).unwrap(), b"changed");
    assert!(fs::read(root.join("to/file")).unwrap() == data);
}

/// A tree with a directory that was changed long ago.
fn run7(root: &Path) {
    write(&root.join("a"), b"a");
    write(&root.join("sub/b"), b"b");
    symlink("a", root.join("link")).unwrap();
    let time = Timestamps {
        last_access: seconds(5),
        last_modification: seconds(1_000_000),
    };
    let directory = fs::File::open(root.join("sub")).unwrap();
    rustix::fs::futimens(directory, &time).unwrap();
}

fn seconds(seconds: i64) -> Timespec {
    Timespec {
        tv_sec: seconds,
        tv_nsec: 0,
    }
}

/// Everything stayed, also the time of the directory beneath the destination.
fn assert_run7(root: &Path, way: &str) {
    for name in ["a", "sub/b", "link"] {
        assert!(root.join(name).symlink_metadata().is_ok(), "{way}: {name}");
    }
    let status = fs::metadata(root.join("sub")).unwrap();
    assert_eq!(status.mtime(), 1_000_000, "{way}");
    crate::support::assert_no_leftovers(root);
}

// Promise 69.
#[test]
fn a_directory_moved_onto_itself_keeps_its_files() {
    let place = tempfile::tempdir().unwrap();
    let daemon = Daemon::with(place.path(), &["--write", "--delete"]);
    for way in [Way::Push, Way::Pull] {
        let same = place.path().join(format!("{way:?}"));
        run7(&same);
        let command = copy((&daemon, place.path()), way, (&same, &same));
        run(&mut command.with(&["-r", "--move"]))
            .expect(2)
            .says(&["a: stays at the source", "by another name"]);
        assert_run7(&same, &format!("{way:?}"));
    }
}

#[test]
fn a_directory_that_ssh_reaches_by_another_name_keeps_its_files() {
    if !is_possible() {
        return;
    }
    let (sshd, place) = (Sshd::start(), tempfile::tempdir().unwrap());
    let same = place.path().join("run7");
    run7(&same);
    let here = (same.clone().into_os_string(), at_dtn(place.path()));
    let there = (at_dtn(&same), place.path().as_os_str().to_owned());
    for (from, to) in [here, there] {
        let mut command = sshd.command("cp");
        run(command.args(["-r", "--move"]).arg(from).arg(to))
            .expect(2)
            .says(&["run7/a: stays at the source", "by another name"]);
        assert_run7(&same, "ssh");
    }
}

/// A file that gets another name in the directory that it is in.
#[test]
fn a_file_is_renamed_within_its_directory() {
    let place = tempfile::tempdir().unwrap();
    let daemon = Daemon::with(place.path(), &["--write", "--delete"]);
    let file = place.path().join("old");
    write(&file, b"data");
    for (from, to) in [("old", "new"), ("new", "newer")] {
        let mut command = daemon.command("cp");
        command.arg("--move").arg(place.path().join(from));
        run(command.arg(daemon.url(to))).expect(0);
        assert!(!place.path().join(from).exists());
        assert_eq!(fs::read(place.path().join(to)).unwrap(), b"data");
    }
    // Two names of one file.
    fs::hard_link(place.path().join("newer"), place.path().join("other")).unwrap();
    let mut command = daemon.command("cp");
    command.arg("--move").arg(place.path().join("newer"));
    run(command.arg(daemon.url("other"))).expect(2);
    assert_eq!(fs::read(place.path().join("newer")).unwrap(), b"data");
}

/// Runs a script with the binary and the directory in a mount namespace. Returns `None`, with a
/// message, if mounts are not allowed.
fn mounting(script: &str, place: &Path) -> Option<Finished> {
    if !crate::support::is_root() {
        return None;
    }
    let mut shell = Command::new("unshare");
    shell.args(["-m", "sh", "-c", script]);
    shell.arg(longhaul().get_program()).arg(place);
    shell.env("LONGHAUL_CONFIG_DIR", "/nonexistent/longhaul");
    shell.env("XDG_STATE_HOME", "/nonexistent/state");
    Some(run(&mut shell))
}

/// A bind mount below the destination, of a directory of the source.
// Promise 69.
#[test]
fn a_directory_that_is_mounted_at_the_destination_keeps_its_files() {
    let place = tempfile::tempdir().unwrap();
    for name in ["from/same/f", "from/other/g"] {
        write(&place.path().join(name), b"data");
    }
    fs::create_dir_all(place.path().join("to/same")).unwrap();
    let script = "cd \"$1\" && mount --bind from/same to/same || exit 99\n\
                  exec \"$0\" cp -r --move from/ to";
    let Some(done) = mounting(script, place.path()) else {
        return;
    };
    done.expect(2).says(&["same/f: stays at the source"]);
    assert!(place.path().join("from/same/f").exists());
    assert!(!place.path().join("from/other/g").exists());
    assert!(place.path().join("to/other/g").exists());
}

/// Without `-r` the file that the link leads to is copied.
// Promise 69.
#[test]
fn a_named_link_is_removed_and_its_target_stays() {
    let place = tempfile::tempdir().unwrap();
    let daemon = Daemon::with(place.path(), &["--write", "--delete"]);
    let at = |name: &str| place.path().join(name);
    fs::create_dir(at("to")).unwrap();
    for (number, flags) in [&["--move"][..], &["-r", "--move"]].into_iter().enumerate() {
        for way in WAYS {
            write(&at("data/results"), b"results");
            symlink("data/results", at("latest")).unwrap();
            let local = |path: &str| at(path).into_os_string();
            let ends = match way {
                Way::Local => [local("latest"), local("to")],
                Way::Push => [local("latest"), daemon.url("to")],
                Way::Pull => [daemon.url("latest"), local("to")],
            };
            let mut command = daemon.command("cp");
            run(command.args(flags).args(ends)).expect(0);
            assert!(at("latest").symlink_metadata().is_err(), "{way:?}");
            assert_eq!(fs::read(at("data/results")).unwrap(), b"results");
            let copied = at("to/latest").symlink_metadata().unwrap();
            assert_eq!(copied.is_symlink(), number == 1, "{way:?} {flags:?}");
            fs::remove_file(at("to/latest")).unwrap();
        }
    }
}

#[test]
fn all_names_of_a_file_are_moved() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    write(&from.join("a"), b"data");
    for name in ["b", "dir/c"] {
        fs::create_dir_all(from.join("dir")).unwrap();
        fs::hard_link(from.join("a"), from.join(name)).unwrap();
    }
    let mut command = longhaul();
    command.args(["cp", "-r", "--move"]).arg(slashed(&from));
    run(command.arg(&to)).expect(0);
    assert_eq!(names(&from), BTreeSet::from(["dir".into()]));
    assert_eq!(fs::read(to.join("dir/c")).unwrap(), b"data");
}

/// An overlay contains the files of the directory below it.
#[test]
fn source_files_visible_through_an_overlay_stay() {
    let place = tempfile::tempdir().unwrap();
    write(&place.path().join("from/dir/f"), b"data");
    for name in ["upper", "work", "to"] {
        fs::create_dir(place.path().join(name)).unwrap();
    }
    let script = "mount -t tmpfs tmpfs \"$1/upper\" && cd \"$1\" && mkdir upper/u upper/w || exit 99\n\
                  mount -t overlay -o lowerdir=from,upperdir=upper/u,workdir=upper/w overlay to || exit 98\n\
                  exec \"$0\" cp -r --move from/ to";
    let Some(done) = mounting(script, place.path()) else {
        return;
    };
    done.expect(2).says(&["dir/f: stays at the source"]);
    assert!(place.path().join("from/dir/f").exists());
}
