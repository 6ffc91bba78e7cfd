//! Makes many small files durable with few flushes of the disk's cache.
//!
//! `fsync` for each of a thousand new files flushes the cache a thousand times. `syncfs` flushes it
//! once, with the same guarantee. But it also writes the dirty data of all other programs on that
//! file system, and waits for them. Therefore it is only used if there is little dirty data, on
//! file systems where measurements showed it to be faster, and for enough files.
//!
//! The kernel writes many small files more efficiently if it may choose the time. Files of less
//! than 16 KiB therefore stay dirty until the sync, which writes them all.
//!
//! Errors of data are still found for each file: after the sync, each open file reports its errors.
//! `syncfs` itself reports errors of the whole file system only since Linux 5.8.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use super::{Advice, StoredFile};
use crate::fan_out::Pace;
use longhaul_system::refusals::is_refusal;

/// Minimum number of files for a `syncfs`, which costs as much as a few flushes, and disturbs other
/// programs. Fewer files are synced one by one.
const FEWEST_TOGETHER: usize = 8;

/// Maximum number of dirty bytes of this host for a `syncfs`. With more, it would wait too long for
/// other programs. A slow disk of 100 MB/s writes this many in a third of a second.
const MOST_DIRTY_BYTES: u64 = 32 << 20;

/// Minimum size in bytes of files that are written as soon as they are complete. A batch of 1,024
/// smaller files has at most 16 MiB of dirty data, half of [`MOST_DIRTY_BYTES`].
const LEAST_STARTED_BYTES: u64 = 16 << 10;

/// Number of files that are synced in parallel if each sync is slow. Parallel syncs share a flush
/// of the disk's cache.
pub const SYNCS_AT_ONCE: usize = 64;

/// Starts to write the data of a complete file, unless it is so small that the sync of its batch
/// writes it more efficiently. `length` is the file's size in bytes.
pub fn start_writeback(file: &dyn StoredFile, length: u64) {
    if length >= LEAST_STARTED_BYTES {
        file.advise(Advice::StartWriteback, 0, length);
    }
}

/// Makes data and metadata of files durable, as [`StoredFile::sync_all`] of each would. Returns one
/// result for each file, in their order. Call [`start_writeback`] for each file before. Slow syncs,
/// as over a network, run in parallel.
pub fn sync_together(files: &[Arc<dyn StoredFile>], pace: &Pace) -> Vec<io::Result<()>> {
    sync_with(files, pace, little_is_dirty)
}

fn sync_with(
    files: &[Arc<dyn StoredFile>],
    pace: &Pace,
    may: impl Fn() -> bool,
) -> Vec<io::Result<()>> {
    let mut results: Vec<io::Result<()>> = files.iter().map(|_| Ok(())).collect();
    let mut groups: BTreeMap<Option<u64>, Vec<usize>> = BTreeMap::new();
    for (index, file) in files.iter().enumerate() {
        groups.entry(file.device()).or_default().push(index);
    }
    for (device, group) in groups {
        let together = device.is_some() && group.len() >= FEWEST_TOGETHER;
        if together && sync_group(files, &group, &mut results, &may) {
            continue;
        }
        // A file that failed keeps its error.
        let left = group.into_iter().filter(|index| results[*index].is_ok());
        let left: Vec<usize> = left.collect();
        for index in &left {
            files[*index].advise(Advice::StartWriteback, 0, 0);
        }
        let synced = pace.look(&left, |index| files[*index].sync_all());
        for (index, synced) in left.into_iter().zip(synced) {
            results[index] = synced;
        }
    }
    results
}

/// Syncs the file system of a group. Returns false if each file must still be synced separately.
fn sync_group(
    files: &[Arc<dyn StoredFile>],
    group: &[usize],
    results: &mut [io::Result<()>],
    may: impl Fn() -> bool,
) -> bool {
    // Waits for started writebacks first, because they would count as dirty data.
    if !wait_for_group(files, group, results) {
        return false;
    }
    may() && files[group[0]].sync_device().is_ok() && wait_for_group(files, group, results)
}

/// Waits for the writeback of each file, and records its first error. Returns false if the file
/// system or a sandbox refuses the call.
fn wait_for_group(
    files: &[Arc<dyn StoredFile>],
    group: &[usize],
    results: &mut [io::Result<()>],
) -> bool {
    for &index in group {
        match files[index].wait_written() {
            Err(error) if is_refusal(&error) => return false,
            Err(error) if results[index].is_ok() => results[index] = Err(error),
            _ => {}
        }
    }
    true
}

/// True if there is little dirty data and writeback on the whole host. The kernel does not report
/// it for a single file system.
#[cfg(target_os = "linux")]
fn little_is_dirty() -> bool {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    dirty_bytes(&text).is_some_and(|bytes| bytes <= MOST_DIRTY_BYTES)
}

#[cfg(not(target_os = "linux"))]
fn little_is_dirty() -> bool {
    false
}

/// Parses the dirty bytes in `/proc/meminfo`.
fn dirty_bytes(text: &str) -> Option<u64> {
    let value = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        let kibibytes = line.split_ascii_whitespace().nth(1)?;
        Some(kibibytes.parse::<u64>().ok()? << 10)
    };
    Some(value("Dirty:")? + value("Writeback:")?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::posix::PosixDirectory;
    use crate::{Creation, DataMode};

    fn some_files(count: usize) -> (tempfile::TempDir, Vec<Arc<dyn StoredFile>>) {
        let directory = tempfile::tempdir().unwrap();
        let root = PosixDirectory::open_root(directory.path()).unwrap();
        let files = (0..count).map(|number| {
            let name = number.to_string();
            let file = root.create_file(name.as_bytes(), Creation::New, DataMode::Buffered);
            let file = file.unwrap();
            file.write_at(b"data", 0).unwrap();
            file
        });
        let files = files.collect();
        (directory, files)
    }

    #[test]
    fn each_file_has_a_result_however_it_was_synced() {
        for (count, may) in [(0, true), (3, true), (20, true), (20, false)] {
            let (_directory, files) = some_files(count);
            let results = sync_with(&files, &Pace::default(), || may);
            assert_eq!(results.len(), count);
            assert!(results.iter().all(Result::is_ok));
        }
    }

    #[test]
    fn dirty_bytes_include_those_in_writeback() {
        let text = "MemFree: 1 kB\nDirty:    12 kB\nWriteback:   3 kB\nWritebackTmp: 9 kB\n";
        assert_eq!(dirty_bytes(text), Some(15 << 10));
        assert_eq!(dirty_bytes("Dirty: 12 kB\n"), None);
        assert_eq!(dirty_bytes(""), None);
    }
}
