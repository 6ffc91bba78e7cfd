//! A tree as a value: created in any directory, read from any directory.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use longhaul_proto::manifest::{RESERVED_PREFIX, Timestamp};
use longhaul_storage::{Creation, DataMode, Directory, FileKind};

use super::Random;

/// An entry of a tree.
#[derive(Clone, PartialEq, Eq)]
pub enum Node {
    Directory {
        mode: u32,
        modified: Timestamp,
    },
    File {
        data: Vec<u8>,
        mode: u32,
        modified: Timestamp,
    },
    Link(Vec<u8>),
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Node::Directory { mode, modified } => write!(f, "directory {mode:o} {modified:?}"),
            Node::File {
                data,
                mode,
                modified,
            } => {
                let hash = blake3::hash(data).to_hex();
                write!(
                    f,
                    "file {} {} {mode:o} {modified:?}",
                    data.len(),
                    &hash[..8]
                )
            }
            Node::Link(target) => write!(f, "link {}", target.escape_ascii()),
        }
    }
}

/// Entries by path; names are separated by `/`.
pub type Tree = BTreeMap<Vec<u8>, Node>;

fn time(chance: &mut Random) -> Timestamp {
    Timestamp {
        seconds: 1_000_000_000 + chance.below(500_000_000) as i64,
        nanoseconds: chance.below(1_000_000_000) as u32,
    }
}

pub fn directory(chance: &mut Random) -> Node {
    let mode = [0o755, 0o700, 0o775, 0o555][chance.below(4) as usize];
    let modified = time(chance);
    Node::Directory { mode, modified }
}

pub fn file(chance: &mut Random, size: usize) -> Node {
    Node::File {
        data: chance.bytes(size),
        mode: [0o644, 0o600, 0o755, 0o444][chance.below(4) as usize],
        modified: time(chance),
    }
}

/// Returns a few directories, small files, links, and files of several blocks of 64 KiB. Some names
/// are not UTF-8.
pub fn small_tree(seed: u64) -> Tree {
    let chance = &mut Random::new(seed);
    let mut tree = Tree::new();
    for path in [&b"top"[..], b"top/empty", b"top/sub", b"top/sub/\xff deep"] {
        tree.insert(path.into(), directory(chance));
    }
    for (path, size) in [
        (&b"top/a"[..], 10),
        (b"top/none", 0),
        (b"top/large", 3 * 65_536 + 7),
        (b"top/sub/b", 4097),
        (b"top/sub/\xfe", 1000),
        (b"top/sub/two", 2 * 65_536),
        (b"top/sub/\xff deep/c", 60_000),
        (b"top/sub/\xff deep/odd", 65_537),
    ] {
        tree.insert(path.into(), file(chance, size));
    }
    tree.insert(b"top/link".into(), Node::Link(b"../else/where".into()));
    tree
}

/// Returns one large file, of two blocks of 64 KiB, in a separate directory.
pub fn single_file() -> Tree {
    let chance = &mut Random::new(6);
    let mut tree = Tree::new();
    for path in [&b"top"[..], b"top/sub"] {
        tree.insert(path.into(), directory(chance));
    }
    tree.insert(b"top/sub/two".into(), file(chance, 2 * 65_536));
    tree
}

/// Returns one file of `size` bytes, named by its path beneath `top`.
pub fn one_file(seed: u64, path: &str, size: usize) -> Tree {
    let chance = &mut Random::new(seed);
    let mut tree = Tree::new();
    tree.insert(b"top"[..].into(), directory(chance));
    tree.insert(format!("top/{path}").into(), file(chance, size));
    tree
}

/// Returns a random tree with this number of entries, most of them small.
pub fn random_tree(seed: u64, entries: usize) -> Tree {
    let chance = &mut Random::new(seed);
    let mut tree = Tree::new();
    tree.insert(b"top".into(), directory(chance));
    let mut directories = vec![b"top".to_vec()];
    for number in 0..entries {
        let parent = &directories[chance.below(directories.len() as u64) as usize];
        let path = [&parent[..], format!("/n{number}").as_bytes()].concat();
        let node = match chance.below(20) {
            0 | 1 => directory(chance),
            2 => Node::Link(format!("target {number}").into()),
            3 => {
                let size = chance.below(600_000);
                file(chance, size as usize)
            }
            _ => {
                let size = chance.below(6000);
                file(chance, size as usize)
            }
        };
        if matches!(node, Node::Directory { .. }) {
            directories.push(path.clone());
        }
        tree.insert(path, node);
    }
    tree
}

