//! Drives the sending end: walk, read, dispatch.

use std::collections::BTreeMap;

use longhaul_proto::block::{BlockHeader, Codec, Content, PackedEntry, Piece, PieceName};
use longhaul_proto::digest::Integrity;
use longhaul_proto::frame::{self, FrameKind};
use longhaul_proto::manifest::{Entry, EntryId, EntryKind, TreePath};
use longhaul_proto::message::{Failure, FailureKind};
use longhaul_proto::sender::{
    BlockId, Dispatch, PackedJob, PackedRead, PieceRead, ReadData, ReadJob, Sender, SenderSettings,
};

use super::network::{Conn, End, Frame};
use super::source::{self, NodeKind, Source, Step};
use super::world::{Event, World};

/// The sending end.
pub struct Sending {
    pub sender: Sender,
    /// Number of readers that the steering end set; `None` for the scenario's.
    pub readers: Option<usize>,
    /// Node of each entry.
    pub nodes: BTreeMap<EntryId, usize>,
    /// Path of each node.
    pub paths: BTreeMap<usize, TreePath>,
    settings: SenderSettings,
    integrity: Integrity,
    steps: Vec<Step>,
    at: usize,
    /// Open directories: number, entry and number of children.
    open: Vec<(usize, Entry, u64)>,
    next: u64,
    waiting: bool,
    reading: usize,
    held: BTreeMap<BlockId, (BlockHeader, Vec<u8>)>,
}

fn vanished() -> Failure {
    Failure::new(FailureKind::Vanished, "gone")
}

impl Sending {
    pub fn new(settings: SenderSettings, integrity: Integrity, source: &Source) -> Sending {
        Sending {
            sender: Sender::new(settings),
            readers: None,
            nodes: BTreeMap::new(),
            paths: source
                .nodes
                .iter()
                .map(|node| node.path.clone())
                .enumerate()
                .collect(),
            settings,
            integrity,
            steps: source.walk(),
            at: 0,
            open: Vec::new(),
            next: 0,
            waiting: false,
            reading: 0,
            held: BTreeMap::new(),
        }
    }

    /// Returns the number of entries walked.
    pub fn walked(&self) -> u64 {
        self.next
    }

    fn step(&mut self, source: &Source) {
        let Some(&step) = self.steps.get(self.at) else {
            return;
        };
        self.at += 1;
        match step {
            Step::Enter(node) => self.enter(node, source),
            Step::Leave => {
                let (_, entry, children) = self.open.pop().unwrap();
                self.sender.work_mut().handle_directory_end(entry, children);
            }
        }
        if self.at == self.steps.len() {
            self.sender.work_mut().handle_walk_end();
        }
    }

    fn enter(&mut self, node: usize, source: &Source) {
        if source.nodes[node].vanished {
            return;
        }
        let id = EntryId(self.next);
        self.next += 1;
        let parent = self.open.last_mut().map(|open| {
            open.2 += 1;
            open.1.id
        });
        let entry = source.entry(node, id, parent);
        self.nodes.insert(id, node);
        if matches!(source.nodes[node].kind, NodeKind::Directory) {
            self.open.push((node, entry.clone(), 0));
        }
        if source.nodes[node].unreadable {
            let failure = Failure::new(FailureKind::Permission, "unreadable");
            self.sender.work_mut().handle_unreadable(entry, failure);
        } else {
            self.sender.work_mut().handle_entry(entry);
        }
    }

    /// Reads a pack. Returns the results and the data of its entries.
    fn read_pack(&self, jobs: &[PackedJob], source: &Source) -> PackData {
        let (mut results, mut packed, mut payload) = (Vec::new(), Vec::new(), Vec::new());
        // A file that grew may only take room that is not reserved for other entries.
        let mut promised: u64 = jobs.iter().map(|job| job.entry.size()).sum();
        for PackedJob { entry, generation } in jobs {
            promised -= entry.size();
            let node = self.nodes[&entry.id];
            let now = source.entry(node, entry.id, entry.parent);
            let room = (self.settings.block_bytes - promised).saturating_sub(payload.len() as u64);
            let result = match (source.nodes[node].vanished, now == *entry) {
                (true, _) => PackedRead::Failed(vanished()),
                (false, true) => PackedRead::Ready(None),
                (false, false) if now.size() > room => PackedRead::Grown(now.clone()),
                (false, false) => PackedRead::Ready(Some(now.clone())),
            };
            if matches!(result, PackedRead::Ready(_)) {
                let data = source.whole(node, source::version_of(&now));
                let file = matches!(now.kind, EntryKind::File { .. });
                let integrity = self.integrity;
                packed.push(PackedEntry {
                    generation: *generation,
                    checksum: file.then(|| longhaul_proto::digest::whole_file(integrity, &data)),
                    entry: now,
                });
                payload.extend(data);
            }
            results.push((entry.id, result));
        }
        (results, packed, payload)
    }

    fn read_piece(&self, entry: &Entry, piece: PieceName, source: &Source) -> (PieceRead, Vec<u8>) {
        let node = self.nodes[&entry.id];
        let now = source.entry(node, entry.id, entry.parent);
        if source.nodes[node].vanished {
            return (PieceRead::Failed(vanished()), Vec::new());
        }
        if now != *entry {
            return (PieceRead::Changed(now), Vec::new());
        }
        let version = source::version_of(entry);
        (
            PieceRead::Ready,
            source.content(node, version, piece.offset, piece.length),
        )
    }

