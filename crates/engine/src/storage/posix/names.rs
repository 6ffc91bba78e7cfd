//! The names of a directory as the kernel gives them.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{Dir, FileType};
use rustix::io::Errno;

use super::status::kind_of;
use crate::descriptors;
use crate::storage::{ListedName, NameList};

/// Reads one buffer of names (some 8 KiB) at a time.
pub(super) struct PosixNames {
    /// None after the end or an error.
    directory: Option<Dir>,
}

impl PosixNames {
    /// A listing with a position of its own, from the start.
    pub(super) fn open(directory: BorrowedFd<'_>) -> io::Result<PosixNames> {
        let open = || rustix::io::retry_on_intr(|| Dir::read_from(directory));
        let directory = descriptors::patiently(open)?;
        Ok(PosixNames {
            directory: Some(directory),
        })
    }
}

impl NameList for PosixNames {
    fn next_name(&mut self) -> io::Result<Option<ListedName>> {
        loop {
            let Some(directory) = &mut self.directory else {
                return Ok(None);
            };
            match directory.read() {
                Some(Ok(entry)) => {
                    let name = entry.file_name().to_bytes();
                    if name != b"." && name != b".." {
                        let kind = entry.file_type();
                        return Ok(Some(ListedName {
                            name: name.into(),
                            kind: (kind != FileType::Unknown).then(|| kind_of(kind)),
                        }));
                    }
                }
                Some(Err(Errno::INTR)) => {}
                Some(Err(error)) => {
                    self.directory = None;
                    return Err(error.into());
                }
                None => self.directory = None,
            }
        }
    }
}
