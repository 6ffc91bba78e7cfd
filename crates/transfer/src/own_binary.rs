//! Starts this program again: for a job, or for a principal's request to a daemon.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// The file of this program, even if another release has replaced it on disk.
pub const OWN_BINARY: &str = "/proc/self/exe";

/// A command that starts this program. Lists of processes show it as `longhaul`.
pub fn command() -> Command {
    let mut command = Command::new(OWN_BINARY);
    command.arg0("longhaul");
    command
}
