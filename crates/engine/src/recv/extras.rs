//! For `verify`: what is at the destination alone. Both ends list a directory
//! in byte order, so that one pass over both finds it, with flat memory.

use std::collections::HashMap;
use std::io;
use std::iter::Peekable;
use std::sync::Mutex;

use longhaul_proto::manifest::{Entry, RESERVED_PREFIX, TreePath};
use longhaul_proto::message::{Failure, FailureKind};

use super::folders::Folders;
use crate::queue::lock;
use crate::storage::listing::SortedListing;
use crate::storage::spill::SpillSettings;

/// Names that a message gives; more are counted.
const SHOWN: usize = 10;

/// Directories that are being compared.
#[derive(Default)]
pub(crate) struct Extras {
    open: Mutex<HashMap<TreePath, Merge>>,
}

/// The destination's listing of one directory, as far as the source's got.
struct Merge {
    listing: Peekable<SortedListing>,
    shown: Vec<String>,
    count: u64,
}

impl Merge {
    fn open(folders: &Folders, path: &TreePath) -> io::Result<Merge> {
        let folder = folders.find(Some(path))?;
        let listing = SortedListing::open(&**folder.directory(), &SpillSettings::default())?;
        Ok(Merge {
            listing: listing.peekable(),
            shown: Vec::new(),
            count: 0,
        })
    }

    /// The source has this name next, or none any more: what comes before it
    /// here is here alone.
    fn advance(&mut self, name: Option<&[u8]>) {
        loop {
            let here = match self.listing.peek() {
                Some(Ok(listed)) => &*listed.name,
                // An unreadable listing is reported by whoever reads it next.
                Some(Err(_)) | None => return,
            };
            match name {
                Some(name) if here > name => return,
                Some(name) if here == name => {
                    self.listing.next();
                    return;
                }
                _ if here.starts_with(RESERVED_PREFIX) => {}
                _ => {
                    self.count += 1;
                    if self.shown.len() < SHOWN {
                        self.shown.push(String::from_utf8_lossy(here).into_owned());
                    }
                }
            }
            self.listing.next();
        }
    }
}

impl Extras {
    /// The source listed an entry, after those before it; `path` is where it
    /// is at the destination.
    pub fn handle_listed(&self, folders: &Folders, path: &TreePath) {
        let Some(parent) = path.parent() else {
            return;
        };
        let mut open = lock(&self.open);
        if !open.contains_key(&parent) {
            // A directory that is missing is reported where it ends.
            let Ok(merge) = Merge::open(folders, &parent) else {
                return;
            };
            open.insert(parent.clone(), merge);
        }
        if let Some(merge) = open.get_mut(&parent) {
            merge.advance(Some(path.name()));
        }
    }

    /// The source listed a directory to its end: what of it is at the
    /// destination alone.
    ///
    /// # Errors
    ///
    /// As `getdents`, where the directory was not listed before.
    pub fn finish(
        &self,
        folders: &Folders,
        entry: &Entry,
        path: &TreePath,
    ) -> io::Result<Option<Failure>> {
        let known = lock(&self.open).remove(path);
        let mut merge = match known {
            Some(merge) => merge,
            None => Merge::open(folders, path)?,
        };
        merge.advance(None);
        if merge.count == 0 {
            return Ok(None);
        }
        let more = merge.count - merge.shown.len() as u64;
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        let text = format!(
            "{}: only at the destination: {}{more}",
            entry.path,
            merge.shown.join(", ")
        );
        Ok(Some(Failure::new(FailureKind::Extra, text)))
    }
}
