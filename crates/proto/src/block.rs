//! Blocks carry file data: a piece of a large file, or a pack of small entries. A block describes
//! itself completely, so that it may arrive on any stream, before or after any message, late or
//! more than once.

use minicbor::{Decode, Encode};

pub use crate::coding::Codec;
use crate::digest::{Checksum, is_block};
use crate::frame::{FrameError, MAXIMUM_PAYLOAD_BYTES};
use crate::handshake::Secret;
use crate::manifest::{Entry, EntryId, EntryKind};
use crate::secret;
use crate::shuffle::Shuffle;

/// Maximum number of entries in a pack: the number that a receiver commits at once.
pub const MAXIMUM_PACK_ENTRIES: usize = 1024;

/// Maximum bytes of file data in a block.
pub const LARGEST_BLOCK_BYTES: usize = 16 << 20;

/// Maximum number of data runs within one sparse block. One run per 4096 bytes of the smallest
/// block would already exceed the number that any file system keeps.
pub const MAXIMUM_EXTENTS: usize = 4096;

/// A run of data within a sparse block, relative to the block's offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Extent {
    /// First byte, relative to the block.
    #[n(0)]
    pub start: u32,
    /// Length in bytes.
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
    /// Number of changes of the source during the copy. Pieces of different generations are never
    /// mixed.
    #[n(1)]
    pub generation: u32,
    /// Offset of the first byte.
    #[n(2)]
    pub offset: u64,
    /// Length in bytes, holes included.
    #[n(3)]
    pub length: u64,
    /// Positions of the payload's bytes; `None` if there is no hole.
    #[n(4)]
    pub extents: Option<Vec<Extent>>,
    /// Checksum; `None` if it follows in a [`crate::message::Message`] or a [`Trailer`].
    #[n(5)]
    pub checksum: Option<Checksum>,
}

/// One entry of a pack.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct PackedEntry {
    /// The entry. A file's size is the number of payload bytes that belong to it.
    #[n(0)]
    pub entry: Entry,
    /// Number of changes of the source, as in [`Piece::generation`].
    #[n(1)]
    pub generation: u32,
    /// Checksum of a file; `None` if it follows in a message, or if the entry is not a file.
    #[n(2)]
    pub checksum: Option<Checksum>,
}

/// Content of a block.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Content {
    /// A piece of a large file.
    #[n(0)]
    Piece(#[n(0)] Piece),
    /// Small entries with their data in the same order.
    #[n(1)]
    Pack(#[n(0)] Vec<PackedEntry>),
}

/// The body of a block's frame.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct BlockHeader {
    /// Content of the block.
    #[n(0)]
    pub content: Content,
    /// Encoding of the payload.
    #[n(1)]
    pub codec: Codec,
    /// Bytes of the decoded payload.
    #[n(2)]
    pub decoded: u64,
    /// XXH3-64 of the encoded payload. Present only for compressed payloads on streams in clear, so
    /// that no decompressor reads data that was corrupted on its way. The checksums of the content
    /// are sent in messages and cover all other cases.
    #[n(3)]
    pub transit: Option<u64>,
    /// Proof that the header comes from the other end ([`HeaderKey::prove`]). Present only on
    /// streams in clear, where anybody may write.
    #[cbor(n(4), with = "minicbor::bytes")]
    pub proof: Option<[u8; PROOF_BYTES]>,
    /// Trailer after the payload. Absent on streams in clear.
    #[n(5)]
    pub trailer: Option<Trailer>,
    /// Shuffle that was applied before the codec.
    #[n(6)]
    pub shuffle: Option<Shuffle>,
}

/// Data after a block's payload, in [`TRAILER_BYTES`] that count as payload in the frame. A sender
/// that reads, hashes and sends a piece in parts knows the checksum only at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Trailer {
    /// The checksum that the piece's header lacks, or a mark that the piece is void.
    #[n(0)]
    Checksum,
}

/// Bytes of a trailer. The first byte is 0 for a void piece (followed by zeros), 1 for a BLAKE3
/// checksum, or 2 for XXH3-64 (little-endian, followed by zeros).
pub const TRAILER_BYTES: usize = 33;

impl Trailer {
    /// Encodes a trailer. Without a checksum the piece is void: its data is not the data that was
    /// announced.
    pub fn encode(checksum: Option<Checksum>) -> [u8; TRAILER_BYTES] {
        let mut bytes = [0; TRAILER_BYTES];
        match checksum {
            None => {}
            Some(Checksum::Blake3(hash)) => {
                bytes[0] = 1;
                bytes[1..].copy_from_slice(&hash);
            }
            Some(Checksum::Xxh3(hash)) => {
                bytes[0] = 2;
                bytes[1..9].copy_from_slice(&hash.to_le_bytes());
            }
        }
        bytes
    }

