//! A change of a directory's names. A crash may discard any of these changes.

use std::collections::BTreeMap;

/// The inodes of a directory's names.
pub(super) type NameMap = BTreeMap<Box<[u8]>, u64>;

/// Half of a change of names: the effect on one name of one directory.
#[derive(Clone)]
pub(super) struct NameChange {
    pub(super) directory: u64,
    name: Box<[u8]>,
    inode: u64,
    /// True if the name is added, false if it is removed.
    appears: bool,
}

impl NameChange {
    pub(super) fn appears(directory: u64, name: &[u8], inode: u64) -> NameChange {
        NameChange {
            directory,
            name: name.into(),
            inode,
            appears: true,
        }
    }

    pub(super) fn goes(directory: u64, name: &[u8], inode: u64) -> NameChange {
        NameChange {
            appears: false,
            ..NameChange::appears(directory, name, inode)
        }
    }

    pub(super) fn apply(&self, names: &mut NameMap) {
        if self.appears {
            names.insert(self.name.clone(), self.inode);
        } else if names.get(&self.name) == Some(&self.inode) {
            // If an earlier change was lost, the name may belong to another inode.
            names.remove(&self.name);
        }
    }
}
