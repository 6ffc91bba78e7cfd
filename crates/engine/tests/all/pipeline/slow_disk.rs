//! A disk that accepts data faster than it makes it durable.

use std::time::Duration;

use longhaul_engine::send::source::What;
use longhaul_proto::message::Farewell;
use longhaul_storage::forgetting::ForgettingStorage;

use super::{assert_same, disk_with};
use crate::support::Random;
use crate::support::ends::{Ends, destination, settings, sources};
use crate::support::tree::{self, Tree};

/// Number of consecutive checks without a change after which the transfer counts as stopped.
const LOOKS: u32 = 500;

/// A disk that stalls must not be taken for a stalled stream: no stream is lost, however long it
/// takes.
#[test]
fn a_stalled_disk_closes_no_streams() {
    let content = tree::one_file(5, "a", 12 << 20);
    let source = disk_with(&content);
    let disk = ForgettingStorage::new();
    let to = destination(disk.root());
    let mut settings = settings();
    settings.silence = Duration::from_secs(1);
    settings.checkpoint_bytes = 512 << 10;
    settings.asks = false;
    settings.epoch = to.take().unwrap();
    let top = source.open_directory(b"top").unwrap();
    disk.hold_syncs();
    let ends = Ends::start(settings, sources(top, What::Tree(b"top"[..].into())), to);
    for number in 0..2 {
        ends.join(number, false);
    }
    // tidy: reason: longer than a stream may be silent.
    std::thread::sleep(Duration::from_secs(3));
    let lost = [&ends.sender, &ends.receiver].map(|end| end.measurements().progress().lost_streams);
    disk.release_syncs();
    let ended = ends.finish("a disk that stands still");
    assert_eq!(ended.sender.farewell, Farewell::Complete);
    assert_eq!(lost, [0, 0]);
}

/// While the disk does not sync, at most a checkpoint and the blocks of the writers are written.
/// The rest waits in buffers, and then at the sender.
// Promise 13.
#[test]
fn a_disk_that_does_not_sync_accepts_at_most_one_checkpoint() {
    let chance = &mut Random::new(3);
    let mut content = Tree::new();
    content.insert(b"top"[..].into(), tree::directory(chance));
    for name in [&b"top/a"[..], b"top/b", b"top/c"] {
        content.insert(name.into(), tree::file(chance, 4 << 20));
    }
    let source = disk_with(&content);
    let disk = ForgettingStorage::new();
    let to = destination(disk.root());
    let mut settings = settings();
    settings.checkpoint_bytes = 512 << 10;
    settings.asks = false;
    settings.epoch = to.take().unwrap();
    let in_hand = (settings.flows.writers * settings.block_bytes) as u64;
    let most = settings.checkpoint_bytes + in_hand;
    let top = source.open_directory(b"top").unwrap();
    disk.hold_syncs();
    let ends = Ends::start(settings, sources(top, What::Tree(b"top"[..].into())), to);
    for number in 0..2 {
        ends.join(number, false);
    }
    let written = || ends.receiver.measurements().progress().disk_bytes;
    let (mut before, mut looks) = (0, 0);
    longhaul_testing::await_that(|| {
        let now = written();
        assert!(now <= most, "{now} bytes are written, none is durable");
        looks = if now == before && now > 0 {
            looks + 1
        } else {
            0
        };
        before = now;
        looks == LOOKS
    });
    assert!(
        before >= most - in_hand,
        "{before} bytes: it was not the checkpoint that held it up"
    );
    disk.release_syncs();
    let ended = ends.finish("a slow disk");
    assert_eq!(ended.sender.farewell, Farewell::Complete);
    assert_same(&disk.root(), &content, "a slow disk");
}
