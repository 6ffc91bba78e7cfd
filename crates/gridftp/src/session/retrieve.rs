//! Fetches files from the server.

mod extended;

use std::io::{self, Read};

pub(crate) use extended::Incoming;

use crate::error::Error;
use crate::protocol::ranges::Ranges;
use crate::session::Session;
use crate::tls::DataStream;

/// Bytes that one read takes from a data connection.
pub(crate) const READ_BYTES: usize = 256 * 1024;

/// Local place for the data of a file.
pub trait Sink {
    /// Writes bytes at an offset. In extended block mode, offsets do not ascend.
    ///
    /// # Errors
    ///
    /// As `pwrite`.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
}

/// A file to fetch.
pub struct Fetch<'a> {
    /// Path at the server.
    pub path: &'a [u8],
    /// Size in bytes. Data beyond it are an error.
    pub size: u64,
    /// Bytes that this end already has. The server sends the others, and may send these again.
    pub present: Ranges,
    /// Place for the data.
    pub sink: &'a dyn Sink,
}

/// A file that is read in order, in stream mode. It has a session of its own.
#[derive(Debug)]
pub struct Reader {
    session: Session,
    stream: DataStream,
    is_over: bool,
}

impl Reader {
    /// Reads bytes. Returns 0 at the end of the file.
    ///
    /// # Errors
    ///
    /// If the connection fails, or if the server reports an error at the end.
    pub fn read(&mut self, bytes: &mut [u8]) -> Result<usize, Error> {
        if self.is_over {
            return Ok(0);
        }
        let read = self.stream.read(bytes);
        let count = read.map_err(|error| Error::io("read data of the server", error))?;
        if count == 0 && !bytes.is_empty() {
            self.is_over = true;
            self.session.control.finished("RETR")?;
        }
        Ok(count)
    }
}

/// Receives the result of each file of a batch: its index and `Ok` if all bytes have arrived.
pub type Ended<'a> = dyn FnMut(usize, Result<(), Error>) + 'a;

impl Session {
    /// Fetches files in order. In extended block mode, the commands for the next files are sent
    /// while the data of a file arrive.
    ///
    /// # Errors
    ///
    /// If the session ended, or is in an unknown state: drop it. The error belongs to the first
    /// file without a result. That file and later ones may have arrived in part.
    pub fn retrieve(&mut self, files: &[Fetch<'_>], ended: &mut Ended<'_>) -> Result<(), Error> {
        if self.is_extended() {
            return self.retrieve_extended(files, ended);
        }
        for (index, file) in files.iter().enumerate() {
            match self.retrieve_stream(file) {
                Err(error) if error.ends_session() => return Err(error),
                result => ended(index, result),
            }
        }
        Ok(())
    }

    /// Starts to read a file in order from an offset. The session ends with the reader.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or if the server cannot begin within a file.
    pub fn into_reader(mut self, path: &[u8], offset: u64) -> Result<Reader, Error> {
        let stream = self.start_stream("RETR", path, offset)?;
        Ok(Reader {
            session: self,
            stream,
            is_over: false,
        })
    }

    /// Fetches the end of a file from its first missing byte on.
    fn retrieve_stream(&mut self, file: &Fetch<'_>) -> Result<(), Error> {
        let missing = file.present.missing(file.size);
        let start = missing.first().map_or(0, |range| range.0);
        let start = if self.features().restart { start } else { 0 };
        if missing.is_empty() && file.size > 0 {
            return Ok(());
        }
        let mut stream = self.start_stream("RETR", file.path, start)?;
        let mut bytes = vec![0; READ_BYTES];
        let mut at = start;
        let local = loop {
            let read = stream.read(&mut bytes);
            let count = read.map_err(|error| Error::io("read data of the server", error))?;
            if count == 0 {
                break Ok(());
            }
            let end = at + count as u64;
            if end > file.size {
                return Err(Error::Incomplete {
                    transferred: end,
                    size: file.size,
                });
            }
            if let Err(error) = file.sink.write_at(at, &bytes[..count]) {
                break Err(Error::Local(error));
            }
            at = end;
        };
        drop(stream);
        local?;
        self.control.finished("RETR")?;
        complete(at, file.size)
    }
}

/// Compares the number of transferred bytes with the size of the file.
pub(crate) fn complete(transferred: u64, size: u64) -> Result<(), Error> {
    if transferred == size {
        Ok(())
    } else {
        Err(Error::Incomplete { transferred, size })
    }
}
