//! What carries file data: a piece of a large file, or a pack of small
//! entries. A block says everything about itself, so that it may come on any
//! stream, before or after any message, twice or late.

use minicbor::{Decode, Encode};

use crate::digest::{Checksum, is_block};
use crate::frame::MAXIMUM_PAYLOAD_BYTES;
use crate::handshake::Secret;
use crate::manifest::{Entry, EntryId, EntryKind};

/// Most entries in a pack: what a receiver commits at once.
pub const MAXIMUM_PACK_ENTRIES: usize = 1024;

/// Largest block of file data in bytes.
pub const LARGEST_BLOCK_BYTES: usize = 16 << 20;

/// Most runs of data within one sparse block: one for every 4096 bytes of the
/// smallest block would already be more than any file system keeps.
pub const MAXIMUM_EXTENTS: usize = 4096;

/// How a payload was encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Encode, Decode)]
pub enum Codec {
    /// As it is.
    #[default]
    #[n(0)]
    Plain,
    /// One zstd frame.
    #[n(1)]
    Zstd {
        /// Level, -100 to 22.
        #[n(0)]
        level: i32,
    },
    /// One lz4 block without its length.
    #[n(2)]
    Lz4,
    /// There is no payload: only checksums are compared.
    #[n(3)]
    Omitted,
}

/// A run of data within a sparse block, relative to the block's offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Extent {
    /// First byte, relative to the block.
    #[n(0)]
    pub start: u32,
    /// Bytes.
    #[n(1)]
    pub length: u32,
}

/// A range of a file, aligned so that it is a subtree of the file's digest.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Piece {
    /// The file.
    #[n(0)]
    pub entry: Entry,
    /// How often the source changed under the copy: pieces of different
    /// generations are never mixed.
    #[n(1)]
    pub generation: u32,
    /// First byte.
    #[n(2)]
    pub offset: u64,
    /// Bytes of the file, holes included.
    #[n(3)]
    pub length: u64,
    /// Where the payload's bytes lie; none where there is no hole.
    #[n(4)]
    pub extents: Option<Vec<Extent>>,
    /// Its checksum; none where it comes by [`crate::message::Message`].
    #[n(5)]
    pub checksum: Option<Checksum>,
}

/// One entry of a pack.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct PackedEntry {
    /// The entry. A file's size says how many bytes of the payload are its.
    #[n(0)]
    pub entry: Entry,
    /// As [`Piece::generation`].
    #[n(1)]
    pub generation: u32,
    /// A file's checksum; none where it comes by message, or it is no file.
    #[n(2)]
    pub checksum: Option<Checksum>,
}

/// What a block holds.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Content {
    /// A piece of a large file.
    #[n(0)]
    Piece(#[n(0)] Piece),
    /// Small entries, their data one after the other.
    #[n(1)]
    Pack(#[n(0)] Vec<PackedEntry>),
}

/// The body of a block's frame.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct BlockHeader {
    /// What it holds.
    #[n(0)]
    pub content: Content,
    /// How the payload was encoded.
    #[n(1)]
    pub codec: Codec,
    /// Bytes of the payload once decoded.
    #[n(2)]
    pub decoded: u64,
    /// XXH3-64 of the payload as it is on the wire; only on streams in clear and
    /// of what was compressed, so that no decompressor meets what was corrupted
    /// on its way. The checksums of the content come by message and cover the
    /// rest.
    #[n(3)]
    pub transit: Option<u64>,
    /// Only on streams in clear, where anybody may write: [`HeaderKey::prove`].
    #[cbor(n(4), with = "minicbor::bytes")]
    pub proof: Option<[u8; PROOF_BYTES]>,
}

/// Bytes of a header's proof.
const PROOF_BYTES: usize = 16;

/// Proves that blocks' headers on streams in clear are the other end's: names, modes,
/// times and kinds of files are in them, and checksums cover contents alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderKey(Secret);

impl HeaderKey {
    /// With a secret that went within TLS and is used for nothing else.
    pub fn new(secret: Secret) -> HeaderKey {
        HeaderKey(secret)
    }

    /// Gives a header its proof.
    pub fn prove(&self, header: &mut BlockHeader) {
        header.proof = None;
        header.proof = self.proof_of(header);
    }

    /// Takes the proof of a header that came; false where it is not this header's.
    pub fn check(&self, header: &mut BlockHeader) -> bool {
        let Some(shown) = header.proof.take() else {
            return false;
        };
        let found = self.proof_of(header);
        // No sooner where the first bytes differ.
        found.is_some_and(|found| {
            let differs = found.iter().zip(&shown).map(|(one, other)| one ^ other);
            differs.fold(0, |all, one| all | one) == 0
        })
    }

