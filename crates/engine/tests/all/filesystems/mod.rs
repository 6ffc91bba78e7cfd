//! The promises of the storage traits, tried on the file systems that sites
//! have. Each is made in a file and mounted where only this test sees it, so
//! root and the tools of each file system are needed: where one is missing,
//! the test is skipped.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic)]

mod cache;
mod copies;
mod folding;
mod mounts;
mod suite;

use longhaul_storage::DataMode;

use self::mounts::{Skipped, mount_image, mount_overlay, mount_tmpfs};
use self::suite::Expected;

/// With a disk beneath and direct I/O that works.
const ON_DISK: Expected = Expected {
    direct: DataMode::Direct,
    is_page_cache: false,
    tells_cached: true,
};

/// overlayfs takes no flags with a read, so that what others cached cannot be
/// told from what we did.
const OVERLAID: Expected = Expected {
    tells_cached: false,
    ..ON_DISK
};

/// The page cache is all there is.
const IN_MEMORY: Expected = Expected {
    direct: DataMode::Buffered,
    is_page_cache: true,
    tells_cached: false,
};

#[test]
fn ext4() {
    try_on("ext4", mount_image("ext4", &["mkfs.ext4", "-q"]), ON_DISK);
}

#[test]
fn xfs() {
    try_on("XFS", mount_image("xfs", &["mkfs.xfs", "-q"]), ON_DISK);
}

#[test]
fn btrfs() {
    let mounted = mount_image("btrfs", &["mkfs.btrfs", "-q"]);
    try_on("btrfs", mounted, ON_DISK);
}

#[test]
fn tmpfs() {
    try_on("tmpfs", mount_tmpfs(), IN_MEMORY);
}

#[test]
fn overlayfs() {
    try_on("overlayfs", mount_overlay(), OVERLAID);
}

fn try_on(name: &str, mounted: Result<mounts::Mounted, Skipped>, expected: Expected) {
    match mounted {
        Ok(mounted) => suite::run(mounted.point(), &expected),
        Err(skipped) => skipped.report(name),
    }
}
