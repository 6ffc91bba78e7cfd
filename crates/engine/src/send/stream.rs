//! Standard input, or any other input that can be read only once, as a source. It is a directory
//! whose files are pieces of the input. They are listed as they are read, and kept in memory until
//! the other end has them.

use std::any::Any;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use longhaul_proto::digest::LARGEST_FILE_BYTES;
use longhaul_proto::manifest::TreePath;
use longhaul_proto::stream::{STREAM_NAME, StreamPart};
use longhaul_storage::refusing::{refuse_changes, refuse_writes};
use longhaul_storage::{
    Advice, DataMode, DataRange, Directory, FileKind, ListedName, NameList, Status, StoredFile,
};
use longhaul_system::queue::lock;

use super::source::{Source, What};

/// Maximum bytes of a piece: the block size of a long path, so that each block of every path holds
/// one or more pieces.
pub const PIECE_BYTES: usize = 256 << 10;

/// An input that is sent in pieces.
pub struct StreamSource {
    input: Mutex<Input>,
    state: Mutex<State>,
    /// Notified when a piece was released or the transfer gave up.
    changed: Condvar,
    piece_bytes: usize,
    most_bytes: usize,
    /// Permission bits of the resulting file.
    mode: u32,
}

struct Input {
    reader: Box<dyn Read + Send>,
    hasher: blake3::Hasher,
    read: u64,
    ended: bool,
}

#[derive(Default)]
struct State {
    /// Pieces that the other end may not have yet, by offset.
    held: BTreeMap<u64, Arc<[u8]>>,
    held_bytes: usize,
    given_up: bool,
    /// Error of a failed read.
    failure: Option<String>,
    whole: Option<WholeStream>,
}

/// Size and digest of the whole input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WholeStream {
    /// Number of bytes.
    pub bytes: u64,
    /// BLAKE3 digest of the bytes.
    pub digest: [u8; 32],
}

impl StreamSource {
    /// Reads from `reader` in pieces. At most `most_bytes` of them, but at least one piece, are in
    /// memory.
    pub fn new(
        reader: Box<dyn Read + Send>,
        piece_bytes: usize,
        most_bytes: usize,
        mode: u32,
    ) -> Arc<StreamSource> {
        Arc::new(StreamSource {
            input: Mutex::new(Input {
                reader,
                hasher: blake3::Hasher::new(),
                read: 0,
                ended: false,
            }),
            state: Mutex::default(),
            changed: Condvar::new(),
            piece_bytes: piece_bytes.clamp(1, PIECE_BYTES),
            most_bytes,
            mode,
        })
    }

    /// Returns the input as a source.
    pub fn source(self: &Arc<StreamSource>, shown: &str) -> Source {
        let directory: Arc<dyn Directory> = Arc::new(Pieces(Arc::clone(self)));
        Source {
            directory: directory.into(),
            what: What::Tree(STREAM_NAME.into()),
            shown: shown.to_owned(),
            link: None,
            listed: None,
        }
    }

