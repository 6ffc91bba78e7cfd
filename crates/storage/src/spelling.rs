//! Whether another name of this run is the same to the file system.
//!
//! File systems that fold case, or Unicode forms, take `FOO` and `foo` for one name: the later
//! file would replace the earlier one, and directories would merge. In a directory of such a file
//! system it is remembered under which spelling this run used each name; there is no other way
//! where a listing does not tell names as they were given. Elsewhere it costs one look for each
//! directory that was there before the run, and nothing for each file.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use longhaul_proto::manifest::RESERVED_PREFIX;

use super::Directory;

/// Names that are remembered of all such directories: some 64 MiB. Names beyond that are not
/// compared: a listing for each of them would take days.
const MOST_NAMES: usize = 1 << 20;

static NAMES: AtomicUsize = AtomicUsize::new(0);

/// A name of this run is the same as another one.
#[derive(Debug, thiserror::Error)]
#[error(
    "the file system there takes it and {} for one name, which has its place already: rename one \
     of them at the source",
    .there.as_deref().unwrap_or("another one of the source")
)]
pub struct OtherSpelling {
    /// How it is spelled there, where that is known.
    there: Option<String>,
}

impl OtherSpelling {
    /// What an error of ours holds.
    pub fn within(error: &io::Error) -> Option<&OtherSpelling> {
        error.get_ref()?.downcast_ref()
    }
}

/// What is known of a directory's names.
#[derive(Default)]
pub(super) struct Spelling {
    folding: Folding,
    /// Where case is folded: what this run used. Most directories have none, and many are open.
    used: Option<Box<Used>>,
    /// Elsewhere: names as they are listed, once one that is not ASCII was there.
    listed: Option<Box<Listed>>,
    /// There are more than are remembered.
    has_too_many: bool,
    state: RandomState,
}

/// Whether names that differ in the case of ASCII letters are one.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Folding {
    #[default]
    Unknown,
    No,
    Perhaps,
}

/// Hashes of spellings, by hashes of names without their case, and by inode. Counted in
/// [`NAMES`].
#[derive(Default)]
struct Used {
    by_name: HashMap<u64, u64>,
    by_inode: HashMap<u64, u64>,
}

/// Hashes of names, counted in [`NAMES`].
#[derive(Default)]
struct Listed(HashSet<u64>);

impl Spelling {
    /// A directory that was made in one that does not fold case does not either.
    pub(super) fn set_plain(&mut self) {
        self.folding = Folding::No;
    }

    pub(super) fn is_plain(&self) -> bool {
        self.folding == Folding::No
    }

    /// Whether it is to be kept while its directory is closed.
    pub(super) fn is_used(&self) -> bool {
        self.used.is_some()
    }

    /// This run uses a name that is there: `Err` with [`OtherSpelling`] where it used it under
    /// another spelling.
    pub(super) fn check(&mut self, directory: &dyn Directory, name: &[u8]) -> io::Result<()> {
        self.find_out(directory, name);
        let is_ours = match self.folding {
            Folding::Perhaps => self.is_free(directory, name)?,
            Folding::No | Folding::Unknown => !is_odd(name) || self.is_listed(directory, name)?,
        };
        if is_ours {
            return self.note(directory, name);
        }
        let other = |there: &[u8]| there != name && there.eq_ignore_ascii_case(name);
        let there = find(directory, other)?;
        let there = there.map(|there| String::from_utf8_lossy(&there).into_owned());
        Err(io::Error::other(OtherSpelling { there }))
    }

