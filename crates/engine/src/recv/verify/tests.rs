//! Tests blocks on clear connections, whose checksums come separately: in any order, twice, or
//! corrupt. Every wanted block must meet its checksums, and no block may keep its buffer.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::time::Duration;

use longhaul_proto::block::{
    BlockHeader, Codec, Content, ContentName, HeaderKey, PackedEntry, Piece,
};
use longhaul_proto::digest::{BlockHasher, Checksum, Integrity, whole_file};
use longhaul_proto::filter::LeftOut;
use longhaul_proto::handshake::{Landing, Secret};
use longhaul_proto::manifest::{Entry, EntryId, EntryKind, SourceIdentity, Timestamp, TreePath};
use longhaul_proto::message::{Farewell, Message};
use longhaul_proto::session::StreamId;
use longhaul_storage::forgetting::ForgettingStorage;
use longhaul_storage::roots::OpenRoot;
use longhaul_storage::{DataMode, Directory};
use longhaul_units::{ByteCount, Random};

use super::Awaited;
use crate::recv::ReceiveSide;
use crate::recv::landing::{Arrival, Destination, Missing};
use crate::session::{Transfer, TransferSettings};

const BLOCK_BYTES: usize = 4096;
const PIECES: usize = 24;
const SMALL_BYTES: usize = 100;

/// Longer than the test takes: after it, the test hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns one directory for every path.
struct OnlyRoot(Arc<dyn Directory>);

impl OpenRoot for OnlyRoot {
    fn open_root(&self, _: &std::path::Path) -> std::io::Result<Arc<dyn Directory>> {
        Ok(self.0.clone())
    }

    fn open_following(&self, _: &std::path::Path) -> std::io::Result<Arc<dyn Directory>> {
        Ok(self.0.clone())
    }

    fn make_root(&self, _: &std::path::Path) -> std::io::Result<Arc<dyn Directory>> {
        Ok(self.0.clone())
    }
}

/// A receiving end and its stages.
type End = (Arc<Transfer>, Arc<ReceiveSide>);

fn receiver(root: Arc<dyn Directory>) -> End {
    let arrival = Arrival::of_tests();
    let root = OnlyRoot(root);
    let there =
        Destination::open(&root, b"there/", Landing::Within, Missing::Make, arrival).unwrap();
    let settings = TransferSettings {
        block_bytes: BLOCK_BYTES,
        // Room for every block twice, so that no block waits for a buffer.
        budget: ByteCount(200 * 2 * BLOCK_BYTES as u64),
        checkpoint_span: Duration::from_millis(1),
        clear: Some(HeaderKey::new(Secret([7; 32]))),
        asks: false,
        epoch: there.take().unwrap(),
        ..TransferSettings::default()
    };
    let side = Arc::new(ReceiveSide::new(there));
    let transfer = Transfer::receiving_into(settings, &side, Arc::new(|_| {}));
    (transfer, side)
}

fn file(id: u64, name: &str, size: usize) -> Entry {
    let modified = Timestamp {
        seconds: 5,
        nanoseconds: 6,
    };
    let identity = SourceIdentity {
        inode: id + 1,
        size: size as u64,
        modified,
        changed: modified,
    };
    Entry {
        id: EntryId(id),
        parent: None,
        path: TreePath::new(name.as_bytes()).unwrap(),
        kind: EntryKind::File {
            identity,
            sparse: false,
        },
        mode: 0o644,
        modified,
        owner: None,
    }
}

fn bytes(seed: usize, count: usize) -> Vec<u8> {
    (0..count).map(|at| (at * 7 + seed * 31) as u8).collect()
}

/// A block as a clear sender sends it, and the message with its checksums.
#[derive(Clone)]
struct Sent {
    header: BlockHeader,
    payload: Vec<u8>,
    checksums: Vec<Option<Checksum>>,
}

fn sent(content: Content, payload: Vec<u8>, checksums: Vec<Option<Checksum>>) -> Sent {
    let header = BlockHeader {
        content,
        codec: Codec::Plain,
        decoded: payload.len() as u64,
        transit: None,
        proof: None,
        trailer: None,
        shuffle: None,
    };
    Sent {
        header,
        payload,
        checksums,
    }
}

fn piece(number: usize) -> Sent {
    let size = (PIECES * BLOCK_BYTES) as u64;
    let (offset, payload) = ((number * BLOCK_BYTES) as u64, bytes(number, BLOCK_BYTES));
    let length = BLOCK_BYTES as u64;
    let mut hasher = BlockHasher::new(Integrity::Digest, offset, length, size).unwrap();
    hasher.update(&payload);
    let piece = Piece {
        entry: file(0, "large", PIECES * BLOCK_BYTES),
        generation: 0,
        offset,
        length,
        extents: None,
        checksum: None,
    };
    sent(Content::Piece(piece), payload, vec![Some(hasher.finish())])
}

/// Returns a pack of these files.
fn pack(ids: &[u64]) -> Sent {
    let mut payload = Vec::new();
    let (mut entries, mut checksums) = (Vec::new(), Vec::new());
    for &id in ids {
        let data = bytes(id as usize, SMALL_BYTES);
        checksums.push(Some(whole_file(Integrity::Digest, &data)));
        payload.extend(data);
        entries.push(PackedEntry {
            entry: file(id, &format!("small{id}"), SMALL_BYTES),
            generation: 0,
            checksum: None,
        });
    }
    sent(Content::Pack(entries), payload, checksums)
}

/// The next thing that arrives.
enum Coming {
    Block(Sent),
    Checksums(Sent),
}

