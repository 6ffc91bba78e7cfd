//! `cp --backup`: what is replaced or deleted is kept as rsync keeps it, within a host, to a daemon
//! and from one, and never lost on the way there.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use crate::support::Daemon;
use crate::support::daemon::with_roots;
use crate::support::process::{longhaul, run};
use crate::support::tree::{set_modified, write};
use crate::support::ways::{WAYS, Way, contents, copy, names, rsync, slashed};

fn source(root: &Path) {
    for name in [
        "changed",
        "new",
        "same",
        "dir/changed",
        "dir/deep/changed",
        "over a link",
    ] {
        write(&root.join(name), b"source");
        set_modified(&root.join(name), 1_000_000, 5);
    }
    write(&root.join("large"), &vec![7; 9 << 20]);
    symlink("new", root.join("link")).unwrap();
}

fn there(root: &Path) {
    for (name, text) in [
        ("changed", "there before"),
        ("changed~", "an older backup"),
        ("same", "source"),
        ("dir/changed", "there before"),
        ("dir/deep/changed", "there before"),
        ("large", "there before"),
        ("gone", "too much"),
        ("gone.o", "too much"),
        ("gone~", "an older backup"),
        ("only~", "an older backup"),
        ("too much/one", "too much"),
        ("too much/two~", "an older backup"),
        ("dir/gone", "too much"),
    ] {
        write(&root.join(name), text.as_bytes());
        set_modified(&root.join(name), 1_000_000, 5);
    }
    fs::create_dir_all(root.join("empty/inner")).unwrap();
    symlink("changed", root.join("over a link")).unwrap();
    symlink("elsewhere", root.join("link")).unwrap();
    fs::set_permissions(root.join("dir"), fs::Permissions::from_mode(0o750)).unwrap();
}

// Promise 80.
#[test]
fn backups_are_those_of_rsync_on_every_route() {
    let place = tempfile::tempdir().unwrap();
    let daemon = Daemon::with(place.path(), &["--write", "--delete"]);
    let from = place.path().join("from");
    source(&from);
    for (number, flags) in [
        &["-b"][..],
        &["-b", "--suffix=.old"],
        &["-b", "--delete"],
        &["-b", "--delete", "-f", "R *~"],
        &["--backup-dir=../old"],
        &["--backup-dir=../old", "--suffix=~", "--delete"],
        &[
            "-b",
            "--backup-dir=../old/deeper",
            "--delete",
            "--exclude=*.o",
        ],
    ]
    .into_iter()
    .enumerate()
    {
        // All changes of a copy are beneath a separate directory.
        let whole = |way: &str| {
            let whole = place.path().join(format!("{way}{number}"));
            there(&whole.join("to"));
            whole
        };
        let Some(mut command) = rsync() else { return };
        let expected = whole("rsync");
        command.arg("-rlt").args(flags);
        if flags.contains(&"--delete") {
            command.arg("--delete-after");
        }
        let status = command
            .arg(slashed(&from))
            .arg(expected.join("to"))
            .status();
        assert!(status.unwrap().success(), "{flags:?}");
        for way in WAYS {
            let whole = whole(&format!("{way:?}"));
            let command = copy((&daemon, place.path()), way, (&from, &whole.join("to")));
            run(&mut command.with(&[&["-r"], flags].concat())).expect(0);
            assert_eq!(contents(&whole), contents(&expected), "{flags:?}, {way:?}");
        }
    }
}

