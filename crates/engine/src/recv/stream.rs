//! Receives one stream of data in place of a tree: into a file that gets its name when it is
//! complete, or to an output of this process in order.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use longhaul_proto::digest::LARGEST_FILE_BYTES;
use longhaul_proto::ledger::RangeSet;
use longhaul_proto::manifest::{Entry, TreePath};
use longhaul_proto::message::{Failure, FailureKind};
use longhaul_proto::notice::NoticeKind;
use longhaul_proto::stream::{STREAM_NAME, StreamPart};
use longhaul_storage::failure::failure_of;
use longhaul_storage::journal::gate::create_held;
use longhaul_storage::journal::temporary;
use longhaul_storage::mounts::Place;
use longhaul_storage::notices::Notices;
use longhaul_storage::roots::{OpenRoot, split};
use longhaul_storage::spill::{TemporaryError, nameless_file};
use longhaul_storage::{Creation, DataMode, Directory, FileKind, StoredFile};
use longhaul_system::queue::lock;
use longhaul_system::refusals::or_without;

use super::keeping::note_mode;
use super::landing::{LandingError, no_directory};

/// A sink that accepts the data of a stream in any order.
pub trait DataStream: Send + Sync {
    /// Accepts data at an offset; the same data may come again.
    ///
    /// # Errors
    ///
    /// Returns the error of the file or descriptor; the data may then be lost.
    fn put(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Sets the total length in bytes.
    fn handle_end(&self, total: u64);

    /// Makes the complete data durable under its name, with this mode.
    ///
    /// # Errors
    ///
    /// Returns `UnexpectedEof` if data is missing, or an error of the file.
    fn finish(&self, mode: u32, notices: &Notices) -> io::Result<()>;

    /// Ends the session and discards data without a final name.
    fn give_up(&self);

    /// Returns the name in messages.
    fn shown(&self) -> &str;

    /// True if the file system of the destination was unmounted meanwhile.
    fn is_detached(&self) -> bool {
        false
    }
}

/// Returns the part of a stream that an entry carries; `None` for a file that is copied into a
/// stream.
pub(super) fn part_of(entry: &Entry) -> Option<StreamPart> {
    let parent = entry.path.parent()?;
    let part = StreamPart::parse(entry.path.name());
    part.filter(|_| parent.as_bytes() == STREAM_NAME)
}

/// Writes the content of an entry at its place in the stream.
pub(super) fn put_entry(
    stream: &dyn DataStream,
    entry: &Entry,
    data: &[u8],
) -> Result<(), Failure> {
    let put = match part_of(entry) {
        Some(StreamPart::End(total)) if data.is_empty() => {
            stream.handle_end(total);
            Ok(())
        }
        Some(StreamPart::Data(offset)) => stream.put(offset, data),
        // A complete file of known length.
        _ => stream.put(0, data),
    };
    put.map_err(|error| failure_of("write", stream.shown(), &error))
}

/// Completes a stream.
pub(super) fn finish(stream: &dyn DataStream, mode: u32, notices: &Notices) -> Result<(), Failure> {
    stream.finish(mode, notices).map_err(|error| {
        let shown = stream.shown();
        if error.kind() == io::ErrorKind::UnexpectedEof {
            let text = format!(
                "{shown}: the data did not come to their end: nothing got that name; run the \
                 whole pipe again"
            );
            return Failure::new(FailureKind::Vanished, text);
        }
        failure_of("make durable", shown, &error)
    })
}

/// Writes a stream into a file that has a temporary name until it is complete.
pub struct FileStream {
    directory: Arc<dyn Directory>,
    temporary: Box<[u8]>,
    name: Box<[u8]>,
    file: Arc<dyn StoredFile>,
    shown: String,
    place: Place,
    state: Mutex<Whole>,
}

/// Parts of a stream that have arrived.
#[derive(Default)]
struct Whole {
    there: RangeSet,
    total: Option<u64>,
    named: bool,
}

/// Maximum number of separate pieces that wait for the data between them. A correct sender has no
/// more pieces in its memory.
const MOST_FRAGMENTS: usize = 65_536;

fn scattered() -> io::Error {
    io::Error::other("its pieces came too scattered")
}

impl FileStream {
    /// Opens the file at a path whose directory exists. `session` identifies the owner of
    /// leftovers.
    ///
    /// # Errors
    ///
    /// [`LandingError`].
    pub fn open(
        open: &dyn OpenRoot,
        path: &[u8],
        session: u64,
    ) -> Result<FileStream, LandingError> {
        use std::os::unix::ffi::OsStrExt;
        let shown = String::from_utf8_lossy(path).into_owned();
        let failed = |what: &str, error: &io::Error| {
            LandingError::Open(failure_of(what, &shown, error).text)
        };
        let (parent, name) = split(path);
        let name = TreePath::new(name).map_err(|_| LandingError::Nameless(shown.clone()))?;
        let directory = open
            .open_root(Path::new(std::ffi::OsStr::from_bytes(parent)))
            .map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => {
                    LandingError::Open(format!("{}: make it first", no_directory(parent, &shown)))
                }
                _ => failed("open its directory", &error),
            })?;
        let there = directory.status_of(name.name()).ok();
        match there.map(|status| status.kind) {
            Some(FileKind::Directory) => return Err(LandingError::Nameless(shown)),
            Some(FileKind::Special) => {
                let text = format!(
                    "{shown} is a device, FIFO or socket, which is not replaced: write to it by \
                     the shell, as in \"longhaul cp SRC - > {shown}\", or remove it first"
                );
                return Err(LandingError::Open(text));
            }
            _ => (),
        }
        let temporary = temporary(session, 0);
        // The lock shows `longhaul clean` that the file is in use. Without it the file may be
        // removed; naming it then fails.
        let file = create_held(&*directory, &temporary, DataMode::Buffered)
            .or_else(|_| directory.create_file(&temporary, Creation::New, DataMode::Buffered))
            .map_err(|error| failed("write into its directory", &error))?;
        Ok(FileStream {
            place: Place::of(&*directory),
            directory,
            temporary,
            name: name.name().into(),
            file,
            shown,
            state: Mutex::default(),
        })
    }
}

