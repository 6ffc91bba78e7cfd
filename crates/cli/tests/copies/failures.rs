//! Each failure is reported with the file, the cause and the remedy. The other entries are copied,
//! and the exit code shows the kind of failure.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use crate::support::process::{
    Finished, Running, binary_in, local_copy, longhaul, run, with_open_files,
};
use crate::support::proxy::Proxy;
use crate::support::random::Random;
use crate::support::{Daemon, assert_no_leftovers, daemon, is_root, tree};
use longhaul_engine::session::opening;
use longhaul_net::identity::Identity;
use longhaul_net::tcp::{HostPort, TcpOptions};
use longhaul_net::tls::{TlsClient, TlsOptions, TlsServer};
use longhaul_net::trust::ServerTrust;
use longhaul_proto::handshake::{
    Answer, Hello, Join, Purpose, Refusal, Refused, Secret, SessionId,
};
use longhaul_testing::await_that;
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// A user without rights.
const NOBODY: u32 = 65534;

fn directory() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    directory
}

fn sample(root: &Path) {
    tree::write(&root.join("a"), b"a");
    tree::write(&root.join("large"), &Random::new(1).bytes(3 << 20));
    tree::write(&root.join("sub/z"), b"z");
}

#[track_caller]
fn assert_copied(source: &Path, destination: &Path, names: &[&str]) {
    for name in names {
        let difference = tree::difference(&source.join(name), &destination.join(name));
        assert_eq!(difference, None, "{name}");
    }
}

/// The same command line, run by a user without rights.
fn as_nobody(command: &Command, directory: &Path) -> Command {
    let mut other = Command::new(binary_in(directory));
    other.args(command.get_args()).uid(NOBODY).gid(NOBODY);
    other
}

fn chown(path: &Path) {
    std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
}

// Promise 39.
#[test]
fn an_unreadable_file_is_named() {
    if !is_root() {
        return;
    }
    let directory = directory();
    let source = directory.path().join("source");
    sample(&source);
    tree::write(&source.join("secret"), b"secret");
    fs::set_permissions(source.join("secret"), Permissions::from_mode(0o0)).unwrap();
    tree::write(&source.join("closed/in"), b"in");
    fs::set_permissions(source.join("closed"), Permissions::from_mode(0o0)).unwrap();
    let to = directory.path().join("to");
    fs::create_dir(&to).unwrap();
    chown(&to);
    let mut command = as_nobody(&local_copy(&source, &to), directory.path());
    run(&mut command).expect(2).says(&[
        "source/secret",
        "source/closed",
        "Permission denied",
        "owner and mode",
    ]);
    assert_copied(&source, &to.join("source"), &["a", "large", "sub/z"]);
    assert_no_leftovers(&to);
}

#[test]
fn a_destination_without_rights_is_named() {
    if !is_root() {
        return;
    }
    let directory = directory();
    let source = directory.path().join("source");
    sample(&source);
    let to = directory.path().join("to");
    fs::create_dir(&to).unwrap();
    for destination in [to.clone(), to.join("new")] {
        let copy = local_copy(&source, &destination);
        run(&mut as_nobody(&copy, directory.path()))
            .expect(6)
            .says(&["to", "Permission denied"]);
    }
    // A directory within is closed: the rest is copied.
    chown(&to);
    fs::create_dir_all(to.join("source/sub")).unwrap();
    chown(&to.join("source"));
    let copy = local_copy(&source, &to);
    run(&mut as_nobody(&copy, directory.path()))
        .expect(2)
        .says(&["source/sub/z", "Permission denied", "owner and mode"]);
    assert_copied(&source, &to.join("source"), &["a", "large"]);
}

/// Runs a command with a small file system mounted at a directory, visible to this command only.
/// Then copies the contents to `seen`.
fn with_mount(options: &str, at: &Path, seen: &Path, command: &Command) -> Finished {
    let script = "mount -t tmpfs -o \"$1\" tmpfs \"$2\" || exit 99\nat=$2 seen=$3\nshift 3\n\
                  \"$@\"\ncode=$?\ncp -a \"$at/.\" \"$seen\"\nexit $code";
    let mut shell = Command::new("unshare");
    shell
        .args(["-m", "sh", "-c", script, "sh", options])
        .arg(at)
        .arg(seen)
        .arg(command.get_program())
        .args(command.get_args());
    run(&mut shell)
}

#[test]
fn a_full_disk_is_named() {
    if !is_root() {
        return;
    }
    let directory = directory();
    let (source, to, seen) = mounted(directory.path());
    tree::write(&source.join("huge"), &Random::new(2).bytes(20 << 20));
    let finished = with_mount("size=12m", &to, &seen, &local_copy(&source, &to));
    finished.expect(2).says(&[
        "source/huge: cannot reserve room for it: No space left",
        "free some room",
    ]);
    assert_copied(&source, &seen.join("source"), &["a", "large", "sub/z"]);
    assert!(!seen.join("source/huge").exists());
    assert_no_leftovers(&seen);
    // Many small ones, too many.
    for number in 0..4000 {
        tree::write(&source.join(format!("many/{number}")), &[1; 5000]);
    }
    // A large file would compete with them for space, and its partial data stay if there is not
    // enough.
    for name in ["huge", "large"] {
        fs::remove_file(source.join(name)).unwrap();
    }
    let seen = directory.path().join("seen again");
    fs::create_dir(&seen).unwrap();
    let finished = with_mount("size=12m", &to, &seen, &local_copy(&source, &to));
    let finished = finished.expect(2);
    let finished = finished.says(&["source/many/", "No space left", "free some room"]);
    assert_copied(&source, &seen.join("source"), &["a"]);
    assert_no_leftovers(&seen);
    // The first ones have a line each, the others one for each way in which they failed.
    let finished = finished.says(&["more (-v names each): cannot ", "No space left"]);
    let lines = finished.errors.lines().count();
    assert!(lines < 100, "{lines} lines: {}", finished.errors);
}

