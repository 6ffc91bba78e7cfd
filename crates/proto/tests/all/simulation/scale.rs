//! Tests with a million entries, hundreds of thousands of blocks, and offsets up to 2^63. The pair
//! has no network, so that only the state machines take time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use longhaul_proto::block::{PackedEntry, Piece};
use longhaul_proto::digest::{Checksum, Integrity, LARGEST_FILE_BYTES};
use longhaul_proto::ledger::DurableBlock;
use longhaul_proto::manifest::{Entry, EntryId, EntryKind, SourceIdentity, Timestamp, TreePath};
use longhaul_proto::message::{Message, Outcome, Totals};
use longhaul_proto::receiver::{Compared, Receiver, ReceiverSettings, StorageJob, Verdict};
use longhaul_proto::sender::{
    BlockId, Dispatch, PackedRead, PieceRead, ReadData, Sender, SenderSettings,
};
use longhaul_proto::session::StreamId;
use longhaul_units::Moment;

const STREAM: StreamId = StreamId(0);

/// Maximum number of items that either end remembered at any time.
#[derive(Debug, Default)]
struct Peak {
    entries: usize,
    blocks: usize,
    receiver: usize,
}

/// Both ends, connected without a network.
struct Pair {
    sender: Sender,
    receiver: Receiver,
    now: Moment,
    works: BTreeMap<BlockId, ReadData>,
    /// Durable blocks that an earlier session left, by entry.
    left: BTreeMap<EntryId, Vec<DurableBlock>>,
    /// Maximum number of remembered items so far.
    peak: Peak,
    bytes_sent: u64,
    ranges: Vec<(u64, u64)>,
}

fn entry(id: u64, parent: Option<EntryId>, size: u64) -> Entry {
    let path = TreePath::new(format!("f{id}").as_bytes()).unwrap();
    let modified = Timestamp::default();
    let identity = SourceIdentity {
        inode: id,
        size,
        modified,
        changed: modified,
    };
    let kind = EntryKind::File {
        identity,
        sparse: false,
    };
    Entry {
        id: EntryId(id),
        parent,
        path,
        kind,
        mode: 0o644,
        modified,
        owner: None,
    }
}

fn checksum(integrity: Integrity) -> Checksum {
    match integrity {
        Integrity::Digest => Checksum::Blake3([7; 32]),
        Integrity::Checksum => Checksum::Xxh3(7),
    }
}

impl Pair {
    fn new(sender: SenderSettings, receiver: ReceiverSettings) -> Pair {
        let mut sender = Sender::new(sender);
        sender.handle_stream_up(STREAM, Moment(0));
        Pair {
            sender,
            receiver: Receiver::new(receiver),
            now: Moment(0),
            works: BTreeMap::new(),
            left: BTreeMap::new(),
            peak: Peak::default(),
            bytes_sent: 0,
            ranges: Vec::new(),
        }
    }

    fn run(&mut self, mut entries: impl Iterator<Item = Entry>, integrity: Integrity) -> Totals {
        let mut walking = true;
        loop {
            while walking && self.sender.work().entry_credit() > 0 {
                match entries.next() {
                    Some(entry) => self.sender.work_mut().handle_entry(entry),
                    None => {
                        self.sender.work_mut().handle_walk_end();
                        walking = false;
                    }
                }
            }
            self.sender.work_mut().flush_listing();
            self.move_blocks(integrity);
            self.store();
            self.talk();
            while self.sender.poll_event().is_some() {}
            while self.receiver.poll_event().is_some() {}
            self.peak.entries = self.peak.entries.max(self.sender.work().tracked());
            self.peak.blocks = self.peak.blocks.max(self.sender.blocks_under_way());
            self.peak.receiver = self.peak.receiver.max(self.receiver.tracked());
            self.now = self.now + Duration::from_millis(1);
            if let Some(totals) = self.sender.finished() {
                return totals;
            }
        }
    }