impl DataStream for FileStream {
    fn put(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let end = offset.checked_add(data.len() as u64);
        let end = end.filter(|end| *end <= LARGEST_FILE_BYTES);
        let end = end.ok_or(io::ErrorKind::InvalidInput)?;
        self.file.write_at(data, offset)?;
        self.file.advise(
            longhaul_storage::Advice::StartWriteback,
            offset,
            data.len() as u64,
        );
        let mut state = lock(&self.state);
        state.there.insert(offset, end);
        if state.there.fragments() > MOST_FRAGMENTS {
            Err(scattered())
        } else {
            Ok(())
        }
    }

    fn handle_end(&self, total: u64) {
        lock(&self.state).total = Some(total);
    }

    fn finish(&self, mode: u32, notices: &Notices) -> io::Result<()> {
        let mut state = lock(&self.state);
        let whole = state
            .total
            .is_some_and(|total| state.there.total() == total && state.there.contains(0, total));
        if state.named {
            return Ok(());
        }
        if !whole {
            // The file is removed before the other end receives the error. `longhaul clean` finds
            // it if this fails.
            let _ = self.directory.remove_file(&self.temporary);
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let set = self.file.set_mode(mode);
        if notices
            .wish(NoticeKind::ModeRefused, &self.shown, set)?
            .is_some()
        {
            note_mode(notices, &self.shown, mode, self.file.status()?.mode);
        }
        self.file.sync_all()?;
        let there = self.directory.status_of(&self.name);
        if there.is_ok_and(|status| status.kind == FileKind::Special) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.directory
            .rename(&self.temporary, &*self.directory, &self.name)?;
        state.named = true;
        let synced = self.directory.sync();
        notices.wish(NoticeKind::NamesNotSynced, &self.shown, synced)?;
        // A file system that is down may report a successful sync, but it refuses changes.
        or_without(self.file.set_mode(mode))
    }

    fn give_up(&self) {
        if !lock(&self.state).named {
            // `longhaul clean` finds a file that cannot be removed here.
            let _ = self.directory.remove_file(&self.temporary);
        }
    }

    fn shown(&self) -> &str {
        &self.shown
    }

    fn is_detached(&self) -> bool {
        self.place.is_gone()
    }
}

impl Drop for FileStream {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// Maximum number of bytes that wait in memory for earlier data; further ones wait in an unnamed
/// file. Waiting for free memory could deadlock: the next data may itself wait for a buffer.
const HELD_IN_MEMORY: usize = 16 << 20;

/// Bytes of the unnamed file that are written to the output at a time.
const PASS_BYTES: usize = 256 << 10;

/// Writes a stream to an output, each byte once and in order.
pub struct OrderedStream<W> {
    shown: String,
    state: Mutex<Ordered<W>>,
}

struct Ordered<W> {
    output: W,
    /// Number of bytes written to the output.
    next: u64,
    /// Waiting data by offset: in memory, or a number of bytes in the file at that offset.
    held: BTreeMap<u64, Held>,
    in_memory: usize,
    most_in_memory: usize,
    file: Option<File>,
    /// Directory of the unnamed file.
    temporary: PathBuf,
    total: Option<u64>,
}

enum Held {
    Memory(Vec<u8>),
    File(u64),
}

impl<W: Write + Send> OrderedStream<W> {
    /// Creates a stream to this output.
    pub fn new(output: W, shown: &str) -> OrderedStream<W> {
        OrderedStream::holding(output, shown, HELD_IN_MEMORY, std::env::temp_dir())
    }

