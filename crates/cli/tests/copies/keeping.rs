//! Metadata beyond an entry's data: owners, hard links, access control lists, extended attributes
//! and special files. The tests compare with rsync on one awkward tree.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::lan::Lan;
use crate::support::process::{Finished, Running, binary_in, longhaul, run, script};
use crate::support::sshd::{self, Sshd, at_dtn};
use crate::support::{Daemon, assert_no_leftovers, is_root, tree};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use serde_json::Value;
use tempfile::TempDir;

const NOBODY: u32 = 65534;

/// A user and a group without a name on this host.
const NAMELESS: u32 = 54321;

fn place() -> TempDir {
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
    place
}

/// True if the commands are installed. Otherwise prints the reason for the skip.
fn have(commands: &[&str]) -> bool {
    let works = |command: &&str| {
        let output = Command::new(command).arg("--version").output();
        output.is_ok()
    };
    let missing: Vec<_> = commands.iter().filter(|command| !works(command)).collect();
    if !missing.is_empty() {
        longhaul_testing::skip(&format!(
            "{missing:?} is missing (scripts/setup installs it)"
        ));
    }
    missing.is_empty()
}

fn command(words: &[&str], path: &Path) {
    let output = Command::new(words[0]).args(&words[1..]).arg(path).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{words:?} {path:?}: {output:?}");
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn special(path: &Path, kind: FileType, device: (u32, u32)) {
    let mode = Mode::from_raw_mode(0o640);
    mknodat(CWD, path, kind, mode, makedev(device.0, device.1)).unwrap();
}

/// Links of all kinds, holes, odd names, depth, what cannot be read or written, owners, lists,
/// attributes, special files.
fn awkward(place: &Path) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    let source = place.join("src");
    tree::write(&source.join("d/e/f"), b"first");
    fs::hard_link(source.join("d/e/f"), source.join("a name before")).unwrap();
    fs::hard_link(source.join("d/e/f"), source.join("z")).unwrap();
    tree::write(&source.join("big"), &vec![7; 9 << 20]);
    fs::hard_link(source.join("big"), source.join("d/big")).unwrap();
    tree::sparse_file(&source.join("sparse"), 6 << 20);
    tree::write(
        &source.join(std::ffi::OsStr::from_bytes(b"\xff\xfe\n")),
        b"odd",
    );
    let deep = ["deep"; 60].join("/");
    tree::write(&source.join(deep).join("f"), b"deep");
    symlink("d/e/f", source.join("link")).unwrap();
    fs::hard_link(source.join("link"), source.join("link too")).unwrap();
    symlink("nowhere", source.join("dangling")).unwrap();
    tree::write(&source.join("read-only/f"), b"ro");
    tree::write(&source.join("set-id"), b"set-id");
    tree::write(&source.join("unreadable"), b"unreadable");
    fs::create_dir(source.join("empty")).unwrap();
    special(&source.join("fifo"), FileType::Fifo, (0, 0));
    fs::hard_link(source.join("fifo"), source.join("fifo too")).unwrap();
    special(&source.join("null"), FileType::CharacterDevice, (1, 3));
    special(&source.join("disk"), FileType::BlockDevice, (7, 200));
    drop(std::os::unix::net::UnixListener::bind(source.join("socket")).unwrap());
    own(&source);
    command(
        &["setfattr", "-n", "user.a", "-v", "1"],
        &source.join("d/e/f"),
    );
    let long = "x".repeat(2000);
    command(
        &["setfattr", "-n", "user.long", "-v", &long],
        &source.join("big"),
    );
    command(
        &["setfattr", "-n", "trusted.t", "-v", "t"],
        &source.join("d"),
    );
    command(
        &["setfacl", "-m", "u:nobody:rw,g:12345:r"],
        &source.join("d/e/f"),
    );
    command(&["setfacl", "-d", "-m", "u:nobody:rwx"], &source.join("d"));
    command(&["setcap", "cap_net_raw+ep"], &source.join("set-id"));
    tree::set_times(&source);
    set_mode(&source.join("read-only"), 0o555);
    set_mode(&source, 0o751);
    tree::set_modified(&source, 1_500_000_000, 123_456_789);
    source
}

