//! Metadata that a destination does not keep, or refuses. The data arrive, and each kind is
//! reported once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::process::{Finished, local_copy, longhaul, run};
use crate::support::sshd::{self, Sshd, at_dtn};
use crate::support::{Daemon, assert_no_leftovers, is_root, tree};
use serde_json::Value;
use tempfile::TempDir;

/// A user and group without rights.
const NOBODY: u32 = 65534;

fn place() -> TempDir {
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
    place
}

/// True if the command works here. Otherwise prints the reason for the skip.
fn works(command: &[&str]) -> bool {
    let output = Command::new(command[0]).args(&command[1..]).output();
    let works = output.is_ok_and(|output| output.status.success());
    if !works {
        longhaul_testing::skip(&format!(
            "{command:?} does not work (scripts/setup installs it)"
        ));
    }
    works
}

/// True if system calls of a process can be made to fail.
fn can_refuse() -> bool {
    works(&["strace", "-f", "-qq", "-o", "/dev/null", "true"])
}

/// A source with a small file, a large one, a link and a directory.
fn source(place: &Path) -> PathBuf {
    let source = place.join("s");
    tree::write(&source.join("small"), b"small");
    tree::write(&source.join("below/large"), &[7; 3 << 20]);
    symlink("small", source.join("link")).unwrap();
    tree::set_times(&source);
    source
}

/// The same command where these calls fail, of those that name `path` where one is given.
fn refusing(command: &Command, calls: &str, error: &str, path: Option<&Path>) -> Command {
    let mut traced = Command::new("strace");
    traced.args(["-f", "-qq", "-o", "/dev/null"]);
    if let Some(path) = path {
        traced.arg("-P").arg(path);
    }
    traced.args(["-e", &format!("trace={calls}"), "-e"]);
    traced.arg(format!("inject={calls}:error={error}"));
    traced.arg(command.get_program()).args(command.get_args());
    traced
}

fn notice(finished: &Finished, kind: &str) -> Value {
    let summary = finished.summary();
    let notices = summary["notices"].as_array().unwrap();
    let found = notices.iter().find(|notice| notice["kind"] == kind);
    found.cloned().unwrap_or_else(|| panic!("{summary}"))
}

fn mode_of(path: impl AsRef<Path>) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

// Promise 10.
#[test]
fn a_file_system_that_does_not_sync_directories_gets_the_data() {
    if !can_refuse() {
        return;
    }
    let place = place();
    let source = source(place.path());
    for error in ["EINVAL", "EOPNOTSUPP"] {
        let to = place.path().join(error);
        fs::create_dir_all(to.join("s/below")).unwrap();
        let copy = local_copy(&source, &to);
        // For files, the same call makes their data durable.
        run(&mut refusing(&copy, "fsync", error, Some(&to)))
            .expect(0)
            .says(&[
                "copied: 2 files",
                "directories not synced: 1,",
                "names may not survive a power cut here",
            ]);
        tree::assert_same(&source, &to.join("s"));
        assert_no_leftovers(&to);
    }
    let to = place.path().join("EIO");
    fs::create_dir(&to).unwrap();
    let copy = local_copy(&source, &to);
    run(&mut refusing(&copy, "fsync", "EIO", Some(&to))).says(&["Input/output error"]);
}

