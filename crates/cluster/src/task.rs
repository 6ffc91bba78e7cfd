//! Tasks: the files that one session copies.

use longhaul_proto::assembly::Assembly;
use longhaul_proto::byte_string::ByteString;
use longhaul_proto::manifest::TreePath;
use longhaul_transfer::manifest::hexadecimal;
use serde::{Deserialize, Serialize};

/// Context string for the key derivation of task names.
const CONTEXT: &str = "longhaul 2026 task between clusters 1";

/// Maximum number of files of a task.
pub const MOST_FILES: usize = 1000;

/// Maximum size of a task's paths in bytes, so that a message with any of them is short.
pub const MOST_PATH_BYTES: usize = 64 << 10;

/// Size at which a task is large enough. A larger file is a task of its own.
pub const ENOUGH_BYTES: u64 = 64 << 20;

/// Length of the parts of a large file in bytes, each a task of its own: a power of two.
pub const PART_BYTES: u64 = ENOUGH_BYTES;

/// Size in bytes at which a file is copied in parts.
pub const LARGE_BYTES: u64 = 2 * PART_BYTES;

/// Name of a task. The same files between the same two sites always have the same name, so that a
/// later attempt takes over from an earlier one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskName(pub String);

/// A file that a transfer copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Found {
    /// Path beneath the roots of both sites.
    pub path: ByteString,
    /// Size in bytes.
    pub size: u64,
    /// True if the destination has another version of the file.
    pub replaces: bool,
}

/// The files that one session copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Name of the task.
    pub name: TaskName,
    /// Paths of the files beneath the roots of both sites.
    pub files: Vec<ByteString>,
    /// Size of the files in bytes.
    pub bytes: u64,
    /// True if the destination had another version of some of the files.
    pub replaces: bool,
    /// True if an earlier session may have committed some of the files.
    pub again: bool,
    /// Role of the session if the only file is copied in parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assembly: Option<Assembly>,
}

/// Tasks of a large file.
#[derive(Debug)]
pub struct Parts {
    /// Gives the file its name. It must follow all parts.
    pub whole: Task,
    size: u64,
    offset: u64,
}

impl Parts {
    /// Returns the number of parts.
    pub fn count(&self) -> u64 {
        self.size.div_ceil(PART_BYTES)
    }

    /// Returns the next part.
    pub fn next(&mut self, packer: &Packer) -> Option<Task> {
        let offset = self.offset;
        let bytes = self.size.checked_sub(offset).filter(|left| *left > 0)?;
        let bytes = bytes.min(PART_BYTES);
        self.offset = offset.saturating_add(PART_BYTES);
        let part = Assembly::Part {
            offset,
            length: PART_BYTES,
        };
        let files = self.whole.files.clone();
        Some(packer.task(files, (bytes, self.whole.replaces), Some(part)))
    }
}

/// True if a list of paths is within the bounds of a task, and each is a path beneath the root.
pub fn are_valid(files: &[ByteString]) -> bool {
    let bytes: usize = files.iter().map(|path| path.len()).sum();
    let is_valid = |path: &ByteString| TreePath::new(path).is_ok();
    (1..=MOST_FILES).contains(&files.len())
        && (files.len() == 1 || bytes <= MOST_PATH_BYTES)
        && files.iter().all(is_valid)
}

/// Makes tasks of the files of a walk.
#[derive(Debug)]
pub struct Packer {
    /// Identifies the two sites.
    transfer: String,
    /// Value of [`Task::again`].
    again: bool,
    files: Vec<ByteString>,
    bytes: u64,
    replaces: bool,
    path_bytes: usize,
}

impl Packer {
    /// Creates a packer for a transfer, which `transfer` identifies.
    pub fn new(transfer: &str, again: bool) -> Packer {
        Packer {
            transfer: transfer.to_owned(),
            again,
            files: Vec::new(),
            bytes: 0,
            replaces: false,
            path_bytes: 0,
        }
    }

    /// Returns the tasks of a file that is copied in parts; `None` if it is not large.
    pub fn parts(&self, found: &Found) -> Option<Parts> {
        let files = vec![found.path.clone()];
        (found.size >= LARGE_BYTES).then(|| Parts {
            whole: self.task(files, (found.size, found.replaces), Some(Assembly::Whole)),
            size: found.size,
            offset: 0,
        })
    }