#[test]
fn a_disk_without_inodes_is_not_called_full() {
    if !is_root() {
        return;
    }
    let directory = directory();
    let (source, to, seen) = mounted(directory.path());
    for number in 0..100 {
        tree::write(&source.join(format!("many/{number}")), b"x");
    }
    let options = "size=12m,nr_inodes=40";
    with_mount(options, &to, &seen, &local_copy(&source, &to))
        .expect(2)
        .says(&["no inodes left, although", "are free; remove some files"]);
}

#[test]
fn failures_of_one_kind_are_counted_after_ten() {
    let directory = directory();
    let (source, to) = (directory.path().join("source"), directory.path().join("to"));
    for number in 0..30 {
        tree::write(&source.join(format!("f{number}")), b"x");
        fs::create_dir_all(to.join(format!("source/f{number}/x"))).unwrap();
    }
    let lines = |finished: &Finished| finished.errors.matches("there is a directory").count();
    let finished = run(&mut local_copy(&source, &to)).expect(2);
    let finished = finished.says(&["20 more (-v names each): there is a directory of that name"]);
    assert_eq!(lines(&finished), 11, "{}", finished.errors);
    let detailed = run(local_copy(&source, &to).arg("-v")).expect(2);
    assert_eq!(lines(&detailed), 30, "{}", detailed.errors);
}

#[test]
fn a_listed_name_that_never_existed_is_not_reported_as_vanished() {
    let directory = directory();
    let (source, to) = (directory.path().join("source"), directory.path().join("to"));
    sample(&source);
    let list = directory.path().join("list");
    fs::write(&list, "a\nmistyped\n").unwrap();
    let from = format!("--files-from={}", list.display());
    let finished = run(local_copy(&source, &to).arg(from)).expect(2);
    let finished = finished.says(&["mistyped: the list has this name, but the source does not"]);
    assert!(
        !finished.errors.contains("meanwhile"),
        "{}",
        finished.errors
    );
}

fn mounted(directory: &Path) -> (PathBuf, PathBuf, PathBuf) {
    let source = directory.join("source");
    sample(&source);
    let (to, seen) = (directory.join("to"), directory.join("seen"));
    fs::create_dir(&to).unwrap();
    fs::create_dir(&seen).unwrap();
    (source, to, seen)
}

#[test]
fn a_read_only_destination_is_named() {
    if !is_root() {
        return;
    }
    let directory = directory();
    let (source, to, seen) = mounted(directory.path());
    with_mount("ro", &to, &seen, &local_copy(&source, &to))
        .expect(6)
        .says(&["Read-only file system"]);
}

// Promise 7.
#[test]
fn entries_that_block_a_name_are_reported() {
    let directory = directory();
    let source = directory.path().join("source");
    sample(&source);
    let to = directory.path().join("to");
    fs::create_dir_all(to.join("source/a/not empty")).unwrap();
    fs::create_dir_all(to.join("source/large")).unwrap();
    tree::write(&to.join("source/sub"), b"a file");
    run(&mut local_copy(&source, &to)).expect(2).says(&[
        "source/a: there is a directory of that name; move it away",
        "source/large: there is a directory of that name; move it away",
        "source/sub/z",
        "move it away",
    ]);
    assert!(to.join("source/a/not empty").is_dir());
    assert_eq!(fs::read(to.join("source/sub")).unwrap(), b"a file");
    assert_no_leftovers(&to);
    // A link to a directory is not followed.
    let outside = directory.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let to = directory.path().join("linked");
    fs::create_dir_all(to.join("source")).unwrap();
    std::os::unix::fs::symlink(&outside, to.join("source/sub")).unwrap();
    run(&mut local_copy(&source, &to))
        .expect(2)
        .says(&["source/sub/z", "move it away"]);
    assert_eq!(tree::paths(&outside).len(), 1);
    assert_copied(&source, &to.join("source"), &["a", "large"]);
}

// Promises 6 and 40.
#[test]
fn usage_is_explained() {
    let directory = directory();
    let source = directory.path().join("source");
    sample(&source);
    let here = |arguments: &[&str]| {
        let mut command = longhaul();
        command.args(arguments).current_dir(directory.path());
        run(&mut command)
    };
    here(&["cp", "source", "to"])
        .expect(1)
        .says(&["source", "-r"]);
    assert!(!directory.path().join("to").exists());
    here(&["cp", "source/a"]).expect(1);
    here(&["cp", ":/x", "to"])
        .expect(1)
        .says(&["[USER@]HOST:PATH"]);
    here(&["cp", "null:", "to"]).expect(1).says(&["zero:SIZE"]);
    here(&["cp", "source/a", "zero:1B"])
        .expect(1)
        .says(&["null:"]);
    here(&["cp", "--compress", "gzip", "source/a", "to"])
        .expect(1)
        .says(&["zstd"]);
    here(&["cp", "missing", "to"])
        .expect(6)
        .says(&["missing", "No such file"]);
    here(&["cp", "source/a", "none/below/x"])
        .expect(6)
        .says(&["there is no directory none/below", "write none/below/x/"]);
    here(&["cp", "gopher://host/y", "to"])
        .expect(1)
        .says(&["gopher:// is nothing that longhaul knows"]);
    here(&["cp", "source/a", "host:b", "host:c"])
        .expect(1)
        .says(&["with two commands"]);
    here(&["lab", "run", "--rtt", "10", "--", "true"])
        .expect(1)
        .says(&["write 10ms"]);
    for command in ["sweep", "profile"] {
        here(&[command, "none.toml"]).expect(6).says(&["none.toml"]);
    }
    let help = here(&["--help"]).expect(0);
    let help = String::from_utf8(help.output).unwrap();
    for code in ["0 all done", "3 connection", "130 interrupted"] {
        assert!(help.contains(code), "{help}");
    }
}

