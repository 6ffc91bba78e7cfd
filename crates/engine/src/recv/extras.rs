//! Finds names that only the destination has, for `verify`. Both ends list a directory in byte
//! order, so one pass over both finds them in constant memory.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::io;
use std::iter::Peekable;
use std::sync::Mutex;

use longhaul_proto::manifest::{Entry, RESERVED_PREFIX, TreePath};
use longhaul_proto::message::{Failure, FailureKind};
use longhaul_storage::listing::SortedListing;
use longhaul_system::queue::lock;

use super::folders::Folders;

/// Number of names in a message; further ones are only counted.
const SHOWN: usize = 10;

/// Maximum number of directories that the source left and that are not compared completely (those
/// of a correct source are limited by its unfinished entries), and maximum bytes of data about
/// those with surplus names.
const MOST_ENDED: usize = 65_536;
const MOST_BYTES: usize = 64 << 20;

/// Directories that are being compared.
#[derive(Default)]
pub(crate) struct Extras {
    compared: Mutex<Compared>,
}

/// State of the comparison. The source lists depth first: only the directories above its current
/// one can continue.
#[derive(Default)]
struct Compared {
    /// Open directories from the top down, each within the one before.
    open: Vec<(TreePath, Merge)>,
    /// Surplus names of directories that do not continue, until these are complete.
    ended: HashMap<TreePath, TooMuch>,
    /// Bytes of paths and names in `ended`.
    bytes: usize,
    /// Hashes of the paths of other directories that do not continue: they have no surplus names.
    equal: HashSet<u64>,
    hashes: RandomState,
    /// The last directory that could not be opened. It is tried again when the source ends it.
    unopened: Option<TreePath>,
}

/// The destination's listing of a directory, up to the source's position.
struct Merge {
    listing: Peekable<SortedListing>,
    found: TooMuch,
}

/// Names in a directory that only the destination has.
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

    /// Advances to the source's next name; `None` ends the listing. Names before it exist at the
    /// destination only.
    fn advance(&mut self, name: Option<&[u8]>) {
        loop {
            let here = match self.listing.peek() {
                Some(Ok(listed)) => &*listed.name,
                // The next reader of an unreadable listing reports the error.
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

    /// Ends the listing after the source's last name.
    fn end(mut self) -> TooMuch {
        self.advance(None);
        self.found
    }
}

impl TooMuch {
    fn bytes(&self, path: &TreePath) -> usize {
        path.as_bytes().len() + self.shown.iter().map(String::len).sum::<usize>()
    }

    fn add(&mut self, name: &[u8]) {
        self.count += 1;
        if self.shown.len() < SHOWN {
            self.shown.push(String::from_utf8_lossy(name).into_owned());
        }
    }
}

impl Compared {
    /// Moves to a directory of the source: open directories that are not above it have ended.
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
        let found = merge.end();
        if found.count == 0 {
            self.equal.insert(self.hashes.hash_one(&path));
        } else {
            self.bytes += found.bytes(&path);
            self.ended.insert(path, found);
        }
    }

    /// Returns the surplus names of a directory that does not continue.
    fn take_ended(&mut self, path: &TreePath) -> Option<TooMuch> {
        if self.equal.remove(&self.hashes.hash_one(path)) {
            return Some(TooMuch::default());
        }
        let found = self.ended.remove(path)?;
        self.bytes -= found.bytes(path);
        Some(found)
    }

    fn has_ended(&self, path: &TreePath) -> bool {
        self.ended.contains_key(path) || self.equal.contains(&self.hashes.hash_one(path))
    }

    fn is_too_much(&self) -> bool {
        self.ended.len() + self.equal.len() > MOST_ENDED || self.bytes > MOST_BYTES
    }
}

impl Extras {
    /// Handles the next entry of the source's listing; `path` is its path at the destination.
    /// Returns `None` if the source began too many directories.
    pub fn handle_listed(&self, folders: &Folders, path: &TreePath) -> Option<()> {
        let Some(parent) = path.parent() else {
            return Some(());
        };
        let mut compared = lock(&self.compared);
        compared.come_to(&parent);
        let known = compared.open.last().is_some_and(|(at, _)| *at == parent);
        if !known {
            if compared.has_ended(&parent) || compared.unopened.as_ref() == Some(&parent) {
                return Some(());
            }
            match Merge::open(folders, &parent, compared.open.len()) {
                Ok(merge) => compared.open.push((parent, merge)),
                Err(_) => {
                    compared.unopened = Some(parent);
                    return Some(());
                }
            }
        }
        if let Some((_, merge)) = compared.open.last_mut() {
            merge.advance(Some(path.name()));
        }
        (!compared.is_too_much()).then_some(())
    }

    /// Ends a directory of the source, and reports the names in it that only the destination has.
    ///
    /// # Errors
    ///
    /// Returns the errors of `openat` and `getdents` if the directory was not listed before.
    pub fn finish(
        &self,
        folders: &Folders,
        entry: &Entry,
        path: &TreePath,
    ) -> io::Result<Option<Failure>> {
        let mut compared = lock(&self.compared);
        if let Some(at) = compared.open.iter().position(|(open, _)| open == path) {
            // The directories within it have ended as well.
            let ended = compared.open.split_off(at);
            for (path, merge) in ended {
                compared.note_ended(path, merge);
            }
        }
        let depth = compared.open.len();
        let known = compared.take_ended(path);
        drop(compared);
        let found = match known {
            Some(found) => found,
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

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_proto::manifest::{EntryId, EntryKind};
    use longhaul_storage::posix::PosixDirectory;

    #[test]
    fn many_unfinished_directories_are_tracked() {
        let place = tempfile::tempdir().unwrap();
        let path = |text: String| TreePath::new(text.as_bytes()).unwrap();
        let extra = |number: usize| number.is_multiple_of(1000);
        for number in 0..9000 {
            let directory = place.path().join(format!("d{number:04}"));
            std::fs::create_dir(&directory).unwrap();
            std::fs::write(directory.join("f"), b"").unwrap();
            if extra(number) {
                std::fs::write(directory.join("g"), b"").unwrap();
            }
        }
        let folders = Folders::new(
            PosixDirectory::open_root(place.path()).unwrap(),
            Default::default(),
        );
        let extras = Extras::default();
        for number in 0..9000 {
            let listed = path(format!("d{number:04}/f"));
            assert_eq!(extras.handle_listed(&folders, &listed), Some(()));
        }
        for number in 0..9000 {
            let path = path(format!("d{number:04}"));
            let entry = Entry {
                id: EntryId(number as u64),
                parent: None,
                path: path.clone(),
                kind: EntryKind::Directory,
                mode: 0o755,
                modified: Default::default(),
                owner: None,
            };
            let found = extras.finish(&folders, &entry, &path).unwrap();
            assert_eq!(found.is_some(), extra(number), "{found:?}");
        }
        let compared = lock(&extras.compared);
        assert_eq!((compared.bytes, compared.equal.len()), (0, 0));
    }
}
