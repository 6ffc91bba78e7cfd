//! A copy on each way that there is without SSH: within this host, to a daemon and from one; and
//! what rsync makes of the same.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Daemon;
use super::process::longhaul;
use super::tree::paths;

/// Returns `path/`, which stands for the contents of the directory.
pub fn slashed(path: &Path) -> OsString {
    let mut path = path.as_os_str().to_owned();
    path.push("/");
    path
}

/// All names beneath a directory.
pub fn names(root: &Path) -> BTreeSet<PathBuf> {
    let names = paths(root).into_iter();
    names.filter(|path| !path.as_os_str().is_empty()).collect()
}

/// Returns the bytes of a file, or the target of a link; empty for other kinds.
pub fn content_of(path: &Path) -> Vec<u8> {
    let status = path.symlink_metadata().unwrap();
    if status.is_symlink() {
        let target = fs::read_link(path).unwrap();
        target.into_os_string().into_encoded_bytes()
    } else if status.is_file() {
        fs::read(path).unwrap()
    } else {
        Vec::new()
    }
}

/// Returns the names, with the contents of files and the targets of links.
pub fn contents(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let names = names(root).into_iter();
    names
        .map(|path| (path.clone(), content_of(&root.join(&path))))
        .collect()
}

/// Returns the rsync command. If rsync is missing, prints the reason for the skip and returns
/// `None`.
pub fn rsync() -> Option<Command> {
    if Command::new("rsync").arg("--version").output().is_err() {
        longhaul_testing::skip("there is no rsync: install the package rsync");
        return None;
    }
    Some(Command::new("rsync"))
}

/// Route of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Local,
    Push,
    Pull,
}

pub const WAYS: [Way; 3] = [Way::Local, Way::Push, Way::Pull];

/// `longhaul cp` of what is in a directory to another one, both beneath the root of a daemon.
pub fn copy((daemon, root): (&Daemon, &Path), way: Way, (from, to): (&Path, &Path)) -> CopyOf {
    let url = |path: &Path| daemon.url(slashed(path.strip_prefix(root).unwrap()));
    let (command, ends) = match way {
        Way::Local => {
            let mut command = longhaul();
            command.arg("cp");
            (command, [slashed(from), to.as_os_str().to_owned()])
        }
        Way::Push => (daemon.command("cp"), [slashed(from), url(to)]),
        Way::Pull => (daemon.command("cp"), [url(from), to.as_os_str().to_owned()]),
    };
    CopyOf { command, ends }
}

/// A copy command that still lacks its options.
pub struct CopyOf {
    command: Command,
    ends: [OsString; 2],
}

impl CopyOf {
    /// Adds the options.
    pub fn with(mut self, options: &[&str]) -> Command {
        self.command.args(options).args(&self.ends);
        self.command
    }
}
