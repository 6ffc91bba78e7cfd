//! Roots, keys and principals that a daemon refuses, its messages about them, and its log.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::support::Daemon;
use crate::support::process::{Finished, Running, longhaul, run};
use crate::support::tree;
use longhaul_engine::send::SendSide;
use longhaul_engine::send::source::{Source, Sources, What};
use longhaul_engine::session::{Transfer, TransferSettings, opening};
use longhaul_net::identity::Identity;
use longhaul_net::tcp::{HostPort, TcpOptions};
use longhaul_net::tls::{TlsClient, TlsOptions};
use longhaul_net::trust::ServerTrust;
use longhaul_proto::allowed::Allowed;
use longhaul_proto::backup::Backup;
use longhaul_proto::handshake::{Credential, Operation, Request, RequestPath, Role, Vouch};
use longhaul_proto::message::Farewell;
use longhaul_proto::options::TransferOptions;
use longhaul_proto::session::StreamId;
use longhaul_storage::posix::PosixDirectory;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

/// A state directory, a directory of data, and what a principal's entry needs.
struct Site {
    place: TempDir,
    token: String,
    entry: String,
}

impl Site {
    fn new() -> Site {
        let place = tempfile::tempdir().unwrap();
        tree::write(&place.path().join("data/a"), b"a");
        let mut command = longhaul();
        command.args(["token", "--principal", "alice"]);
        let made = String::from_utf8(run(&mut command).expect(0).output).unwrap();
        let line = made.lines().find(|line| line.starts_with("HOST:4960"));
        Site {
            place,
            token: line.unwrap().to_owned(),
            entry: made[made.find("[[principal]]").unwrap()..].to_owned(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn principals(&self, root: &Path, rights: &str) -> String {
        format!(
            "{}\n[[principal.root]]\nat = \"/\"\npath = \"{}\"\nrights = [{rights}]\n",
            self.entry,
            root.display()
        )
    }

    /// A daemon of one principal, and a command as that.
    fn daemon(&self, rights: &str) -> Daemon {
        let file = self.path("principals.toml");
        fs::write(&file, self.principals(&self.path("data"), rights)).unwrap();
        Daemon::of(vec!["--principals".into(), file.into()], |command| command)
    }

    fn command(&self, daemon: &Daemon, subcommand: &str) -> Command {
        let tokens = self.path("tokens");
        let line = self.token.replace("HOST:4960", &daemon.address.to_string());
        tree::write(&tokens, line.as_bytes());
        fs::set_permissions(&tokens, Permissions::from_mode(0o600)).unwrap();
        let mut command = longhaul();
        command.args([subcommand, "--fingerprint", &daemon.fingerprint]);
        command.arg("--token-file").arg(&tokens);
        command
    }
}

/// Runs a daemon that does not start, and checks its messages.
#[track_caller]
fn refused<const N: usize>(arguments: [&OsStr; N], says: &[&str]) -> Finished {
    let mut command = longhaul();
    command.args(["serve", "--print-ready", "--listen", "127.0.0.1:0"]);
    let done = run(command.args(arguments)).expect(6).says(says);
    assert_eq!(done.output, b"");
    done
}

// Promise 28.
#[test]
fn a_root_that_contains_the_daemons_secrets_is_refused() {
    let site = Site::new();
    let (home, state) = (site.path("home"), site.path("home/.config/longhaul"));
    fs::create_dir_all(&home).unwrap();
    symlink(&home, site.path("link")).unwrap();
    symlink(&state, site.path("state")).unwrap();
    let (root, at) = (OsStr::new("--root"), OsStr::new("--state"));
    for (served, kept) in [
        (&home, &state),
        (&site.path("link"), &state),
        (&home, &site.path("link/.config/longhaul")),
        (&home, &site.path("state")),
        (&state, &state),
    ] {
        fs::create_dir_all(&state).unwrap();
        let arguments = [root, served.as_os_str(), at, kept.as_os_str()];
        refused(
            arguments,
            &["holds the daemon's state directory", "--state"],
        );
        assert!(!state.join("identity.pem").exists(), "{}", served.display());
    }
    fs::create_dir_all(state.join("jobs")).unwrap();
    let jobs = state.join("jobs");
    let arguments = [root, jobs.as_os_str(), at, state.as_os_str()];
    refused(arguments, &["lies in the daemon's state directory"]);
    // The client's own secrets are protected if the daemon's state is in another directory.
    let mut command = longhaul();
    command.env("LONGHAUL_CONFIG_DIR", &state);
    command.args(["serve", "--listen", "127.0.0.1:0", "--root"]);
    command.arg(&home).arg("--state").arg(site.path("other"));
    run(&mut command)
        .expect(6)
        .says(&["holds the user's tokens", "LONGHAUL_CONFIG_DIR"]);
}

#[test]
fn a_root_that_contains_a_key_or_the_principals_file_is_refused() {
    let site = Site::new();
    let principals = site.path("data/principals.toml");
    let text = site.principals(&site.path("data"), "\"read\"");
    fs::write(&principals, &text).unwrap();
    let (file, state) = (OsStr::new("--principals"), site.path("state"));
    let kept = [OsStr::new("--state"), state.as_os_str()];
    refused(
        [file, principals.as_os_str(), kept[0], kept[1]],
        &["holds the file of principals", "principal \"alice\""],
    );
    let outside = site.path("principals.toml");
    fs::rename(&principals, &outside).unwrap();
    let key = site.path("data/key.pem");
    fs::write(&key, "none").unwrap();
    let of = [file, outside.as_os_str(), kept[0], kept[1]];
    let words = ["--certificate", "x.pem", "--key"].map(OsStr::new);
    let arguments = [
        of[0],
        of[1],
        of[2],
        of[3],
        words[0],
        words[1],
        words[2],
        key.as_os_str(),
    ];
    refused(arguments, &["holds the daemon's private key"]);
}

#[test]
fn a_daemon_without_usable_principals_does_not_start() {
    let site = Site::new();
    let (file, state) = (site.path("principals.toml"), site.path("state"));
    let arguments = [
        OsStr::new("--principals"),
        file.as_os_str(),
        OsStr::new("--state"),
        state.as_os_str(),
    ];
    fs::write(&file, "# none yet\n").unwrap();
    refused(arguments, &["names no principal", "longhaul token"]);
    fs::write(&file, "[[principal]]\nname = 7\n").unwrap();
    refused(arguments, &["line 2: ", "longhaul serve --help"]);
    let missing = site.path("missing");
    fs::write(&file, site.principals(&missing, "\"read\"")).unwrap();
    refused(
        arguments,
        &["missing of principal \"alice\"", "make the directory"],
    );
}

#[test]
fn a_state_directory_that_others_may_write_is_refused() {
    let site = Site::new();
    let (data, state) = (site.path("data"), site.path("state"));
    fs::create_dir(&state).unwrap();
    fs::set_permissions(&state, Permissions::from_mode(0o777)).unwrap();
    let words = ["--root", "--state"].map(OsStr::new);
    let arguments = [words[0], data.as_os_str(), words[1], state.as_os_str()];
    refused(arguments, &["others may write into", "chmod go-w"]);
    assert_eq!(fs::read_dir(&state).unwrap().count(), 0);
}

#[test]
fn a_listen_address_without_a_port_is_refused_with_an_example() {
    let mut command = longhaul();
    command.args(["serve", "--root", "/nonexistent", "--listen", "0.0.0.0"]);
    run(&mut command).expect(1).says(&["0.0.0.0:4960"]);
}

#[test]
fn a_reload_refuses_a_root_that_contains_secrets() {
    let site = Site::new();
    let daemon = site.daemon("\"read\"");
    let file = site.path("principals.toml");
    let fetch = |name: &str| {
        let mut command = site.command(&daemon, "cp");
        command.arg(daemon.url(name)).arg(site.path("to"));
        run(&mut command)
    };
    fetch("a").expect(0);
    fs::write(&file, site.principals(daemon.state(), "\"read\"")).unwrap();
    daemon.running().signal(Signal::HUP);
    daemon.running().await_words("stay as they were");
    fetch("identity.pem").expect(6);
    fetch("a").expect(0);
    fs::write(&file, "").unwrap();
    daemon.running().signal(Signal::HUP);
    daemon.running().await_words("nobody is let in");
    daemon.running().await_words("was read again");
    fetch("a").expect(4);
}

#[test]
fn the_log_has_time_principal_operation_and_end_of_each_session() {
    let site = Site::new();
    let daemon = site.daemon("\"read\"");
    let list = |path: &str| run(site.command(&daemon, "ls").arg(daemon.url(path)));
    list("").expect(0);
    list("x\nlonghaul: forged").expect(6);
    let mut push = site.command(&daemon, "cp");
    push.arg(site.path("data/a")).arg(daemon.url("new"));
    run(&mut push)
        .expect(4)
        .says(&["alice has no right to write at /new", "serve --write"]);
    let mut verify = site.command(&daemon, "verify");
    run(verify.arg(site.path("data/a")).arg(daemon.url("a"))).expect(0);
    let mut probe = site.command(&daemon, "probe");
    let probed = run(probe.args(["--pings", "1"]).arg(daemon.url("")));
    let probed = probed.expect(3);
    let text = String::from_utf8(probed.output).unwrap();
    assert!(
        text.contains("may not measure") && !text.contains("()"),
        "{text}"
    );
    daemon.running().signal(Signal::TERM);
    let log = daemon.wait().expect(0).errors;
    for line in log.lines() {
        let (stamp, rest) = line.split_once(' ').unwrap();
        assert!(stamp.ends_with('Z') && stamp.contains('T'), "{line}");
        assert!(rest.starts_with("longhaul: "), "{line}");
    }
    for said in [
        "alice from 127.0.0.1:",
        ": listed /, 1 entries",
        ", writing /new, was refused: the principal alice has no right to write at /new",
        ": compared 1 entries, ",
        ", writing null:, was refused: this principal may not measure",
        "stopped by a signal",
    ] {
        assert!(log.contains(said), "{said:?} is missing:\n{log}");
    }
}

#[test]
fn a_log_for_programs_has_an_object_for_each_event() {
    let shared = tempfile::tempdir().unwrap();
    tree::write(&shared.path().join("a"), b"1234");
    let daemon = Daemon::with(shared.path(), &["--log-format", "json", "--write"]);
    run(daemon.command("cp").arg(daemon.url("a")).arg("null:")).expect(0);
    run(daemon.command("ls").arg(daemon.url("none\nx"))).expect(6);
    daemon.running().signal(Signal::TERM);
    let log = daemon.wait().expect(0).errors;
    let events: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let refused = events.iter().find(|event| event["outcome"] == "refused");
    let refused = refused.unwrap_or_else(|| panic!("nothing refused:\n{log}"));
    assert_eq!(refused["level"], "WARN");
    let session = events.iter().find(|event| event["entries"] == 1);
    let session = session.unwrap_or_else(|| panic!("no session:\n{log}"));
    assert_eq!(session["principal"], "user");
    assert_eq!(
        (&session["bytes"], &session["outcome"]),
        (&4.into(), &"complete".into())
    );
    assert!(events.iter().all(|event| event["timestamp"].is_string()));

    let quiet = Daemon::with(shared.path(), &["--log-level", "warn"]);
    run(quiet.command("cp").arg(quiet.url("a")).arg("null:")).expect(0);
    quiet.running().signal(Signal::TERM);
    // A stream that arrives after the end of its session may be refused with a warning.
    let log = quiet.wait().expect(0).errors;
    assert!(
        !log.contains("complete") && !log.contains("stopped"),
        "{log}"
    );
}

// Promise 29.
#[test]
fn a_principal_without_the_right_to_read_receives_no_digest() {
    let site = Site::new();
    // The file has the size and time of the secret file, which an attacker may know.
    tree::write(&site.path("mine/a"), b"b");
    let time = fs::metadata(site.path("data/a"))
        .unwrap()
        .modified()
        .unwrap();
    let dated = |path: &str| {
        let file = fs::File::options().write(true).open(site.path(path));
        file.unwrap().set_modified(time).unwrap();
    };
    dated("mine/a");
    let digest = blake3_of(&site.path("data/a"));
    for rights in ["\"write\"", "\"read\", \"write\""] {
        tree::write(&site.path("data/a"), b"a");
        dated("data/a");
        let daemon = site.daemon(rights);
        let manifest = site.path("manifest");
        let mut push = site.command(&daemon, "cp");
        push.args(["--json", "--manifest"]).arg(&manifest);
        push.arg(site.path("mine/a")).arg(daemon.url("a"));
        let done = run(&mut push);
        let said = String::from_utf8_lossy(&done.output).into_owned()
            + &fs::read_to_string(&manifest).unwrap_or_default();
        assert!(!said.contains(&digest), "{rights}: {said}");
        // Files that were compared with the source have the contents of the source.
        assert_eq!(fs::read(site.path("data/a")).unwrap(), b"b");
    }
}

/// A principal that may not read, and tries contents.
// Promise 29.
#[test]
fn a_principal_without_the_right_to_read_cannot_test_contents() {
    let site = Site::new();
    let old = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let file = |path: &str, text: &[u8]| {
        tree::write(&site.path(path), text);
        let file = fs::File::options().write(true).open(site.path(path));
        file.unwrap().set_modified(old).unwrap();
    };
    for (rights, tells) in [("\"write\"", false), ("\"read\", \"write\"", true)] {
        let daemon = site.daemon(rights);
        for options in [
            &["-n", "-c"][..],
            &["-n", "-c", "--update"],
            &["-c"],
            &["--verify"],
            &["--manifest=/dev/null"],
            &["--move"],
        ] {
            let outcome = |guess: &[u8]| {
                file("data/secret", b"1234");
                file("mine/secret", guess);
                let mut push = site.command(&daemon, "cp");
                push.arg("--json").args(options);
                push.arg(site.path("mine/secret")).arg(daemon.url("secret"));
                let mut summary = run(&mut push).expect(0).summary();
                let summary = summary.as_object_mut().unwrap();
                let told = [
                    "entries",
                    "new",
                    "changed",
                    "skipped_entries",
                    "unchanged",
                    "fixed_entries",
                ];
                summary.retain(|name, _| told.contains(&name.as_str()) || name.contains("entries"));
                Value::Object(summary.clone())
            };
            let [right, wrong] = [b"1234", b"4321"].map(|guess| outcome(guess));
            assert_eq!(
                right != wrong,
                tells,
                "{rights} {options:?}: {right} {wrong}"
            );
        }
    }
}

fn blake3_of(file: &Path) -> String {
    let mut command = longhaul();
    let copy = file.with_extension("copy");
    command.args(["cp", "--quiet", "--manifest", "/dev/stdout"]);
    let done = run(command.arg(file).arg(&copy)).expect(0);
    fs::remove_file(copy).unwrap();
    let text = String::from_utf8(done.output).unwrap();
    text.split_whitespace().next().unwrap().to_owned()
}

fn one_file_to(path: &[u8]) -> Request {
    let paths = vec![RequestPath::Path(path.to_vec())];
    Request {
        credential: Some(Credential {
            principal: "alice".to_owned(),
            token: None,
        }),
        source: [1; 32],
        checkpoint_bytes: 1 << 20,
        ..Request::new(Role::Sender, paths, TransferOptions::default())
    }
}

/// The host that runs a copy to this daemon may be hostile.
// tidy: long because it has a request with each of its fields.
// Promise 58.
#[test]
fn an_introduced_host_opens_only_the_session_that_was_allowed() {
    const PATIENCE: Duration = Duration::from_secs(20);
    let site = Site::new();
    let daemon = site.daemon("\"read\", \"write\"");
    let token = site.token.split_whitespace().last().unwrap();
    let connect = |identity: Option<Identity>| {
        let trust = ServerTrust::Fingerprint(daemon.fingerprint.parse().unwrap());
        let tls = TlsClient::new(trust, identity, TlsOptions::default());
        let host = HostPort::from(daemon.address);
        tls.connect(&host, PATIENCE, &TcpOptions::default())
            .unwrap()
    };
    // Opens a session as a host that was let in for one file to `/in`.
    let open = |request: Request| {
        let identity = Identity::ephemeral().unwrap();
        let vouch = Vouch {
            credential: Some(Credential {
                principal: "alice".to_owned(),
                token: Some(token.to_owned()),
            }),
            key: *identity.fingerprint().as_bytes(),
            allowed: Some(Allowed {
                role: Role::Sender,
                options: Box::new(TransferOptions::default()),
                paths: vec![RequestPath::Path(b"/in/".to_vec())],
                sources: vec![RequestPath::Path(b"/scratch/run*.h5".to_vec())],
            }),
        };
        opening::vouch(&mut connect(None), vouch, PATIENCE).unwrap();
        let mut stream = connect(Some(identity));
        opening::open(&mut stream, request, &[], PATIENCE).map(|_| stream)
    };
    let reads = Request {
        role: Role::Receiver,
        ..one_file_to(b"/in")
    };
    let with = |options| Request {
        options: Box::new(options),
        ..one_file_to(b"/in")
    };
    let compares = with(TransferOptions {
        operation: Operation::Verify,
        ..TransferOptions::default()
    });
    // Backups would replace entries in another directory.
    let keeps = with(TransferOptions {
        backup: Some(Backup {
            suffix: None,
            directory: Some(b"/scratch"[..].into()),
        }),
        ..TransferOptions::default()
    });
    for request in [one_file_to(b"/"), reads, compares, keeps] {
        let error = open(request).err().unwrap().to_string();
        assert!(error.contains("introduced for one copy"), "{error}");
        let log = daemon.running();
        log.await_words(", which calls itself \"alice\", ");
    }
    let send = |name: &str| {
        let from = site.path(name);
        tree::write(&from.join(name), b"data");
        let stream = open(one_file_to(b"/in")).unwrap();
        let directory = PosixDirectory::open_root(&from).unwrap();
        let source = Source::new(directory.into(), What::Contents, name.to_owned());
        let settings = TransferSettings {
            linger: Duration::from_secs(2),
            ..TransferSettings::default()
        };
        let side = SendSide::new(Sources::new(vec![source]));
        let transfer = Transfer::sending(settings, side, Arc::new(|_| {}));
        assert!(transfer.streams().attach(stream, StreamId(0), false, 0));
        transfer.wait().farewell
    };
    // The log has the reason for the end of the session. The client may find the connection closed
    // before it receives the reason.
    assert_ne!(send(".bashrc"), Farewell::Complete);
    daemon.running().await_words("did not ask for");
    assert!(!site.path("data/in/.bashrc").exists());
}

/// A certificate that is valid from the first to the second of these years, and its key.
fn certificate(directory: &Path, name: &str, years: [i32; 2]) -> PathBuf {
    let key = rcgen::KeyPair::generate().unwrap();
    write_certificate(directory, name, years, &key)
}

fn write_certificate(
    directory: &Path,
    name: &str,
    [from, until]: [i32; 2],
    key: &rcgen::KeyPair,
) -> PathBuf {
    let mut parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    parameters.not_before = rcgen::date_time_ymd(from, 1, 1);
    parameters.not_after = rcgen::date_time_ymd(until, 1, 1);
    let pem = parameters.self_signed(key).unwrap().pem();
    let file = directory.join(name);
    tree::write(&file, (key.serialize_pem() + &pem).as_bytes());
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    file
}

// Promise 35.
#[test]
fn expired_and_future_certificates_are_refused() {
    const PATIENCE: Duration = Duration::from_secs(20);
    let site = Site::new();
    for (years, says) in [
        ([2000, 2001], "expired at 2001-01-01T00:00:00Z"),
        ([4000, 4001], "is not valid before 4000-01-01T00:00:00Z"),
    ] {
        let file = certificate(site.place.path(), "u.pem", years);
        let identity = Identity::from_pem_files_of_any_date(&file, &file).unwrap();
        let mut entry = site.principals(&site.path("data"), "\"write\"");
        let key = identity.fingerprint();
        let named = format!("name = \"alice\"\ncertificates = [\"{key}\"]");
        entry = entry.replace("name = \"alice\"", &named);
        fs::write(site.path("principals.toml"), entry).unwrap();
        let arguments = vec!["--principals".into(), site.path("principals.toml").into()];
        let daemon = Daemon::of(arguments, |command| command);
        // The command refuses it before it connects.
        let mut push = longhaul();
        push.args(["cp", "--fingerprint", &daemon.fingerprint]);
        push.arg("--certificate").arg(&file).arg("--key").arg(&file);
        push.arg(site.path("data/a")).arg(daemon.url("new"));
        run(&mut push).expect(4).says(&[says, "renew it"]);
        // Another client does not.
        let trust = ServerTrust::Fingerprint(daemon.fingerprint.parse().unwrap());
        let tls = TlsClient::new(trust, Some(identity), TlsOptions::default());
        let host = HostPort::from(daemon.address);
        let mut stream = tls
            .connect(&host, PATIENCE, &TcpOptions::default())
            .unwrap();
        let opened = opening::open(&mut stream, one_file_to(b"/new"), &[], PATIENCE);
        let error = opened.err().unwrap().to_string();
        assert!(
            error.contains(says) && error.contains("renew it"),
            "{error}"
        );
        daemon.running().await_words(says);
        assert!(!site.path("data/new").exists());
        // A daemon also does not start with such a certificate.
        let (root, data) = (OsStr::new("--root"), site.path("data"));
        let [own, key] = ["--certificate", "--key"].map(OsStr::new);
        let [state, at] =
            [OsStr::new("--state"), site.path("state").as_os_str()].map(OsStr::to_owned);
        let file = file.as_os_str();
        refused(
            [root, data.as_os_str(), &state, &at, own, file, key, file],
            &[says],
        );
    }
}

// Promise 41.
#[test]
fn a_renewed_certificate_is_read_at_sighup() {
    let site = Site::new();
    let key = rcgen::KeyPair::generate().unwrap();
    let write = |years| write_certificate(site.place.path(), "own.pem", years, &key);
    let file = write([2000, 4000]);
    let list = |daemon: &Daemon| run(daemon.command("ls").arg(daemon.url("")));
    let served = |file: &Path| -> Vec<std::ffi::OsString> {
        let file = file.as_os_str().to_owned();
        let root = site.path("data").into();
        vec![
            "--root".into(),
            root,
            "--certificate".into(),
            file.clone(),
            "--key".into(),
            file,
        ]
    };
    let daemon = Daemon::of(served(&file), |command| command);
    list(&daemon).expect(0);
    // If one file has an error, the old settings stay.
    write([2000, 2001]);
    daemon.running().signal(Signal::HUP);
    let words = "stays as it was: the certificate";
    daemon.running().await_words(words);
    list(&daemon).expect(0);
    write([2000, 3000]);
    daemon.running().signal(Signal::HUP);
    daemon
        .running()
        .await_words("valid until 3000-01-01T00:00:00Z");
    list(&daemon).expect(0);
    // For clients that know the older key, a daemon with another key is another daemon.
    certificate(site.place.path(), "own.pem", [2000, 3000]);
    daemon.running().signal(Signal::HUP);
    daemon.running().await_words("has another key now");
    daemon.running().await_words("was read again");
    list(&daemon).expect(4).says(&["as asked for"]);
    daemon
        .running()
        .await_words("it does not accept the certificate");
    daemon.running().signal(Signal::TERM);
    let log = daemon.wait().expect(0).errors;
    assert!(!log.contains("its log"), "{log}");
}

/// A pipe that is full, with its reader.
fn full_pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    while writer.write(&[b'.'; 4096]).is_ok() {}
    while writer.write(b".").is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    (reader, writer)
}

// Promise 41.
#[test]
fn a_blocked_log_delays_no_session() {
    let site = Site::new();
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    let (reader, writer) = full_pipe();
    let (gone, broken) = std::io::pipe().unwrap();
    drop(gone);
    for log in [Stdio::from(writer), full().into(), broken.into()] {
        let state = tempfile::tempdir().unwrap();
        let mut serve = longhaul();
        serve.args([
            "serve",
            "--print-ready",
            "--listen",
            "127.0.0.1:0",
            "--root",
        ]);
        serve
            .arg(site.path("data"))
            .arg("--state")
            .arg(state.path());
        serve
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log);
        let mut daemon = Process(serve.spawn().unwrap());
        let mut output = std::io::BufReader::new(daemon.0.stdout.take().unwrap());
        let mut line = String::new();
        std::io::BufRead::read_line(&mut output, &mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        let url = format!("longhaul://{}/", ready["listening"].as_str().unwrap());
        for _ in 0..3 {
            let mut list = longhaul();
            list.args([
                "ls",
                "--fingerprint",
                ready["fingerprint"].as_str().unwrap(),
            ]);
            list.args(["--token-file", ready["token_file"].as_str().unwrap(), &url]);
            run(&mut list).expect(0);
        }
        let id = rustix::process::Pid::from_child(&daemon.0);
        rustix::process::kill_process(id, Signal::TERM).unwrap();
        assert_eq!(daemon.0.wait().unwrap().code(), Some(0));
    }
    drop(reader);
}

/// Ends with the test.
struct Process(std::process::Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_unreachable_daemon_ends_at_sigterm() {
    if !rustix::process::geteuid().is_root() {
        return longhaul_testing::skip("only root makes name spaces of networks");
    }
    let site = Site::new();
    // Its loopback device is down.
    let mut serve = Command::new("unshare");
    serve.arg("-n").arg(longhaul().get_program());
    serve.args(["serve", "--print-ready", "--listen", "0.0.0.0:0", "--root"]);
    serve
        .arg(site.path("data"))
        .arg("--state")
        .arg(site.path("state"));
    serve.env("LONGHAUL_CONFIG_DIR", "/nonexistent/longhaul");
    let daemon = Running::start(&mut serve);
    assert!(daemon.line().is_some());
    daemon.signal(Signal::TERM);
    daemon.wait().expect(0).says(&["stopped by a signal"]);
}

#[test]
fn the_log_has_a_line_with_the_bytes_of_each_stopped_session() {
    let site = Site::new();
    let bytes = crate::support::random::Random::new(1).bytes(8 << 20);
    tree::write(&site.path("data/large"), &bytes);
    let daemon = Daemon::with(&site.path("data"), &["--log-format", "json", "--write"]);
    let pull = |name: &str| {
        let mut pull = daemon.command("cp");
        pull.args(["--json", "--timeout", "20", "--bwlimit", "1MB/s"]);
        pull.arg(daemon.url("large")).arg(site.path(name));
        Running::start(&mut pull)
    };
    let pulls: Vec<Running> = (0..6)
        .map(|number| pull(&format!("pull-{number}")))
        .collect();
    for pull in &pulls {
        let moves = |event: &Value| event["moved_bytes"].as_u64() > Some(0);
        pull.event(moves).unwrap();
    }
    daemon.running().signal(Signal::TERM);
    let log = daemon.wait().expect(0).errors;
    let sessions: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|event| event["operation"] == "copy")
        .collect();
    assert_eq!(sessions.len(), 6, "{log}");
    for session in sessions {
        assert!(session["bytes"].as_u64() > Some(0), "{session}");
        assert_eq!(session["outcome"], "the daemon was stopped");
    }
    for pull in pulls {
        pull.kill();
    }
}

#[test]
fn ipv4_clients_have_ipv4_addresses_in_the_log() {
    let site = Site::new();
    let any: std::net::SocketAddr = "[::]:0".parse().unwrap();
    let arguments = vec!["--root".into(), site.path("data").into()];
    if std::net::TcpListener::bind(any).is_err() {
        return longhaul_testing::skip_without_kernel("IPv6");
    }
    let state = site.path("state");
    let mut serve = longhaul();
    serve
        .args(["serve", "--print-ready", "--listen", "[::]:0"])
        .args::<Vec<std::ffi::OsString>, _>(arguments);
    serve.arg("--state").arg(&state);
    let daemon = Running::start(&mut serve);
    let ready: Value = serde_json::from_str(&daemon.line().unwrap()).unwrap();
    let port = ready["listening"]
        .as_str()
        .unwrap()
        .rsplit(':')
        .next()
        .unwrap()
        .to_owned();
    let tokens = site.path("tokens");
    let token = fs::read_to_string(state.join("token")).unwrap();
    tree::write(
        &tokens,
        format!("127.0.0.1:{port} user {token}\n").as_bytes(),
    );
    fs::set_permissions(&tokens, Permissions::from_mode(0o600)).unwrap();
    let mut list = longhaul();
    list.args([
        "ls",
        "--fingerprint",
        ready["fingerprint"].as_str().unwrap(),
    ]);
    list.arg("--token-file")
        .arg(&tokens)
        .arg(format!("longhaul://127.0.0.1:{port}/"));
    run(&mut list).expect(0);
    daemon.await_words("user from 127.0.0.1:");
    daemon.signal(Signal::TERM);
    daemon.wait().expect(0);
}