    fn hold_piece(&mut self, block: BlockId, entry: Entry, name: PieceName, data: Vec<u8>) {
        let sparse = matches!(entry.kind, EntryKind::File { sparse: true, .. });
        let extents = sparse.then(|| source::extents(&data));
        let payload = match &extents {
            None => data.clone(),
            Some(extents) => extents
                .iter()
                .flat_map(|e| &data[e.start as usize..(e.start + e.length) as usize])
                .copied()
                .collect(),
        };
        let size = entry.size();
        let piece = Piece {
            entry,
            generation: name.generation,
            offset: name.offset,
            length: name.length,
            extents,
            checksum: Some(source::checksum(self.integrity, name.offset, &data, size)),
        };
        self.hold(block, Content::Piece(piece), payload);
    }

    fn hold(&mut self, block: BlockId, content: Content, payload: Vec<u8>) {
        let header = BlockHeader {
            content,
            codec: Codec::Plain,
            decoded: payload.len() as u64,
            transit: None,
            proof: None,
            trailer: None,
            shuffle: None,
        };
        assert!(header.is_valid(payload.len()), "{header:?}");
        self.held.insert(block, (header, payload));
    }
}

type PackData = (Vec<(EntryId, PackedRead)>, Vec<PackedEntry>, Vec<u8>);

impl World {
    pub fn handle_walk(&mut self) {
        let sending = &mut self.sending;
        if sending.steps.is_empty() && sending.at == 0 {
            sending.at = 1;
            sending.sender.work_mut().handle_walk_end();
        }
        // All steps that take no time are done at once.
        loop {
            if sending.at >= sending.steps.len() {
                return;
            }
            if sending.sender.work().entry_credit() == 0 {
                sending.sender.work_mut().flush_listing();
                sending.waiting = true;
                return;
            }
            sending.step(&self.source);
            let window = sending.settings.window_entries;
            assert!(
                sending.sender.work().tracked() <= window,
                "more entries than the window"
            );
            if !self.scenario.walk.1.is_zero() {
                break;
            }
        }
        self.push_within(self.scenario.walk, Event::Walk);
    }

    pub fn pump_sender(&mut self) {
        if self.sending.waiting && self.sending.sender.work().entry_credit() > 0 {
            self.sending.waiting = false;
            self.push(std::time::Duration::ZERO, Event::Walk);
        }
        while let Some(suspect) = self.sending.sender.poll_suspect(self.now) {
            let own = |conn: &Conn| conn.epoch == self.epoch && conn.id == suspect;
            let conn = self.conns.iter().rfind(|conn| own(conn)).unwrap();
            let guilty = conn.has_unsent(End::Sender);
            self.sending
                .sender
                .streams_mut()
                .handle_judged(suspect, guilty, self.now);
        }
        let readers = self.sending.readers.unwrap_or(self.scenario.readers);
        loop {
            let before = (self.sending.reading, self.sending.held.len());
            while self.sending.reading < readers
                && self.sending.reading + self.sending.held.len() < self.scenario.pool
                && let Some(job) = self.sending.sender.poll_read(self.now)
            {
                self.checks.read(&job, &self.sending);
                self.sending.reading += 1;
                if self.scenario.read.1.is_zero() {
                    self.handle_read(job);
                } else {
                    self.push_within(self.scenario.read, Event::Read(job));
                }
            }
            // Messages come first, because blocks take all available room.
            self.pump_control(End::Sender);
            self.dispatch();
            if (self.sending.reading, self.sending.held.len()) == before {
                break;
            }
        }
        self.checks
            .drain_events(&mut self.sending, &mut self.receiving);
    }

    pub fn handle_read(&mut self, job: ReadJob) {
        let sending = &mut self.sending;
        sending.reading -= 1;
        match job.data {
            ReadData::Pack(jobs) => {
                let (results, packed, payload) = sending.read_pack(&jobs, &self.source);
                if sending.sender.handle_pack_read(job.block, results) {
                    sending.hold(job.block, Content::Pack(packed), payload);
                }
            }
            ReadData::Front { .. } => panic!("no front is sent here"),
            ReadData::Piece { entry, piece } => {
                let (result, data) = sending.read_piece(&entry, piece, &self.source);
                if sending.sender.handle_piece_read(job.block, result) {
                    sending.hold_piece(job.block, entry, piece, data);
                }
            }
        }
    }

    /// Gives blocks to streams as long as they take them.
    fn dispatch(&mut self) {
        let mut live: Vec<usize> = self.live();
        live.retain(|&conn| self.conns[conn].up[End::Sender.index()]);
        // A random stream takes the next block, because streams become free in any order.
        while !live.is_empty() {
            let at = self.random.below(live.len() as u64) as usize;
            let conn = live[at];
            let id = self.conns[conn].id;
            let dispatch = self.conns[conn]
                .has_room(End::Sender)
                .then(|| self.sending.sender.poll_dispatch(id, self.now))
                .flatten();
            match dispatch {
                None => {
                    live.swap_remove(at);
                }
                Some(Dispatch::Discard(block)) => {
                    assert!(
                        self.sending.held.remove(&block).is_some(),
                        "{block:?} discarded twice"
                    );
                }
                Some(Dispatch::Send(block)) => self.send(conn, block),
            }
        }
    }

    fn send(&mut self, conn: usize, block: BlockId) {
        let (header, mut payload) = self.sending.held.remove(&block).expect("it was read");
        self.checks.send(&header, self.now, &self.sending);
        let wrong = self.random.chance(self.scenario.corrupt);
        let undecodable = wrong && self.random.chance(300);
        if wrong && !undecodable && !payload.is_empty() {
            let at = self.random.below(payload.len() as u64) as usize;
            payload[at] ^= 1 << self.random.below(8);
        }
        let header = frame::encode(FrameKind::Block, &header, payload.len()).unwrap();
        self.write(
            conn,
            End::Sender,
            Frame::Block {
                header,
                payload,
                undecodable,
            },
        );
    }
}
