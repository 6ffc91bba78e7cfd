//! Stores files at the server.

mod extended;
mod pieces;

use std::io::{self, Write};

pub(crate) use extended::Outgoing;
use pieces::BLOCK_BYTES;
pub use pieces::Pieces;

use crate::error::Error;
use crate::protocol::ranges::Ranges;
use crate::session::Session;
use crate::session::retrieve::Ended;

/// Local data of a file.
pub trait Source {
    /// Reads bytes at an offset. Returns 0 only at the end of the file.
    ///
    /// # Errors
    ///
    /// As `pread`.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize>;

    /// Receives the ranges that the server reports as stored, from the beginning of this
    /// transfer. A later session can leave them out.
    fn stored(&self, ranges: &Ranges) {
        let _ = ranges;
    }
}

/// A file to store.
pub struct Put<'a> {
    /// Path at the server. The caller renames the file when it is whole and verified.
    pub path: &'a [u8],
    /// Size in bytes.
    pub size: u64,
    /// Bytes that the server already has. Without any, an existing file is replaced.
    pub present: Ranges,
    /// The data.
    pub source: &'a dyn Source,
}

impl Session {
    /// Stores files in order. In extended block mode, the commands for the next files are sent
    /// while the data of a file are sent.
    ///
    /// # Errors
    ///
    /// If the session ended, or is in an unknown state: drop it. The error belongs to the first
    /// file without a result. That file may have been stored in part.
    pub fn store(&mut self, files: &[Put<'_>], ended: &mut Ended<'_>) -> Result<(), Error> {
        if self.is_extended() {
            return self.store_extended(files, ended);
        }
        for (index, file) in files.iter().enumerate() {
            match self.store_stream(file) {
                Err(error) if error.ends_session() => return Err(error),
                result => ended(index, result),
            }
        }
        Ok(())
    }

    /// Stores the end of a file from its first missing byte on.
    fn store_stream(&mut self, file: &Put<'_>) -> Result<(), Error> {
        let missing = file.present.missing(file.size);
        if missing.is_empty() && file.size > 0 {
            return Ok(());
        }
        let start = missing.first().map_or(0, |range| range.0);
        let start = if self.features().restart { start } else { 0 };
        let mut stream = self.start_stream("STOR", file.path, start)?;
        let mut bytes = vec![0; BLOCK_BYTES];
        let mut at = start;
        let mut sent = Ok(());
        while at < file.size && sent.is_ok() {
            let count = read_block(file, at, file.size, &mut bytes)?;
            sent = stream.write_all(&bytes[..count]);
            at += count as u64;
        }
        let sent = sent.and_then(|()| stream.flush());
        // The reply gives the reason of a failure, such as a full disk.
        let sent = sent.and_then(|()| stream.finish());
        self.control.finished("STOR")?;
        sent.map_err(|error| Error::io("send data to the server", error))
    }
}

/// Reads bytes of a file from `at` up to `end`, as many as fit.
pub(crate) fn read_block(
    file: &Put<'_>,
    at: u64,
    end: u64,
    bytes: &mut [u8],
) -> Result<usize, Error> {
    let wanted = usize::try_from(end - at).unwrap_or(usize::MAX);
    let wanted = wanted.min(bytes.len());
    let mut filled = 0;
    while filled < wanted {
        let read = file
            .source
            .read_at(at + filled as u64, &mut bytes[filled..wanted]);
        match read {
            Ok(0) => {
                return Err(Error::Incomplete {
                    transferred: at + filled as u64,
                    size: file.size,
                });
            }
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::Local(error)),
        }
    }
    Ok(filled)
}
