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

/// Names that a message gives; more are counted.
const SHOWN: usize = 10;

/// Directories that the source left and did not end, at most: it ends each when it has
/// listed it.
const MOST_ENDED: usize = 4096;

/// Directories that are being compared.
#[derive(Default)]
pub(crate) struct Extras {
    compared: Mutex<Compared>,
}

/// The source lists depth first: of all directories that it has begun, those above the
/// one that it is in may go on, and no other.
#[derive(Default)]
struct Compared {
    /// From the top down, each within the one before.
    open: Vec<(TreePath, Merge)>,
    /// What those have too much that do not go on, until the source says so.
    ended: HashMap<TreePath, TooMuch>,
    /// Some are not among them: they were too many.
    forgot: bool,
    /// The last one that could not be opened. It is tried again where the source ends it.
    unopened: Option<TreePath>,
}

/// The destination's listing of one directory, as far as the source's got.
struct Merge {
    listing: Peekable<SortedListing>,
    found: TooMuch,
}

/// What a directory has at the destination alone.
#[derive(Default)]
struct TooMuch {
    shown: Vec<String>,
    count: u64,
}

impl Merge {
    fn open(folders: &Folders, path: &TreePath, depth: usize) -> io::Result<Merge> {
        let folder = folders.find(Some(path))?;
        let listing = SortedListing::open_nested(&**folder.directory(), depth)?;
        Ok(Merge {
            listing: listing.peekable(),
            found: TooMuch::default(),
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
                _ => self.found.add(here),
            }
            self.listing.next();
        }
    }

    /// The source has no more names.
    fn end(mut self) -> TooMuch {
        self.advance(None);
        self.found
    }
}

impl TooMuch {
    fn add(&mut self, name: &[u8]) {
        self.count += 1;
        if self.shown.len() < SHOWN {
            self.shown.push(String::from_utf8_lossy(name).into_owned());
        }
    }
}

impl Compared {
    /// The source is in this directory: those that are not above it have ended.
    fn come_to(&mut self, path: &TreePath) {
        while let Some((last, merge)) = self.open.pop() {
            if last == *path || last.is_above(path) {
                self.open.push((last, merge));
                return;
            }
            self.note_ended(last, merge);
        }
    }

    fn note_ended(&mut self, path: TreePath, merge: Merge) {
        match self.ended.len() < MOST_ENDED {
            true => drop(self.ended.insert(path, merge.end())),
            false => self.forgot = true,
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
        let mut compared = lock(&self.compared);
        compared.come_to(&parent);
        let known = compared.open.last().is_some_and(|(at, _)| *at == parent);
        if !known {
            if compared.ended.contains_key(&parent) || compared.unopened.as_ref() == Some(&parent) {
                return;
            }
            match Merge::open(folders, &parent, compared.open.len()) {
                Ok(merge) => compared.open.push((parent, merge)),
                Err(_) => {
                    compared.unopened = Some(parent);
                    return;
                }
            }
        }
        if let Some((_, merge)) = compared.open.last_mut() {
            merge.advance(Some(path.name()));
        }
    }

    /// The source listed a directory to its end: what of it is at the
    /// destination alone.
    ///
    /// # Errors
    ///
    /// As `openat` and `getdents`, where the directory was not listed before.
    pub fn finish(
        &self,
        folders: &Folders,
        entry: &Entry,
        path: &TreePath,
    ) -> io::Result<Option<Failure>> {
        let mut compared = lock(&self.compared);
        if let Some(at) = compared.open.iter().position(|(open, _)| open == path) {
            // Those within it have ended as well.
            let ended = compared.open.split_off(at);
            for (path, merge) in ended {
                compared.note_ended(path, merge);
            }
        }
        let depth = compared.open.len();
        let known = compared.ended.remove(path);
        let forgot = compared.forgot;
        drop(compared);
        let found = match known {
            Some(found) => found,
            None if forgot => return Err(io::Error::other("too many directories at once")),
            None => Merge::open(folders, path, depth)?.end(),
        };
        if found.count == 0 {
            return Ok(None);
        }
        let more = found.count - found.shown.len() as u64;
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        let text = format!(
            "{}: only at the destination: {}{more}",
            entry.path,
            found.shown.join(", ")
        );
        Ok(Some(Failure::new(FailureKind::Extra, text)))
    }
}
