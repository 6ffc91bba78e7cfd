//! Copies from buckets of object stores.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::http_server::{Received, Reply, Server, content, file};
use crate::support::process::{Finished, longhaul, run};

type Objects = BTreeMap<String, Vec<u8>>;

/// Number of entries of a page of a listing.
const PAGE: usize = 7;

/// Answers like a store with one bucket.
fn answer(objects: &Objects, request: &Received) -> Reply {
    let path = request.path.replace("%20", " ");
    let Some(key) = path.strip_prefix("/bucket/") else {
        return Reply::status(404);
    };
    if key.is_empty() {
        return list(objects, &request.query);
    }
    let Some(data) = objects.get(key) else {
        let text = "<Error><Code>NoSuchKey</Code><Message>x</Message></Error>";
        return Reply::status(404).body(text);
    };
    let modified = ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT");
    let mtime = ("x-amz-meta-mtime", "1000000.5");
    file(request, data, &[("etag", "\"one\""), modified, mtime])
}

/// Returns a page of keys and prefixes. A token is the last entry of the page before.
fn list(objects: &Objects, query: &str) -> Reply {
    let query = query.replace("%2F", "/").replace("%20", " ");
    let parameter = |name: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value.to_owned())
    };
    let prefix = parameter("prefix").unwrap();
    let after = parameter("continuation-token").unwrap_or_default();
    let most = parameter("max-keys")
        .unwrap()
        .parse::<usize>()
        .unwrap()
        .min(PAGE);
    let beneath = objects.keys().filter_map(|key| key.strip_prefix(&prefix));
    let entries: BTreeSet<String> = beneath
        .map(|rest| match rest.split_once('/') {
            Some((name, _)) => format!("{prefix}{name}/"),
            None => format!("{prefix}{rest}"),
        })
        .filter(|entry| *entry > after)
        .collect();
    let mut xml =
        "<?xml version=\"1.0\"?><ListBucketResult><EncodingType>url</EncodingType>".to_owned();
    for entry in entries.iter().take(most) {
        let key = entry.replace(' ', "+");
        xml += &if entry.ends_with('/') && *entry != prefix {
            format!("<CommonPrefixes><Prefix>{key}</Prefix></CommonPrefixes>")
        } else {
            format!("<Contents><Key>{key}</Key><Size>1</Size></Contents>")
        };
    }
    if entries.len() > most {
        let token = entries.iter().nth(most - 1).unwrap();
        xml += "<IsTruncated>true</IsTruncated>";
        xml += &format!("<NextContinuationToken>{token}</NextContinuationToken>");
    }
    Reply::status(200).body(xml + "</ListBucketResult>")
}

fn start(objects: &Objects) -> Server {
    let objects = objects.clone();
    Server::start(move |request| answer(&objects, request))
}