    /// Decodes the checksum of a trailer; `None` if the piece is void.
    ///
    /// # Errors
    ///
    /// [`FrameError::Unexpected`] if the trailer has none of the forms that [`TRAILER_BYTES`]
    /// lists.
    pub fn parse(bytes: &[u8; TRAILER_BYTES]) -> Result<Option<Checksum>, FrameError> {
        let [kind, hash @ ..] = bytes;
        let (number, rest) = hash.split_at(8);
        match (kind, number.try_into()) {
            (0, _) if hash.iter().all(|byte| *byte == 0) => Ok(None),
            (1, _) => Ok(Some(Checksum::Blake3(*hash))),
            (2, Ok(number)) if rest.iter().all(|byte| *byte == 0) => {
                Ok(Some(Checksum::Xxh3(u64::from_le_bytes(number))))
            }
            _ => Err(FrameError::Unexpected("a trailer of an unknown kind")),
        }
    }
}

/// Length of a header's proof in bytes.
const PROOF_BYTES: usize = 16;

/// Key that proves the origin of block headers on streams in clear. Headers have names, modes,
/// times and kinds of files, and checksums cover only contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderKey(Secret);

impl HeaderKey {
    /// Makes a key from a secret that was sent within TLS and has no other use.
    pub fn new(secret: Secret) -> HeaderKey {
        HeaderKey(secret)
    }

    /// Adds the proof to a header.
    pub fn prove(&self, header: &mut BlockHeader) {
        header.proof = None;
        header.proof = self.proof_of(header);
    }

    /// Removes the proof from a received header. Returns false if the proof is missing or wrong.
    pub fn check(&self, header: &mut BlockHeader) -> bool {
        let Some(shown) = header.proof.take() else {
            return false;
        };
        let found = self.proof_of(header);
        found.is_some_and(|found| secret::are_equal(&found, &shown))
    }

    fn proof_of(&self, header: &BlockHeader) -> Option<[u8; PROOF_BYTES]> {
        let bytes = minicbor::to_vec(header).ok()?;
        let hash = blake3::keyed_hash(&self.0.0, &bytes);
        hash.as_bytes().first_chunk().copied()
    }
}

