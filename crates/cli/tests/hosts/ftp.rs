//! Copies from FTP and GridFTP servers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use tempfile::TempDir;

use crate::ftp_servers::{Kind, Server, all, content};
use crate::support::daemon::Daemon;
use crate::support::process::{Finished, longhaul, run};
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
    let mut command = longhaul();
    command
        .args(["cp", "--data-security", "clear"])
        .args(arguments);
    run(command.arg(source).arg(destination))
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
        assert_eq!(again.code, Some(0), "{again:?}");
        assert!(
            again.errors.contains("0 copied, 307 unchanged"),
            "{again:?}"
        );
        let verified = verify(&source, &place.path().join("t"));
        assert_eq!(verified.code, Some(0), "{verified:?}");
        fs::write(place.path().join("t/z"), content(123, 99)).unwrap();
        let differs = verify(&source, &place.path().join("t"));
        assert_eq!(differs.code, Some(5), "{differs:?}");
    }
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
fn clear_text_and_uploads_are_refused() {
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
    let mut command = longhaul();
    command.args(["cp", "--data-security", "clear"]);
    command.arg(place.path()).arg(url(&server, "g"));
    let refused = run(&mut command);
    assert_eq!(refused.code, Some(1), "{refused:?}");
}
