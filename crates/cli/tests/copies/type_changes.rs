//! `cp --delete` if entries of the destination have another kind than in the source. The mirror is
//! the same as that of rsync, and only entries that are to be deleted are lost.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::process::{Finished, longhaul, make_fifo, run};
use crate::support::sshd::{Sshd, at_dtn, is_possible};
use crate::support::tree::{set_modified, write};
use crate::support::ways::{WAYS, Way, contents, copy, names, rsync, slashed};
use crate::support::{Daemon, assert_no_leftovers};

/// A time long before that of any directory that is made now.
const OLD: i64 = 1_500_000_000;

fn source(root: &Path) {
    write(&root.join("file"), b"file");
    write(&root.join("deep/inner/file"), b"inner");
    write(&root.join("large"), &vec![7; 3 << 20]);
    symlink("there", root.join("link")).unwrap();
    write(&root.join("directory/in/it"), b"it");
    fs::create_dir_all(root.join("empty")).unwrap();
    write(&root.join("of link/x"), b"x");
    write(&root.join("same"), b"same");
    for name in ["file", "deep/inner/file", "large", "same"] {
        set_modified(&root.join(name), OLD, 0);
    }
}

/// Makes the destination with an earlier state of the source.
fn there(root: &Path) {
    for name in [
        "file/a",
        "file/b/c",
        "deep/inner/file/d",
        "large/e",
        "link/f",
        "link/g/h",
        "directory",
        "empty",
        "gone",
    ] {
        write(&root.join(name), b"there");
    }
    fs::create_dir_all(root.join("link/empty")).unwrap();
    symlink("gone", root.join("of link")).unwrap();
    write(&root.join("same"), b"same");
    set_modified(&root.join("same"), OLD, 0);
}

/// Lines of a dry run about deletion.
fn foreseen(dry: &Finished) -> BTreeSet<PathBuf> {
    let output = String::from_utf8(dry.output.clone()).unwrap();
    let lines = output.lines().filter_map(|line| {
        let (_, path) = line.strip_prefix("would delete ")?.split_once(' ')?;
        Some(PathBuf::from(path.trim_end_matches('/')))
    });
    lines.collect()
}

fn mirror(flags: &[&str], from: &Path, to: &Path) -> Finished {
    let mut command = longhaul();
    command.args(["cp", "-r", "--delete"]).args(flags);
    run(command.arg(slashed(from)).arg(to))
}

// Promises 7 and 66.
#[test]
fn entries_that_changed_their_kind_are_mirrored_as_rsync_does_on_every_route() {
    let place = tempfile::tempdir().unwrap();
    let daemon = Daemon::with(place.path(), &["--write", "--delete"]);
    let from = place.path().join("from");
    source(&from);
    for (number, flags) in [
        &["--delete"][..],
        &["--delete", "--existing"],
        &["--delete", "--ignore-existing"],
        &["--delete", "--update"],
        &["--delete", "--backup-dir=../old"],
    ]
    .into_iter()
    .enumerate()
    {
        let to = |way: &str| {
            let to = place.path().join(format!("{way}{number}/to"));
            there(&to);
            to
        };
        let expected = to("rsync");
        let Some(mut command) = rsync() else { return };
        command.args(["-rlt", "--delete-after"]).args(flags);
        let backup = flags.iter().any(|flag| flag.contains("backup"));
        command.args(backup.then_some("-b"));
        let status = command.arg(slashed(&from)).arg(&expected).status().unwrap();
        // rsync searches below files that it leaves in place of directories, and fails.
        let fails = flags.contains(&"--ignore-existing");
        assert!(
            status.success() || fails && status.code() == Some(23),
            "{flags:?}"
        );
        let above = |to: &Path| to.parent().unwrap().to_owned();
        let before = contents(&from);
        for way in WAYS {
            let to = to(&format!("{way:?}"));
            let with = || copy((&daemon, place.path()), way, (&from, &to));
            run(&mut with().with(&[&["-r"], flags].concat())).expect(0);
            let found = contents(&above(&to));
            assert_eq!(found, contents(&above(&expected)), "{flags:?} {way:?}");
            run(&mut with().with(&[&["-r"], flags].concat())).expect(0);
            assert_eq!(contents(&above(&to)), found, "again: {flags:?} {way:?}");
            assert_no_leftovers(&above(&to));
        }
        assert_eq!(contents(&from), before);
    }
}

