//! A file's content in two states: as readers see it, and as it is on the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use longhaul_units::Random;

use crate::DataRange;

/// Size in bytes of a page, the unit of the kernel's writeback.
pub(super) const PAGE_BYTES: u64 = 4096;

/// Size in bytes of a sector. A disk writes a sector completely or not at all.
const SECTOR_BYTES: usize = 512;

type Page = [u8; PAGE_BYTES as usize];

/// The content of a file in one state. Absent pages are holes.
#[derive(Clone, Default)]
struct Content {
    pages: BTreeMap<u64, Arc<Page>>,
    length: u64,
}

/// The content of a file in both states.
#[derive(Clone, Default)]
pub(super) struct Pages {
    seen: Content,
    durable: Content,
    /// Pages that the next sync makes durable.
    dirty: BTreeSet<u64>,
    length_dirty: bool,
}

impl Pages {
    pub(super) fn length(&self) -> u64 {
        self.seen.length
    }

    pub(super) fn allocated_bytes(&self) -> u64 {
        self.seen.pages.len() as u64 * PAGE_BYTES
    }

    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> usize {
        let available = self.seen.length.saturating_sub(offset);
        let wanted = available.min(buffer.len() as u64) as usize;
        let mut done = 0;
        while done < wanted {
            let (index, start) = place(offset + done as u64);
            let count = (PAGE_BYTES as usize - start).min(wanted - done);
            let target = &mut buffer[done..done + count];
            match self.seen.pages.get(&index) {
                Some(page) => target.copy_from_slice(&page[start..start + count]),
                None => target.fill(0),
            }
            done += count;
        }
        wanted
    }

    pub(super) fn write(&mut self, data: &[u8], offset: u64) {
        let mut done = 0;
        while done < data.len() {
            let (index, start) = place(offset + done as u64);
            let count = (PAGE_BYTES as usize - start).min(data.len() - done);
            let page = self.seen.pages.entry(index).or_insert_with(empty_page);
            Arc::make_mut(page)[start..start + count].copy_from_slice(&data[done..done + count]);
            self.dirty.insert(index);
            done += count;
        }
        let end = offset + data.len() as u64;
        if end > self.seen.length && !data.is_empty() {
            self.seen.length = end;
            self.length_dirty = true;
        }
    }

    pub(super) fn set_length(&mut self, length: u64) {
        let gone = self.seen.cut(length);
        self.dirty.extend(gone);
        self.seen.length = length;
        self.length_dirty = true;
    }

    /// Returns the first run of pages at or after `offset`.
    pub(super) fn next_data(&self, offset: u64) -> Option<DataRange> {
        let (first, _) = place(offset);
        let mut pages = self.seen.pages.range(first..).map(|(index, _)| *index);
        let start = pages.next()?;
        let last = pages
            .zip(start + 1..)
            .take_while(|(index, expected)| index == expected)
            .last()
            .map_or(start, |(index, _)| index);
        let range = DataRange {
            start: (start * PAGE_BYTES).max(offset),
            end: ((last + 1) * PAGE_BYTES).min(self.seen.length),
        };
        (range.start < range.end).then_some(range)
    }

    /// Applies a sync that succeeded.
    pub(super) fn keep(&mut self) {
        for index in std::mem::take(&mut self.dirty) {
            self.durable.put(index, self.seen.pages.get(&index));
        }
        if std::mem::take(&mut self.length_dirty) {
            self.durable.cut(self.seen.length);
            self.durable.length = self.seen.length;
        }
    }

    /// Applies a sync that failed: readers still see the data, but it never reaches the disk.
    pub(super) fn lose(&mut self) {
        self.dirty.clear();
        self.length_dirty = false;
    }

    /// Returns the content on the disk after a loss of power now.
    pub(super) fn after_crash(&self, chance: &mut Random) -> Pages {
        let mut content = self.durable.clone();
        for &index in &self.dirty {
            let page = self.surviving_page(index, chance);
            content.put(index, page.as_ref());
        }
        content.length = self.surviving_length(chance);
        content.cut(content.length);
        Pages {
            seen: content.clone(),
            durable: content,
            ..Pages::default()
        }
    }

    fn surviving_length(&self, chance: &mut Random) -> u64 {
        let (old, new) = (self.durable.length, self.seen.length);
        if !self.length_dirty {
            return old;
        }
        match chance.below(3) {
            0 => old,
            1 => new,
            _ => old.min(new) + chance.below(old.abs_diff(new) + 1),
        }
    }

    fn surviving_page(&self, index: u64, chance: &mut Random) -> Option<Arc<Page>> {
        let old = self.durable.pages.get(&index);
        let new = self.seen.pages.get(&index);
        match chance.below(4) {
            0 => return old.cloned(),
            1 => return new.cloned(),
            _ => (),
        }
        let mut torn = old.cloned().unwrap_or_else(empty_page);
        let sectors = Arc::make_mut(&mut torn).chunks_mut(SECTOR_BYTES);
        for (number, sector) in sectors.enumerate() {
            let start = number * SECTOR_BYTES;
            match chance.below(8) {
                // The file got a new block, but its data was not written.
                0 if old.is_none() => sector.fill_with(|| chance.bits() as u8),
                0..4 => match new {
                    Some(new) => sector.copy_from_slice(&new[start..start + SECTOR_BYTES]),
                    None => sector.fill(0),
                },
                _ => (),
            }
        }
        Some(torn)
    }
}

impl Content {
    fn put(&mut self, index: u64, page: Option<&Arc<Page>>) {
        match page {
            Some(page) => self.pages.insert(index, page.clone()),
            None => self.pages.remove(&index),
        };
    }

    /// Drops the bytes past `length`, and returns the pages that changed.
    fn cut(&mut self, length: u64) -> Vec<u64> {
        let (index, start) = place(length);
        let mut changed: Vec<u64> = Vec::new();
        if start > 0
            && let Some(page) = self.pages.get_mut(&index)
        {
            Arc::make_mut(page)[start..].fill(0);
            changed.push(index);
        }
        let first_gone = if start > 0 { index + 1 } else { index };
        let gone = self.pages.split_off(&first_gone);
        changed.extend(gone.into_keys());
        changed
    }
}

fn place(offset: u64) -> (u64, usize) {
    (offset / PAGE_BYTES, (offset % PAGE_BYTES) as usize)
}

fn empty_page() -> Arc<Page> {
    Arc::new([0; PAGE_BYTES as usize])
}