// Promise 57.
#[test]
fn contradictory_commands_copy_no_file() {
    let directory = directory();
    sample(&directory.path().join("source"));
    let here = |arguments: &[&str]| {
        let mut command = longhaul();
        command.args(arguments).current_dir(directory.path());
        run(&mut command)
    };
    // If the command is contradictory, it does not copy the valid sources either.
    here(&["cp", "source/a", "source", "to"])
        .expect(1)
        .says(&["-r"]);
    assert!(!directory.path().join("to").exists());
    for to in ["source/new/sub", "source", "source/sub/.."] {
        here(&["cp", "-r", "source", to])
            .expect(1)
            .says(&["into itself", "outside it"]);
    }
    here(&["cp", "source/a", "source"])
        .expect(1)
        .says(&["would be the same"]);
    assert!(!directory.path().join("source/new").exists());
    assert!(!directory.path().join("source/source").exists());
    here(&["cp", "--manifest", "new", "source/a", "-"]).expect(1);
    assert!(!directory.path().join("new").exists());
    here(&["cp", "source/a", "user@host"])
        .expect(1)
        .says(&["user@host:", "./user@host"]);
    assert!(!directory.path().join("user@host").exists());
    for _ in 0..2 {
        // A local file of that name can be written as `./user@host`, and by its plain name once it
        // exists.
        here(&["cp", "source/a", "./user@host"]).expect(0);
        here(&["cp", "source/a", "user@host"]).expect(0);
    }
    here(&["cp", "source/a", "/proc/"])
        .expect(6)
        .says(&["/proc/: no file can be made there"]);
}

/// Starts a daemon with a file to fetch.
fn served(directory: &Path) -> Daemon {
    sample(&directory.join("root"));
    Daemon::start(&directory.join("root"))
}

fn fetch(daemon: &Daemon, directory: &Path, fingerprint: &str, tokens: &Path) -> Finished {
    let mut command = longhaul();
    command
        .args(["cp", "-r", "--fingerprint", fingerprint, "--token-file"])
        .arg(tokens)
        .arg(daemon.url("sub"))
        .arg(directory.join("to"));
    run(&mut command)
}

fn tokens_with(file: PathBuf, text: &str) -> PathBuf {
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    file
}

#[test]
fn refused_credentials_are_explained() {
    let directory = directory();
    let daemon = served(directory.path());
    let fetch =
        |fingerprint: &str, tokens: &Path| fetch(&daemon, directory.path(), fingerprint, tokens);
    let good = daemon.token_file.clone().unwrap();
    let line = fs::read_to_string(&good).unwrap();
    let name = directory.path().join("tokens");

    let stranger = Daemon::start(directory.path());
    let token = fs::read_to_string(stranger.token_file.as_ref().unwrap()).unwrap();
    let wrong = token.replace(&stranger.address.to_string(), &daemon.address.to_string());
    fetch(&daemon.fingerprint, &tokens_with(name.clone(), &wrong))
        .expect(4)
        .says(&[
            &daemon.address.to_string(),
            "no such principal with this token",
        ]);
    let cut = &line[..line.len() - 4];
    fetch(&daemon.fingerprint, &tokens_with(name.clone(), cut))
        .expect(4)
        .says(&["tokens, line 1", "correct the line"]);
    let other = line.replace(" user ", " nobody ");
    fetch(&daemon.fingerprint, &tokens_with(name.clone(), &other))
        .expect(4)
        .says(&["no such principal"]);
    fetch(&daemon.fingerprint, &tokens_with(name.clone(), ""))
        .expect(4)
        .says(&["no token for", "--token-file"]);
    fs::set_permissions(&name, Permissions::from_mode(0o644)).unwrap();
    fetch(&daemon.fingerprint, &name)
        .expect(4)
        .says(&["chmod 600"]);

    // Its first character: the last one has bits that must be zero.
    let digits = daemon.fingerprint.strip_prefix("sha256:").unwrap();
    let other = if digits.starts_with('A') { "B" } else { "A" };
    let wrong = format!("sha256:{other}{}", &digits[1..]);
    fetch(&wrong, &good).expect(4).says(&[&daemon.fingerprint]);
    assert!(!directory.path().join("to").exists());
    fetch(&daemon.fingerprint, &good).expect(0);
    // An invalid line for another daemon does not stop the client.
    let others = format!("other.example.org:1 alice lht_cut\n{line}\nnonsense\n");
    let told = fetch(&daemon.fingerprint, &tokens_with(name, &others)).expect(0);
    let told = told.says(&["tokens, line 1", "passed over and 1 more"]);
    assert_eq!(told.errors.matches("passed over").count(), 1, "{told:?}");
}

#[test]
fn silent_connections_are_not_logged_and_a_port_scan_adds_few_lines() {
    let directory = directory();
    let mut daemon = served(directory.path());
    let connect = || TcpStream::connect(daemon.address).unwrap();
    // Closed; with a reset, as scanners do; and after a handshake.
    drop(connect());
    let reset = connect();
    rustix::net::sockopt::set_socket_linger(&reset, Some(Duration::ZERO)).unwrap();
    drop(reset);
    let trust = ServerTrust::Fingerprint(daemon.fingerprint.parse().unwrap());
    let tls = TlsClient::new(trust, None, TlsOptions::default());
    let peer = HostPort::from(daemon.address);
    drop(tls.handshake(connect(), &peer).unwrap());
    for _ in 0..20 {
        let mut socket = connect();
        socket.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        // Until it is hung up on.
        let _ = socket.read_to_end(&mut Vec::new());
    }
    daemon.running().await_words("does not speak TLS");
    let log = daemon.kill().errors;
    assert!(!log.contains("before the session began"), "{log}");
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("TLS")).collect();
    assert!((1..=5).contains(&lines.len()), "{log}");
    for line in lines {
        assert_eq!(line.matches("127.0.0.1:").count(), 1, "{line}");
    }
}

// Promise 35.
#[test]
fn an_unknown_key_is_refused_and_a_changed_one_too() {
    let directory = directory();
    let daemon = served(directory.path());
    let configuration = directory.path().join("configuration");
    fs::create_dir(&configuration).unwrap();
    let fetch = |daemon: &Daemon, flags: &[&str]| {
        let mut command = longhaul();
        command
            .env("LONGHAUL_CONFIG_DIR", &configuration)
            .args(["cp", "-r"])
            .args(flags)
            .arg("--token-file")
            .arg(daemon.token_file.as_ref().unwrap())
            .arg(daemon.url("sub"))
            .arg(directory.path().join("to"));
        run(&mut command)
    };
    fetch(&daemon, &[])
        .expect(4)
        .says(&[&daemon.fingerprint, "--accept-new"]);
    fetch(&daemon, &["--accept-new"]).expect(0);
    fetch(&daemon, &[]).expect(0);

    // Another daemon at the same address.
    let address = daemon.address;
    drop(daemon);
    let arguments = vec!["--root".into(), directory.path().join("root").into()];
    let other = Daemon::at(address, arguments);
    for flags in [&[][..], &["--accept-new"]] {
        fetch(&other, flags)
            .expect(4)
            .says(&["changed", &other.fingerprint, "known_hosts"]);
    }
}