#[test]
fn a_dry_run_lists_the_entries_that_are_replaced() {
    let place = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| place.path().join(name));
    source(&from);
    there(&to);
    let before = contents(&to);
    let dry = mirror(&["-n"], &from, &to).expect(0);
    assert_eq!(contents(&to), before);
    let told = foreseen(&dry);
    mirror(&[], &from, &to).expect(0);
    let after = names(&to);
    let kinds = [
        "file",
        "large",
        "link",
        "deep/inner/file",
        "directory",
        "empty",
        "of link",
    ];
    let gone: BTreeSet<PathBuf> = before
        .keys()
        .filter(|path| !after.contains(*path))
        .cloned()
        .collect();
    let expected = gone.into_iter().chain(kinds.map(PathBuf::from));
    assert_eq!(told, expected.collect());
    let count = told.len().to_string();
    let less = (told.len() - 1).to_string();
    for flags in [&["-n"][..], &[]] {
        let other = place.path().join("other");
        let _ = fs::remove_dir_all(&other);
        there(&other);
        // An entry that a directory replaces is removed at once.
        for name in ["directory", "empty", "of link"] {
            fs::remove_file(other.join(name)).unwrap();
        }
        let before = contents(&other);
        let few = (told.len() - 4).to_string();
        let limited = [flags, &["--max-delete", &few]].concat();
        mirror(&limited, &from, &other)
            .expect(2)
            .says(&["--max-delete", "there is a directory of that name"]);
        let after = contents(&other);
        assert!(
            before
                .iter()
                .all(|(path, data)| after.get(path) == Some(data))
        );
        assert_no_leftovers(&other);
    }
    let other = place.path().join("more");
    there(&other);
    mirror(&["--max-delete", &less], &from, &other)
        .expect(2)
        .says(&["--max-delete"]);
    assert!(other.join("gone").exists() && other.join("file/b/c").exists());
    mirror(&["--max-delete", &count], &from, &other).expect(0);
    assert_eq!(contents(&other), contents(&from));
}

/// If an entry in a directory stays, the directory stays, and its replacement fails.
// Promise 66.
#[test]
fn a_directory_with_a_protected_entry_is_not_replaced() {
    let place = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| place.path().join(name));
    source(&from);
    for flags in [&["-n"][..], &[]] {
        let _ = fs::remove_dir_all(&to);
        there(&to);
        let flags = [flags, &["-f", "P c"]].concat();
        mirror(&flags, &from, &to)
            .expect(2)
            .says(&["file: there is a directory of that name"]);
        assert_eq!(fs::read(to.join("file/b/c")).unwrap(), b"there");
        assert_no_leftovers(&to);
    }
    assert!(!to.join("gone").exists() && !to.join("link").is_dir());
    let modified = fs::metadata(from.join("deep")).unwrap().mtime();
    assert_eq!(fs::metadata(to.join("deep")).unwrap().mtime(), modified);
    // The directory itself may be protected, too.
    let again = tempfile::tempdir().unwrap();
    let to = again.path().join("to");
    there(&to);
    mirror(&["-f", "P /file/"], &from, &to)
        .expect(2)
        .says(&["filters protect it"]);
    assert_eq!(fs::read(to.join("file/a")).unwrap(), b"there");
    // Leftovers of another copy.
    let other = again.path().join("other");
    there(&other);
    write(
        &other.join("file/.longhaul-0000000000000001-1.tmp"),
        b"left",
    );
    mirror(&[], &from, &other)
        .expect(2)
        .says(&["file: there is a directory"]);
    assert!(other.join("file/.longhaul-0000000000000001-1.tmp").exists());
}

