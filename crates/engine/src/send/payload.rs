//! What of a block goes over the wire after its header: bytes in a buffer of the
//! pool, or pages of a file that lie in the page cache.
//!
//! On a stream in clear nothing is done to the bytes but to hash and to send them.
//! Where they lie in the page cache they are hashed out of a small part of a buffer,
//! which stays in the core's cache, and then sent by the kernel from where they are:
//! neither the copy to memory nor the one to the socket is made. Should the file be
//! changed between the two, the checksum says so at the other end, as of a block that
//! was damaged on its way, and reading it again finds the change.

use std::io;
use std::sync::Arc;

use longhaul_proto::block::PieceName;

use crate::net::StreamWriter;
use crate::pool::Buffer;
use crate::storage::StoredFile;

/// A block's bytes.
pub(crate) enum Payload {
    /// The filled part.
    Buffer(Buffer),
    /// Where they lie.
    Pages(Pages),
}

/// A range of a file that was read and hashed.
pub(crate) struct Pages {
    file: Arc<dyn StoredFile>,
    offset: u64,
    length: usize,
}

impl Pages {
    /// Where a piece lies.
    pub fn new(file: Arc<dyn StoredFile>, piece: PieceName) -> Pages {
        Pages {
            file,
            offset: piece.offset,
            length: piece.length as usize,
        }
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.length
    }
}

impl Payload {
    /// Bytes.
    pub fn len(&self) -> usize {
        match self {
            Payload::Buffer(buffer) => buffer.filled().len(),
            Payload::Pages(pages) => pages.length,
        }
    }

    /// Sends `head`, then a range of it.
    ///
    /// # Errors
    ///
    /// What the socket says, or the file.
    pub fn send(
        &self,
        writer: &mut dyn StreamWriter,
        head: &[u8],
        (start, length): (usize, usize),
    ) -> io::Result<()> {
        match self {
            Payload::Buffer(buffer) => {
                writer.write_all(&[head, &buffer.filled()[start..start + length]])
            }
            Payload::Pages(pages) => {
                let file = pages.file.descriptor();
                let file = file.ok_or(io::ErrorKind::Unsupported)?;
                writer.write_file(head, file, pages.offset + start as u64, length)
            }
        }
    }
}
