//! A later session of the same transfer takes over while an older one is still working. From then
//! on the older one neither changes files with names nor takes files of the later one.

use std::sync::Arc;

use longhaul_engine::send::source::What;
use longhaul_proto::message::Farewell;
use longhaul_storage::Directory;
use longhaul_storage::forgetting::ForgettingStorage;

use super::disk_with;
use crate::support::ends::{Ended, Ends, destination, settings, sources};
use crate::support::tree::{self, Node, Tree, single_file, small_tree};

/// Starts both ends of a session that owns `disk`; data moves only after a stream joins them.
fn start(disk: &ForgettingStorage, content: &Tree) -> Ends {
    let to = destination(disk.root());
    let mut settings = settings();
    settings.epoch = to.take().unwrap();
    settings.asks = true;
    let top = disk_with(content).open_directory(b"top").unwrap();
    Ends::start(settings, sources(top, What::Tree(b"top"[..].into())), to)
}

fn assert_fenced(ended: &Ended) {
    let (sender, receiver) = (&ended.sender.farewell, &ended.receiver.farewell);
    assert_eq!((sender, receiver), (&Farewell::Fenced, &Farewell::Fenced));
}

#[test]
fn a_large_file_that_became_durable_too_late_gets_no_name() {
    let disk = ForgettingStorage::new();
    let ends = start(&disk, &single_file());
    let root: Arc<dyn Directory> = disk.root();
    disk.before_next_sync_all(move || {
        // In the newer state of the source this is a link: the later session does not need the part
        // and does not claim it.
        let later = destination(root.clone());
        later.take().unwrap();
        let sub = root.open_directory(b"top").unwrap();
        let sub = sub.open_directory(b"sub").unwrap();
        sub.make_symlink(b"two", b"newer").unwrap();
    });
    ends.join(0, false);
    assert_fenced(&ends.finish("overtaken in a sync"));
    let (found, _) = tree::read(&disk.root());
    assert_eq!(found[&b"top/sub/two"[..]], Node::Link(b"newer".to_vec()));
}

// Promise 16.
#[test]
fn a_fenced_session_claims_no_part_and_finishes_no_directory() {
    let whole = single_file();
    let mut directories = whole.clone();
    directories.remove(&b"top/sub/two"[..]);
    for content in [whole, directories] {
        let disk = ForgettingStorage::new();
        let ends = start(&disk, &content);
        let later = destination(disk.root());
        later.take().unwrap();
        ends.join(0, false);
        assert_fenced(&ends.finish("overtaken before it began"));
        let (found, staging) = tree::read(&disk.root());
        for (path, node) in found {
            assert_ne!(content.get(&path), Some(&node), "{path:?} was finished");
        }
        // The journal and the part of the later session itself.
        assert_eq!(staging.len(), 2, "{staging:?}");
        assert!(
            staging.iter().all(|name| !name.contains('/')),
            "{staging:?}"
        );
    }
}

#[test]
fn removal_of_its_own_files_is_not_reported_as_a_takeover() {
    let whole = single_file();
    let mut directories = whole.clone();
    directories.remove(&b"top/sub/two"[..]);
    for content in [whole, small_tree(3), directories] {
        let disk = ForgettingStorage::new();
        let ends = start(&disk, &content);
        let root = disk.root();
        for name in tree::read(&root).1 {
            root.remove_file(name.as_bytes()).unwrap();
        }
        ends.join(0, false);
        let ended = ends.finish("its files were removed");
        for end in [&ended.sender, &ended.receiver] {
            let Farewell::Storage(text) = &end.farewell else {
                panic!("{end:?}");
            };
            for part in [
                "there/",
                ".longhaul-",
                "removed",
                "run the same command again",
            ] {
                assert!(text.contains(part), "{text}");
            }
        }
    }
}
