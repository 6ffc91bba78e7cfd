//! Locates and writes the state files of this user.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use longhaul_system::named_files::kept;

/// Returns the state directory: `longhaul` in `XDG_STATE_HOME`, or else in `.local/state` of the
/// home directory.
///
/// # Errors
///
/// Fails if neither variable is an absolute path.
pub fn state_directory() -> io::Result<PathBuf> {
    let absolute = |name| {
        let value = std::env::var_os(name).map(PathBuf::from);
        value.filter(|path| path.is_absolute())
    };
    let state = absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
    let state = state.ok_or_else(|| {
        let text = "no state directory: neither XDG_STATE_HOME nor HOME is an absolute path";
        io::Error::new(io::ErrorKind::NotFound, text)
    })?;
    Ok(state.join("longhaul"))
}

/// Creates a directory that only its user can access, with its parents.
///
/// # Errors
///
/// Returns the error of the system.
pub fn make_private(directory: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(directory)
}

/// Replaces a file atomically.
///
/// # Errors
///
/// Returns the error of the system.
pub fn keep(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = file.with_extension("new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    kept(&mut options, &new)?.write_all(bytes)?;
    fs::rename(&new, file)
}
