//! Servers that behave badly, as scripts: each expects commands and sends replies.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use longhaul_gridftp::Error;
use longhaul_gridftp::location::Location;
use longhaul_gridftp::protocol::block::{END_OF_DATA, END_OF_FILE, Header};
use longhaul_gridftp::protocol::command::MAXIMUM_COMMAND_BYTES;
use longhaul_gridftp::retrieve::Fetch;
use longhaul_gridftp::session::{Listed, Options, Session, TlsUse};

use super::servers::Memory;

/// Control connection of a scripted server.
struct Script {
    reader: BufReader<TcpStream>,
}

impl Script {
    fn say(&mut self, text: &str) {
        // The client may have given up.
        let _ = self.reader.get_mut().write_all(text.as_bytes());
    }

    /// Receives a command. Empty if the client closed the connection.
    fn hear(&mut self) -> String {
        let mut line = String::new();
        let _ = self.reader.read_line(&mut line);
        line.trim_end().to_owned()
    }

    /// Receives a command that begins with a word, and returns its argument.
    fn expect(&mut self, verb: &str) -> String {
        let line = self.hear();
        let argument = line.strip_prefix(verb);
        let argument = argument.unwrap_or_else(|| panic!("{line} instead of {verb}"));
        argument.trim_start().to_owned()
    }

    /// Plays the login of a server with these abilities.
    fn log_in(&mut self, features: &str) {
        self.say("220 ready\r\n");
        let features = format!("211-Features\r\n{features}211 End\r\n");
        self.expect("FEAT");
        self.say(&features);
        self.expect("USER anonymous");
        self.say("230 ok\r\n");
        self.expect("FEAT");
        self.expect("TYPE I");
        self.say(&features);
        self.say("200 ok\r\n");
    }

    /// Connects to the address that the client names with `PORT`.
    fn connect(&mut self) -> TcpStream {
        let argument = self.expect("PORT");
        self.say("200 ok\r\n");
        let numbers: Vec<u16> = argument.split(',').map(|n| n.parse().unwrap()).collect();
        TcpStream::connect(("127.0.0.1", numbers[4] << 8 | numbers[5])).unwrap()
    }

    /// Plays the start of extended block mode.
    fn extended(&mut self) -> TcpStream {
        self.expect("MODE E");
        self.say("200 ok\r\n");
        self.expect("OPTS RETR Parallelism");
        self.say("200 ok\r\n");
        self.connect()
    }
}

fn play(script: impl FnOnce(&mut Script) + Send + 'static) -> (Location, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let reader = BufReader::new(stream);
        script(&mut Script { reader });
    });
    let url = format!("ftp://127.0.0.1:{port}/");
    (Location::parse(url.as_bytes()).unwrap(), server)
}

fn frame(flags: u8, offset: u64, data: &[u8]) -> Vec<u8> {
    let length = data.len() as u64;
    let header = Header {
        flags,
        length,
        offset,
    };
    [&header.bytes()[..], data].concat()
}

/// Fetches files of these sizes from a script. Returns their data and results, the last of
/// which may be the error that ended the session.
fn fetch(location: &Location, sizes: &[u64]) -> Vec<(Vec<u8>, Result<(), Error>)> {
    let files: Vec<(&[u8], u64)> = sizes.iter().map(|size| (&b"f"[..], *size)).collect();
    fetch_paths(location, &files)
}

/// Fetches files of these paths and sizes, as [`fetch`].
fn fetch_paths(location: &Location, paths: &[(&[u8], u64)]) -> Vec<(Vec<u8>, Result<(), Error>)> {
    let mut session = Session::open(location, Options::default()).unwrap();
    let sinks: Vec<Memory> = paths.iter().map(|_| Memory::default()).collect();
    let files: Vec<Fetch<'_>> = paths
        .iter()
        .zip(&sinks)
        .map(|((path, size), sink)| Fetch {
            path,
            size: *size,
            present: Default::default(),
            sink,
        })
        .collect();
    let mut results = Vec::new();
    let ended = session.retrieve(&files, &mut |_, result| results.push(result));
    if let Err(error) = ended {
        results.push(Err(error));
    }
    let results = results.into_iter();
    sinks.iter().map(Memory::bytes).zip(results).collect()
}

