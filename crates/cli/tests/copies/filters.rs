//! Filters of `cp`: the same selection within a host, to a daemon and from one, as rsync has it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use crate::support::Daemon;
use crate::support::process::{longhaul, run};
use crate::support::ways::slashed;
use serde_json::Value;
use tempfile::TempDir;

fn place() -> TempDir {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("data");
    for (name, text) in [
        ("a.o", "1"),
        ("a.c", "12"),
        ("build/x.c", "1"),
        ("src/a.o", "1"),
        ("src/keep.o", "1"),
        ("src/deep/b.c", "12345"),
        ("src/.gitignore", "*.o\n!keep.o\n/deep/\n"),
        ("src/.rsync-filter", "- /deep\n"),
    ] {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    place
}

/// Files below a directory, by their paths in order.
fn files(root: &Path) -> Vec<String> {
    fn walk(root: &Path, at: &Path, all: &mut Vec<String>) {
        for entry in std::fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(root, &path, all);
            } else {
                let inner = path.strip_prefix(root).unwrap();
                all.push(inner.to_str().unwrap().to_owned());
            }
        }
    }
    let mut all = Vec::new();
    walk(root, root, &mut all);
    all.sort();
    all
}

// Promise 63.
#[test]
fn local_and_daemon_copies_select_the_same_files_as_rsync() {
    let place = place();
    let daemon = Daemon::start(place.path());
    let rsync = Command::new("rsync").arg("--version").output().is_ok();
    if !rsync {
        longhaul_testing::skip("there is no rsync: install the package rsync");
    }
    for (number, flags) in [
        &["--exclude=*.o"][..],
        &["--include=keep.o", "--exclude=*.o", "--exclude", "/build/"],
        &["--include=*/", "--include=*.c", "--exclude=*"],
        &["-f", "- deep/***", "--max-size=1"],
        &["-F", "--min-size=2"],
        &["-FF"],
        &["-x", "-f", "-! */"],
    ]
    .into_iter()
    .enumerate()
    {
        let data = place.path().join("data");
        let to = |kind: &str| place.path().join(format!("{kind}{number}"));
        let copy = |mut command: Command, from: OsString, to: OsString| {
            run(command.args(["-r"]).args(flags).arg(from).arg(to)).expect(0);
        };
        let mut local = longhaul();
        local.arg("cp");
        copy(local, slashed(&data), slashed(&to("local")));
        let url = daemon.url(format!("push{number}/"));
        copy(daemon.command("cp"), slashed(&data), url);
        copy(
            daemon.command("cp"),
            daemon.url("data/"),
            slashed(&to("pull")),
        );
        let expected = files(&to("local"));
        assert_eq!(files(&to("push")), expected, "{flags:?}");
        assert_eq!(files(&to("pull")), expected, "{flags:?}");
        if rsync {
            let mut command = Command::new("rsync");
            command.arg("-r").args(flags).arg(slashed(&data));
            assert!(
                command
                    .arg(slashed(&to("rsync")))
                    .status()
                    .unwrap()
                    .success()
            );
            assert_eq!(files(&to("rsync")), expected, "{flags:?}");
        }
    }
}

#[test]
fn files_that_git_ignores_are_left_out_and_counted() {
    let place = place();
    let to = place.path().join("to");
    let mut command = longhaul();
    command.args(["cp", "-r", "--json", "--gitignore"]);
    command.arg(slashed(&place.path().join("data"))).arg(&to);
    let output = run(&mut command).expect(0).output;
    let expected = [
        "a.c",
        "a.o",
        "build/x.c",
        "src/.gitignore",
        "src/.rsync-filter",
        "src/keep.o",
    ];
    assert_eq!(files(&to), expected);
    let last = output
        .split(|byte| *byte == b'\n')
        .rfind(|line| !line.is_empty());
    let summary: Value = serde_json::from_slice(last.unwrap()).unwrap();
    assert_eq!(summary["left_out"]["rules"], 2, "{summary}");
    assert_eq!(summary["failed_entries"], 0);
}

