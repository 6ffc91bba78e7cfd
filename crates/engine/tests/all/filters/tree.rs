//! A random tree on the disk, with per-directory files.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::rules;
use crate::support::Random;

/// Names that are also used in patterns.
pub const NAMES: [&str; 14] = [
    "a", "b", "ab", "ba", "a.o", "b.c", ".a", "a[b]", "x*", "a\\b", "-", "a b", "A1", "_",
];

/// Names of per-directory files.
pub const FILES: [&str; 2] = [".f", ".g"];

/// Name of the file that per-directory files refer to.
pub const MERGED: &str = ".m";

pub struct Tree {
    place: tempfile::TempDir,
    /// Paths beneath the root with the text of each file; `None` for a directory.
    entries: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

pub fn joined(above: &[u8], name: &[u8]) -> Vec<u8> {
    if above.is_empty() {
        name.to_vec()
    } else {
        [above, b"/", name].concat()
    }
}

impl Tree {
    pub fn new(chance: &mut Random) -> Tree {
        let place = tempfile::tempdir().unwrap();
        let mut tree = Tree {
            place,
            entries: BTreeMap::new(),
        };
        std::fs::create_dir(tree.root()).unwrap();
        let mut directories = vec![Vec::new()];
        for _ in 0..12 + chance.below(16) {
            let above = &directories[chance.below(directories.len() as u64) as usize];
            let name = NAMES[chance.below(NAMES.len() as u64) as usize];
            let path = joined(above, name.as_bytes());
            if tree.entries.contains_key(&path) {
                continue;
            }
            let directory = chance.below(2) == 0;
            tree.make(&path, (!directory).then(Vec::new));
            if directory {
                directories.push(path);
            }
        }
        // rsync prefixes an anchored rule in such a directory with its path, including wildcards.
        let sound = |directory: &Vec<u8>| !directory.iter().any(|byte| b"\\*[".contains(byte));
        for directory in directories.into_iter().filter(sound) {
            for (number, file) in FILES.iter().enumerate() {
                if chance.below(3) == 0 {
                    let text = rules::random_file(number, chance);
                    tree.make(&joined(&directory, file.as_bytes()), Some(text));
                }
            }
            if chance.below(3) > 0 {
                let text = rules::random_file(2, chance);
                tree.make(&joined(&directory, MERGED.as_bytes()), Some(text));
            }
        }
        for number in 0..2 {
            let text = rules::random_file(number, chance);
            std::fs::write(tree.beside(&format!("merged{number}")), text).unwrap();
        }
        tree
    }

    fn make(&mut self, path: &[u8], text: Option<Vec<u8>>) {
        let there = self.root().join(OsStr::from_bytes(path));
        match &text {
            Some(text) => std::fs::write(there, text).unwrap(),
            None => std::fs::create_dir(there).unwrap(),
        }
        self.entries.insert(path.to_vec(), text);
    }

    pub fn root(&self) -> PathBuf {
        self.place.path().join("t")
    }

    pub fn beside(&self, name: &str) -> PathBuf {
        Path::join(self.place.path(), name)
    }

    /// Returns the number of entries.
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// Returns the text of a file in a directory.
    pub fn text(&self, directory: &[u8], name: &[u8]) -> Option<Vec<u8>> {
        self.entries
            .get(&joined(directory, name))
            .cloned()
            .flatten()
    }

    /// Returns the names in a directory, and true for each that is a directory.
    pub fn children(&self, directory: &[u8]) -> Vec<(Vec<u8>, bool)> {
        let prefix = joined(directory, b"");
        let within = |path: &[u8]| path.strip_prefix(&prefix[..]).map(<[u8]>::to_vec);
        let entries = self.entries.iter();
        entries
            .filter_map(|(path, text)| Some((within(path)?, text.is_none())))
            .filter(|(name, _)| !name.contains(&b'/'))
            .collect()
    }

    pub fn shown(&self) -> String {
        let line = |(path, text): (&Vec<u8>, &Option<Vec<u8>>)| match text {
            Some(text) => format!("{} {}", path.escape_ascii(), text.escape_ascii()),
            None => format!("{}/", path.escape_ascii()),
        };
        let lines: Vec<String> = self.entries.iter().map(line).collect();
        lines.join("\n")
    }
}