/// The backup is the very inode of the old file, which had a name at every moment. New directories
/// for backups have no more permissions than the original ones.
// Promise 80.
#[test]
fn a_backup_is_the_old_inode() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    source(&from);
    there(&to);
    let of = |path: &Path| fs::symlink_metadata(path).unwrap();
    let before = ["changed", "large", "over a link", "gone"].map(|name| of(&to.join(name)).ino());
    let mut command = longhaul();
    command.args(["cp", "-r", "--delete", "--backup-dir=../old"]);
    run(command.arg(slashed(&from)).arg(&to)).expect(0);
    let old = place.path().join("old");
    let after = ["changed", "large", "over a link", "gone"].map(|name| of(&old.join(name)));
    assert_eq!(after.each_ref().map(MetadataExt::ino), before);
    assert!(after.iter().all(|status| status.nlink() == 1));
    assert_eq!(of(&old.join("dir")).mode() & 0o7777, 0o750);
    crate::support::assert_no_leftovers(place.path());
    // A repetition of the command makes no backup and loses none.
    let kept = contents(&old);
    let mut command = longhaul();
    command.args(["cp", "-r", "--delete", "--backup-dir=../old"]);
    run(command.arg(slashed(&from)).arg(&to)).expect(0);
    assert_eq!(contents(&old), kept);
}

/// Names of the copy equal the names of backups. A backup replaces neither a copied nor an existing
/// entry of the copy.
// Promise 80.
#[test]
fn a_backup_does_not_replace_an_entry_of_the_copy() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    for number in 0..200 {
        let name = format!("f{number:03}");
        for (suffix, text) in [("", "new"), ("~", "new, with the suffix")] {
            write(&from.join(format!("{name}{suffix}")), text.as_bytes());
        }
        write(&to.join(&name), b"older");
        let there: &[u8] = match number % 3 {
            0 => b"old, with the suffix",
            1 => b"new, with the suffix",
            _ => continue,
        };
        let beside = to.join(format!("{name}~"));
        write(&beside, there);
        if number % 3 == 1 {
            let of = from.join(format!("{name}~"));
            set_modified(&of, 1_000_000, 0);
            set_modified(&beside, 1_000_000, 0);
        }
    }
    let mut command = longhaul();
    run(command.args(["cp", "-rb"]).arg(slashed(&from)).arg(&to)).expect(0);
    let after = contents(&to);
    for (path, text) in contents(&from) {
        assert_eq!(after[&path], text, "{path:?}");
    }
    for number in 0..200 {
        let name = format!("f{number:03}");
        let kept = |text: &[u8]| {
            let mut all = after.iter();
            all.any(|(path, there)| path.to_str().unwrap().starts_with(&name) && there == text)
        };
        assert!(kept(b"older"), "{name}");
        assert!(number % 3 != 0 || kept(b"old, with the suffix"), "{name}");
    }
}

/// rsync deletes with `--delete-excluded` what it just kept.
#[test]
fn delete_excluded_does_not_delete_backups() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    source(&from);
    there(&to);
    let mut command = longhaul();
    command.args(["cp", "-rb", "--exclude=*.o", "--delete-excluded"]);
    run(command.arg(slashed(&from)).arg(&to)).expect(0);
    let after = contents(&to);
    for (name, text) in [
        ("changed~", "there before"),
        ("gone~", "too much"),
        ("gone.o~", "too much"),
        ("only~", "an older backup"),
    ] {
        assert_eq!(after[Path::new(name)], text.as_bytes(), "{name}");
    }
    assert!(!to.join("gone.o").exists() && !to.join("empty").exists());
}

#[test]
fn the_copy_writes_no_entry_into_a_backup_directory_in_the_destination() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    source(&from);
    there(&to);
    let mirror = || {
        let mut command = longhaul();
        command.args(["cp", "-r", "--delete", "--backup-dir=.old/kept"]);
        run(command.arg(slashed(&from)).arg(&to))
    };
    mirror().expect(0);
    let kept = contents(&to.join(".old/kept"));
    assert_eq!(kept[Path::new("changed")], b"there before");
    assert_eq!(kept[Path::new("too much/one")], b"too much");
    mirror().expect(0);
    assert_eq!(contents(&to.join(".old/kept")), kept);
    write(&from.join(".old/kept/changed"), b"source");
    write(&from.join(".old/kept/more"), b"source");
    mirror().expect(2).says(&["backups are kept there"]);
    assert_eq!(contents(&to.join(".old/kept")), kept);
}

