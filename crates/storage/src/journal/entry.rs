//! The records of a journal.
//!
//! ```text
//! record    0      1      2      4          4+n        12+n
//!           +------+------+------+----------+----------+
//!           | type |  0   |  n   | body     | checksum |
//!           +------+------+------+----------+----------+
//!             u8     u8     u16    n bytes    u64
//!
//! header    +---------+------+-----------+--------+-------+------+
//! type 1    | version | part | integrity | source | inode | size | …
//!           +---------+------+-----------+--------+-------+------+
//!             u16       u64    u8          32       u64     u64
//!           +----------+---------+----------+-----------+
//!         … | modified | changed | name     | principal |
//!           +----------+---------+----------+-----------+
//!             i64+u32    i64+u32   u8+bytes   u8+bytes
//!
//! owner     +-------+---------+-------------+---------+----------+
//! type 2    | epoch | process | started     | session | host     |
//!           +-------+---------+-------------+---------+----------+
//!             u64     u32       i64+u32       16        u8+bytes
//!
//! durable   +--------+--------+------+-------------+
//! type 3    | offset | length | kind | checksum    |
//!           +--------+--------+------+-------------+
//!             u64      u64      u8     32 (kind 1) or 8 (kind 2)
//!
//! shared    +-------+
//! type 4    | epoch |
//!           +-------+
//!             u64
//! ```
//!
//! Integers are little-endian. The checksum is XXH3-64 of all preceding bytes of the record, seeded
//! with the record's offset in the journal, so that a record is valid at one position only. A
//! journal begins with a header and an owner.

use std::fmt;

use longhaul_proto::digest::{Checksum, Integrity};
use longhaul_proto::ledger::DurableBlock;
use longhaul_proto::manifest::{MAXIMUM_NAME_BYTES, SourceIdentity, Timestamp};
use twox_hash::XxHash3_64;

/// Version of this layout. Journals of other versions are rejected.
pub const FORMAT_VERSION: u16 = 1;

/// Size in bytes of a record without its body.
pub const FRAME_BYTES: usize = 12;

/// Size in bytes of a record before its body.
const PREFIX_BYTES: usize = 4;

/// Maximum length of a principal in bytes. The length field is one byte.
pub const MAXIMUM_PRINCIPAL_BYTES: usize = 255;

/// Maximum length of a host name in bytes (Linux allows 64, DNS 253).
pub const MAXIMUM_HOST_BYTES: usize = 255;

/// Maximum size of a body in bytes: a header with the longest name and principal.
pub const MAXIMUM_BODY_BYTES: usize =
    HEADER_FIXED_BYTES + 2 + MAXIMUM_NAME_BYTES + MAXIMUM_PRINCIPAL_BYTES;

/// Maximum size of a record in bytes.
pub const MAXIMUM_RECORD_BYTES: usize = FRAME_BYTES + MAXIMUM_BODY_BYTES;

/// Size in bytes of version, part, integrity, source, inode, size and two times.
const HEADER_FIXED_BYTES: usize = 2 + 8 + 1 + 32 + 8 + 8 + 12 + 12;

/// Maximum size of a file in bytes (`off_t` is signed).
pub const MAXIMUM_FILE_BYTES: u64 = 1 << 63;

/// Type byte of unwritten data. No record begins with it.
pub const NO_TYPE: u8 = 0;
const TYPE_HEADER: u8 = 1;
const TYPE_OWNER: u8 = 2;
const TYPE_DURABLE: u8 = 3;
const TYPE_SHARED: u8 = 4;
const KIND_BLAKE3: u8 = 1;
const KIND_XXH3: u8 = 2;

/// Owner of a journal: the data by which a user can find the process that holds a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Host name, at most [`MAXIMUM_HOST_BYTES`] long.
    pub host: Box<str>,
    /// Process ID on that host.
    pub process: u32,
    /// Start time of the process.
    pub started: Timestamp,
    /// ID of the session.
    pub session: [u8; 16],
}

