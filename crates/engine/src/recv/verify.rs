//! Decompresses blocks and compares their checksums. Only verified blocks can be written: a
//! [`VerifiedBlock`] is created only here.
//!
//! Uncompressed blocks are hashed by the stream's reader while they are in the cache
//! (`ArrivingHasher`). Only compressed blocks move to another thread.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::io;

use longhaul_proto::block::{BlockHeader, Codec, Content, ContentName, Extent, PackedEntry, Piece};
use longhaul_proto::coding::CodecUse;
use longhaul_proto::digest::{BlockHasher, Checksum, Integrity, whole_file};
use longhaul_proto::manifest::{Entry, EntryKind, TreePath};
use longhaul_proto::message::AgainReason;
use longhaul_proto::receiver::Verdict;
use longhaul_proto::shuffle::Shuffle;
use longhaul_storage::file_data::hash_zeros;
use longhaul_system::queue::lock;
use twox_hash::XxHash3_64;

use super::Receiving;
use crate::codec::Decoder;
use crate::flows::Flow;
use crate::pool::Buffer;
use crate::session::observe::thread_cpu_time;
use crate::session::{Counters, Event};

/// A received block that is wanted at least in part.
pub struct ArrivedBlock {
    pub(super) header: BlockHeader,
    pub(super) keeps: Vec<Verdict>,
    pub(super) buffer: Buffer,
    /// Checksums of the content as it arrived; `None` if it must still be hashed.
    pub(super) found: Option<Found>,
}

impl ArrivedBlock {
    /// True if the trailer declares the block void, because the source could not read it as
    /// planned.
    fn is_void(&self) -> bool {
        let lacks = |piece: &Piece| piece.checksum.is_none();
        self.header.trailer.is_some()
            && matches!(&self.header.content, Content::Piece(piece) if lacks(piece))
    }
}

/// Checksums of a block's content, in the order of its entries.
pub(crate) struct Found(Vec<Option<Checksum>>);

/// A block with the bytes that the source read.
pub struct VerifiedBlock {
    pub(super) content: Content,
    /// Verdicts on the entries of a pack.
    pub(super) keeps: Vec<Verdict>,
    pub(super) buffer: Buffer,
    /// True if the block carries checksums only.
    pub(super) omitted: bool,
}

/// On clear connections: blocks whose checksums have not arrived, and checksums whose block has not
/// arrived.
#[derive(Default)]
pub(crate) struct Awaited {
    blocks: HashMap<ContentName, ArrivedBlock>,
    /// One list for each block of a content that is still to come. The first block may be damaged,
    /// and a duplicate that is split otherwise needs its separate list.
    checksums: HashMap<ContentName, VecDeque<Vec<Option<Checksum>>>>,
    /// Number of checksums in all lists.
    count: usize,
    /// Number of checksums at which to look for useless ones next.
    look_at: usize,
}

impl Awaited {
    /// Removes the checksums of a block that is not needed, unless an earlier block of that content
    /// still waits for them.
    pub(super) fn forget(&mut self, name: &ContentName) {
        if !self.blocks.contains_key(name) {
            self.remove(name);
        }
    }

    fn insert(&mut self, name: ContentName, checksums: Vec<Option<Checksum>>) {
        self.count += checksums.len().max(1);
        self.checksums.entry(name).or_default().push_back(checksums);
    }

    fn remove(&mut self, name: &ContentName) -> Option<Vec<Option<Checksum>>> {
        let lists = self.checksums.get_mut(name)?;
        let checksums = lists.pop_front();
        if lists.is_empty() {
            self.checksums.remove(name);
        }
        self.count -= checksums.as_ref().map_or(0, |list| list.len().max(1));
        checksums
    }

    /// Removes checksums whose block was lost and came another way.
    fn retain(&mut self, of_use: impl Fn(&ContentName) -> bool) {
        self.checksums.retain(|name, _| of_use(name));
        let lists = self.checksums.values().flatten();
        let lengths = lists.map(|list| list.len().max(1));
        self.count = lengths.sum();
        self.look_at = (2 * self.count).max(FIRST_LOOK);
    }
}

/// Maximum number of checksums that wait for their blocks. A sender sends each list just before its
/// block, so more means a faulty sender.
const MAXIMUM_AWAITED: usize = 65_536;

/// Number of checksums at which to look for useless ones first.
const FIRST_LOOK: usize = 8192;

