//! Measures the maximum speed of a file system with small files: one thread that knows the names
//! and has the data writes them without a scan and without staging. It is the reference for copies
//! of small files.
//!
//! `cargo xtask bench local-writer HOW DIRECTORY FILES SMALLEST LARGEST` writes into DIRECTORY,
//! which must not exist, a thousand files to a directory, and prints
//! `{"bytes":…,"wall":…,"cpu":…}`.
//!
//! It removes no files. ext4 does not use an inode again for minutes after its file was removed,
//! and searches for another one step by step. A program that writes and removes in turns would
//! measure that search.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Files in a directory, and made durable together.
const BATCH: u64 = 1000;

/// Ways to make files durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Files are not made durable.
    Never,
    /// Each as soon as it is written.
    Each,
    /// Writeback begins at once, a thousand are synced one after the other: the
    /// measure for copies.
    Batches,
    /// As [`How::Batches`], but the writeback begins only with the sync.
    Late,
    /// Writeback begins at once, one sync of the file system for a thousand.
    FileSystem,
}

/// All of them and their names.
pub const ALL: [(How, &str); 5] = [
    (How::Never, "never"),
    (How::Each, "each"),
    (How::Batches, "batches"),
    (How::Late, "late"),
    (How::FileSystem, "filesystem"),
];

/// Sizes of files, spread evenly between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes of the smallest.
    pub smallest: u64,
    /// Bytes of the largest.
    pub largest: u64,
}

impl Sizes {
    /// Bytes of a file, by its number: the same in every run.
    pub fn of(self, index: u64) -> u64 {
        // Knuth's multiplicative hash spreads neighbours over the whole range.
        let spread = index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        self.smallest + spread % (self.largest - self.smallest + 1)
    }

    /// Returns the bytes of this number of files.
    pub fn sum(self, files: u64) -> u64 {
        (0..files).map(|index| self.of(index)).sum()
    }
}

/// The command.
///
/// # Errors
///
/// If the arguments make no sense, or writing fails.
pub fn run(arguments: &[&str]) -> Result<(), String> {
    let [how, directory, files, smallest, largest] = arguments else {
        return Err("write: bench local-writer HOW DIRECTORY FILES SMALLEST LARGEST".to_owned());
    };
    let known = ALL.iter().find(|(_, name)| name == how);
    let (how, _) = known.ok_or_else(|| format!("\"{how}\" is not one of {ALL:?}"))?;
    let number = |text: &str| {
        text.parse::<u64>()
            .map_err(|error| format!("{text}: {error}"))
    };
    let sizes = Sizes {
        smallest: number(smallest)?,
        largest: number(largest)?.max(number(smallest)?),
    };
    let directory = Path::new(directory);
    let files = number(files)?;
    let data = vec![5; sizes.largest as usize];
    let (began, before) = (Instant::now(), super::work::cpu_of("self")?.0);
    let written = write(*how, directory, files, sizes, &data);
    let bytes = written.map_err(|error| format!("{}: {error}", directory.display()))?;
    let wall = began.elapsed().as_secs_f64();
    let cpu = super::work::cpu_of("self")?.0 - before;
    println!("{{\"bytes\":{bytes},\"wall\":{wall:.6},\"cpu\":{cpu:.6}}}");
    Ok(())
}

fn write(
    how: How,
    directory: &Path,
    files: u64,
    sizes: Sizes,
    data: &[u8],
) -> std::io::Result<u64> {
    fs::create_dir(directory)?;
    let mut bytes = 0;
    for first in (0..files).step_by(BATCH as usize) {
        let folder = directory.join((first / BATCH).to_string());
        fs::create_dir(&folder)?;
        let mut open = Vec::new();
        for index in first..files.min(first + BATCH) {
            let data = &data[..sizes.of(index) as usize];
            let mut file = File::create_new(path_of(&folder, index))?;
            file.write_all(data)?;
            bytes += data.len() as u64;
            match how {
                How::Never | How::Late => {}
                How::Each => file.sync_all()?,
                How::Batches | How::FileSystem => begin_writeback(&file),
            }
            open.push(file);
        }
        commit(how, &open, &folder, directory)?;
    }
    Ok(bytes)
}

fn path_of(folder: &Path, index: u64) -> PathBuf {
    folder.join(index.to_string())
}

/// Makes a batch durable, and the names of its files and of their directory.
fn commit(how: How, open: &[File], folder: &Path, directory: &Path) -> std::io::Result<()> {
    match how {
        How::Never => return Ok(()),
        How::Each => {}
        How::Batches | How::Late => open.iter().try_for_each(File::sync_all)?,
        How::FileSystem => sync_file_system(&File::open(folder)?)?,
    }
    File::open(folder)?.sync_all()?;
    File::open(directory)?.sync_all()
}

#[expect(unsafe_code, reason = "std has no sync_file_range")]
fn begin_writeback(file: &File) {
    // SAFETY: the descriptor is open, and no memory is touched.
    let _ = unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
}

#[expect(unsafe_code, reason = "std has no syncfs")]
fn sync_file_system(file: &File) -> std::io::Result<()> {
    // SAFETY: the descriptor is open, and no memory is touched.
    match unsafe { libc::syncfs(file.as_raw_fd()) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_within_their_range_and_differ() {
        let sizes = Sizes {
            smallest: 1000,
            largest: 200_000,
        };
        let list: Vec<u64> = (0..10_000).map(|index| sizes.of(index)).collect();
        assert!(list.iter().all(|size| (1000..=200_000).contains(size)));
        let mean = sizes.sum(10_000) / 10_000;
        assert!((95_000..105_000).contains(&mean), "{mean}");
        let same = Sizes {
            smallest: 7,
            largest: 7,
        };
        assert_eq!(same.sum(3), 21);
    }
}
