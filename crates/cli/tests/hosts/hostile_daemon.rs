//! A hostile daemon, which answers with entries that the client did not request. It really sends
//! the data that it offers, so only the checks of the client protect the files of this host.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::support::process::{longhaul, run};
use crate::support::tree;
use longhaul_engine::send::SendSide;
use longhaul_engine::send::source::{Source, Sources, What};
use longhaul_engine::session::{Transfer, TransferSettings, opening};
use longhaul_net::Stream;
use longhaul_net::identity::Identity;
use longhaul_net::tls::{TlsOptions, TlsServer};
use longhaul_net::token::Token;
use longhaul_proto::handshake::{
    Answer, Capability, Hello, Joined, Purpose, Refusal, Refused, Secret, SessionId, Welcome,
};
use longhaul_proto::listing::{Gathered, Listed, ListedEntry, ListedKind};
use longhaul_proto::manifest::TreePath;
use longhaul_proto::session::StreamId;
use longhaul_storage::posix::PosixDirectory;
use tempfile::TempDir;

/// The answer of the daemon to every request.
#[derive(Clone)]
enum Answers {
    /// All that is in a directory; whether it calls that one file.
    Contents(PathBuf, bool),
    /// Welcomes a session, lets streams join it, and then sends no message.
    Silence,
    /// A refusal with this text.
    Refusal(String),
    /// This path, as the answer to a request for a listing.
    Name(&'static str),
}

struct Hostile {
    address: SocketAddr,
    fingerprint: String,
    place: TempDir,
}

impl Hostile {
    fn new(answers: impl FnOnce(&Path) -> Answers) -> Hostile {
        let place = tempfile::tempdir().unwrap();
        let answers = answers(place.path());
        let identity = Identity::ephemeral().unwrap();
        let tls = TlsServer::new(&identity, TlsOptions::default()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let token = Token::generate().unwrap().reveal();
        let tokens = place.path().join("tokens");
        tree::write(&tokens, format!("{address} user {token}\n").as_bytes());
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&tokens, private).unwrap();
        let fingerprint = tls.fingerprint().to_string();
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let (tls, answers) = (tls.clone(), answers.clone());
                std::thread::spawn(move || {
                    if let Ok(stream) = tls.accept(socket) {
                        serve(stream, &answers);
                    }
                });
            }
        });
        Hostile {
            address,
            fingerprint,
            place,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn command(&self, subcommand: &str, options: &[&str]) -> Command {
        let mut command = longhaul();
        command.args([subcommand, "--fingerprint", &self.fingerprint]);
        command.arg("--token-file").arg(self.path("tokens"));
        command.args(options);
        command
    }

    fn url(&self, path: &str) -> String {
        format!("longhaul://{}/{path}", self.address)
    }

    /// Runs `cp OPTIONS SOURCE to/`, and checks that no hostile name exists afterwards.
    #[track_caller]
    fn pulls_nothing(&self, options: &[&str], source: &str) {
        let to = self.path("to");
        tree::write(&to.join("kept"), b"mine");
        let mut command = self.command("cp", options);
        command
            .arg(self.url(source))
            .arg(format!("{}/", to.display()));
        let done = run(&mut command).expect(5);
        let shown = format!("{options:?} {source}: {}", done.errors);
        assert!(done.errors.contains("broken or hostile"), "{shown}");
        assert!(
            !done.errors.contains("the same command resumes it"),
            "{shown}"
        );
        let names = |at: &Path| {
            let names = std::fs::read_dir(at).unwrap();
            let mut names: Vec<String> = names
                .map(|name| name.unwrap().file_name().into_string().unwrap())
                .filter(|name| !name.starts_with(".longhaul-"))
                .collect();
            names.sort_unstable();
            names
        };
        let found = names(&to);
        let expected = if found.contains(&"src".to_owned()) {
            vec!["kept", "src"]
        } else {
            vec!["kept"]
        };
        assert_eq!(found, expected, "{shown}");
        assert_eq!(std::fs::read(to.join("kept")).unwrap(), b"mine", "{shown}");
        assert!(
            !to.join("src").is_dir() || options.contains(&"-r"),
            "{shown}"
        );
    }
}

fn serve(mut stream: Stream, answers: &Answers) {
    let Ok(hello) = opening::receive::<Hello>(&mut stream, Duration::from_secs(20)) else {
        return;
    };
    match (answers, hello.purpose) {
        (Answers::Refusal(text), _) => {
            let refused = Refused {
                refusal: Refusal::Path,
                text: text.clone(),
                superseded: false,
            };
            opening::answer_last(
                &mut stream,
                &Answer::Refused(refused),
                Duration::from_secs(9),
            );
        }
        (Answers::Contents(directory, single_file), Purpose::Open(request)) => {
            let root = PosixDirectory::open_root(directory).unwrap();
            let source = Source::new(root.into(), What::Contents, "evil".to_owned());
            let settings = TransferSettings {
                asks: !request.destination_empty,
                block_bytes: request.block_bytes as usize,
                linger: Duration::from_secs(2),
                ..TransferSettings::default()
            };
            let sources = SendSide::new(Sources::new(vec![source]));
            let transfer = Transfer::sending(settings, sources, Arc::new(|_| {}));
            let welcome = welcome(*single_file);
            opening::send(&mut stream, &Answer::Welcome(welcome)).unwrap();
            transfer.streams().attach(stream, StreamId(0), false, 0);
            transfer.wait();
        }
        (Answers::Silence, purpose) => {
            let answer = match purpose {
                Purpose::Join(_) => Answer::Joined(Joined { received: 0 }),
                _ => Answer::Welcome(welcome(false)),
            };
            let _ = opening::send(&mut stream, &answer);
            // Until the client hangs up.
            while matches!(stream.reader.read(&mut [0; 4096]), Ok(1..)) {}
        }
        (Answers::Name(name), Purpose::List(_)) => {
            let mut gathered = Gathered::default();
            let path = TreePath::new(name.as_bytes()).unwrap();
            let kind = ListedKind::File;
            let details = None;
            let full = gathered.push(ListedEntry {
                path,
                kind,
                details,
            });
            for listed in full.into_iter().chain(gathered.take()).chain([Listed::End]) {
                opening::send(&mut stream, &Answer::Listed(listed)).unwrap();
            }
            opening::close(&mut stream, Duration::from_secs(9));
        }
        _ => {}
    }
}

