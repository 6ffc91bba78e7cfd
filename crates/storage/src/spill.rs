//! Sorts any number of records with a fixed amount of memory.
//!
//! Records are collected in memory. If they all fit, they are sorted and returned from there.
//! Otherwise, each full memory is sorted and appended to a spill file as a run, and the runs are
//! merged while they are read. If there are too many to merge at once, neighbouring runs are merged
//! into longer ones first. The spill file has no name, so it always disappears with the process.

mod gather;
mod merge;
pub mod queue;
mod run;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use longhaul_units::ByteCount;

use self::gather::Gathered;
use self::merge::{Merge, merge_until};
use self::run::{Run, write_record};

/// Maximum length in bytes of a record, key and value together. It is far above a path with a
/// digest, and limits the memory that a damaged length in a spill file can cause.
pub const MAXIMUM_RECORD_BYTES: usize = 1 << 20;

/// Resources for sorting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpillSettings {
    /// Memory for records, in bytes. A single longer record may exceed it.
    pub memory: ByteCount,
    /// Maximum number of records in memory, at least one. Each needs four additional bytes.
    pub records: usize,
    /// Maximum number of runs that are merged at once, at least two. Their buffers share `memory`.
    pub fan_in: usize,
    /// Directory of the spill files.
    pub directory: PathBuf,
}

impl Default for SpillSettings {
    /// 1 MiB and 32,768 records (the name of a scientific file has about 30 bytes), 64 runs, and
    /// the system's directory for temporary files.
    fn default() -> SpillSettings {
        SpillSettings {
            memory: ByteCount(1 << 20),
            records: 32 << 10,
            fan_in: 64,
            directory: std::env::temp_dir(),
        }
    }
}

/// A record that is read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Key by which records are sorted, in byte order.
    pub key: &'a [u8],
    /// Value of the record.
    pub value: &'a [u8],
}

/// Collects records in any order.
pub struct Sorter {
    settings: SpillSettings,
    gathered: Gathered,
    spill: Option<Spill>,
}

impl Sorter {
    /// Creates an empty sorter. It uses no memory or disk space yet.
    pub fn new(settings: SpillSettings) -> Sorter {
        Sorter {
            gathered: Gathered::new(&settings),
            settings,
            spill: None,
        }
    }

    /// Adds a record.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a record above [`MAXIMUM_RECORD_BYTES`]; the errors of the spill file,
    /// with the name of its directory.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        if key.len().saturating_add(value.len()) > MAXIMUM_RECORD_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a record is too long to be sorted",
            ));
        }
        let record = Record { key, value };
        if !self.gathered.fits(record) {
            self.spill_gathered()?;
        }
        self.gathered.push(record);
        Ok(())
    }

    /// Returns the records in the byte order of their keys. Records with equal keys stay in the
    /// order in which they were added.
    ///
    /// # Errors
    ///
    /// The errors of the spill file.
    pub fn finish(mut self) -> io::Result<Sorted> {
        if self.spill.is_none() {
            self.gathered.sort();
            return Ok(Sorted(Source::Memory(self.gathered)));
        }
        self.spill_gathered()?;
        let Sorter {
            settings,
            gathered,
            spill,
        } = self;
        // Freed because the merge needs the memory.
        drop(gathered);
        let runs = spill.map(Spill::finish).transpose()?.unwrap_or_default();
        let merge = merge_until(runs, &settings)
            .and_then(|runs| Merge::new(runs, &settings))
            .map_err(|error| TemporaryError::wrap(error, &settings.directory))?;
        Ok(Sorted(Source::Disk(Box::new(merge))))
    }

    fn spill_gathered(&mut self) -> io::Result<()> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        self.gathered.sort();
        self.append_run()
            .map_err(|error| TemporaryError::wrap(error, &self.settings.directory))?;
        self.gathered.clear();
        Ok(())
    }

    fn append_run(&mut self) -> io::Result<()> {
        let spill = match &mut self.spill {
            Some(spill) => spill,
            empty => empty.insert(Spill::new(&self.settings.directory)?),
        };
        while let Some(record) = self.gathered.next_record() {
            spill.push(record)?;
        }
        spill.end_run();
        Ok(())
    }
}

