//! Archives over HTTP: usual servers, and servers that break the protocol.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use longhaul_stores::Error;
use longhaul_stores::archive::Archive;
use longhaul_stores::client::Options;
use longhaul_stores::store::{Found, Listed, Object, Store, Version};
use longhaul_stores::url::Url;

use crate::http_server::{Received, Reply, Server, chunked, content, file};

const TAG: (&str, &str) = ("etag", "\"one\"");
const MODIFIED: (&str, &str) = ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT");

fn archive(server: &Server) -> Archive {
    let options = Options {
        silence: Duration::from_secs(60),
        pause: Duration::from_millis(1),
        proxies: false,
        ..Options::default()
    };
    Archive::new(Url::parse(&server.url("/")).unwrap(), options).unwrap()
}

fn object(archive: &Archive, path: &str) -> Object {
    match archive.find(path.as_bytes()).unwrap() {
        Some(Found::Object(object)) => object,
        other => panic!("{other:?}"),
    }
}

fn fetch(archive: &Archive, object: &Object, start: u64, end: u64) -> Result<Vec<u8>, Error> {
    let mut data = Vec::new();
    archive.fetch(b"/f", object, start..end, &mut |piece| {
        data.extend_from_slice(piece);
        Ok(())
    })?;
    Ok(data)
}

/// Asks a server with one handler for an object, and then for its bytes 100 to 200.
fn fetch_from(
    handler: impl Fn(&Received) -> Reply + Send + Sync + 'static,
) -> Result<Vec<u8>, Error> {
    let server = Server::start(handler);
    let archive = archive(&server);
    let object = match archive.find(b"/f")? {
        Some(Found::Object(object)) => object,
        other => panic!("{other:?}"),
    };
    fetch(&archive, &object, 100, 200)
}

#[test]
fn parts_of_an_object_are_fetched_over_open_connections() {
    let data = content(10_000, 1);
    let served = data.clone();
    let server = Server::start(move |request| file(request, &served, &[TAG, MODIFIED]));
    let archive = archive(&server);
    let object = object(&archive, "/f");
    assert_eq!(object.size, Some(10_000));
    assert_eq!(object.version, Some(Version::Tag("\"one\"".to_owned())));
    assert_eq!(object.modified.unwrap().seconds, 784_111_777);
    for (start, end) in [(0, 1), (9_999, 10_000), (5, 9_000), (0, 10_000)] {
        let part = fetch(&archive, &object, start, end).unwrap();
        assert!(part == data[start as usize..end as usize]);
    }
    let requests = server.requests();
    let conditions = requests
        .iter()
        .filter_map(|request| request.headers.get("if-range"));
    assert_eq!(conditions.count(), 4);
    let encodings = |request: &Received| request.headers["accept-encoding"] == "identity";
    assert!(requests.iter().all(encodings));
}

#[test]
fn a_weak_tag_is_no_version() {
    let server = Server::start(|request| file(request, b"x", &[("etag", "W/\"one\""), MODIFIED]));
    let version = object(&archive(&server), "/f").version;
    assert_eq!(version, Some(Version::Modified(MODIFIED.1.to_owned())));
    let server = Server::start(|request| file(request, b"x", &[("etag", "W/\"one\"")]));
    assert_eq!(object(&archive(&server), "/f").version, None);
}

#[test]
fn temporary_errors_and_lost_connections_are_repeated_from_the_last_byte() {
    let data = content(300, 2);
    let (served, count) = (data.clone(), AtomicUsize::new(0));
    let found = fetch_from(move |request| {
        let number = count.fetch_add(1, Ordering::Relaxed);
        let reply = file(request, &served, &[TAG]);
        match number % 3 {
            0 if request.method == "GET" => Reply::status(503).with("retry-after", "0"),
            1 if reply.body.len() > 10 => {
                let length = reply.body.len();
                let body = reply.body[..10].to_vec();
                let reply = reply.with("content-length", length).body(body);
                Reply {
                    closes: true,
                    ..reply
                }
            }
            _ => reply,
        }
    });
    assert!(found.unwrap() == data[100..200]);
}

#[test]
fn lasting_errors_end_after_a_bounded_number_of_attempts() {
    let server = Server::start(|_| Reply::status(503));
    let error = archive(&server).find(b"/f").unwrap_err();
    assert!(
        matches!(error, Error::Refused { status: 503, .. }),
        "{error}"
    );
    assert_eq!(server.requests().len(), 6);
    let server = Server::start(|_| Reply::status(401));
    let error = archive(&server).find(b"/f").unwrap_err();
    assert!(error.is_denied(), "{error}");
    let server = Server::start(|_| Reply::status(404));
    assert_eq!(archive(&server).find(b"/f").unwrap(), None);
}

#[test]
fn another_version_is_never_mixed_in() {
    let reply = |number: usize, request: &Received| {
        let tag = if number == 0 { "\"one\"" } else { "\"two\"" };
        file(request, &content(300, 2), &[("etag", tag)])
    };
    let honest = AtomicUsize::new(0);
    let found = fetch_from(move |request| reply(honest.fetch_add(1, Ordering::Relaxed), request));
    assert!(matches!(found, Err(Error::Changed)), "{found:?}");
    // This server ignores the condition.
    let careless = AtomicUsize::new(0);
    let found = fetch_from(move |request| {
        let mut request = request.clone();
        request.headers.remove("if-range");
        reply(careless.fetch_add(1, Ordering::Relaxed), &request)
    });
    assert!(matches!(found, Err(Error::Changed)), "{found:?}");
    // This server tells no version, but another size.
    let silent = AtomicUsize::new(0);
    let found = fetch_from(move |request| {
        let size = 300 + silent.fetch_add(1, Ordering::Relaxed);
        file(request, &content(size, 2), &[])
    });
    assert!(matches!(found, Err(Error::Changed)), "{found:?}");
}

