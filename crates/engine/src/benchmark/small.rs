//! Measures many small files: creation, two ways to make them durable, opening and reading.
//!
//! They are in a directory `.longhaul-bench-…`, which is removed at the end, also if the limit is
//! exceeded. The next run removes directories of killed runs.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_storage::fan_out::Pace;
use longhaul_storage::posix::PosixDirectory;
use longhaul_storage::together::{SYNCS_AT_ONCE, start_writeback, sync_together};
use longhaul_storage::{Creation, DataMode, Directory, StoredFile};
use longhaul_units::Random;

use super::{Limit, Sample, in_threads, timed};

/// Prefix of the directory's name. A directory with this prefix does not belong to a user.
const PREFIX: &str = ".longhaul-bench-";

/// Number of files of one flow in one repetition, which is the number that a copy commits at once.
pub const FILES: u64 = 1000;

/// Bytes of a file: a page.
pub const FILE_BYTES: u64 = 4096;

/// Operation to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmallJob {
    /// Create and write, not durable.
    Create,
    /// Make each durable separately.
    SyncEach,
    /// Start writeback at once, and make all durable together, as a copy does.
    SyncTogether,
    /// Open and read; the files may be cached.
    Open,
}

/// A directory for the measurement.
pub struct Small {
    directory: PathBuf,
    /// Held lock, which marks the directory as in use.
    _lock: File,
    made: u64,
}

impl Small {
    /// Creates a directory beneath `path`, and removes those of killed runs.
    ///
    /// # Errors
    ///
    /// Errors of creating a directory.
    pub fn prepare(path: &Path) -> io::Result<Small> {
        remove_stale(path)?;
        let directory = path.join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir(&directory)?;
        let lock = File::create(directory.join("lock"))?;
        lock.lock()?;
        Ok(Small {
            directory,
            _lock: lock,
            made: 0,
        })
    }

    /// Measures once, with `flows` threads and a thousand files each.
    ///
    /// # Errors
    ///
    /// Errors of the file system; fails if the limit is exceeded.
    pub fn measure(&mut self, job: SmallJob, flows: usize, limit: &Limit) -> io::Result<Sample> {
        let mut folders = Vec::new();
        for _ in 0..flows {
            let folder = self.directory.join(self.made.to_string());
            self.made += 1;
            fs::create_dir(&folder)?;
            folders.push(PosixDirectory::open_root(&folder)?);
        }
        let data = Random::new(1).bytes(FILE_BYTES as usize);
        let make = |number: usize, job| write_files(&folders[number], job, &data, limit);
        if job == SmallJob::Open {
            in_threads(flows, |number| make(number, SmallJob::Create))?;
        }
        timed(|| {
            in_threads(flows, |number| match job {
                SmallJob::Open => read_files(&folders[number], limit),
                _ => make(number, job),
            })?;
            let files = FILES * flows as u64;
            Ok((files * FILE_BYTES, files))
        })
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // An error is ignored: the next run tries again.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Removes directories of ended runs, whose locks are free.
fn remove_stale(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name();
        let ours = name.to_string_lossy().starts_with(PREFIX) && entry.file_type()?.is_dir();
        let lock = || File::open(entry.path().join("lock"));
        if ours && lock().is_ok_and(|lock| lock.try_lock().is_ok()) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

fn write_files(
    folder: &Arc<dyn Directory>,
    job: SmallJob,
    data: &[u8],
    limit: &Limit,
) -> io::Result<()> {
    let mut open: Vec<Arc<dyn StoredFile>> = Vec::new();
    for number in 0..FILES {
        limit.go_on()?;
        let name = number.to_string();
        let file = folder.create_file(name.as_bytes(), Creation::New, DataMode::Buffered)?;
        file.write_at(data, 0)?;
        match job {
            SmallJob::SyncEach => file.sync_all()?,
            SmallJob::SyncTogether => {
                start_writeback(&*file, FILE_BYTES);
                open.push(file);
            }
            SmallJob::Create | SmallJob::Open => {}
        }
    }
    sync_together(&open, &Pace::with_threads(SYNCS_AT_ONCE))
        .into_iter()
        .collect::<io::Result<()>>()?;
    match job {
        SmallJob::SyncEach | SmallJob::SyncTogether => folder.sync(),
        SmallJob::Create | SmallJob::Open => Ok(()),
    }
}

fn read_files(folder: &Arc<dyn Directory>, limit: &Limit) -> io::Result<()> {
    let mut data = vec![0; FILE_BYTES as usize];
    for number in 0..FILES {
        limit.go_on()?;
        let name = number.to_string();
        let file = folder.open_file(name.as_bytes(), DataMode::Buffered)?;
        file.read_at(&mut data, 0)?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::super::tests::{endless, over};
    use super::*;

    const JOBS: [SmallJob; 4] = [
        SmallJob::Create,
        SmallJob::SyncEach,
        SmallJob::SyncTogether,
        SmallJob::Open,
    ];

    #[test]
    fn small_files_are_written_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        let mut small = Small::prepare(directory.path()).unwrap();
        for job in JOBS {
            let sample = small
                .measure(job, 2, &endless(&AtomicBool::new(false)))
                .unwrap();
            assert_eq!(sample.files, 2 * FILES, "{job:?}");
            assert_eq!(sample.bytes, 2 * FILES * FILE_BYTES);
        }
        assert!(
            small
                .measure(JOBS[0], 1, &endless(&AtomicBool::new(true)))
                .is_err()
        );
        for job in JOBS {
            let late = small.measure(job, 1, &over(&AtomicBool::new(false)));
            assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut, "{job:?}");
        }
        drop(small);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn leftovers_of_a_killed_run_are_removed_and_those_of_a_living_one_stay() {
        let directory = tempfile::tempdir().unwrap();
        let stale = directory.path().join(".longhaul-bench-1");
        fs::create_dir(&stale).unwrap();
        fs::write(stale.join("lock"), "").unwrap();
        let living = directory.path().join(".longhaul-bench-2");
        fs::create_dir(&living).unwrap();
        let lock = File::create(living.join("lock")).unwrap();
        lock.lock().unwrap();
        fs::write(directory.path().join("data"), "a user's").unwrap();
        drop(Small::prepare(directory.path()).unwrap());
        assert!(!stale.exists() && living.exists());
        assert!(directory.path().join("data").exists());
    }
}
