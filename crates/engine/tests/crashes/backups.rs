//! Power is lost, or the process killed, at every step of a copy that keeps what it replaces, on a
//! file system without further names: what was there is there, under one of its names.

use std::sync::Arc;

use longhaul_engine::recv::backup::Backups;
use longhaul_engine::send::source::What;
use longhaul_engine::storage::Directory;
use longhaul_engine::storage::forgetting::ForgettingStorage;
use longhaul_proto::backup::Backup;

use super::support::ends::{Ends, destination, settings, sources};
use super::support::times;
use super::support::tree::{self, Node, Tree, small_tree};
use super::{disk_with, older};

/// Copies over what is there; whether all of it was.
fn copy(from: &Arc<dyn Directory>, to: &Arc<dyn Directory>, context: &str) -> bool {
    let asked = Backup {
        suffix: b"~".to_vec().into(),
        directory: None,
    };
    let destination = destination(to.clone()).keeping_backups(Backups::beside(&asked));
    let mut settings = settings();
    settings.asks = true;
    let Ok(epoch) = destination.take() else {
        return false;
    };
    settings.epoch = epoch;
    let top = from.open_directory(b"top").unwrap();
    let from = sources(top, What::Tree(b"top"[..].into()));
    let ends = Ends::start(settings, from, destination);
    for number in 0..2 {
        ends.join(number, false);
    }
    ends.finish(context).is_complete()
}

/// What was there is there, under its name or its backup's.
fn check(disk: &ForgettingStorage, older: &Tree, context: &str) {
    let (found, _) = tree::read(&disk.root());
    for (path, node) in older {
        let Node::File { data, .. } = node else {
            continue;
        };
        let is_there = |path: &[u8]| matches!(found.get(path), Some(Node::File { data: there, .. }) if there == data);
        let backup = [path, &b"~"[..]].concat();
        assert!(
            is_there(path) || is_there(&backup),
            "{context}: {} is lost",
            path.escape_ascii()
        );
    }
}

#[test]
fn what_is_kept_is_never_lost() {
    let content = small_tree(5);
    let older = older(&content, 5);
    let from = disk_with(&content).root();
    let whole = disk_with(&older);
    let before = whole.steps();
    assert!(copy(&from, &whole.root(), "no crash"));
    check(&whole, &older, "no crash");
    let steps = whole.steps() - before;
    let stride = (steps / times("LONGHAUL_CRASHES", 100)).max(1);
    for step in (1..=steps).step_by(stride as usize) {
        let disk = disk_with(&older);
        disk.fail_after(disk.steps() + step);
        copy(&from, &disk.root(), "power lost");
        check(
            &disk.if_crashed(step),
            &older,
            &format!("power lost at {step}"),
        );
        let killed = disk.kill();
        check(&killed, &older, &format!("killed at {step}"));
        copy(&from, &killed.root(), "again");
        check(&killed, &older, &format!("killed at {step}, and run again"));
    }
}