// Promise 10.
#[test]
fn refused_modes_and_times_cost_no_data() {
    if !can_refuse() {
        return;
    }
    let place = place();
    let source = source(place.path());
    for (calls, error, kind) in [
        ("fchmod,fchmodat", "EPERM", "mode_refused"),
        ("fchmod", "EOPNOTSUPP", "mode_refused"),
        ("utimensat", "EPERM", "time_refused"),
        ("utimensat", "ENOSYS", "time_refused"),
    ] {
        let to = place.path().join(format!("{calls}-{error}"));
        let mut copy = local_copy(&source, &to);
        copy.arg("--json");
        let finished = run(&mut refusing(&copy, calls, error, None)).expect(0);
        let told = notice(&finished, kind);
        let least = if kind == "mode_refused" { 4 } else { 5 };
        assert!(told["count"].as_u64().unwrap() >= least, "{told}");
        assert!(told["example"].as_str().unwrap().starts_with('s'), "{told}");
        assert_eq!(fs::read(to.join("s/small")).unwrap(), b"small");
        assert_eq!(fs::read(to.join("s/below/large")).unwrap(), [7; 3 << 20]);
        assert_eq!(
            fs::read_link(to.join("s/link")).unwrap(),
            Path::new("small")
        );
        assert_no_leftovers(&to);
    }
}

// Promise 10.
#[test]
fn a_disk_error_is_never_a_refusal() {
    if !can_refuse() {
        return;
    }
    let place = place();
    let source = source(place.path());
    for (calls, error) in [
        ("fchmod", "EIO"),
        ("fchmod", "ENOSPC"),
        ("fchmod", "EROFS"),
        ("fchmod", "EDQUOT"),
    ] {
        let to = place.path().join(format!("{calls}-{error}"));
        let copy = local_copy(&source, &to);
        run(&mut refusing(&copy, calls, error, None))
            .expect(2)
            .says(&["failed: "]);
        assert!(!to.join("s/small").exists(), "{calls} {error}");
    }
}

/// Runs a script in a directory with a separate mount namespace.
fn in_mounts(place: &Path, script: &str) -> Finished {
    let mut shell = Command::new("unshare");
    shell.args(["-m", "sh", "-euc", script, "sh"]);
    shell.arg(longhaul().get_program());
    run(shell.current_dir(place))
}

/// Lustre is mounted without locks by default.
// Promise 10.
#[test]
fn a_file_system_without_locks_gets_the_data() {
    if !can_refuse() {
        return;
    }
    let place = place();
    let source = source(place.path());
    for error in ["ENOSYS", "EOPNOTSUPP", "ENOLCK"] {
        let to = place.path().join(error);
        fs::create_dir(&to).unwrap();
        let mut copy = local_copy(&source, &to);
        copy.arg("--json");
        let finished = run(&mut refusing(&copy, "flock", error, None)).expect(0);
        assert_eq!(notice(&finished, "not_locked")["count"], 1);
        tree::assert_same(&source, &to.join("s"));
        assert_no_leftovers(&to);
        // Another process may use a leftover on such a file system.
        let left = to.join(".longhaul-ffffffffffffffff-12.tmp");
        tree::write(&left, b"");
        let mut clean = longhaul();
        clean
            .args(["clean", "--remove", "--older-than", "0s"])
            .arg(&to);
        let cleaned = run(&mut refusing(&clean, "flock", error, None));
        assert!(
            left.exists() && cleaned.errors.contains("no locks"),
            "{cleaned:?}"
        );
    }
}

/// The data go to a file system that no longer has a path.
// Promise 10.
#[test]
fn a_lazily_unmounted_destination_is_an_error() {
    if !is_root() {
        return;
    }
    let place = place();
    tree::write(&place.path().join("s/a"), &[7; 3_000_000]);
    for copy in ["-q - m/file <f", "-rq --bwlimit 300kB s m"] {
        let script = format!(
            "mkdir -p m; mount -t tmpfs none m; rm -f f; mkfifo f
            \"$1\" cp {copy} &
            exec 3<>f; echo begun >&3
            until ls -A m m/s 2>/dev/null | grep -q longhaul; do sleep 0.05; done
            umount -l m; exec 3>&-
            code=0; wait $! || code=$?
            echo $code"
        );
        let finished = in_mounts(place.path(), &script).expect(0);
        let finished = finished.says(&["was unmounted"]);
        assert_eq!(finished.output, b"6\n", "{copy}");
    }
}

