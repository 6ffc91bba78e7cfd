//! Sources: their names, the copied parts, and their identity over several runs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::process::{Running, longhaul_with, run};
use crate::support::random::Random;
use crate::support::{assert_no_leftovers, daemon::Daemon, is_root, tree};

/// The same command on a host of another name.
fn elsewhere(command: &Command) -> Command {
    let mut other = Command::new("unshare");
    let script = "echo elsewhere >/proc/sys/kernel/hostname && exec \"$@\"";
    other.args(["--uts", "sh", "-c", script, "sh"]);
    other.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => other.env(name, value),
            None => other.env_remove(name),
        };
    }
    other
}

/// Kills a copy once a part is durable, and resumes it on a host of another name. `copy` takes
/// further flags.
fn resume_elsewhere(copy: impl Fn(&[&str]) -> Command) {
    let limits = ["--json", "--bwlimit", "2MB/s", "--checkpoint", "1MiB"];
    let running = Running::start(&mut copy(&limits));
    let durable = running.event(|event| event["event"] == "durable");
    assert!(
        durable.is_some(),
        "the copy ended before any data were durable"
    );
    running.kill();
    let finished = run(&mut elsewhere(&copy(&["--json"]))).expect(0);
    let resumed = finished.events();
    let resumed = resumed.iter().any(|event| event["event"] == "resumed");
    assert!(resumed, "{finished:?}");
}

// Promise 12.
#[test]
fn a_host_of_another_name_resumes_existing_data() {
    if !is_root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let (source, destination) = (place.path().join("source"), place.path().join("d"));
    tree::write(&source.join("large"), &Random::new(8).bytes(40 << 20));
    for number in 0..50 {
        tree::write(&source.join(format!("small{number}")), b"small");
    }
    let copy = |flags: &[&str]| {
        let paths = [source.as_os_str(), destination.as_os_str()];
        let mut command = longhaul_with(&[OsStr::new("cp"), OsStr::new("-r")]);
        command.args(flags).args(paths);
        command
    };
    resume_elsewhere(copy);
    tree::assert_same(&source, &destination.join("source"));
    assert_no_leftovers(place.path());
}

// Promise 12.
#[test]
fn a_daemon_resumes_a_source_that_another_host_sends() {
    if !is_root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let source = place.path().join("large");
    tree::write(&source, &Random::new(9).bytes(40 << 20));
    let served = place.path().join("served");
    fs::create_dir(&served).unwrap();
    let daemon = Daemon::start(&served);
    let copy = |flags: &[&str]| {
        let mut command = daemon.command("cp");
        command.args(flags).arg(&source).arg(daemon.url("/"));
        command
    };
    resume_elsewhere(copy);
    assert_eq!(tree::difference(&source, &served.join("large")), None);
}

/// Runs an action while a thread appends `line` to a file without a pause.
fn while_growing<T>(file: &Path, line: &[u8], action: impl FnOnce() -> T) -> T {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut file = OpenOptions::new().append(true).open(file).unwrap();
            while !ended.load(Ordering::Relaxed) {
                file.write_all(line).unwrap();
                std::thread::yield_now();
            }
        });
        let done = action();
        ended.store(true, Ordering::Relaxed);
        done
    })
}

// Promise 21.
#[test]
fn the_front_of_a_growing_file_is_copied() {
    let place = tempfile::tempdir().unwrap();
    let served = place.path().join("served");
    fs::create_dir(&served).unwrap();
    let daemon = Daemon::start(&served);
    // In one block, and in many.
    for length in [300 << 10, 24 << 20] {
        let source = place.path().join("log");
        let bytes = Random::new(5).bytes(length);
        tree::write(&source, &bytes);
        let copy = |landed: &Path, command: &mut Command| {
            let finished = while_growing(&source, b"one more line\n", || run(command));
            let there = fs::read(landed).unwrap();
            assert!(there.len() >= length, "{}", there.len());
            assert!(
                fs::read(&source).unwrap().starts_with(&there),
                "the first part is missing"
            );
            // A single read may see a consistent state of the file.
            if length > 1 << 20 || finished.code != Some(0) {
                let size = format!("its first {} bytes", there.len());
                let said = ["log: it grew while copied", &size, "copy it again"];
                finished.expect(2).says(&said);
            }
            // No process writes to the file any more.
            run(command).expect(0);
            assert_eq!(tree::difference(&source, landed), None);
            fs::remove_file(landed).unwrap();
        };
        let local = place.path().join("local");
        fs::create_dir_all(&local).unwrap();
        let paths = [source.as_os_str(), local.as_os_str()];
        let mut command = longhaul_with(&[
            OsStr::new("cp"),
            OsStr::new("--checkpoint"),
            OsStr::new("1MiB"),
        ]);
        copy(&local.join("log"), command.args(paths));
        let mut push = daemon.command("cp");
        copy(&served.join("log"), push.arg(&source).arg(daemon.url("/")));
    }
    assert_no_leftovers(place.path());
}