/// The backup directory of an earlier run is next to the one of this run, which is made while the
/// former is deleted.
#[test]
fn older_backups_next_to_the_backup_directory_are_kept() {
    let place = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| place.path().join(name));
    write(&from.join("a"), b"a");
    write(&to.join(".old/1/x"), b"older");
    write(&to.join("gone"), b"gone");
    for flag in ["-n", "-v"] {
        let mut command = longhaul();
        command.args(["cp", "-r", "--delete", "--backup-dir=.old/2", flag]);
        run(command.arg(slashed(&from)).arg(&to)).expect(0);
    }
    let kept = contents(&to.join(".old"));
    assert_eq!(kept[Path::new("2/.old/1/x")], b"older");
    assert_eq!(kept[Path::new("2/gone")], b"gone");
    assert!(!to.join(".old/1").exists() && !to.join("gone").exists());
}

#[test]
fn an_entry_is_not_replaced_if_its_backup_cannot_be_made() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    for name in ["changed", "large"] {
        let size = if name == "large" { 9 << 20 } else { 7 };
        write(&from.join(name), &vec![7; size]);
        write(&to.join(name), b"there before");
        fs::create_dir_all(to.join(format!("{name}~"))).unwrap();
    }
    write(&from.join("long".repeat(63)), b"source");
    write(&to.join("long".repeat(63)), b"there before");
    let before = contents(&to);
    let mut command = longhaul();
    command.args(["cp", "-rb", "--suffix=~"]);
    let finished = run(command.arg(slashed(&from)).arg(&to)).expect(2);
    finished.says(&[
        "changed: ",
        "large: ",
        "a directory has the name of its backup",
    ]);
    let long = Path::new(&"long".repeat(63)).to_owned();
    let mut after = contents(&to);
    // Its backup's name is short enough.
    assert_eq!(after.remove(&long).unwrap(), b"source");
    after
        .remove(Path::new(&format!("{}~", "long".repeat(63))))
        .unwrap();
    // The data of a large file stay, so that they are not sent again.
    after.retain(|path, _| !path.to_str().unwrap().starts_with(".longhaul-"));
    assert_eq!(after.len() + 1, before.len());
    assert!(after.iter().all(|(path, text)| before[path] == *text));
    let mut command = longhaul();
    command.args(["cp", "-rIb", "--suffix=.longer"]);
    run(command.arg(from.join(&long)).arg(&to)).expect(2);
    assert_eq!(fs::read(to.join(&long)).unwrap(), b"source");
    let elsewhere = Path::new("/dev/shm");
    let device = |path: &Path| fs::metadata(path).unwrap().dev();
    if !elsewhere.exists() || device(elsewhere) == device(place.path()) {
        return longhaul_testing::skip("/dev/shm is no file system of its own");
    }
    let elsewhere = tempfile::tempdir_in(elsewhere).unwrap();
    let mut command = longhaul();
    command
        .args(["cp", "-rI", "--delete", "--backup-dir"])
        .arg(elsewhere.path());
    let finished = run(command.arg(slashed(&from)).arg(&to)).expect(2);
    finished.says(&["on another file system"]);
    assert_eq!(fs::read(to.join("changed")).unwrap(), b"there before");
    assert!(names(elsewhere.path()).is_empty());
}

