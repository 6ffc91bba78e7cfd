//! Generates the files of a dataset once per size, and compares the copies with them.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use longhaul_measure::record::{DatasetRecord, SizeClass};
use longhaul_units::ByteCount;
use serde::{Deserialize, Serialize};

use super::content::{Bytes, Content};
use super::file::Data;

/// Maximum number of files per directory.
const FILES_IN_A_DIRECTORY: u64 = 1000;

/// Number of bytes per read or write.
const AT_ONCE: usize = 1 << 20;

/// Number and sizes of the files of a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    files: u64,
    sizes: Sizes,
    #[serde(default)]
    content: Content,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Sizes {
    /// Distributed evenly between these two sizes in bytes.
    Between(u64, u64),
    /// Equal within one byte, with this sum in bytes.
    Sum(u64),
}

impl Shape {
    /// Returns the shape of a dataset. If the data are given by time, the files have
    /// `bytes` bytes in total. Otherwise the number of files is reduced so that they have
    /// about `bytes` bytes; 0 means all files.
    pub fn of(data: &Data, bytes: u64) -> Shape {
        match (data.smallest, data.largest) {
            (Some(smallest), Some(largest)) => {
                let whole = Shape {
                    files: data.files,
                    sizes: Sizes::Between(smallest.0, largest.0),
                    content: data.content,
                };
                let share = match (bytes, whole.bytes()) {
                    (0, _) | (_, 0) => 1.0,
                    (bytes, all) => (bytes as f64 / all as f64).min(1.0),
                };
                let files = (data.files as f64 * share).round().max(1.0) as u64;
                Shape { files, ..whole }
            }
            _ => Shape {
                files: data.files,
                sizes: Sizes::Sum(bytes),
                content: data.content,
            },
        }
    }

    /// Returns the size of a file in bytes, by its number.
    fn size(&self, index: u64) -> u64 {
        match self.sizes {
            Sizes::Between(smallest, largest) => {
                // Knuth's multiplicative hash spreads neighbours over the whole range.
                let spread = index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                smallest + spread % (largest - smallest).saturating_add(1).max(1)
            }
            Sizes::Sum(bytes) => bytes / self.files + u64::from(index < bytes % self.files),
        }
    }

    /// Returns the number of files.
    pub fn files(&self) -> u64 {
        self.files
    }

    /// Returns the total size in bytes.
    pub fn bytes(&self) -> u64 {
        match self.sizes {
            Sizes::Sum(bytes) => bytes,
            Sizes::Between(..) => (0..self.files).map(|index| self.size(index)).sum(),
        }
    }

    /// Returns a name that is unique among shapes.
    fn name(&self) -> String {
        let name = match self.sizes {
            Sizes::Sum(bytes) => format!("{}-files-of-{bytes}-in-all", self.files),
            Sizes::Between(from, to) => format!("{}-files-of-{from}-to-{to}", self.files),
        };
        match self.content {
            Content::Random => name,
            content => format!("{name}-{}", content.name()),
        }
    }

    fn path(&self, index: u64) -> PathBuf {
        match self.files {
            files if files <= FILES_IN_A_DIRECTORY => PathBuf::from(format!("f{index}")),
            _ => PathBuf::from(format!("d{}/f{index}", index / FILES_IN_A_DIRECTORY)),
        }
    }

    /// Returns the description for a record.
    pub fn record(&self, name: &str) -> DatasetRecord {
        let mut sizes: std::collections::BTreeMap<u64, (u64, u64)> = Default::default();
        for index in 0..self.files {
            let size = self.size(index);
            // Classes are powers of four: few of them show the distribution.
            let mut below = 1_u64;
            while below <= size {
                below = below.saturating_mul(4);
            }
            let class = sizes.entry(below).or_default();
            class.0 += 1;
            class.1 += size;
        }
        let classes = sizes.into_iter().map(|(below, (files, bytes))| SizeClass {
            below: ByteCount(below),
            files,
            size: ByteCount(bytes),
        });
        DatasetRecord {
            name: name.to_owned(),
            files: self.files,
            size: ByteCount(self.bytes()),
            sizes: classes.collect(),
        }
    }
}

/// Generated source files.
#[derive(Debug)]
pub struct Set {
    shape: Shape,
    /// Directory of the files.
    pub source: PathBuf,
    /// Digests of the files, in order.
    digests: Vec<blake3::Hash>,
}