impl Owner {
    /// Creates a former owner, of which only the session number matters.
    pub fn former(session: u64) -> Owner {
        let mut whole = [0; 16];
        whole[..8].copy_from_slice(&session.to_be_bytes());
        Owner {
            host: "".into(),
            process: 0,
            started: Timestamp::default(),
            session: whole,
        }
    }

    /// Returns half of the session's ID as a number, for the names of its temporaries.
    pub fn session_number(&self) -> u64 {
        let mut half = [0; 8];
        half.copy_from_slice(&self.session[..8]);
        u64::from_be_bytes(half)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "process {} on {}",
            self.process,
            self.host.escape_debug()
        )
    }
}

/// Description of a journal's file. If it differs from a claim, the data belongs to another file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Number of the part: the last half of the part's name.
    pub part: u64,
    /// Method that checks the blocks.
    pub integrity: Integrity,
    /// Hash of the source's host and path.
    pub source: [u8; 32],
    /// State of the source at the time of the copy.
    pub identity: SourceIdentity,
    /// Name of the destination in its directory, 1 to 255 bytes.
    pub name: Box<[u8]>,
    /// Principal that copies, at most [`MAXIMUM_PRINCIPAL_BYTES`] long.
    pub principal: Box<str>,
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The first record.
    Header(Header),
    /// A change of the owner.
    Owner {
        /// Epoch of the owner, higher than all before it.
        epoch: u64,
        /// The new owner.
        owner: Owner,
    },
    /// A block became durable.
    Durable(DurableBlock),
    /// From here on, several owners share the file, until a record names a single one.
    Shared {
        /// Epoch of the sharing owners, higher than all before it.
        epoch: u64,
    },
}

/// Reasons why bytes are not a valid record.
///
/// The torn-tail rule: records are appended and synced in order, so a crash damages only the end.
/// The first invalid record ends the journal. All records before it are valid. The next owner cuts
/// off that record and all bytes after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// The bytes end within the record.
    #[error("the record is cut off")]
    Truncated,
    /// The length exceeds the maximum.
    #[error("a record of {body_bytes} bytes is longer than any")]
    TooLong {
        /// Announced size of the body in bytes.
        body_bytes: usize,
    },
    /// The checksum does not match.
    #[error("the record's checksum does not fit")]
    Checksum,
    /// The checksum matches, but the content is invalid.
    #[error("the record's content is not valid")]
    Malformed,
    /// The header has another version, written by another version of longhaul.
    #[error("the journal has format {version}, this longhaul knows {FORMAT_VERSION}")]
    Version {
        /// Version of the header.
        version: u16,
    },
}

/// Reasons why a record cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnfitError {
    /// A name, principal or host name is empty or too long.
    #[error("a name of {bytes} bytes does not fit in a journal")]
    Name {
        /// Its length in bytes.
        bytes: usize,
    },
    /// A block is empty or ends past [`MAXIMUM_FILE_BYTES`].
    #[error("no file has a block of {length} bytes at {offset}")]
    Block {
        /// Offset of the block in bytes.
        offset: u64,
        /// Length of the block in bytes.
        length: u64,
    },
}

/// Appends a record for the offset `position` in the journal.
///
/// # Errors
///
/// The record exceeds a limit; `out` is unchanged then.
pub fn encode(entry: &Entry, position: u64, out: &mut Vec<u8>) -> Result<(), UnfitError> {
    let start = out.len();
    let kind = match entry {
        Entry::Header(_) => TYPE_HEADER,
        Entry::Owner { .. } => TYPE_OWNER,
        Entry::Durable(_) => TYPE_DURABLE,
        Entry::Shared { .. } => TYPE_SHARED,
    };
    out.extend([kind, 0, 0, 0]);
    let body = match entry {
        Entry::Header(header) => put_header(header, out),
        Entry::Owner { epoch, owner } => put_owner(*epoch, owner, out),
        Entry::Durable(block) => put_durable(block, out),
        Entry::Shared { epoch } => {
            out.extend(epoch.to_le_bytes());
            Ok(())
        }
    };
    if let Err(error) = body {
        out.truncate(start);
        return Err(error);
    }
    // Every body is at most MAXIMUM_BODY_BYTES long, far below 65536.
    let body_bytes = (out.len() - start - PREFIX_BYTES) as u16;
    out[start + 2..start + PREFIX_BYTES].copy_from_slice(&body_bytes.to_le_bytes());
    let checksum = XxHash3_64::oneshot_with_seed(position, &out[start..]);
    out.extend(checksum.to_le_bytes());
    Ok(())
}

