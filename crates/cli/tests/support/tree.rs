//! Trees: one with everything that is hard to copy, and how two are compared.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, Permissions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

use super::random::Random;

/// Writes a file, and the directories above it.
pub fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Sets the time of modification, of a link itself where it is one.
pub fn set_modified(path: &Path, seconds: i64, nanoseconds: i64) {
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A tree with everything in it that is easily lost.
pub fn hard_tree(root: &Path) {
    let mut random = Random::new(7);
    fs::create_dir_all(root.join("empty/inner")).unwrap();
    write(&root.join("empty file"), b"");
    write(&root.join("deep/er/est/file"), b"deep");
    write(&root.join("large"), &random.bytes((9 << 20) + 17));
    write(&root.join("one block"), &random.bytes(4 << 20));
    for number in 0..40 {
        let length = random.below(9000) as usize;
        let bytes = random.bytes(length);
        write(&root.join(format!("many/{number:03}")), &bytes);
    }
    for name in [
        &b"not \xff\xfe UTF-8"[..],
        b"new\nline",
        b"back\\slash",
        b" ",
        b"-r",
        b"*?\"'",
    ] {
        write(&root.join("names").join(OsStr::from_bytes(name)), name);
    }
    let long = "l".repeat(255);
    write(&root.join("names").join(long), b"long");
    write(
        &root
            .join("names")
            .join(OsStr::from_bytes(b"d\xff"))
            .join("x"),
        b"x",
    );
    symlink("nowhere", root.join("dangling")).unwrap();
    symlink("deep/er", root.join("to a directory")).unwrap();
    symlink("/etc/hostname", root.join("absolute")).unwrap();
    symlink(OsStr::from_bytes(b"\xff\n"), root.join("odd target")).unwrap();
    // Set-user-ID bits depend on the user who copies. Separate tests check them.
    for mode in [0o444, 0o755, 0o600, 0o1644] {
        let path = root.join(format!("modes/{mode:o}"));
        write(&path, format!("{mode:o}").as_bytes());
        set_mode(&path, mode);
    }
    sparse_file(&root.join("sparse"), 40 << 20);
    sparse_file(&root.join("sparse small"), 300 << 10);
    File::create(root.join("only a hole"))
        .and_then(|file| file.set_len(5 << 20))
        .unwrap();
    for (name, mode) in [("setgid", 0o2775), ("sticky", 0o1777), ("closed", 0o555)] {
        let path = root.join("modes").join(name);
        write(&path.join("inside"), name.as_bytes());
        set_mode(&path, mode);
    }
    set_times(root);
}

/// A file with data at the start, in the middle and near the end.
pub fn sparse_file(path: &Path, length: u64) {
    let file = File::create(path).unwrap();
    file.set_len(length).unwrap();
    file.write_all_at(b"start", 0).unwrap();
    file.write_all_at(&[1; 5000], length / 2 + 3).unwrap();
    file.write_all_at(b"end", length - 3).unwrap();
    file.sync_all().unwrap();
}

/// Old times with nanoseconds, each another, from the leaves to the root.
pub fn set_times(root: &Path) {
    let mut number = 0;
    for path in paths(root).iter().rev() {
        number += 1;
        set_modified(
            &root.join(path),
            1_500_000_000 + number,
            123_456_000 + number,
        );
    }
}

/// All paths beneath a directory, each after the directory it is in; the root
/// itself is the empty path.
pub fn paths(root: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    let mut at = 0;
    while at < found.len() {
        let path = found[at].clone();
        at += 1;
        let whole = root.join(&path);
        match fs::symlink_metadata(&whole) {
            Ok(status) if status.is_dir() => (),
            // A daemon may be at work.
            Err(error) if !is_own(&path) => panic!("{path:?}: {error}"),
            _ => continue,
        }
        let mut names: Vec<OsString> = fs::read_dir(&whole)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        found.extend(names.into_iter().map(|name| path.join(name)));
    }
    found
}

/// Returns the leftovers of longhaul in a directory, at any depth.
pub fn leftovers(root: &Path) -> Vec<PathBuf> {
    let own = paths(root).into_iter().filter(|path| is_own(path));
    own.collect()
}

/// True if the name is one of longhaul's temporary names.
pub fn is_own(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name.as_bytes().starts_with(b".longhaul-"))
}

