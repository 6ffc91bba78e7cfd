//! Sorts any number of records with a fixed amount of memory.
//!
//! Records gather in memory. If they fit, they are sorted and served from there. Otherwise each
//! full memory is sorted and appended to a spill file as a run, and the runs are merged as they
//! are read. If there are too many to merge at once, neighbours are merged into longer runs first.
//! The spill file has no name, so it disappears with the process, whatever ends it.

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

/// Longest record that a [`Sorter`] takes, key and value together, in bytes:
/// far above a path with a digest, and what one damaged length in a spill file
/// can cost at most.
pub const MAXIMUM_RECORD_BYTES: usize = 1 << 20;

/// What sorting may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpillSettings {
    /// Memory for records, in bytes; a single longer record takes its length.
    pub memory: ByteCount,
    /// Records in memory, at least one; each takes four bytes beside its own.
    pub records: usize,
    /// Runs that are merged at once, at least two. Each takes a buffer, which
    /// share `memory`.
    pub fan_in: usize,
    /// Where spill files are made.
    pub directory: PathBuf,
}

impl Default for SpillSettings {
    /// 1 MiB and 32,768 records (a name of a scientific file has some 30
    /// bytes), 64 runs, the system's directory for temporary files.
    fn default() -> SpillSettings {
        SpillSettings {
            memory: ByteCount(1 << 20),
            records: 32 << 10,
            fan_in: 64,
            directory: std::env::temp_dir(),
        }
    }
}

/// A record as it is read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// What it is sorted by, as bytes.
    pub key: &'a [u8],
    /// What goes with it.
    pub value: &'a [u8],
}

/// Takes records in any order.
pub struct Sorter {
    settings: SpillSettings,
    gathered: Gathered,
    spill: Option<Spill>,
}

impl Sorter {
    /// A sorter without records; it takes neither memory nor disk yet.
    pub fn new(settings: SpillSettings) -> Sorter {
        Sorter {
            gathered: Gathered::new(&settings),
            settings,
            spill: None,
        }
    }

    /// Takes a record.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a record above [`MAXIMUM_RECORD_BYTES`]; those of
    /// the spill file, which name its directory.
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

    /// Gives the records in the byte order of their keys; those with equal
    /// keys in the order in which they were pushed.
    ///
    /// # Errors
    ///
    /// Those of the spill file.
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
        // Its memory now becomes that of the merge.
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

/// Records in order.
pub struct Sorted(Source);

enum Source {
    Memory(Gathered),
    Disk(Box<Merge>),
}

impl Sorted {
    /// The next record; it is valid until the next call.
    ///
    /// # Errors
    ///
    /// Those of the spill file. No record after an error may be used.
    pub fn next_record(&mut self) -> io::Result<Option<Record<'_>>> {
        match &mut self.0 {
            Source::Memory(gathered) => Ok(gathered.next_record()),
            Source::Disk(merge) => merge.next_record(),
        }
    }

    /// Whether the records did not fit into memory.
    pub fn is_spilled(&self) -> bool {
        matches!(self.0, Source::Disk(_))
    }
}

/// A spill file that is being written.
struct Spill {
    writer: BufWriter<File>,
    /// Bytes written so far.
    length: u64,
    /// Where the run began that is being written.
    start: u64,
    runs: Vec<(u64, u64)>,
}

/// Bytes gathered for one write.
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

/// The directory for temporary files did not take what has to wait there.
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
    /// What the system says.
    pub source: io::Error,
}

impl TemporaryError {
    /// An error that says that it was that directory.
    pub fn wrap(source: io::Error, directory: &Path) -> io::Error {
        if TemporaryError::within(&source).is_some() {
            return source;
        }
        let directory = directory.to_owned();
        io::Error::new(source.kind(), TemporaryError { directory, source })
    }

    /// The one within an error.
    pub fn within(error: &io::Error) -> Option<&TemporaryError> {
        error.get_ref()?.downcast_ref()
    }
}

/// A file that nobody else can open and that goes when it is closed.
///
/// # Errors
///
/// [`TemporaryError`] within.
pub fn nameless_file(directory: &Path) -> io::Result<File> {
    let file = match temporary(directory) {
        Some(file) => Ok(file),
        None => unlinked_file(directory),
    };
    file.map_err(|error| TemporaryError::wrap(error, directory))
}

/// By `O_TMPFILE`, which not every file system has; none for any failure,
/// because the other way will meet it again.
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

/// By creating and unlinking it. The name need not be secret: `create_new`
/// follows no link and takes no file of another.
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
            // Left by a process of the same number that was killed just then.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
