//! Names of the inodes of a mirrored directory. The kernel refers to inodes by number,
//! the directory behind the mount by name. Numbers are those of that directory, except
//! for the root.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Inode number of the root in FUSE.
pub const ROOT: u64 = 1;

/// Maximum depth of directories: the limit of a path of 4,096 bytes.
const DEEPEST: usize = 2048;

/// A name and the inode number of its directory.
type Name = (u64, OsString);

#[derive(Debug, Default)]
struct Node {
    /// Names of the inode: several for hard links, empty after removal.
    names: Vec<Name>,
    /// Number of lookups that the kernel has not forgotten yet.
    lookups: u64,
}

/// All inodes that the kernel knows.
#[derive(Debug)]
pub struct Nodes {
    top: PathBuf,
    nodes: HashMap<u64, Node>,
    numbers: HashMap<Name, u64>,
}

impl Nodes {
    /// Creates the table for the directory `top`.
    pub fn new(top: PathBuf) -> Nodes {
        Nodes {
            top,
            nodes: HashMap::new(),
            numbers: HashMap::new(),
        }
    }

    /// Returns the path of an inode; `None` if it has no name.
    pub fn path(&self, number: u64) -> Option<PathBuf> {
        let mut names: Vec<&OsStr> = Vec::new();
        let mut current = number;
        while current != ROOT {
            let (parent, name) = self.nodes.get(&current)?.names.last()?;
            names.push(name);
            current = *parent;
            if names.len() > DEEPEST {
                return None;
            }
        }
        let mut path = self.top.clone();
        path.extend(names.iter().rev());
        Some(path)
    }

    /// Returns the path of a name in a directory.
    pub fn child(&self, parent: u64, name: &OsStr) -> Option<PathBuf> {
        Some(self.path(parent)?.join(Path::new(name)))
    }

    /// Records that the kernel has looked up a name and received an inode.
    pub fn remember(&mut self, parent: u64, name: &OsStr, number: u64) {
        if number == ROOT {
            return;
        }
        self.attach((parent, name.to_owned()), number);
        self.nodes.entry(number).or_default().lookups += 1;
    }

    fn attach(&mut self, name: Name, number: u64) {
        if self.numbers.get(&name) == Some(&number) {
            return;
        }
        self.detach(&name);
        self.nodes
            .entry(number)
            .or_default()
            .names
            .push(name.clone());
        self.numbers.insert(name, number);
    }

    fn detach(&mut self, name: &Name) -> Option<u64> {
        let number = self.numbers.remove(name)?;
        if let Some(node) = self.nodes.get_mut(&number) {
            node.names.retain(|other| other != name);
        }
        Some(number)
    }

    /// Records that a name was removed.
    pub fn removed(&mut self, parent: u64, name: &OsStr) {
        self.detach(&(parent, name.to_owned()));
    }

    /// Records that a name was changed. An entry that had the new name loses it.
    pub fn renamed(&mut self, from: (u64, &OsStr), to: (u64, &OsStr)) {
        let to = (to.0, to.1.to_owned());
        self.detach(&to);
        if let Some(number) = self.detach(&(from.0, from.1.to_owned())) {
            self.attach(to, number);
        }
    }

    /// Records that two names were exchanged.
    pub fn exchanged(&mut self, one: (u64, &OsStr), other: (u64, &OsStr)) {
        let (one, other) = ((one.0, one.1.to_owned()), (other.0, other.1.to_owned()));
        let (first, second) = (self.detach(&one), self.detach(&other));
        for (name, number) in [(other, first), (one, second)] {
            if let Some(number) = number {
                self.attach(name, number);
            }
        }
    }

    /// Records that the kernel has forgotten `lookups` lookups of an inode.
    pub fn forget(&mut self, number: u64, lookups: u64) {
        let Some(node) = self.nodes.get_mut(&number) else {
            return;
        };
        node.lookups = node.lookups.saturating_sub(lookups);
        if node.lookups > 0 {
            return;
        }
        if let Some(node) = self.nodes.remove(&number) {
            for name in &node.names {
                self.numbers.remove(name);
            }
        }
    }

    /// Returns the number of known inodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// True if no inode is known.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> &OsStr {
        OsStr::new(text)
    }

    fn tree() -> Nodes {
        let mut nodes = Nodes::new(PathBuf::from("/top"));
        nodes.remember(ROOT, name("a"), 10);
        nodes.remember(10, name("b"), 11);
        nodes.remember(11, name("c"), 12);
        nodes
    }

    fn path(nodes: &Nodes, number: u64) -> Option<String> {
        nodes.path(number).map(|path| path.display().to_string())
    }

    #[test]
    fn renaming_a_directory_changes_the_paths_below_it() {
        let mut nodes = tree();
        assert_eq!(path(&nodes, 12).as_deref(), Some("/top/a/b/c"));
        assert_eq!(path(&nodes, ROOT).as_deref(), Some("/top"));
        nodes.renamed((10, name("b")), (ROOT, name("z")));
        assert_eq!(path(&nodes, 12).as_deref(), Some("/top/z/c"));
        assert_eq!(nodes.child(12, name("d")), Some("/top/z/c/d".into()));
    }

    #[test]
    fn replaced_and_removed_files_have_no_name() {
        let mut nodes = tree();
        nodes.remember(11, name("new"), 13);
        nodes.renamed((11, name("new")), (11, name("c")));
        assert_eq!(path(&nodes, 12), None);
        assert_eq!(path(&nodes, 13).as_deref(), Some("/top/a/b/c"));
        nodes.removed(11, name("c"));
        assert_eq!(path(&nodes, 13), None);
    }

    #[test]
    fn removing_a_hard_link_keeps_the_other_name() {
        let mut nodes = tree();
        nodes.remember(ROOT, name("second"), 12);
        nodes.removed(ROOT, name("second"));
        assert_eq!(path(&nodes, 12).as_deref(), Some("/top/a/b/c"));
    }

    #[test]
    fn exchanged_names_swap_their_inodes() {
        let mut nodes = tree();
        nodes.remember(ROOT, name("x"), 20);
        nodes.exchanged((ROOT, name("x")), (11, name("c")));
        assert_eq!(path(&nodes, 20).as_deref(), Some("/top/a/b/c"));
        assert_eq!(path(&nodes, 12).as_deref(), Some("/top/x"));
    }

    #[test]
    fn forgotten_inodes_are_removed() {
        let mut nodes = tree();
        nodes.remember(11, name("c"), 12);
        nodes.forget(12, 1);
        assert_eq!(nodes.len(), 3);
        nodes.forget(12, 1);
        nodes.forget(11, 1);
        nodes.forget(10, 1);
        nodes.forget(99, 1);
        assert!(nodes.is_empty() && nodes.numbers.is_empty());
    }
}
