//! A destination without free space, or with an exhausted quota. The cause and the remedy are
//! named, existing files are not lost, and the same command completes once there is space.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::process::{Finished, binary_in, local_copy, run};
use crate::support::random::Random;
use crate::support::{assert_no_leftovers, is_root, tree};
use tempfile::TempDir;

const LARGE: usize = 6 << 20;

/// Files of which the destination has older versions, and new ones.
fn source(place: &Path) -> PathBuf {
    let source = place.join("s");
    tree::write(&source.join("small"), b"small");
    tree::write(&source.join("below/new"), b"new");
    tree::write(&source.join("large"), &Random::new(3).bytes(LARGE));
    for number in 0..40 {
        tree::write(&source.join(format!("many/{number}")), &[2; 3000]);
    }
    tree::set_times(&source);
    source
}

fn older(to: &Path) {
    for name in ["small", "large"] {
        tree::write(&to.join("s").join(name), b"older");
    }
}

/// Checks that each name of the destination has either its old or its new contents.
fn assert_nothing_lost(source: &Path, to: &Path, context: &str) {
    for name in ["small", "large"] {
        let found = fs::read(to.join("s").join(name)).unwrap();
        let whole = found == b"older" || found == fs::read(source.join(name)).unwrap();
        assert!(whole, "{context}: {name} has {} bytes", found.len());
    }
    for path in tree::paths(&to.join("s")) {
        let (left, right) = (source.join(&path), to.join("s").join(&path));
        if right.is_file() && fs::read(&right).unwrap() != b"older" && !tree::is_own(&right) {
            let same = fs::read(&left).unwrap() == fs::read(&right).unwrap();
            assert!(same, "{context}: {}", path.display());
        }
    }
}

fn place() -> TempDir {
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
    place
}

/// Runs the same command with a system call that reports an exhausted quota, as NFS may at any
/// step.
fn over_quota(command: &Command, call: &str) -> Command {
    let mut traced = Command::new("strace");
    traced.args(["-f", "-qq", "-o", "/dev/null"]);
    traced.args(["-e", &format!("trace={call}"), "-e"]);
    traced.arg(format!("inject={call}:error=EDQUOT"));
    traced.arg(command.get_program()).args(command.get_args());
    traced
}

#[test]
fn a_quota_at_any_step_names_its_remedy_and_loses_nothing() {
    let mut traces = Command::new("strace");
    traces.args(["-f", "-qq", "-o", "/dev/null", "true"]);
    if !traces.status().is_ok_and(|status| status.success()) {
        return longhaul_testing::skip("strace does not work (scripts/setup installs it)");
    }
    let place = place();
    let source = source(place.path());
    for call in ["fallocate", "pwrite64", "fsync", "renameat", "mkdirat"] {
        let to = place.path().join(call);
        older(&to);
        let copy = local_copy(&source, &to);
        let finished = run(&mut over_quota(&copy, call));
        assert!(matches!(finished.code, Some(2 | 6)), "{call}: {finished:?}");
        finished.says(&[
            "Disk quota exceeded",
            "remove some of its files, or ask for more, and run the same command again",
        ]);
        assert_nothing_lost(&source, &to, call);
        run(&mut local_copy(&source, &to)).expect(0);
        tree::assert_same(&source, &to.join("s"));
        assert_no_leftovers(&to);
    }
}

/// A shortage of space on a separate file system: shell commands that end with `m` mounted, or
/// print a text that begins with "no " if that is impossible.
struct Shortage {
    make: &'static str,
    /// Commands that run after the older files and other files of the user exist.
    limit: &'static str,
    /// Texts in the message of the copy.
    says: [&'static str; 2],
}

/// A disk on which other files take the space that the copy needs.
const FULL: Shortage = Shortage {
    make: "mkfs.ext4 -q -m 0 image 24m >/dev/null 2>&1 || { echo no mkfs.ext4; exit 0; }
        mount -o loop image m || { echo no loop devices; exit 0; }",
    limit: "true",
    says: [
        "No space left",
        "free some room and run the same command again",
    ],
};

/// A quota of bytes, of which other files of the user take most.
const BYTES: Shortage = Shortage {
    make: QUOTAS,
    limit: "setquota -u 65534 0 20000 0 0 m",
    says: [
        "Disk quota exceeded",
        "remove some of its files, or ask for more",
    ],
};

/// A quota of files.
const FILES: Shortage = Shortage {
    make: QUOTAS,
    limit: "setquota -u 65534 0 0 0 60 m; for n in $(seq 40); do $user touch m/filler.$n; done",
    says: [
        "Disk quota exceeded",
        "remove some of its files, or ask for more",
    ],
};

const QUOTAS: &str = "mkfs.ext4 -q -m 0 -O quota -E quotatype=usrquota image 64m >/dev/null 2>&1 \
    || { echo no mkfs.ext4 that makes quotas; exit 0; }
    mount -o loop,usrquota image m 2>/dev/null || { echo no kernel with quotas; exit 0; }
    command -v setquota >/dev/null || { echo no setquota: install the package quota; umount m; exit 0; }";

/// Copies as an ordinary user to a file system that is short of space, and again once there is
/// space. Copies the contents in between to `seen`. Returns `None` if this host cannot make such a
/// file system.
fn short_of_room(place: &Path, shortage: &Shortage) -> Option<Finished> {
    let script = format!(
        "user='setpriv --reuid=65534 --regid=65534 --clear-groups'
        mkdir m seen; {make}
        mkdir m/to; cp -a older/. m/to
        $user true; chown -R 65534:65534 m/to; chown 65534 m
        $user dd if=/dev/zero of=m/filler bs=1M count=15 status=none
        {limit}
        code=0; $user \"$1\" cp -r s m/to || code=$?
        echo first $code
        cp -a m/to/. seen
        rm m/filler*
        code=0; $user \"$1\" cp -r s m/to || code=$?
        echo second $code
        rm -rf done; cp -a m/to done
        umount m",
        make = shortage.make,
        limit = shortage.limit,
    );
    let mut shell = Command::new("unshare");
    shell.args(["-m", "sh", "-euc", &script, "sh"]);
    shell.arg(binary_in(place)).current_dir(place);
    let finished = run(&mut shell).expect(0);
    let output = String::from_utf8_lossy(&finished.output).into_owned();
    match output.trim() {
        "first 2\nsecond 0" => Some(finished),
        missing if missing.starts_with("no kernel") => {
            longhaul_testing::skip_without_kernel("there are no quotas: real ones were not tried");
            None
        }
        missing if missing.starts_with("no ") => {
            longhaul_testing::skip(missing);
            None
        }
        _ => panic!("{finished:?}"),
    }
}

#[test]
fn files_without_room_are_copied_once_there_is_room() {
    if !is_root() {
        return;
    }
    for (name, shortage) in [("full", &FULL), ("bytes", &BYTES), ("files", &FILES)] {
        let place = place();
        let source = source(place.path());
        older(&place.path().join("older"));
        let Some(finished) = short_of_room(place.path(), shortage) else {
            continue;
        };
        let finished = finished.says(&shortage.says);
        assert_nothing_lost(&source, &place.path().join("seen"), name);
        tree::assert_same(&source, &place.path().join("done/s"));
        assert_no_leftovers(&place.path().join("done"));
        drop(finished);
    }
}