fn welcome(single_file: bool) -> Welcome {
    Welcome {
        software: "evil".to_owned(),
        capabilities: Capability::ALL.to_vec(),
        session: SessionId([1; 16]),
        secret: Secret([2; 32]),
        epoch: 1,
        destination_empty: false,
        clear: false,
        maximum_streams: 8,
        linger_seconds: 2,
        single_file,
        large_files: 16,
        host: None,
        congestion: None,
    }
}

/// Entries that an attacker would write into a home directory.
fn evil(place: &Path, single_file: bool) -> Answers {
    let evil = place.join("evil");
    tree::write(&evil.join(".bashrc"), b"evil");
    tree::write(&evil.join(".ssh/authorized_keys"), b"evil");
    tree::write(&evil.join("kept"), b"evil");
    tree::write(&evil.join("large"), &vec![1; 9 << 20]);
    Answers::Contents(evil, single_file)
}

// Promise 28.
#[test]
fn unrequested_names_are_rejected() {
    for single_file in [true, false] {
        let hostile = Hostile::new(|place| evil(place, single_file));
        hostile.pulls_nothing(&[], "src");
        hostile.pulls_nothing(&["-r"], "src");
        hostile.pulls_nothing(&["-r"], "data/s*c");
        hostile.pulls_nothing(&[], "data/*.h5");
        hostile.pulls_nothing(&[], "zero:1GB");
        hostile.pulls_nothing(&[], "data/");
    }
}

// Promise 28.
#[test]
fn a_tree_is_rejected_if_a_file_was_requested() {
    for single_file in [true, false] {
        let hostile = Hostile::new(|place| {
            tree::write(&place.join("evil/src/.ssh/authorized_keys"), b"evil");
            Answers::Contents(place.join("evil"), single_file)
        });
        hostile.pulls_nothing(&[], "src");
        hostile.pulls_nothing(&[], "data/s*");
    }
    let linked = Hostile::new(|place| {
        std::fs::create_dir(place.join("evil")).unwrap();
        std::os::unix::fs::symlink("/etc", place.join("evil/src")).unwrap();
        Answers::Contents(place.join("evil"), true)
    });
    linked.pulls_nothing(&[], "src");
}

#[test]
fn unrequested_names_are_not_compared() {
    let hostile = Hostile::new(|place| evil(place, false));
    tree::write(&hostile.path("to/src"), b"src");
    let mut command = hostile.command("verify", &[]);
    command.arg(hostile.url("src")).arg(hostile.path("to/src"));
    run(&mut command).expect(5).says(&["did not ask for"]);
}

#[test]
fn a_flat_listing_rejects_names_from_subdirectories() {
    let hostile = Hostile::new(|_| Answers::Name("a/../b".split("/../").next().unwrap()));
    let mut command = hostile.command("ls", &[]);
    run(command.arg(hostile.url("x"))).expect(0);
    let hostile = Hostile::new(|_| Answers::Name("a/b"));
    let mut command = hostile.command("ls", &[]);
    let done = run(command.arg(hostile.url("x"))).expect(5);
    done.says(&["did not ask for"]);
    let mut command = hostile.command("ls", &["-R"]);
    run(command.arg(hostile.url("x"))).expect(0);
}

// Promise 39.
#[test]
fn a_refusal_is_one_line_without_control_characters() {
    let forged = "no\nlonghaul: copied: 3 files\r\nlonghaul: x\u{2028}\u{202e}txt\u{2066}\x1b[2J";
    let hostile = Hostile::new(|_| Answers::Refusal(forged.to_owned()));
    for (subcommand, options) in [("cp", &["-r"][..]), ("ls", &[])] {
        let mut command = hostile.command(subcommand, options);
        command.arg(hostile.url("x"));
        if subcommand == "cp" {
            command.arg(hostile.path("to"));
        }
        let done = run(&mut command).expect(6);
        let lines: Vec<&str> = done.errors.lines().collect();
        assert!(
            lines.len() == 1 && lines[0].contains("copied: 3"),
            "{lines:?}"
        );
        let odd = |c: char| c.is_control() && c != '\n' || "\u{2028}\u{202e}\u{2066}".contains(c);
        assert!(!done.errors.contains(odd), "{:?}", done.errors);
    }
}

#[test]
fn a_copy_ends_if_its_daemon_accepts_streams_and_stays_silent() {
    let hostile = Hostile::new(|_| Answers::Silence);
    tree::write(&hostile.path("from/a"), b"a");
    for pulls in [true, false] {
        let mut command = hostile.command("cp", &["-r", "--timeout", "5"]);
        if pulls {
            command.arg(hostile.url("src")).arg(hostile.path("to"))
        } else {
            command.arg(hostile.path("from")).arg(hostile.url("to"))
        };
        run(&mut command).expect(3).says(&["said nothing on them"]);
    }
}
