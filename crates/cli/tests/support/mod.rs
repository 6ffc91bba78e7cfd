//! What the end-to-end tests share: real processes that are always ended, a
//! daemon, a proxy that counts bytes, trees, and how trees are compared.

// Each group of tests is a crate of its own and uses a part of this.
#![allow(dead_code, unused_imports)]

pub mod daemon;
pub mod lan;
pub mod process;
pub mod procfs;
pub mod proxy;
pub mod random;
pub mod round_trips;
pub mod second_factor;
pub mod site;
pub mod snapshot;
pub mod sshd;
pub mod stuck;
pub mod terminal;
pub mod tree;
pub mod ways;
pub mod wires;

pub use daemon::Daemon;

use std::path::Path;

/// Fails unless the directory, at any depth, has nothing that longhaul left.
pub fn assert_no_leftovers(directory: &Path) {
    let left = tree::leftovers(directory);
    assert!(left.is_empty(), "left behind: {left:?}");
}

/// Tests that mount or change users need root; says so where it is missing.
pub fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        longhaul_testing::skip("it needs root");
    }
    root
}
