//! Listings of an endpoint are the same on this host, at a daemon and over SSH.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::Daemon;
use crate::support::process::{binary_in, longhaul, longhaul_with, run};
use crate::support::sshd::{Sshd, at_dtn, is_possible};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

/// A user who owns no files.
const NOBODY: u32 = 65534;

/// A tree with what is hard to list.
fn tree(at: &Path) {
    std::fs::create_dir_all(at.join("b/deep")).unwrap();
    std::fs::write(at.join("b/deep/file"), "12345").unwrap();
    std::fs::write(at.join("B"), "").unwrap();
    std::fs::write(at.join("new\nline"), "").unwrap();
    std::fs::write(at.join(".longhaul-part"), "").unwrap();
    symlink("b/deep", at.join("link")).unwrap();
    std::fs::set_permissions(at.join("B"), PermissionsExt::from_mode(0o4711)).unwrap();
    std::fs::create_dir(at.join("many")).unwrap();
    for number in 0..3000 {
        std::fs::write(at.join(format!("many/{number:04}")), "").unwrap();
    }
}

const TOP: &str = "B\0b\0link\0many\0new\nline\0";

fn place() -> TempDir {
    let place = tempfile::tempdir().unwrap();
    tree(&place.path().join("tree"));
    place
}

fn output(command: &mut Command) -> Vec<u8> {
    run(command).expect(0).output
}

// Promise 55.
#[test]
fn names_come_in_byte_order() {
    let place = place();
    let tree = place.path().join("tree");
    let flat = output(longhaul().args(["ls", "-0"]).arg(&tree));
    assert_eq!(String::from_utf8(flat).unwrap(), TOP);
    // A link that is named leads to what it leads to.
    let linked = output(longhaul().arg("ls").arg(tree.join("link")));
    assert_eq!(linked, b"file\n");
    let long = output(longhaul().args(["ls", "-l"]).arg(tree.join("B")));
    let long = String::from_utf8(long).unwrap();
    assert!(long.starts_with("-rws--x--x               0 20"), "{long}");
    assert!(long.ends_with("Z B\n"), "{long}");
    let deep = output(longhaul().args(["ls", "-R"]).arg(&tree));
    let deep = String::from_utf8(deep).unwrap();
    let start = "B\nb\nb/deep\nb/deep/file\nlink\nmany\nmany/0000\nmany/0001\n";
    assert!(deep.starts_with(start), "{}", &deep[..200]);
    assert_eq!(deep.lines().count(), 8 + 3000, "one name has two lines");
}

#[test]
fn a_daemon_and_a_host_over_ssh_give_the_same_listing() {
    let place = place();
    let tree = place.path().join("tree");
    let daemon = Daemon::with(place.path(), &[]);
    for flags in [["-l", "-0"], ["-lR", "-0"], ["-R", "--json"]] {
        let here = output(longhaul().arg("ls").args(flags).arg(&tree));
        let there = output(daemon.command("ls").args(flags).arg(daemon.url("tree")));
        assert!(here == there, "{flags:?}");
        assert!(!here.is_empty());
        if is_possible() {
            let sshd = Sshd::start();
            let far = output(sshd.command("ls").args(flags).arg(at_dtn(&tree)));
            assert!(here == far, "{flags:?}");
        }
    }
}

#[test]
fn json_has_an_object_for_each_entry() {
    let place = place();
    let tree = place.path().join("tree");
    let lines = output(longhaul().args(["ls", "--json"]).arg(&tree));
    let lines = String::from_utf8(lines).unwrap();
    let found: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(found.len(), 5);
    let link = &found[2];
    assert_eq!(
        (&link["path"], &link["kind"]),
        (&"link".into(), &"link".into())
    );
    assert_eq!(link["target"], "b/deep");
    assert_eq!(found[0]["mode"], "4711");
    assert_eq!(found[4]["path"], "new\nline");
}