// Promise 40.
#[test]
fn an_unreachable_daemon_is_a_connection_error() {
    let directory = directory();
    let daemon = served(directory.path());
    let mut refused = longhaul();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    refused
        .args([
            "cp",
            "--timeout",
            "2s",
            "--fingerprint",
            &daemon.fingerprint,
        ])
        .arg("--token-file")
        .arg(daemon.tokens_for(address))
        .arg(daemon::url(address, "a"))
        .arg(directory.path().join("to"));

    // Another server answers at this address.
    let echo = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut room = [0; 1000];
        while let Ok(read @ 1..) = socket.read(&mut room) {
            if socket.write_all(&room[..read]).is_err() {
                break;
            }
        }
    });
    run(&mut refused).expect(3).says(&[&address.to_string()]);
    echo.join().unwrap();

    // The listener has been closed.
    run(&mut refused).expect(3).says(&[
        &address.to_string(),
        "refused",
        "check that the daemon runs",
    ]);
}

#[test]
fn a_missing_local_address_is_named() {
    let directory = directory();
    let daemon = served(directory.path());
    let mut command = daemon.command("cp");
    command
        // If only the second address were used, half of the streams would fail.
        .args(["--bind", "127.0.0.1", "--bind", "203.0.113.9"])
        .arg(daemon.url("a"))
        .arg(directory.path().join("to"));
    let said = ["--bind 203.0.113.9", "name an address of this host"];
    run(&mut command).expect(6).says(&said);
    assert!(!directory.path().join("to").exists());
}

#[test]
fn a_local_address_of_another_family_is_the_cause() {
    let directory = directory();
    let daemon = served(directory.path());
    let mut command = daemon.command("cp");
    command
        .args(["--bind", "::1"])
        .arg(daemon.url("a"))
        .arg(directory.path().join("to"));
    let finished = run(&mut command).expect(3);
    let finished = finished.says(&[&daemon.address.to_string(), "--bind ::1", "no IPv6 address"]);
    assert!(
        !finished.errors.contains("daemon runs"),
        "{}",
        finished.errors
    );
}

#[test]
fn a_peer_that_is_not_longhaul_is_reported() {
    let directory = directory();
    let daemon = served(directory.path());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let ssh = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").unwrap();
        // Until it hangs up.
        let _ = socket.read_to_end(&mut Vec::new());
    });
    let mut command = longhaul();
    command
        .args(["cp", "--fingerprint", &daemon.fingerprint, "--token-file"])
        .arg(daemon.tokens_for(address))
        .arg(daemon::url(address, "a"))
        .arg(directory.path().join("to"));
    run(&mut command)
        .expect(3)
        .says(&[&address.to_string(), "does not speak TLS: check the port"]);
    ssh.join().unwrap();

    // And the other way round: a browser at the daemon gets an alert at most.
    let mut socket = std::net::TcpStream::connect(daemon.address).unwrap();
    socket.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    assert!(answer.len() <= 7, "{answer:?}");
}

#[test]
fn too_many_open_files_is_named() {
    let directory = directory();
    let source = directory.path().join("source");
    for number in 0..300 {
        tree::write(&source.join(format!("{number}")), &[1; 100]);
    }
    let limited = |limit, to: &str| {
        let copy = local_copy(&source, &directory.path().join(to));
        run(&mut with_open_files(limit, &copy))
    };
    // Few are enough, in turns.
    limited(40, "few").expect(0);
    tree::assert_same(&source, &directory.path().join("few/source"));
    limited(10, "to").expect(6).says(&["ulimit -n"]);
    limited(16, "to").expect(2).says(&["source", "ulimit -n"]);
    run(&mut local_copy(&source, &directory.path().join("to"))).expect(0);
    tree::assert_same(&source, &directory.path().join("to/source"));
    assert_no_leftovers(directory.path());
}

#[test]
fn sources_take_turns_if_few_files_can_be_open() {
    let directory = directory();
    let source = directory.path().join("source");
    for number in 0..120 {
        let path = source.join(format!("d{}/{number}", number % 60));
        tree::write(&path, &Random::new(number).bytes(1000));
    }
    let mut names: Vec<_> = (0..60).map(|number| format!("d{number}")).collect();
    // Files of one directory, and of several in turns.
    for number in 0..120 {
        names.push(format!("files/{number}"));
        names.push(format!("other{}/x{number}", number % 50));
    }
    let copied = directory.path().join("copied");
    fs::create_dir(&copied).unwrap();
    for name in &names[60..] {
        tree::write(&directory.path().join(name), name.as_bytes());
    }
    let mut copy = longhaul();
    copy.current_dir(&source).args(["cp", "-r"]);
    for (at, name) in names.iter().enumerate() {
        let within = if at < 60 { &source } else { directory.path() };
        copy.arg(within.join(name));
    }
    run(&mut with_open_files(48, copy.arg(&copied))).expect(0);
    for name in &names {
        let last = name.rsplit('/').next().unwrap();
        if name.starts_with('d') {
            tree::assert_same(&source.join(name), &copied.join(name));
        } else {
            assert_eq!(fs::read(copied.join(last)).unwrap(), name.as_bytes());
        }
    }
}