#[test]
fn data_that_arrive_before_a_rejection_belong_to_the_next_file() {
    let (location, server) = play(|script| {
        script.log_in(" PARALLEL\r\n");
        let mut data = script.extended();
        script.expect("RETR f");
        script.expect("RETR f");
        // The data of the second file overtake the reply to the first command.
        data.write_all(&frame(0, 0, b"second")).unwrap();
        data.write_all(&frame(END_OF_DATA | END_OF_FILE, 1, b""))
            .unwrap();
        script.say("550 no such file\r\n125 data\r\n226 done\r\n");
        script.hear();
    });
    let results = fetch(&location, &[6, 6]);
    assert!(matches!(
        results[0].1,
        Err(Error::Refused { code: 550, .. })
    ));
    assert_eq!(results[0].0, b"");
    assert!(results[1].1.is_ok());
    assert_eq!(results[1].0, b"second");
    server.join().unwrap();
}

#[test]
fn a_success_without_all_bytes_is_an_error() {
    for complete in [true, false] {
        let (location, server) = play(move |script| {
            script.log_in(" PARALLEL\r\n");
            let mut data = script.extended();
            script.expect("RETR f");
            script.say("150 data\r\n");
            data.write_all(&frame(0, 0, b"abc")).unwrap();
            data.write_all(&frame(0, 4, b"ef")).unwrap();
            if complete {
                data.write_all(&frame(END_OF_DATA | END_OF_FILE, 1, b""))
                    .unwrap();
            }
            drop(data);
            script.say("226 done\r\n");
            script.hear();
        });
        let results = fetch(&location, &[6]);
        let error = results[0].1.as_ref().unwrap_err();
        assert!(
            matches!(
                error,
                Error::Incomplete {
                    transferred: 5,
                    size: 6
                }
            ),
            "{error:?}"
        );
        server.join().unwrap();
    }
}

#[test]
fn data_beyond_the_file_and_broken_frames_end_the_session() {
    for bytes in [
        frame(0, 4, b"abc"),
        frame(32, 0, b"abc"),
        frame(END_OF_FILE, 1 << 50, b""),
        frame(0, 0, b"abc")[..19].to_vec(),
    ] {
        let (location, server) = play(move |script| {
            script.log_in(" PARALLEL\r\n");
            let mut data = script.extended();
            script.expect("RETR f");
            script.say("150 data\r\n");
            data.write_all(&bytes).unwrap();
            drop(data);
            script.hear();
        });
        let results = fetch(&location, &[6]);
        assert!(results[0].1.as_ref().is_err_and(Error::ends_session));
        server.join().unwrap();
    }
}

#[test]
fn a_flood_of_replies_is_bounded() {
    let (location, server) = play(|script| {
        script.log_in(" PARALLEL\r\n");
        let _data = script.extended();
        script.expect("RETR f");
        script.say("150 data\r\n226 done\r\n");
        let replies = "226 done\r\n".repeat(10_000);
        for _ in 0..1000 {
            script.say(&replies);
        }
    });
    let results = fetch(&location, &[6]);
    assert!(matches!(results[0].1, Err(Error::Reply(_))), "{results:?}");
    server.join().unwrap();
}

#[test]
fn a_silent_server_is_an_error() {
    let (location, server) = play(|script| {
        script.hear();
    });
    let options = Options {
        silence: Duration::from_millis(20),
        ..Options::default()
    };
    let error = Session::open(&location, options).unwrap_err();
    assert!(matches!(error, Error::Silent { .. }), "{error:?}");
    server.join().unwrap();
}

#[test]
fn the_address_of_a_passive_reply_is_ignored() {
    let (location, server) = play(|script| {
        script.log_in(" MLST type*;\r\n");
        let data = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = data.local_addr().unwrap().port();
        script.expect("EPSV");
        script.say("500 unknown\r\n");
        script.expect("PASV");
        let (high, low) = (port >> 8, port & 255);
        script.say(&format!("227 (192,0,2,1,{high},{low})\r\n"));
        script.expect("MLSD /");
        let (mut stream, _) = data.accept().unwrap();
        script.say("150 data\r\n");
        let lines = "type=dir; ../up\r\ntype=file;size=1; a\r\ntype=file;size=2; b";
        stream.write_all(lines.as_bytes()).unwrap();
        drop(stream);
        script.say("226 done\r\n");
        script.hear();
    });
    let mut session = Session::open(&location, Options::default()).unwrap();
    let mut names = Vec::new();
    let mut unreadable = 0;
    let mut found = |listed| {
        match listed {
            Listed::Entry(entry) => names.push(entry.name),
            Listed::Unreadable(_) => unreadable += 1,
        }
        Ok(())
    };
    session.list(b"/", &mut found).unwrap();
    assert_eq!((names, unreadable), (vec![b"a".to_vec(), b"b".to_vec()], 1));
    drop(session);
    server.join().unwrap();
}

