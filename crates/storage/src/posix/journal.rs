//! Finds file systems without a journal. After a power failure, they have the explicitly synced
//! data and any part of the rest. A synced name may lead to an inode that was not written.

use std::os::fd::BorrowedFd;

/// True if the descriptor's file system has no journal, or is of a kind that may lack one without
/// reporting it.
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

/// True if the kernel reports a thread that writes the journal of a device.
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
        // Kernels without that file list the journals on the device itself.
        Err(_) => std::fs::exists(format!("/proc/fs/jbd2/{name}-8")).unwrap_or(false),
    }
}
