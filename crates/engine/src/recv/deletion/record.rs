//! What is planned, as it is kept until it is carried out: in memory, and beyond that in a file
//! without a name.

use std::io;

use longhaul_proto::manifest::{Timestamp, TreePath};
use longhaul_proto::message::Failure;
use longhaul_storage::spill::{Sorted, Sorter, SpillSettings};
use longhaul_storage::{FileKind, Status};
use minicbor::{Decode, Encode};

/// One step.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub(super) enum Step {
    /// What follows lies in this directory of the copy; `None`: the anchor.
    #[n(0)]
    Within(#[n(0)] Option<TreePath>),
    /// Remove this, if it still is what was seen.
    #[n(1)]
    Remove(#[n(0)] TreePath, #[n(1)] Seen),
    /// Let a new entry take the place of this directory, if it still is what was seen.
    #[n(3)]
    Replace(#[n(0)] TreePath, #[n(1)] Seen),
    /// This stays, though it should not.
    #[n(2)]
    Stays(#[n(0)] TreePath, #[n(1)] Failure),
}

/// What tells one state of a name from another. The time of change of the inode does not: another
/// name of the same file may be removed before.
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
            // Removing what a directory holds changes it.
            size: if directory { 0 } else { status.size },
            modified: if directory {
                Timestamp::default()
            } else {
                status.modified
            },
        }
    }

    /// Bytes of a file.
    pub(super) fn bytes(&self) -> u64 {
        self.size
    }
}

/// Steps in their order, each of a group.
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

/// The same, to be carried out.
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