/// Name of a block's content in messages.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum ContentName {
    /// A piece.
    #[n(0)]
    Piece(#[n(0)] PieceName),
    /// The entries of a pack.
    #[n(1)]
    Pack(#[n(0)] Vec<EntryId>),
}

/// Name of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
pub struct PieceName {
    /// Number of the file.
    #[n(0)]
    pub file: EntryId,
    /// Generation of the file.
    #[n(1)]
    pub generation: u32,
    /// Offset of the first byte.
    #[n(2)]
    pub offset: u64,
    /// Length in bytes.
    #[n(3)]
    pub length: u64,
}

impl Piece {
    /// Returns the name of the piece.
    pub fn name(&self) -> PieceName {
        PieceName {
            file: self.entry.id,
            generation: self.generation,
            offset: self.offset,
            length: self.length,
        }
    }

    /// Returns the bytes of the decoded payload.
    pub fn data_bytes(&self) -> u64 {
        match &self.extents {
            None => self.length,
            Some(extents) => extents.iter().map(|extent| u64::from(extent.length)).sum(),
        }
    }

    /// Returns the bytes of the piece's holes, which are in no payload.
    pub fn hole_bytes(&self) -> u64 {
        self.length.saturating_sub(self.data_bytes())
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
    /// True if a peer may send this header: every length and offset is within its bounds and
    /// consistent with the others. `wire` is the payload's length in the frame.
    pub fn is_valid(&self, wire: usize) -> bool {
        let Some(wire) = self.data_on_wire(wire) else {
            return false;
        };
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
            codec => codec.is_valid() && self.decoded == data,
        };
        // The bound also applies to omitted payloads, because a comparison reads as much.
        let bounded = data <= LARGEST_BLOCK_BYTES as u64;
        let shuffled = self.shuffle.is_none() || self.codec.compresses();
        valid && payload && shuffled && bounded && self.may_trail() && wire <= MAXIMUM_PAYLOAD_BYTES
    }

    /// Returns the number of the `wire` payload bytes that are content, before the trailer; `None`
    /// if there is no room for a trailer.
    pub fn data_on_wire(&self, wire: usize) -> Option<usize> {
        match self.trailer {
            Some(Trailer::Checksum) => wire.checked_sub(TRAILER_BYTES),
            None => Some(wire),
        }
    }

    /// Sets a piece's checksum to that of its trailer.
    pub fn put_checksum(&mut self, checksum: Option<Checksum>) {
        if let Content::Piece(piece) = &mut self.content {
            piece.checksum = checksum;
        }
    }

    /// True if the header has no trailer, or a trailer that is allowed.
    fn may_trail(&self) -> bool {
        let plain = self.codec == Codec::Plain && self.transit.is_none() && self.proof.is_none();
        let due = match &self.content {
            Content::Piece(piece) => piece.checksum.is_none() && piece.extents.is_none(),
            Content::Pack(_) => false,
        };
        self.trailer.is_none() || plain && due
    }

    /// Returns the name of the block's content.
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
    use crate::shuffle::{Arrangement, ElementSize};

    #[test]
    fn a_trailer_has_a_checksum_or_is_void() {
        let hash = std::array::from_fn(|at| at as u8);
        for checksum in [
            None,
            Some(Checksum::Blake3(hash)),
            Some(Checksum::Blake3([0; 32])),
            Some(Checksum::Xxh3(0x0102_0304_0506_0708)),
            Some(Checksum::Xxh3(0)),
        ] {
            let bytes = Trailer::encode(checksum);
            assert_eq!(Trailer::parse(&bytes), Ok(checksum));
            let mut other = bytes;
            other[0] = 3;
            assert!(Trailer::parse(&other).is_err());
            let blake3 = matches!(checksum, Some(Checksum::Blake3(_)));
            other = bytes;
            other[TRAILER_BYTES - 1] ^= 1;
            assert_eq!(Trailer::parse(&other).is_ok(), blake3);
        }
    }

    fn entry() -> Entry {
        let identity = crate::manifest::SourceIdentity {
            size: 1024,
            ..Default::default()
        };
        Entry {
            id: EntryId(3),
            parent: None,
            path: TreePath::new(b"a").unwrap(),
            kind: EntryKind::File {
                identity,
                sparse: false,
            },
            mode: 0o644,
            modified: Timestamp::default(),
            owner: None,
        }
    }

    fn piece_with_trailer() -> BlockHeader {
        let piece = Piece {
            entry: entry(),
            generation: 0,
            offset: 0,
            length: 1024,
            extents: None,
            checksum: None,
        };
        BlockHeader {
            content: Content::Piece(piece),
            codec: Codec::Plain,
            decoded: 1024,
            transit: None,
            proof: None,
            trailer: Some(Trailer::Checksum),
            shuffle: None,
        }
    }

    #[test]
    fn a_trailer_is_behind_a_plain_piece_without_a_checksum() {
        let header = piece_with_trailer();
        assert!(header.is_valid(1024 + TRAILER_BYTES));
        assert_eq!(header.data_on_wire(1024 + TRAILER_BYTES), Some(1024));
        for wire in [0, 1, 32, 1024, 1024 + TRAILER_BYTES - 1] {
            assert!(!header.is_valid(wire), "{wire}");
        }
        let with = |change: &dyn Fn(&mut BlockHeader)| {
            let mut other = header.clone();
            change(&mut other);
            other
        };
        let packed = PackedEntry {
            entry: entry(),
            generation: 0,
            checksum: None,
        };
        for other in [
            with(&|header| header.put_checksum(Some(Checksum::Xxh3(1)))),
            with(&|header| header.codec = Codec::Lz4),
            with(&|header| header.transit = Some(1)),
            with(&|header| header.proof = Some([0; PROOF_BYTES])),
            with(&|header| header.content = Content::Pack(vec![packed.clone()])),
        ] {
            assert!(!other.is_valid(1024 + TRAILER_BYTES), "{other:?}");
        }
        // Blocks without a trailer keep their encoding.
        let without = with(&|header| header.trailer = None);
        let bytes = minicbor::to_vec(&without).unwrap();
        assert_eq!(bytes[0] & 0x1f, 3, "a map of three");
        assert_eq!(minicbor::decode::<BlockHeader>(&bytes).unwrap(), without);
    }

    #[test]
    fn a_shuffle_goes_before_a_codec_that_compresses() {
        let shuffled = |codec| BlockHeader {
            shuffle: Some(Shuffle {
                arrangement: Arrangement::Bits,
                element: ElementSize::Eight,
            }),
            trailer: None,
            codec,
            ..piece_with_trailer()
        };
        assert!(!shuffled(Codec::Plain).is_valid(1024));
        assert!(shuffled(Codec::Lz4).is_valid(100));
        let bytes = minicbor::to_vec(shuffled(Codec::Lz4)).unwrap();
        let read = minicbor::decode::<BlockHeader>(&bytes).unwrap();
        assert_eq!(read, shuffled(Codec::Lz4));
    }

    #[test]
    fn a_proof_covers_the_whole_header() {
        let key = HeaderKey::new(Secret([7; 32]));
        let entry = |mode| Entry {
            id: EntryId(3),
            parent: None,
            path: TreePath::new(b"a/b").unwrap(),
            kind: EntryKind::Directory,
            mode,
            modified: Timestamp::default(),
            owner: None,
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
            trailer: None,
            shuffle: None,
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