// Promise 80.
#[test]
fn backups_stay_beneath_roots_with_the_right_to_write() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("root");
    let from = place.path().join("from");
    source(&from);
    there(&root.join("a/to"));
    symlink(place.path(), root.join("out")).unwrap();
    let daemon = Daemon::start(&root);
    let before = contents(place.path());
    for (directory, code, text) in [
        ("../../../old", 4, "right to write"),
        ("/../old", 4, "right to write"),
        ("/", 6, "holds it"),
        ("..", 6, "holds it"),
        (".", 6, "holds it"),
    ] {
        let mut command = daemon.command("cp");
        command.arg("-r").arg(format!("--backup-dir={directory}"));
        let refused = run(command.arg(slashed(&from)).arg(daemon.url("a/to")));
        refused.expect(code).says(&[text]);
        assert_eq!(contents(place.path()), before, "{directory}");
    }
    // No link is followed below a root.
    let mut command = daemon.command("cp");
    command.args(["-r", "--backup-dir=/out/old"]);
    run(command.arg(slashed(&from)).arg(daemon.url("a/to"))).expect(2);
    assert!(!place.path().join("old").exists());
    let kept = fs::read(root.join("a/to/changed")).unwrap();
    assert_eq!(kept, b"there before");
    let mut command = daemon.command("cp");
    command.args(["-r", "--backup-dir=/old"]);
    run(command.arg(slashed(&from)).arg(daemon.url("a/to"))).expect(0);
    let kept = fs::read(root.join("old/changed")).unwrap();
    assert_eq!(kept, b"there before");
}

/// Links in the place of the backup directory, from an earlier copy or from this one, are not
/// followed.
#[test]
fn links_do_not_lead_backups_out_of_the_destination() {
    let place = tempfile::tempdir().unwrap();
    let daemon = Daemon::with(place.path(), &["--write", "--delete"]);
    let outside = place.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let (plain, evil) = (place.path().join("plain"), place.path().join("evil"));
    source(&plain);
    source(&evil);
    symlink(&outside, evil.join(".old")).unwrap();
    for way in WAYS {
        for (number, (from, planted, directory)) in [
            (&plain, true, ".old"),
            (&plain, true, ".old/2026"),
            (&plain, true, "./.old/"),
            (&evil, false, ".old"),
            (&evil, false, ".old/2026"),
        ]
        .into_iter()
        .enumerate()
        {
            let to = place.path().join(format!("to{number}{way:?}"));
            there(&to);
            if planted {
                symlink(&outside, to.join(".old")).unwrap();
            }
            let flag = format!("--backup-dir={directory}");
            let flags = ["-r", "--delete", &flag];
            let command = copy((&daemon, place.path()), way, (from, &to));
            run(&mut command.with(&flags)).expect(2);
            assert!(names(&outside).is_empty(), "{directory}, {way:?}");
            assert!(to.join("gone").exists());
            let now = fs::read(to.join("changed")).unwrap();
            let kept = fs::read(to.join(directory).join("changed"));
            assert!(now == b"there before" || kept.unwrap() == b"there before");
        }
    }
}

/// This applies to every spelling of the directory. A path beneath the destination may contain a
/// link that an earlier copy brought.
#[test]
fn links_beneath_the_destination_are_not_followed() {
    let place = tempfile::tempdir().unwrap();
    let (from, outside) = (place.path().join("from"), place.path().join("outside"));
    source(&from);
    fs::create_dir(&outside).unwrap();
    for (number, directory) in [
        "to0/.old",
        "to1/../to1/.old",
        "to2/.old/2026",
        "./to3/./.old",
    ]
    .into_iter()
    .enumerate()
    {
        let to = place.path().join(format!("to{number}"));
        there(&to);
        symlink(&outside, to.join(".old")).unwrap();
        let mut command = longhaul();
        command.args(["cp", "-r"]).arg(format!(
            "--backup-dir={}",
            place.path().join(directory).display()
        ));
        run(command.arg(slashed(&from)).arg(&to)).expect(2);
        assert!(names(&outside).is_empty(), "{directory}");
        assert_eq!(fs::read(to.join("changed")).unwrap(), b"there before");
    }
}