// Promise 55.
#[test]
fn unreadable_directories_are_named() {
    let place = place();
    let daemon = Daemon::with(&place.path().join("tree"), &[]);
    run(longhaul().arg("ls").arg(place.path().join("none")))
        .expect(6)
        .says(&["cannot list", "none", "No such file"]);
    run(daemon.command("ls").arg(daemon.url("none")))
        .expect(6)
        .says(&["cannot list", "none"]);
    // Beneath its root a daemon follows no link, and `..` is refused.
    let link = output(daemon.command("ls").args(["-0"]).arg(daemon.url("link")));
    assert_eq!(link, b"link\0");
    run(daemon.command("ls").arg(daemon.url("link/"))).expect(6);
    run(daemon.command("ls").arg(daemon.url("../"))).expect(4);
    run(longhaul().args(["ls", "null:"]))
        .expect(1)
        .says(&["name a path"]);
}

/// Starts a daemon with one principal who has these roots. Returns the daemon and the principal's
/// tokens file.
fn with_roots(place: &Path, roots: &str) -> (Daemon, PathBuf) {
    let made = output(longhaul().args(["token", "--principal", "one"]));
    let made = String::from_utf8(made).unwrap();
    let principals = &made[made.find("[[principal]]").unwrap()..];
    let file = place.join("principals.toml");
    std::fs::write(&file, format!("{principals}\n{roots}")).unwrap();
    let daemon = Daemon::of(vec!["--principals".into(), file.into()], |command| command);
    let line = made.lines().find(|line| line.starts_with("HOST:4960"));
    let line = line
        .unwrap()
        .replace("HOST:4960", &daemon.address.to_string());
    let tokens = place.join("tokens");
    std::fs::write(&tokens, line).unwrap();
    std::fs::set_permissions(&tokens, PermissionsExt::from_mode(0o600)).unwrap();
    (daemon, tokens)
}

fn ls_with(daemon: &Daemon, tokens: &Path, path: &str) -> Command {
    let mut command = longhaul();
    command.args(["ls", "--fingerprint", &daemon.fingerprint, "--token-file"]);
    command.arg(tokens).arg(daemon.url(path));
    command
}

// Promise 55.
#[test]
fn listing_needs_the_right_to_read() {
    let place = place();
    let root = format!(
        "[[principal.root]]\nat = \"/\"\npath = \"{}\"\nrights = [\"write\"]\n",
        place.path().join("tree").display()
    );
    let (daemon, tokens) = with_roots(place.path(), &root);
    run(&mut ls_with(&daemon, &tokens, "b"))
        .expect(4)
        .says(&["not with the right to"]);
}

#[test]
fn a_principal_with_several_roots_sees_only_these() {
    let place = place();
    let root = |at: &str| {
        format!(
            "[[principal.root]]\nat = \"{at}\"\npath = \"{}\"\nrights = [\"read\"]\n\n",
            place.path().join("tree").display()
        )
    };
    let roots = ["/sites/b", "/data", "/sites/a"].map(root).concat();
    let (daemon, tokens) = with_roots(place.path(), &roots);
    let listed = |path: &str| output(&mut ls_with(&daemon, &tokens, path));
    assert_eq!(listed(""), b"data\nsites\n");
    assert_eq!(listed("sites"), b"a\nb\n");
    assert_eq!(listed("data"), listed("sites/a"));
    run(&mut ls_with(&daemon, &tokens, "site")).expect(4);
    // A root is copied under its own name, as any directory.
    let to = place.path().join("to");
    let with = |command: &str, paths: [&std::ffi::OsStr; 2]| {
        let mut command = longhaul_with(&[command, "--fingerprint", &daemon.fingerprint]);
        command.arg("--token-file").arg(&tokens).args(paths);
        if paths[1] == to {
            command.arg("-r");
        }
        run(&mut command).expect(0)
    };
    with("cp", [daemon.url("sites/b").as_os_str(), to.as_os_str()]);
    assert!(to.join("b/b/deep").exists() && to.join("b/many").is_dir());
    with(
        "verify",
        [daemon.url("sites/b").as_os_str(), to.join("b").as_os_str()],
    );
    with("cp", [daemon.url("data/").as_os_str(), to.as_os_str()]);
    assert!(to.join("b/deep").exists());
    daemon.running().signal(Signal::TERM);
    daemon.wait().expect(0).says(&[
        "one from 127.0.0.1:",
        "listed /data, ",
        "listing /site, was refused: there is no",
    ]);
}

