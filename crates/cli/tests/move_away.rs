//! `cp --move`: a source file goes once it is durable at the destination, and no other.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use support::process::{longhaul, run};
use support::proxy::Proxy;
use support::random::Random;
use support::tree::{set_modified, write};
use support::ways::{WAYS, copy, names, slashed};
use support::{Daemon, daemon};

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
        // What only seemed to be there was copied.
        assert_eq!(fs::read(to.join("damaged")).unwrap(), b"good", "{way:?}");
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

/// Between the last look while it was read and the removal somebody may write to it: what is
/// durable at the destination is not what is here.
#[test]
fn what_changed_after_it_was_copied_stays() {
    const LENGTH: usize = 200 << 10;
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("root");
    fs::create_dir(&root).unwrap();
    let daemon = Daemon::start(&root);
    let proxy = Proxy::to(daemon.address);
    let file = place.path().join("from/file");
    let data = Random::new(42).bytes(LENGTH);
    write(&file, &data);
    // All of it was read and sent, and nothing was heard of it.
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
