//! Small trees, and the names of the destination that must stay.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use longhaul_proto::filter::{Action, End, InForce, Rules};

use crate::support::Random;

const NAMES: [&str; 8] = ["a", "b", "c", "a.o", "d.o", "x", "y", "z"];

/// Paths with the text of each file; `None` for a directory.
#[derive(Debug, Default)]
pub struct Tree(pub BTreeMap<Vec<u8>, Option<Vec<u8>>>);

pub fn joined(above: &[u8], name: &[u8]) -> Vec<u8> {
    if above.is_empty() {
        name.to_vec()
    } else {
        [above, b"/", name].concat()
    }
}

impl Tree {
    /// Returns a tree whose directories have fixed names, so that none is a file at the other end.
    pub fn random(chance: &mut Random, text: &str) -> Tree {
        let mut tree = Tree::default();
        let mut directories = vec![Vec::new()];
        if chance.below(25) == 0 {
            return tree;
        }
        for _ in 0..2 + chance.below(16) {
            let above = &directories[chance.below(directories.len() as u64) as usize];
            let name = NAMES[chance.below(NAMES.len() as u64) as usize];
            let path = joined(above, name.as_bytes());
            let directory = matches!(name, "a" | "b" | "c");
            if tree.0.contains_key(&path) || directory && path.len() > 7 {
                continue;
            }
            tree.0
                .insert(path.clone(), (!directory).then(|| text.as_bytes().to_vec()));
            if directory {
                directories.push(path);
            }
        }
        for directory in directories {
            if chance.below(12) == 0 {
                let rule = ["- z\n", "P x\n", "H y\n"][chance.below(3) as usize];
                tree.0.insert(joined(&directory, b".f"), Some(rule.into()));
            }
        }
        tree
    }

    pub fn make(&self, root: &Path) {
        std::fs::create_dir_all(root).unwrap();
        for (path, text) in &self.0 {
            let path = root.join(OsStr::from_bytes(path));
            match text {
                None => std::fs::create_dir_all(path).unwrap(),
                Some(text) => std::fs::write(path, text).unwrap(),
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Input of the model.
pub struct Kept<'a> {
    pub source: &'a Tree,
    pub there: &'a Tree,
    pub rules: &'a [&'static str],
    pub excluded: bool,
    /// True if a name of the source could not be read.
    pub source_failed: bool,
    /// Names of the destination that could not be read, or that changed meanwhile.
    pub touched: &'a BTreeSet<Vec<u8>>,
    /// Names that were created at the destination meanwhile.
    pub added: &'a BTreeSet<Vec<u8>>,
}

impl Kept<'_> {
    fn rules(&self) -> Rules {
        Rules::parse(self.rules).unwrap()
    }

    /// Returns the rules in a directory of a tree, from the rule files in it and above it.
    fn force(&self, files: &dyn Fn(&[u8]) -> Option<Vec<u8>>, directory: &[u8]) -> InForce {
        let rules = self.rules();
        let text = |directory: &[u8]| {
            let names = rules.per_directory().iter();
            let texts = names.map(|file| files(&joined(directory, &file.name)));
            texts.collect::<Vec<_>>()
        };
        let mut force = InForce::default().enter(&rules, b"", &text(b"")).unwrap();
        let mut at = Vec::new();
        for name in directory
            .split(|byte| *byte == b'/')
            .filter(|name| !name.is_empty())
        {
            at = joined(&at, name);
            force = force.enter(&rules, &at, &text(&at)).unwrap();
        }
        force
    }

    fn parent(path: &[u8]) -> &[u8] {
        path.iter()
            .rposition(|byte| *byte == b'/')
            .map_or(b"", |at| &path[..at])
    }

    /// True if the source has a name that filters do not hide.
    fn shows(&self, path: &[u8]) -> bool {
        let Some(kind) = self.source.0.get(path) else {
            return false;
        };
        let above = Self::parent(path);
        let above_shown = above.is_empty() || self.shows(above);
        let files = |path: &[u8]| self.source.0.get(path).cloned().flatten();
        let force = self.force(&files, above);
        let verdict = force.decide_at(End::Sending, &self.rules(), path, kind.is_none());
        above_shown && verdict != Some(Action::Exclude)
    }

    /// Returns the text of a file at the destination after the copy.
    fn copied(&self, path: &[u8]) -> Option<Vec<u8>> {
        if self.shows(path) {
            self.source.0.get(path).cloned().flatten()
        } else {
            self.there.0.get(path).cloned().flatten()
        }
    }

    fn protects(&self, path: &[u8], directory: bool) -> bool {
        let end = if self.excluded {
            End::ReceivingOnly
        } else {
            End::Receiving
        };
        let files = |path: &[u8]| self.copied(path);
        let force = self.force(&files, Self::parent(path));
        force.decide_at(end, &self.rules(), path, directory) == Some(Action::Exclude)
    }

    /// True if a name of the destination may be deleted.
    fn may_go(&self, path: &[u8]) -> bool {
        let there = self.there.0.get(path);
        let Some(kind) = there else { return false };
        if self.source_failed || self.source.is_empty() || self.shows(path) {
            return false;
        }
        let above = Self::parent(path);
        // Only names in a directory that is copied, or in one that is deleted, may be deleted.
        let reached = above.is_empty() || self.shows(above) || self.is_reached(above);
        let below = joined(path, b"");
        let within = |other: &&Vec<u8>| other.starts_with(&below);
        let holds = self.there.0.keys().chain(self.added).filter(within);
        let mut holds = holds.filter(|inner| !self.may_go(inner) || self.added.contains(*inner));
        reached
            && !self.protects(path, kind.is_none())
            && !self.touched.contains(path)
            && !self.touched.contains(above)
            && holds.next().is_none()
    }

    /// True if deletion examines the content of a directory that the source lacks.
    fn is_reached(&self, path: &[u8]) -> bool {
        let above = Self::parent(path);
        let reached = above.is_empty() || self.shows(above) || self.is_reached(above);
        reached && !self.protects(path, true) && !self.touched.contains(path) && !self.shows(path)
    }

    /// Returns names of the destination that must exist at the end.
    pub fn paths(&self) -> Vec<Vec<u8>> {
        let names = self.there.0.keys().filter(|path| !self.may_go(path));
        names.cloned().collect()
    }

    /// Returns names of the destination that may be deleted.
    pub fn too_much(&self) -> Vec<Vec<u8>> {
        let names = self.there.0.keys().filter(|path| self.may_go(path));
        names.cloned().collect()
    }
}
