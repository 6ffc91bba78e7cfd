//! Tests the promises of the storage traits on the file systems that sites use. Each is created in
//! a file and mounted only for this test, which needs root and the tools of the file system;
//! without them the test is skipped.
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

/// Expectations for a disk with working direct I/O.
const ON_DISK: Expected = Expected {
    direct: DataMode::Direct,
    is_page_cache: false,
    tells_cached: true,
};

/// Expectations for overlayfs. It supports no flags for reads, so pages cached by others cannot be
/// distinguished from pages cached by this test.
const OVERLAID: Expected = Expected {
    tells_cached: false,
    ..ON_DISK
};

/// Expectations for a file system that has only the page cache.
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