    /// Gives a file or link its name in the directory. `rename` replaces what has the name, and
    /// `rename_new` does not; both lie in `directory`.
    pub(super) fn rename(
        &mut self,
        directory: &dyn Directory,
        (from, to): (&[u8], &[u8]),
        rename: impl Fn() -> io::Result<()>,
        rename_new: impl Fn() -> io::Result<()>,
    ) -> io::Result<()> {
        self.find_out(directory, from);
        if self.folding == Folding::No && !is_odd(to) {
            return rename();
        }
        match rename_new() {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.check(directory, to)?;
                rename()?;
            }
            // The file system has no such call.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                match directory.status_of(to) {
                    Ok(_) => self.check(directory, to)?,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
                rename()?;
            }
            Err(error) => return Err(error),
        }
        self.note(directory, to)
    }

    /// A name was made that was not there.
    pub(super) fn made(&mut self, directory: &dyn Directory, name: &[u8]) -> io::Result<()> {
        self.find_out(directory, name);
        self.note(directory, name)
    }

    /// Looks once, by a name that is there, whether another case leads to it too.
    fn find_out(&mut self, directory: &dyn Directory, known: &[u8]) {
        if self.folding != Folding::Unknown || !known.iter().any(u8::is_ascii_alphabetic) {
            return;
        }
        let other = other_case(known);
        if directory.status_of(&other).is_err() {
            self.folding = Folding::No;
            return;
        }
        // It may be a name of its own. Inodes do not tell: it may be a hard link, and some file
        // systems number names.
        self.folding = match lists_both(directory, known, &other) {
            Ok(true) => Folding::No,
            Ok(false) => Folding::Perhaps,
            Err(_) => Folding::Unknown,
        };
    }

    fn note(&mut self, directory: &dyn Directory, name: &[u8]) -> io::Result<()> {
        let spelling = self.state.hash_one(name);
        if let Some(listed) = &mut self.listed {
            listed.insert(spelling);
        }
        let may = NAMES.load(Ordering::Relaxed) < MOST_NAMES;
        if self.folding == Folding::Perhaps && may {
            let inode = directory.status_of(name)?.inode;
            let folded = self.state.hash_one(without_case(name));
            let used = self.used.get_or_insert_default();
            used.insert(folded, inode, spelling);
        }
        Ok(())
    }

    /// Whether this run did not use what has the name under another one.
    fn is_free(&self, directory: &dyn Directory, name: &[u8]) -> io::Result<bool> {
        let spelling = self.state.hash_one(name);
        let is_other = |used: Option<&u64>| used.is_some_and(|used| *used != spelling);
        let folded = self.state.hash_one(without_case(name));
        let Some(used) = &self.used else {
            return Ok(true);
        };
        if is_other(used.by_name.get(&folded)) {
            return Ok(false);
        }
        let inode = directory.status_of(name)?.inode;
        let may_be = is_other(used.by_inode.get(&inode));
        // A hard link has a name of its own.
        Ok(!may_be || find(directory, |there| there == name)?.is_some())
    }

    /// Whether a name is in the directory exactly so.
    fn is_listed(&mut self, directory: &dyn Directory, name: &[u8]) -> io::Result<bool> {
        if self.listed.is_none() && !self.has_too_many {
            self.listed = Listed::of(directory, &self.state)?;
            self.has_too_many = self.listed.is_none();
        }
        let listed = self.listed.as_ref();
        Ok(listed.is_none_or(|listed| listed.0.contains(&self.state.hash_one(name))))
    }
}

impl Used {
    fn insert(&mut self, folded: u64, inode: u64, spelling: u64) {
        if self.by_name.insert(folded, spelling).is_none() {
            NAMES.fetch_add(1, Ordering::Relaxed);
        }
        self.by_inode.insert(inode, spelling);
    }
}

impl Drop for Used {
    fn drop(&mut self) {
        NAMES.fetch_sub(self.by_name.len(), Ordering::Relaxed);
    }
}

impl Listed {
    /// `None` if they are too many.
    fn of(directory: &dyn Directory, state: &RandomState) -> io::Result<Option<Box<Listed>>> {
        let mut listed = Box::<Listed>::default();
        let mut list = directory.list()?;
        while let Some(next) = list.next_name()? {
            if NAMES.load(Ordering::Relaxed) >= MOST_NAMES {
                return Ok(None);
            }
            if !next.name.starts_with(RESERVED_PREFIX) {
                listed.insert(state.hash_one(&*next.name));
            }
        }
        Ok(Some(listed))
    }