/// Returns a block of a clear connection with its checksums, or keeps it until they arrive.
pub(super) fn match_checksums(
    awaited: &mut Awaited,
    mut block: ArrivedBlock,
) -> Option<ArrivedBlock> {
    let name = block.header.name();
    if let Some(checksums) = awaited.remove(&name) {
        put_checksums(&mut block.header, checksums);
        return Some(block);
    }
    awaited.blocks.insert(name, block);
    None
}

impl Receiving<'_> {
    /// Passes a block with its checksums on: to the writers if it was hashed on arrival, else to
    /// the verifiers. If the threads of streams do all work, it is finished at once.
    pub(super) fn pass_on(&self, block: ArrivedBlock) {
        if self.transfer.settings.is_paired() {
            self.transfer.hold_stream(|| self.finish_here(block));
        } else if block.found.is_none() {
            self.side.queues.arrived.push(block);
        } else if let Some(verified) = self.compare_found(block) {
            self.side.queues.verified.push(verified);
        }
    }

    /// Accepts the checksums of a block on a clear connection. Returns false if there are too many.
    pub(super) fn take_checksums(
        &self,
        name: ContentName,
        checksums: Vec<Option<Checksum>>,
    ) -> bool {
        let mut awaited = lock(&self.side.awaited);
        if let Some(mut block) = awaited.blocks.remove(&name) {
            drop(awaited);
            put_checksums(&mut block.header, checksums);
            self.pass_on(block);
            return true;
        }
        awaited.insert(name, checksums);
        if awaited.count > awaited.look_at.max(FIRST_LOOK) {
            awaited.retain(|name| self.awaits(name));
        }
        awaited.count <= MAXIMUM_AWAITED
    }
}

fn put_checksums(header: &mut BlockHeader, checksums: Vec<Option<Checksum>>) {
    match &mut header.content {
        Content::Piece(piece) => piece.checksum = checksums.into_iter().next().flatten(),
        Content::Pack(entries) => {
            for (packed, checksum) in entries.iter_mut().zip(checksums) {
                packed.checksum = checksum;
            }
        }
    }
}