#[test]
fn an_unreadable_directory_is_named_and_the_listing_continues() {
    if !crate::support::is_root() {
        return;
    }
    let place = place();
    let tree = place.path().join("tree");
    std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::set_permissions(tree.join("b"), PermissionsExt::from_mode(0o700)).unwrap();
    let mut command = Command::new(binary_in(place.path()));
    command.uid(NOBODY).gid(NOBODY);
    let done = run(command.args(["ls", "-R"]).arg(&tree))
        .expect(2)
        .says(&["b: cannot list the directory", "Permission denied"]);
    let names = String::from_utf8(done.output).unwrap();
    assert!(names.contains("many/2999\n") && !names.contains("b/deep"));
}

#[test]
fn a_reader_that_closes_the_pipe_early_causes_no_failure() {
    let place = place();
    let daemon = Daemon::with(place.path(), &[]);
    for mut command in [longhaul_ls(place.path()), daemon_ls(&daemon)] {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        assert_eq!(child.wait().unwrap().code(), Some(0), "{command:?}");
    }
}

fn longhaul_ls(at: &Path) -> Command {
    let mut command = longhaul();
    command.args(["ls", "-R"]).arg(at);
    command
}

fn daemon_ls(daemon: &Daemon) -> Command {
    let mut command = daemon.command("ls");
    command.arg("-R").arg(daemon.url(""));
    command
}

#[test]
fn a_full_standard_output_is_a_failure() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    std::fs::write(place.join("file"), "content").unwrap();
    let (file, copy) = (place.join("file"), place.join("copy"));
    let (file, copy) = (file.to_str().unwrap(), copy.to_str().unwrap());
    let commands: [&[&str]; 5] = [
        &["ls", place.to_str().unwrap()],
        &["cp", "--json", file, copy],
        &["cp", "-nv", file, "/nonexistent"],
        &["verify", "--json", file, copy],
        &["doctor", "--json", place.to_str().unwrap()],
    ];
    for arguments in commands {
        let full = std::fs::File::create("/dev/full").unwrap();
        let output = longhaul().args(arguments).stdout(full).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(6), "{arguments:?}: {errors}");
        let said = "cannot write to standard output: No space left on device";
        assert!(errors.contains(said), "{arguments:?}: {errors}");
    }
}

#[test]
fn a_full_standard_error_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    std::fs::create_dir(place.join("tree")).unwrap();
    std::fs::write(place.join("tree/file"), "content").unwrap();
    // A file that a directory with content is in the way of.
    std::fs::write(place.join("tree/blocked"), "content").unwrap();
    std::fs::create_dir_all(place.join("copy/tree/blocked/by")).unwrap();
    let (tree, copy) = (place.join("tree"), place.join("copy"));
    let (tree, copy) = (tree.to_str().unwrap(), copy.to_str().unwrap());
    let commands: [(&[&str], i32); 4] = [
        (&["cp", "-rn", tree, copy], 2),
        (&["cp", "-rq", tree, copy], 2),
        (&["cp", "/nonexistent", copy], 6),
        (&["ls", "/nonexistent"], 6),
    ];
    for (arguments, code) in commands {
        let full = std::fs::File::create("/dev/full").unwrap();
        let mut run = longhaul();
        let status = run.args(arguments).stderr(full).status().unwrap();
        assert_eq!(status.code(), Some(code), "{arguments:?}");
    }
    assert_eq!(
        std::fs::read(place.join("copy/tree/file")).unwrap(),
        b"content"
    );
}