#[test]
fn replies_before_tls_are_refused() {
    let (location, server) = play(|script| {
        script.say("220 ready\r\n");
        script.expect("FEAT");
        script.say("211-F\r\n AUTH TLS\r\n211 End\r\n");
        script.expect("AUTH TLS");
        script.say("234 go\r\n230 logged in\r\n");
        script.hear();
    });
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let trusted = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&trusted, made.cert.pem()).unwrap();
    let options = Options {
        trusted: Some(trusted.path().to_owned()),
        ..Options::default()
    };
    let error = Session::open(&location, options).unwrap_err();
    assert!(error.to_string().contains("before TLS"), "{error}");
    server.join().unwrap();
}

#[test]
fn no_password_is_sent_if_a_server_hides_the_tls_that_is_required() {
    let (mut location, server) = play(|script| {
        script.say("220 ready\r\n");
        script.expect("FEAT");
        script.say("211-F\r\n UTF8\r\n211 End\r\n");
        assert_eq!(script.hear(), "");
    });
    location.user = Some("u".to_owned());
    location.password = Some("secret".to_owned());
    let options = Options {
        tls: TlsUse::Required,
        ..Options::default()
    };
    let error = Session::open(&location, options).unwrap_err();
    assert!(matches!(error, Error::ClearText), "{error:?}");
    server.join().unwrap();
}

#[test]
fn schemes_without_tls_are_refused_before_the_connection_if_tls_is_required() {
    for url in ["gsiftp://127.0.0.1:1/", "sshftp://127.0.0.1:1/"] {
        let location = Location::parse(url.as_bytes()).unwrap();
        let options = Options {
            tls: TlsUse::Required,
            ssh: vec!["/nonexistent/ssh".into()],
            ..Options::default()
        };
        let error = Session::open(&location, options).unwrap_err();
        assert!(matches!(error, Error::ClearText), "{error:?}");
    }
}

#[test]
fn a_server_that_ends_an_idle_session_does_not_deny_a_file() {
    for features in ["", " MLST type*;\r\n"] {
        let (location, server) = play(move |script| {
            script.log_in(features);
            script.say("421 Idle Timeout\r\n");
            script.hear();
        });
        let mut session = Session::open(&location, Options::default()).unwrap();
        let error = session.status(b"/f").unwrap_err();
        assert!(matches!(error, Error::Refused { code: 421, .. }), "{error}");
        assert!(error.ends_session() && error.is_lost_connection());
        drop(session);
        server.join().unwrap();
    }
}

#[test]
fn a_path_that_ftp_cannot_express_fails_in_its_turn() {
    let long = vec![b'x'; MAXIMUM_COMMAND_BYTES + 1];
    let paths: [&[u8]; 6] = [&long, b"f", &long, b"a\nb", b"f", &long];
    let (location, server) = play(|script| {
        script.log_in(" PARALLEL\r\n");
        let mut data = script.extended();
        for content in [b"first", b"other"] {
            script.expect("RETR f");
            script.say("150 data\r\n");
            let end = frame(END_OF_DATA | END_OF_FILE, 1, b"");
            let _ = data.write_all(&[frame(0, 0, content), end].concat());
            script.say("226 done\r\n");
        }
        script.hear();
    });
    let results = fetch_paths(&location, &paths.map(|path| (path, 5)));
    assert_eq!(results.len(), paths.len(), "{results:?}");
    for (index, (data, result)) in results.iter().enumerate() {
        match index {
            1 | 4 => assert!(result.is_ok(), "{index}: {result:?}"),
            _ => assert!(
                matches!(result, Err(Error::Command(_))),
                "{index}: {result:?}"
            ),
        }
        let wanted: &[u8] = match index {
            1 => b"first",
            4 => b"other",
            _ => b"",
        };
        assert_eq!(data, wanted, "{index}");
    }
    server.join().unwrap();
}
