//! Lists the names of a directory with system calls.
//!
//! System calls are used directly. Libraries treat `ENOENT` as the end of a listing, although FUSE
//! reports any failure of its server this way, and missing names would count as absent.

use std::io;
use std::os::fd::BorrowedFd;

pub(super) use listing::PosixNames;
use longhaul_system::descriptors;

use crate::ListedName;

#[cfg(target_os = "linux")]
mod listing {
    use std::collections::VecDeque;
    use std::mem::MaybeUninit;
    use std::os::fd::OwnedFd;

    use rustix::fs::{FileType, Mode, OFlags, RawDir, openat};
    use rustix::io::{Errno, retry_on_intr};

    use super::*;
    use crate::NameList;
    use crate::posix::status::kind_of;

    /// Size in bytes of the buffer for one system call.
    const BUFFER_BYTES: usize = 8 << 10;

    /// Reads one buffer of names at a time.
    pub(in crate::posix) struct PosixNames {
        /// `None` after the end or an error.
        directory: Option<OwnedFd>,
        buffer: Box<[MaybeUninit<u8>]>,
        /// Names of the last buffer that were not returned yet.
        read: VecDeque<ListedName>,
    }

    impl PosixNames {
        /// Opens a listing with an independent position, at the start.
        pub(in crate::posix) fn open(directory: BorrowedFd<'_>) -> io::Result<PosixNames> {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let open = || retry_on_intr(|| openat(directory, c".", flags, Mode::empty()));
            Ok(PosixNames {
                directory: Some(descriptors::patiently(open)?),
                buffer: vec![MaybeUninit::uninit(); BUFFER_BYTES].into(),
                read: VecDeque::new(),
            })
        }

        /// Reads one buffer of names. The end of the listing, and any error, closes the directory.
        fn fill(&mut self, directory: &OwnedFd) -> rustix::io::Result<bool> {
            let mut names = RawDir::new(directory, &mut self.buffer);
            loop {
                let entry = match names.next() {
                    None => return Ok(false),
                    Some(Err(Errno::INTR)) => continue,
                    Some(entry) => entry?,
                };
                let name = entry.file_name().to_bytes();
                if name != b"." && name != b".." {
                    let kind = entry.file_type();
                    self.read.push_back(ListedName {
                        name: name.into(),
                        kind: (kind != FileType::Unknown).then(|| kind_of(kind)),
                    });
                }
                if names.is_buffer_empty() {
                    return Ok(true);
                }
            }
        }
    }

    impl NameList for PosixNames {
        fn next_name(&mut self) -> io::Result<Option<ListedName>> {
            loop {
                if let Some(listed) = self.read.pop_front() {
                    return Ok(Some(listed));
                }
                let Some(directory) = self.directory.take() else {
                    return Ok(None);
                };
                if self.fill(&directory)? {
                    self.directory = Some(directory);
                }
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod listing {
    use rustix::fs::{Dir, FileType};
    use rustix::io::Errno;

    use super::*;
    use crate::NameList;
    use crate::posix::status::kind_of;

    /// Reads one buffer of names (about 8 KiB) at a time.
    pub(in crate::posix) struct PosixNames {
        /// `None` after the end or an error.
        directory: Option<Dir>,
    }

    impl PosixNames {
        /// Opens a listing with an independent position, at the start.
        pub(in crate::posix) fn open(directory: BorrowedFd<'_>) -> io::Result<PosixNames> {
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
}
