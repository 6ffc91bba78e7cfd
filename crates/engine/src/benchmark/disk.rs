//! Measures one large file, which threads write or read block by block, with the buffers and system
//! calls of a copy.
//!
//! The file has no name while it is measured, so it never remains.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use longhaul_storage::posix::PosixDirectory;
use longhaul_storage::{Advice, Creation, DataMode, Directory, StoredFile};
use longhaul_units::{ByteCount, Random};

use super::{Limit, Sample, in_threads, timed};
use crate::pool::{Buffer, BufferPool};

/// Parameters of one measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskJob {
    /// If true, the file is written and made durable; otherwise read, not from the page cache.
    pub write: bool,
    /// If true, with direct I/O, if the file system supports it.
    pub direct: bool,
    /// Bytes of a block, a multiple of 4096.
    pub block: usize,
    /// Number of threads.
    pub flows: usize,
    /// Bytes of the file, a multiple of the block.
    pub file_bytes: u64,
}

/// A file without a name, opened for direct and for buffered I/O.
struct Nameless {
    direct: Arc<dyn StoredFile>,
    buffered: Arc<dyn StoredFile>,
    bytes: u64,
}

/// A directory to measure.
pub struct Disk {
    root: Arc<dyn Directory>,
    /// Files for reading, written once for each size.
    to_read: Vec<Nameless>,
}

impl Disk {
    /// Opens a directory.
    ///
    /// # Errors
    ///
    /// Errors of opening a directory.
    pub fn open(path: &Path) -> io::Result<Disk> {
        Ok(Disk {
            root: PosixDirectory::open_root(path)?,
            to_read: Vec::new(),
        })
    }

    /// Measures once; the second value is true if direct I/O was actually used.
    ///
    /// # Errors
    ///
    /// Errors of the file system; fails if the limit is exceeded.
    pub fn measure(&mut self, job: &DiskJob, limit: &Limit) -> io::Result<(Sample, bool)> {
        let pool = BufferPool::new(ByteCount(u64::MAX), job.block);
        let buffers = (0..job.flows).filter_map(|_| pool.take());
        let mut buffers: Vec<Buffer> = buffers.collect();
        let data = Random::new(job.file_bytes).bytes(job.block);
        // Touch the buffers before the clock starts.
        for buffer in &mut buffers {
            buffer[..job.block].copy_from_slice(&data);
        }
        let made;
        let nameless = if job.write {
            made = self.nameless(job.file_bytes)?;
            made.buffered.preallocate(job.file_bytes)?;
            &made
        } else {
            self.written(job.file_bytes, limit)?
        };
        let file = if job.direct {
            &nameless.direct
        } else {
            &nameless.buffered
        };
        if !job.write {
            file.advise(Advice::DropCache, 0, 0);
        }
        let sample = timed(|| {
            move_blocks(&**file, job, buffers, limit)?;
            if job.write {
                file.sync_data()?;
            }
            Ok((job.file_bytes, 0))
        })?;
        let direct = job.direct && file.data_mode() == DataMode::Direct;
        Ok((sample, direct))
    }

    /// True if a file of this size exists for reading; otherwise it is written first.
    pub fn has(&self, file_bytes: u64) -> bool {
        self.to_read.iter().any(|file| file.bytes == file_bytes)
    }

    /// Creates a file and removes its name at once.
    fn nameless(&self, bytes: u64) -> io::Result<Nameless> {
        let name = format!(".longhaul-disk-{}", std::process::id());
        let name = name.as_bytes();
        // An existing file of this name was left by a killed process.
        let _ = self.root.remove_file(name);
        let direct = self
            .root
            .create_file(name, Creation::New, DataMode::Direct)?;
        let opened = self
            .root
            .create_file(name, Creation::Existing, DataMode::Buffered);
        self.root.remove_file(name)?;
        let buffered = opened?;
        Ok(Nameless {
            direct,
            buffered,
            bytes,
        })
    }

    fn written(&mut self, bytes: u64, limit: &Limit) -> io::Result<&Nameless> {
        let known = self.to_read.iter().position(|file| file.bytes == bytes);
        let index = match known {
            Some(index) => index,
            None => {
                let file = self.nameless(bytes)?;
                fill(&*file.direct, bytes, limit)?;
                self.to_read.push(file);
                self.to_read.len() - 1
            }
        };
        Ok(&self.to_read[index])
    }
}

/// Writes the file for reading, makes it durable, and keeps it out of the cache.
fn fill(file: &dyn StoredFile, bytes: u64, limit: &Limit) -> io::Result<()> {
    let job = DiskJob {
        write: true,
        direct: true,
        block: 1 << 20,
        flows: 2,
        file_bytes: bytes,
    };
    let pool = BufferPool::new(ByteCount(u64::MAX), job.block);
    let mut buffers: Vec<Buffer> = (0..job.flows).filter_map(|_| pool.take()).collect();
    for (seed, buffer) in buffers.iter_mut().enumerate() {
        Random::new(seed as u64).fill(&mut buffer[..job.block]);
    }
    move_blocks(file, &job, buffers, limit)?;
    file.sync_data()
}

/// Writes or reads the blocks in turn, with a thread for each buffer.
fn move_blocks(
    file: &dyn StoredFile,
    job: &DiskJob,
    buffers: Vec<Buffer>,
    limit: &Limit,
) -> io::Result<()> {
    let next = AtomicU64::new(0);
    let buffers: Vec<_> = buffers.into_iter().map(std::sync::Mutex::new).collect();
    in_threads(buffers.len(), |number| {
        let mut buffer = longhaul_system::queue::lock(&buffers[number]);
        loop {
            limit.go_on()?;
            let offset = next.fetch_add(job.block as u64, Ordering::Relaxed);
            if offset >= job.file_bytes {
                return Ok(());
            }
            let length = (job.file_bytes - offset).min(job.block as u64) as usize;
            if job.write {
                file.write_at(&buffer[..length], offset)?;
            } else {
                let count = file.read_at(&mut buffer[..length], offset)?;
                if count < length {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        }
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::super::tests::{endless, over};
    use super::*;

    fn jobs() -> impl Iterator<Item = DiskJob> {
        [(true, true), (true, false), (false, true), (false, false)]
            .into_iter()
            .map(|(write, direct)| DiskJob {
                write,
                direct,
                block: 64 << 10,
                flows: 3,
                file_bytes: 1 << 20,
            })
    }

    #[test]
    fn every_method_moves_the_whole_file_and_leaves_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let mut disk = Disk::open(directory.path()).unwrap();
        for job in jobs() {
            let (sample, direct) = disk
                .measure(&job, &endless(&AtomicBool::new(false)))
                .unwrap();
            assert_eq!((sample.bytes, sample.files), (1 << 20, 0), "{job:?}");
            assert!(sample.wall > 0.0 && (job.direct || !direct), "{job:?}");
            // The directory is empty during the measurement too.
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn a_measurement_ends_at_a_signal_or_its_budget() {
        let directory = tempfile::tempdir().unwrap();
        let mut disk = Disk::open(directory.path()).unwrap();
        for job in jobs() {
            assert!(
                disk.measure(&job, &endless(&AtomicBool::new(true)))
                    .is_err()
            );
            let late = disk.measure(&job, &over(&AtomicBool::new(false)));
            assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut, "{job:?}");
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        }
    }
}
