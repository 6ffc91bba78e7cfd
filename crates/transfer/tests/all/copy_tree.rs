//! Copies and compares a tree through the library's interface.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use longhaul_transfer::client::observer::{Control, Observer, Unobserved};
use longhaul_transfer::client::run::{self, Place};
use longhaul_transfer::endpoint::Endpoint;
use longhaul_transfer::spec::TransferSpec;
use longhaul_transfer::stop::Exit;

fn sample(at: &Path) {
    fs::create_dir_all(at.join("below/further")).unwrap();
    fs::write(at.join("one"), "one").unwrap();
    fs::write(at.join("below/large"), vec![7; 3 << 20]).unwrap();
    fs::write(at.join("below/further/empty"), "").unwrap();
}

pub fn local(path: &Path) -> Endpoint {
    Endpoint::parse(path.as_os_str()).unwrap()
}

pub fn run(spec: TransferSpec) -> Exit {
    let observer: Arc<dyn Observer> = Arc::new(Unobserved);
    let spec = spec.validate().unwrap();
    run::run(spec, Place::default(), &Control::default(), &observer).unwrap()
}

#[test]
fn the_example_copies_a_tree_to_its_end() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("data"), place.path().join("copy"));
    sample(&from);
    let test = std::env::current_exe().unwrap();
    let example = test.ancestors().nth(2).unwrap().join("examples/copy_tree");
    let done = Command::new(example).args([&from, &to]).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let names = String::from_utf8(done.stdout).unwrap();
    assert!(
        names.lines().any(|name| name.ends_with("below/large")),
        "{names}"
    );
    for file in ["one", "below/large", "below/further/empty"] {
        let copied = to.join("data");
        let both = [&from, &copied].map(|root| fs::read(root.join(file)).unwrap());
        assert_eq!(both[0], both[1], "{file}");
    }
}

#[test]
fn differences_set_the_exit_code() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("data"), place.path().join("copy"));
    sample(&from);
    let mut spec = TransferSpec::copy(vec![local(&from)], local(&to));
    spec.options.selection.recursive = true;
    let text = serde_json::to_string(&spec).unwrap();
    assert_eq!(run(serde_json::from_str(&text).unwrap()), Exit::Done);
    let compare = || {
        run(TransferSpec::comparison(
            local(&from),
            local(&to.join("data")),
        ))
    };
    assert_eq!(compare(), Exit::Done);
    fs::write(to.join("data/one"), "other").unwrap();
    assert_eq!(compare(), Exit::Integrity);
}

#[test]
fn errors_name_the_field() {
    let parse = |text: &str| Endpoint::parse(OsStr::new(text)).unwrap();
    let spec = TransferSpec::copy(vec![parse("a"), parse("h:b")], parse("c"));
    let error = spec.validate().unwrap_err().to_string();
    assert!(error.starts_with("sources: "), "{error}");
    let unknown = r#"{"version": 1, "sources": ["a"], "destination": "b", "colour": "red"}"#;
    let error = serde_json::from_str::<TransferSpec>(unknown).unwrap_err();
    assert!(error.to_string().contains("colour"), "{error}");
    let mut spec = TransferSpec::copy(vec![parse("a")], parse("c"));
    spec.flows.streams = Some(0);
    let error = spec.validate().unwrap_err().to_string();
    assert!(error.starts_with("flows.streams: "), "{error}");
}