// Promise 22.
#[test]
fn times_that_a_file_system_cannot_keep_are_reported_and_not_copied_again() {
    if !is_root() {
        return;
    }
    let place = place();
    let script = "truncate -s 40m image
        mkfs.ext4 -q -I 128 image >/dev/null 2>&1 || { echo no mkfs.ext4; exit 0; }
        mkdir m s
        mount -o loop image m
        # It keeps what the other clamps; a disk's file system may not.
        mount -t tmpfs none s
        mkdir s/d
        echo x >s/late; echo y >s/early; echo z >s/usual
        touch -d 2040-01-01 s/late s/d; touch -d 1890-01-01 s/early
        touch -d 2020-01-01T00:00:00.5 s/usual
        \"$1\" cp --json -r s m | tail -n 1
        \"$1\" cp --json -rn s m | tail -n 1
        \"$1\" cp --json -r s m | tail -n 1
        stat -c %Y m/s/late m/s/early
        umount m s";
    let finished = in_mounts(place.path(), script).expect(0);
    let output = String::from_utf8(finished.output).unwrap();
    let lines: Vec<&str> = output.lines().collect();
    let [first, planned, second, late, early] = lines.as_slice() else {
        // Only a missing program that the script reports is a reason to skip. Other errors are
        // failures.
        assert!(output.starts_with("no "), "{output}");
        longhaul_testing::skip(output.trim());
        return;
    };
    let [first, planned, second] =
        [first, planned, second].map(|line| serde_json::from_str::<Value>(line).unwrap());
    let kinds: Vec<(&Value, &Value)> = first["notices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|notice| (&notice["kind"], &notice["count"]))
        .collect();
    let shown = serde_json::to_string(&kinds).unwrap();
    assert!(shown.contains("[\"time_limited\",3]"), "{first}");
    assert!(shown.contains("[\"time_rounded\","), "{first}");
    assert_eq!(planned["new_entries"], 0, "{planned}");
    assert_eq!(planned["changed_entries"], 0, "{planned}");
    assert_eq!(second["files"], 0, "{second}");
    assert_eq!(second["skipped_entries"], 3, "{second}");
    assert_eq!((*late, *early), ("2147483647", "-2147483648"));
}

#[test]
fn times_are_kept_if_a_file_system_sets_both_or_neither() {
    if !is_root() || !works(&["bindfs", "--version"]) {
        return;
    }
    let place = place();
    source(place.path());
    let script = "mkdir a m
        bindfs a m || { echo no FUSE; exit 0; }
        \"$1\" cp --json -r s m | tail -n 1
        \"$1\" cp --json -r s m | tail -n 1
        umount m";
    let finished = in_mounts(place.path(), script).expect(0);
    let output = String::from_utf8(finished.output).unwrap();
    let lines: Vec<&str> = output.lines().collect();
    let [first, second] = lines.as_slice() else {
        // Only a missing program that the script reports is a reason to skip. Other errors are
        // failures.
        assert!(output.starts_with("no "), "{output}");
        longhaul_testing::skip(output.trim());
        return;
    };
    let [first, second] = [first, second].map(|line| serde_json::from_str::<Value>(line).unwrap());
    assert_eq!(first["notices"], serde_json::json!([]), "{first}");
    assert_eq!(second["files"], 0, "{second}");
    tree::assert_same(&place.path().join("s"), &place.path().join("a/s"));
}

/// Files of root and of another user, with set-user-ID and set-group-ID bits.
fn with_set_ids(place: &Path) -> PathBuf {
    let source = place.join("s");
    for (name, mode, user, group) in [
        ("own", 0o4755, 0, 0),
        ("other", 0o4755, NOBODY, 0),
        ("own group", 0o2755, 0, 0),
        ("other group", 0o6755, 0, NOBODY),
        ("plain", 0o755, NOBODY, NOBODY),
    ] {
        let path = source.join(name);
        tree::write(&path, name.as_bytes());
        chown(&path, Some(user), Some(group)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    }
    let shared = source.join("shared");
    fs::create_dir(&shared).unwrap();
    chown(&shared, Some(0), Some(NOBODY)).unwrap();
    fs::set_permissions(&shared, Permissions::from_mode(0o2775)).unwrap();
    source
}

/// Checks the modes of files in this order, and that the directory has its source's mode.
#[track_caller]
fn assert_modes(at: &Path, modes: [u32; 5]) {
    let names = ["own", "other", "own group", "other group", "plain"];
    let found = names.map(|name| mode_of(at.join(name)));
    assert_eq!(found, modes, "{found:?}");
    assert_eq!(mode_of(at.join("shared")), 0o2775);
}

/// Bits of files that belong to the same user and group afterwards are kept.
const SAME_OWNER: [u32; 5] = [0o4755, 0o755, 0o2755, 0o4755, 0o755];
const ALL: [u32; 5] = [0o4755, 0o4755, 0o2755, 0o6755, 0o755];
const NONE: [u32; 5] = [0o755; 5];

// Promise 22.
#[test]
fn a_set_id_bit_of_another_owner_is_dropped_and_reported() {
    if !is_root() {
        return;
    }
    let place = place();
    let source = with_set_ids(place.path());
    let to = place.path().join("to");
    run(&mut local_copy(&source, &to)).expect(0).says(&[
        "set-user-ID or set-group-ID bits dropped: 2, for example `s/other`",
        "--keep-set-ids",
    ]);
    assert_modes(&to.join("s"), SAME_OWNER);
    // Bits of unchanged files stay, except for one that the source does not have.
    let other = to.join("s/other");
    fs::set_permissions(&other, Permissions::from_mode(0o4755)).unwrap();
    let again = run(local_copy(&source, &to).arg("--json")).expect(0);
    assert_eq!(again.summary()["files"], 0);
    assert_eq!(notice(&again, "set_id_dropped")["count"], 2);
    assert_modes(&to.join("s"), SAME_OWNER);
    // With `--keep-set-ids` the bits are kept, also for existing files.
    let asked = run(local_copy(&source, &to).args(["--json", "--keep-set-ids"])).expect(0);
    assert_eq!(asked.summary()["files"], 0);
    assert_modes(&to.join("s"), ALL);
}

#[test]
fn a_set_group_id_bit_that_the_kernel_drops_is_reported() {
    if !is_root() {
        return;
    }
    let place = place();
    let source = place.path().join("s");
    tree::write(&source.join("f"), b"f");
    chown(source.join("f"), Some(NOBODY), Some(NOBODY)).unwrap();
    fs::set_permissions(source.join("f"), Permissions::from_mode(0o2755)).unwrap();
    // Files in it get a group that the user is not in.
    let to = place.path().join("to");
    fs::create_dir(&to).unwrap();
    fs::set_permissions(&to, Permissions::from_mode(0o2777)).unwrap();
    let binary = crate::support::process::binary_in(place.path());
    let copy = |flags: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command
            .arg(&binary)
            .args(["cp", "--json", "-r"])
            .args(flags);
        run(command.arg(&source).arg(&to))
    };
    assert_eq!(notice(&copy(&[]).expect(0), "set_id_dropped")["count"], 1);
    assert_eq!(mode_of(to.join("s/f")), 0o755);
    fs::remove_dir_all(to.join("s")).unwrap();
    // A flag that asks for it by name makes it a failure.
    let asked = copy(&["--keep-set-ids"]).expect(2);
    assert_eq!(notice(&asked, "set_id_dropped")["count"], 1);
    assert_eq!(mode_of(to.join("s/f")), 0o755);
}

/// The owner of a file at the other end is only a claim of the client or the daemon.
// Promise 22.
#[test]
fn set_id_bits_need_a_right_at_a_daemon() {
    if !is_root() {
        return;
    }
    let place = place();
    let source = with_set_ids(place.path());
    let root = place.path().join("root");
    fs::create_dir(&root).unwrap();
    let daemon = Daemon::start(&root);
    let push = |daemon: &Daemon, to: &str, flags: &[&str]| {
        let mut command = daemon.command("cp");
        command.args(["-r", "--json"]).args(flags);
        run(command.arg(&source).arg(daemon.url(to)))
    };
    let pushed = push(&daemon, "a", &[]).expect(0);
    assert_eq!(notice(&pushed, "set_id_dropped")["count"], 4);
    assert_modes(&root.join("a/s"), NONE);
    push(&daemon, "b", &["--keep-set-ids"]).expect(2);
    assert_modes(&root.join("b/s"), NONE);
    let trusting = Daemon::with(&root, &["--write", "--keep-set-ids"]);
    let pushed = push(&trusting, "c", &[]).expect(0);
    assert_eq!(pushed.summary()["notices"], serde_json::json!([]));
    assert_modes(&root.join("c/s"), ALL);
    // The other way the user's word counts alone.
    let pull = |to: &Path, flags: &[&str]| {
        let mut command = daemon.command("cp");
        command.args(["-r", "--json"]).args(flags);
        run(command.arg(daemon.url("c/s")).arg(to)).expect(0)
    };
    let to = place.path().join("pulled");
    assert_eq!(notice(&pull(&to, &[]), "set_id_dropped")["count"], 4);
    assert_modes(&to.join("s"), NONE);
    pull(&to, &["--keep-set-ids"]);
    assert_modes(&to.join("s"), ALL);
    // A file from standard input cannot get such a bit either.
    let mut command = daemon.command("cp");
    command.arg("-").arg(daemon.url("stream"));
    let input = fs::File::open(source.join("own")).unwrap();
    run(command.stdin(input)).expect(0);
    assert_eq!(mode_of(root.join("stream")) & 0o6000, 0);
}

#[test]
fn set_id_bits_of_another_owner_are_dropped_and_reported_over_ssh() {
    if !sshd::is_possible() {
        return;
    }
    let (sshd, place) = (Sshd::start(), place());
    let source = with_set_ids(place.path());
    let copy = |from: OsString, to: OsString, flags: &[&str]| {
        let mut command = sshd.command("cp");
        run(command.args(["-r", "--json"]).args(flags).arg(from).arg(to)).expect(0)
    };
    let pushed = copy(source.clone().into(), at_dtn("there"), &[]);
    assert_eq!(notice(&pushed, "set_id_dropped")["count"], 2);
    assert_modes(&sshd.home().join("there/s"), SAME_OWNER);
    copy(source.into(), at_dtn("there"), &["--keep-set-ids"]);
    let there = sshd.home().join("there/s");
    assert_modes(&there, ALL);
    chown(there.join("other"), Some(NOBODY), None).unwrap();
    fs::set_permissions(there.join("other"), Permissions::from_mode(0o4755)).unwrap();
    let to = place.path().join("back");
    let pulled = copy(at_dtn("there/s"), to.clone().into(), &[]);
    assert_eq!(notice(&pulled, "set_id_dropped")["count"], 1);
    assert_eq!(mode_of(to.join("s/other")), 0o755);
    assert_eq!(mode_of(to.join("s/own")), 0o4755);
}

/// A source stays if its copy may be lost in a power cut.
// Promise 69.
#[test]
fn a_source_stays_if_directories_cannot_be_synced() {
    if !can_refuse() {
        return;
    }
    let place = place();
    let source = source(place.path());
    for error in ["EINVAL", "ENOSYS"] {
        let to = place.path().join(error);
        fs::create_dir(&to).unwrap();
        let mut copy = local_copy(&source, &to);
        copy.arg("--move");
        run(&mut refusing(&copy, "fsync", error, Some(&to)))
            .expect(2)
            .says(&["stays at the source", "may not survive a power cut"]);
        assert_eq!(fs::read(source.join("small")).unwrap(), b"small");
        assert!(to.join("s/small").exists());
    }
}