    /// Releases the piece of this path, because the other end received it.
    pub fn let_go(&self, path: &TreePath) {
        let mut state = lock(&self.state);
        if let Some(StreamPart::Data(offset)) = StreamPart::parse(path.name())
            && let Some(piece) = state.held.remove(&offset)
        {
            state.held_bytes -= piece.len();
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Stops reading, because the rest would be of no use.
    pub fn give_up(&self) {
        lock(&self.state).given_up = true;
        self.changed.notify_all();
    }

    /// Returns the error of a failed read, if any.
    pub fn failure(&self) -> Option<String> {
        lock(&self.state).failure.clone()
    }

    /// Returns size and digest of the input, once it was read to its end.
    pub fn whole(&self) -> Option<WholeStream> {
        lock(&self.state).whole
    }

    /// Waits for free memory and reads one piece; returns the part to list.
    fn next_part(&self) -> io::Result<Option<StreamPart>> {
        let state = lock(&self.state);
        let full = |state: &mut State| {
            let room = state.held_bytes + self.piece_bytes <= self.most_bytes;
            !state.given_up && !state.held.is_empty() && !room
        };
        let waited = self.changed.wait_while(state, full);
        let given_up = waited.unwrap_or_else(PoisonError::into_inner).given_up;
        if given_up {
            return Err(io::Error::other("it was given up"));
        }
        let mut input = lock(&self.input);
        if input.ended {
            return Ok(None);
        }
        let piece = input.read_piece(self.piece_bytes).inspect_err(|error| {
            lock(&self.state).failure = Some(error.to_string());
        })?;
        let offset = input.read;
        if piece.is_empty() {
            input.ended = true;
            let digest = *input.hasher.finalize().as_bytes();
            lock(&self.state).whole = Some(WholeStream {
                bytes: offset,
                digest,
            });
            return Ok(Some(StreamPart::End(offset)));
        }
        input.read += piece.len() as u64;
        if input.read > LARGEST_FILE_BYTES {
            return Err(rustix::io::Errno::FBIG.into());
        }
        let mut state = lock(&self.state);
        state.held_bytes += piece.len();
        state.held.insert(offset, piece.into());
        Ok(Some(StreamPart::Data(offset)))
    }

    fn piece(&self, name: &[u8]) -> io::Result<Arc<[u8]>> {
        let found = match StreamPart::parse(name) {
            Some(StreamPart::Data(offset)) => lock(&self.state).held.get(&offset).cloned(),
            Some(StreamPart::End(_)) => Some(Arc::default()),
            None => None,
        };
        found.ok_or(io::ErrorKind::NotFound.into())
    }
}

impl Input {
    /// Reads as much as a piece holds, or less at the end of the input.
    fn read_piece(&mut self, most: usize) -> io::Result<Vec<u8>> {
        let mut piece = vec![0; most];
        let mut filled = 0;
        while filled < most {
            match self.reader.read(&mut piece[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        piece.truncate(filled);
        self.hasher.update(&piece);
        Ok(piece)
    }
}

/// Directory of the pieces.
struct Pieces(Arc<StreamSource>);

/// Listing of the pieces, in the order of reading.
struct Coming(Arc<StreamSource>);

impl NameList for Coming {
    fn next_name(&mut self) -> io::Result<Option<ListedName>> {
        Ok(self.0.next_part()?.map(|part| ListedName {
            name: part.name(),
            kind: Some(FileKind::File),
        }))
    }
}

impl Directory for Pieces {
    fn open_directory(&self, _name: &[u8]) -> io::Result<Arc<dyn Directory>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn open_file(&self, name: &[u8], _mode: DataMode) -> io::Result<Arc<dyn StoredFile>> {
        Ok(Arc::new(Piece(self.0.piece(name)?)))
    }

    fn read_symlink(&self, _name: &[u8]) -> io::Result<Box<[u8]>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn status_of(&self, name: &[u8]) -> io::Result<Status> {
        let size = self.0.piece(name)?.len() as u64;
        Ok(Status::on_no_disk(FileKind::File, 0o600, size))
    }

    fn status(&self) -> io::Result<Status> {
        Ok(Status::on_no_disk(FileKind::Directory, self.0.mode, 0))
    }

    fn list(&self) -> io::Result<Box<dyn NameList>> {
        Ok(Box::new(Coming(Arc::clone(&self.0))))
    }

    fn lists_in_order(&self) -> bool {
        true
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    refuse_changes!(io::ErrorKind::Unsupported);
}

/// A piece as a file.
struct Piece(Arc<[u8]>);

impl StoredFile for Piece {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let data = self.0.get(start..).unwrap_or_default();
        let count = data.len().min(buffer.len());
        buffer[..count].copy_from_slice(&data[..count]);
        Ok(count)
    }

    fn status(&self) -> io::Result<Status> {
        Ok(Status::on_no_disk(
            FileKind::File,
            0o600,
            self.0.len() as u64,
        ))
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<DataRange>> {
        let end = self.0.len() as u64;
        Ok((offset < end).then_some(DataRange { start: offset, end }))
    }

    fn advise(&self, _advice: Advice, _start: u64, _length: u64) {}

    fn data_mode(&self) -> DataMode {
        DataMode::Buffered
    }

    refuse_writes!(io::ErrorKind::Unsupported);
}

#[cfg(test)]
mod tests {
    use longhaul_storage::listing::SortedListing;
    use longhaul_storage::spill::SpillSettings;

    use super::*;

    fn source(data: &'static [u8], piece: usize, most: usize) -> Arc<StreamSource> {
        StreamSource::new(Box::new(data), piece, most, 0o644)
    }

    #[test]
    fn pieces_are_in_order_and_kept_until_they_are_released() {
        let source = source(b"abcdefgh", 3, 1000);
        let directory = Pieces(Arc::clone(&source));
        let listing = SortedListing::open(&directory, &SpillSettings::default()).unwrap();
        let names: Vec<Box<[u8]>> = listing.map(|listed| listed.unwrap().name).collect();
        let parts: Vec<StreamPart> = names
            .iter()
            .map(|name| StreamPart::parse(name).unwrap())
            .collect();
        let data = [0, 3, 6].map(StreamPart::Data);
        assert_eq!(parts, [&data[..], &[StreamPart::End(8)]].concat());
        let mut read = [0; 8];
        let file = directory.open_file(&names[2], DataMode::Buffered).unwrap();
        assert_eq!(file.read_at(&mut read, 0).unwrap(), 2);
        assert_eq!(&read[..2], b"gh");
        assert_eq!(directory.status_of(&names[3]).unwrap().size, 0);
        let whole = source.whole().unwrap();
        assert_eq!(whole.bytes, 8);
        assert_eq!(whole.digest, *blake3::hash(b"abcdefgh").as_bytes());
        source.let_go(&TreePath::new(&[b"stream/", &names[1][..]].concat()).unwrap());
        assert!(directory.open_file(&names[1], DataMode::Buffered).is_err());
    }

    #[test]
    fn no_more_is_read_than_memory_holds() {
        let source = source(b"abcdefgh", 2, 4);
        let mut names = Coming(Arc::clone(&source));
        let mut next = || StreamPart::parse(&names.next_name().unwrap().unwrap().name).unwrap();
        assert_eq!(next(), StreamPart::Data(0));
        assert_eq!(next(), StreamPart::Data(2));
        let reading = std::thread::spawn(move || {
            let mut names = names;
            names.next_name().unwrap().unwrap().name
        });
        assert_eq!(lock(&source.state).held_bytes, 4);
        let first = [b"stream/", &StreamPart::Data(0).name()[..]].concat();
        source.let_go(&TreePath::new(&first).unwrap());
        assert_eq!(reading.join().unwrap(), StreamPart::Data(4).name());
        assert_eq!(lock(&source.state).held_bytes, 4);
    }

    #[test]
    fn an_abandoned_stream_has_no_end() {
        let source = source(b"abcdefgh", 2, 2);
        let mut names = Coming(Arc::clone(&source));
        names.next_name().unwrap();
        let waiting = std::thread::spawn(move || names.next_name().is_err());
        source.give_up();
        assert!(waiting.join().unwrap());
        assert_eq!(source.whole(), None);
    }

    #[test]
    fn a_source_that_fails_has_no_end() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::ConnectionReset.into())
            }
        }
        let source = StreamSource::new(Box::new(Broken), 2, 2, 0o600);
        assert!(Coming(Arc::clone(&source)).next_name().is_err());
        assert_eq!(source.whole(), None);
    }
}
