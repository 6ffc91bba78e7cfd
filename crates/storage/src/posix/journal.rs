//! Finds file systems without a journal. After a power cut they have what was synced by itself, and
//! of the rest any part: a name that was synced may lead to an inode that was not written.

use std::os::fd::BorrowedFd;

/// Whether a descriptor's file system is known to have no journal, or is of a kind that may have
/// none and does not tell.
#[cfg(target_os = "linux")]
pub(super) fn is_missing(of: BorrowedFd<'_>) -> bool {
    // ext2, ext3 and ext4 share a number, and only the latter two can have a journal.
    const EXT: u32 = 0xef53;
    const WITHOUT: [u32; 10] = [
        0xef51, // ext2 before 0.5b
        0x137f, // minix, four versions
        0x138f,
        0x2468,
        0x2478,
        0x4d5a,
        0x4244,      // hfs
        0x482b,      // hfs+; Linux does not use its journal
        0x0001_1954, // ufs
        0x1501_3346, // udf
    ];
    // The width of `f_type` depends on the architecture, the number has 32 bits.
    let kind = rustix::fs::fstatfs(of).map(|status| status.f_type as u32);
    match kind {
        Ok(EXT) => rustix::fs::fstat(of).is_ok_and(|status| !ext_has_journal(status.st_dev)),
        Ok(kind) => WITHOUT.contains(&kind),
        Err(_) => false,
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn is_missing(_: BorrowedFd<'_>) -> bool {
    false
}

/// Whether the kernel names a thread that writes the journal of a device.
#[cfg(target_os = "linux")]
fn ext_has_journal(device: u64) -> bool {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let Ok(place) = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")) else {
        return false;
    };
    let Some(name) = place.file_name().and_then(|name| name.to_str()) else {
        return false;
    };
    let thread = std::fs::read_to_string(format!("/sys/fs/ext4/{name}/journal_task"));
    match thread {
        Ok(thread) => thread.trim().parse::<u32>().is_ok(),
        // A kernel that does not tell lists the journals that lie on the device itself.
        Err(_) => std::fs::exists(format!("/proc/fs/jbd2/{name}-8")).unwrap_or(false),
    }
}
