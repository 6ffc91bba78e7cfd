//! Files whose reported size is 0 or wrong, such as those of `/proc`, `/sys` and some FUSE file
//! systems. Their real size is known only after reading them to the end.

use std::fs::File;
use std::hash::Hasher;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use twox_hash::XxHash3_64;

use super::refusing::refuse_writes;
use super::spill::nameless_file;
use super::{Advice, DataMode, DataRange, FileKind, Status, StoredFile};

/// Limits for reading such a file. Some never end (`/proc/kmsg`).
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub bytes: u64,
    /// Maximum total time.
    pub span: Duration,
    /// Maximum time without a byte.
    pub silence: Duration,
}

impl Bounds {
    pub const USUAL: Bounds = Bounds {
        bytes: 1 << 30,
        span: Duration::from_secs(60),
        silence: Duration::from_secs(5),
    };
}

/// Error for such a file that did not end within the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "it tells no size, and did not end after {bytes} bytes and {seconds} s: it is a stream and no \
     file; copy what is wanted of it from standard input (-)"
)]
pub struct Endless {
    bytes: u64,
    seconds: u64,
}

/// Maximum size in bytes of content that is kept in memory.
const MEMORY_BYTES: usize = 1 << 20;

/// Number of bytes read at a time.
const PART_BYTES: usize = 64 << 10;

/// Page sizes in bytes. sysfs reports one of them as the size of most files.
const PAGES: [u64; 3] = [4 << 10, 16 << 10, 64 << 10];

/// Reliability of the file sizes that a file system reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sizes {
    Told,
    /// A reported size of zero may be wrong.
    ZeroIsUnknown,
    /// A reported size of zero or of a page may be wrong.
    Unknown,
}

/// Known reliability of sizes for the devices of one tree.
#[derive(Default)]
pub(super) struct Devices {
    known: Mutex<Vec<(u64, Sizes)>>,
}

/// Maximum number of remembered devices. Others are queried each time.
const MOST_DEVICES: usize = 256;

impl Devices {
    /// True if a file's size is known only after reading it. `open` opens the file for the query.
    pub fn hides_content<T: std::os::fd::AsFd>(
        &self,
        status: &Status,
        open: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<bool> {
        let is_odd = status.size == 0 || PAGES.contains(&status.size);
        // File systems on disks have a nonzero major device number, and report correct sizes.
        if status.kind != FileKind::File || !is_odd || rustix::fs::major(status.device) != 0 {
            return Ok(false);
        }
        let known = {
            let devices = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            let found = devices.iter().find(|(device, _)| *device == status.device);
            found.map(|(_, sizes)| *sizes)
        };
        let sizes = match known {
            Some(sizes) => sizes,
            None => {
                let sizes = sizes_of(open()?.as_fd());
                let mut devices = self.known.lock().unwrap_or_else(PoisonError::into_inner);
                if devices.len() < MOST_DEVICES {
                    devices.push((status.device, sizes));
                }
                sizes
            }
        };
        Ok(match sizes {
            Sizes::Told => false,
            Sizes::ZeroIsUnknown => status.size == 0,
            Sizes::Unknown => true,
        })
    }
}

fn sizes_of(file: BorrowedFd<'_>) -> Sizes {
    // Proc, FUSE, debugfs, tracefs, both of cgroups, configfs, securityfs, SELinux, Smack, BPF,
    // binfmt_misc, pstore, fusectl, resctrl, and 9P, which may show any of them.
    const ZERO: [u32; 16] = [
        0x9fa0,
        0x6573_5546,
        0x6462_6720,
        0x7472_6163,
        0x0027_e0eb,
        0x6367_7270,
        0x6265_6570,
        0x7363_6673,
        0xf97c_ff8c,
        0x4341_5d53,
        0xcafe_4a11,
        0x4249_4e4d,
        0x6165_676c,
        0x6573_5543,
        0x0765_5821,
        0x0102_1997,
    ];
    const SYSFS: u32 = 0x6265_6572;
    // The width of `f_type` depends on the architecture, the magic has 32 bits.
    match rustix::fs::fstatfs(file).map(|status| status.f_type as u32) {
        Ok(SYSFS) => Sizes::Unknown,
        Ok(magic) if ZERO.contains(&magic) => Sizes::ZeroIsUnknown,
        _ => Sizes::Told,
    }
}

/// Content of a file that was read to its end.
pub(super) struct Content {
    status: Status,
    kept: Kept,
}

/// Location of the content.
enum Kept {
    Memory(Vec<u8>),
    File(File),
}

impl Content {
    /// Reads a file that was opened in non-blocking mode.
    ///
    /// # Errors
    ///
    /// The errors of `read`, and [`Endless`].
    pub fn read(file: BorrowedFd<'_>, status: Status, bounds: Bounds) -> io::Result<Content> {
        let mut kept = Kept::Memory(Vec::new());
        let mut size = 0;
        let hash = read_all(file, bounds, &mut |part| {
            kept.add(part, size)?;
            size += part.len() as u64;
            Ok(())
        })?;
        let status = with(status, size, hash);
        Ok(Content { status, kept })
    }

