//! The tree at the sending end. Its files change and vanish during a run. Their content is a pure
//! function of file, version and offset.

use longhaul_proto::block::Extent;
use longhaul_proto::digest::{self, BlockHasher, Checksum, Integrity};
use longhaul_proto::manifest::{Entry, EntryId, EntryKind, SourceIdentity, Timestamp, TreePath};

use super::random::{Random, mix};

/// Kind of a node.
#[derive(Clone, Debug)]
pub enum NodeKind {
    Directory,
    /// A file with its sizes by version. The last size applies to all later versions.
    File {
        sizes: Vec<u64>,
        sparse: bool,
    },
    Symlink,
}

/// A node of the tree.
#[derive(Clone, Debug)]
pub struct Node {
    pub parent: Option<usize>,
    pub path: TreePath,
    pub kind: NodeKind,
    pub seed: u64,
    pub version: u32,
    pub vanished: bool,
    pub unreadable: bool,
    /// True if the node changed or vanished while it was copied.
    pub touched: bool,
}

/// The tree, with directories before their contents.
#[derive(Clone, Debug, Default)]
pub struct Source {
    pub nodes: Vec<Node>,
}

/// A step of a walk.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Enter(usize),
    Leave,
}

impl Source {
    pub fn add(&mut self, parent: Option<usize>, kind: NodeKind) -> usize {
        let index = self.nodes.len();
        let name = format!("n{index}");
        let path = match parent {
            Some(parent) => self.nodes[parent].path.join(name.as_bytes()).unwrap(),
            None => TreePath::new(name.as_bytes()).unwrap(),
        };
        self.nodes.push(Node {
            parent,
            path,
            kind,
            seed: mix(index as u64),
            version: 0,
            vanished: false,
            unreadable: false,
            touched: false,
        });
        index
    }

    pub fn add_file(&mut self, parent: Option<usize>, size: u64) {
        let sizes = vec![size];
        let sparse = false;
        self.add(parent, NodeKind::File { sizes, sparse });
    }

    /// Makes a tree of up to `most` nodes with files of up to forty blocks.
    pub fn random(random: &mut Random, most: u64, block: u64) -> Source {
        let mut source = Source::default();
        let mut directories = vec![None];
        for _ in 0..random.below(most + 1) {
            let parent = random.pick(&directories);
            let depth = parent.map_or(0, |p: usize| source.nodes[p].path.names().count());
            let kind = match random.below(10) {
                0 | 1 if depth < 6 => NodeKind::Directory,
                2 => NodeKind::Symlink,
                _ => random_file(random, block),
            };
            let directory = matches!(kind, NodeKind::Directory);
            let index = source.add(parent, kind);
            source.nodes[index].unreadable = !directory && random.chance(20);
            if directory {
                directories.push(Some(index));
            }
        }
        source
    }

    /// Returns the steps of a depth-first walk.
    pub fn walk(&self) -> Vec<Step> {
        let mut children = vec![Vec::new(); self.nodes.len() + 1];
        for (index, node) in self.nodes.iter().enumerate() {
            children[node.parent.map_or(0, |p| p + 1)].push(index);
        }
        let mut steps = Vec::new();
        self.descend(0, &children, &mut steps);
        steps
    }

    fn descend(&self, slot: usize, children: &[Vec<usize>], steps: &mut Vec<Step>) {
        for &index in &children[slot] {
            steps.push(Step::Enter(index));
            if matches!(self.nodes[index].kind, NodeKind::Directory) {
                self.descend(index + 1, children, steps);
                steps.push(Step::Leave);
            }
        }
    }

    pub fn size(&self, index: usize, version: u32) -> u64 {
        match &self.nodes[index].kind {
            NodeKind::File { sizes, .. } => sizes[(version as usize).min(sizes.len() - 1)],
            NodeKind::Directory | NodeKind::Symlink => 0,
        }
    }

    /// Returns the entry as a walk or a reader finds it now.
    pub fn entry(&self, index: usize, id: EntryId, parent: Option<EntryId>) -> Entry {
        let node = &self.nodes[index];
        let modified = Timestamp {
            seconds: i64::from(node.version) + 1,
            nanoseconds: 7,
        };
        let kind = match &node.kind {
            NodeKind::Directory => EntryKind::Directory,
            NodeKind::Symlink => EntryKind::Symlink {
                target: b"elsewhere".to_vec(),
            },
            NodeKind::File { sparse, .. } => EntryKind::File {
                identity: SourceIdentity {
                    inode: index as u64 + 1,
                    size: self.size(index, node.version),
                    modified,
                    changed: modified,
                },
                sparse: *sparse,
            },
        };
        Entry {
            id,
            parent,
            path: node.path.clone(),
            kind,
            mode: 0o644,
            modified,
            owner: None,
        }
    }

    pub fn content(&self, index: usize, version: u32, offset: u64, length: u64) -> Vec<u8> {
        let node = &self.nodes[index];
        let sparse = matches!(node.kind, NodeKind::File { sparse: true, .. });
        let key = mix(node.seed ^ u64::from(version) << 40);
        let mut data = Vec::with_capacity(length as usize + 16);
        let mut word = offset / 8;
        while (data.len() as u64) < length + offset % 8 {
            let hole = sparse && mix(key ^ (word / 128)).is_multiple_of(2);
            let value = if hole {
                0
            } else {
                key.wrapping_mul(word | 1) ^ (word << 32) | 1
            };
            data.extend_from_slice(&value.to_le_bytes());
            word += 1;
        }
        data.drain(..(offset % 8) as usize);
        data.truncate(length as usize);
        data
    }

    /// Returns a file's whole content.
    pub fn whole(&self, index: usize, version: u32) -> Vec<u8> {
        self.content(index, version, 0, self.size(index, version))
    }
}

fn random_file(random: &mut Random, block: u64) -> NodeKind {
    let size = |random: &mut Random| match random.below(6) {
        0 => 0,
        1 | 2 => random.between(1, block / 8),
        3 => random.pick(&[1, block - 1, block, block + 1, 2 * block, 3 * block - 1]),
        4 => random.between(1, 4 * block),
        _ => random.between(1, 40 * block) / random.between(1, 8),
    };
    let sizes = (0..random.between(1, 3)).map(|_| size(random)).collect();
    NodeKind::File {
        sizes,
        sparse: random.chance(150),
    }
}

/// Returns the version of the file that an entry describes.
pub fn version_of(entry: &Entry) -> u32 {
    entry.modified.seconds as u32 - 1
}

/// Returns the checksum of a block's data.
pub fn checksum(integrity: Integrity, offset: u64, data: &[u8], size: u64) -> Checksum {
    if offset == 0 && data.len() as u64 == size {
        return digest::whole_file(integrity, data);
    }
    let mut hasher = BlockHasher::new(integrity, offset, data.len() as u64, size).unwrap();
    hasher.update(data);
    hasher.finish()
}

/// Returns the data runs of a sparse block.
pub fn extents(data: &[u8]) -> Vec<Extent> {
    let mut extents: Vec<Extent> = Vec::new();
    for (index, chunk) in data.chunks(512).enumerate() {
        if chunk.iter().all(|byte| *byte == 0) {
            continue;
        }
        let (start, length) = (index as u32 * 512, chunk.len() as u32);
        match extents.last_mut() {
            Some(last) if last.start + last.length == start => last.length += length,
            _ => extents.push(Extent { start, length }),
        }
    }
    extents
}
