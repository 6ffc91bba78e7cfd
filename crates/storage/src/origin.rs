//! Identifies a file system in the same way on all hosts that see it. Device numbers and `f_fsid`
//! differ between hosts, and so do host names if another host continues the work.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

/// UUID of a file system.
pub type Uuid = [u8; 16];

/// Request code `FS_IOC_GETFSUUID` of Linux 6.9: `_IOR(0x15, 0, struct fsuuid2)`.
const GET_UUID: libc::Ioctl = 0x8011_1500_u32 as libc::Ioctl;

/// `struct fsuuid2` of the kernel.
#[repr(C)]
struct FileSystemUuid {
    length: u8,
    uuid: Uuid,
}

/// Returns the UUID of the file system of a directory or file; `None` if it has none or the kernel
/// does not provide it.
pub(super) fn uuid(descriptor: BorrowedFd<'_>) -> Option<Uuid> {
    let mut found = FileSystemUuid {
        length: 0,
        uuid: [0; 16],
    };
    if !ask_uuid(descriptor, &mut found) {
        return None;
    }
    // Images created without a UUID have zeros.
    let is_whole = usize::from(found.length) == found.uuid.len();
    (is_whole && found.uuid != [0; 16]).then_some(found.uuid)
}

#[expect(unsafe_code, reason = "rustix has no FS_IOC_GETFSUUID")]
fn ask_uuid(descriptor: BorrowedFd<'_>, found: &mut FileSystemUuid) -> bool {
    // SAFETY: the descriptor is open, and the kernel writes one `fsuuid2`, for which `found` has
    // the layout and is borrowed for the whole call.
    unsafe { libc::ioctl(descriptor.as_raw_fd(), GET_UUID, &raw mut *found) == 0 }
}

/// Magic numbers of network and cluster file systems, which identify a file in the same way on each
/// host. (NFS, CIFS, SMB 2, Ceph, Lustre, GPFS, BeeGFS, AFS.)
const SHARED: [u32; 8] = [
    0x6969,
    0xff53_4d42,
    0xfe53_4d42,
    0x00c3_6400,
    0x0bd0_0bd0,
    0x4750_4653,
    0x1983_0326,
    0x5346_414f,
];

/// Returns an identification of a path's file system, or of its directory, that is the same on
/// every host. `None` if only this host's name distinguishes it from that of another host.
///
/// # Errors
///
/// The directory does not exist.
pub fn known_everywhere(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let directory = if path.metadata()?.is_dir() {
        path
    } else {
        match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        }
    };
    let opened = File::open(directory)?;
    if let Some(uuid) = uuid(opened.as_fd()) {
        return Ok(Some([b"uuid ", &uuid[..]].concat()));
    }
    // The width of `f_type` depends on the architecture, the magic has 32 bits.
    let magic = rustix::fs::fstatfs(&opened)?.f_type as u32;
    if SHARED.contains(&magic) {
        return Ok(Some([&b"shared "[..], &magic.to_le_bytes()].concat()));
    }
    Ok(birth(directory))
}

/// Returns a directory's inode and creation time, if the time has nanoseconds.
fn birth(directory: &Path) -> Option<Vec<u8>> {
    let wanted = StatxFlags::BTIME | StatxFlags::INO;
    let found = statx(CWD, directory, AtFlags::empty(), wanted).ok()?;
    let kept = StatxFlags::from_bits_retain(found.stx_mask).contains(wanted);
    let (inode, time) = (found.stx_ino, found.stx_btime);
    (kept && time.tv_nsec != 0).then(|| {
        let numbers = [inode, time.tv_sec as u64, u64::from(time.tv_nsec)];
        let numbers: Vec<u8> = numbers.into_iter().flat_map(u64::to_le_bytes).collect();
        [&b"birth "[..], &numbers].concat()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_for_all_hosts_is_stable_and_unique() {
        let place = tempfile::tempdir().unwrap();
        let inner = place.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        std::fs::write(inner.join("file"), "x").unwrap();
        let known = |path: &Path| known_everywhere(path).unwrap();
        assert_eq!(known(&inner), known(&inner));
        assert_eq!(known(&inner), known(&inner.join("file")));
        // `/proc` has no UUID and exists separately on each host.
        assert_ne!(known(Path::new("/proc")), known(&inner));
        assert!(known_everywhere(&inner.join("none")).is_err());
    }
}
