//! A directory in byte order, however large, with flat memory.
//!
//! Both ends list in this order, so that comparing two trees, deleting what is
//! too much and dry runs are merges of two listings.

use std::io;

use longhaul_system::descriptors;
use longhaul_units::ByteCount;

use super::spill::{Sorted, Sorter, SpillSettings};
use super::{Directory, FileKind, ListedName, NameList};

/// Directories within each other of which each listing has the usual memory; those below
/// have little, so that a tree that is nothing but deep takes no more than one that is
/// wide.
const USUAL_DEPTH: usize = 64;
const DEEP_MEMORY: (ByteCount, usize) = (ByteCount(64 << 10), 2 << 10);

/// Of the files that may be open this part, and this many at most, are directories within each
/// other whose names come while they are read.
const COMING_PART: usize = 16;
const MOST_COMING: usize = 1024;

/// The names of a directory in the order of their bytes, each once.
///
/// A directory that changes meanwhile may give a name or not, depending on the file system.
pub struct SortedListing {
    names: Names,
    /// The last name given: where a directory changes while it is read, a file
    /// system may tell a name twice.
    previous: Option<Box<[u8]>>,
    failed: bool,
}

/// Where the names come from.
enum Names {
    /// All were read and sorted.
    Sorted(Sorted),
    /// They come in order by themselves.
    Coming(Box<dyn NameList>),
}

impl SortedListing {
    /// Reads all names; what does not fit into the memory of `settings` is
    /// spilled.
    ///
    /// # Errors
    ///
    /// Those of [`Directory::list`] and of the spill file.
    pub fn open(directory: &dyn Directory, settings: &SpillSettings) -> io::Result<SortedListing> {
        SortedListing::open_as(directory, settings, directory.lists_in_order())
    }

    /// As [`SortedListing::open`], of a directory within `depth` others whose listings
    /// are open.
    ///
    /// # Errors
    ///
    /// As [`SortedListing::open`].
    pub fn open_nested(directory: &dyn Directory, depth: usize) -> io::Result<SortedListing> {
        let mut settings = SpillSettings::default();
        if depth >= USUAL_DEPTH {
            (settings.memory, settings.records) = DEEP_MEMORY;
        }
        // One whose names come while they are read keeps its directory open.
        let comes = depth < descriptors::share(COMING_PART, MOST_COMING);
        SortedListing::open_as(directory, &settings, comes && directory.lists_in_order())
    }

    fn open_as(
        directory: &dyn Directory,
        settings: &SpillSettings,
        comes: bool,
    ) -> io::Result<SortedListing> {
        let mut list = directory.list()?;
        if comes {
            return Ok(SortedListing {
                names: Names::Coming(list),
                previous: None,
                failed: false,
            });
        }
        let mut sorter = Sorter::new(settings.clone());
        while let Some(listed) = list.next_name()? {
            sorter.push(&listed.name, &[code_of(listed.kind)])?;
        }
        Ok(SortedListing {
            names: Names::Sorted(sorter.finish()?),
            previous: None,
            failed: false,
        })
    }

    /// Whether the names did not fit into memory.
    pub fn is_spilled(&self) -> bool {
        matches!(&self.names, Names::Sorted(sorted) if sorted.is_spilled())
    }

    fn next_listed(&mut self) -> io::Result<Option<ListedName>> {
        let names = match &mut self.names {
            Names::Sorted(sorted) => sorted,
            Names::Coming(list) => return list.next_name(),
        };
        while let Some(record) = names.next_record()? {
            if self.previous.as_deref() == Some(record.key) {
                continue;
            }
            let listed = ListedName {
                name: record.key.into(),
                kind: kind_of(record.value),
            };
            self.previous = Some(listed.name.clone());
            return Ok(Some(listed));
        }
        Ok(None)
    }
}

impl Iterator for SortedListing {
    type Item = io::Result<ListedName>;

    fn next(&mut self) -> Option<io::Result<ListedName>> {
        if self.failed {
            return None;
        }
        let next = self.next_listed();
        self.failed = next.is_err();
        next.transpose()
    }
}

/// The kinds as the value of a record; none is 0.
const KINDS: [FileKind; 4] = [
    FileKind::File,
    FileKind::Directory,
    FileKind::Symlink,
    FileKind::Special,
];

fn code_of(kind: Option<FileKind>) -> u8 {
    let position = kind.and_then(|kind| KINDS.iter().position(|&known| known == kind));
    position.map_or(0, |position| position as u8 + 1)
}

fn kind_of(value: &[u8]) -> Option<FileKind> {
    let code = usize::from(*value.first()?);
    KINDS.get(code.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests;