/// Records in sorted order.
pub struct Sorted(Source);

enum Source {
    Memory(Gathered),
    Disk(Box<Merge>),
}

impl Sorted {
    /// Returns the next record, which is valid until the next call.
    ///
    /// # Errors
    ///
    /// The errors of the spill file. Records after an error must not be used.
    pub fn next_record(&mut self) -> io::Result<Option<Record<'_>>> {
        match &mut self.0 {
            Source::Memory(gathered) => Ok(gathered.next_record()),
            Source::Disk(merge) => merge.next_record(),
        }
    }

    /// True if the records did not fit into memory.
    pub fn is_spilled(&self) -> bool {
        matches!(self.0, Source::Disk(_))
    }
}

/// A spill file that is being written.
struct Spill {
    writer: BufWriter<File>,
    /// Number of bytes written so far.
    length: u64,
    /// Offset of the current run in bytes.
    start: u64,
    runs: Vec<(u64, u64)>,
}

/// Size in bytes of the write buffer.
const WRITE_BYTES: usize = 64 << 10;

impl Spill {
    fn new(directory: &Path) -> io::Result<Spill> {
        Ok(Spill {
            writer: BufWriter::with_capacity(WRITE_BYTES, nameless_file(directory)?),
            length: 0,
            start: 0,
            runs: Vec::new(),
        })
    }

    fn push(&mut self, record: Record<'_>) -> io::Result<()> {
        self.length += write_record(&mut self.writer, record)?;
        Ok(())
    }

    fn end_run(&mut self) {
        self.runs.push((self.start, self.length));
        self.start = self.length;
    }

    fn finish(mut self) -> io::Result<Vec<Run>> {
        self.writer.flush()?;
        let file = self
            .writer
            .into_inner()
            .map_err(|error| error.into_error())?;
        Ok(Run::all_of(file, &self.runs))
    }
}

/// Error for a directory for temporary files that cannot hold the data.
#[derive(Debug, thiserror::Error)]
#[error(
    "{}: cannot keep temporary data there: {source}; {remedy}name another directory with TMPDIR",
    directory.display(),
    remedy = match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free some room, or ",
        _ => "",
    }
)]
pub struct TemporaryError {
    directory: PathBuf,
    /// Error of the system.
    pub source: io::Error,
}

impl TemporaryError {
    /// Wraps an error, to name the directory.
    pub fn wrap(source: io::Error, directory: &Path) -> io::Error {
        if TemporaryError::within(&source).is_some() {
            return source;
        }
        let directory = directory.to_owned();
        io::Error::new(source.kind(), TemporaryError { directory, source })
    }

    /// Returns the `TemporaryError` inside an error.
    pub fn within(error: &io::Error) -> Option<&TemporaryError> {
        error.get_ref()?.downcast_ref()
    }
}

/// Creates a file that no other process can open and that is deleted when it is closed.
///
/// # Errors
///
/// An [`io::Error`] that contains a [`TemporaryError`].
pub fn nameless_file(directory: &Path) -> io::Result<File> {
    let file = match temporary(directory) {
        Some(file) => Ok(file),
        None => unlinked_file(directory),
    };
    file.map_err(|error| TemporaryError::wrap(error, directory))
}

/// Creates the file with `O_TMPFILE`, which not every file system supports. Returns `None` for any
/// failure, because the other method will report it.
#[cfg(target_os = "linux")]
fn temporary(directory: &Path) -> Option<File> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::open(directory, flags, mode)
        .ok()
        .map(File::from)
}

#[cfg(not(target_os = "linux"))]
fn temporary(_: &Path) -> Option<File> {
    None
}

/// Creates and unlinks the file. The name need not be secret: `create_new` follows no links and
/// opens no existing files.
fn unlinked_file(directory: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    static NEXT: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!(".longhaul-spill-{}-{number}", std::process::id());
        let path = directory.join(name);
        let mut options = File::options();
        options.read(true).write(true).create_new(true).mode(0o600);
        match options.open(&path) {
            Ok(file) => {
                std::fs::remove_file(&path)?;
                return Ok(file);
            }
            // Left by a process with the same ID that was killed between the two calls.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