/// A backup gets the name of a later entry of the copy. The comparison of that entry must not use
/// the backup.
#[test]
fn a_backup_with_the_name_of_an_entry_does_not_prevent_its_copy() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    for (root, seconds, text) in [
        (&from, 2_000_000, "from here"),
        (&to, 1_000_000, "was here_"),
    ] {
        for name in ["run", "run~"] {
            write(&root.join(name), text.as_bytes());
            set_modified(&root.join(name), seconds, 0);
        }
    }
    // The old one, which becomes a backup, is newer than what has the backup's name in the copy.
    set_modified(&from.join("run~"), 1_500_000, 0);
    set_modified(&to.join("run"), 1_900_000, 0);
    for number in 0..3000 {
        write(&from.join(format!("run{number:04}")), b"");
    }
    let mut command = longhaul();
    command.args(["cp", "-r", "-b", "-u"]);
    run(command.arg(slashed(&from)).arg(&to)).expect(0);
    for name in ["run", "run~"] {
        assert_eq!(fs::read(to.join(name)).unwrap(), b"from here", "{name}");
    }
    let old = fs::read(to.join("run~~")).unwrap();
    assert_eq!(old, b"was here_");
}

/// A principal must not read files through their backups if it may only write them.
#[test]
fn backups_are_not_made_in_a_more_readable_root() {
    let place = tempfile::tempdir().unwrap();
    let from = place.path().join("from");
    source(&from);
    let roots = ["inbox", "data"].map(|name| {
        there(&place.path().join(name).join("to"));
        let rights = if name == "inbox" {
            "\"write\""
        } else {
            "\"read\", \"write\""
        };
        let path = place.path().join(name);
        let path = path.display();
        format!("[[principal.root]]\nat = \"/{name}\"\npath = \"{path}\"\nrights = [{rights}]\n")
    });
    let (daemon, tokens) = with_roots(place.path(), &roots.concat());
    let push = |to: &str, directory: &str| {
        let mut command = longhaul();
        command.args([
            "cp",
            "-r",
            "--fingerprint",
            &daemon.fingerprint,
            "--token-file",
        ]);
        command
            .arg(&tokens)
            .arg(format!("--backup-dir={directory}"));
        let url = format!("longhaul://one@{}{to}", daemon.address);
        run(command.arg(slashed(&from)).arg(url))
    };
    push("/inbox/to", "/data/kept")
        .expect(4)
        .says(&["right to read"]);
    assert!(!place.path().join("data/kept").exists());
    push("/inbox/to", "/inbox/kept").expect(0);
    push("/data/to", "/inbox/kept too").expect(0);
}

/// One root is within another one. The outer one allows only writing, and the inner one allows
/// reading of the same files. The rule applies to paths through either root.
#[test]
fn backups_are_not_made_in_a_directory_that_another_root_reads() {
    let place = tempfile::tempdir().unwrap();
    let from = place.path().join("from");
    source(&from);
    let served = place.path().join("served");
    for to in ["to", "out/to", "old/shown/to"] {
        there(&served.join(to));
    }
    let root = |at: &str, path: &Path, rights: &str| {
        let path = path.display();
        format!("[[principal.root]]\nat = \"{at}\"\npath = \"{path}\"\nrights = [{rights}]\n")
    };
    let roots = [
        root("/in", &served, "\"write\""),
        root("/out", &served.join("out"), "\"read\""),
        root("/shown", &served.join("old/shown"), "\"read\""),
    ];
    let (daemon, tokens) = with_roots(place.path(), &roots.concat());
    let push = |to: &str, directory: &str| {
        let mut command = longhaul();
        command
            .args(["cp", "-r", "--fingerprint", &daemon.fingerprint])
            .arg("--token-file")
            .arg(&tokens)
            .arg(format!("--backup-dir={directory}"));
        let url = format!("longhaul://one@{}{to}", daemon.address);
        run(command.arg(slashed(&from)).arg(url))
    };
    for directory in [
        "/in/out/x",
        "../out/x",
        "/in/out",
        "/in/old",
        "/in/old/shown/x",
    ] {
        push("/in/to", directory).expect(4).says(&["right to read"]);
    }
    assert_eq!(
        fs::read(served.join("to/changed")).unwrap(),
        b"there before"
    );
    // Files that the principal may read anyway may have backups there.
    push("/in/out/to", "/in/out/x").expect(0);
    push("/in/to", "/in/elsewhere").expect(0);
}