#[test]
fn a_list_of_files_is_read_from_a_file_or_a_pipe() {
    let place = place();
    let daemon = Daemon::start(place.path());
    let data = place.path().join("data");
    let list = place.path().join("list");
    std::fs::write(&list, "src/deep\n./a.c\n").unwrap();
    let from = format!("--files-from={}", list.display());
    let to = place.path().join("pulled");
    let mut command = daemon.command("cp");
    command.args(["-r", &from]).arg(daemon.url("data"));
    run(command.arg(&to)).expect(0);
    assert_eq!(files(&to), ["a.c", "src/deep/b.c"]);
    let to = place.path().join("piped");
    std::fs::write(&list, "src/keep.o\0missing\0").unwrap();
    let output = longhaul()
        .args(["cp", "-0", "--files-from", "-"])
        .arg(&data)
        .arg(&to)
        .stdin(std::fs::File::open(&list).unwrap())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("missing"), "{errors}");
    assert_eq!(files(&to), ["src/keep.o"]);
}

#[test]
fn invalid_filters_are_refused_before_any_file_is_made() {
    let place = place();
    let to = place.path().join("to");
    let long = format!("--exclude={}", "x".repeat(5000));
    for (flags, text) in [
        (&["--filter=foo"][..], "begins with no rule"),
        (&["--filter=: a/b"], "without a slash"),
        (&["-f", ". /nonexistent"], "/nonexistent"),
        (&["--exclude-from=/nonexistent"], "/nonexistent"),
        (&["--newer-than=yesterday"], "date"),
        (&[long.as_str()], "4096"),
    ] {
        let mut command = longhaul();
        command.args(["cp", "-r"]).args(flags);
        command.arg(place.path().join("data")).arg(&to);
        run(&mut command).expect(1).says(&[text]);
        assert!(!to.exists(), "{flags:?}");
    }
}

// Promise 65.
#[test]
fn more_rules_than_fit_into_a_request_are_refused() {
    let place = place();
    let daemon = Daemon::start(place.path());
    let list = place.path().join("many");
    std::fs::write(&list, "some/pattern\n".repeat(3000)).unwrap();
    let from = format!("--exclude-from={}", list.display());
    let to = place.path().join("to");
    let mut command = daemon.command("cp");
    command.args(["-r", &from]).arg(daemon.url("data"));
    run(command.arg(&to))
        .expect(1)
        .says(&["32768", "fewer patterns"]);
    let mut command = longhaul();
    command
        .args(["cp", "-r", &from])
        .arg(place.path().join("data"));
    run(command.arg(&to)).expect(0);
}

/// Makes a directory with files and a link to a file of rules outside of it.
fn linked(to: &str) -> TempDir {
    let place = tempfile::tempdir().unwrap();
    for name in ["data/x", "data/y", "data/in/x"] {
        let path = place.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "1").unwrap();
    }
    std::fs::write(place.path().join("rules"), "- x\n").unwrap();
    std::os::unix::fs::symlink(to, place.path().join("data/.rsync-filter")).unwrap();
    place
}

// Promise 64.
#[test]
fn rules_in_a_link_are_read_beneath_the_root() {
    let place = linked("../rules");
    let data = place.path().join("data");
    let daemon = Daemon::with(place.path(), &["--write", "--delete"]);
    let to = |kind: &str| place.path().join(kind);
    let there = |kind: &str| {
        std::fs::create_dir_all(to(kind)).unwrap();
        for name in ["x", "z"] {
            std::fs::write(to(kind).join(name), "there").unwrap();
        }
    };
    let mirror = |mut command: Command, flag: &str, ends: [OsString; 2]| {
        run(command.args(["-r", "--delete", flag]).args(ends))
    };
    for flag in ["-F", "-FF"] {
        for kind in ["local", "push", "pull"] {
            there(kind);
            let local = || {
                let mut command = longhaul();
                command.arg("cp");
                command
            };
            let (command, ends) = match kind {
                "local" => (local(), [slashed(&data), slashed(&to(kind))]),
                "push" => (daemon.command("cp"), [slashed(&data), daemon.url("push/")]),
                _ => (
                    daemon.command("cp"),
                    [daemon.url("data/"), slashed(&to(kind))],
                ),
            };
            mirror(command, flag, ends).expect(0);
            let found: Vec<String> = files(&to(kind));
            let found: Vec<&str> = found.iter().map(String::as_str).collect();
            let found: Vec<&str> = found
                .into_iter()
                .filter(|name| !name.starts_with('.'))
                .collect();
            assert_eq!(found, ["x", "y"], "{flag} {kind}");
            std::fs::remove_dir_all(to(kind)).unwrap();
        }
    }
    // A daemon follows no link out of its root.
    let closed = Daemon::start(&data);
    let mut command = closed.command("cp");
    command
        .args(["-r", "-F"])
        .arg(closed.url("/"))
        .arg(to("out"));
    run(&mut command)
        .expect(2)
        .says(&["outside of what the daemon serves"]);
    assert!(!to("out").join("x").exists());
    // As in rsync, a missing file means no rules.
    let place = linked("nowhere");
    let to = place.path().join("to");
    let mut command = longhaul();
    command
        .args(["cp", "-r", "-FF"])
        .arg(slashed(&place.path().join("data")))
        .arg(&to);
    run(&mut command).expect(0);
    assert_eq!(files(&to), ["in/x", "x", "y"]);
}