#[test]
fn a_daemon_sends_the_front_of_a_growing_file() {
    let place = tempfile::tempdir().unwrap();
    let (served, local) = (place.path().join("served"), place.path().join("local"));
    fs::create_dir(&local).unwrap();
    let source = served.join("log");
    tree::write(&source, &Random::new(6).bytes(12 << 20));
    let daemon = Daemon::start(&served);
    let mut pull = daemon.command("cp");
    pull.arg("--json").arg(daemon.url("/log")).arg(&local);
    let finished = while_growing(&source, b"one more line\n", || run(&mut pull)).expect(2);
    let kinds = finished.events();
    let kinds = kinds.iter().filter_map(|event| event["kind"].as_str());
    assert_eq!(kinds.collect::<Vec<_>>(), ["Grew"], "{finished:?}");
    let there = fs::read(local.join("log")).unwrap();
    assert!(
        fs::read(&source).unwrap().starts_with(&there),
        "the first part is missing"
    );
}

#[test]
fn names_of_an_earlier_source_are_left_out_and_named() {
    let place = tempfile::tempdir().unwrap();
    let at = |path: &str| place.path().join(path);
    tree::write(&at("a/x"), b"1");
    tree::write(&at("a/both"), b"a");
    tree::write(&at("a/dir/inner"), b"a");
    tree::write(&at("b/x/g"), b"2");
    tree::write(&at("b/x/deep/h"), b"3");
    tree::write(&at("b/both"), b"b");
    tree::write(&at("b/dir/more"), b"b");
    tree::write(&at("c/dir"), b"c");
    // The very same file is no loss.
    tree::write(&at("a/same"), b"s");
    fs::hard_link(at("a/same"), at("b/same")).unwrap();
    let left_out = ["x", "x/g", "x/deep", "x/deep/h", "both", "dir"];
    let check = |finished: crate::support::process::Finished, to: &Path| {
        let finished = finished.expect(2);
        for name in left_out {
            assert!(
                finished
                    .errors
                    .contains(&format!("{name}: left out of what")),
                "{finished:?}"
            );
        }
        assert_eq!(
            finished.errors.matches("left out of what").count(),
            left_out.len()
        );
        for (name, bytes) in [
            ("x", b"1"),
            ("both", b"a"),
            ("dir/inner", b"a"),
            ("dir/more", b"b"),
        ] {
            assert_eq!(fs::read(to.join(name)).unwrap(), bytes, "{name}");
        }
    };
    let mut command = longhaul_with(&["cp", "-r"]);
    let sources = ["a/", "b/", "c/"];
    command.args(sources.map(at)).arg(at("d"));
    check(run(&mut command), &at("d"));
    let daemon = Daemon::start(place.path());
    let mut push = daemon.command("cp");
    push.arg("-r")
        .args(sources.map(at))
        .arg(daemon.url("/pushed"));
    check(run(&mut push), &at("pushed"));
    let mut pull = daemon.command("cp");
    pull.arg("-r")
        .args(["/a/", "/b/", "/c/"].map(|path| daemon.url(path)))
        .arg(at("pulled"));
    check(run(&mut pull), &at("pulled"));
    assert_no_leftovers(place.path());
}

/// Returns a command that copies one path to another.
type Way<'a> = &'a dyn Fn(&str, &str) -> Command;