impl Receiving<'_> {
    /// Compares a block that was hashed on arrival. Reports it and returns `None` if it differs
    /// from the source.
    fn compare_found(&self, mut block: ArrivedBlock) -> Option<VerifiedBlock> {
        let found = block.found.take()?;
        if block.is_void() {
            let mut damaged = Damaged::new(&block);
            damaged.event = None;
            self.report_corrupt(damaged, AgainReason::Void);
            return None;
        }
        if !found.agrees(&block.header.content) {
            self.report_corrupt(Damaged::new(&block), AgainReason::Corrupt);
            return None;
        }
        let ArrivedBlock {
            header,
            keeps,
            buffer,
            ..
        } = block;
        Some(VerifiedBlock {
            content: header.content,
            keeps,
            buffer,
            omitted: false,
        })
    }

    /// Does all work on a block before it is durable, on the thread that received it.
    fn finish_here(&self, block: ArrivedBlock) {
        let verified = match block.found {
            Some(_) => self.compare_found(block),
            None => self.verify_here(block),
        };
        if let Some(verified) = verified {
            self.write_here(verified);
        }
    }

    fn verify_here(&self, block: ArrivedBlock) -> Option<VerifiedBlock> {
        let known = lock(&self.side.decoders).pop();
        let Ok(mut decoder) = known.map_or_else(Decoder::new, Ok) else {
            self.transfer
                .fail_here("there is no memory for the decompressor");
            return None;
        };
        let damaged = Damaged::new(&block);
        let verified = self.side.busy_decoding(|| self.verify(&mut decoder, block));
        // The number of kept decoders is at most the number of streams that decode at once.
        lock(&self.side.decoders).push(decoder);
        verified.unwrap_or_else(|reason| {
            self.report_corrupt(damaged, reason);
            None
        })
    }

    /// Runs the thread of a verifier.
    pub(crate) fn run_verifier(&self, flow: &Flow) {
        let Ok(mut decoder) = Decoder::new() else {
            self.transfer
                .fail_here("there is no memory for the decompressor");
            return;
        };
        while let Some(block) = self.side.queues.arrived.pop(|| flow.is_wanted()) {
            let damaged = Damaged::new(&block);
            match flow.busy(|| self.verify(&mut decoder, block)) {
                Ok(Some(verified)) => self.side.queues.verified.push(verified),
                Ok(None) => return,
                Err(reason) => self.report_corrupt(damaged, reason),
            }
        }
    }

    fn report_corrupt(&self, damaged: Damaged, reason: AgainReason) {
        let Damaged { name, event } = damaged;
        self.tell(|receiver| receiver.handle_corrupt(name, reason));
        if let Some(event) = event {
            self.transfer.report(event);
        }
    }

    /// Verifies a block; `None` if the session is over.
    fn verify(
        &self,
        decoder: &mut Decoder,
        block: ArrivedBlock,
    ) -> Result<Option<VerifiedBlock>, AgainReason> {
        let ArrivedBlock {
            header,
            keeps,
            buffer,
            ..
        } = block;
        let BlockHeader {
            content,
            codec,
            decoded,
            transit,
            proof: _,
            trailer: _,
            shuffle,
        } = header;
        if transit.is_some_and(|transit| transit != XxHash3_64::oneshot(buffer.filled())) {
            return Err(AgainReason::Corrupt);
        }
        let omitted = codec == Codec::Omitted;
        let buffer = if codec.compresses() {
            match self.decode(decoder, (codec, shuffle), decoded as usize, &buffer) {
                Ok(Some(plain)) => plain,
                Ok(None) => return Ok(None),
                Err(_) => return Err(AgainReason::Undecodable),
            }
        } else {
            buffer
        };
        let integrity = self.transfer.settings.integrity;
        let agrees = omitted
            || match &content {
                Content::Piece(piece) => piece_agrees(integrity, piece, buffer.filled()),
                Content::Pack(entries) => pack_agrees(integrity, entries, buffer.filled()),
            };
        if agrees {
            Ok(Some(VerifiedBlock {
                content,
                keeps,
                buffer,
                omitted,
            }))
        } else {
            Err(AgainReason::Corrupt)
        }
    }

    /// Decodes into a buffer of a separate pool, so that blocks that wait for decoding cannot
    /// exhaust the memory for it.
    fn decode(
        &self,
        decoder: &mut Decoder,
        (codec, shuffle): (Codec, Option<Shuffle>),
        decoded: usize,
        from: &Buffer,
    ) -> io::Result<Option<Buffer>> {
        let Some(mut room) = self.transfer.coded.take() else {
            return Ok(None);
        };
        if decoded > room.len() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let began = thread_cpu_time();
        decoder.decode_shuffled(codec, shuffle, from.filled(), &mut room[..decoded])?;
        room.set_filled(decoded);
        self.side.uses.add(CodecUse {
            kind: None,
            codec,
            shuffled: shuffle.is_some(),
            bytes: decoded as u64,
            encoded: from.filled().len() as u64,
            nanoseconds: thread_cpu_time().saturating_sub(began),
        });
        Counters::add(&self.transfer.counters.coded_from, decoded as u64);
        Counters::add(&self.transfer.counters.coded_to, from.filled().len() as u64);
        Ok(Some(room))
    }
}

/// Name and event of a damaged block; for a pack, of its wanted entries.
struct Damaged {
    name: ContentName,
    event: Option<Event>,
}

impl Damaged {
    fn new(block: &ArrivedBlock) -> Damaged {
        let damaged = |path: &TreePath, piece, entries| Event::Damaged {
            path: path.clone(),
            piece,
            entries,
        };
        match &block.header.content {
            Content::Piece(piece) => Damaged {
                name: ContentName::Piece(piece.name()),
                event: Some(damaged(
                    &piece.entry.path,
                    Some((piece.offset, piece.length)),
                    1,
                )),
            },
            Content::Pack(entries) => {
                let wanted = entries.iter().zip(&block.keeps);
                let wanted = wanted.filter(|(_, keep)| **keep == Verdict::Keep);
                let wanted: Vec<&Entry> = wanted.map(|(packed, _)| &packed.entry).collect();
                let first = wanted.first();
                Damaged {
                    name: ContentName::Pack(wanted.iter().map(|entry| entry.id).collect()),
                    event: first.map(|first| damaged(&first.path, None, wanted.len())),
                }
            }
        }
    }
}

/// Returns the extents of a piece's payload.
pub(super) fn runs_of(piece: &Piece) -> Vec<Extent> {
    match &piece.extents {
        Some(extents) => extents.clone(),
        None => vec![Extent {
            start: 0,
            length: piece.length as u32,
        }],
    }
}