/// A per-directory file cannot name files next to the source.
#[test]
fn a_per_directory_file_names_files_of_the_source_only() {
    let place = linked("../rules");
    let data = place.path().join("data");
    let daemon = Daemon::start(&data);
    std::fs::write(place.path().join("secret"), "secret\n").unwrap();
    std::os::unix::fs::symlink("../secret", data.join("link")).unwrap();
    let file = data.join(".rsync-filter");
    std::fs::remove_file(&file).unwrap();
    let absolute = format!(". {}/secret", place.path().display());
    for (text, expected) in [
        (". ./../secret", "not in the tree"),
        (&absolute, "not in the tree"),
        (". ./missing", "missing"),
        (". missing", "missing"),
        (". ./in", "cannot read the filter file"),
        (". ./.rsync-filter", "name each other"),
    ] {
        std::fs::write(&file, text).unwrap();
        for pulls in [false, true] {
            let mut command = if pulls {
                daemon.command("cp")
            } else {
                let mut command = longhaul();
                command.arg("cp");
                command
            };
            command.args(["-r", "-F"]);
            let from = if pulls {
                daemon.url("")
            } else {
                slashed(&data)
            };
            let to = place.path().join("to");
            let done = run(command.arg(from).arg(&to)).expect(2).says(&[expected]);
            assert!(!done.errors.contains("\"secret"));
            assert!(!to.join("x").exists());
        }
    }
    // This host's user may read what the link leads to, and the daemon does not serve it.
    std::fs::write(&file, ". ./link").unwrap();
    let mut command = daemon.command("cp");
    command.args(["-r", "-F"]).arg(daemon.url(""));
    let done = run(command.arg(place.path().join("pulled"))).expect(2);
    assert!(!done.errors.contains("\"secret"));
    // The name of a file without a slash begins where the tree begins.
    std::fs::write(data.join("rules"), "- x\n").unwrap();
    std::fs::remove_file(&file).unwrap();
    std::fs::write(data.join("in/.rsync-filter"), ". rules\n").unwrap();
    let to = place.path().join("beneath");
    let mut command = longhaul();
    run(command
        .args(["cp", "-r", "-F"])
        .arg(slashed(&data))
        .arg(&to))
    .expect(0);
    assert!(to.join("x").exists() && !to.join("in/x").exists());
}

#[test]
fn rules_of_directories_end_with_a_nul_with_the_option() {
    let place = place();
    let data = place.path().join("data");
    std::fs::write(data.join("src/.zeros"), "- a.o\0- /deep\0").unwrap();
    let daemon = Daemon::start(place.path());
    let to = |kind: &str| place.path().join(kind);
    let flags = ["-r", "-0", "-f", ":e .zeros", "--exclude=.*"];
    let mut local = longhaul();
    run(local
        .arg("cp")
        .args(flags)
        .arg(slashed(&data))
        .arg(to("local")))
    .expect(0);
    let mut pull = daemon.command("cp");
    run(pull.args(flags).arg(daemon.url("data/")).arg(to("pull"))).expect(0);
    let expected = ["a.c", "a.o", "build/x.c", "src/keep.o"];
    assert_eq!(files(&to("local")), expected);
    assert_eq!(files(&to("pull")), expected);
}