    fn proof_of(&self, header: &BlockHeader) -> Option<[u8; PROOF_BYTES]> {
        let bytes = minicbor::to_vec(header).ok()?;
        let hash = blake3::keyed_hash(&self.0.0, &bytes);
        hash.as_bytes().first_chunk().copied()
    }
}

/// Names a block's content in messages.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum ContentName {
    /// A piece.
    #[n(0)]
    Piece(#[n(0)] PieceName),
    /// The entries of a pack.
    #[n(1)]
    Pack(#[n(0)] Vec<EntryId>),
}

/// Names a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
pub struct PieceName {
    /// The file.
    #[n(0)]
    pub file: EntryId,
    /// Its generation.
    #[n(1)]
    pub generation: u32,
    /// First byte.
    #[n(2)]
    pub offset: u64,
    /// Bytes.
    #[n(3)]
    pub length: u64,
}

impl Piece {
    /// Its name.
    pub fn name(&self) -> PieceName {
        PieceName {
            file: self.entry.id,
            generation: self.generation,
            offset: self.offset,
            length: self.length,
        }
    }

    /// Bytes of its payload once decoded.
    pub fn data_bytes(&self) -> u64 {
        match &self.extents {
            None => self.length,
            Some(extents) => extents.iter().map(|extent| u64::from(extent.length)).sum(),
        }
    }

    fn is_valid(&self) -> bool {
        let EntryKind::File { identity, .. } = &self.entry.kind else {
            return false;
        };
        self.entry.is_valid()
            && self.length <= LARGEST_BLOCK_BYTES as u64
            && is_block(self.offset, self.length, identity.size)
            && self
                .extents
                .as_ref()
                .is_none_or(|extents| self.are_valid(extents))
    }

    fn are_valid(&self, extents: &[Extent]) -> bool {
        let mut end = 0;
        extents.len() <= MAXIMUM_EXTENTS
            && extents.iter().all(|extent| {
                let start = u64::from(extent.start);
                let in_order = start >= end && extent.length > 0;
                end = start + u64::from(extent.length);
                in_order && end <= self.length
            })
    }
}

impl BlockHeader {
    /// Whether a peer may send this: every length and offset within its
    /// bounds and in accord with the others. `wire` is the payload's length
    /// in the frame.
    pub fn is_valid(&self, wire: usize) -> bool {
        let (valid, data) = match &self.content {
            Content::Piece(piece) => (piece.is_valid(), piece.data_bytes()),
            Content::Pack(entries) => {
                let whole = (1..=MAXIMUM_PACK_ENTRIES).contains(&entries.len())
                    && entries.iter().all(|packed| packed.entry.is_valid());
                let data = entries
                    .iter()
                    .try_fold(0_u64, |sum, packed| sum.checked_add(packed.entry.size()));
                (whole && data.is_some(), data.unwrap_or(u64::MAX))
            }
        };
        let payload = match self.codec {
            Codec::Omitted => wire == 0 && self.decoded == 0,
            Codec::Plain => wire as u64 == data && self.decoded == data,
            Codec::Zstd { level } => (-100..=22).contains(&level) && self.decoded == data,
            Codec::Lz4 => self.decoded == data,
        };
        // Also of what is omitted: whoever compares reads as much.
        let bounded = data <= LARGEST_BLOCK_BYTES as u64;
        valid && payload && bounded && wire <= MAXIMUM_PAYLOAD_BYTES
    }

    /// The name of what it holds.
    pub fn name(&self) -> ContentName {
        match &self.content {
            Content::Piece(piece) => ContentName::Piece(piece.name()),
            Content::Pack(entries) => {
                ContentName::Pack(entries.iter().map(|packed| packed.entry.id).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{Timestamp, TreePath};

    #[test]
    fn a_header_is_proved_whole() {
        let key = HeaderKey::new(Secret([7; 32]));
        let entry = |mode| Entry {
            id: EntryId(3),
            parent: None,
            path: TreePath::new(b"a/b").unwrap(),
            kind: EntryKind::Directory,
            mode,
            modified: Timestamp::default(),
        };
        let header = |mode, generation| BlockHeader {
            content: Content::Pack(vec![PackedEntry {
                entry: entry(mode),
                generation,
                checksum: None,
            }]),
            codec: Codec::Plain,
            decoded: 0,
            transit: None,
            proof: None,
        };
        let proved = |key: HeaderKey| {
            let mut header = header(0o644, 1);
            key.prove(&mut header);
            header
        };
        assert!(key.check(&mut proved(key)));
        assert!(!key.check(&mut header(0o644, 1)));
        assert!(!key.check(&mut proved(HeaderKey::new(Secret([8; 32])))));
        for mut changed in [header(0o4644, 1), header(0o644, 2)] {
            changed.proof = proved(key).proof;
            assert!(!key.check(&mut changed));
        }
        let mut omitted = proved(key);
        omitted.codec = Codec::Omitted;
        assert!(!key.check(&mut omitted));
    }
}