fn parent_of(root: &Arc<dyn Directory>, path: &[u8]) -> (Arc<dyn Directory>, Vec<u8>) {
    let mut names: Vec<&[u8]> = path.split(|&byte| byte == b'/').collect();
    let last = names.pop().unwrap().to_vec();
    let opened = names.into_iter().fold(root.clone(), |above, name| {
        above.open_directory(name).unwrap()
    });
    (opened, last)
}

/// Creates a tree, and makes it durable if the storage supports it.
pub fn build(root: &Arc<dyn Directory>, tree: &Tree) {
    for (path, node) in tree {
        let (parent, name) = parent_of(root, path);
        match node {
            Node::Directory { .. } => match parent.make_directory(&name, 0o700) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    panic!("{error}")
                }
                _ => {}
            },
            Node::Link(target) => parent.make_symlink(&name, target).unwrap(),
            Node::File {
                data,
                mode,
                modified,
            } => {
                let file = parent
                    .create_file(&name, Creation::Either, DataMode::Buffered)
                    .unwrap();
                file.set_length(0).unwrap();
                file.write_at(data, 0).unwrap();
                file.set_mode(*mode).unwrap();
                file.set_modified(*modified).unwrap();
                file.sync_all().unwrap();
            }
        }
        parent.sync().unwrap();
    }
    for (path, node) in tree.iter().rev() {
        if let Node::Directory { mode, modified } = node {
            let (parent, name) = parent_of(root, path);
            let opened = parent.open_directory(&name).unwrap();
            opened.set_mode(*mode).unwrap();
            opened.set_modified(*modified).unwrap();
            opened.sync().unwrap();
        }
    }
    root.sync().unwrap();
}

/// Returns all entries of a directory except staging files, and the names of the staging files.
pub fn read(root: &Arc<dyn Directory>) -> (Tree, Vec<String>) {
    let (mut tree, mut staging) = (Tree::new(), Vec::new());
    read_into(root, &[], &mut tree, &mut staging);
    (tree, staging)
}

fn read_into(
    directory: &Arc<dyn Directory>,
    above: &[u8],
    tree: &mut Tree,
    staging: &mut Vec<String>,
) {
    let mut names = directory.list().unwrap();
    while let Some(listed) = names.next_name().unwrap() {
        let path = match above {
            [] => listed.name.to_vec(),
            above => [above, b"/", &listed.name].concat(),
        };
        if listed.name.starts_with(RESERVED_PREFIX) {
            staging.push(path.escape_ascii().to_string());
            continue;
        }
        let status = directory.status_of(&listed.name).unwrap();
        let (mode, modified) = (status.mode, status.modified);
        let node = match status.kind {
            FileKind::Directory => {
                let inner = directory.open_directory(&listed.name).unwrap();
                read_into(&inner, &path, tree, staging);
                Node::Directory { mode, modified }
            }
            FileKind::File => {
                let file = directory
                    .open_file(&listed.name, DataMode::Buffered)
                    .unwrap();
                let mut data = vec![0; status.size as usize];
                assert_eq!(file.read_at(&mut data, 0).unwrap(), data.len());
                Node::File {
                    data,
                    mode,
                    modified,
                }
            }
            FileKind::Symlink => Node::Link(directory.read_symlink(&listed.name).unwrap().into()),
            FileKind::Special => panic!("{path:?} is special"),
        };
        tree.insert(path, node);
    }
}

/// Describes the first difference between two trees; `None` if they are equal.
pub fn difference(found: &Tree, expected: &Tree) -> Option<String> {
    for (path, node) in expected {
        if found.get(path) != Some(node) {
            let shown = path.escape_ascii();
            return Some(format!("{shown}: {:?}, not {node:?}", found.get(path)));
        }
    }
    let extra = found.keys().find(|path| !expected.contains_key(*path))?;
    Some(format!("{} is there", extra.escape_ascii()))
}