    fn move_blocks(&mut self, integrity: Integrity) {
        for _ in 0..256 {
            let Some(job) = self.sender.poll_read(self.now) else {
                break;
            };
            let ready = match &job.data {
                ReadData::Pack(jobs) => {
                    let results = jobs.iter().map(|j| (j.entry.id, PackedRead::Ready(None)));
                    self.sender.handle_pack_read(job.block, results.collect())
                }
                ReadData::Piece { .. } => {
                    self.sender.handle_piece_read(job.block, PieceRead::Ready)
                }
                ReadData::Front { .. } => panic!("nothing grows here"),
            };
            assert!(ready);
            self.works.insert(job.block, job.data);
        }
        while let Some(Dispatch::Send(block)) = self.sender.poll_dispatch(STREAM, self.now) {
            let data = self.works.remove(&block).unwrap();
            self.receiver.acks_mut().handle_arrival(STREAM);
            self.deliver(data, checksum(integrity));
        }
    }

    fn deliver(&mut self, data: ReadData, checksum: Checksum) {
        match data {
            ReadData::Front { .. } => panic!("nothing grows here"),
            ReadData::Piece { entry, piece } => {
                self.bytes_sent += piece.length;
                self.ranges.push((piece.offset, piece.length));
                let whole = Piece {
                    entry,
                    generation: piece.generation,
                    offset: piece.offset,
                    length: piece.length,
                    extents: None,
                    checksum: Some(checksum),
                };
                assert_eq!(self.receiver.handle_piece(&whole), Ok(Verdict::Keep));
                self.receiver.handle_written(piece, Ok(checksum), self.now);
            }
            ReadData::Pack(jobs) => {
                let pack: Vec<PackedEntry> = jobs
                    .into_iter()
                    .map(|job| PackedEntry {
                        entry: job.entry,
                        generation: job.generation,
                        checksum: Some(checksum),
                    })
                    .collect();
                self.receiver.handle_pack(&pack).unwrap();
                let outcome = Outcome::Committed { digest: None };
                let done = pack
                    .into_iter()
                    .map(|packed| (packed.entry, outcome.clone()));
                self.receiver.handle_packed(done.collect());
            }
        }
    }

    fn store(&mut self) {
        while let Some(job) = self.receiver.poll_storage(self.now) {
            match job {
                StorageJob::Compare(entries) => {
                    let compare = |entry: Entry| {
                        let left = self.left.remove(&entry.id);
                        (entry, left.map_or(Compared::Send, Compared::Partial))
                    };
                    let found = entries.into_iter().map(compare).collect();
                    self.receiver.handle_compared(found);
                }
                StorageJob::Checkpoint(files) => {
                    let files = files.into_iter().map(|file| (file, None)).collect();
                    self.receiver.handle_checkpointed(files);
                }
                StorageJob::Commit {
                    entry, generation, ..
                } => {
                    self.receiver.handle_committed(entry.id, generation, Ok(()));
                }
                StorageJob::ReadBack {
                    entry, generation, ..
                } => {
                    self.receiver.handle_read_back(entry.id, generation, Ok(()));
                }
                StorageJob::CompareContents(..)
                | StorageJob::Names(_)
                | StorageJob::EndNames(_)
                | StorageJob::Remove
                | StorageJob::MakeProbes(_)
                | StorageJob::RemoveProbes(_)
                | StorageJob::Discard { .. }
                | StorageJob::Link(_) => {}
                StorageJob::FinishDirectory(entry) => {
                    self.receiver
                        .handle_directory(entry, Outcome::Committed { digest: None });
                }
                StorageJob::Finish => self.receiver.handle_finished(Vec::new()),
            }
        }
    }

    fn talk(&mut self) {
        while let Some(message) = self.sender.poll_message() {
            assert!(!matches!(message, Message::Abandoned { .. }));
            self.receiver.handle_message(message).unwrap();
        }
        self.store();
        while let Some(message) = self.receiver.poll_message() {
            self.sender.handle_message(message, self.now).unwrap();
        }
    }
}

#[test]
fn a_million_small_entries_take_seconds_and_flat_memory() {
    for asks in [false, true] {
        let began = Instant::now();
        let settings = SenderSettings {
            asks,
            ..SenderSettings::default()
        };
        let mut pair = Pair::new(settings, ReceiverSettings::default());
        let totals = pair.run(
            (0..1_000_000).map(|id| entry(id, None, 100)),
            Integrity::Digest,
        );
        assert_eq!((totals.committed, totals.bytes), (1_000_000, 100_000_000));
        assert!(
            pair.peak.entries <= settings.window_entries,
            "{:?}",
            pair.peak
        );
        assert!(
            pair.peak.receiver <= settings.window_entries,
            "{:?}",
            pair.peak
        );
        eprintln!(
            "1,000,000 entries, asks {asks}: {:?}, {:?}",
            began.elapsed(),
            pair.peak
        );
    }
}

