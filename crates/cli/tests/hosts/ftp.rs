//! Copies from and to FTP and GridFTP servers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::ftp_servers::{Kind, Server, all, content};
use crate::support::daemon::Daemon;
use crate::support::process::{Finished, Running, longhaul, run, script};
use crate::support::sshd::{self, Sshd};
use crate::support::tree::set_modified;

/// Modification time of the files, in seconds.
const MODIFIED: i64 = 1_000_000;

/// Files of the tree: their paths and sizes. Some are small, some are read in parts.
const FILES: [(&str, usize); 7] = [
    ("t/a", 0),
    ("t/b b;c", 1),
    ("t/.hidden", 70_000),
    ("t/sub/deep/large", 9_000_001),
    ("t/sub/medium", 1_048_577),
    ("t/sub/x", 1_048_576),
    ("t/z", 123),
];

fn fill(server: &Server) {
    for (seed, (name, size)) in FILES.iter().enumerate() {
        let path = server.local(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content(*size, seed as u64)).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        set_modified(&path, MODIFIED + seed as i64, 0);
    }
    for number in 0..300 {
        let path = server.local(&format!("t/many/{number}"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content(number * 50, 7)).unwrap();
    }
    fs::create_dir(server.local("t/empty")).unwrap();
}

fn url(server: &Server, name: &str) -> String {
    let location = server.location();
    let path = String::from_utf8(server.remote(name)).unwrap();
    let scheme = location.scheme.name();
    format!("{scheme}://127.0.0.1:{}{path}", location.port.unwrap())
}

fn copy(arguments: &[&str], source: &str, destination: &Path) -> Finished {
    run(&mut copying(arguments, source, destination))
}

/// Directory of the records of all copies to servers.
static STATE: LazyLock<TempDir> = LazyLock::new(|| TempDir::new().unwrap());

fn copying(arguments: &[&str], source: &str, destination: &Path) -> Command {
    let mut command = longhaul();
    command.env("XDG_STATE_HOME", STATE.path());
    command.args(["cp", "--data-security", "clear"]);
    command.args(arguments).arg(source).arg(destination);
    command
}

fn check(server: &Server, destination: &Path) {
    for (seed, (name, _)) in FILES.iter().enumerate() {
        let copied = destination.join(name);
        assert!(
            fs::read(&copied).unwrap() == fs::read(server.local(name)).unwrap(),
            "{name}"
        );
        let status = fs::metadata(&copied).unwrap();
        assert_eq!(status.mtime(), MODIFIED + seed as i64, "{name}");
        assert_eq!(status.mode() & 0o7777, 0o644, "{name}");
    }
    for number in 0..300 {
        let name = format!("t/many/{number}");
        assert!(fs::read(destination.join(&name)).unwrap() == content(number * 50, 7));
    }
    assert!(destination.join("t/empty").is_dir());
}

#[test]
fn a_tree_is_copied_and_then_unchanged() {
    for server in all() {
        fill(&server);
        let place = TempDir::new().unwrap();
        let source = url(&server, "t");
        let copied = copy(&["-r"], &source, place.path());
        assert_eq!(copied.code, Some(0), "{copied:?}");
        check(&server, place.path());
        let again = copy(&["-r"], &source, place.path());
        assert_unchanged(&again, 307);
        let verified = verify(&source, &place.path().join("t"));
        assert_eq!(verified.code, Some(0), "{verified:?}");
        fs::write(place.path().join("t/z"), content(123, 99)).unwrap();
        let differs = verify(&source, &place.path().join("t"));
        assert_eq!(differs.code, Some(5), "{differs:?}");
    }
}

/// Checks that a copy has found all files unchanged.
fn assert_unchanged(copied: &Finished, files: usize) {
    assert_eq!(copied.code, Some(0), "{copied:?}");
    let unchanged = format!("already there: {files} files");
    let texts = ["copied: 0 files", &unchanged];
    assert!(
        texts.iter().all(|text| copied.errors.contains(text)),
        "{copied:?}"
    );
}

fn verify(source: &str, place: &Path) -> Finished {
    let mut command = longhaul();
    command.args(["verify", "-r", "--data-security", "clear", source]);
    run(command.arg(place))
}

#[test]
fn one_file_and_the_contents_of_a_directory_are_copied() {
    for server in all() {
        fill(&server);
        let place = TempDir::new().unwrap();
        let file = place.path().join("renamed");
        let copied = copy(&[], &url(&server, "t/sub/deep/large"), &file);
        assert_eq!(copied.code, Some(0), "{copied:?}");
        assert!(fs::read(&file).unwrap() == content(FILES[3].1, 3));
        let inner = place.path().join("inner");
        let copied = copy(&["-r"], &url(&server, "t/sub/"), &inner);
        assert_eq!(copied.code, Some(0), "{copied:?}");
        assert!(inner.join("medium").exists() && inner.join("deep/large").exists());
        let refused = copy(&[], &url(&server, "t"), &inner);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        let absent = copy(&["-r"], &url(&server, "absent"), &inner);
        assert_eq!(absent.code, Some(6), "{absent:?}");
    }
}

#[test]
fn a_slash_after_a_compared_directory_makes_no_difference() {
    for server in all() {
        fill(&server);
        let place = TempDir::new().unwrap();
        let source = url(&server, "t");
        let copied = copy(&["-r"], &source, place.path());
        assert_eq!(copied.code, Some(0), "{copied:?}");
        let verified = verify(&format!("{source}/"), &place.path().join("t"));
        assert_eq!(verified.code, Some(0), "{verified:?}");
    }
}

#[test]
fn one_file_gets_its_new_name_at_another_host() {
    for server in all() {
        fill(&server);
        let root = TempDir::new().unwrap();
        let daemon = Daemon::with(root.path(), &["--write", "--allow-clear"]);
        let mut command = daemon.command("cp");
        command.args(["--data-security", "clear", &url(&server, "t/z")]);
        let copied = run(command.arg(daemon.url("renamed")));
        assert_eq!(copied.code, Some(0), "{copied:?}");
        assert!(fs::read(root.path().join("renamed")).unwrap() == content(123, 6));
    }
}

#[test]
fn filters_and_listings_work_at_a_server() {
    for server in all() {
        fill(&server);
        let place = TempDir::new().unwrap();
        let copied = copy(
            &["-r", "--exclude", "many"],
            &url(&server, "t"),
            place.path(),
        );
        assert_eq!(copied.code, Some(0), "{copied:?}");
        assert!(place.path().join("t/z").exists() && !place.path().join("t/many").exists());
        let mut command = longhaul();
        command.args(["ls", "-R", "--data-security", "clear", &url(&server, "t")]);
        let listed = run(&mut command);
        assert_eq!(listed.code, Some(0), "{listed:?}");
        let text = String::from_utf8(listed.output).unwrap();
        assert!(
            text.contains("sub/deep/large") && text.contains(".hidden"),
            "{text}"
        );
    }
}

#[test]
fn a_name_with_a_line_break_fails_and_the_others_are_copied() {
    for server in all() {
        fs::create_dir(server.local("t")).unwrap();
        for name in ["t/a", "t/new\nline", "t/z"] {
            fs::write(server.local(name), "x").unwrap();
        }
        let place = TempDir::new().unwrap();
        let copied = copy(&["-r"], &url(&server, "t"), place.path());
        assert_eq!(copied.code, Some(2), "{copied:?}");
        assert!(place.path().join("t/a").exists() && place.path().join("t/z").exists());
        assert!(!place.path().join("t/new").exists());
    }
}

#[test]
fn clear_text_is_refused() {
    let Some(server) = Server::start(Kind::Vsftpd) else {
        return;
    };
    fs::write(server.local("f"), "x").unwrap();
    let place = TempDir::new().unwrap();
    let mut command = longhaul();
    command.arg("cp").arg(url(&server, "f")).arg(place.path());
    let refused = run(&mut command);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(
        refused.errors.contains("--data-security clear"),
        "{refused:?}"
    );
    assert!(!place.path().join("f").exists());
}

/// Makes the tree of [`FILES`] on this host. Returns its path.
fn fill_here(place: &Path) -> String {
    for (seed, (name, size)) in FILES.iter().enumerate() {
        let path = place.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content(*size, seed as u64)).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        set_modified(&path, MODIFIED + seed as i64, 0);
    }
    for number in 0..300 {
        let path = place.join(format!("t/many/{number}"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content(number * 50, 7)).unwrap();
    }
    fs::create_dir(place.join("t/empty")).unwrap();
    place.join("t").to_str().unwrap().to_owned()
}

/// Copies to a server.
fn store(arguments: &[&str], source: &str, server: &Server, name: &str) -> Finished {
    copy(arguments, source, Path::new(&url(server, name)))
}

/// Checks the tree at a server. Only servers with `MFMT` keep times.
fn check_stored(server: &Server) {
    for (seed, (name, size)) in FILES.iter().enumerate() {
        let stored = server.local(name);
        assert!(
            fs::read(&stored).unwrap() == content(*size, seed as u64),
            "{name}"
        );
        let status = fs::metadata(&stored).unwrap();
        assert_eq!(status.mode() & 0o7777, 0o644, "{name}");
        if server.kind == Kind::Globus {
            assert_eq!(status.mtime(), MODIFIED + seed as i64, "{name}");
        }
    }
    for number in 0..300 {
        let stored = server.local(&format!("t/many/{number}"));
        assert!(fs::read(stored).unwrap() == content(number * 50, 7));
    }
    assert!(server.local("t/empty").is_dir());
    for directory in ["", "t", "t/many", "t/sub/deep"] {
        for entry in fs::read_dir(server.local(directory)).unwrap() {
            let name = entry.unwrap().file_name();
            assert!(!name.to_string_lossy().starts_with(".longhaul"), "{name:?}");
        }
    }
}

#[test]
fn a_tree_is_stored_at_a_server() {
    for server in all() {
        let place = TempDir::new().unwrap();
        let source = fill_here(place.path());
        let planned = store(&["-r", "--dry-run"], &source, &server, "");
        assert_eq!(planned.code, Some(0), "{planned:?}");
        assert!(fs::read_dir(server.local("")).unwrap().next().is_none());
        let stored = store(&["-r"], &source, &server, "");
        assert_eq!(stored.code, Some(0), "{stored:?}");
        check_stored(&server);
        let criteria: &[&str] = match server.kind {
            Kind::Globus => &["-r"],
            Kind::Vsftpd => &["-r", "--size-only"],
        };
        assert_unchanged(&store(criteria, &source, &server, ""), 307);
        let there = url(&server, "t");
        let verified = verify(&source, Path::new(&there));
        assert_eq!(verified.code, Some(0), "{verified:?}");
        fs::write(server.local("t/z"), content(123, 99)).unwrap();
        let differs = verify(&source, Path::new(&there));
        assert_eq!(differs.code, Some(5), "{differs:?}");
    }
}

#[test]
fn changed_files_are_replaced_and_others_deleted_at_a_server() {
    for server in all() {
        let place = TempDir::new().unwrap();
        let source = fill_here(place.path());
        for path in ["t/old/deep", "t/many", "other"] {
            fs::create_dir_all(server.local(path)).unwrap();
        }
        for name in ["t/z", "t/old/deep/f", "t/many/x", "other/f"] {
            fs::write(server.local(name), "another content").unwrap();
        }
        for path in ["t", "t/old", "t/old/deep", "t/many"] {
            let mode = PermissionsExt::from_mode(0o777);
            fs::set_permissions(server.local(path), mode).unwrap();
        }
        let stored = store(&["-r", "--delete"], &source, &server, "");
        assert_eq!(stored.code, Some(0), "{stored:?}");
        check_stored(&server);
        assert!(!server.local("t/old").exists() && !server.local("t/many/x").exists());
        assert!(server.local("other/f").exists());
    }
}

#[test]
fn one_file_is_stored_under_a_new_name() {
    for server in all() {
        let place = TempDir::new().unwrap();
        fill_here(place.path());
        for (name, seed) in [("t/sub/deep/large", 3), ("t/z", 6)] {
            let source = place.path().join(name);
            let source = source.to_str().unwrap();
            let stored = store(&[], source, &server, "renamed");
            assert_eq!(stored.code, Some(0), "{stored:?}");
            assert!(
                fs::read(server.local("renamed")).unwrap() == content(FILES[seed].1, seed as u64)
            );
            let stored = store(&[], source, &server, "new/directory/");
            assert_eq!(stored.code, Some(0), "{stored:?}");
        }
        assert!(server.local("new/directory/large").exists());
    }
}

#[test]
fn options_that_need_files_of_this_host_are_refused_for_a_server() {
    let Some(server) = Server::start(Kind::Globus) else {
        return;
    };
    let place = TempDir::new().unwrap();
    let source = fill_here(place.path());
    for option in [&["--on-commit", "true"][..], &["--backup-dir", "old"]] {
        let refused = store(&[&["-r"], option].concat(), &source, &server, "");
        assert_eq!(refused.code, Some(1), "{refused:?}");
    }
    let moved = place.path().join("moved");
    let refused = copy(&["-r", "--move"], &url(&server, ""), &moved);
    assert_eq!(refused.code, Some(1), "{refused:?}");
}

/// Size of the file of a copy that is interrupted.
const LONG_BYTES: usize = 64 << 20;

/// Interrupts a copy when a part of its file is durable, and repeats it. Returns the second result.
fn interrupted(source: &str, destination: &Path, interrupt: impl Fn(&Running)) -> Finished {
    let slow = ["--json", "--checkpoint", "1MiB", "--bwlimit", "8MB/s"];
    let running = Running::start(&mut copying(&slow, source, destination));
    // In stream mode, the first parts may be kept in memory until the first byte has arrived.
    let many = |event: &Value| event["durable"].as_u64() > Some(8 << 20);
    let durable = running.event(|event| event["event"] == "durable" && many(event));
    if durable.is_none() {
        panic!("no part was durable: {:?}", running.wait());
    }
    interrupt(&running);
    let first = running.wait();
    let again = copy(&[], source, destination);
    assert_eq!(again.code, Some(0), "{first:?} {again:?}");
    again
}

#[test]
fn a_killed_copy_to_or_from_a_server_resumes() {
    for server in all() {
        let bytes = content(LONG_BYTES, 3);
        let place = TempDir::new().unwrap();
        let here = place.path().join("here");
        fs::write(&here, &bytes).unwrap();
        let there = url(&server, "there");
        let kill = |running: &Running| running.signal(Signal::KILL);
        let stored = interrupted(here.to_str().unwrap(), Path::new(&there), |running| {
            kill(running);
            assert!(!server.local("there").exists());
        });
        assert!(stored.errors.contains("durable before"), "{stored:?}");
        assert!(fs::read(server.local("there")).unwrap() == bytes);
        let names = fs::read_dir(server.local("")).unwrap();
        assert_eq!(names.count(), 1);
        let back = place.path().join("back");
        let fetched = interrupted(&there, &back, kill);
        assert!(fetched.errors.contains("durable before"), "{fetched:?}");
        assert!(fs::read(&back).unwrap() == bytes);
    }
}

#[test]
fn a_copy_resumes_after_the_processes_of_the_server_were_killed() {
    for server in all() {
        let bytes = content(LONG_BYTES, 3);
        let place = TempDir::new().unwrap();
        let here = place.path().join("here");
        fs::write(&here, &bytes).unwrap();
        let there = url(&server, "there");
        let kill = |_: &Running| {
            server.kill_sessions();
            assert!(!server.local("there").exists());
        };
        interrupted(here.to_str().unwrap(), Path::new(&there), kill);
        assert!(fs::read(server.local("there")).unwrap() == bytes);
        assert_eq!(fs::read_dir(server.local("")).unwrap().count(), 1);
        let back = place.path().join("back");
        interrupted(&there, &back, |_| server.kill_sessions());
        assert!(fs::read(&back).unwrap() == bytes);
    }
}

/// The server runs as another user, because it refuses to run as root.
#[test]
fn a_real_sshd_starts_the_server_of_sshftp() {
    let program = Path::new("/usr/sbin/globus-gridftp-server");
    if !sshd::is_possible() || !program.exists() {
        return;
    }
    let sshd = Sshd::start();
    let start = sshd.home().join(".globus/sshftp");
    fs::create_dir(start.parent().unwrap()).unwrap();
    let text = format!(
        "#!/bin/sh\nexec timeout 120 setpriv --reuid nobody --regid nogroup --clear-groups \
         {} -ssh\n",
        program.display()
    );
    script(start, &text);
    let at = sshd.at_place("");
    let at = at.display();
    sshd.configure_client(&format!(
        "IdentityFile {at}/user_key\nIdentitiesOnly yes\nUserKnownHostsFile {at}/known_hosts"
    ));
    let place = TempDir::new().unwrap();
    let source = fill_here(place.path());
    let there = TempDir::new().unwrap();
    for path in [place.path(), there.path()] {
        fs::set_permissions(path, PermissionsExt::from_mode(0o777)).unwrap();
    }
    let address = sshd.server_address();
    let at_server = |path: &Path| format!("sshftp://root@{address}{}", path.display());
    let refused = run(sshd
        .bare_command("cp")
        .args(["-r", &source])
        .arg(at_server(there.path())));
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let copy = |source: &str, destination: &Path| {
        let mut command = sshd.bare_command("cp");
        command
            .args(["-r", "--data-security", "clear", source])
            .arg(destination);
        let copied = run(&mut command);
        assert_eq!(copied.code, Some(0), "{copied:?}");
    };
    copy(&source, Path::new(&at_server(there.path())));
    let back = TempDir::new().unwrap();
    copy(&at_server(&there.path().join("t")), back.path());
    for (seed, (name, size)) in FILES.iter().enumerate() {
        let bytes = content(*size, seed as u64);
        assert!(
            fs::read(there.path().join(name)).unwrap() == bytes,
            "{name}"
        );
        assert!(fs::read(back.path().join(name)).unwrap() == bytes, "{name}");
    }
}