fn own(source: &Path) {
    chown(source.join("d/e/f"), Some(NOBODY), Some(1)).unwrap();
    chown(source.join("big"), Some(NAMELESS), Some(NAMELESS)).unwrap();
    chown(source.join("read-only"), Some(1), Some(1)).unwrap();
    std::os::unix::fs::lchown(source.join("link"), Some(1), Some(1)).unwrap();
    chown(source.join("fifo"), Some(1), None).unwrap();
    chown(source.join("set-id"), Some(1), Some(1)).unwrap();
    set_mode(&source.join("set-id"), 0o6755);
    set_mode(&source.join("unreadable"), 0);
    set_mode(&source.join("empty"), 0o1777);
}

/// Returns the changes that rsync would make.
fn rsync_finds(source: &Path, to: &Path) -> String {
    let mut rsync = Command::new("rsync");
    rsync.args(["-aHAXn", "--delete", "--itemize-changes"]);
    let output = rsync.arg(with_slash(source)).arg(to).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn with_slash(path: &Path) -> OsString {
    let mut path = path.as_os_str().to_owned();
    path.push("/");
    path
}

fn copy(flags: &[&str], from: impl Into<OsString>, to: impl Into<OsString>) -> Finished {
    let mut command = longhaul();
    command.args(["cp", "--json"]).args(flags);
    run(command.arg(from.into()).arg(to.into()))
}

fn notice(finished: &Finished, kind: &str) -> Option<Value> {
    let summary = finished.summary();
    let notices = summary["notices"].as_array().unwrap().iter();
    notices
        .into_iter()
        .find(|notice| notice["kind"] == kind)
        .cloned()
}

fn count(finished: &Finished, what: &str) -> u64 {
    let summary = finished.summary();
    summary[what]
        .as_u64()
        .unwrap_or_else(|| panic!("{summary}"))
}

// Promise 71.
#[test]
fn rsync_and_longhaul_find_no_changes_after_each_other() {
    if !is_root() || !have(&["rsync", "setfacl", "setfattr", "setcap"]) {
        return;
    }
    let place = place();
    let source = awkward(place.path());
    let to = place.path().join("to");
    copy(&["-aHAX"], with_slash(&source), &to).expect(0);
    assert_eq!(rsync_finds(&source, &to), "");
    assert_no_leftovers(&to);
    let again = copy(&["-aHAX"], with_slash(&source), &to).expect(0);
    assert_eq!(
        (count(&again, "files"), count(&again, "fixed_entries")),
        (0, 0)
    );
    let planned = copy(&["-aHAXn"], with_slash(&source), &to).expect(0);
    for what in ["new_entries", "changed_entries", "fixed_entries"] {
        assert_eq!(count(&planned, what), 0, "{what}");
    }
    let by_rsync = place.path().join("by rsync");
    let mut rsync = Command::new("rsync");
    let rsync = rsync.arg("-aHAX").arg(with_slash(&source)).arg(&by_rsync);
    assert!(rsync.status().unwrap().success());
    let after = copy(&["-aHAX"], with_slash(&source), &by_rsync).expect(0);
    assert_eq!(
        (count(&after, "files"), count(&after, "fixed_entries")),
        (0, 0)
    );
    assert_eq!(rsync_finds(&source, &by_rsync), "");
}

/// Metadata that differ are corrected without sending data, and are counted.
// Promise 75.
#[test]
fn changed_metadata_are_corrected_without_sending_data() {
    if !is_root() || !have(&["rsync", "setfacl", "setfattr", "setcap"]) {
        return;
    }
    let place = place();
    let source = awkward(place.path());
    let to = place.path().join("to");
    copy(&["-aHAX"], with_slash(&source), &to).expect(0);
    chown(to.join("big"), Some(0), Some(0)).unwrap();
    command(&["setfattr", "-x", "user.a"], &to.join("d/e/f"));
    command(
        &["setfattr", "-n", "user.more", "-v", "1"],
        &to.join("sparse"),
    );
    command(&["setfacl", "-b"], &to.join("d"));
    std::os::unix::fs::lchown(to.join("link"), Some(0), Some(0)).unwrap();
    chown(to.join("fifo"), Some(0), None).unwrap();
    set_mode(&to, 0o700);
    // A broken pair is linked again.
    fs::remove_file(to.join("z")).unwrap();
    fs::copy(to.join("d/e/f"), to.join("z")).unwrap();
    assert_ne!(rsync_finds(&source, &to), "");
    // A dry run reports the same numbers.
    let planned = copy(&["-aHAXn"], with_slash(&source), &to).expect(0);
    assert_eq!(count(&planned, "fixed_entries"), 6);
    assert_eq!(count(&planned, "changed_entries"), 1);
    let again = copy(&["-aHAX"], with_slash(&source), &to).expect(0);
    assert_eq!(count(&again, "moved_bytes"), 0);
    assert_eq!(count(&again, "fixed_entries"), 6);
    assert_eq!(rsync_finds(&source, &to), "");
    let inode = |name: &str| fs::metadata(to.join(name)).unwrap().ino();
    assert_eq!(inode("z"), inode("d/e/f"));
}

/// Without the options, these metadata are not copied.
// Promise 23.
#[test]
fn hard_links_become_separate_files_without_the_option() {
    let place = place();
    let source = place.path().join("src");
    tree::write(&source.join("a"), b"a");
    fs::hard_link(source.join("a"), source.join("b")).unwrap();
    let to = place.path().join("to");
    copy(&["-r"], with_slash(&source), &to).expect(0);
    assert_eq!(fs::metadata(to.join("a")).unwrap().nlink(), 1);
    copy(&["-rH"], with_slash(&source), place.path().join("linked")).expect(0);
    let linked = fs::metadata(place.path().join("linked/b")).unwrap();
    assert_eq!(linked.nlink(), 2);
}

// Promise 75.
#[test]
fn metadata_that_a_user_may_not_set_fail_only_if_an_option_names_them() {
    if !is_root() {
        return;
    }
    let place = place();
    let source = place.path().join("src");
    tree::write(&source.join("f"), b"f");
    chown(source.join("f"), Some(1), Some(1)).unwrap();
    special(&source.join("null"), FileType::CharacterDevice, (1, 3));
    special(&source.join("fifo"), FileType::Fifo, (0, 0));
    set_mode(&source.join("fifo"), 0o644);
    let to = place.path().join("to");
    fs::create_dir(&to).unwrap();
    chown(&to, Some(NOBODY), Some(NOBODY)).unwrap();
    let binary = binary_in(place.path());
    let shown = |flags: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(&binary).arg("cp").args(flags);
        run(command.arg(with_slash(&source)).arg(&to))
    };
    let copy = |flags: &[&str]| shown(&[&["--json"], flags].concat());
    let copied = copy(&["-a"]).expect(0);
    // The text output has one line, also for existing entries.
    let again = shown(&["-a", "--no-devices"]).expect(0);
    let lines = again
        .errors
        .lines()
        .filter(|line| line.contains("not kept"));
    let lines: Vec<&str> = lines.collect();
    assert!(
        lines.len() == 1 && lines[0].starts_with("owners and groups not kept: 3, for example `"),
        "{lines:?}"
    );
    for kind in ["owner_not_kept", "group_not_kept", "device_not_made"] {
        assert!(notice(&copied, kind).is_some(), "{kind}");
    }
    assert_eq!(fs::metadata(to.join("f")).unwrap().uid(), NOBODY);
    assert!(!to.join("null").exists());
    assert!(fs::metadata(to.join("fifo")).unwrap().file_type().is_fifo());
    copy(&["-ro"]).expect(2);
    copy(&["-r", "--devices"]).expect(2);
    // A user who owns the files gets no notice about owners.
    fs::remove_file(source.join("null")).unwrap();
    chown(source.join("f"), Some(NOBODY), Some(NOBODY)).unwrap();
    for name in [".", "fifo"] {
        chown(source.join(name), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    copy(&["-ro", "--devices"]).expect(0);
}

/// An existing file may have no permissions for its own user, who cannot write attributes then.
// Promise 74.
#[test]
fn attributes_are_set_on_an_own_file_without_permission_bits() {
    if !is_root() || !have(&["setfattr"]) {
        return;
    }
    let place = place();
    let (source, to) = (place.path().join("src"), place.path().join("to"));
    for root in [&source, &to] {
        tree::write(&root.join("d/f"), b"f");
        for path in ["d/f", "d", "."] {
            let mode = if path == "." { 0o755 } else { 0o555 };
            tree::set_modified(&root.join(path), 1_000_000, 5);
            chown(root.join(path), Some(NOBODY), Some(NOBODY)).unwrap();
            set_mode(&root.join(path), mode);
        }
    }
    for path in ["d/f", "d"] {
        command(
            &["setfattr", "-n", "user.new", "-v", "new"],
            &source.join(path),
        );
        command(&["setfattr", "-n", "user.old", "-v", "old"], &to.join(path));
    }
    let mut copy = Command::new("setpriv");
    copy.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    copy.arg(binary_in(place.path())).args(["cp", "-rX"]);
    run(copy.arg(with_slash(&source)).arg(&to)).expect(0);
    for path in ["d/f", "d"] {
        let shown = Command::new("getfattr")
            .arg("-d")
            .arg(to.join(path))
            .output();
        let shown = String::from_utf8(shown.unwrap().stdout).unwrap();
        assert!(
            shown.contains("user.new=\"new\"") && !shown.contains("old"),
            "{shown}"
        );
        let mode = fs::metadata(to.join(path)).unwrap().mode();
        assert_eq!(mode & 0o7777, 0o555, "{path}");
    }
}

// Promise 72.
#[test]
fn owners_are_mapped_and_modes_changed() {
    if !is_root() {
        return;
    }
    let place = place();
    let source = place.path().join("src");
    tree::write(&source.join("d/f"), b"f");
    chown(source.join("d/f"), Some(NAMELESS), Some(1)).unwrap();
    set_mode(&source.join("d/f"), 0o600);
    let owner = |to: &str| {
        let status = fs::metadata(place.path().join(to).join("d/f")).unwrap();
        (status.uid(), status.gid(), status.mode() & 0o7777)
    };
    let copy = |flags: &[&str], to: &str| {
        let mut all = vec!["-r"];
        all.extend(flags);
        copy(&all, with_slash(&source), place.path().join(to))
    };
    copy(&["--chown", "daemon:nogroup"], "a").expect(0);
    assert_eq!(owner("a"), (1, NOBODY, 0o600));
    copy(&["--usermap", "54321:daemon", "--groupmap=daemon:7"], "b").expect(0);
    assert_eq!(owner("b"), (1, 7, 0o600));
    copy(&["--chmod", "D2775,F664"], "c").expect(0);
    assert_eq!(owner("c").2, 0o664);
    let directory = fs::metadata(place.path().join("c/d")).unwrap();
    assert_eq!(directory.mode() & 0o7777, 0o2775);
    copy(&["--chown", "no-such-user-here"], "d").expect(1);
    copy(&["--chmod", "q"], "d").expect(1);
    // An existing file keeps its mode.
    set_mode(&place.path().join("a/d/f"), 0o640);
    tree::write(&source.join("d/f"), b"longer");
    copy(&["--no-perms"], "a").expect(0);
    assert_eq!(owner("a").2, 0o640);
    tree::write(&source.join("d/new"), b"new");
    set_mode(&source.join("d/new"), 0o777);
    copy(&["--no-perms"], "a").expect(0);
    let new = fs::metadata(place.path().join("a/d/new")).unwrap();
    assert_eq!(new.mode() & 0o7777, 0o755);
}

// Promise 71.
#[test]
fn directory_times_are_omitted_with_the_option() {
    let place = place();
    let source = place.path().join("src");
    tree::write(&source.join("d/f"), b"f");
    tree::set_modified(&source.join("d"), 1_000_000_000, 0);
    tree::set_modified(&source, 1_000_000_000, 0);
    let seconds = |path: &str| fs::metadata(place.path().join(path)).unwrap().mtime();
    copy(&["-a"], with_slash(&source), place.path().join("to")).expect(0);
    assert_eq!(
        (seconds("to"), seconds("to/d")),
        (1_000_000_000, 1_000_000_000)
    );
    let to = place.path().join("without");
    copy(&["-aO"], with_slash(&source), to).expect(0);
    assert_ne!(seconds("without"), 1_000_000_000);
    assert_ne!(seconds("without/d"), 1_000_000_000);
    // Without -a the destination itself stays as it is.
    copy(&["-r"], with_slash(&source), place.path().join("plain")).expect(0);
    assert_ne!(seconds("plain"), 1_000_000_000);
}

/// A root that its owner cannot write to, again and again.
#[test]
fn a_read_only_destination_is_copied_into_again() {
    let place = place();
    let source = place.path().join("src");
    tree::write(&source.join("f"), b"f");
    set_mode(&source, 0o555);
    let to = place.path().join("to");
    for expected in [1, 0] {
        let copied = copy(&["-a"], with_slash(&source), &to).expect(0);
        assert_eq!(count(&copied, "files"), expected);
        assert_eq!(fs::metadata(&to).unwrap().mode() & 0o7777, 0o555);
    }
    for path in [&source, &to] {
        set_mode(path, 0o755);
    }
}

/// The rights of a principal decide about other owners and devices.
// Promise 77.
#[test]
fn owners_and_devices_need_rights_at_a_daemon() {
    if !is_root() || !have(&["rsync", "setfacl", "setfattr", "setcap"]) {
        return;
    }
    let place = place();
    let source = awkward(place.path());
    let root = place.path().join("root");
    fs::create_dir(&root).unwrap();
    let push = |daemon: &Daemon, to: &str, flags: &[&str]| {
        let mut command = daemon.command("cp");
        command.args(["--json"]).args(flags);
        run(command.arg(with_slash(&source)).arg(daemon.url(to)))
    };
    let daemon = Daemon::start(&root);
    let pushed = push(&daemon, "a", &["-aH"]).expect(0);
    for kind in ["owner_not_kept", "device_not_made", "set_id_dropped"] {
        assert!(notice(&pushed, kind).is_some(), "{kind}");
    }
    assert!(!root.join("a/null").exists() && !root.join("a/disk").exists());
    let big = fs::metadata(root.join("a/big")).unwrap();
    assert_eq!((big.uid(), big.nlink()), (0, 2));
    // Without the right `owners`, a principal cannot set attributes that need a superuser.
    let pushed = push(&daemon, "a", &["-aHAX"]).expect(2);
    assert!(notice(&pushed, "attribute_not_kept").is_some());
    let trusting = Daemon::with(
        &root,
        &[
            "--write",
            "--keep-set-ids",
            "--keep-owners",
            "--make-devices",
        ],
    );
    push(&trusting, "b", &["-aHAX"]).expect(0);
    assert_eq!(rsync_finds(&source, &root.join("b")), "");
    let to = place.path().join("pulled");
    let mut pull = trusting.command("cp");
    pull.args(["-aHAX", "-D", "--keep-set-ids", "--json"]);
    run(pull.arg(trusting.url("b/")).arg(&to)).expect(0);
    // A principal receives no attributes that only a superuser can read.
    let mut trusted = Command::new("getfattr");
    let trusted = trusted.args(["-n", "trusted.t"]).arg(to.join("d"));
    assert!(!trusted.output().unwrap().status.success());
    command(&["setfattr", "-n", "trusted.t", "-v", "t"], &to.join("d"));
    command(&["setcap", "cap_net_raw+ep"], &to.join("set-id"));
    set_mode(&to.join("set-id"), 0o6755);
    assert_eq!(rsync_finds(&source, &to), "");
}

#[test]
fn all_metadata_are_kept_over_ssh_in_both_directions() {
    if !sshd::is_possible() || !have(&["rsync", "setfacl", "setfattr", "setcap"]) {
        return;
    }
    let (sshd, place) = (Sshd::start(), place());
    let source = awkward(place.path());
    let copy = |from: OsString, to: OsString| {
        let mut command = sshd.command("cp");
        run(command.args(["-aHAX", "--json"]).arg(from).arg(to)).expect(0)
    };
    copy(with_slash(&source), at_dtn("there"));
    let there = sshd.home().join("there");
    assert_eq!(rsync_finds(&source, &there), "");
    let again = copy(with_slash(&source), at_dtn("there"));
    assert_eq!(
        (count(&again, "files"), count(&again, "fixed_entries")),
        (0, 0)
    );
    let to = place.path().join("back");
    copy(at_dtn("there/"), to.clone().into());
    assert_eq!(rsync_finds(&source, &to), "");
}

#[test]
fn all_metadata_are_kept_between_two_remote_hosts() {
    if !sshd::is_possible() || !have(&["rsync", "setfacl", "setfattr", "setcap"]) {
        return;
    }
    let lan = Lan::new();
    let source = awkward(&lan.left.home());
    let copy = || {
        let mut command = lan.copy();
        command.args(["-aHAX", "--json", "left:src/", "right:there"]);
        run(&mut command).expect(0)
    };
    copy();
    let there = lan.right.home().join("there");
    assert_eq!(rsync_finds(&source, &there), "");
    let again = copy();
    assert_eq!(
        (count(&again, "files"), count(&again, "fixed_entries")),
        (0, 0)
    );
}

/// A copy that is killed and run again has linked every name in the end.
// Promise 73.
#[test]
fn hard_links_survive_a_kill() {
    let place = place();
    let source = place.path().join("src");
    for number in 0..60 {
        let first = source.join(format!("a/{number}"));
        tree::write(&first, &vec![number; 200_000]);
        for further in ["b", "c"] {
            std::fs::create_dir_all(source.join(further)).unwrap();
            fs::hard_link(&first, source.join(format!("{further}/{number}"))).unwrap();
        }
    }
    let to = place.path().join("to");
    for limit in ["4MB/s", "8MB/s"] {
        let mut command = longhaul();
        command.args(["cp", "-aH", "--json", "--bwlimit", limit]);
        command.arg(with_slash(&source)).arg(&to);
        let running = Running::start(&mut command);
        running.event(|event| event["event"] == "committed");
        running.kill();
    }
    copy(&["-aH"], with_slash(&source), &to).expect(0);
    for number in 0..60 {
        let names = ["a", "b", "c"].map(|name| to.join(format!("{name}/{number}")));
        let inodes = names.map(|name| fs::metadata(name).unwrap().ino());
        assert!(inodes.iter().all(|inode| *inode == inodes[0]), "{number}");
    }
    assert_no_leftovers(&to);
    let again = copy(&["-aH"], with_slash(&source), &to).expect(0);
    assert_eq!(count(&again, "files"), 0);
    assert_eq!(count(&again, "skipped_entries"), 180);
}

/// A daemon of a user without rights, and the directory that it serves.
fn unprivileged_daemon(place: &Path) -> (Daemon, PathBuf) {
    let served = place.join("served");
    fs::create_dir(&served).unwrap();
    chown(&served, Some(NOBODY), Some(NOBODY)).unwrap();
    let binary = binary_in(place);
    let mut arguments: Vec<OsString> = vec!["--root".into(), served.clone().into()];
    arguments.extend(["--write", "--keep-set-ids"].map(Into::into));
    let daemon = Daemon::of(arguments, |command| {
        let words: Vec<OsString> = command.get_args().map(Into::into).collect();
        let state = words.iter().position(|word| word == "--state").unwrap() + 1;
        chown(Path::new(&words[state]), Some(NOBODY), Some(NOBODY)).unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(&binary).args(words);
        command.env("LONGHAUL_CONFIG_DIR", "/nonexistent/longhaul");
        command.env("XDG_STATE_HOME", "/nonexistent/state");
        command
    });
    (daemon, served)
}

/// Returns an rsync command whose remote end, at "host", stores metadata in attributes.
fn rsync_to_fake(place: &Path, flags: &[&str]) -> Command {
    let shell = place.join("shell");
    if !shell.exists() {
        script(shell.clone(), "#!/bin/sh\nshift\nexec \"$@\"\n");
    }
    let mut rsync = Command::new("rsync");
    rsync.arg("-e").arg(shell).arg("-M--fake-super").args(flags);
    rsync
}

fn at_host(path: &Path) -> OsString {
    let mut at = OsString::from("host:");
    at.push(with_slash(path));
    at
}

/// A user without rights stores all metadata in attributes, from which either tool restores them.
// Promise 82.
#[test]
fn fake_super_stores_privileged_metadata_as_rsync_does() {
    if !is_root() || !have(&["rsync", "setfacl", "setfattr", "setcap", "setpriv"]) {
        return;
    }
    let place = place();
    let source = awkward(place.path());
    let (daemon, served) = unprivileged_daemon(place.path());
    let push = |flags: &[&str]| {
        let mut command = daemon.command("cp");
        command.args(["-aHAX", "--json", "-M--fake-super"]);
        run(command
            .args(flags)
            .arg(with_slash(&source))
            .arg(daemon.url("to")))
    };
    let pushed = push(&["--keep-set-ids"]).expect(0);
    let to = served.join("to");
    // All entries belong to the daemon's user and are regular files or directories.
    let real = fs::metadata(to.join("null")).unwrap();
    assert_eq!((real.is_file(), real.uid()), (true, NOBODY));
    assert_eq!(fs::metadata(to.join("set-id")).unwrap().mode() & 0o7000, 0);
    assert_eq!(pushed.summary()["notices"], serde_json::json!([]));
    assert_no_leftovers(&to);
    let again = push(&["--keep-set-ids"]).expect(0);
    assert_eq!(
        (count(&again, "files"), count(&again, "fixed_entries")),
        (0, 0)
    );
    let mut rsync = rsync_to_fake(place.path(), &["-aHAXn", "--delete", "--itemize-changes"]);
    let found = rsync.arg(with_slash(&source)).arg(at_host(&to)).output();
    let found = found.unwrap();
    assert!(found.status.success(), "{found:?}");
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
    // Back through the daemon, on this host, and by rsync.
    let mut command = daemon.command("cp");
    command.args(["-aHAX", "-D", "-M--fake-super", "--keep-set-ids"]);
    let back = place.path().join("back");
    run(command.arg(daemon.url("to/")).arg(&back)).expect(0);
    assert_eq!(rsync_finds(&source, &back), "");
    let here = place.path().join("here");
    copy(&["-aHAX", "--fake-super=source"], with_slash(&to), &here).expect(0);
    assert_eq!(rsync_finds(&source, &here), "");
    let mut rsync = rsync_to_fake(place.path(), &["-aHAX"]);
    let by_rsync = place.path().join("by rsync");
    let done = rsync.arg(at_host(&to)).arg(&by_rsync).status().unwrap();
    assert!(done.success());
    assert_eq!(rsync_finds(&source, &by_rsync), "");
}

/// Metadata that rsync stored in attributes are read, and found unchanged.
// Promise 82.
#[test]
fn fake_super_restores_metadata_that_rsync_stored() {
    if !is_root() || !have(&["rsync", "setfacl", "setfattr", "setcap"]) {
        return;
    }
    let place = place();
    let source = awkward(place.path());
    // rsync 3.5.0 forgets the default list of a directory with an attribute besides: not even it
    // gives that back.
    command(&["setfattr", "-x", "trusted.t"], &source.join("d"));
    let kept = place.path().join("kept");
    let mut rsync = rsync_to_fake(place.path(), &["-aHAX"]);
    let done = rsync.arg(with_slash(&source)).arg(at_host(&kept)).status();
    assert!(done.unwrap().success());
    let to = place.path().join("to");
    copy(&["-aHAX", "--fake-super=source"], with_slash(&kept), &to).expect(0);
    assert_eq!(rsync_finds(&source, &to), "");
    let same = copy(
        &["-aHAX", "--fake-super=destination"],
        with_slash(&source),
        &kept,
    )
    .expect(0);
    assert_eq!(
        (count(&same, "files"), count(&same, "fixed_entries")),
        (0, 0)
    );
    // The tree is copied to another one of the same kind, and entries are deleted there.
    let other = place.path().join("other");
    copy(&["-aHAX", "--fake-super"], with_slash(&kept), &other).expect(0);
    for name in ["null", "link"] {
        fs::remove_file(source.join(name)).unwrap();
    }
    let flags = ["-aHAX", "--fake-super=destination", "--delete"];
    let mirrored = copy(&flags, with_slash(&source), &other).expect(0);
    assert_eq!(count(&mirrored, "deleted_entries"), 2);
    let mut rsync = rsync_to_fake(place.path(), &["-aHAXn", "--delete", "--itemize-changes"]);
    let found = rsync.arg(with_slash(&source)).arg(at_host(&other)).output();
    assert_eq!(String::from_utf8_lossy(&found.unwrap().stdout), "");
}

// Promise 82.
#[test]
fn fake_super_is_refused_or_reported_without_attributes() {
    let place = place();
    tree::write(&place.path().join("src/f"), b"f");
    let [from, to] = ["src", "to"].map(|name| place.path().join(name));
    for (flags, why) in [
        (
            &["-r", "-M--fake-super"][..],
            "no end of the copy is at another host",
        ),
        (&["-r", "-M--sparse"], "takes no options but --fake-super"),
        (
            &["-r", "--fake-super=there?"],
            "source, destination or both",
        ),
        (&["-rL", "--fake-super=source"], "leave --copy-links out"),
    ] {
        copy(flags, &from, &to).expect(1).says(&[why]);
    }
    let mut command = longhaul();
    command.args(["cp", "-r", "--fake-super", "one:a", "two:b"]);
    run(&mut command).expect(1).says(&["--fake-super=source"]);
    assert!(!to.exists());
}

/// A device is a way to a disk of this host, and the daemon may be hostile.
// Promise 76.
#[test]
fn devices_of_a_daemon_are_copied_only_with_an_explicit_option() {
    if !is_root() {
        return longhaul_testing::skip("only root makes devices");
    }
    let place = place();
    tree::write(&place.path().join("from/a"), b"a");
    special(
        &place.path().join("from/null"),
        FileType::CharacterDevice,
        (1, 3),
    );
    special(&place.path().join("from/fifo"), FileType::Fifo, (0, 0));
    let daemon = Daemon::start(place.path());
    for (options, fakes, comes) in [
        (&["-a"][..], false, false),
        (&["-a", "-D"], false, true),
        (&["-r", "--devices"], false, true),
        (&["-a", "--fake-super"], true, false),
        (&["-a", "--fake-super", "-D"], true, true),
    ] {
        let to = place.path().join("to");
        let mut pull = daemon.command("cp");
        pull.args(options).arg(daemon.url("from/")).arg(&to);
        run(&mut pull).expect(0);
        let found = to.join("null").symlink_metadata();
        assert_eq!(found.is_ok(), comes, "{options:?}");
        if let (Ok(found), false) = (found, fakes) {
            assert!(found.file_type().is_char_device());
        }
        assert!(to.join("a").exists());
        fs::remove_dir_all(&to).unwrap();
    }
    // Within this host, devices are copied as with rsync.
    let mut copy = longhaul();
    copy.args(["cp", "-a"])
        .arg(place.path().join("from/"))
        .arg(place.path().join("to"));
    run(&mut copy).expect(0);
    assert!(place.path().join("to/null").symlink_metadata().is_ok());
}