    fn insert(&mut self, name: u64) {
        if self.0.insert(name) {
            NAMES.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        NAMES.fetch_sub(self.0.len(), Ordering::Relaxed);
    }
}

/// Whether a name may have other spellings where case is kept: Unicode forms, and what some cut
/// off its end.
fn is_odd(name: &[u8]) -> bool {
    !name.is_ascii() || matches!(name.last(), Some(b'.' | b' '))
}

/// The same name with the case of its ASCII letters changed.
fn other_case(name: &[u8]) -> Vec<u8> {
    let changed = name.iter().map(|byte| {
        if byte.is_ascii_lowercase() {
            byte.to_ascii_uppercase()
        } else {
            byte.to_ascii_lowercase()
        }
    });
    changed.collect()
}

/// What names that differ in case alone have in common.
fn without_case(name: &[u8]) -> String {
    let lower = String::from_utf8_lossy(name).to_lowercase();
    lower.trim_end_matches(['.', ' ']).to_owned()
}

fn find(
    directory: &dyn Directory,
    mut is_it: impl FnMut(&[u8]) -> bool,
) -> io::Result<Option<Box<[u8]>>> {
    let mut list = directory.list()?;
    while let Some(listed) = list.next_name()? {
        if is_it(&listed.name) {
            return Ok(Some(listed.name));
        }
    }
    Ok(None)
}

/// Whether a listing has both names; one pass finds out.
fn lists_both(directory: &dyn Directory, one: &[u8], other: &[u8]) -> io::Result<bool> {
    let mut seen = [false, false];
    let both = find(directory, |there| {
        seen[0] |= there == one;
        seen[1] |= there == other;
        seen == [true, true]
    })?;
    Ok(both.is_some())
}

#[cfg(test)]
mod tests {
    use super::super::destination::DestinationDirectory;
    use super::super::forgetting::ForgettingStorage;
    use super::super::{Creation, DataMode};
    use super::*;

    /// A directory whose file system folds case, or not.
    fn directory(folds: bool) -> DestinationDirectory {
        let storage = ForgettingStorage::new();
        if folds {
            storage.fold_case();
        }
        DestinationDirectory::new(storage.root(), Default::default(), None)
    }

    /// A new file gets a name.
    fn give(directory: &DestinationDirectory, name: &str) -> io::Result<()> {
        let temporary = b".longhaul-temporary";
        directory.create_file(temporary, Creation::Either, DataMode::Buffered)?;
        directory.rename(temporary, directory, name.as_bytes())
    }

    fn is_other(result: io::Result<()>) -> bool {
        result.is_err_and(|error| OtherSpelling::within(&error).is_some())
    }

    #[test]
    fn another_spelling_replaces_nothing() {
        let folding = directory(true);
        give(&folding, "Foo").unwrap();
        let inode = folding.status_of(b"Foo").unwrap().inode;
        let refused = give(&folding, "foo").unwrap_err();
        assert!(
            refused.to_string().contains("it and Foo for one name"),
            "{refused}"
        );
        assert!(is_other(give(&folding, "FOO")));
        assert_eq!(folding.status_of(b"foo").unwrap().inode, inode);
        // The same name replaces it, and others are made.
        give(&folding, "Foo").unwrap();
        assert_ne!(folding.status_of(b"foo").unwrap().inode, inode);
        give(&folding, "bar").unwrap();
        assert!(is_other(give(&folding, "Bar")));
        folding.make_directory(b"Sub", 0o700).unwrap();
        folding.ensure_spelled(b"Sub").unwrap();
        assert!(is_other(folding.ensure_spelled(b"sub")));
        give(&folding, "12").unwrap();
        give(&folding, "12").unwrap();
    }

    #[test]
    fn where_case_is_kept_all_spellings_are_names() {
        let plain = directory(false);
        for name in ["Foo", "foo", "FOO", "é", "É", "a.", "a"] {
            give(&plain, name).unwrap();
            give(&plain, name).unwrap();
            plain.ensure_spelled(name.as_bytes()).unwrap();
        }
    }

    /// Names that differ in their case alone, in a directory that was there before this run.
    #[test]
    fn names_that_were_there_in_both_cases_are_two() {
        let plain = directory(false);
        for name in ["README", "readme"] {
            give(&plain, name).unwrap();
        }
        let mut later = Spelling::default();
        for name in [&b"README"[..], b"readme", b"README"] {
            later.check(&plain, name).unwrap();
        }
        assert!(later.is_plain());
    }

    /// A run that comes later may use another spelling, one only.
    #[test]
    fn what_was_there_before_has_one_spelling_too() {
        let folding = directory(true);
        for name in ["Foo", "bar"] {
            give(&folding, name).unwrap();
        }
        let mut later = Spelling::default();
        later.check(&folding, b"foo").unwrap();
        assert!(is_other(later.check(&folding, b"FOO")));
        later.check(&folding, b"foo").unwrap();
        later.check(&folding, b"Bar").unwrap();
        assert_eq!(later.used.as_ref().unwrap().by_name.len(), 2);
        assert!(NAMES.load(Ordering::Relaxed) >= 2);
    }
}
