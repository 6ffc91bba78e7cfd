//! Records inodes with several names that the walk has met, and the first path of each. A table in
//! memory holds the latest ones; the others are in an unnamed file, so that millions of linked
//! files need no memory.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use longhaul_proto::manifest::{EntryId, TreePath};

/// Device and inode.
type Place = (u64, u64);

/// Maximum number of inodes in memory, and maximum bytes of their paths.
const MOST_INODES: usize = 65_536;
const MOST_PATH_BYTES: usize = 8 << 20;

/// Bytes of a slot of the file: device, inode, entry, and position of its path. A free slot has
/// zeros.
const SLOT_BYTES: usize = 40;
const FIRST_SLOTS: u64 = 1 << 18;

struct First {
    id: EntryId,
    path: TreePath,
    /// Number of names not met yet, by the count of the first one.
    left: u64,
}

/// Inodes by device and number.
pub(super) struct LinkTable {
    memory: HashMap<Place, First>,
    path_bytes: usize,
    spilled: Option<Spilled>,
    most: usize,
}

impl Default for LinkTable {
    fn default() -> LinkTable {
        LinkTable::holding(MOST_INODES)
    }
}

impl LinkTable {
    /// Creates a table with at most this many inodes in memory.
    fn holding(most: usize) -> LinkTable {
        LinkTable {
            memory: HashMap::new(),
            path_bytes: 0,
            spilled: None,
            most,
        }
    }

    /// Records a name of an inode with this many names; returns the entry that was met first, or
    /// `None` if this is the first.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read or written.
    pub fn meet(
        &mut self,
        place: Place,
        names: u64,
        (id, path): (EntryId, &TreePath),
    ) -> io::Result<Option<(EntryId, TreePath)>> {
        if let Some(first) = self.memory.get_mut(&place) {
            let found = (first.id, first.path.clone());
            first.left = first.left.saturating_sub(1);
            if first.left == 0 {
                self.path_bytes -= first.path.as_bytes().len();
                self.memory.remove(&place);
            }
            return Ok(Some(found));
        }
        if let Some(spilled) = &self.spilled
            && let Some(found) = spilled.find(place)?
        {
            return Ok(Some(found));
        }
        if self.memory.len() >= self.most || self.path_bytes >= MOST_PATH_BYTES {
            self.spill()?;
        }
        self.path_bytes += path.as_bytes().len();
        let first = First {
            id,
            path: path.clone(),
            left: names.saturating_sub(1),
        };
        self.memory.insert(place, first);
        Ok(None)
    }

    fn spill(&mut self) -> io::Result<()> {
        let spilled = match &mut self.spilled {
            Some(spilled) => spilled,
            none => none.insert(Spilled::new(FIRST_SLOTS)?),
        };
        for (place, first) in self.memory.drain() {
            spilled.insert(place, &first)?;
        }
        self.path_bytes = 0;
        Ok(())
    }
}

/// A hash table in a file, and a file of paths.
struct Spilled {
    slots: File,
    capacity: u64,
    used: u64,
    paths: File,
    paths_end: u64,
}

/// Contents of a slot.
#[derive(Clone, Copy)]
struct Slot {
    place: Place,
    id: u64,
    offset: u64,
    /// Length of the path; 0 if the slot is free, since no path is empty.
    length: u32,
}

impl Slot {
    fn to_bytes(self) -> [u8; SLOT_BYTES] {
        let mut bytes = [0; SLOT_BYTES];
        let numbers = [self.place.0, self.place.1, self.id, self.offset];
        for (part, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            part.copy_from_slice(&number.to_le_bytes());
        }
        bytes[32..36].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; SLOT_BYTES]) -> Slot {
        let number = |at: usize| {
            let mut part = [0; 8];
            part.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(part)
        };
        let mut length = [0; 4];
        length.copy_from_slice(&bytes[32..36]);
        Slot {
            place: (number(0), number(8)),
            id: number(16),
            offset: number(24),
            length: u32::from_le_bytes(length),
        }
    }
}

fn unnamed() -> io::Result<File> {
    longhaul_storage::spill::nameless_file(&std::env::temp_dir())
}

impl Spilled {
    fn new(capacity: u64) -> io::Result<Spilled> {
        Ok(Spilled {
            slots: sized(capacity)?,
            capacity,
            used: 0,
            paths: unnamed()?,
            paths_end: 0,
        })
    }