#[test]
fn large_files_take_turns_if_few_files_can_be_open() {
    let directory = directory();
    let source = directory.path().join("source");
    for number in 0..100_u64 {
        let bytes = Random::new(number).bytes(150_000);
        tree::write(&source.join(format!("d{}/{number}", number % 9)), &bytes);
    }
    let block = ["--block-size", "65536"];
    let mut copy = local_copy(&source, &directory.path().join("local"));
    run(&mut with_open_files(40, copy.args(block))).expect(0);
    tree::assert_same(&source, &directory.path().join("local/source"));

    // Either end of the connection may have the limit.
    let root = directory.path().join("root");
    fs::create_dir(&root).unwrap();
    let arguments = vec!["--root".into(), root.clone().into(), "--write".into()];
    let daemon = Daemon::of(arguments, |command| with_open_files(48, &command));
    let mut push = daemon.command("cp");
    push.arg("-r").args(block).arg(&source).arg(daemon.url(""));
    run(&mut push).expect(0);
    tree::assert_same(&source, &root.join("source"));
    let daemon = Daemon::start(&root);
    let mut pull = daemon.command("cp");
    pull.arg("-r")
        .args(block)
        .arg(daemon.url("source"))
        .arg(directory.path().join("pulled"));
    run(&mut with_open_files(48, &pull)).expect(0);
    tree::assert_same(&source, &directory.path().join("pulled/source"));
    assert_no_leftovers(directory.path());
}

/// A daemon that may have few files open, and its log.
fn daemon_of_few_files(root: &Path, log: &Path, files: u32) -> Daemon {
    let arguments = vec!["--root".into(), root.into()];
    Daemon::of(arguments, |command| {
        let mut logged = Command::new("sh");
        logged
            .args(["-c", "log=$1\nshift\nexec \"$@\" 2>\"$log\"", "sh"])
            .arg(log)
            .arg(command.get_program())
            .args(command.get_args());
        with_open_files(files, &logged)
    })
}

// Promise 37.
#[test]
fn trees_deeper_than_the_limit_of_open_files_are_copied() {
    let directory = directory();
    let source = directory.path().join("source");
    let mut below = source.clone();
    for level in 0..150 {
        tree::write(&below.join("a"), format!("{level}").as_bytes());
        tree::write(&below.join("d/m"), b"beside");
        tree::write(&below.join("z"), b"after what is below");
        below.push("d");
    }
    let to = directory.path().join("to");
    run(&mut with_open_files(64, &local_copy(&source, &to))).expect(0);
    assert_copied(directory.path(), &to, &["source"]);
    let mut verify = longhaul();
    verify.arg("verify").arg(&source).arg(to.join("source"));
    run(&mut with_open_files(64, &verify)).expect(0);
    let daemon = daemon_of_few_files(&to, &directory.path().join("log"), 64);
    let mut listing = daemon.command("ls");
    listing.arg("--recursive").arg(daemon.url("source"));
    let listed = run(&mut with_open_files(64, &listing)).expect(0);
    let lines = listed.output.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(lines, 150 * 4);
}

/// More clients than an eighth of the files that may be open is enough for.
// Promise 37.
#[test]
fn many_clients_share_the_files_that_a_daemon_may_have_open() {
    let directory = directory();
    let root = directory.path().join("root");
    fs::create_dir(&root).unwrap();
    let source = directory.path().join("source");
    for number in 0..400 {
        tree::write(&source.join(format!("small/{number}")), b"small");
    }
    for number in 0..20 {
        let large = Random::new(number).bytes(1 << 20);
        tree::write(&source.join(format!("large/{number}")), &large);
    }
    let arguments = ["--root", root.to_str().unwrap(), "--write"].map(Into::into);
    let daemon = Daemon::of(arguments.into(), |command| with_open_files(256, &command));
    let clients = (0..10).map(|number| {
        let mut copy = daemon.command("cp");
        copy.args(["-r", "--block-size", "64KiB", "--timeout", "300s"]);
        copy.arg(&source).arg(daemon.url(format!("{number}/")));
        Running::start(&mut copy)
    });
    let clients: Vec<Running> = clients.collect();
    for client in clients {
        client.wait().expect(0);
    }
    for number in 0..10 {
        assert_copied(
            directory.path(),
            &root.join(number.to_string()),
            &["source"],
        );
    }
}

/// Opens silent connections to a daemon from this number of local addresses.
fn idle_strangers(daemon: &Daemon, count: u8, networks: u8) -> Vec<std::net::TcpStream> {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let stranger = |number: u8| {
        let from = std::net::SocketAddr::from(([127, 0, 10 + number % networks, 1], 0));
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &from).unwrap();
        connect(&socket, &daemon.address).unwrap();
        std::net::TcpStream::from(socket)
    };
    (0..count).map(stranger).collect()
}

#[test]
fn unauthenticated_clients_do_not_exhaust_a_daemons_descriptors() {
    let directory = directory();
    let root = directory.path().join("root");
    sample(&root);
    let log = directory.path().join("log");
    let daemon = daemon_of_few_files(&root, &log, 40);
    let _idle = idle_strangers(&daemon, 60, 1);
    let tokens = daemon.token_file.clone().unwrap();
    fetch(&daemon, directory.path(), &daemon.fingerprint, &tokens).expect(0);
}

/// Two networks hold all places with silent connections.
// Promise 29.
#[test]
fn unauthenticated_clients_of_few_networks_leave_room_for_others() {
    let directory = directory();
    sample(&directory.path().join("root"));
    let daemon = Daemon::start(&directory.path().join("root"));
    // The places for one network each, and more that are turned away.
    let _idle = idle_strangers(&daemon, 255, 2);
    let _more = idle_strangers(&daemon, 60, 2);
    let tokens = daemon.token_file.clone().unwrap();
    fetch(&daemon, directory.path(), &daemon.fingerprint, &tokens).expect(0);
}

// Promise 29.
#[test]
fn a_client_waits_for_a_place_at_a_busy_daemon() {
    let directory = directory();
    let root = directory.path().join("root");
    sample(&root);
    let arguments = [
        "--root",
        root.to_str().unwrap(),
        "--write",
        "--sessions",
        "1",
    ];
    let daemon = Daemon::of(arguments.map(Into::into).into(), |command| command);
    let mut first = daemon.command("cp");
    first.args(["-q", "-"]).arg(daemon.url("stream"));
    let mut first = first.stdin(Stdio::piped()).spawn().unwrap();
    let mut input = first.stdin.take().unwrap();
    input.write_all(b"begun").unwrap();
    let holds = || {
        let mut names = root.read_dir().unwrap();
        names.any(|name| tree::is_own(&name.unwrap().path()))
    };
    await_that(holds);
    let mut second = daemon.command("cp");
    second.args(["-r", "--timeout", "300s"]);
    second.arg(daemon.url("sub")).arg(directory.path());
    let second = Running::start(&mut second);
    second.await_words("tried again");
    drop(input);
    assert!(first.wait().unwrap().success());
    second.wait().expect(0);
    assert_eq!(fs::read(root.join("stream")).unwrap(), b"begun");
}