/// After a failure no directory is replaced, and the next run completes.
#[test]
fn after_a_failure_no_directory_is_replaced() {
    let place = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| place.path().join(name));
    source(&from);
    there(&to);
    let before = contents(&to);
    write(&from.join("deep/.rsync-filter"), b"nothing\n");
    mirror(&["-F"], &from, &to).expect(2).says(&[
        "nothing was deleted",
        "large: there is a directory of that name",
    ]);
    let after = contents(&to);
    for (path, data) in before.iter().filter(|(path, _)| {
        !["directory", "empty", "of link"]
            .iter()
            .any(|name| path.starts_with(name))
    }) {
        assert_eq!(after.get(path), Some(data), "{path:?}");
    }
    assert_no_leftovers(&to);
    fs::remove_file(from.join("deep/.rsync-filter")).unwrap();
    mirror(&["-F"], &from, &to).expect(0);
    assert_eq!(contents(&to), contents(&from));
}

/// Sources that are named, several names of one file, a FIFO.
#[test]
fn named_sources_and_special_files_replace_directories_and_are_replaced() {
    let place = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| place.path().join(name));
    source(&from);
    there(&to);
    let mut command = longhaul();
    command.args(["cp", "-r", "--delete"]);
    command.args(["link", "file", "directory"].map(|name| from.join(name)));
    run(command.arg(&to)).expect(0);
    assert_eq!(fs::read_link(to.join("link")).unwrap(), Path::new("there"));
    assert_eq!(fs::read(to.join("file")).unwrap(), b"file");
    assert_eq!(fs::read(to.join("directory/in/it")).unwrap(), b"it");
    assert!(to.join("gone").exists());

    let to = place.path().join("linked");
    there(&to);
    fs::hard_link(from.join("file"), from.join("large again")).unwrap();
    write(&to.join("large again/old"), b"old");
    mirror(&["-H"], &from, &to).expect(0);
    assert_eq!(contents(&to), contents(&from));
    let inode = |name: &str| fs::metadata(to.join(name)).unwrap().ino();
    assert_eq!(inode("file"), inode("large again"));

    let to = place.path().join("fifo");
    fs::create_dir(&to).unwrap();
    for name in ["file", "directory", "link"] {
        make_fifo(&to.join(name));
    }
    mirror(&["-H"], &from, &to).expect(0);
    assert_eq!(contents(&to), contents(&from));
}

/// A copy that is killed between the exchange of two names and its end leaves an empty directory.
#[test]
fn an_empty_directory_that_a_killed_copy_left_is_removed() {
    let place = tempfile::tempdir().unwrap();
    let [empty, full] = [1, 2].map(|number| {
        let name = format!(".longhaul-0000000000000007-{number}.tmp");
        place.path().join(name)
    });
    fs::create_dir(&empty).unwrap();
    write(&full.join("precious"), b"precious");
    let mut command = longhaul();
    command.args(["clean", "--remove", "--older-than", "0s"]);
    run(command.arg(place.path()));
    assert!(!empty.exists() && full.join("precious").exists());
}

/// The destination holds the source, and no name of the source is replaced.
#[test]
fn a_directory_replaces_a_link_next_to_its_source() {
    let place = tempfile::tempdir().unwrap();
    let daemon = Daemon::with(place.path(), &["--write", "--delete"]);
    for way in [Way::Push, Way::Pull] {
        let top = place.path().join(format!("{way:?}"));
        write(&top.join("a/run7/f/g"), b"data");
        symlink("a/run7", top.join("run7")).unwrap();
        let from = daemon.url(format!("{way:?}/a/run7"));
        let mut command = daemon.command("cp");
        command.args(["-r", "--delete"]);
        if way == Way::Push {
            command.arg(top.join("a/run7"));
            command.arg(daemon.url(format!("{way:?}/")));
        } else {
            command.arg(from).arg(&top);
        }
        run(&mut command).expect(0);
        assert!(!top.join("run7").is_symlink(), "{way:?}");
        assert_eq!(fs::read(top.join("run7/f/g")).unwrap(), b"data", "{way:?}");
        assert_eq!(
            fs::read(top.join("a/run7/f/g")).unwrap(),
            b"data",
            "{way:?}"
        );
        // A file in the directory that the copy made before.
        fs::remove_dir_all(top.join("run7/f")).unwrap();
        write(&top.join("run7/f"), b"old");
        let mut command = daemon.command("cp");
        command.args(["-r", "--delete"]).arg(top.join("a/run7"));
        run(command.arg(daemon.url(format!("{way:?}/")))).expect(0);
        assert_eq!(fs::read(top.join("run7/f/g")).unwrap(), b"data", "{way:?}");
    }
}