/// A copy was killed after the backup was linked and before the new file had its name. The deleted
/// name is then a hard link to its own backup.
#[test]
fn a_file_that_is_a_hard_link_to_its_backup_is_deleted() {
    for flags in [&["-b"][..], &["--backup-dir=../old"]] {
        let place = tempfile::tempdir().unwrap();
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        write(&from.join("stays"), b"stays");
        write(&to.join("gone"), b"gone");
        let backup = match flags {
            ["-b"] => to.join("gone~"),
            _ => place.path().join("old/gone"),
        };
        fs::create_dir_all(backup.parent().unwrap()).unwrap();
        fs::hard_link(to.join("gone"), &backup).unwrap();
        let mut command = longhaul();
        command.args(["cp", "-r", "--delete", "--json"]).args(flags);
        let done = run(command.arg(slashed(&from)).arg(&to)).expect(0);
        assert_eq!(done.summary()["deleted_entries"], 1);
        assert!(!to.join("gone").exists(), "{flags:?}");
        assert_eq!(fs::read(backup).unwrap(), b"gone");
    }
}

#[test]
fn useless_backup_options_are_refused_with_a_reason() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    write(&file, b"x");
    for (flags, to, text) in [
        (&["-b", "--suffix=a/b"][..], "to", "no slash"),
        (&["-b", "--suffix="], "to", "not empty"),
        (&["-b"], "null:", "null:"),
    ] {
        let mut command = longhaul();
        command.current_dir(place.path()).arg("cp").args(flags);
        run(command.arg(&file).arg(to))
            .expect(1)
            .says(&[text, "--backup"]);
    }
    // Backups that would be made of a source.
    write(&place.path().join("from/file"), b"new");
    write(&place.path().join("to/file"), b"old");
    let before = contents(place.path());
    for (source, directory) in [
        ("from/", "../from"),
        ("from/", "../from/old"),
        ("from/file", "../from"),
        ("from", "../"),
        ("file", ".."),
    ] {
        let mut command = longhaul();
        command
            .current_dir(place.path())
            .args(["cp", "-r", source, "to"]);
        let refused = run(command.arg(format!("--backup-dir={directory}")));
        refused.expect(1).says(&["--backup-dir"]);
        assert_eq!(contents(place.path()), before, "{source} {directory}");
    }
}

/// A backup would replace the file of the source by the older one.
// Promise 80.
#[test]
fn backups_do_not_replace_entries_of_the_source() {
    let place = tempfile::tempdir().unwrap();
    let daemon = Daemon::with(place.path(), &["--write", "--delete"]);
    for way in [Way::Push, Way::Pull] {
        let top = place.path().join(format!("{way:?}"));
        let [from, to] = ["from", "to"].map(|name| top.join(name));
        let backups = |path: &Path| match way {
            Way::Push => format!("/{}", path.strip_prefix(place.path()).unwrap().display()),
            _ => path.display().to_string(),
        };
        for inner in ["from", "from/deep"] {
            write(&from.join("f"), b"new");
            write(&from.join("deep/f"), b"deep");
            write(&to.join("f"), b"older");
            let command = copy((&daemon, place.path()), way, (&from, &to));
            let directory = format!("--backup-dir={}", backups(&top.join(inner)));
            run(&mut command.with(&["-r", &directory]))
                .expect(2)
                .says(&["is by another name the directory for backups"]);
            assert_eq!(fs::read(from.join("f")).unwrap(), b"new", "{way:?} {inner}");
            assert_eq!(fs::read(from.join("deep/f")).unwrap(), b"deep", "{way:?}");
            assert_eq!(fs::read(to.join("f")).unwrap(), b"older", "{way:?} {inner}");
        }
        crate::support::assert_no_leftovers(&top);
    }
}