fn put_header(header: &Header, out: &mut Vec<u8>) -> Result<(), UnfitError> {
    out.extend(FORMAT_VERSION.to_le_bytes());
    out.extend(header.part.to_le_bytes());
    out.push(match header.integrity {
        Integrity::Digest => KIND_BLAKE3,
        Integrity::Checksum => KIND_XXH3,
    });
    out.extend(header.source);
    out.extend(header.identity.inode.to_le_bytes());
    out.extend(header.identity.size.to_le_bytes());
    put_time(header.identity.modified, out);
    put_time(header.identity.changed, out);
    if header.name.is_empty() {
        return Err(UnfitError::Name { bytes: 0 });
    }
    put_bytes(&header.name, MAXIMUM_NAME_BYTES, out)?;
    put_bytes(header.principal.as_bytes(), MAXIMUM_PRINCIPAL_BYTES, out)
}

fn put_owner(epoch: u64, owner: &Owner, out: &mut Vec<u8>) -> Result<(), UnfitError> {
    out.extend(epoch.to_le_bytes());
    out.extend(owner.process.to_le_bytes());
    put_time(owner.started, out);
    out.extend(owner.session);
    put_bytes(owner.host.as_bytes(), MAXIMUM_HOST_BYTES, out)
}

fn put_durable(block: &DurableBlock, out: &mut Vec<u8>) -> Result<(), UnfitError> {
    let (offset, length) = (block.offset, block.length);
    if !is_block(offset, length) {
        return Err(UnfitError::Block { offset, length });
    }
    out.extend(offset.to_le_bytes());
    out.extend(length.to_le_bytes());
    match block.checksum {
        Checksum::Blake3(value) => {
            out.push(KIND_BLAKE3);
            out.extend(value);
        }
        Checksum::Xxh3(value) => {
            out.push(KIND_XXH3);
            out.extend(value.to_le_bytes());
        }
    }
    Ok(())
}

fn put_time(time: Timestamp, out: &mut Vec<u8>) {
    out.extend(time.seconds.to_le_bytes());
    out.extend(time.nanoseconds.to_le_bytes());
}

fn put_bytes(bytes: &[u8], maximum: usize, out: &mut Vec<u8>) -> Result<(), UnfitError> {
    let length = u8::try_from(bytes.len()).ok();
    let length = length.filter(|_| bytes.len() <= maximum);
    out.push(length.ok_or(UnfitError::Name { bytes: bytes.len() })?);
    out.extend(bytes);
    Ok(())
}

fn is_block(offset: u64, length: u64) -> bool {
    let end = offset.checked_add(length);
    length > 0 && end.is_some_and(|end| end <= MAXIMUM_FILE_BYTES)
}

/// Decodes the record at the beginning of `bytes`, which lie at the offset `position` in their
/// journal. Also returns the record's length in bytes.
///
/// # Errors
///
/// [`EntryError`]. Never panics, for any input.
pub fn decode(bytes: &[u8], position: u64) -> Result<(Entry, usize), EntryError> {
    let mut reader = Body(bytes);
    let [kind, zero, low, high] = reader.take()?;
    let body_bytes = usize::from(u16::from_le_bytes([low, high]));
    if body_bytes > MAXIMUM_BODY_BYTES {
        return Err(EntryError::TooLong { body_bytes });
    }
    let body = Body(reader.slice(body_bytes)?);
    let checksum = u64::from_le_bytes(reader.take()?);
    let covered = &bytes[..PREFIX_BYTES + body_bytes];
    if checksum != XxHash3_64::oneshot_with_seed(position, covered) {
        return Err(EntryError::Checksum);
    }
    if zero != 0 {
        return Err(EntryError::Malformed);
    }
    // The checksum matches, so a truncated body was written that way.
    let entry = decode_body(kind, body).map_err(|error| match error {
        EntryError::Truncated => EntryError::Malformed,
        other => other,
    })?;
    Ok((entry, FRAME_BYTES + body_bytes))
}

