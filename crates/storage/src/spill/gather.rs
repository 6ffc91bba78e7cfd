//! The records in memory.

use super::{Record, SpillSettings};

/// Records in one contiguous buffer, and their order.
pub(super) struct Gathered {
    /// Key length, value length, key and value of each record.
    arena: Vec<u8>,
    /// Offset of each record in bytes.
    starts: Vec<u32>,
    /// Index of the next record to read.
    next: usize,
    maximum_bytes: usize,
    maximum_records: usize,
}

/// Size in bytes of the two lengths before each record.
const LENGTHS_BYTES: usize = 8;

/// Maximum size of the arena in bytes. Offsets have 32 bits, and the last record may begin just
/// below the maximum.
const MAXIMUM_ARENA_BYTES: usize = 1 << 31;

impl Gathered {
    pub(super) fn new(settings: &SpillSettings) -> Gathered {
        let memory = usize::try_from(settings.memory.0).unwrap_or(usize::MAX);
        Gathered {
            arena: Vec::new(),
            starts: Vec::new(),
            next: 0,
            maximum_bytes: memory.min(MAXIMUM_ARENA_BYTES),
            maximum_records: settings.records.max(1),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// True if a record may be added. Always true if there are no records.
    pub(super) fn fits(&self, record: Record<'_>) -> bool {
        let bytes = self.arena.len() + encoded_bytes(record);
        let room = bytes <= self.maximum_bytes && self.starts.len() < self.maximum_records;
        room || self.is_empty()
    }

    /// Adds a record that [`fits`](Gathered::fits).
    pub(super) fn push(&mut self, record: Record<'_>) {
        self.make_room(encoded_bytes(record));
        self.starts.push(self.arena.len() as u32);
        for length in [record.key.len(), record.value.len()] {
            self.arena.extend_from_slice(&(length as u32).to_le_bytes());
        }
        self.arena.extend_from_slice(record.key);
        self.arena.extend_from_slice(record.value);
    }

    /// Doubles the memory, but not beyond the maximum. Most directories are small, and a vector
    /// alone would exceed the maximum.
    fn make_room(&mut self, bytes: usize) {
        let needed = self.arena.len() + bytes;
        if needed > self.arena.capacity() {
            let doubled = (2 * self.arena.capacity()).min(self.maximum_bytes);
            self.arena
                .reserve_exact(doubled.max(needed) - self.arena.len());
        }
    }

    /// Sorts by key, and equal keys by age. Reading restarts at the first record.
    pub(super) fn sort(&mut self) {
        let arena = &self.arena;
        // Records are stored in the order of their age. Offsets therefore break ties, and no stable
        // sort is needed, which would take more memory.
        self.starts.sort_unstable_by(|&one, &other| {
            let keys = record_at(arena, one).key.cmp(record_at(arena, other).key);
            keys.then(one.cmp(&other))
        });
        self.next = 0;
    }

    pub(super) fn next_record(&mut self) -> Option<Record<'_>> {
        let start = *self.starts.get(self.next)?;
        self.next += 1;
        Some(record_at(&self.arena, start))
    }

    /// Removes all records and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.arena.clear();
        self.starts.clear();
        self.next = 0;
    }
}

fn encoded_bytes(record: Record<'_>) -> usize {
    LENGTHS_BYTES + record.key.len() + record.value.len()
}

fn record_at(arena: &[u8], start: u32) -> Record<'_> {
    let start = start as usize;
    let length = |at: usize| {
        let bytes = [arena[at], arena[at + 1], arena[at + 2], arena[at + 3]];
        u32::from_le_bytes(bytes) as usize
    };
    let key = start + LENGTHS_BYTES;
    let value = key + length(start);
    Record {
        key: &arena[key..value],
        value: &arena[value..value + length(start + 4)],
    }
}