    fn find(&self, place: Place) -> io::Result<Option<(EntryId, TreePath)>> {
        let (_, slot) = locate(&self.slots, self.capacity, place)?;
        if slot.length == 0 {
            return Ok(None);
        }
        let mut path = vec![0; slot.length as usize];
        self.paths.read_exact_at(&mut path, slot.offset)?;
        let path = TreePath::new(&path).map_err(io::Error::other)?;
        Ok(Some((EntryId(slot.id), path)))
    }

    fn insert(&mut self, place: Place, first: &First) -> io::Result<()> {
        if self.used * 2 >= self.capacity {
            self.grow()?;
        }
        let path = first.path.as_bytes();
        self.paths.write_all_at(path, self.paths_end)?;
        let slot = Slot {
            place,
            id: first.id.0,
            offset: self.paths_end,
            length: path.len() as u32,
        };
        self.paths_end += path.len() as u64;
        let (at, _) = locate(&self.slots, self.capacity, place)?;
        self.slots.write_all_at(&slot.to_bytes(), at)?;
        self.used += 1;
        Ok(())
    }

    fn grow(&mut self) -> io::Result<()> {
        let capacity = self.capacity * 2;
        let slots = sized(capacity)?;
        let mut buffer = vec![0; 4096 * SLOT_BYTES];
        let end = self.capacity * SLOT_BYTES as u64;
        let mut offset = 0;
        while offset < end {
            let now = buffer.len().min((end - offset) as usize);
            self.slots.read_exact_at(&mut buffer[..now], offset)?;
            let (old, _) = buffer[..now].as_chunks::<SLOT_BYTES>();
            for bytes in old {
                let slot = Slot::from_bytes(bytes);
                if slot.length > 0 {
                    let (at, _) = locate(&slots, capacity, slot.place)?;
                    slots.write_all_at(bytes, at)?;
                }
            }
            offset += now as u64;
        }
        (self.slots, self.capacity) = (slots, capacity);
        Ok(())
    }
}

fn sized(capacity: u64) -> io::Result<File> {
    let slots = unnamed()?;
    slots.set_len(capacity * SLOT_BYTES as u64)?;
    Ok(slots)
}

/// Returns the position of the slot of an inode, or of the free slot for it.
fn locate(slots: &File, capacity: u64, place: Place) -> io::Result<(u64, Slot)> {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&place.0.to_le_bytes());
    key[8..].copy_from_slice(&place.1.to_le_bytes());
    let mut number = twox_hash::XxHash3_64::oneshot(&key) % capacity;
    let mut bytes = [0; SLOT_BYTES];
    // This terminates because half of the slots are free.
    loop {
        let at = number * SLOT_BYTES as u64;
        slots.read_exact_at(&mut bytes, at)?;
        let slot = Slot::from_bytes(&bytes);
        if slot.length == 0 || slot.place == place {
            return Ok((at, slot));
        }
        number = (number + 1) % capacity;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(number: u64) -> TreePath {
        TreePath::new(format!("d/{number}").as_bytes()).unwrap()
    }

    #[test]
    fn the_first_name_of_an_inode_is_found_in_memory_and_in_the_file() {
        let mut table = LinkTable::holding(100);
        for number in 0..2000_u64 {
            let place = (7, number);
            let met = table.meet(place, 3, (EntryId(number), &path(number)));
            assert_eq!(met.unwrap(), None);
        }
        assert!(table.spilled.is_some() && table.memory.len() <= 100);
        for _ in 0..2 {
            for number in 0..2000_u64 {
                let met = table.meet((7, number), 3, (EntryId(9999), &path(9999)));
                assert_eq!(met.unwrap(), Some((EntryId(number), path(number))));
            }
        }
        // The same number on another device is another inode.
        let other = table.meet((8, 1), 2, (EntryId(5), &path(5)));
        assert_eq!(other.unwrap(), None);
    }

    #[test]
    fn an_inode_is_removed_after_its_last_name() {
        let mut table = LinkTable::default();
        for number in 0..10 {
            table
                .meet((1, number), 2, (EntryId(number), &path(number)))
                .unwrap();
            table
                .meet((1, number), 2, (EntryId(99), &path(99)))
                .unwrap();
        }
        assert!(table.memory.is_empty() && table.path_bytes == 0);
    }

    #[test]
    fn the_file_grows() {
        let mut spilled = Spilled::new(4).unwrap();
        for number in 0..500 {
            let first = First {
                id: EntryId(number),
                path: path(number),
                left: 1,
            };
            spilled.insert((1, number), &first).unwrap();
        }
        assert!(spilled.capacity >= 1000);
        for number in 0..500 {
            let found = spilled.find((1, number)).unwrap();
            assert_eq!(found, Some((EntryId(number), path(number))));
        }
        assert_eq!(spilled.find((2, 1)).unwrap(), None);
    }
}
