//! The entries that a pulling end requested. The other end chooses what it sends: without a check
//! it could write files of any name into the destination.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_proto::block::Content;
use longhaul_proto::deletion::NamesOf;
use longhaul_proto::distinct::Question;
use longhaul_proto::manifest::{Entry, EntryKind, TreePath};
use longhaul_proto::message::Message;

use crate::send::source::last_name;
use crate::send::wildcards::{Names, pattern_of};
use crate::session::NotAsked;

/// Names that may come directly into the anchor.
#[derive(Debug, Default)]
pub struct Asked {
    names: HashSet<Box<[u8]>>,
    patterns: Vec<Names>,
    /// True if the content of a directory was requested: any name may come.
    contents: bool,
    /// True if directories may come.
    recursive: bool,
    /// True if the other end announced a single file.
    single: bool,
    /// True if an entry came that was not requested.
    violated: AtomicBool,
}

impl Asked {
    /// Creates an empty request; `recursive` allows directories.
    pub fn new(recursive: bool) -> Asked {
        Asked {
            recursive,
            ..Asked::default()
        }
    }

    /// Adds a source path of the other end, which resolves wildcards if it `expands` them.
    pub fn add_path(&mut self, path: &[u8], expands: bool) {
        let Some(name) = last_name(path) else {
            self.contents = true;
            return;
        };
        // The characters may also be part of a literal name.
        self.names.insert(name.into());
        if expands && let Some(pattern) = pattern_of(name) {
            self.patterns.push(pattern);
        }
    }

    /// Adds a source with this name.
    pub fn add_name(&mut self, name: &[u8]) {
        self.names.insert(name.into());
    }

    /// Records that the other end announced one file and no tree.
    #[must_use]
    pub fn single_file(self, single: bool) -> Asked {
        Asked { single, ..self }
    }

    /// True if the answer can only be a single file: without `-r`, a path without wildcards is a
    /// file or is refused.
    pub fn is_one_file(&self) -> bool {
        !self.recursive && self.patterns.is_empty() && self.names.len() == 1 && !self.contents
    }

    /// True if an entry came that was not requested.
    pub fn is_violated(&self) -> bool {
        self.violated.load(Ordering::Relaxed)
    }

    /// Checks the entries of a message.
    pub(crate) fn check_message(&self, message: &Message) -> Result<(), NotAsked> {
        match message {
            Message::Entries(entries) => self.check_all(entries),
            Message::DirectoryEnd { entry, .. } => self.check_all([entry]),
            // Only a source that fills the destination may set its metadata.
            Message::WalkEnd {
                anchor: Some(_), ..
            } if !self.contents => {
                self.violated.store(true, Ordering::Relaxed);
                let anchor = TreePath::new(b"the mode of the destination");
                anchor.map_or(Ok(()), |anchor| Err(NotAsked(anchor)))
            }
            Message::Names(names) => self.check_names(names),
            Message::AskDistinct(questions) => self.check_directories(questions),
            _ => Ok(()),
        }
    }

    /// Checks the entries of a block.
    pub(crate) fn check_content(&self, content: &Content) -> Result<(), NotAsked> {
        match content {
            Content::Piece(piece) => self.check_all([&piece.entry]),
            Content::Pack(packed) => self.check_all(packed.iter().map(|packed| &packed.entry)),
        }
    }