/// Fails unless two trees are the same in everything.
#[track_caller]
pub fn assert_same(left: &Path, right: &Path) {
    let (in_left, in_right) = (paths(left), paths(right));
    let missing: Vec<_> = differences(&in_left, &in_right);
    let extra: Vec<_> = differences(&in_right, &in_left);
    assert!(
        missing.is_empty() && extra.is_empty(),
        "missing: {missing:?}, too many: {extra:?}"
    );
    for path in &in_left {
        if let Some(difference) = difference(&left.join(path), &right.join(path)) {
            panic!("{path:?}: {difference}");
        }
    }
}

fn differences<'a>(left: &'a [PathBuf], right: &[PathBuf]) -> Vec<&'a PathBuf> {
    let right: std::collections::BTreeSet<_> = right.iter().collect();
    left.iter().filter(|path| !right.contains(path)).collect()
}

/// Returns the first difference between two entries, if there is one.
pub fn difference(left: &Path, right: &Path) -> Option<String> {
    let (a, b) = (
        fs::symlink_metadata(left).unwrap(),
        fs::symlink_metadata(right).unwrap(),
    );
    if a.file_type() != b.file_type() {
        return Some("another type".to_owned());
    }
    if !a.is_symlink() && a.mode() != b.mode() {
        return Some(format!("mode {:o}, not {:o}", b.mode(), a.mode()));
    }
    let times = |m: &Metadata| (m.mtime(), m.mtime_nsec());
    if times(&a) != times(&b) {
        return Some(format!("time {:?}, not {:?}", times(&b), times(&a)));
    }
    if a.is_symlink() {
        let (a, b) = (fs::read_link(left).unwrap(), fs::read_link(right).unwrap());
        return (a != b).then(|| format!("to {b:?}, not {a:?}"));
    }
    if a.is_file() {
        if fs::read(left).unwrap() != fs::read(right).unwrap() {
            return Some("other bytes".to_owned());
        }
        // Allocation differs by a block or an extent, not by half the file.
        let sparse = a.blocks() * 512 + (1 << 20) < a.len();
        if sparse && b.blocks() > a.blocks() + 256 {
            return Some(format!("{} blocks, not {}", b.blocks(), a.blocks()));
        }
    }
    None
}

/// Every file at the destination that has its final name is whole: what a kill
/// may never leave otherwise. Gives the number of such files.
#[track_caller]
pub fn assert_nothing_half_written(source: &Path, destination: &Path) -> usize {
    let mut count = 0;
    if !destination.exists() {
        return 0;
    }
    for path in paths(destination) {
        let there = destination.join(&path);
        if is_own(&path) || fs::symlink_metadata(&there).unwrap().is_dir() {
            continue;
        }
        if let Some(difference) = difference(&source.join(&path), &there) {
            panic!("{path:?} has its name, but {difference}");
        }
        count += 1;
    }
    count
}

/// Many small files in some directories, and some large ones.
pub fn mixed_tree(root: &Path, files: u64, bytes: u64) {
    let mut random = Random::new(11);
    let block = random.bytes(4 << 20);
    let large = (bytes / 12).max(2 << 20);
    for number in 0..files {
        let length = random.below(8000) as usize;
        let start = random.below(1 << 20) as usize;
        let name = format!("d{}/s{}/f{number}", number % 7, number % 31);
        write(&root.join(name), &block[start..start + length]);
    }
    for number in 0..8 {
        let path = root.join(format!("d{}/large{number}", number % 3));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut file = File::create(&path).unwrap();
        let mut left = large + random.below(large);
        while left > 0 {
            let length = left.min(block.len() as u64) as usize;
            let mark = random.bits().to_le_bytes();
            file.write_all(&mark[..8.min(length)]).unwrap();
            file.write_all(&block[8.min(length)..length]).unwrap();
            left -= length as u64;
        }
    }
    set_times(root);
}
