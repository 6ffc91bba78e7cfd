//! Remembers the announced path of each entry, so that a hard link is tied to the entry that it
//! names and to no other file. Only a copy with hard links needs it.
//!
//! A path is stored as 128 bits of a digest with a key of this session, so a peer that chooses
//! paths cannot find two with one digest. The newest digests are in a table in memory. The others
//! are in an unnamed file, at the positions of their entry numbers, so millions of entries need no
//! memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use longhaul_net::token::fill_random;
use longhaul_proto::manifest::{Entry, EntryId, EntryKind, TreePath};

/// Maximum number of entries in memory.
const MOST_ENTRIES: usize = 65_536;

/// Bytes of a digest.
const DIGEST_BYTES: usize = 16;

/// Upper limit of entry numbers: file systems do not support larger files.
const MOST_NUMBERS: u64 = 1 << 38;

type Digest = [u8; DIGEST_BYTES];

/// Marks numbers without an entry in the file. A path is very unlikely to have this digest.
const UNKNOWN: Digest = [0; DIGEST_BYTES];

/// The announced paths.
pub(super) struct Announced {
    key: [u8; 32],
    memory: BTreeMap<u64, Digest>,
    most: usize,
    file: Option<File>,
    /// One more than the greatest entry number in the file.
    file_end: u64,
    /// Error of storing a path: no hard link can be tied after it.
    failed: Option<io::Error>,
}

impl Default for Announced {
    fn default() -> Announced {
        Announced::holding(MOST_ENTRIES)
    }
}

impl Announced {
    /// Creates a table with at most `most` entries in memory.
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

    /// Records an entry that the other end announced.
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
            // An entry comes once in a listing and once with its data. An entry with two different
            // paths is void.
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

    /// True if an entry was announced with this path. Directories and hard links are never
    /// recorded.
    ///
    /// # Errors
    ///
    /// Returns the error of reading or storing paths.
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

    /// Writes the table to the file, each run of consecutive numbers at once.
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
        // The numbers have gaps and are not sorted.
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
    fn an_entry_announced_with_two_paths_is_not_accepted() {
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
    fn directories_and_hard_links_have_no_further_names() {
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
