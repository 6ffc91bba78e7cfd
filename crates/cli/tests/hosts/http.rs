//! Copies from archives over HTTP.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tempfile::TempDir;

use crate::http_server::{Received, Reply, Server, chunked, content, file};
use crate::support::process::{Finished, Running, longhaul, run};

/// Time of all files.
const MODIFIED: (&str, &str) = ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT");
const SECONDS: i64 = 784_111_777;

type Files = BTreeMap<String, Vec<u8>>;

/// Files of the tree, by their encoded paths.
fn files() -> Files {
    let mut files = Files::new();
    for (seed, (name, size)) in [
        ("/t/a", 0),
        ("/t/b%20b%3Bc", 1),
        ("/t/sub/deep/large", 21_000_001),
        ("/t/sub/medium", 4_194_305),
        ("/t/z", 123),
    ]
    .into_iter()
    .enumerate()
    {
        files.insert(name.to_owned(), content(size, seed as u64));
    }
    for number in 0..100 {
        files.insert(format!("/t/many/{number:03}"), content(number * 500, 7));
    }
    files
}

/// Answers like an ordinary server with a page for each directory.
fn answer(files: &Files, request: &Received) -> Reply {
    if let Some(data) = files.get(&request.path) {
        let tag = format!("\"{}-{}\"", request.path, data.len());
        return file(request, data, &[("etag", &tag), MODIFIED]);
    }
    let directory = format!("{}/", request.path.trim_end_matches('/'));
    let mut names: Vec<String> = Vec::new();
    for path in files.keys() {
        let Some(rest) = path.strip_prefix(&directory) else {
            continue;
        };
        let name = match rest.split_once('/') {
            Some((name, _)) => format!("{name}/"),
            None => rest.to_owned(),
        };
        if names.last() != Some(&name) {
            names.push(name);
        }
    }
    if names.is_empty() {
        return Reply::status(404);
    }
    if !request.path.ends_with('/') {
        return Reply::status(301).with("location", directory);
    }
    let links = names
        .iter()
        .map(|name| format!("<a href=\"{name}\">{name}</a>\n"));
    let page = format!(
        "<a href=\"?C=M;O=A\">x</a><a href=\"../\">up</a>{}",
        links.collect::<String>()
    );
    Reply::status(200)
        .with("content-type", "text/html")
        .body(page)
}

