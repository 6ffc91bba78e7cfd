//! Large files that are copied in parts. The last task of a file follows its parts.

use std::collections::BTreeMap;

use longhaul_proto::byte_string::ByteString;

use crate::task::{Task, TaskName};

/// Files whose parts are not settled.
#[derive(Default)]
pub struct Assemblies {
    files: BTreeMap<ByteString, Awaited>,
    /// Paths of the files of open parts.
    parts: BTreeMap<TaskName, ByteString>,
}

struct Awaited {
    /// Number of open parts.
    left: u64,
    /// Task that follows the parts.
    whole: Task,
}

impl Assemblies {
    /// Adds a file with this number of parts. `whole` is its last task.
    pub fn add(&mut self, path: ByteString, left: u64, whole: Task) {
        self.files.insert(path, Awaited { left, whole });
    }

    /// Adds a part of a file.
    pub fn add_part(&mut self, name: &TaskName, path: &ByteString) {
        self.parts.insert(name.clone(), path.clone());
    }

    /// Settles a part, which was copied or given up. Returns the last task of its file if no other
    /// part is open. That task also copies the data of parts that were given up.
    pub fn settle(&mut self, name: &TaskName) -> Option<Task> {
        let path = self.parts.remove(name)?;
        let awaited = self.files.get_mut(&path)?;
        awaited.left = awaited.left.saturating_sub(1);
        if awaited.left > 0 {
            return None;
        }
        self.files.remove(&path).map(|awaited| awaited.whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{Found, LARGE_BYTES, Packer};

    #[test]
    fn the_last_task_follows_all_parts() {
        let packer = Packer::new("a b", false);
        let path: ByteString = b"x"[..].into();
        let mut parts = packer
            .parts(&Found {
                path: path.clone(),
                size: LARGE_BYTES + 1,
                replaces: false,
            })
            .unwrap();
        let mut assemblies = Assemblies::default();
        let mut names = Vec::new();
        while let Some(part) = parts.next(&packer) {
            assemblies.add_part(&part.name, &path);
            names.push(part.name);
        }
        let whole = parts.whole.clone();
        assemblies.add(path, parts.count(), parts.whole);
        assert_eq!(assemblies.settle(&whole.name), None);
        let last = names.pop().unwrap();
        for name in &names {
            assert_eq!(assemblies.settle(name), None);
            assert_eq!(assemblies.settle(name), None, "it counts once");
        }
        assert_eq!(assemblies.settle(&last), Some(whole));
    }
}