/// The daemon refused this run as busy before the newer run began. Then it tries again.
// Promise 16.
#[test]
fn a_run_that_waited_for_a_place_does_not_end_a_newer_one() {
    let directory = directory();
    let (root, source) = (directory.path().join("root"), directory.path().join("a"));
    fs::create_dir(&root).unwrap();
    tree::write(&source, &vec![7; 3_000_000]);
    let daemon = Daemon::with(&root, &["--write", "--sessions", "1"]);
    let mut occupant = daemon.command("cp");
    occupant.args(["-q", "-"]).arg(daemon.url("stream"));
    let mut occupant = occupant.stdin(Stdio::piped()).spawn().unwrap();
    let mut input = occupant.stdin.take().unwrap();
    input.write_all(b"begun").unwrap();
    let is_held = || {
        let mut names = root.read_dir().unwrap();
        names.any(|name| tree::is_own(&name.unwrap().path()))
    };
    await_that(is_held);
    let copy = || {
        let mut copy = daemon.command("cp");
        copy.args(["--json", "--timeout", "300s", "--bwlimit", "10kB"]);
        copy.args(["--compress", "off"]);
        copy.arg(&source).arg(daemon.url(""));
        Running::start(&mut copy)
    };
    let older = copy();
    older.await_words("tried again");
    older.signal(Signal::STOP);
    drop(input);
    assert!(occupant.wait().unwrap().success());
    let newer = copy();
    newer
        .event(|event| event["event"] == "progress")
        .expect("a session");
    older.signal(Signal::CONT);
    older.wait().expect(7).says(&["newer run"]);
    newer.signal(Signal::INT);
    newer.wait().expect(130);
}

#[test]
fn a_daemon_whose_terminal_is_closed_ends() {
    let directory = directory();
    sample(&directory.path().join("root"));
    let arguments = vec!["--root".into(), directory.path().join("root").into()];
    // The shell that runs this test may ignore the signal.
    let daemon = Daemon::of(arguments, |command| {
        let mut heeding = Command::new("env");
        heeding
            .arg("--default-signal=HUP")
            .arg(command.get_program())
            .args(command.get_args());
        for (name, value) in command.get_envs() {
            heeding.env(name, value.unwrap());
        }
        heeding
    });
    daemon.running().signal(Signal::HUP);
    // The signal ends the daemon, as any process with the default action.
    let finished = daemon.wait();
    assert_eq!(finished.code, None, "{finished:?}");
}

/// A client that pushes through a proxy.
struct Pushing {
    directory: TempDir,
    daemon: Daemon,
    proxy: Proxy,
}

impl Pushing {
    fn new() -> Pushing {
        Pushing::to(&[])
    }

    /// Starts a daemon with further flags, to which files are pushed.
    fn to(further: &[&str]) -> Pushing {
        let directory = directory();
        fs::create_dir(directory.path().join("root")).unwrap();
        let flags = ["--write", "--linger", "2s", "--memory", "8MiB"];
        let flags = [&flags[..], further].concat();
        let daemon = Daemon::with(&directory.path().join("root"), &flags);
        let proxy = Proxy::to(daemon.address);
        Pushing {
            directory,
            daemon,
            proxy,
        }
    }

    fn source(&self) -> PathBuf {
        self.directory.path().join("source")
    }

    fn landed(&self) -> PathBuf {
        self.directory.path().join("root/source")
    }

    /// A push that waits longer than a busy host needs.
    fn command(&self) -> Command {
        self.command_within("60s")
    }

    fn command_within(&self, timeout: &str) -> Command {
        let to = daemon::url(self.proxy.address, "");
        self.command_with(timeout, &[self.source().as_os_str()], &to)
    }

    fn command_with(&self, timeout: &str, from: &[&OsStr], to: &OsStr) -> Command {
        let mut command = longhaul();
        command
            .args([
                "cp",
                "-r",
                "--json",
                "--memory",
                "8MiB",
                "--timeout",
                timeout,
            ])
            // The fault occurs after a number of bytes on the wire.
            .args(["--compress", "off"])
            .args(["--fingerprint", &self.daemon.fingerprint, "--token-file"])
            .arg(self.daemon.tokens_for(self.proxy.address))
            .args(from)
            .arg(to);
        command
    }
}

// Promise 18.
#[test]
fn a_daemon_that_does_not_return_is_given_up() {
    let mut pushing = Pushing::new();
    tree::mixed_tree(&pushing.source(), 100, 30 << 20);
    let pid = pushing.daemon.running().pid();
    pushing.proxy.after(5 << 20, move || {
        let _ = kill_process(pid, Signal::KILL);
    });
    run(&mut pushing.command_within("10s"))
        .expect(3)
        .says(&["the same command resumes it"]);
    pushing.daemon.kill();
    pushing.daemon.start_again();
    run(&mut pushing.command()).expect(0);
    tree::assert_same(&pushing.source(), &pushing.landed());
    assert_no_leftovers(pushing.directory.path());
}

/// Runs a command while the proxy holds back all data after this number of bytes.
fn run_held(proxy: &Proxy, after: u64, command: &mut Command) -> Finished {
    let handle = proxy.handle();
    let (ended, wait) = std::sync::mpsc::channel::<()>();
    proxy.after(after, move || {
        // Until the other half of the channel is dropped.
        handle.hold(|| {
            let _ = wait.recv();
        });
    });
    let finished = run(command);
    drop(ended);
    finished
}

// Promise 18.
#[test]
fn a_daemon_that_falls_silent_is_given_up() {
    let pushing = Pushing::new();
    tree::mixed_tree(&pushing.source(), 100, 30 << 20);
    run_held(&pushing.proxy, 5 << 20, &mut pushing.command_within("10s"))
        .expect(3)
        .says(&[
            "every connection was lost or silent",
            "the same command resumes it",
        ]);
    run(&mut pushing.command()).expect(0);
    tree::assert_same(&pushing.source(), &pushing.landed());
    assert_no_leftovers(pushing.directory.path());
}