/// Result of the comparison of a run's files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrived {
    /// Total size in bytes of the files that are correct.
    pub bytes: u64,
    /// Description of the first file that is not correct.
    pub wrong: Option<String>,
}

fn at(path: &Path) -> impl Fn(io::Error) -> String + '_ {
    move |error| format!("{}: {error}", path.display())
}

impl Set {
    /// Generates the files below a directory, or uses the files of an earlier run.
    ///
    /// # Errors
    ///
    /// Returns an error with the file that cannot be created.
    pub fn prepare(shape: Shape, below: &Path) -> Result<Set, String> {
        let home = below.join(shape.name());
        let source = home.join("data");
        let list = home.join("digests");
        if let Some(digests) = read_digests(&list, shape.files) {
            return Ok(Set {
                shape,
                source,
                digests,
            });
        }
        check_room(below, shape.bytes())?;
        match fs::remove_dir_all(&home) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(&home)(error)),
            _ => {}
        }
        fs::create_dir_all(&source).map_err(at(&source))?;
        let mut digests = Vec::new();
        for index in 0..shape.files {
            let path = source.join(shape.path(index));
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent).map_err(at(parent))?;
            }
            let bytes = Bytes::new(shape.content, index);
            digests.push(write_file(&path, shape.size(index), bytes).map_err(at(&path))?);
        }
        // Otherwise the first run would compete with the write-back of these files.
        // Copies of 10,000 files took three times as long.
        sync(&home)?;
        let text: Vec<String> = digests.iter().map(|digest| format!("{digest}\n")).collect();
        let staged = home.join("digests.new");
        fs::write(&staged, text.concat()).map_err(at(&staged))?;
        fs::rename(&staged, &list).map_err(at(&list))?;
        Ok(Set {
            shape,
            source,
            digests,
        })
    }

    /// Loads the description of files that were generated below a directory.
    ///
    /// # Errors
    ///
    /// Returns an error if there are no such files.
    pub fn load(shape: Shape, below: &Path) -> Result<Set, String> {
        let home = below.join(shape.name());
        let digests = read_digests(&home.join("digests"), shape.files);
        Ok(Set {
            shape,
            source: home.join("data"),
            digests: digests.ok_or_else(|| format!("{}: no digests", home.display()))?,
        })
    }

    /// Reads all files once, so that every run finds them in memory as far as they fit.
    ///
    /// # Errors
    ///
    /// Returns an error with the file that cannot be read.
    pub fn warm(&self) -> Result<(), String> {
        let mut room = vec![0; AT_ONCE];
        for index in 0..self.shape.files {
            let path = self.source.join(self.shape.path(index));
            let mut file = File::open(&path).map_err(at(&path))?;
            while file.read(&mut room).map_err(at(&path))? > 0 {}
        }
        Ok(())
    }

    /// Compares the files below a directory with the originals, by size and digest. Tools
    /// that copy a directory by name have created `data` there.
    pub fn compare(&self, destination: &Path) -> Arrived {
        let named = destination.join("data");
        let destination = if named.is_dir() { &named } else { destination };
        let mut arrived = Arrived {
            bytes: 0,
            wrong: None,
        };
        for (index, digest) in (0..self.shape.files).zip(&self.digests) {
            let path = destination.join(self.shape.path(index));
            let wrong = match digest_of(&path) {
                Ok((found, bytes)) if found == *digest => {
                    arrived.bytes += bytes;
                    continue;
                }
                Ok((_, bytes)) if bytes != self.shape.size(index) => {
                    let wanted = self.shape.size(index);
                    format!("{}: {bytes} bytes instead of {wanted}", path.display())
                }
                Ok(_) => format!("{}: other content", path.display()),
                Err(error) => at(&path)(error),
            };
            arrived.wrong.get_or_insert(wrong);
        }
        arrived
    }
}

/// Checks that a directory has space for this many bytes.
///
/// # Errors
///
/// Returns an error with the directory if there is too little space.
pub fn check_room(directory: &Path, bytes: u64) -> Result<(), String> {
    let found = rustix::fs::statvfs(directory).map_err(|e| at(directory)(e.into()))?;
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    // Adds a tenth for metadata of the file system.
    let needed = bytes.saturating_add(bytes / 10);
    if free >= needed {
        Ok(())
    } else {
        Err(format!(
            "{} has {} free and {} are needed: name another directory with --work, or move less",
            directory.display(),
            ByteCount(free),
            ByteCount(needed)
        ))
    }
}