fn arrive((transfer, side): &End, arrival: Coming) {
    match arrival {
        Coming::Block(sent) => {
            let mut buffer = transfer.pool.take().unwrap();
            buffer[..sent.payload.len()].copy_from_slice(&sent.payload);
            buffer.set_filled(sent.payload.len());
            let stream = StreamId(1);
            side.at_work(transfer)
                .handle_block(stream, sent.header, buffer, None)
                .unwrap();
        }
        Coming::Checksums(sent) => {
            let name = sent.header.name();
            assert!(side.at_work(transfer).take_checksums(name, sent.checksums));
        }
    }
}

/// Returns the blocks that the receiver requests again, as often as it does.
fn asked_again((transfer, side): &End) -> Vec<Sent> {
    let messages = side
        .at_work(transfer)
        .tell(|receiver| std::iter::from_fn(|| receiver.poll_message()).collect::<Vec<_>>());
    let again = messages.unwrap().into_iter().filter_map(|message| {
        let Message::Again { content, .. } = message else {
            return None;
        };
        Some(match content {
            super::ContentName::Piece(name) => piece(name.offset as usize / BLOCK_BYTES),
            super::ContentName::Pack(ids) => {
                let ids: Vec<u64> = ids.into_iter().map(|id| id.0).collect();
                pack(&ids)
            }
        })
    });
    again.collect()
}

#[test]
fn blocks_and_checksums_meet_in_any_order() {
    for seed in 0..60 {
        let chance = &mut Random::new(seed);
        let disk = ForgettingStorage::new();
        let end = receiver(disk.root());
        let mut arrivals = Vec::new();
        let packs = [pack(&[1, 2, 3]), pack(&[4])];
        for original in (0..PIECES).map(piece).chain(packs) {
            // The same content may be sent twice, with its message.
            for copy in 0..1 + chance.below(2) {
                let mut block = original.clone();
                if copy == 0 && chance.below(4) == 0 {
                    block.payload[17] ^= 4;
                }
                arrivals.push(Coming::Block(block));
                arrivals.push(Coming::Checksums(original.clone()));
            }
        }
        chance.shuffle(&mut arrivals);
        for arrival in arrivals {
            arrive(&end, arrival);
        }
        finish(&end, chance, seed);
        assert_arrived(&disk, seed);
    }
}

/// Two streams bring the same blocks at the same time. The duplicate must not take the checksums of
/// the wanted block.
#[test]
fn simultaneous_duplicates_keep_their_checksums() {
    for seed in 0..60 {
        let disk = ForgettingStorage::new();
        let end = receiver(disk.root());
        let blocks = || (0..PIECES).map(piece).chain([pack(&[1, 2, 3]), pack(&[4])]);
        for sent in blocks() {
            arrive(&end, Coming::Checksums(sent));
        }
        let together = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for sent in blocks() {
                        together.wait();
                        arrive(&end, Coming::Block(sent));
                    }
                });
            }
        });
        finish(&end, &mut Random::new(seed), seed);
        assert_arrived(&disk, seed);
    }
}

/// Delivers the requested blocks until all are complete.
fn finish(end: &End, chance: &mut Random, seed: u64) {
    let (transfer, side) = end;
    let told = side.at_work(transfer).tell(|receiver| {
        let sealed = Message::Sealed {
            file: EntryId(0),
            generation: 0,
            size: (PIECES * BLOCK_BYTES) as u64,
            grew: false,
        };
        receiver.handle_message(sealed)?;
        receiver.handle_message(Message::WalkEnd {
            entries: 5,
            left_out: LeftOut::default(),
            anchor: None,
        })
    });
    told.unwrap().unwrap();
    let until = std::time::Instant::now() + PATIENCE;
    while !transfer.wait_for(Duration::from_millis(1)) {
        assert!(std::time::Instant::now() < until, "seed {seed}: hangs");
        for sent in asked_again(end) {
            let mut both = [Coming::Block(sent.clone()), Coming::Checksums(sent)];
            chance.shuffle(&mut both);
            both.into_iter().for_each(|coming| arrive(end, coming));
        }
    }
    transfer.end(Farewell::Complete);
    transfer.wait();
    assert_eq!(transfer.pool.in_use(), ByteCount(0), "seed {seed}");
}

fn assert_arrived(disk: &ForgettingStorage, seed: u64) {
    let large: Vec<u8> = (0..PIECES).flat_map(|n| bytes(n, BLOCK_BYTES)).collect();
    let small = (1..5).map(|id| (format!("small{id}"), bytes(id, SMALL_BYTES)));
    for (name, expected) in small.chain([("large".to_owned(), large)]) {
        let file = disk.root().open_file(name.as_bytes(), DataMode::Buffered);
        let mut found = vec![0; expected.len() + 1];
        let read = file.unwrap().read_at(&mut found, 0).unwrap();
        assert!(found[..read] == expected, "seed {seed}: {name}");
    }
}

#[test]
fn duplicate_blocks_have_separate_checksums() {
    let name = ContentName::Pack(vec![EntryId(1)]);
    let mut awaited = Awaited::default();
    for checksum in [1, 2] {
        awaited.insert(name.clone(), vec![Some(Checksum::Xxh3(checksum))]);
    }
    // The first block is damaged; the other must not wait forever.
    for checksum in [1, 2] {
        let found = awaited.remove(&name);
        assert_eq!(found, Some(vec![Some(Checksum::Xxh3(checksum))]));
    }
    assert_eq!((awaited.remove(&name), awaited.count), (None, 0));
}