// Promise 18.
#[test]
fn a_silent_host_is_given_up_after_the_timeout() {
    let pushing = Pushing::new();
    tree::write(&pushing.source().join("a"), b"a");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut command = longhaul();
    command
        .args(["cp", "--timeout", "1s", "--fingerprint"])
        .arg(&pushing.daemon.fingerprint)
        .arg("--token-file")
        .arg(pushing.daemon.tokens_for(address))
        .arg(pushing.source().join("a"))
        .arg(daemon::url(address, ""));
    run(&mut command)
        .expect(3)
        .says(&["did not finish the TLS handshake within 1 s"]);
}

/// A copy to a daemon, or from it, with damage on the way.
fn damaged(pushes: bool, security: &str, pieces: u64) -> (Pushing, Finished) {
    let pushing = Pushing::to(&["--allow-clear"]);
    let (source, landed) = (pushing.source(), pushing.landed());
    let from = if pushes { &source } else { &landed };
    tree::mixed_tree(from, 100, 30 << 20);
    let proxy = pushing.proxy.handle();
    pushing.proxy.after(1 << 20, move || proxy.damage(pieces));
    let url = |path: &str| daemon::url(pushing.proxy.address, path);
    // A damaged length may be waited for until the timeout.
    let mut command = if pushes {
        pushing.command_within("20s")
    } else {
        pushing.command_with(
            "20s",
            &[&url("source")],
            pushing.directory.path().as_os_str(),
        )
    };
    command.args(["--data-security", security]);
    let finished = run(&mut command);
    (pushing, finished)
}

// Promise 30.
#[test]
fn a_block_damaged_in_clear_is_reported_and_sent_again() {
    for pushes in [true, false] {
        let (pushing, finished) = damaged(pushes, "clear", 3);
        let finished = finished.expect(0).says(&["arrived damaged: sent again"]);
        let summary = finished.summary();
        assert_ne!(summary["corrupt_blocks"], 0, "{summary}");
        let events = finished.events();
        let named = events.iter().filter(|event| event["event"] == "damaged");
        assert_eq!(named.count() as u64, summary["corrupt_blocks"], "{summary}");
        tree::assert_same(&pushing.source(), &pushing.landed());
        assert_no_leftovers(pushing.directory.path());
    }
}

// Promise 30.
#[test]
fn a_damaged_encrypted_connection_is_reported_and_replaced() {
    for pushes in [true, false] {
        let (pushing, finished) = damaged(pushes, "tls", 3);
        let finished = finished.expect(0);
        let summary = finished.summary();
        assert_ne!(summary["lost_streams"], 0, "{summary}");
        assert_eq!(summary["corrupt_blocks"], 0, "{summary}");
        tree::assert_same(&pushing.source(), &pushing.landed());
        assert_no_leftovers(pushing.directory.path());
        // The receiver reports the damage.
        let text = "what came on it was damaged on its way";
        if pushes {
            let Pushing { daemon, .. } = pushing;
            daemon.running().signal(Signal::TERM);
            daemon.wait().expect(0).says(&[text]);
        } else {
            drop(finished.says(&[text]));
        }
    }
}

// Promise 30.
#[test]
fn a_path_that_damages_all_data_is_given_up() {
    let (_, finished) = damaged(true, "clear", u64::MAX);
    finished.expect(5).says(&[
        "it arrives corrupted again and again",
        "faulty memory or network hardware",
    ]);
    let (_, finished) = damaged(false, "tls", u64::MAX);
    finished
        .expect(3)
        .says(&["what it sends arrives damaged again and again"]);
}

