//! Decompresses blocks and compares their checksums. Only what agreed can be
//! written: a [`VerifiedBlock`] is made nowhere else.
//!
//! What is not compressed is hashed by the stream's reader while it is hot in
//! the cache (`ArrivingHasher`); only what is compressed has to be taken to
//! another thread and back into a core's cache.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;

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

use super::ReceiveSide;
use crate::codec::{Decoder, compresses};
use crate::flows::Flow;
use crate::pool::Buffer;
use crate::session::observe::thread_cpu_time;
use crate::session::{Counters, Event, Transfer};

/// A block as it came, wanted at least in part.
pub struct ArrivedBlock {
    pub(super) header: BlockHeader,
    pub(super) keeps: Vec<Verdict>,
    pub(super) buffer: Buffer,
    /// What its content was hashed to as it came; `None` if that is still to be done.
    pub(super) found: Option<Found>,
}

impl ArrivedBlock {
    /// Whether its end said that it is void: what was read is not what was to be.
    fn is_void(&self) -> bool {
        let lacks = |piece: &Piece| piece.checksum.is_none();
        self.header.trailer.is_some()
            && matches!(&self.header.content, Content::Piece(piece) if lacks(piece))
    }
}

/// Checksums of a block's content, in the order of its entries.
pub(crate) struct Found(Vec<Option<Checksum>>);

/// A block whose bytes are what the source read.
pub struct VerifiedBlock {
    pub(super) content: Content,
    /// For a pack, which entries are wanted.
    pub(super) keeps: Vec<Verdict>,
    pub(super) buffer: Buffer,
    /// It brings checksums alone.
    pub(super) omitted: bool,
}

/// With streams in clear: blocks whose checksums have not come yet, and
/// checksums whose block has not.
#[derive(Default)]
pub(crate) struct Awaited {
    blocks: HashMap<ContentName, ArrivedBlock>,
    /// As many lists of a content as blocks of it are still to come: what takes the first
    /// may be damaged, and its twin waits for its own where the rest is cut otherwise.
    checksums: HashMap<ContentName, VecDeque<Vec<Option<Checksum>>>>,
    /// Of all those, this many checksums.
    count: usize,
    /// With how many to look next whether any are of no use.
    look_at: usize,
}

impl Awaited {
    /// A block that nobody needs came: nor are its checksums needed, unless an
    /// earlier one of that content still waits for them.
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

    /// Forgets checksums whose block was lost and came another way.
    fn retain(&mut self, of_use: impl Fn(&ContentName) -> bool) {
        self.checksums.retain(|name, _| of_use(name));
        let lists = self.checksums.values().flatten();
        let lengths = lists.map(|list| list.len().max(1));
        self.count = lengths.sum();
        self.look_at = (2 * self.count).max(FIRST_LOOK);
    }
}

/// Checksums that may wait for their blocks; a sender sends each just before
/// its block, so more means that it lost count.
const MAXIMUM_AWAITED: usize = 65_536;

/// With how many of them to look first whether all are of use.
const FIRST_LOOK: usize = 8192;

/// A block from a stream in clear: given back if its checksums are there.
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

impl ReceiveSide {
    /// A block with its checksums: to the writers where it was hashed as it
    /// came, else to the verifiers; where streams' own threads do all of that, it
    /// is done at once.
    pub(super) fn pass_on(&self, transfer: &Transfer, block: ArrivedBlock) {
        if transfer.is_paired() {
            transfer.hold_stream(|| transfer.finish_here(self, block));
        } else if block.found.is_none() {
            self.arrived.push(block);
        } else if let Some(verified) = transfer.compare_found(block) {
            self.verified.push(verified);
        }
    }