fn command(subcommand: &str, arguments: &[&str]) -> std::process::Command {
    let mut command = longhaul();
    command
        .args([subcommand, "--data-security", "clear"])
        .args(arguments);
    for name in ["ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY"] {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    command
}

fn copy(arguments: &[&str], source: &str, destination: &Path) -> Finished {
    run(command("cp", arguments).arg(source).arg(destination))
}

fn check(files: &Files, destination: &Path) {
    for (path, data) in files {
        let path = path.replace("%20", " ").replace("%3B", ";");
        let copied = destination.join(&path[1..]);
        assert!(fs::read(&copied).unwrap() == *data, "{path}");
        assert_eq!(fs::metadata(&copied).unwrap().mtime(), SECONDS, "{path}");
    }
}

#[test]
fn a_tree_is_copied_and_then_unchanged() {
    let files = Arc::new(files());
    let served = Arc::clone(&files);
    let server = Server::start(move |request| answer(&served, request));
    let place = TempDir::new().unwrap();
    let copied = copy(&["-r"], &server.url("/t"), place.path());
    assert_eq!(copied.code, Some(0), "{copied:?}");
    check(&files, place.path());
    let before = server.requests().len();
    let again = copy(&["-r"], &server.url("/t"), place.path());
    assert_eq!(again.code, Some(0), "{again:?}");
    let fetched = |request: &Received| request.headers.contains_key("range");
    assert!(!server.requests()[before..].iter().any(fetched));
    let verify = |expected| {
        let place = place.path().join("t");
        let verified = run(command("verify", &[&server.url("/t")]).arg(place));
        assert_eq!(verified.code, Some(expected), "{verified:?}");
    };
    verify(0);
    fs::write(place.path().join("t/z"), content(123, 99)).unwrap();
    verify(5);
    let listed = run(command("ls", &["-R"]).arg(server.url("/t")));
    assert_eq!(listed.code, Some(0), "{listed:?}");
    let text = String::from_utf8(listed.output).unwrap();
    assert!(
        text.contains("sub/deep/large") && text.contains("b b;c"),
        "{text}"
    );
    let inner = place.path().join("inner");
    let copied = copy(&["-r", "--exclude", "many"], &server.url("/t/"), &inner);
    assert_eq!(copied.code, Some(0), "{copied:?}");
    assert!(inner.join("sub/medium").exists() && !inner.join("many").exists());
}

#[test]
fn one_file_is_copied_and_directories_need_r() {
    let files = Arc::new(files());
    let served = Arc::clone(&files);
    let server = Server::start(move |request| answer(&served, request));
    let place = TempDir::new().unwrap();
    let renamed = place.path().join("renamed");
    let copied = copy(&[], &server.url("/t/b%20b%3Bc"), &renamed);
    assert_eq!(copied.code, Some(0), "{copied:?}");
    assert!(fs::read(&renamed).unwrap() == files["/t/b%20b%3Bc"]);
    let refused = copy(&[], &server.url("/t"), place.path());
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let absent = copy(&[], &server.url("/absent"), place.path());
    assert_eq!(absent.code, Some(6), "{absent:?}");
}

#[test]
fn files_without_parts_or_size_arrive_in_one_stream() {
    let data = Arc::new(content(90_000_000, 3));
    let served = Arc::clone(&data);
    let server = Server::start(move |request| match &request.path[..] {
        "/sized" => Reply::status(200).body(&served[..]),
        "/unsized" => chunked(&served),
        _ => Reply::status(404),
    });
    for name in ["sized", "unsized"] {
        let place = TempDir::new().unwrap();
        let copied = copy(&[], &server.url(&format!("/{name}")), place.path());
        assert_eq!(copied.code, Some(0), "{copied:?}");
        assert!(
            fs::read(place.path().join(name)).unwrap() == *data,
            "{name}"
        );
    }
}

#[test]
fn an_interrupted_file_is_resumed_only_if_its_version_is_the_same() {
    let data = Arc::new(content(1 << 20, 3).repeat(160));
    let middle = 120 << 20;
    for same in [true, false] {
        let served = Arc::clone(&data);
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let closed = Arc::clone(&gate);
        let server = Server::start(move |request| {
            let is_open = *closed.0.lock().unwrap();
            let tag = if !is_open || same {
                "\"one\""
            } else {
                "\"two\""
            };
            if !is_open && request.range().is_some_and(|(start, _)| start >= middle) {
                let opened = closed.0.lock().unwrap();
                drop(closed.1.wait_while(opened, |is_open| !*is_open).unwrap());
            }
            file(request, &served, &[("etag", tag), MODIFIED])
        });
        let place = TempDir::new().unwrap();
        let mut first = command("cp", &["--json", &server.url("/f")]);
        let running = Running::start(first.arg(place.path()));
        assert!(running.event(|event| event["event"] == "durable").is_some());
        running.kill();
        assert!(!place.path().join("f").exists());
        *gate.0.lock().unwrap() = true;
        gate.1.notify_all();
        let before = server.requests().len();
        let copied = copy(&[], &server.url("/f"), place.path());
        assert_eq!(copied.code, Some(0), "{copied:?}");
        assert!(fs::read(place.path().join("f")).unwrap() == *data);
        let requests = server.requests();
        let starts = requests[before..].iter().filter_map(Received::range);
        let first = starts.map(|(start, _)| start).min().unwrap();
        assert_eq!(first == 0, !same, "{first}");
    }
}

#[test]
fn a_file_that_changes_during_the_copy_arrives_in_its_new_version() {
    let old = content(30 << 20, 3);
    let new = content(31 << 20, 4);
    let expected = new.clone();
    let count = AtomicUsize::new(0);
    let server = Server::start(move |request| {
        let part = request.range().is_some();
        let is_new = count.fetch_add(usize::from(part), Ordering::Relaxed) >= 4;
        let (data, tag) = if is_new {
            (&new, "\"two\"")
        } else {
            (&old, "\"one\"")
        };
        file(request, data, &[("etag", tag), MODIFIED])
    });
    let place = TempDir::new().unwrap();
    let copied = copy(&[], &server.url("/f"), place.path());
    assert_eq!(copied.code, Some(0), "{copied:?}");
    assert!(fs::read(place.path().join("f")).unwrap() == expected);
}

#[test]
fn a_truncated_file_gets_no_name() {
    let server = Server::start(|request| {
        let reply = file(request, &content(9_000_000, 1), &[MODIFIED]);
        let (length, half) = (reply.body.len(), reply.body.len() / 2);
        let body = reply.body[..half].to_vec();
        let reply = reply.with("content-length", length).body(body);
        let reply = Reply {
            closes: true,
            ..reply
        };
        if request.range().is_some_and(|(start, _)| start > 0) {
            return Reply::status(403);
        }
        reply
    });
    let place = TempDir::new().unwrap();
    let failed = copy(&[], &server.url("/f"), place.path());
    assert_eq!(failed.code, Some(2), "{failed:?}");
    assert!(!place.path().join("f").exists());
}

#[test]
fn pages_cannot_lead_out_of_the_directory() {
    let server = Server::start(|request| match &request.path[..] {
        "/t" => Reply::status(301).with("location", "/t/"),
        "/t/" => Reply::status(200).with("content-type", "text/html").body(
            "<a href=\"..%2f..%2fevil\">x</a><a href=\"/evil\">x</a><a href=\"%2e%2e/evil\">x</a>\
             <a href=\"good\">x</a>",
        ),
        "/t/good" => file(request, b"data", &[MODIFIED]),
        _ => file(request, b"evil", &[MODIFIED]),
    });
    let place = TempDir::new().unwrap();
    let inner = place.path().join("inner");
    fs::create_dir(&inner).unwrap();
    let copied = copy(&["-r"], &server.url("/t"), &inner);
    assert_eq!(copied.code, Some(2), "{copied:?}");
    assert_eq!(fs::read(inner.join("t/good")).unwrap(), b"data");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    assert!(
        !server
            .requests()
            .iter()
            .any(|request| request.path.contains("evil"))
    );
}

#[test]
fn clear_text_and_uploads_are_refused() {
    let server = Server::start(|request| file(request, b"data", &[MODIFIED]));
    let place = TempDir::new().unwrap();
    let mut clear = longhaul();
    clear.arg("cp").arg(server.url("/f")).arg(place.path());
    let refused = run(&mut clear);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(
        refused.errors.contains("--data-security clear"),
        "{refused:?}"
    );
    let uploaded = run(command("cp", &["-r"])
        .arg(place.path())
        .arg(server.url("/g/")));
    assert_eq!(uploaded.code, Some(1), "{uploaded:?}");
    let secret = run(command("cp", &["https://h/f?token=secret"]).arg(place.path()));
    assert_eq!(secret.code, Some(1), "{secret:?}");
    assert!(!secret.errors.contains("token=secret"), "{secret:?}");
}

#[test]
fn certificates_are_checked() {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], PrivateKeyDer::Pkcs8(key))
        .unwrap();
    let methods: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&methods);
    let server = Server::start_with(Some(Arc::new(config)), move |request| {
        seen.lock().unwrap().push(request.method.clone());
        file(request, b"data", &[MODIFIED])
    });
    let place = TempDir::new().unwrap();
    let copied = |arguments: &[&str]| {
        let mut command = longhaul();
        command.arg("cp").args(arguments).arg(server.url("/f"));
        run(command.arg(place.path()))
    };
    let refused = copied(&[]);
    assert_ne!(refused.code, Some(0), "{refused:?}");
    assert!(methods.lock().unwrap().is_empty());
    let authority = place.path().join("authority");
    fs::write(&authority, made.cert.pem()).unwrap();
    let copied = copied(&["--authority", authority.to_str().unwrap()]);
    assert_eq!(copied.code, Some(0), "{copied:?}");
    assert_eq!(fs::read(place.path().join("f")).unwrap(), b"data");
}