    /// Adds a file that is not copied in parts. Returns the tasks that are full.
    pub fn add(&mut self, found: Found) -> Vec<Task> {
        let mut tasks = Vec::new();
        if found.size >= ENOUGH_BYTES {
            tasks.push(self.task(vec![found.path], (found.size, found.replaces), None));
            return tasks;
        }
        if self.path_bytes + found.path.len() > MOST_PATH_BYTES {
            tasks.extend(self.rest());
        }
        self.path_bytes += found.path.len();
        self.bytes += found.size;
        self.replaces |= found.replaces;
        self.files.push(found.path);
        if self.bytes >= ENOUGH_BYTES || self.files.len() >= MOST_FILES {
            tasks.extend(self.rest());
        }
        tasks
    }

    /// Returns the last task; `None` if there are no more files.
    pub fn rest(&mut self) -> Option<Task> {
        let files = std::mem::take(&mut self.files);
        let bytes = std::mem::take(&mut self.bytes);
        let replaces = std::mem::take(&mut self.replaces);
        self.path_bytes = 0;
        (!files.is_empty()).then(|| self.task(files, (bytes, replaces), None))
    }

    fn task(
        &self,
        files: Vec<ByteString>,
        (bytes, replaces): (u64, bool),
        assembly: Option<Assembly>,
    ) -> Task {
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        for field in [self.transfer.as_bytes()]
            .into_iter()
            .chain(files.iter().map(|path| &**path))
        {
            hasher.update(&(field.len() as u64).to_le_bytes());
            hasher.update(field);
        }
        let place = match assembly {
            None => String::new(),
            Some(Assembly::Part { offset, length }) => format!("part {offset} {length}"),
            Some(Assembly::Whole) => "whole".to_owned(),
        };
        hasher.update(place.as_bytes());
        Task {
            name: TaskName(hexadecimal(&hasher.finalize().as_bytes()[..16])),
            files,
            bytes,
            replaces,
            again: self.again,
            assembly,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, size: u64) -> Found {
        Found {
            path: path.as_bytes().into(),
            size,
            replaces: false,
        }
    }

    #[test]
    fn every_file_is_in_exactly_one_task() {
        let mut packer = Packer::new("a b", false);
        let mut tasks = Vec::new();
        let long = "x".repeat(200);
        for number in 0..5000_u64 {
            let size = if number % 100 == 0 { 80 << 20 } else { number };
            tasks.extend(packer.add(found(&format!("{long}/{number}"), size)));
        }
        tasks.extend(packer.rest());
        assert_eq!(packer.rest(), None);
        assert!(tasks.iter().all(|task| are_valid(&task.files)));
        let mut files: Vec<_> = tasks.iter().flat_map(|task| task.files.clone()).collect();
        assert_eq!(files.len(), 5000);
        files.sort();
        files.dedup();
        assert_eq!(files.len(), 5000);
        let large = tasks.iter().filter(|task| task.bytes >= 80 << 20);
        assert_eq!(large.count(), 50);
    }

    #[test]
    fn the_name_of_a_task_depends_on_its_files_and_sites_only() {
        let name = |transfer, path| Packer::new(transfer, true).add(found(path, 1 << 40));
        let [first, same] = [name("a b", "x"), name("a b", "x")];
        assert_eq!(first[0].name, same[0].name);
        assert_eq!(first[0].name.0.len(), 32);
        assert_ne!(first[0].name, name("a c", "x")[0].name);
        assert_ne!(first[0].name, name("a b", "y")[0].name);
    }

    #[test]
    fn parts_cover_a_large_file_once() {
        let packer = Packer::new("a b", false);
        assert!(packer.parts(&found("x", LARGE_BYTES - 1)).is_none());
        for size in [LARGE_BYTES, LARGE_BYTES + 1, 5 * PART_BYTES - 1] {
            let mut parts = packer.parts(&found("x", size)).unwrap();
            let (mut end, mut names) = (0, vec![parts.whole.name.clone()]);
            let count = parts.count();
            while let Some(part) = parts.next(&packer) {
                let assembly = part.assembly.unwrap();
                assert!(assembly.is_valid());
                assert_eq!(assembly.range().unwrap().0, end);
                end += part.bytes;
                names.push(part.name);
            }
            assert_eq!(end, size);
            assert_eq!(names.len() as u64, count + 1);
            names.sort();
            names.dedup();
            assert_eq!(names.len() as u64, count + 1);
        }
    }

    #[test]
    fn paths_that_lead_out_of_the_root_are_invalid() {
        for bad in ["/etc/passwd", "../a", "a/../../b", "a//b", "", "a/", "."] {
            assert!(!are_valid(&[bad.as_bytes().into()]), "{bad}");
        }
        assert!(!are_valid(&[]));
        assert!(!are_valid(&vec![b"a"[..].into(); MOST_FILES + 1]));
        assert!(are_valid(&[b"a/b\nc"[..].into()]));
    }
}