#[test]
fn wrong_parts_are_refused() {
    type Change = fn(Reply) -> Reply;
    let replies: [(&str, Change); 5] = [
        ("another part", |reply| Reply {
            headers: vec![("content-range".to_owned(), "bytes 101-200/300".to_owned())],
            ..reply
        }),
        ("no range", |reply| Reply {
            headers: Vec::new(),
            ..reply
        }),
        ("another size", |reply| Reply {
            headers: vec![("content-range".to_owned(), "bytes 100-199/301".to_owned())],
            ..reply
        }),
        ("too much", |mut reply| {
            reply.body.push(0);
            reply
        }),
        ("compressed", |reply| reply.with("content-encoding", "gzip")),
    ];
    for (name, change) in replies {
        let found = fetch_from(move |request| {
            let reply = file(request, &content(300, 2), &[TAG]);
            if request.method == "GET" {
                change(reply)
            } else {
                reply
            }
        });
        assert!(found.is_err(), "{name}");
    }
}

#[test]
fn servers_without_parts_send_one_stream() {
    let data = content(300, 2);
    let served = data.clone();
    let server = Server::start(move |_| Reply::status(200).body(served.clone()));
    let archive = archive(&server);
    let object = object(&archive, "/f");
    let error = fetch(&archive, &object, 100, 200).unwrap_err();
    assert!(matches!(error, Error::NoRanges), "{error}");
    let mut whole = Vec::new();
    let count = archive.fetch_whole(b"/f", &object, &mut |piece| {
        whole.extend_from_slice(piece);
        Ok(())
    });
    assert_eq!(count.unwrap(), 300);
    assert!(whole == data);
}

#[test]
fn an_unknown_size_is_found_by_reading() {
    let server = Server::start(|_| chunked(&content(30_000, 2)));
    let archive = archive(&server);
    let object = object(&archive, "/f");
    assert_eq!(object.size, None);
    let count = archive.fetch_whole(b"/f", &object, &mut |_| Ok(()));
    assert_eq!(count.unwrap(), 30_000);
}

#[test]
fn servers_without_head_send_one_byte() {
    for data in [content(300, 2), Vec::new()] {
        let served = data.clone();
        let server = Server::start(move |request| match &request.method[..] {
            "GET" => file(request, &served, &[TAG]),
            _ => Reply::status(405),
        });
        let size = object(&archive(&server), "/f").size;
        assert_eq!(size, Some(data.len() as u64));
    }
}

#[test]
fn redirects_are_bounded_and_never_lose_encryption() {
    let server = Server::start(|request| match &request.path[..] {
        "/f" => Reply::status(302).with("location", "/g"),
        "/g" => file(request, b"data", &[TAG]),
        "/directory" => Reply::status(301).with("location", "/directory/"),
        "/loop" => Reply::status(302).with("location", "/loop"),
        "/file" => Reply::status(302).with("location", "file:///etc/passwd"),
        "/none" => Reply::status(302),
        _ => Reply::status(200),
    });
    let archive = archive(&server);
    let found = object(&archive, "/f");
    assert_eq!(fetch(&archive, &found, 0, 4).unwrap(), b"data");
    // The data were requested from the second URL at once.
    assert_eq!(server.requests().last().unwrap().path, "/g");
    assert_eq!(server.requests().len(), 3);
    assert_eq!(archive.find(b"/directory").unwrap(), Some(Found::Directory));
    for path in ["/loop", "/file", "/none"] {
        let error = archive.find(path.as_bytes()).unwrap_err();
        assert!(matches!(error, Error::Redirect(_)), "{path}: {error}");
    }
}

#[test]
fn pages_list_directories() {
    let server = Server::start(|request| match &request.path[..] {
        "/d/" => Reply::status(200)
            .with("content-type", "text/html; charset=utf-8")
            .body("<a href=\"../\">up</a><a href=\"a\">a</a><a href=\"s/\">s</a>"),
        "/text/" => Reply::status(200)
            .with("content-type", "text/plain")
            .body("a"),
        _ => Reply::status(404),
    });
    let archive = archive(&server);
    let mut listed = Vec::new();
    let mut list = |path: &[u8]| {
        archive.list(path, &mut |entry| {
            listed.push(entry);
            Ok(())
        })
    };
    list(b"/d").unwrap();
    assert!(list(b"/text").is_err() && list(b"/absent").is_err());
    let expected = [
        Listed::Object(b"a".to_vec()),
        Listed::Directory(b"s".to_vec()),
    ];
    assert_eq!(listed, expected);
}

#[test]
fn endless_replies_are_bounded() {
    let server = Server::start(|_| Reply::status(200).with("x", "y".repeat(100_000)));
    assert!(archive(&server).find(b"/f").is_err());
}