// Promise 27.
#[test]
fn a_link_named_as_the_source_is_copied_or_followed() {
    use std::os::unix::fs::symlink;
    let place = tempfile::tempdir().unwrap();
    let at = |path: &str| place.path().join(path);
    tree::write(&at("s/data/f"), b"f");
    symlink("data", at("s/tree")).unwrap();
    symlink("data/f", at("s/file")).unwrap();
    symlink("nowhere", at("s/dangling")).unwrap();
    let daemon = Daemon::start(place.path());
    let ways: [Way<'_>; 3] = [
        &|from, to| {
            let mut command = longhaul_with(&["cp"]);
            command.arg(at(from)).arg(at(to));
            command
        },
        &|from, to| {
            let mut command = daemon.command("cp");
            command.arg(at(from)).arg(daemon.url(format!("/{to}")));
            command
        },
        &|from, to| {
            let mut command = daemon.command("cp");
            command.arg(daemon.url(format!("/{from}"))).arg(at(to));
            command
        },
    ];
    for (number, way) in ways.iter().enumerate() {
        let into = format!("into{number}");
        fs::create_dir(at(&into)).unwrap();
        for (name, target) in [
            ("tree", "data"),
            ("file", "data/f"),
            ("dangling", "nowhere"),
        ] {
            run(way(&format!("s/{name}"), &into).arg("-r")).expect(0);
            let landed = at(&into).join(name);
            assert_eq!(
                fs::read_link(&landed).unwrap(),
                Path::new(target),
                "{number}"
            );
            // The link is copied under another name, twice.
            let renamed = format!("{into}/as-{name}");
            for _ in 0..2 {
                run(way(&format!("s/{name}"), &renamed).arg("-r")).expect(0);
                assert_eq!(fs::read_link(at(&renamed)).unwrap(), Path::new(target));
            }
        }
        if number < 2 {
            // Without -r a link to a file is that file; at a daemon too.
            run(&mut way("s/file", &format!("{into}/followed"))).expect(0);
            assert_eq!(fs::read(at(&into).join("followed")).unwrap(), b"f");
            assert!(!at(&into).join("followed").is_symlink());
            run(way("s/tree/", &format!("{into}/filled")).arg("-r")).expect(0);
            assert_eq!(fs::read(at(&into).join("filled/f")).unwrap(), b"f");
        }
        run(way("s/tree", &format!("{into}/L/")).args(["-r", "-L"])).expect(0);
        assert_eq!(fs::read(at(&into).join("L/tree/f")).unwrap(), b"f");
        run(&mut way("s/dangling", &into)).expect(6);
    }
    let verify = |left: &str, right: &str| {
        let mut command = longhaul_with(&["verify"]);
        run(command.arg(at(left)).arg(at(right)))
    };
    verify("s/tree", "into0/tree").expect(0);
    verify("s/tree", "s/data").expect(0);
    verify("s/file", "into0/followed").expect(0);
    verify("s/dangling", "into0/tree").expect(5);
}

// Promise 55.
#[test]
fn ls_and_cp_expand_wildcards_equally() {
    let place = tempfile::tempdir().unwrap();
    for name in ["run1/a.h5", "run1/b.txt", "run2/a.h5", "runs"] {
        tree::write(&place.path().join("data").join(name), b"x");
    }
    let daemon = Daemon::start(place.path());
    let listed = |pattern: &str| run(daemon.command("ls").arg(daemon.url(pattern)));
    let lines = |finished: crate::support::process::Finished| finished.expect(0).output;
    assert_eq!(lines(listed("/data/run?/*.h5")), b"run1/a.h5\nrun2/a.h5\n");
    assert_eq!(lines(listed("/data/run2*")), b"run2\nrun2/a.h5\n");
    listed("/data/none*").expect(6);
    let modules = run(&mut longhaul_with(&["cp", "-r", "x", "dtn::h"]));
    modules.expect(1).says(&["dtn::h", "dtn:PATH"]);
}

// Promise 24.
#[test]
fn files_without_a_reported_size_are_copied_with_their_content() {
    let place = tempfile::tempdir().unwrap();
    let at = |path: &str| place.path().join(path);
    fs::create_dir(at("d")).unwrap();
    // One file is in memory, one has several blocks, and one has fewer bytes than its reported
    // size.
    let sources = [
        "/proc/version",
        "/proc/kallsyms",
        "/sys/kernel/fscaps",
        "/proc/self/limits",
    ];
    for source in sources.map(Path::new) {
        let expected = fs::read(source).unwrap();
        assert!(!expected.is_empty(), "{source:?}");
        let landed = at("d").join(source.file_name().unwrap());
        let mut command = longhaul_with(&["cp"]);
        run(command.arg(source).arg(at("d"))).expect(0);
        let copied = fs::read(&landed).unwrap();
        if !source.starts_with("/proc/self") {
            assert!(copied == expected, "{source:?}: {} bytes", copied.len());
            let mut verify = longhaul_with(&["verify"]);
            run(verify.arg(source).arg(&landed)).expect(0);
            let mut verify = longhaul_with(&["verify"]);
            run(verify.arg(&landed).arg(source)).expect(0);
        }
        fs::write(&landed, "").unwrap();
        let mut verify = longhaul_with(&["verify"]);
        run(verify.arg(source).arg(&landed)).expect(5);
    }
}

// Promise 24.
#[test]
fn a_file_that_never_ends_is_a_failure() {
    if !is_root() {
        return;
    }
    if fs::File::open("/proc/kmsg").is_err() {
        longhaul_testing::skip_without_kernel("/proc/kmsg cannot be read");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let mut command = longhaul_with(&["cp"]);
    let finished = run(command.arg("/proc/kmsg").arg(place.path())).expect(2);
    finished.says(&["kmsg", "it tells no size", "did not end"]);
    assert!(!place.path().join("kmsg").exists());
}