/// Waits until all data on the directory's file system are durable.
///
/// # Errors
///
/// Returns an error with the directory if the file system cannot write.
pub fn sync(directory: &Path) -> Result<(), String> {
    let open = || -> io::Result<()> {
        let directory = File::open(directory)?;
        Ok(rustix::fs::syncfs(directory.as_fd())?)
    };
    open().map_err(at(directory))
}

fn read_digests(list: &Path, files: u64) -> Option<Vec<blake3::Hash>> {
    let text = fs::read_to_string(list).ok()?;
    let digests: Result<Vec<_>, _> = text.lines().map(blake3::Hash::from_hex).collect();
    digests.ok().filter(|all| all.len() as u64 == files)
}

fn write_file(path: &Path, size: u64, mut bytes: Bytes) -> io::Result<blake3::Hash> {
    let mut file = BufWriter::with_capacity(AT_ONCE, File::create(path)?);
    let mut hasher = blake3::Hasher::new();
    let mut left = size;
    let mut block = vec![0; AT_ONCE.min(size as usize)];
    while left > 0 {
        let length = (block.len() as u64).min(left) as usize;
        bytes.fill(&mut block[..length]);
        hasher.update(&block[..length]);
        file.write_all(&block[..length])?;
        left -= length as u64;
    }
    file.flush()?;
    Ok(hasher.finalize())
}

fn digest_of(path: &Path) -> io::Result<(blake3::Hash, u64)> {
    let (mut file, mut hasher) = (File::open(path)?, blake3::Hasher::new());
    let mut room = vec![0; AT_ONCE];
    let mut bytes = 0;
    loop {
        let length = file.read(&mut room)?;
        if length == 0 {
            return Ok((hasher.finalize(), bytes));
        }
        hasher.update(&room[..length]);
        bytes += length as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::file::Size;

    fn data(files: u64, smallest: u64, largest: u64) -> Data {
        Data {
            name: "x".to_owned(),
            files,
            smallest: Some(Size(smallest)),
            largest: Some(Size(largest)),
            link_time: None,
            content: Content::Random,
        }
    }

    #[test]
    fn sizes_have_the_given_sum() {
        let timed = Data {
            smallest: None,
            largest: None,
            ..data(7, 0, 0)
        };
        let shape = Shape::of(&timed, 1_000_003);
        let sum: u64 = (0..7).map(|index| shape.size(index)).sum();
        assert_eq!((sum, shape.bytes()), (1_000_003, 1_000_003));
        let spread = Shape::of(&data(5000, 1000, 200_000), 0);
        let mean = spread.bytes() / 5000;
        assert!((95_000..105_000).contains(&mean), "{mean}");
        let tenth = Shape::of(&data(5000, 1000, 200_000), spread.bytes() / 10);
        assert_eq!(tenth.files(), 500);
        let classes = spread.record("x").sizes;
        assert_eq!(classes.iter().map(|class| class.files).sum::<u64>(), 5000);
    }

    #[test]
    fn copies_are_compared_byte_by_byte() {
        let home = tempfile::tempdir().unwrap();
        let shape = Shape::of(&data(1001, 10, 3000), 0);
        let set = Set::prepare(shape, home.path()).unwrap();
        set.warm().unwrap();
        assert_eq!(set.compare(&set.source).bytes, shape.bytes());
        assert_eq!(set.compare(&set.source).wrong, None);
        // A second preparation uses the existing files.
        let json = Shape {
            content: Content::Json,
            ..shape
        };
        let other = Set::prepare(json, home.path()).unwrap();
        assert_ne!(other.digests, set.digests);
        assert!(other.compare(&set.source).wrong.is_some());
        let path = set.source.join(shape.path(1000));
        let again = Set::prepare(shape, home.path()).unwrap();
        assert_eq!(again.digests, set.digests);
        let mut bytes = fs::read(&path).unwrap();
        bytes[3] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let arrived = set.compare(&set.source);
        assert!(arrived.wrong.unwrap().contains("other content"));
        assert_eq!(arrived.bytes, shape.bytes() - shape.size(1000));
        fs::remove_file(&path).unwrap();
        assert!(set.compare(&set.source).wrong.unwrap().contains("f1000"));
    }
}