#[test]
fn a_file_of_300_000_blocks_takes_seconds_and_flat_memory() {
    for integrity in [Integrity::Digest, Integrity::Checksum] {
        let began = Instant::now();
        let size = 300_000 << 20;
        let sender = SenderSettings::default();
        let receiver = ReceiverSettings {
            integrity,
            ..ReceiverSettings::default()
        };
        let mut pair = Pair::new(sender, receiver);
        let totals = pair.run([entry(0, None, size)].into_iter(), integrity);
        assert_eq!((totals.committed, totals.bytes), (1, size));
        assert!(pair.peak.blocks <= sender.unacknowledged_blocks);
        eprintln!(
            "300,000 blocks, {integrity:?}: {:?}, {:?}",
            began.elapsed(),
            pair.peak
        );
    }
}

#[test]
fn a_file_of_300_000_blocks_that_loses_its_stream_again_and_again() {
    let integrity = Integrity::Checksum;
    let sender = SenderSettings {
        asks: true,
        ..SenderSettings::default()
    };
    let receiver = ReceiverSettings {
        integrity,
        ..ReceiverSettings::default()
    };
    let mut pair = Pair::new(sender, receiver);
    // Every other block exists, so that the rest is maximally fragmented.
    let left = (0..8000_u64).map(|index| DurableBlock {
        offset: index << 21,
        length: 1 << 20,
        checksum: checksum(integrity),
    });
    pair.left.insert(EntryId(0), left.collect());
    pair.sender
        .work_mut()
        .handle_entry(entry(0, None, 300_000 << 20));
    pair.sender.work_mut().handle_walk_end();
    pair.talk();
    let mut stream = STREAM;
    for _ in 0..20 {
        let mut taken = 0;
        while let Some(job) = pair.sender.poll_read(pair.now) {
            assert!(pair.sender.handle_piece_read(job.block, PieceRead::Ready));
            taken += usize::from(pair.sender.poll_dispatch(stream, pair.now).is_some());
        }
        assert_eq!(taken, sender.unacknowledged_blocks);
        pair.sender.handle_stream_down(stream);
        stream = StreamId(stream.0 + 1);
        pair.sender.handle_stream_up(stream, pair.now);
    }
}

#[test]
fn offsets_hold_up_to_the_largest_file() {
    let integrity = Integrity::Checksum;
    let sender = SenderSettings {
        asks: true,
        ..SenderSettings::default()
    };
    let receiver = ReceiverSettings {
        integrity,
        ..ReceiverSettings::default()
    };
    let size = LARGEST_FILE_BYTES;
    // All but the last 3 MiB and a bit exist, in blocks of the maximum size.
    let mut left = Vec::new();
    let mut offset = 0;
    let end = (size >> 20 << 20) - (2 << 20);
    while offset < end {
        let length = longhaul_proto::digest::longest_block(offset, end, size, 1 << 62);
        left.push(DurableBlock {
            offset,
            length,
            checksum: checksum(integrity),
        });
        offset += length;
    }
    let mut pair = Pair::new(sender, receiver);
    pair.left.insert(EntryId(0), left);
    let totals = pair.run([entry(0, None, size)].into_iter(), integrity);
    assert_eq!((totals.committed, totals.bytes), (1, size));
    assert_eq!(pair.bytes_sent, size - end);
    assert_eq!(
        pair.ranges.last().map(|(offset, length)| offset + length),
        Some(size)
    );
}