    fn holding(
        output: W,
        shown: &str,
        most_in_memory: usize,
        temporary: PathBuf,
    ) -> OrderedStream<W> {
        OrderedStream {
            shown: shown.to_owned(),
            state: Mutex::new(Ordered {
                output,
                next: 0,
                held: BTreeMap::new(),
                in_memory: 0,
                most_in_memory,
                file: None,
                temporary,
                total: None,
            }),
        }
    }
}

impl<W: Write> Ordered<W> {
    fn put(&mut self, mut offset: u64, mut data: &[u8]) -> io::Result<()> {
        // Data of a lost stream of the session comes again, with equal bytes.
        let gone = self.next.saturating_sub(offset).min(data.len() as u64);
        data = &data[gone as usize..];
        offset += gone;
        if data.is_empty() {
            return Ok(());
        }
        if offset > self.next {
            return self.hold(offset, data);
        }
        self.output.write_all(data)?;
        self.next += data.len() as u64;
        self.pass_held()?;
        self.output.flush()
    }

    fn hold(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        if self.held.contains_key(&offset) {
            return Ok(());
        }
        if self.held.len() >= MOST_FRAGMENTS {
            return Err(scattered());
        }
        let held = if self.in_memory + data.len() <= self.most_in_memory {
            self.in_memory += data.len();
            Held::Memory(data.to_vec())
        } else {
            let file = match &mut self.file {
                Some(file) => file,
                none => none.insert(nameless_file(&self.temporary)?),
            };
            let written = file.write_all_at(data, offset);
            written.map_err(|error| TemporaryError::wrap(error, &self.temporary))?;
            Held::File(data.len() as u64)
        };
        self.held.insert(offset, held);
        Ok(())
    }

    /// Writes waiting data that has become next in order.
    fn pass_held(&mut self) -> io::Result<()> {
        while let Some(first) = self.held.first_entry() {
            let offset = *first.key();
            if offset > self.next {
                return Ok(());
            }
            match first.remove() {
                Held::Memory(data) => {
                    self.in_memory -= data.len();
                    let gone = (self.next - offset).min(data.len() as u64) as usize;
                    self.output.write_all(&data[gone..])?;
                    self.next += (data.len() - gone) as u64;
                }
                Held::File(length) => self.pass_file(offset, length)?,
            }
        }
        Ok(())
    }

    fn pass_file(&mut self, offset: u64, length: u64) -> io::Result<()> {
        let Some(file) = &self.file else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let mut buffer = vec![0; PASS_BYTES];
        while self.next < offset + length {
            let left = (offset + length - self.next).min(PASS_BYTES as u64) as usize;
            let read = file.read_exact_at(&mut buffer[..left], self.next);
            read.map_err(|error| TemporaryError::wrap(error, &self.temporary))?;
            self.output.write_all(&buffer[..left])?;
            self.next += left as u64;
        }
        // A file system without holes frees the space at the end.
        let hole = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        let _ = rustix::fs::fallocate(file, hole, offset, length);
        Ok(())
    }
}

impl<W: Write + Send> DataStream for OrderedStream<W> {
    fn put(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        lock(&self.state).put(offset, data)
    }

    fn handle_end(&self, total: u64) {
        lock(&self.state).total = Some(total);
    }

    fn finish(&self, _mode: u32, _notices: &Notices) -> io::Result<()> {
        let mut state = lock(&self.state);
        if state.total == Some(state.next) {
            state.output.flush()
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }

    fn give_up(&self) {}

    fn shown(&self) -> &str {
        &self.shown
    }
}

#[cfg(test)]
mod tests {
    use longhaul_storage::forgetting::ForgettingStorage;
    use longhaul_storage::roots::Confined;

    use super::*;

    fn holding(output: Shared, most_in_memory: usize, temporary: PathBuf) -> OrderedStream<Shared> {
        OrderedStream::holding(output, "standard output", most_in_memory, temporary)
    }

    #[test]
    fn an_unusable_temporary_directory_is_named() {
        let stream = holding(Shared::default(), 0, "/nonexistent/tmp".into());
        let error = stream.put(5, b"early").unwrap_err();
        let text = failure_of("write", stream.shown(), &error).text;
        assert!(text.starts_with("/nonexistent/tmp"), "{text}");
        assert!(
            text.contains("TMPDIR") && !text.contains("standard output"),
            "{text}"
        );
    }

