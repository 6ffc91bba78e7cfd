//! Which path each entry of a session has, as the other end announced it, so that a further name of
//! an entry becomes one of that entry and of nothing else. Only a copy with hard links needs it.
//!
//! A path is known by 128 bits of its digest, keyed for this session: a peer that chooses paths
//! cannot find two of one digest. A table in memory has the newest; a file without a name the
//! others, each at its entry's number, so that millions of entries cost no memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use longhaul_net::token::fill_random;
use longhaul_proto::manifest::{Entry, EntryId, EntryKind, TreePath};

/// Entries in memory at most.
const MOST_ENTRIES: usize = 65_536;

/// Bytes of a digest.
const DIGEST_BYTES: usize = 16;

/// Entries that a session may have for this: above it no file system takes the file.
const MOST_NUMBERS: u64 = 1 << 38;

type Digest = [u8; DIGEST_BYTES];

/// In the file: of no entry. No path is likely to have this digest.
const UNKNOWN: Digest = [0; DIGEST_BYTES];

/// The paths that were announced.
pub(super) struct Announced {
    key: [u8; 32],
    memory: BTreeMap<u64, Digest>,
    most: usize,
    file: Option<File>,
    /// One more than the greatest number in it.
    file_end: u64,
    /// Why one could not be kept: none of the names can be tied then.
    failed: Option<io::Error>,
}

impl Default for Announced {
    fn default() -> Announced {
        Announced::holding(MOST_ENTRIES)
    }
}

impl Announced {
    /// With this many entries in memory at most.
    fn holding(most: usize) -> Announced {
        let mut key = [0; 32];
        let failed = fill_random(&mut key).err();
        Announced {
            key,
            memory: BTreeMap::new(),
            most,
            file: None,
            file_end: 0,
            failed: failed.map(|error| io::Error::other(error.to_string())),
        }
    }

    /// The other end announced it.
    pub fn note(&mut self, entry: &Entry) {
        let links = matches!(
            entry.kind,
            EntryKind::HardLink { .. } | EntryKind::Directory
        );
        if links || self.failed.is_some() || entry.id.0 >= MOST_NUMBERS {
            return;
        }
        let digest = self.digest(&entry.path);
        let noted = self.known(entry.id).and_then(|known| {
            // It comes once as a question and once with its data. One that has two paths has none.
            let digest = match known {
                Some(known) if known != digest => UNKNOWN,
                _ => digest,
            };
            self.memory.insert(entry.id.0, digest);
            if self.memory.len() > self.most {
                self.spill()
            } else {
                Ok(())
            }
        });
        self.failed = noted.err();
    }

    /// Whether an entry was announced with this path. No directory and no further name is.
    ///
    /// # Errors
    ///
    /// Where that is not known.
    pub fn is(&self, id: EntryId, path: &TreePath) -> io::Result<bool> {
        if let Some(error) = &self.failed {
            return Err(io::Error::new(error.kind(), error.to_string()));
        }
        Ok(self.known(id)? == Some(self.digest(path)))
    }

    fn known(&self, id: EntryId) -> io::Result<Option<Digest>> {
        if let Some(known) = self.memory.get(&id.0) {
            return Ok(Some(*known));
        }
        let Some(file) = self.file.as_ref().filter(|_| id.0 < self.file_end) else {
            return Ok(None);
        };
        let mut known = UNKNOWN;
        file.read_exact_at(&mut known, offset_of(id.0))?;
        Ok((known != UNKNOWN).then_some(known))
    }

    fn digest(&self, path: &TreePath) -> Digest {
        let whole = blake3::keyed_hash(&self.key, path.as_bytes());
        let mut digest = [0; DIGEST_BYTES];
        digest.copy_from_slice(&whole.as_bytes()[..DIGEST_BYTES]);
        digest
    }

    /// Writes what is in memory, each run of numbers at once.
    fn spill(&mut self) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let file = longhaul_storage::spill::nameless_file(&std::env::temp_dir())?;
                none.insert(file)
            }
        };
        let (mut first, mut run) = (0, Vec::new());
        for (number, digest) in std::mem::take(&mut self.memory) {
            let next = first + (run.len() / DIGEST_BYTES) as u64;
            self.file_end = self.file_end.max(number + 1);
            if number != next {
                file.write_all_at(&run, offset_of(first))?;
                (first, run) = (number, Vec::new());
            }
            run.extend(digest);
        }
        file.write_all_at(&run, offset_of(first))
    }
}

fn offset_of(number: u64) -> u64 {
    number * DIGEST_BYTES as u64
}

#[cfg(test)]
mod tests {
    use longhaul_proto::manifest::Timestamp;

    use super::*;

    fn path(number: u64) -> TreePath {
        TreePath::new(format!("d/{number}").as_bytes()).unwrap()
    }

    fn entry(number: u64, kind: EntryKind) -> Entry {
        Entry {
            id: EntryId(number),
            parent: None,
            path: path(number),
            kind,
            mode: 0o644,
            modified: Timestamp::default(),
            owner: None,
        }
    }

    fn file() -> EntryKind {
        EntryKind::File {
            identity: Default::default(),
            sparse: false,
        }
    }

    #[test]
    fn a_path_is_that_of_its_entry_in_memory_and_in_the_file() {
        let mut announced = Announced::holding(50);
        // With gaps, and not in order.
        let numbers: Vec<u64> = (0..500).map(|at| (at * 7919) % 1000).collect();
        for number in &numbers {
            announced.note(&entry(*number, file()));
        }
        assert!(announced.file.is_some() && announced.memory.len() <= 50);
        for number in 0..1100 {
            let known = numbers.contains(&number);
            let is = announced.is(EntryId(number), &path(number)).unwrap();
            assert_eq!(is, known, "{number}");
            assert!(!announced.is(EntryId(number), &path(number + 1)).unwrap());
        }
        for far in [MOST_NUMBERS, u64::MAX] {
            announced.note(&entry(far, file()));
            assert!(!announced.is(EntryId(far), &path(far)).unwrap());
        }
    }

    #[test]
    fn an_entry_with_two_paths_has_none() {
        for most in [0, 50] {
            let mut announced = Announced::holding(most);
            announced.note(&entry(7, file()));
            announced.note(&entry(7, file()));
            assert!(announced.is(EntryId(7), &path(7)).unwrap());
            announced.note(&Entry {
                path: path(8),
                ..entry(7, file())
            });
            for number in [7, 8] {
                assert!(!announced.is(EntryId(7), &path(number)).unwrap());
            }
        }
    }

    #[test]
    fn neither_a_directory_nor_a_further_name_has_names() {
        let mut announced = Announced::default();
        let link = EntryKind::HardLink {
            target: path(0),
            first: EntryId(0),
        };
        for (number, kind) in [(0, EntryKind::Directory), (1, link)] {
            announced.note(&entry(number, kind));
            assert!(!announced.is(EntryId(number), &path(number)).unwrap());
        }
    }
}