#[test]
fn a_reserve_stream_gets_no_blocks_while_others_take_them() {
    let (spare, direct) = (STREAM, StreamId(1));
    let settings = SenderSettings {
        asks: false,
        ..SenderSettings::default()
    };
    let mut sender = Sender::new(settings);
    let now = Moment(0);
    sender.handle_stream_up(spare, now);
    let size = 8 << 20;
    sender.work_mut().handle_entry(entry(0, None, size));
    sender.work_mut().handle_walk_end();
    let mut lengths = BTreeMap::new();
    let mut read = |sender: &mut Sender| {
        while let Some(job) = sender.poll_read(now) {
            assert!(sender.handle_piece_read(job.block, PieceRead::Ready));
            if let ReadData::Piece { piece, .. } = job.data {
                lengths.insert(job.block, piece.length);
            }
        }
    };
    read(&mut sender);
    let take = |sender: &mut Sender, stream| match sender.poll_dispatch(stream, now) {
        Some(Dispatch::Send(block)) => Some(block),
        _ => None,
    };
    let first = take(&mut sender, spare).unwrap();
    sender.handle_stream_up(direct, now);
    sender.handle_reserve(spare, true);
    assert!(!sender.has_ready_for(spare) && sender.has_ready_for(direct));
    assert_eq!(take(&mut sender, spare), None);
    let second = take(&mut sender, direct).unwrap();
    assert_ne!(first, second);
    // The blocks of the lost stream are sent again over the spare one, which keeps its own blocks.
    sender.handle_stream_down(direct);
    sender.handle_reserve(spare, false);
    read(&mut sender);
    let rest: Vec<BlockId> = std::iter::from_fn(|| take(&mut sender, spare)).collect();
    let bytes: u64 = rest.iter().map(|block| lengths[block]).sum();
    assert_eq!(bytes, size - lengths[&first]);
    assert!(!rest.contains(&first));
}

/// Returns the lengths of the blocks of a file of `size` bytes over four streams, before or after
/// the end of the walk.
fn lengths_of(size: u64, walk_ended: bool) -> Vec<u64> {
    let settings = SenderSettings {
        asks: false,
        ..SenderSettings::default()
    };
    let (mut sender, now) = (Sender::new(settings), Moment(0));
    (0..4).for_each(|number| sender.handle_stream_up(StreamId(number), now));
    sender.work_mut().handle_entry(entry(0, None, size));
    if walk_ended {
        sender.work_mut().handle_walk_end();
    }
    let mut lengths = Vec::new();
    while let Some(job) = sender.poll_read(now) {
        assert!(sender.handle_piece_read(job.block, PieceRead::Ready));
        if let ReadData::Piece { piece, .. } = job.data {
            lengths.push(piece.length);
        }
    }
    lengths
}

#[test]
fn the_first_and_the_last_blocks_are_short() {
    let whole = SenderSettings::default().block_bytes;
    let lengths = lengths_of(41 * whole, true);
    assert_eq!(lengths.iter().sum::<u64>(), 41 * whole);
    // The first four blocks of each stream are short, too, until some have arrived.
    let (first, lengths) = lengths.split_at(16);
    assert_eq!(first, vec![64 << 10; 16]);
    // Blocks are full while at least two full ones remain for each stream.
    let first = lengths
        .iter()
        .take_while(|length| **length == whole)
        .count();
    assert_eq!(first, 33);
    assert!(lengths.is_sorted_by(|before, next| before >= next));
    assert_eq!(lengths.last(), Some(&(64 << 10)));
    assert!(lengths.len() < 80, "{lengths:?}");
    // Before the walk ends, more data may follow.
    assert_eq!(lengths_of(41 * whole, false)[16..], vec![whole; 40]);
}

#[test]
fn blocks_are_as_long_as_they_may_be_for_now() {
    let settings = SenderSettings {
        asks: false,
        ..SenderSettings::default()
    };
    let (mut sender, now) = (Sender::new(settings), Moment(0));
    sender.handle_stream_up(StreamId(0), now);
    sender.work_mut().handle_entry(entry(0, None, 41 << 20));
    let mut next = |bytes: Option<u64>| {
        if let Some(bytes) = bytes {
            sender.bound_blocks(bytes);
        }
        let job = sender.poll_read(now).unwrap();
        assert!(sender.handle_piece_read(job.block, PieceRead::Ready));
        match job.data {
            ReadData::Piece { piece, .. } => (piece.offset, piece.length),
            other => panic!("{other:?}"),
        }
    };
    // Each stream begins with four short blocks.
    (0..4).for_each(|number| assert_eq!(next(None), (number << 16, 64 << 10)));
    assert_eq!(next(Some(300_000)), (256 << 10, 256 << 10));
    assert_eq!(next(None), (512 << 10, 256 << 10));
    // A block's offset is a multiple of its length, which limits the length here.
    assert_eq!(next(Some(u64::MAX)), (768 << 10, 256 << 10));
    assert_eq!(next(None), (1 << 20, 1 << 20));
    assert_eq!(next(Some(0)), (2 << 20, 64 << 10));
}