fn decode_body(kind: u8, mut body: Body<'_>) -> Result<Entry, EntryError> {
    let entry = match kind {
        TYPE_HEADER => Entry::Header(body.header()?),
        TYPE_OWNER => Entry::Owner {
            epoch: body.u64()?,
            owner: body.owner()?,
        },
        TYPE_DURABLE => Entry::Durable(body.durable()?),
        TYPE_SHARED => Entry::Shared { epoch: body.u64()? },
        _ => return Err(EntryError::Malformed),
    };
    if body.0.is_empty() {
        Ok(entry)
    } else {
        Err(EntryError::Malformed)
    }
}

/// The rest of a record that is being decoded.
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    fn slice(&mut self, count: usize) -> Result<&'a [u8], EntryError> {
        let split = self.0.split_at_checked(count);
        let (taken, rest) = split.ok_or(EntryError::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    fn take<const COUNT: usize>(&mut self) -> Result<[u8; COUNT], EntryError> {
        let split = self.0.split_first_chunk();
        let (taken, rest) = split.ok_or(EntryError::Truncated)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u8(&mut self) -> Result<u8, EntryError> {
        Ok(u8::from_le_bytes(self.take()?))
    }

    fn u32(&mut self) -> Result<u32, EntryError> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    fn u64(&mut self) -> Result<u64, EntryError> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    fn time(&mut self) -> Result<Timestamp, EntryError> {
        let time = Timestamp {
            seconds: i64::from_le_bytes(self.take()?),
            nanoseconds: self.u32()?,
        };
        if time.nanoseconds < 1_000_000_000 {
            Ok(time)
        } else {
            Err(EntryError::Malformed)
        }
    }

    fn bytes(&mut self) -> Result<&'a [u8], EntryError> {
        let count = self.u8()?;
        self.slice(count.into())
    }

    fn text(&mut self) -> Result<Box<str>, EntryError> {
        let text = std::str::from_utf8(self.bytes()?);
        text.map(Box::from).map_err(|_| EntryError::Malformed)
    }

    fn header(&mut self) -> Result<Header, EntryError> {
        // The version comes first, because the other fields may differ in other versions.
        let version = u16::from_le_bytes(self.take()?);
        if version != FORMAT_VERSION {
            return Err(EntryError::Version { version });
        }
        let header = Header {
            part: self.u64()?,
            integrity: match self.u8()? {
                KIND_BLAKE3 => Integrity::Digest,
                KIND_XXH3 => Integrity::Checksum,
                _ => return Err(EntryError::Malformed),
            },
            source: self.take()?,
            identity: SourceIdentity {
                inode: self.u64()?,
                size: self.u64()?,
                modified: self.time()?,
                changed: self.time()?,
            },
            name: self.bytes()?.into(),
            principal: self.text()?,
        };
        if header.name.is_empty() {
            Err(EntryError::Malformed)
        } else {
            Ok(header)
        }
    }

    fn owner(&mut self) -> Result<Owner, EntryError> {
        Ok(Owner {
            process: self.u32()?,
            started: self.time()?,
            session: self.take()?,
            host: self.text()?,
        })
    }

    fn durable(&mut self) -> Result<DurableBlock, EntryError> {
        let (offset, length) = (self.u64()?, self.u64()?);
        let checksum = match self.u8()? {
            KIND_BLAKE3 => Checksum::Blake3(self.take()?),
            KIND_XXH3 => Checksum::Xxh3(self.u64()?),
            _ => return Err(EntryError::Malformed),
        };
        if !is_block(offset, length) {
            return Err(EntryError::Malformed);
        }
        Ok(DurableBlock {
            offset,
            length,
            checksum,
        })
    }
}
