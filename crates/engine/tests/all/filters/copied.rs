//! Copies by the walk itself: filters, bounds, lists of files.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, SystemTime};

use longhaul_engine::send::source::What;
use longhaul_engine::session::Progress;
use longhaul_proto::filter::{Filter, LeftOut};
use longhaul_storage::posix::PosixDirectory;

use crate::support::ends::{Ends, destination, settings, sources};

/// Result of a copy.
pub struct Copied {
    /// Paths at the destination; directories end with a slash.
    pub names: BTreeSet<Vec<u8>>,
    pub failed: Vec<String>,
    pub sent: Progress,
    pub received: Progress,
}

pub fn copy(root: &Path, selection: &Filter, contents: bool) -> Copied {
    let place = tempfile::tempdir().unwrap();
    let to = destination(PosixDirectory::open_root(place.path()).unwrap());
    let mut settings = settings();
    settings.epoch = to.take().unwrap();
    settings.asks = false;
    let what = if contents {
        What::Contents
    } else {
        What::Tree(root.file_name().unwrap().as_bytes().into())
    };
    let from = sources(PosixDirectory::open_root(root).unwrap(), what);
    let ends = Ends::start_selecting(settings, (from, selection), to);
    assert!(ends.join(0, false));
    // If no data is left to copy, the session may already be over.
    ends.join(1, false);
    let (sender, receiver) = (ends.sender.clone(), ends.receiver.clone());
    let ended = ends.finish("a copy of a selection");
    let failed = ended.sent.failed.iter();
    let mut names = BTreeSet::new();
    list(place.path(), b"", &mut names);
    Copied {
        names,
        failed: failed.map(|failed| format!("{failed:?}")).collect(),
        sent: sender.measurements().progress(),
        received: receiver.measurements().progress(),
    }
}

fn list(place: &Path, above: &[u8], names: &mut BTreeSet<Vec<u8>>) {
    for entry in std::fs::read_dir(place).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name();
        if name.as_bytes().starts_with(b".longhaul-") {
            continue;
        }
        let path = super::tree::joined(above, name.as_bytes());
        if entry.file_type().unwrap().is_dir() {
            names.insert([&path[..], b"/"].concat());
            list(&entry.path(), &path, names);
        } else {
            names.insert(path);
        }
    }
}

/// Creates a tree of files with their sizes.
fn tree(files: &[(&str, usize)]) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    for (name, size) in files {
        let path = place.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, vec![1; *size]).unwrap();
    }
    place
}

fn names(copied: &Copied) -> Vec<&str> {
    let names = copied.names.iter();
    names
        .map(|name| std::str::from_utf8(name).unwrap())
        .collect()
}

fn rules(rules: &[&str]) -> Filter {
    let rules = rules.iter().map(|rule| rule.as_bytes().to_vec().into());
    Filter {
        rules: rules.collect(),
        ..Filter::default()
    }
}

// Promise 63.
#[test]
fn an_excluded_directory_is_not_opened() {
    let place = tree(&[("a", 1), ("d/e/f", 1)]);
    // An opened directory would cause a failure, also for root: its rule file is not valid.
    std::fs::write(place.path().join("d/.f"), "nothing\n").unwrap();
    let copied = copy(place.path(), &rules(&["- /d", ": .f"]), true);
    assert_eq!(names(&copied), ["a"]);
    assert_eq!(copied.failed, [""; 0]);
    let copied = copy(place.path(), &rules(&["- f", ": .f"]), true);
    assert_eq!(names(&copied), ["a", "d/"]);
    assert_eq!(copied.failed.len(), 1);
    assert!(
        copied.failed[0].contains("begins with no rule"),
        "{:?}",
        copied.failed
    );
}

// Promises 25 and 63.
#[test]
fn excluded_entries_are_counted_at_both_ends_and_are_no_failure() {
    let place = tree(&[("a.o", 1), ("b", 10), ("c", 100), ("d/e", 10), ("old", 10)]);
    let _socket = UnixListener::bind(place.path().join("socket")).unwrap();
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    let file = std::fs::File::options()
        .write(true)
        .open(place.path().join("old"));
    file.unwrap().set_modified(old).unwrap();
    let selection = Filter {
        minimum_size: Some(2),
        maximum_size: Some(50),
        newer_than: Some(2_000_000),
        maximum_depth: Some(1),
        ..rules(&["- *.o"])
    };
    let copied = copy(place.path(), &selection, true);
    assert_eq!(names(&copied), ["b", "d/"]);
    assert_eq!(copied.failed, [""; 0]);
    let expected = LeftOut {
        rules: 1,
        size: 1,
        time: 1,
        depth: 1,
        file_systems: 0,
        specials: 1,
        ..LeftOut::default()
    };
    assert_eq!(copied.sent.left_out, expected);
    assert_eq!(copied.received.left_out, expected);
}

#[test]
fn depth_is_counted_from_the_source() {
    let place = tree(&[("t/a", 1), ("t/d/b", 1), ("t/d/e/c", 1)]);
    for (depth, expected) in [
        (0, &["t/"][..]),
        (1, &["t/", "t/a", "t/d/"]),
        (2, &["t/", "t/a", "t/d/", "t/d/b", "t/d/e/"]),
    ] {
        let selection = Filter {
            maximum_depth: Some(depth),
            ..Filter::default()
        };
        let copied = copy(&place.path().join("t"), &selection, false);
        assert_eq!(names(&copied), expected, "{depth}");
        assert_eq!(copied.sent.left_out.depth, 1);
    }
}

#[test]
fn listed_files_are_copied_with_the_directories_that_they_lie_in() {
    let place = tree(&[
        ("a", 1),
        ("b", 1),
        ("d/e/f", 1),
        ("d/e/g", 1),
        ("d/h/i", 1),
        ("d/h/x.o", 1),
    ]);
    let files = ["d/h", "b", "d/e/g", "none/x"].map(|file| file.as_bytes().to_vec().into());
    let selection = Filter {
        files: Some(files.into()),
        files_recursive: true,
        ..rules(&["- *.o"])
    };
    let copied = copy(place.path(), &selection, true);
    assert_eq!(
        names(&copied),
        ["b", "d/", "d/e/", "d/e/g", "d/h/", "d/h/i"]
    );
    assert_eq!(copied.failed.len(), 1);
    assert!(copied.failed[0].contains("none"), "{:?}", copied.failed);
}

/// Uses another file system within the tree, if this host has one that needs no mounting: `/proc`
/// within the root.
#[test]
fn other_file_systems_are_made_and_not_entered() {
    let selection = Filter {
        one_file_system: true,
        ..rules(&["+ /proc/", "- *"])
    };
    let copied = copy(Path::new("/"), &selection, true);
    assert_eq!(names(&copied), ["proc/"]);
    assert_eq!(copied.sent.left_out.file_systems, 1);
}
