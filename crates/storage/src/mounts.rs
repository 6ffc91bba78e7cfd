//! Checks if an open directory is still attached to the mounts of this process.
//!
//! After `umount --lazy`, it can still be written to, but no path leads to it.

use std::ffi::OsString;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, StatxFlags, statx};

use super::Directory;

/// Returns the ID of the mount through which a file was opened; `None` if the kernel does not
/// provide it (before Linux 5.8).
pub(super) fn mount_of(file: BorrowedFd<'_>) -> Option<u64> {
    let status = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
    let told = StatxFlags::from_bits_retain(status.stx_mask).contains(StatxFlags::MNT_ID);
    told.then_some(status.stx_mnt_id)
}

/// The mount of a directory when it was opened.
#[derive(Debug, Default)]
pub struct Place(Option<u64>);

impl Place {
    /// Returns the mount of a directory, if known.
    pub fn of(directory: &dyn Directory) -> Place {
        Place(directory.mount().filter(|mount| is_attached(*mount)))
    }

    /// True if the mount has been detached since.
    pub fn is_gone(&self) -> bool {
        self.0.is_some_and(|mount| !is_attached(mount))
    }
}

/// True if a mount is in the list of this process's mounts. Also false if the list cannot be read,
/// or for mounts outside a changed root (`chroot`). Therefore the caller compares the results
/// before and after.
fn is_attached(mount: u64) -> bool {
    let listed = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    listed.lines().any(|line| {
        let number = line.split_ascii_whitespace().next();
        number.and_then(|number| number.parse().ok()) == Some(mount)
    })
}

/// Returns the mount points beneath a path of this host, relative to it.
pub fn points_beneath(path: &Path) -> Vec<PathBuf> {
    let listed = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let points = listed.split(|&byte| byte == b'\n').filter_map(|line| {
        let point = line.split(|&byte| byte == b' ').nth(4)?;
        let point = PathBuf::from(OsString::from_vec(unescaped(point)));
        let below = point.strip_prefix(path).ok()?;
        (!below.as_os_str().is_empty()).then(|| below.to_owned())
    });
    points.collect()
}

/// Decodes a path in the kernel's format, in which `\040` is a space.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| first == b'\\');
        let byte = digits.and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        path.push(byte.unwrap_or(first));
        rest = match byte {
            Some(_) => &after[3..],
            None => after,
        };
    }
    path
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn mount_points_have_paths() {
        assert_eq!(unescaped(br"/a\040b\134c\9"), br"/a b\c\9");
        let beneath = points_beneath(Path::new("/"));
        assert!(beneath.iter().any(|point| point == Path::new("proc")));
        assert!(points_beneath(Path::new("/nonexistent")).is_empty());
    }

    #[test]
    fn a_directory_lies_in_a_mount() {
        let root = std::fs::File::open("/").unwrap();
        let Some(mount) = mount_of(root.as_fd()) else {
            return longhaul_testing::skip("the kernel tells no mounts");
        };
        assert!(is_attached(mount));
        assert!(!is_attached(u64::MAX));
    }
}
