//! A tree that is read once, by digest, for tests that compare copies of it repeatedly.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::tree::{is_own, paths};

/// Properties that a copy of an entry must share.
#[derive(Debug, PartialEq, Eq)]
struct Known {
    /// Mode, including the kind of the entry.
    mode: u32,
    modified: (i64, i64),
    size: u64,
    target: Option<PathBuf>,
}

/// A tree as it shall arrive.
pub struct Snapshot {
    entries: BTreeMap<PathBuf, (Known, Option<blake3::Hash>)>,
}

/// Files of a copy that were found whole: they are not read again while their
/// inode and its time of change stay.
#[derive(Default)]
pub struct Whole(HashMap<PathBuf, (u64, i64, i64)>);

fn digest(path: &Path) -> blake3::Hash {
    let mut file = File::open(path).unwrap();
    let mut hasher = blake3::Hasher::new();
    let mut room = vec![0; 1 << 20];
    loop {
        match file.read(&mut room).unwrap() {
            0 => return hasher.finalize(),
            count => hasher.update(&room[..count]),
        };
    }
}

fn known(path: &Path, status: &Metadata) -> Known {
    // A directory's size is its file system's affair.
    let size = if status.is_dir() { 0 } else { status.size() };
    Known {
        mode: status.mode(),
        modified: (status.mtime(), status.mtime_nsec()),
        size,
        target: status.is_symlink().then(|| fs::read_link(path).unwrap()),
    }
}

impl Snapshot {
    pub fn of(root: &Path) -> Snapshot {
        let entries = paths(root).into_iter().map(|path| {
            let whole = root.join(&path);
            let status = fs::symlink_metadata(&whole).unwrap();
            let digest = status.is_file().then(|| digest(&whole));
            let known = known(&whole, &status);
            (path, (known, digest))
        });
        Snapshot {
            entries: entries.collect(),
        }
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        let files = self.entries.values().filter(|entry| entry.1.is_some());
        files.map(|entry| entry.0.size).sum()
    }

    /// Number of files.
    pub fn files(&self) -> u64 {
        let files = self.entries.values().filter(|entry| entry.1.is_some());
        files.count() as u64
    }

    /// Bytes of one file.
    pub fn size(&self, path: &str) -> u64 {
        self.entries[Path::new(path)].0.size
    }

    /// Fails unless the other tree is the same in everything.
    #[track_caller]
    pub fn assert_same(&self, copy: &Path) {
        let there: Vec<PathBuf> = paths(copy);
        let strange: Vec<_> = there
            .iter()
            .filter(|path| !self.entries.contains_key(*path))
            .collect();
        assert!(strange.is_empty(), "too many: {strange:?}");
        assert_eq!(there.len(), self.entries.len(), "entries are missing");
        for path in &there {
            let whole = copy.join(path);
            self.assert_entry(path, &whole, &fs::symlink_metadata(&whole).unwrap());
        }
    }

    /// Fails unless every file of a copy that has its name is whole.
    #[track_caller]
    pub fn assert_nothing_half_written(&self, copy: &Path, seen: &mut Whole) {
        if !copy.exists() {
            return;
        }
        for path in paths(copy) {
            let whole = copy.join(&path);
            // A daemon may be at work.
            let status = match fs::symlink_metadata(&whole) {
                Ok(status) => status,
                Err(error) if is_own(&path) => {
                    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
                    continue;
                }
                Err(error) => panic!("{path:?}: {error}"),
            };
            if is_own(&path) || status.is_dir() {
                continue;
            }
            let state = (status.ino(), status.ctime(), status.ctime_nsec());
            if seen.0.get(&path) != Some(&state) {
                self.assert_entry(&path, &whole, &status);
                seen.0.insert(path, state);
            }
        }
    }

    #[track_caller]
    fn assert_entry(&self, path: &Path, whole: &Path, status: &Metadata) {
        let (expected, digested) = &self.entries[path];
        assert_eq!(&known(whole, status), expected, "{path:?}");
        let digested = digested.as_ref();
        assert_eq!(
            digested.map(|_| digest(whole)).as_ref(),
            digested,
            "{path:?}"
        );
    }
}
