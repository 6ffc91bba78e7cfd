//! Code that the end-to-end tests share: processes that always end, a daemon, a proxy that counts
//! bytes, trees, and comparisons of trees.

// Each group of tests is a separate crate and uses a part of this module.
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

/// Fails if the directory contains leftovers of longhaul at any depth.
pub fn assert_no_leftovers(directory: &Path) {
    let left = tree::leftovers(directory);
    assert!(left.is_empty(), "left behind: {left:?}");
}

/// True if the test runs as root, which tests that mount or change users need. Otherwise prints the
/// reason for the skip.
pub fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        longhaul_testing::skip("it needs root");
    }
    root
}