    /// Checksums of a block on a stream in clear. False where there are more
    /// than can be.
    pub(super) fn take_checksums(
        &self,
        transfer: &Transfer,
        name: ContentName,
        checksums: Vec<Option<Checksum>>,
    ) -> bool {
        let mut awaited = lock(&self.awaited);
        if let Some(mut block) = awaited.blocks.remove(&name) {
            drop(awaited);
            put_checksums(&mut block.header, checksums);
            self.pass_on(transfer, block);
            return true;
        }
        awaited.insert(name, checksums);
        if awaited.count > awaited.look_at.max(FIRST_LOOK) {
            awaited.retain(|name| transfer.awaits(name));
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

impl Transfer {
    /// A block that was hashed as it came; none, and reported, where it is not
    /// what the source read.
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

    /// Everything that is to be done with a block before it is durable, on the
    /// thread that received it.
    fn finish_here(&self, side: &ReceiveSide, block: ArrivedBlock) {
        let verified = match block.found {
            Some(_) => self.compare_found(block),
            None => self.verify_here(side, block),
        };
        if let Some(verified) = verified {
            self.write_here(side, verified);
        }
    }

    fn verify_here(&self, side: &ReceiveSide, block: ArrivedBlock) -> Option<VerifiedBlock> {
        let known = lock(&side.decoders).pop();
        let Ok(mut decoder) = known.map_or_else(Decoder::new, Ok) else {
            self.fail_here("there is no memory for the decompressor");
            return None;
        };
        let damaged = Damaged::new(&block);
        let verified = side.busy_decoding(|| self.verify(side, &mut decoder, block));
        // No more are kept than streams decode at once.
        lock(&side.decoders).push(decoder);
        verified.unwrap_or_else(|reason| {
            self.report_corrupt(damaged, reason);
            None
        })
    }

    /// A verifier's thread.
    pub(crate) fn run_verifier(self: &Arc<Transfer>, side: &ReceiveSide, flow: &Flow) {
        let Ok(mut decoder) = Decoder::new() else {
            self.fail_here("there is no memory for the decompressor");
            return;
        };
        while let Some(block) = side.arrived.pop(|| flow.is_wanted()) {
            let damaged = Damaged::new(&block);
            match flow.busy(|| self.verify(side, &mut decoder, block)) {
                Ok(Some(verified)) => side.verified.push(verified),
                Ok(None) => return,
                Err(reason) => self.report_corrupt(damaged, reason),
            }
        }
    }

    fn report_corrupt(&self, damaged: Damaged, reason: AgainReason) {
        let Damaged { name, event } = damaged;
        self.tell_receiver(|receiver| receiver.handle_corrupt(name, reason));
        if let Some(event) = event {
            self.report(event);
        }
    }

    /// `None` if the session is over.
    fn verify(
        &self,
        side: &ReceiveSide,
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
        let buffer = if compresses(codec) {
            match self.decode((side, decoder), (codec, shuffle), decoded as usize, &buffer) {
                Ok(Some(plain)) => plain,
                Ok(None) => return Ok(None),
                Err(_) => return Err(AgainReason::Undecodable),
            }
        } else {
            buffer
        };
        let integrity = self.settings.integrity;
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

    /// Decodes into a buffer of its own pool, so that blocks that wait to be
    /// decoded cannot take the room for it.
    fn decode(
        &self,
        (side, decoder): (&ReceiveSide, &mut Decoder),
        (codec, shuffle): (Codec, Option<Shuffle>),
        decoded: usize,
        from: &Buffer,
    ) -> io::Result<Option<Buffer>> {
        let Some(mut room) = self.coded.take() else {
            return Ok(None);
        };
        if decoded > room.len() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let began = thread_cpu_time();
        decoder.decode_shuffled(codec, shuffle, from.filled(), &mut room[..decoded])?;
        room.set_filled(decoded);
        side.uses.add(CodecUse {
            kind: None,
            codec,
            shuffled: shuffle.is_some(),
            bytes: decoded as u64,
            encoded: from.filled().len() as u64,
            nanoseconds: thread_cpu_time().saturating_sub(began),
        });
        Counters::add(&self.counters.coded_from, decoded as u64);
        Counters::add(&self.counters.coded_to, from.filled().len() as u64);
        Ok(Some(room))
    }
}

/// What of a block is to come again if it is wrong, and what to say then: of a
/// pack what was wanted of it.
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

/// Where a piece's payload lies in it.
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
        // A header's lengths were proved to agree with its payload's.
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

/// Hashes a piece, given its payload a part at a time; its holes count as
/// zeros.
pub(crate) struct PieceHasher {
    hasher: BlockHasher,
    runs: std::vec::IntoIter<Extent>,
    /// Bytes of the run at hand that are still to come.
    left: usize,
    hashed: u64,
    length: u64,
}

impl PieceHasher {
    /// `None` if that is no piece of its file.
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

    /// Adds what comes next; what is more than the piece has is left out.
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

/// Hashes a block while its payload arrives, where it needs no decoding.
pub(crate) enum ArrivingHasher {
    /// A piece, part by part.
    Piece(Box<PieceHasher>),
    /// A pack, once it is whole.
    Pack(Integrity),
    /// Not here.
    Later,
}

impl ArrivingHasher {
    /// For a valid header.
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

    /// The next part of the payload came.
    pub fn update(&mut self, part: &[u8]) {
        if let ArrivingHasher::Piece(hasher) = self {
            hasher.update(part);
        }
    }

    /// All of the payload is there.
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
