//! What is moved: made once for each size, and what arrived is compared with it.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use longhaul_measure::record::{DatasetRecord, SizeClass};
use longhaul_units::ByteCount;
use serde::{Deserialize, Serialize};

use super::content::{Bytes, Content};
use super::file::Data;

/// Files in a directory; beyond it there are several.
const FILES_IN_A_DIRECTORY: u64 = 1000;

/// Bytes read or written at once.
const AT_ONCE: usize = 1 << 20;

/// How many files there are, and how large.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    files: u64,
    sizes: Sizes,
    #[serde(default)]
    content: Content,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Sizes {
    /// Spread evenly between two.
    Between(u64, u64),
    /// All equal except a byte, with this sum.
    Sum(u64),
}

impl Shape {
    /// Of data; those given by time have `bytes` in all, and of the others this many files are
    /// left out that a share of their bytes stays (0: all).
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

    /// Bytes of a file, by its number: the same in every run.
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

    /// How many files.
    pub fn files(&self) -> u64 {
        self.files
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        match self.sizes {
            Sizes::Sum(bytes) => bytes,
            Sizes::Between(..) => (0..self.files).map(|index| self.size(index)).sum(),
        }
    }

    /// A name that no other shape has.
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

    /// As in a record.
    pub fn record(&self, name: &str) -> DatasetRecord {
        let mut sizes: std::collections::BTreeMap<u64, (u64, u64)> = Default::default();
        for index in 0..self.files {
            let size = self.size(index);
            // Powers of four: a few classes tell a distribution.
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

/// Files that lie ready.
#[derive(Debug)]
pub struct Set {
    shape: Shape,
    /// The directory with them.
    pub source: PathBuf,
    /// Of each file, in order.
    digests: Vec<blake3::Hash>,
}

/// What came of a run's files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrived {
    /// Bytes of files that are there and right.
    pub bytes: u64,
    /// The first that is not.
    pub wrong: Option<String>,
}

fn at(path: &Path) -> impl Fn(io::Error) -> String + '_ {
    move |error| format!("{}: {error}", path.display())
}

impl Set {
    /// Makes them below a directory, or takes those that a run before made.
    ///
    /// # Errors
    ///
    /// The file and why it cannot be made.
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
        // Else the first run would share the disk with the data's way to it: copies of 10,000 files
        // took three times as long.
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

    /// Takes those that were made below a directory.
    ///
    /// # Errors
    ///
    /// Where there are none.
    pub fn load(shape: Shape, below: &Path) -> Result<Set, String> {
        let home = below.join(shape.name());
        let digests = read_digests(&home.join("digests"), shape.files);
        Ok(Set {
            shape,
            source: home.join("data"),
            digests: digests.ok_or_else(|| format!("{}: no digests", home.display()))?,
        })
    }

    /// Reads all of it once, so that every run finds it in memory as far as it fits.
    ///
    /// # Errors
    ///
    /// The file and why it cannot be read.
    pub fn warm(&self) -> Result<(), String> {
        let mut room = vec![0; AT_ONCE];
        for index in 0..self.shape.files {
            let path = self.source.join(self.shape.path(index));
            let mut file = File::open(&path).map_err(at(&path))?;
            while file.read(&mut room).map_err(at(&path))? > 0 {}
        }
        Ok(())
    }

    /// Compares what lies below a directory with what should: sizes and digests. Tools
    /// that copy a directory by its name have made `data` there.
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

/// Names the directory where there is too little room for a set and a copy of it.
///
/// # Errors
///
/// That there is.
pub fn check_room(directory: &Path, bytes: u64) -> Result<(), String> {
    let found = rustix::fs::statvfs(directory).map_err(|e| at(directory)(e.into()))?;
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    // A tenth more: file systems keep lists of their own.
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

/// Waits until everything on a directory's file system is durable.
///
/// # Errors
///
/// The directory, and why its file system cannot write.
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
    fn sizes_have_the_sum_that_was_asked_for() {
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
    fn what_arrived_is_compared_to_the_byte() {
        let home = tempfile::tempdir().unwrap();
        let shape = Shape::of(&data(1001, 10, 3000), 0);
        let set = Set::prepare(shape, home.path()).unwrap();
        set.warm().unwrap();
        assert_eq!(set.compare(&set.source).bytes, shape.bytes());
        assert_eq!(set.compare(&set.source).wrong, None);
        // Prepared again it is the same, and not made anew.
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