fn command(server: &Server, subcommand: &str, arguments: &[&str]) -> Command {
    let mut command = longhaul();
    command.args([
        subcommand,
        "--data-security",
        "clear",
        "--s3-endpoint",
        &server.url(""),
    ]);
    command
        .env("AWS_ACCESS_KEY_ID", "someone")
        .env("AWS_SECRET_ACCESS_KEY", "hidden");
    for name in [
        "AWS_PROFILE",
        "AWS_SESSION_TOKEN",
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
        "HOME",
    ] {
        command.env_remove(name);
    }
    for name in ["ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY"] {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    command.args(arguments);
    command
}

fn copy(server: &Server, arguments: &[&str], source: &str, destination: &Path) -> Finished {
    run(command(server, "cp", arguments)
        .arg(source)
        .arg(destination))
}

fn objects() -> Objects {
    let mut objects = Objects::new();
    for number in 0..30 {
        objects.insert(format!("t/many/{number}"), content(number * 1000, 7));
    }
    for (seed, (key, size)) in [
        ("t/a b", 10),
        ("t/sub/large", 13_000_000),
        ("t/empty", 0),
        ("t-x", 1),
    ]
    .into_iter()
    .enumerate()
    {
        objects.insert(key.to_owned(), content(size, seed as u64));
    }
    // Markers of directories.
    objects.insert("t/".to_owned(), Vec::new());
    objects.insert("t/sub/".to_owned(), Vec::new());
    objects
}

#[test]
fn a_tree_is_copied_compared_and_listed() {
    let objects = objects();
    let server = start(&objects);
    let place = TempDir::new().unwrap();
    let copied = copy(&server, &["-r"], "s3://bucket/t", place.path());
    assert_eq!(copied.code, Some(0), "{copied:?}");
    let files = objects
        .iter()
        .filter(|(key, _)| key.starts_with("t/") && !key.ends_with('/'));
    for (key, data) in files {
        let copied = place.path().join(key);
        assert!(fs::read(&copied).unwrap() == *data, "{key}");
        let status = fs::metadata(&copied).unwrap();
        assert_eq!(
            (status.mtime(), status.mtime_nsec()),
            (1_000_000, 500_000_000),
            "{key}"
        );
    }
    assert!(!place.path().join("t-x").exists());
    let before = server.requests().len();
    let again = copy(&server, &["-r"], "s3://bucket/t", place.path());
    assert_eq!(again.code, Some(0), "{again:?}");
    let fetched = |request: &Received| request.headers.contains_key("range");
    assert!(!server.requests()[before..].iter().any(fetched));
    let verify = |expected| {
        let mut verify = command(&server, "verify", &["s3://bucket/t"]);
        let verified = run(verify.arg(place.path().join("t")));
        assert_eq!(verified.code, Some(expected), "{verified:?}");
    };
    verify(0);
    fs::write(place.path().join("t/a b"), content(10, 99)).unwrap();
    verify(5);
    let listed = run(&mut command(&server, "ls", &["-R", "s3://bucket"]));
    assert_eq!(listed.code, Some(0), "{listed:?}");
    let text = String::from_utf8(listed.output).unwrap();
    assert!(
        text.contains("t/sub/large") && text.contains("t-x"),
        "{text}"
    );
    let signed = |request: &Received| {
        let authorization = &request.headers["authorization"];
        authorization.starts_with("AWS4-HMAC-SHA256 Credential=someone/")
    };
    assert!(server.requests().iter().all(signed));
    let conditions = |request: &Received| request.headers.contains_key("if-match");
    assert!(
        server
            .requests()
            .iter()
            .filter(|request| fetched(request))
            .all(conditions)
    );
}

#[test]
fn one_object_is_copied_and_an_absent_one_is_named() {
    let server = start(&objects());
    let place = TempDir::new().unwrap();
    let copied = copy(
        &server,
        &["--s3-anonymous"],
        "s3://bucket/t/a b",
        &place.path().join("x"),
    );
    assert_eq!(copied.code, Some(0), "{copied:?}");
    assert!(fs::read(place.path().join("x")).unwrap() == content(10, 0));
    let signed = |request: &Received| request.headers.contains_key("authorization");
    assert!(!server.requests().iter().any(signed));
    let absent = copy(&server, &[], "s3://bucket/absent", place.path());
    assert_eq!(absent.code, Some(6), "{absent:?}");
    let uploaded = run(command(&server, "cp", &["-r"])
        .arg(place.path())
        .arg("s3://bucket/y"));
    assert_eq!(uploaded.code, Some(1), "{uploaded:?}");
}

#[test]
fn names_that_no_file_has_are_failures_and_stay_below_the_destination() {
    let mut objects = Objects::new();
    for key in [
        "t/good",
        "t/both",
        "t/both/x",
        "t//double",
        "t/../up",
        "t/./dot",
    ] {
        objects.insert(key.to_owned(), content(5, 1));
    }
    let server = start(&objects);
    let place = TempDir::new().unwrap();
    let inner = place.path().join("inner");
    fs::create_dir(&inner).unwrap();
    let copied = copy(&server, &["-r"], "s3://bucket/t", &inner);
    assert_eq!(copied.code, Some(2), "{copied:?}");
    assert!(
        copied.errors.contains("both a file and a directory"),
        "{copied:?}"
    );
    let names: Vec<_> = fs::read_dir(inner.join("t")).unwrap().collect();
    assert_eq!(names.len(), 1, "{names:?}");
    assert!(inner.join("t/good").exists());
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
}

#[test]
fn errors_of_the_store_are_named_without_the_credentials() {
    let text = "<Error><Code>RequestTimeTooSkewed</Code><Message>Too far</Message></Error>";
    let server = Server::start(move |request| match &request.method[..] {
        "HEAD" => Reply::status(404),
        _ => Reply::status(403).body(text),
    });
    let place = TempDir::new().unwrap();
    let failed = copy(&server, &["-r"], "s3://bucket/t", place.path());
    assert_ne!(failed.code, Some(0), "{failed:?}");
    assert!(
        failed.errors.contains("RequestTimeTooSkewed: Too far"),
        "{failed:?}"
    );
    assert!(!failed.errors.contains("hidden"), "{failed:?}");
    let mut without = command(&server, "cp", &["s3://bucket/t"]);
    without.env_remove("AWS_ACCESS_KEY_ID");
    let refused = run(without.arg(place.path()));
    assert_eq!(refused.code, Some(4), "{refused:?}");
    // This listing does not end.
    let server = Server::start(|request| match &request.method[..] {
        "HEAD" => Reply::status(404),
        _ => Reply::status(200).body(
            "<ListBucketResult><IsTruncated>true</IsTruncated><Contents><Key>t/a</Key></Contents>\
             <NextContinuationToken>x</NextContinuationToken></ListBucketResult>",
        ),
    });
    let endless = copy(&server, &["-r"], "s3://bucket/t", place.path());
    assert_ne!(endless.code, Some(0), "{endless:?}");
    assert!(endless.errors.contains("does not end"), "{endless:?}");
}