#[test]
fn another_version_is_refused_and_named() {
    let directory = directory();
    let daemon = served(directory.path());
    let key = daemon.fingerprint.parse().unwrap();
    let options = TlsOptions::default();
    let client = TlsClient::new(ServerTrust::Fingerprint(key), None, options);
    let host = HostPort::from(daemon.address);
    let limit = crate::support::process::limit();
    let mut stream = client
        .connect(&host, limit, &TcpOptions::default())
        .unwrap();
    let join = Join {
        session: SessionId([0; 16]),
        secret: Secret([0; 32]),
        stream: 0,
        received: 0,
    };
    let hello = Hello {
        version: 77,
        software: "longhaul 77".to_owned(),
        capabilities: Vec::new(),
        purpose: Purpose::Join(join),
    };
    opening::send(&mut stream, &hello).unwrap();
    match opening::receive(&mut stream, limit).unwrap() {
        Answer::Refused(refused) => {
            assert_eq!(refused.refusal, Refusal::Version);
            for part in ["version 1", "longhaul 77", "version 77", "the same release"] {
                assert!(refused.text.contains(part), "{part}: {refused:?}");
            }
        }
        other => panic!("{other:?}"),
    }

    // And the other way round.
    let identity = Identity::ephemeral().unwrap();
    let server = TlsServer::new(&identity, TlsOptions::default()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let served = std::thread::spawn(move || {
        let mut stream = server.accept(listener.accept().unwrap().0).unwrap();
        let hello: Hello = opening::receive(&mut stream, limit).unwrap();
        let text = format!("the daemon speaks version 77, {} another", hello.software);
        let refused = Refused {
            refusal: Refusal::Version,
            text,
            superseded: false,
        };
        opening::send(&mut stream, &Answer::Refused(refused)).unwrap();
        let _ = stream.writer.finish();
    });
    let mut command = longhaul();
    command
        .args(["cp", "--fingerprint", &identity.fingerprint().to_string()])
        .arg("--token-file")
        .arg(daemon.tokens_for(address))
        .arg(daemon::url(address, "a"))
        .arg(directory.path().join("to"));
    run(&mut command).expect(3).says(&["speaks version 77"]);
    served.join().unwrap();
}

// Promise 18.
#[test]
fn lost_connections_are_replaced() {
    let pushing = Pushing::new();
    tree::mixed_tree(&pushing.source(), 100, 30 << 20);
    let proxy = pushing.proxy.handle();
    pushing.proxy.after(5 << 20, move || proxy.cut());
    let finished = run(&mut pushing.command()).expect(0);
    assert_ne!(finished.summary()["lost_streams"], 0);
    tree::assert_same(&pushing.source(), &pushing.landed());
}

// Promises 12 and 41.
#[test]
fn an_interrupt_ends_a_copy_and_the_same_command_resumes() {
    let pushing = Pushing::new();
    tree::mixed_tree(&pushing.source(), 100, 30 << 20);
    for signal in [Signal::INT, Signal::TERM] {
        pushing.proxy.take_passed();
        let running = Running::start(&mut pushing.command());
        let pid = running.pid();
        pushing.proxy.after(2 << 20, move || {
            let _ = kill_process(pid, signal);
        });
        running
            .wait()
            .expect(130)
            .says(&["interrupted", "the same command"]);
        tree::assert_nothing_half_written(&pushing.source(), &pushing.landed());
    }
    run(&mut pushing.command()).expect(0);
    tree::assert_same(&pushing.source(), &pushing.landed());
    assert_no_leftovers(pushing.directory.path());
}

/// A file of ones is overwritten in place with twos, and then replaced by threes with a rename.
/// Each time a part has been sent, and the rest cannot have been read: the sender holds 8 MiB, and
/// 128 KiB fit into each of its connections.
// Promise 21.
#[test]
fn a_source_that_changes_is_never_mixed() {
    const LENGTH: usize = 48 << 20;
    let pushing = Pushing::new();
    let file = pushing.source().join("file");
    tree::write(&file, &vec![1; LENGTH]);
    let changes = Arc::new(AtomicUsize::new(0));
    let (proxy, counted) = (pushing.proxy.handle(), Arc::clone(&changes));
    pushing.proxy.after(3 << 20, move || {
        proxy.hold(|| write_in_place(&file, &vec![2; LENGTH]));
        counted.fetch_add(1, Ordering::Relaxed);
        let holding = proxy.clone();
        proxy.after(32 << 20, move || {
            // This change is a rename to a shorter file.
            let new = file.with_extension("new");
            holding.hold(|| {
                fs::write(&new, vec![3; LENGTH / 2]).unwrap();
                fs::rename(&new, &file).unwrap();
            });
            counted.fetch_add(1, Ordering::Relaxed);
        });
    });
    let finished = run(&mut pushing.command());
    pushing.proxy.disarm();
    let (changes, landed) = (
        changes.load(Ordering::Relaxed),
        fs::read(pushing.landed().join("file")),
    );
    if finished.code == Some(0) {
        assert_eq!(changes, 2, "the copy ended before the change");
        assert!(landed.unwrap() == vec![3; LENGTH / 2], "not the last state");
    } else {
        // Every write in place is a change, and there may be too many of them
        // while it is read.
        assert!(changes > 0 && landed.is_err(), "{finished:?}");
        finished
            .expect(2)
            .says(&["source/file: it keeps changing while it is copied"]);
    }
    run(&mut pushing.command()).expect(0);
    tree::assert_same(&pushing.source(), &pushing.landed());
    assert_no_leftovers(pushing.directory.path());
}

/// Writes a file anew, never shorter: an empty file would be a state, too.
fn write_in_place(file: &Path, data: &[u8]) {
    let file = fs::OpenOptions::new().write(true).open(file).unwrap();
    let step = 64 << 10;
    for (number, part) in data.chunks(step).enumerate() {
        file.write_all_at(part, (number * step) as u64).unwrap();
    }
    // Writes within one tick of the kernel's clock have the same time. Data read between two of
    // them must not look like the final state (see SEMANTICS, 20).
    file.set_modified(SystemTime::now()).unwrap();
}

#[test]
fn a_source_that_vanishes_is_named() {
    let pushing = Pushing::new();
    tree::write(&pushing.source().join("a"), &Random::new(3).bytes(20 << 20));
    tree::write(
        &pushing.source().join("large"),
        &Random::new(4).bytes(20 << 20),
    );
    for number in 0..500 {
        tree::write(
            &pushing.source().join(format!("small/{number}")),
            &[7; 2000],
        );
    }
    let source = pushing.source();
    pushing.proxy.after(3 << 20, move || {
        fs::remove_file(source.join("large")).unwrap();
        fs::remove_file(source.join("small/77")).unwrap();
    });
    let finished = run(&mut pushing.command());
    // Files that were read before the change are copied. All others are named.
    let mut lost = 0;
    for name in ["large", "small/77"] {
        if !pushing.landed().join(name).exists() && finished.errors.contains(name) {
            lost += 1;
        }
    }
    let code = if finished.errors.is_empty() { 0 } else { 2 };
    let finished = finished.expect(code);
    assert!(
        lost == 0 || finished.errors.contains("removed"),
        "{finished:?}"
    );
    assert_copied(&pushing.source(), &pushing.landed(), &["a", "small/76"]);
    assert_eq!(
        fs::read_dir(pushing.landed().join("small"))
            .unwrap()
            .count()
            / 499,
        1
    );
}

/// The destination directory is removed while data are in flight, and the message names this cause.
#[test]
fn a_destination_that_is_removed_is_named() {
    for sizes in [&[20 << 20][..], &[100_000; 100]] {
        let directory = directory();
        let source = directory.path().join("source");
        for (number, size) in sizes.iter().enumerate() {
            let data = Random::new(number as u64).bytes(*size);
            tree::write(&source.join(number.to_string()), &data);
        }
        let to = directory.path().join("new/within");
        let mut command = longhaul();
        command.args([
            "cp",
            "-r",
            "--json",
            "--bwlimit",
            "500kB/s",
            "--checkpoint",
            "1MiB",
        ]);
        let running = Running::start(command.arg(&source).arg(&to));
        let settled = |event: &Value| event["event"] == "durable" || event["event"] == "committed";
        running.event(settled).expect("no file was copied");
        // Directories that the copy makes again are removed too.
        while directory.path().join("new").exists() {
            let _ = fs::remove_dir_all(directory.path().join("new"));
        }
        running
            .wait()
            .expect(6)
            .says(&["new/within", "removed", "run the same command again"]);
    }
}
