//! Permission bits: of what is being filled, of what is hard-linked at the destination, with
//! default lists, set-ID bits and `--chmod`, beside rsync and chmod(1).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use crate::support::process::{Finished, longhaul, run};
use crate::support::tree;
use tempfile::TempDir;

/// A directory for trees. A test that needs commands runs in it if they are installed.
fn place(commands: &[&str]) -> Option<TempDir> {
    let works = |command: &&str| Command::new(command).arg("--version").output().is_ok();
    if !commands.iter().all(works) {
        longhaul_testing::skip(&format!(
            "{commands:?}: one is missing (scripts/setup installs it)"
        ));
        return None;
    }
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
    Some(place)
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn mode_of(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

/// A command that runs in a directory, with a umask.
fn within(place: &Path, umask: &str, program: &std::ffi::OsStr, words: &[&str]) -> Command {
    let mut command = Command::new("sh");
    let plain = longhaul();
    for (name, value) in plain.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    command.args(["-c", "umask \"$0\"; exec \"$@\"", umask]);
    command.arg(program).args(words).current_dir(place);
    command
}

fn copy(place: &Path, umask: &str, words: &[&str]) -> Finished {
    let program = longhaul();
    let words = [&["cp", "-q"], words].concat();
    run(&mut within(place, umask, program.get_program(), &words))
}

fn other(place: &Path, umask: &str, words: &[&str]) {
    let (program, words) = words.split_first().unwrap();
    let output = within(place, umask, program.as_ref(), words)
        .output()
        .unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
}

/// While it is filled, and after that, a directory gives no rights that its source does not give.
// Promises 7 and 11.
#[test]
fn a_directory_is_never_more_open_than_its_source() {
    let place = place(&[]).unwrap();
    let place = place.path();
    for (number, (mode, options, umask, ended)) in [
        (0o700, &["-r"][..], "022", 0o700),
        (0o700, &["-a"], "022", 0o700),
        (0o750, &["-r"], "022", 0o750),
        (0o777, &["-r"], "022", 0o755),
        (0o777, &["-r"], "027", 0o750),
        (0o777, &["-a"], "022", 0o777),
        (0o700, &["-r", "--no-perms"], "022", 0o700),
        (0o700, &["-a", "--no-perms"], "022", 0o700),
        (0o500, &["-r"], "022", 0o700),
        (0o700, &["-r", "--chmod=D755"], "022", 0o755),
    ]
    .into_iter()
    .enumerate()
    {
        let (from, to) = (format!("s{number}"), format!("above{number}/d"));
        let source = place.join(&from);
        tree::write(&source.join("in/f"), b"data");
        tree::write(&source.join("f"), b"data");
        set_mode(&source.join("in"), mode | 0o300);
        set_mode(&source, mode | 0o300);
        set_mode(&source, mode);
        let log = place.join(format!("log{number}"));
        let say = format!("stat -c %a \"$(dirname \"$1\")\" >>{}", log.display());
        let (from, into) = (format!("{from}/"), to.clone());
        let words = [options, &["--on-commit", &say, &from, &into]].concat();
        let finished = copy(place, umask, &words);
        assert_eq!(finished.code, Some(0), "{words:?}: {}", finished.errors);
        let said = fs::read_to_string(&log).unwrap();
        for meanwhile in said.lines() {
            let meanwhile = u32::from_str_radix(meanwhile, 8).unwrap();
            assert_eq!(meanwhile & 0o077, 0, "{words:?}: {said}");
        }
        let to = place.join(to);
        assert_eq!(mode_of(&to), ended, "{words:?}");
        assert_eq!(mode_of(to.parent().unwrap()) & 0o700, 0o700, "{words:?}");
        set_mode(&source, 0o700);
    }
}

/// If a list does not name the source itself, the destination gets only the limit of permissions.
#[test]
fn a_directory_for_listed_names_is_no_more_open_than_their_source() {
    let place = place(&[]).unwrap();
    let place = place.path();
    tree::write(&place.join("s/f"), b"data");
    tree::set_modified(&place.join("s"), 1_500_000_000, 0);
    set_mode(&place.join("s"), 0o700);
    fs::write(place.join("list"), "f\n").unwrap();
    let finished = copy(place, "022", &["-a", "--files-from", "list", "s/", "d"]);
    assert_eq!(finished.code, Some(0), "{}", finished.errors);
    assert_eq!(mode_of(&place.join("d")), 0o700);
    let made = fs::metadata(place.join("d")).unwrap().mtime();
    assert!(made > 1_500_000_000, "{made}");
}

/// A directory that holds what is copied by its name, and no contents of a source, is a usual one.
// Promise 7.
#[test]
fn a_new_directory_for_sources_by_name_has_the_usual_mode() {
    let place = place(&[]).unwrap();
    let place = place.path();
    tree::write(&place.join("s/f"), b"data");
    set_mode(&place.join("s"), 0o700);
    let finished = copy(place, "022", &["-r", "s", "d"]);
    assert_eq!(finished.code, Some(0), "{}", finished.errors);
    assert_eq!(mode_of(&place.join("d")), 0o755);
    assert_eq!(mode_of(&place.join("d/s")), 0o700);
    // An existing directory keeps its mode.
    fs::create_dir(place.join("there")).unwrap();
    set_mode(&place.join("there"), 0o1700);
    let finished = copy(place, "022", &["-r", "s/", "there"]);
    assert_eq!(finished.code, Some(0), "{}", finished.errors);
    assert_eq!(mode_of(&place.join("there")), 0o1700);
}

// Promise 75.
#[test]
fn names_of_one_inode_that_need_different_modes_are_separated() {
    let place = place(&[]).unwrap();
    let place = place.path();
    let (s, d) = (place.join("s"), place.join("d"));
    for name in ["a", "key", "pub"] {
        tree::write(&s.join(name), b"k");
    }
    fs::hard_link(s.join("key"), s.join("key too")).unwrap();
    tree::set_times(&s);
    for name in ["a", "key", "pub"] {
        set_mode(&s.join(name), 0o644);
    }
    set_mode(&s.join("key"), 0o600);
    for options in [
        &["-r"][..],
        &["-rH"],
        &["-rc"],
        &["-rHI"],
        &["-r", "--size-only"],
    ] {
        let _ = fs::remove_dir_all(&d);
        fs::create_dir(&d).unwrap();
        let whole = copy(place, "022", &["s/pub", "d/a"]);
        assert_eq!(whole.code, Some(0), "{}", whole.errors);
        for name in ["key", "key too", "pub"] {
            fs::hard_link(d.join("a"), d.join(name)).unwrap();
        }
        let finished = copy(place, "022", &[options, &["s/", "d"]].concat());
        assert_eq!(finished.code, Some(0), "{options:?}: {}", finished.errors);
        for name in ["a", "key", "key too", "pub"] {
            let modes = (mode_of(&d.join(name)), mode_of(&s.join(name)));
            assert_eq!(modes.0, modes.1, "{options:?} {name}");
        }
    }
}

/// Copies a tree with both commands, and compares what modes it has then.
fn as_rsync(
    place: &Path,
    number: usize,
    (umask, list): (&str, &str),
    (ours, theirs): (&[&str], &[&str]),
) {
    let (d, r) = (format!("d{number}"), format!("r{number}"));
    for to in [&d, &r] {
        fs::create_dir(place.join(to)).unwrap();
        set_mode(&place.join(to), 0o2775);
        if !list.is_empty() {
            other(place, "022", &["setfacl", "-d", "-m", list, to]);
        }
    }
    let finished = copy(place, umask, &[ours, &["s/", &d]].concat());
    assert_eq!(finished.code, Some(0), "{ours:?}: {}", finished.errors);
    other(place, umask, &[&["rsync"], theirs, &["s/", &r]].concat());
    for name in ["in", "in/deep", "in/f", "f", "run"] {
        let [d, r] = [&d, &r].map(|to| mode_of(&place.join(to).join(name)));
        assert_eq!(
            format!("{d:o}"),
            format!("{r:o}"),
            "{name}: {ours:?}, {umask} {list}"
        );
    }
}

// Promise 76.
#[test]
fn modes_are_those_that_rsync_gives() {
    let Some(place) = place(&["rsync", "setfacl"]) else {
        return;
    };
    let place = place.path();
    for name in ["in/deep/f", "in/f", "f", "run"] {
        tree::write(&place.join("s").join(name), b"data");
    }
    set_mode(&place.join("s/run"), 0o755);
    set_mode(&place.join("s/f"), 0o666);
    set_mode(&place.join("s/in/f"), 0o640);
    set_mode(&place.join("s/in"), 0o2755);
    set_mode(&place.join("s/in/deep"), 0o777);
    let left = (&["-r", "--no-perms"][..], &["-r"][..]);
    let changed = |change: &'static str| ([change, "-r"], [change, "-rp"]);
    let mut number = 0;
    let mut check = |setting: (&str, &str), words: (&[&str], &[&str])| {
        as_rsync(place, number, setting, words);
        number += 1;
    };
    for setting in [
        ("022", ""),
        ("077", ""),
        ("022", "u::rwx,g::rx,o::-"),
        ("077", "u::rwx,g::rwx,o::rx"),
        ("022", "u::rwx,g::rx,o::r,u:nobody:rwx,m::rwx"),
    ] {
        check(setting, left);
    }
    for change in [
        "--chmod=ug=rwX,o=",
        "--chmod=Dg=rwx",
        "--chmod=Dg+s,Fo-r",
        "--chmod=D2775,F664",
        "--chmod=Dg-s",
        "--chmod=a+rX,go-w",
        "--chmod=Fu+s",
    ] {
        let (ours, theirs) = changed(change);
        check(("022", ""), (&ours, &theirs));
    }
}

// Promise 76.
#[test]
fn copied_bits_are_those_of_chmod() {
    let Some(place) = place(&["chmod"]) else {
        return;
    };
    let place = place.path();
    for (number, change) in ["g=u", "go=u", "o=g", "g+o", "u-g", "g=u,o=", "=u"]
        .into_iter()
        .enumerate()
    {
        for mode in [0o640, 0o751, 0o604] {
            let name = format!("f{number}-{mode:o}");
            tree::write(&place.join(&name), b"data");
            set_mode(&place.join(&name), mode);
            let (to, option) = (format!("{name}.to"), format!("--chmod={change}"));
            let finished = copy(place, "022", &[&option, &name, &to]);
            assert_eq!(finished.code, Some(0), "{change}: {}", finished.errors);
            other(place, "022", &["chmod", change, &name]);
            let modes = [name, to].map(|name| format!("{:o}", mode_of(&place.join(name))));
            assert_eq!(modes[1], modes[0], "{change} of {mode:o}");
        }
    }
}
