//! Detects that two names of a run are the same name to the file system.
//!
//! File systems that fold case or Unicode forms treat `FOO` and `foo` as one name. The later file
//! would replace the earlier one, and directories would merge. In such a directory, the run records
//! the spelling that it used for each name, because a listing may not return names as they were
//! given. In other directories, the cost is one lookup for each directory that existed before the
//! run, and no cost for each file.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use longhaul_proto::manifest::RESERVED_PREFIX;

use super::Directory;

/// Maximum number of recorded names in all directories together, about 64 MiB. Names beyond this
/// limit are not compared, because a listing for each of them would take days.
const MOST_NAMES: usize = 1 << 20;

static NAMES: AtomicUsize = AtomicUsize::new(0);

/// Error for a name of this run that the file system treats as the same as another name.
#[derive(Debug, thiserror::Error)]
#[error(
    "the file system there takes it and {} for one name, which has its place already: rename one \
     of them at the source",
    .there.as_deref().unwrap_or("another one of the source")
)]
pub struct OtherSpelling {
    /// Spelling in the directory, if known.
    there: Option<String>,
}

impl OtherSpelling {
    /// Returns the `OtherSpelling` inside an error.
    pub fn within(error: &io::Error) -> Option<&OtherSpelling> {
        error.get_ref()?.downcast_ref()
    }
}

/// Known spellings of a directory's names.
#[derive(Default)]
pub(super) struct Spelling {
    folding: Folding,
    /// Spellings that this run used, if the directory folds case. Boxed because most of the many
    /// open directories have no such record.
    used: Option<Box<Used>>,
    /// Listed names, if the directory does not fold case but a non-ASCII name was used in it.
    listed: Option<Box<Listed>>,
    /// True if the directory has more names than can be recorded.
    has_too_many: bool,
    state: RandomState,
}

/// State of knowledge about the folding of ASCII case.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Folding {
    #[default]
    Unknown,
    No,
    Perhaps,
}

/// Hashes of spellings, by the hash of the name without its case, and by inode. Counted in
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
    /// Marks the directory as not folding case, because its parent does not either.
    pub(super) fn set_plain(&mut self) {
        self.folding = Folding::No;
    }

    pub(super) fn is_plain(&self) -> bool {
        self.folding == Folding::No
    }

    /// True if the record must be kept while its directory is closed.
    pub(super) fn is_used(&self) -> bool {
        self.used.is_some()
    }

    /// Records that this run uses an existing name. Fails with [`OtherSpelling`] if the run has
    /// used it under another spelling.
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

    /// Gives a file or link its name in the directory. `rename` replaces an existing entry of the
    /// name, and `rename_new` does not. Both act within `directory`.
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
            // The file system does not support this call.
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

    /// True if files can get these names without a comparison of spellings.
    pub(super) fn are_plain(
        &mut self,
        directory: &dyn Directory,
        names: &[(&[u8], &[u8])],
    ) -> bool {
        if let Some((from, _)) = names.first() {
            self.find_out(directory, from);
        }
        self.folding == Folding::No && !names.iter().any(|(_, to)| is_odd(to))
    }

    /// Records a name that was newly created.
    pub(super) fn made(&mut self, directory: &dyn Directory, name: &[u8]) -> io::Result<()> {
        self.find_out(directory, name);
        self.note(directory, name)
    }

    /// Tests once whether the name of an existing entry in the other case leads to an entry too.
    fn find_out(&mut self, directory: &dyn Directory, known: &[u8]) {
        if self.folding != Folding::Unknown || !known.iter().any(u8::is_ascii_alphabetic) {
            return;
        }
        let other = other_case(known);
        if directory.status_of(&other).is_err() {
            self.folding = Folding::No;
            return;
        }
        // The other case may be a separate entry. Comparing inodes is not sufficient: the entry may
        // be a hard link, and some file systems number names.
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

    /// True if this run did not use the entry under another spelling.
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
        // A hard link is a separate name.
        Ok(!may_be || find(directory, |there| there == name)?.is_some())
    }

    /// True if the directory lists the name with exactly this spelling.
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
    /// Lists a directory. `None` if it has too many names.
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

/// True if a name may have other spellings even if case is preserved: non-ASCII names, and names
/// with a final dot or space, which some file systems remove.
fn is_odd(name: &[u8]) -> bool {
    !name.is_ascii() || matches!(name.last(), Some(b'.' | b' '))
}

/// Returns the name with the case of its ASCII letters swapped.
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

/// Returns a form that is equal for all names that differ only in case or in final dots and spaces.
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

/// True if a listing contains both names. Reads the directory once.
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

    /// Creates a directory whose file system folds case, or does not.
    fn directory(folds: bool) -> DestinationDirectory {
        let storage = ForgettingStorage::new();
        if folds {
            storage.fold_case();
        }
        DestinationDirectory::new(storage.root(), Default::default(), None)
    }

    /// Creates a file and gives it a name.
    fn give(directory: &DestinationDirectory, name: &str) -> io::Result<()> {
        let temporary = b".longhaul-temporary";
        directory.create_file(temporary, Creation::Either, DataMode::Buffered)?;
        directory.rename(temporary, directory, name.as_bytes())
    }

    fn is_other(result: io::Result<()>) -> bool {
        result.is_err_and(|error| OtherSpelling::within(&error).is_some())
    }

    #[test]
    fn another_spelling_replaces_no_file() {
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
        // The same name replaces the file, and other names are created.
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
    fn all_spellings_are_names_if_case_is_distinguished() {
        let plain = directory(false);
        for name in ["Foo", "foo", "FOO", "é", "É", "a.", "a"] {
            give(&plain, name).unwrap();
            give(&plain, name).unwrap();
            plain.ensure_spelled(name.as_bytes()).unwrap();
        }
    }

    /// Names that differ only in case, in a directory that existed before this run.
    #[test]
    fn existing_names_that_differ_in_case_are_two_files() {
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

    /// A later run may use one other spelling.
    #[test]
    fn an_existing_file_has_one_spelling_too() {
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
