//! Lists a directory of any size in byte order, with constant memory.
//!
//! Both ends list in this order. Comparisons of trees, deletions of extra entries and dry runs are
//! therefore merges of two listings.

use std::io;

use longhaul_system::descriptors;
use longhaul_units::ByteCount;

use super::spill::{Sorted, Sorter, SpillSettings};
use super::{Directory, FileKind, ListedName, NameList};

/// Nesting depth up to which each listing uses the usual memory. Deeper ones use little, so that a
/// very deep tree needs no more memory than a wide one.
const USUAL_DEPTH: usize = 64;
const DEEP_MEMORY: (ByteCount, usize) = (ByteCount(64 << 10), 2 << 10);

/// Divisor of the permitted open files, and absolute maximum, for nested directories whose names
/// are read on demand.
const COMING_PART: usize = 16;
const MOST_COMING: usize = 1024;

/// The names of a directory in byte order, each once.
///
/// If the directory changes during the listing, the file system decides if a changed name is
/// included.
pub struct SortedListing {
    names: Names,
    /// The last returned name. A file system may list a name twice if the directory changes.
    previous: Option<Box<[u8]>>,
    failed: bool,
}

/// Source of the names.
enum Names {
    /// All names were read and sorted.
    Sorted(Sorted),
    /// Names are read on demand, already in order.
    Coming(Box<dyn NameList>),
}

impl SortedListing {
    /// Reads all names. Names that do not fit into the memory of `settings` are spilled.
    ///
    /// # Errors
    ///
    /// The errors of [`Directory::list`] and of the spill file.
    pub fn open(directory: &dyn Directory, settings: &SpillSettings) -> io::Result<SortedListing> {
        SortedListing::open_as(directory, settings, directory.lists_in_order())
    }

    /// Opens a directory as [`SortedListing::open`] does, nested in `depth` directories whose
    /// listings are open.
    ///
    /// # Errors
    ///
    /// The errors of [`SortedListing::open`].
    pub fn open_nested(directory: &dyn Directory, depth: usize) -> io::Result<SortedListing> {
        let mut settings = SpillSettings::default();
        if depth >= USUAL_DEPTH {
            (settings.memory, settings.records) = DEEP_MEMORY;
        }
        // A listing that reads names on demand keeps its directory open.
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

    /// True if the names did not fit into memory.
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

/// Kinds by their code in the value of a record, from 1; 0 means an unknown kind.
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