    fn check_all<'a>(&self, entries: impl IntoIterator<Item = &'a Entry>) -> Result<(), NotAsked> {
        match entries.into_iter().find(|entry| !self.allows(entry)) {
            None => Ok(()),
            Some(entry) => {
                self.violated.store(true, Ordering::Relaxed);
                Err(NotAsked(entry.path.clone()))
            }
        }
    }

    /// Checks that probes are only made in directories that hold requested entries.
    fn check_directories(&self, questions: &[Question]) -> Result<(), NotAsked> {
        let mut within = questions.iter().filter_map(|some| some.directory.as_ref());
        match within.find(|path| self.single || !self.recursive || !self.has_top(path)) {
            None => Ok(()),
            Some(path) => {
                self.violated.store(true, Ordering::Relaxed);
                Err(NotAsked(path.clone()))
            }
        }
    }

    /// Checks that names are only compared within the requested directories.
    fn check_names(&self, names: &[NamesOf]) -> Result<(), NotAsked> {
        let allows = |some: &&NamesOf| match &some.directory {
            _ if self.single => false,
            None => self.recursive && self.contents,
            Some(path) => self.recursive && self.has_top(path),
        };
        let Some(other) = names.iter().find(|some| !allows(some)) else {
            return Ok(());
        };
        self.violated.store(true, Ordering::Relaxed);
        let first = || TreePath::new(other.names.first()?).ok();
        let path = other.directory.clone().or_else(first);
        let anchor = || TreePath::new(b"the anchor");
        match path.map_or_else(anchor, Ok) {
            Ok(path) => Err(NotAsked(path)),
            Err(_) => Ok(()),
        }
    }

    /// True if a path is that of a requested entry or lies within one.
    fn has_top(&self, path: &TreePath) -> bool {
        let top = path.names().next().unwrap_or_default();
        self.recursive && self.contents
            || self.names.contains(top)
            || self.patterns.iter().any(|pattern| pattern.has(top))
    }

    fn allows(&self, entry: &Entry) -> bool {
        match &entry.kind {
            // The target of a hard link must have been requested, too.
            EntryKind::HardLink { target, .. } => {
                self.allows_path(&entry.path, entry) && self.allows_path(target, entry)
            }
            _ => self.allows_path(&entry.path, entry),
        }
    }

    fn allows_path(&self, path: &TreePath, entry: &Entry) -> bool {
        let mut names = path.names();
        names.next();
        let is_top = names.next().is_none();
        let kind = match (self.recursive, self.single) {
            (true, false) => true,
            (true, true) => is_top && entry.kind != EntryKind::Directory,
            // Without recursion, links are followed, so only files come.
            (false, _) => {
                let kind = &entry.kind;
                is_top && matches!(kind, EntryKind::File { .. } | EntryKind::HardLink { .. })
            }
        };
        kind && self.has_top(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_proto::manifest::{AnchorState, EntryId, SourceIdentity, Timestamp};

    fn entry(path: &str, kind: EntryKind) -> Entry {
        Entry {
            id: EntryId(0),
            parent: None,
            path: TreePath::new(path.as_bytes()).unwrap(),
            kind,
            mode: 0o644,
            modified: Timestamp::default(),
            owner: None,
        }
    }

    fn file(path: &str) -> Entry {
        let identity = SourceIdentity::default();
        let sparse = false;
        entry(path, EntryKind::File { identity, sparse })
    }

    fn link(path: &str) -> Entry {
        let target = b"/etc".to_vec();
        entry(path, EntryKind::Symlink { target })
    }

    fn asked(recursive: bool, paths: &[&str]) -> Asked {
        let mut asked = Asked::new(recursive);
        for path in paths {
            asked.add_path(path.as_bytes(), true);
        }
        asked
    }

    #[test]
    fn without_recursion_only_files_with_requested_names_are_accepted() {
        let asked = asked(false, &["/data/src", "/data/run?/*.h5", "/data/[x"]);
        for path in ["src", "a.h5", "*.h5", "[x"] {
            assert!(asked.allows(&file(path)), "{path}");
            assert!(!asked.allows(&link(path)), "{path}");
            assert!(!asked.allows(&entry(path, EntryKind::Directory)), "{path}");
        }
        for path in [".bashrc", "src/x", ".ssh/authorized_keys", ".a.h5", "a.h5x"] {
            assert!(!asked.allows(&file(path)), "{path}");
        }
    }

    #[test]
    fn with_recursion_trees_with_requested_names_are_accepted() {
        let asked = asked(true, &["src", "/data/run[12]"]);
        for path in ["src", "src/.bashrc", "run1/a/b", "run2"] {
            assert!(asked.allows(&file(path)), "{path}");
            assert!(asked.allows(&link(path)), "{path}");
            assert!(asked.allows(&entry(path, EntryKind::Directory)), "{path}");
        }
        for path in ["run3", ".ssh/src", "srcs", "Src", ".bashrc"] {
            assert!(!asked.allows(&file(path)), "{path}");
        }
    }

    #[test]
    fn the_contents_of_a_directory_have_any_name() {
        for path in ["/data/", "/data/.", "/", ".", "..", "/data/run?/"] {
            assert!(
                asked(true, &["x", path]).allows(&file("any/file")),
                "{path}"
            );
            assert!(!asked(false, &["x", path]).allows(&file("any")), "{path}");
        }
    }

    #[test]
    fn the_destination_itself_is_changed_only_if_a_source_fills_it() {
        let end = Message::WalkEnd {
            entries: 1,
            left_out: Default::default(),
            anchor: Some(Box::new(AnchorState {
                mode: 0o777,
                modified: Timestamp::default(),
                owner: None,
                is_limit: false,
            })),
        };
        assert!(asked(true, &["/data"]).check_message(&end).is_err());
        assert!(asked(true, &["/data/"]).check_message(&end).is_ok());
    }

    /// The directory of a single file does not belong to the copy, so its names are not compared.
    #[test]
    fn a_single_file_has_no_names_to_compare() {
        let names = |directory: Option<&str>| {
            Message::Names(vec![NamesOf {
                directory: directory.map(|path| TreePath::new(path.as_bytes()).unwrap()),
                begins: true,
                ends: true,
                names: Vec::new(),
                rules: Vec::new(),
                is_empty_source: false,
            }])
        };
        let contents = || asked(true, &["/data/"]);
        assert!(contents().check_message(&names(None)).is_ok());
        let single = contents().single_file(true);
        assert!(single.check_message(&names(None)).is_err());
        assert!(single.check_message(&names(Some("a"))).is_err());
    }

    #[test]
    fn without_recursion_hard_links_to_requested_names_are_accepted() {
        let asked = asked(false, &["a", "b"]);
        let name_of = |target: &str| {
            let target = TreePath::new(target.as_bytes()).unwrap();
            let first = EntryId(0);
            entry("b", EntryKind::HardLink { target, first })
        };
        assert!(asked.allows(&name_of("a")));
        assert!(!asked.allows(&name_of("c")) && !asked.allows(&name_of("a/x")));
    }

    #[test]
    fn a_comparison_takes_no_wildcards() {
        let mut asked = Asked::new(true);
        asked.add_path(b"/data/*", false);
        assert!(asked.allows(&file("*/x")) && !asked.allows(&file("a")));
    }

    #[test]
    fn an_announced_single_file_is_not_accepted_as_a_tree() {
        let single = asked(true, &["src"]).single_file(true);
        assert!(single.allows(&file("src")) && single.allows(&link("src")));
        assert!(!single.allows(&file("src/x")));
        assert!(!single.allows(&entry("src", EntryKind::Directory)));
    }

    #[test]
    fn one_path_without_wildcards_is_one_file() {
        assert!(asked(false, &["/a/b"]).is_one_file());
        for (recursive, paths) in [
            (true, &["/a/b"][..]),
            (false, &["/a/*"]),
            (false, &["/a/b", "/a/c"]),
            (false, &["/a/"]),
        ] {
            assert!(!asked(recursive, paths).is_one_file(), "{paths:?}");
        }
    }
}