    /// An output whose content tests can inspect.
    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, data: &[u8]) -> io::Result<usize> {
            lock(&self.0).extend_from_slice(data);
            Ok(data.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn pieces_in_any_order_are_written_in_order() {
        let data: Vec<u8> = (0..200_000_u32).map(|n| (n * 7 % 251) as u8).collect();
        for (most_in_memory, step) in [(0, 13), (10_000, 29), (1 << 20, 3)] {
            let output = Shared::default();
            let stream = holding(output.clone(), most_in_memory, std::env::temp_dir());
            let pieces: Vec<&[u8]> = data.chunks(997).collect();
            // A step that is coprime to the number of pieces visits all of them.
            assert_eq!(pieces.len(), 201);
            let order = (0..201).map(|number| (number * step + 5) % 201);
            let order: Vec<usize> = match step {
                3 => (0..201).rev().collect(),
                _ => order.collect(),
            };
            for &at in &order {
                stream.put(at as u64 * 997, pieces[at]).unwrap();
                // The block of a lost stream of the session comes again.
                stream.put(at as u64 * 997, pieces[at]).unwrap();
            }
            assert!(*lock(&output.0) == data, "{most_in_memory}");
            assert!(
                stream.finish(0, &Notices::default()).is_err(),
                "nobody said how long it is"
            );
            stream.handle_end(data.len() as u64);
            stream.finish(0, &Notices::default()).unwrap();
            assert_eq!(lock(&stream.state).in_memory, 0);
        }
    }

    #[test]
    fn a_stream_with_a_gap_is_incomplete() {
        let stream = OrderedStream::new(Shared::default(), "-");
        stream.put(0, b"abc").unwrap();
        stream.put(5, b"xyz").unwrap();
        stream.handle_end(8);
        let error = stream.finish(0, &Notices::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        stream.put(3, b"de").unwrap();
        stream.finish(0, &Notices::default()).unwrap();
    }

    fn stream(storage: &ForgettingStorage) -> FileStream {
        FileStream::open(&Confined(storage.root()), b"y.tar", 7).unwrap()
    }

    fn names(storage: &ForgettingStorage) -> Vec<String> {
        let mut list = storage.root().list().unwrap();
        let mut names = Vec::new();
        while let Some(listed) = list.next_name().unwrap() {
            names.push(String::from_utf8(listed.name.into_vec()).unwrap());
        }
        names.sort();
        names
    }

    #[test]
    fn a_file_gets_its_name_once_it_is_complete_and_durable() {
        let storage = ForgettingStorage::new();
        let stream = stream(&storage);
        stream.put(3, b"def").unwrap();
        stream.handle_end(6);
        stream.put(0, b"abc").unwrap();
        assert!(!names(&storage).contains(&"y.tar".to_owned()));
        stream.finish(0o640, &Notices::default()).unwrap();
        stream.finish(0o640, &Notices::default()).unwrap();
        // A crash preserves the file.
        let after = storage.crash(1);
        let file = after
            .root()
            .open_file(b"y.tar", DataMode::Buffered)
            .unwrap();
        let mut data = [0; 9];
        assert_eq!(file.read_at(&mut data, 0).unwrap(), 6);
        assert_eq!(&data[..6], b"abcdef");
        assert_eq!(file.status().unwrap().mode, 0o640);
    }

    #[test]
    fn an_abandoned_stream_leaves_no_file() {
        let storage = ForgettingStorage::new();
        let dropped = stream(&storage);
        dropped.put(0, b"abc").unwrap();
        assert_eq!(names(&storage).len(), 1);
        drop(dropped);
        assert_eq!(names(&storage), Vec::<String>::new());
        // A stream without an end is removed before the error is returned.
        let short = stream(&storage);
        short.put(0, b"abc").unwrap();
        let error = short.finish(0o640, &Notices::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(names(&storage), Vec::<String>::new());
        short.handle_end(3);
        assert!(
            short.finish(0o640, &Notices::default()).is_err(),
            "it is gone"
        );
    }

    #[test]
    fn offsets_beyond_all_files_are_refused() {
        let storage = ForgettingStorage::new();
        let stream = stream(&storage);
        for offset in [u64::MAX, LARGEST_FILE_BYTES] {
            assert!(stream.put(offset, b"abc").is_err(), "{offset}");
        }
        stream.handle_end(u64::MAX);
        assert!(stream.finish(0o600, &Notices::default()).is_err());
    }

    #[test]
    fn a_stream_does_not_replace_a_directory() {
        let storage = ForgettingStorage::new();
        storage.root().make_directory(b"sub", 0o755).unwrap();
        for path in [&b"sub"[..], b"sub/", b"", b".", b"x/.."] {
            let opened = FileStream::open(&Confined(storage.root()), path, 1);
            assert!(opened.is_err(), "{path:?}");
        }
    }
}
