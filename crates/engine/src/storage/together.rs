//! Many small files made durable at the price of a few.
//!
//! `fsync` of each of a thousand new files is a thousand flushes of the disk's cache, though the
//! first one's journal commit held them all. `syncfs` is one, with the same promise. But it also
//! writes what others have dirty on that file system, and waits for it. So it is used if little is
//! dirty, on file systems where it was measured to be faster, and for enough files to pay off.
//!
//! Data errors are still found file by file: each file's pages are waited for first, which reports
//! the error on that open file. `syncfs` reports those of the whole file system only since Linux
//! 5.8.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use super::StoredFile;
use crate::looks::Pace;
use crate::notices::is_refusal;

/// Fewer files than this are synced one by one: a `syncfs` costs what a few
/// flushes do, and disturbs others.
const FEWEST_TOGETHER: usize = 8;

/// Dirty bytes of this host beyond which everybody's would be waited for too
/// long: a slow disk of 100 MB/s has written them in a third of a second.
const MOST_DIRTY_BYTES: u64 = 32 << 20;

/// Makes data and metadata of files durable, as [`StoredFile::sync_all`] of each
/// would; one result for each. Begin their writeback before
/// ([`super::Advice::StartWriteback`]). Where each takes long, as over a network, many are
/// synced at once.
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
        // Those that failed keep their error.
        let left = group.into_iter().filter(|index| results[*index].is_ok());
        let left: Vec<usize> = left.collect();
        let synced = pace.look(&left, |index| files[*index].sync_all());
        for (index, synced) in left.into_iter().zip(synced) {
            results[index] = synced;
        }
    }
    results
}

/// False where each file is still to be synced by itself.
fn sync_group(
    files: &[Arc<dyn StoredFile>],
    group: &[usize],
    results: &mut [io::Result<()>],
    may: impl Fn() -> bool,
) -> bool {
    for &index in group {
        results[index] = match files[index].wait_written() {
            // A sandbox may not know the call, or a file system.
            Err(error) if is_refusal(&error) => return false,
            waited => waited,
        };
    }
    // Asked only now: what was waited for is not dirty any more.
    may() && files[group[0]].sync_device().is_ok()
}

/// Whether little is dirty or being written on the whole host: of a single file
/// system the kernel does not tell.
#[cfg(target_os = "linux")]
fn little_is_dirty() -> bool {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    dirty_bytes(&text).is_some_and(|bytes| bytes <= MOST_DIRTY_BYTES)
}

#[cfg(not(target_os = "linux"))]
fn little_is_dirty() -> bool {
    false
}

/// What `/proc/meminfo` says.
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
    use crate::storage::posix::PosixDirectory;
    use crate::storage::{Creation, DataMode};

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
    fn dirty_is_what_waits_and_what_is_on_its_way() {
        let text = "MemFree: 1 kB\nDirty:    12 kB\nWriteback:   3 kB\nWritebackTmp: 9 kB\n";
        assert_eq!(dirty_bytes(text), Some(15 << 10));
        assert_eq!(dirty_bytes("Dirty: 12 kB\n"), None);
        assert_eq!(dirty_bytes(""), None);
    }
}