/// Makes a source with a directory `x`. Files in it have the names of directories next to it.
fn source_around_its_destination(top: &Path) {
    write(&top.join("n/inner"), b"inner");
    write(&top.join("d/n/inner"), b"inner");
    write(&top.join("plain"), b"plain");
    fs::create_dir_all(top.join("x/d")).unwrap();
    write(&top.join("x/n"), b"precious");
    write(&top.join("x/d/n"), b"precious");
    make_fifo(&top.join("x/plain"));
}

fn assert_source_is_whole(top: &Path, way: &str) {
    for name in ["x/n", "x/d/n"] {
        let data = fs::read(top.join(name));
        assert_eq!(data.unwrap(), b"precious", "{way}: {name}");
    }
    let status = fs::symlink_metadata(top.join("x/plain")).unwrap();
    assert!(!status.is_file(), "{way}");
    assert_no_leftovers(top);
}

/// The destination is a directory of the source, so its contents belong to the source.
#[test]
fn a_directory_does_not_replace_a_file_of_the_source() {
    let place = tempfile::tempdir().unwrap();
    let daemon = Daemon::with(place.path(), &["--write", "--delete"]);
    for way in [Way::Push, Way::Pull] {
        let top = place.path().join(format!("{way:?}"));
        source_around_its_destination(&top);
        let command = copy((&daemon, place.path()), way, (&top, &top.join("x")));
        run(&mut command.with(&["-r", "--delete", "--max-depth=4"]))
            .expect(2)
            .says(&["n: it is not replaced by another kind of file"]);
        assert_source_is_whole(&top, &format!("{way:?}"));
    }
}

#[test]
fn a_directory_does_not_replace_a_file_of_the_source_over_ssh() {
    if !is_possible() {
        return;
    }
    let (sshd, place) = (Sshd::start(), tempfile::tempdir().unwrap());
    let top = place.path().join("top");
    source_around_its_destination(&top);
    let mut command = sshd.command("cp");
    command.args(["-r", "--delete", "--max-depth=4"]);
    run(command.arg(slashed(&top)).arg(at_dtn(top.join("x"))))
        .expect(2)
        .says(&["n: it is not replaced by another kind of file"]);
    assert_source_is_whole(&top, "ssh");
}

/// Directories are mounted beneath the destination: one of the source, and another one.
#[test]
fn a_directory_replaces_a_file_in_a_mount_that_is_not_of_the_source() {
    if !crate::support::is_root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| place.path().join(name));
    for name in ["sub/n/inner", "free/n/inner", "here/n/inner"] {
        write(&from.join(name), b"inner");
    }
    write(&from.join("other/n"), b"precious");
    write(&place.path().join("elsewhere/n"), b"old");
    write(&to.join("here/n"), b"old");
    for name in ["sub", "free"] {
        fs::create_dir_all(to.join(name)).unwrap();
    }
    let script = "mount --bind \"$1/other\" \"$2/sub\" || exit 99\n\
                  mount --bind \"$1/../elsewhere\" \"$2/free\" || exit 99\n\
                  exec \"$0\" cp -r --delete \"$1/\" \"$2\"";
    let mut shell = Command::new("unshare");
    shell.args(["-m", "sh", "-c", script]);
    shell.arg(longhaul().get_program()).args([&from, &to]);
    shell.env("LONGHAUL_CONFIG_DIR", "/nonexistent/longhaul");
    shell.env("XDG_STATE_HOME", "/nonexistent/state");
    run(&mut shell)
        .expect(2)
        .says(&["sub/n: it is not replaced by another kind of file"]);
    assert_eq!(fs::read(from.join("other/n")).unwrap(), b"precious");
    for made in [place.path().join("elsewhere"), to.join("here")] {
        assert_eq!(fs::read(made.join("n/inner")).unwrap(), b"inner");
    }
    assert_no_leftovers(place.path());
}
