//! Stores the planned steps until they are carried out: in memory, and if there are many, in an
//! unnamed file.

use std::io;

use longhaul_proto::manifest::{Timestamp, TreePath};
use longhaul_proto::message::Failure;
use longhaul_storage::spill::{Sorted, Sorter, SpillSettings};
use longhaul_storage::{FileKind, Status};
use minicbor::{Decode, Encode};

/// A step of the plan.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub(super) enum Step {
    /// The next steps are in this directory of the copy; `None` is the anchor.
    #[n(0)]
    Within(#[n(0)] Option<TreePath>),
    /// Removes a name if it did not change since it was listed.
    #[n(1)]
    Remove(#[n(0)] TreePath, #[n(1)] Seen),
    /// Lets a new entry replace this directory if it did not change since it was listed.
    #[n(3)]
    Replace(#[n(0)] TreePath, #[n(1)] Seen),
    /// Reports a surplus name that stays.
    #[n(2)]
    Stays(#[n(0)] TreePath, #[n(1)] Failure),
}

/// Identifies the state of a name. The change time of the inode is not used: an earlier removal of
/// another hard link would change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(super) struct Seen {
    #[n(0)]
    pub directory: bool,
    #[n(1)]
    pub inode: u64,
    #[n(2)]
    pub device: u64,
    #[n(3)]
    pub size: u64,
    #[n(4)]
    pub modified: Timestamp,
}

impl Seen {
    pub(super) fn of(status: &Status) -> Seen {
        let directory = status.kind == FileKind::Directory;
        Seen {
            directory,
            inode: status.inode,
            device: status.device,
            // Removing the content of a directory changes its size and time.
            size: if directory { 0 } else { status.size },
            modified: if directory {
                Timestamp::default()
            } else {
                status.modified
            },
        }
    }

    /// Returns the size of a file in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.size
    }
}

/// Collects steps in order, each with a group.
pub(super) struct Steps {
    sorter: Sorter,
    next: u64,
}

impl Default for Steps {
    fn default() -> Steps {
        Steps {
            sorter: Sorter::new(SpillSettings::default()),
            next: 0,
        }
    }
}

impl Steps {
    pub(super) fn push(&mut self, group: u64, step: &Step) -> io::Result<()> {
        let bytes = minicbor::to_vec((group, step)).map_err(io::Error::other)?;
        self.sorter.push(&self.next.to_be_bytes(), &bytes)?;
        self.next += 1;
        Ok(())
    }

    pub(super) fn finish(self) -> io::Result<Planned> {
        Ok(Planned(self.sorter.finish()?))
    }
}

/// The collected steps, to be carried out.
pub(super) struct Planned(Sorted);

impl Planned {
    pub(super) fn next(&mut self) -> io::Result<Option<(u64, Step)>> {
        let Some(record) = self.0.next_record()? else {
            return Ok(None);
        };
        minicbor::decode(record.value)
            .map(Some)
            .map_err(io::Error::other)
    }
}