fn piece_agrees(integrity: Integrity, piece: &Piece, data: &[u8]) -> bool {
    let Some(mut hasher) = PieceHasher::new(integrity, piece) else {
        return false;
    };
    hasher.update(data);
    piece.checksum == Some(hasher.finish())
}

fn pack_agrees(integrity: Integrity, entries: &[PackedEntry], data: &[u8]) -> bool {
    pack_checksums(integrity, entries, data).agree_with(entries)
}

fn pack_checksums(integrity: Integrity, entries: &[PackedEntry], mut data: &[u8]) -> Found {
    let checksums = entries.iter().map(|packed| {
        let EntryKind::File { identity, .. } = &packed.entry.kind else {
            return None;
        };
        // The header was checked: its lengths match its payload's.
        let (file, rest) = data.split_at_checked(identity.size as usize)?;
        data = rest;
        Some(whole_file(integrity, file))
    });
    Found(checksums.collect())
}

impl Found {
    fn agrees(&self, content: &Content) -> bool {
        match content {
            Content::Piece(piece) => piece.checksum.is_some() && self.0 == [piece.checksum],
            Content::Pack(entries) => self.agree_with(entries),
        }
    }

    fn agree_with(&self, entries: &[PackedEntry]) -> bool {
        self.0.len() == entries.len()
            && entries.iter().zip(&self.0).all(|(packed, found)| {
                let file = matches!(packed.entry.kind, EntryKind::File { .. });
                !file || found.is_some() && packed.checksum == *found
            })
    }
}

/// Hashes a piece whose payload is given in parts; holes count as zeros.
pub(crate) struct PieceHasher {
    hasher: BlockHasher,
    runs: std::vec::IntoIter<Extent>,
    /// Remaining bytes of the current run.
    left: usize,
    hashed: u64,
    length: u64,
}

impl PieceHasher {
    /// Creates the hasher; `None` if the piece is outside its file.
    fn new(integrity: Integrity, piece: &Piece) -> Option<PieceHasher> {
        let size = piece.entry.size();
        Some(PieceHasher {
            hasher: BlockHasher::new(integrity, piece.offset, piece.length, size)?,
            runs: runs_of(piece).into_iter(),
            left: 0,
            hashed: 0,
            length: piece.length,
        })
    }

    /// Adds the next part; bytes beyond the piece are ignored.
    fn update(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            if self.left == 0 {
                let Some(run) = self.runs.next() else {
                    return;
                };
                hash_zeros(&mut self.hasher, u64::from(run.start) - self.hashed);
                self.left = run.length as usize;
                self.hashed = u64::from(run.start) + u64::from(run.length);
                continue;
            }
            let (now, rest) = data.split_at(self.left.min(data.len()));
            self.hasher.update(now);
            self.left -= now.len();
            data = rest;
        }
    }

    fn finish(mut self) -> Checksum {
        hash_zeros(&mut self.hasher, self.length - self.hashed);
        self.hasher.finish()
    }
}

/// Hashes a block while its payload arrives, if it needs no decoding.
pub(crate) enum ArrivingHasher {
    /// A piece, hashed in parts.
    Piece(Box<PieceHasher>),
    /// A pack, hashed when it is complete.
    Pack(Integrity),
    /// The block is hashed later.
    Later,
}

impl ArrivingHasher {
    /// Creates the hasher for a valid header.
    pub fn new(integrity: Integrity, header: &BlockHeader) -> ArrivingHasher {
        match &header.content {
            _ if header.codec != Codec::Plain => ArrivingHasher::Later,
            Content::Piece(piece) => PieceHasher::new(integrity, piece)
                .map_or(ArrivingHasher::Later, |hasher| {
                    ArrivingHasher::Piece(Box::new(hasher))
                }),
            Content::Pack(_) => ArrivingHasher::Pack(integrity),
        }
    }

    /// Adds the next part of the payload.
    pub fn update(&mut self, part: &[u8]) {
        if let ArrivingHasher::Piece(hasher) = self {
            hasher.update(part);
        }
    }

    /// Returns the checksums of the complete payload.
    pub fn finish(self, header: &BlockHeader, payload: &[u8]) -> Option<Found> {
        match (self, &header.content) {
            (ArrivingHasher::Piece(hasher), _) => Some(Found(vec![Some(hasher.finish())])),
            (ArrivingHasher::Pack(integrity), Content::Pack(entries)) => {
                Some(pack_checksums(integrity, entries, payload))
            }
            _ => None,
        }
    }
}