    /// Returns the size in bytes.
    pub fn len(&self) -> u64 {
        self.status.size
    }
}

/// Returns a file's status with the real size of its content.
///
/// # Errors
///
/// The errors of [`Content::read`].
pub(super) fn measured(file: BorrowedFd<'_>, status: Status, bounds: Bounds) -> io::Result<Status> {
    let mut size = 0;
    let hash = read_all(file, bounds, &mut |part| {
        size += part.len() as u64;
        Ok(())
    })?;
    Ok(with(status, size, hash))
}

/// Returns the status with the real size. Such files have no useful times, so the hash changes the
/// inode number to show a change of content.
fn with(status: Status, size: u64, hash: u64) -> Status {
    let inode = match size {
        0 => status.inode,
        _ => status.inode ^ hash,
    };
    Status {
        size,
        allocated: size,
        inode,
        ..status
    }
}

/// Reads a file to its end, part by part. Returns a hash of the whole content.
fn read_all(
    file: BorrowedFd<'_>,
    bounds: Bounds,
    take: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<u64> {
    let (began, mut total) = (Instant::now(), 0);
    let mut hasher = XxHash3_64::new();
    let mut room = vec![0; PART_BYTES];
    loop {
        match rustix::io::read(file, &mut room) {
            Ok(0) => return Ok(hasher.finish()),
            Ok(count) => {
                total += count as u64;
                hasher.write(&room[..count]);
                take(&room[..count])?;
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if waits(file, bounds.silence)? => {}
            Err(Errno::AGAIN) => return Err(endless(total, began)),
            Err(error) => return Err(error.into()),
        }
        if total > bounds.bytes || began.elapsed() > bounds.span {
            return Err(endless(total, began));
        }
    }
}

fn endless(bytes: u64, began: Instant) -> io::Error {
    let seconds = began.elapsed().as_secs();
    io::Error::other(Endless { bytes, seconds })
}

/// Waits for more data. False if none arrives within `silence`.
fn waits(file: BorrowedFd<'_>, silence: Duration) -> io::Result<bool> {
    let mut polled = [PollFd::from_borrowed_fd(file, PollFlags::IN)];
    let timeout = rustix::time::Timespec::try_from(silence).ok();
    match poll(&mut polled, timeout.as_ref()) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

impl Kept {
    fn add(&mut self, part: &[u8], offset: u64) -> io::Result<()> {
        if let Kept::Memory(bytes) = self {
            if bytes.len() + part.len() <= MEMORY_BYTES {
                bytes.extend_from_slice(part);
                return Ok(());
            }
            let file = nameless_file(&std::env::temp_dir())?;
            file.write_all_at(bytes, 0)?;
            *self = Kept::File(file);
        }
        match self {
            Kept::File(file) => file.write_all_at(part, offset),
            Kept::Memory(_) => Ok(()),
        }
    }
}

impl StoredFile for Content {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let left = self.len().saturating_sub(offset);
        let count = buffer
            .len()
            .min(usize::try_from(left).unwrap_or(usize::MAX));
        match &self.kept {
            Kept::Memory(bytes) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                let there = bytes
                    .get(start..start.saturating_add(count))
                    .unwrap_or_default();
                buffer[..there.len()].copy_from_slice(there);
                Ok(there.len())
            }
            Kept::File(file) => {
                file.read_exact_at(&mut buffer[..count], offset)?;
                Ok(count)
            }
        }
    }

    fn status(&self) -> io::Result<Status> {
        Ok(self.status)
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<DataRange>> {
        let end = self.len();
        Ok((offset < end).then_some(DataRange { start: offset, end }))
    }

    fn advise(&self, _advice: Advice, _start: u64, _length: u64) {}

    fn data_mode(&self) -> DataMode {
        DataMode::Buffered
    }

    refuse_writes!(io::ErrorKind::ReadOnlyFilesystem);
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;

    use super::*;
    use crate::posix::PosixDirectory;

    const SHORT: Bounds = Bounds {
        bytes: 3 << 20,
        span: Duration::from_secs(600),
        silence: Duration::from_millis(1),
    };

    fn is_endless(read: io::Result<Status>) -> bool {
        let error = read.unwrap_err();
        error.get_ref().is_some_and(|error| error.is::<Endless>())
    }

    fn status() -> Status {
        let root = PosixDirectory::open_root(std::path::Path::new("/proc")).unwrap();
        root.status_of(b"version").unwrap()
    }

    #[test]
    fn content_is_read_to_its_end_and_endless_content_is_given_up() {
        for length in [0, 10, MEMORY_BYTES + 7] {
            let bytes: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            let mut file = nameless_file(&std::env::temp_dir()).unwrap();
            file.write_all(&bytes).unwrap();
            std::io::Seek::rewind(&mut file).unwrap();
            let content = Content::read(file.as_fd(), status(), SHORT).unwrap();
            assert_eq!(content.len(), length as u64);
            let mut read = vec![0; length + 5];
            assert_eq!(content.read_at(&mut read, 0).unwrap(), length);
            assert!(read[..length] == bytes);
            assert_eq!(content.read_at(&mut read, length as u64 + 1).unwrap(), 0);
            std::io::Seek::rewind(&mut file).unwrap();
            let measured = measured(file.as_fd(), status(), SHORT).unwrap();
            assert_eq!(measured, content.status().unwrap());
        }
        let (reader, writer) = std::io::pipe().unwrap();
        rustix::fs::fcntl_setfl(&reader, rustix::fs::OFlags::NONBLOCK).unwrap();
        assert!(
            is_endless(measured(reader.as_fd(), status(), SHORT)),
            "silent"
        );
        drop(writer);
        assert!(measured(reader.as_fd(), status(), SHORT).is_ok(), "ended");
        let zeros = File::open("/dev/zero").unwrap();
        assert!(
            is_endless(measured(zeros.as_fd(), status(), SHORT)),
            "never ends"
        );
    }

    #[test]
    fn files_of_proc_have_the_size_that_can_be_read() {
        let root = PosixDirectory::open_root(std::path::Path::new("/proc")).unwrap();
        assert_eq!(root.status_of(b"version").unwrap().size, 0);
        let expected = std::fs::read("/proc/version").unwrap();
        let status = root.content_status_of(b"version").unwrap();
        assert_eq!(status.size, expected.len() as u64);
        let file = root.open_file(b"version", DataMode::Buffered).unwrap();
        assert_eq!(file.status().unwrap().size, status.size);
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("empty"), "").unwrap();
        let root = PosixDirectory::open_root(place.path()).unwrap();
        let status = root.status_of(b"empty").unwrap();
        assert_eq!(root.content_status_of(b"empty").unwrap(), status);
    }
}
