//! Copies onto file systems that fold names. The first entry keeps its name and content, and later
//! entries with an equal folded name fail.

use std::collections::BTreeSet;
use std::sync::Arc;

use longhaul_engine::recv::backup::Backups;
use longhaul_engine::send::source::What;
use longhaul_proto::backup::Backup;
use longhaul_storage::forgetting::ForgettingStorage;
use longhaul_storage::posix::PosixDirectory;
use longhaul_storage::{DataMode, Directory, FileKind};

use super::mounts::mount_folding;
use crate::support::Random;
use crate::support::ends::{Ended, Ends, copy, destination, settings, sources};
use crate::support::tree::{self, Node, Tree};

/// Returns names that are equal if case is folded, in many packs and for both small and large
/// files.
fn clashing() -> Tree {
    let chance = &mut Random::new(38);
    let directory = Node::Directory {
        mode: 0o755,
        modified: Default::default(),
    };
    let mut tree = Tree::new();
    for path in ["top", "top/Sub", "top/sub", "top/plain"] {
        tree.insert(path.as_bytes().into(), directory.clone());
    }
    for number in 0..40 {
        for path in [
            format!("top/File{number}"),
            format!("top/file{number}"),
            format!("top/plain/{number}"),
        ] {
            tree.insert(path.into(), tree::file(chance, 9000 + number));
        }
    }
    for path in ["top/Large", "top/large", "top/LARGE"] {
        tree.insert(path.as_bytes().into(), tree::file(chance, 300_000));
    }
    for path in ["top/Sub/a", "top/sub/a", "top/sub/b", "top/plain/B"] {
        tree.insert(path.as_bytes().into(), tree::file(chance, 500));
    }
    for (path, target) in [("top/Link", "one"), ("top/link", "two")] {
        tree.insert(path.as_bytes().into(), Node::Link(target.into()));
    }
    tree
}

fn folded(path: &[u8]) -> Vec<u8> {
    path.to_ascii_lowercase()
}

/// Returns the content of a file, or the target of a link.
fn content_at(root: &Arc<dyn Directory>, path: &[u8]) -> Option<Vec<u8>> {
    let mut names: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    let name = names.pop()?;
    let above = names.iter().try_fold(Arc::clone(root), |above, name| {
        above.open_directory(name).ok()
    })?;
    let status = above.status_of(name).ok()?;
    match status.kind {
        FileKind::Symlink => Some(above.read_symlink(name).ok()?.into()),
        FileKind::File => {
            let mut data = vec![0; status.size as usize];
            let file = above.open_file(name, DataMode::Buffered).ok()?;
            (file.read_at(&mut data, 0).ok()? == data.len()).then_some(data)
        }
        FileKind::Directory | FileKind::Special => None,
    }
}

/// Checks that one spelling of each folded name exists, with its content, and that the others
/// failed.
fn check(content: &Tree, ended: &Ended, root: &Arc<dyn Directory>, context: &str) {
    let failed = &ended.sent.failed;
    let mut names = BTreeSet::new();
    for (path, node) in content {
        let shown = path.escape_ascii();
        if failed.contains_key(path) {
            continue;
        }
        assert!(
            names.insert(folded(path)),
            "{context}: {shown} is another one too"
        );
        let expected = match node {
            Node::File { data, .. } => data,
            Node::Link(target) => target,
            Node::Directory { .. } => continue,
        };
        let there = content_at(root, path);
        let is_same = there.as_ref() == Some(expected);
        assert!(is_same, "{context}: {shown} is another's, or lost");
    }
    for path in content.keys() {
        // Entries of a directory that does not exist must not exist.
        let within = folded(path).starts_with(b"top/sub/");
        let shown = path.escape_ascii();
        assert!(
            within || names.contains(&folded(path)),
            "{context}: neither of {shown}"
        );
        assert!(
            !(path.starts_with(b"top/plain") && failed.contains_key(path)),
            "{shown}"
        );
    }
    let clash = failed
        .iter()
        .find(|(path, _)| folded(path).starts_with(b"top/file"));
    let text = clash.map(|(_, text)| text.as_str()).unwrap_or_default();
    assert!(text.contains("for one name"), "{context}: {text}");
}

fn copy_twice(root: &Arc<dyn Directory>, name: &str) {
    let content = clashing();
    let source = ForgettingStorage::new().root();
    tree::build(&source, &content);
    let (mut empty, mut asking) = (settings(), settings());
    (empty.asks, asking.asks) = (false, true);
    for (what, settings) in [("empty", empty), ("again", asking)] {
        let context = format!("{name}, {what}");
        let ended = copy(settings, &source, root, &context).unwrap();
        check(&content, &ended, root, &context);
    }
}

// Promise 26.
#[test]
fn equal_spellings_are_one_name_in_memory() {
    let storage = ForgettingStorage::new();
    storage.fold_case();
    copy_twice(&storage.root(), "in memory");
    let (_, staging) = tree::read(&storage.root());
    assert_eq!(staging, [""; 0], "left behind");
}

// Promise 26.
#[test]
fn equal_spellings_are_one_name_on_ntfs() {
    match mount_folding() {
        Ok(mounted) => {
            let root = PosixDirectory::open_root(mounted.point()).unwrap();
            copy_twice(&root, "NTFS");
        }
        Err(skipped) => skipped.report("NTFS that ignores case"),
    }
}

/// The name of a backup is another spelling of an existing name that the copy also has. The first
/// of the two keeps the name, and the other one fails.
#[test]
fn a_backup_takes_no_name_under_another_spelling() {
    let storage = ForgettingStorage::new();
    storage.fold_case();
    let chance = &mut Random::new(42);
    let directory = Node::Directory {
        mode: 0o755,
        modified: Default::default(),
    };
    let mut there = Tree::new();
    there.insert(b"top".to_vec(), directory);
    for path in ["top/RUN.old", "top/other", "top/run"] {
        there.insert(path.into(), tree::file(chance, 900));
    }
    tree::build(&storage.root(), &there);
    let mut content = there.clone();
    for path in ["top/run", "top/other"] {
        content.insert(path.into(), tree::file(chance, 901));
    }
    let source = ForgettingStorage::new().root();
    tree::build(&source, &content);
    let asked = Backup {
        suffix: Some(b".OLD"[..].into()),
        directory: None,
    };
    let destination = destination(storage.root()).keeping_backups(Backups::beside(&asked));
    let mut settings = settings();
    settings.asks = true;
    settings.epoch = destination.take().unwrap();
    let top = source.open_directory(b"top").unwrap();
    let from = sources(top, What::Tree(b"top"[..].into()));
    let ends = Ends::start(settings, from, destination);
    for number in 0..2 {
        ends.join(number, false);
    }
    let ended = ends.finish("folding");
    let failed: Vec<&Vec<u8>> = ended.sent.failed.keys().collect();
    // Comparison and commit run on different threads.
    let backup_was_first = failed == [b"top/RUN.old"];
    assert!(backup_was_first || failed == [b"top/run"], "{failed:?}");
    let (run, old) = if backup_was_first {
        (&content, "top/run")
    } else {
        (&there, "top/RUN.old")
    };
    let root = storage.root();
    let data = |tree: &Tree, path: &str| match &tree[path.as_bytes()] {
        Node::File { data, .. } => Some(data.clone()),
        _ => None,
    };
    for (at, tree, path) in [
        ("top/run", run, "top/run"),
        ("top/RUN.old", &there, old),
        ("top/other", &content, "top/other"),
        ("top/other.OLD", &there, "top/other"),
    ] {
        assert_eq!(content_at(&root, at.as_bytes()), data(tree, path), "{at}");
    }
}
