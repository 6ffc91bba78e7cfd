//! Changes kernel parameters of the whole machine, as opposed to those of a lab's hosts.
//! Changes require a lock and are recorded in a file beforehand. They are undone when the
//! lab ends, or by the next start if the lab was killed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use rustix::fs::{FlockOperation, flock};

use crate::netns::{sysctl, sysctl_path};
use crate::state::StateDirectory;

/// Groups of changes that exclude each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Changes for the lifetime of a lab (`--host-sysctl`). Only one lab at a time can
    /// have them.
    Lasting,
    /// Changes for the short time in which hosts are created. Other labs wait for it.
    Momentary,
}

impl Kind {
    const ALL: [Kind; 2] = [Kind::Lasting, Kind::Momentary];

    /// Returns the base name of the lock file and of the list of changes.
    fn file(self) -> &'static str {
        match self {
            Kind::Lasting => "machine",
            Kind::Momentary => "machine-moment",
        }
    }
}

/// Reasons why parameters of the machine cannot be changed.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// Another lab has changed parameters.
    #[error("another lab has changed kernel parameters of this machine: wait until that lab ends")]
    Held,
    /// The kernel refused the change.
    #[error("{name} of this machine cannot be set to \"{value}\": {error}; only root may set it")]
    Set {
        /// Name of the parameter.
        name: String,
        /// The requested value.
        value: String,
        /// The operating system's error.
        #[source]
        error: io::Error,
    },
    /// The list of changes cannot be written.
    #[error("{}: {error}", path.display())]
    Journal {
        /// Path of the file.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        error: io::Error,
    },
}

/// Changes of parameters. Dropping the value undoes them.
#[derive(Debug)]
pub struct Change {
    journal: PathBuf,
    _lock: File,
}

impl Change {
    /// Sets kernel parameters of the machine.
    ///
    /// # Errors
    ///
    /// Returns an error if another lab holds the lock, a parameter does not exist, or the
    /// kernel refuses a value. No change remains in that case.
    pub fn apply(
        state: &StateDirectory,
        kind: Kind,
        settings: &[(String, String)],
    ) -> Result<Change, MachineError> {
        Change::apply_once_alone(state, kind, || settings.to_vec())
    }

    /// Sets the parameters that `choose` returns. `choose` is called under the lock, so
    /// that no other lab changes them meanwhile.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Change::apply`].
    pub fn apply_once_alone(
        state: &StateDirectory,
        kind: Kind,
        choose: impl FnOnce() -> Vec<(String, String)>,
    ) -> Result<Change, MachineError> {
        let lock = lock(state, kind, kind == Kind::Momentary)?.ok_or(MachineError::Held)?;
        let journal = state.path().join(format!("{}.before", kind.file()));
        // The previous holder of the lock may have been killed.
        restore(&journal);
        let (mut settings, mut text) = (Vec::new(), String::new());
        for (name, value) in choose() {
            let before = sysctl(&name).map_err(|error| refused(&name, &value, error))?;
            // The kernel separates list items by tabs.
            let before: Vec<&str> = before.split_whitespace().collect();
            // A parameter that already has the value is not written, so that no
            // permission is needed.
            if !before.iter().copied().eq(value.split_whitespace()) {
                text += &format!("{name}\t{}\t{value}\n", before.join(" "));
                settings.push((name, value));
            }
        }
        if !settings.is_empty() {
            write_durably(&journal, &text).map_err(|error| MachineError::Journal {
                path: journal.clone(),
                error,
            })?;
        }
        let change = Change {
            journal,
            _lock: lock,
        };
        for (name, value) in &settings {
            fs::write(sysctl_path(name), value).map_err(|error| refused(name, value, error))?;
        }
        Ok(change)
    }
}

/// Calls `read` while no lab changes parameters of the machine for a moment.
///
/// # Errors
///
/// Fails if the lock cannot be taken.
pub fn read_alone<T>(state: &StateDirectory, read: impl FnOnce() -> T) -> Result<T, MachineError> {
    let _lock = lock(state, Kind::Momentary, true)?;
    Ok(read())
}

impl Drop for Change {
    fn drop(&mut self) {
        restore(&self.journal);
    }
}

fn refused(name: &str, value: &str, error: io::Error) -> MachineError {
    MachineError::Set {
        name: name.to_owned(),
        value: value.to_owned(),
        error,
    }
}

/// Undoes changes of labs that were killed.
///
/// # Errors
///
/// Returns an error if a lock file cannot be opened or locked.
pub fn restore_leftovers(state: &StateDirectory) -> Result<(), MachineError> {
    for kind in Kind::ALL {
        if let Some(_lock) = lock(state, kind, false)? {
            restore(&state.path().join(format!("{}.before", kind.file())));
        }
    }
    Ok(())
}

/// Takes the lock of a kind. Returns `None` if another process holds it and `wait` is
/// false.
fn lock(state: &StateDirectory, kind: Kind, wait: bool) -> Result<Option<File>, MachineError> {
    let path = state.path().join(format!("{}.lock", kind.file()));
    let journal = |error| MachineError::Journal {
        path: path.clone(),
        error,
    };
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(journal)?;
    let operation = if wait {
        FlockOperation::LockExclusive
    } else {
        FlockOperation::NonBlockingLockExclusive
    };
    match flock(&file, operation) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(journal(error.into())),
    }
}

/// Restores the parameters that still have the value set by the lab. Parameters that were
/// changed since then stay.
fn restore(journal: &PathBuf) {
    let Ok(text) = fs::read_to_string(journal) else {
        return;
    };
    for line in text.lines() {
        let mut parts = line.split('\t');
        let (Some(name), Some(before), Some(set)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        if sysctl(name).is_ok_and(|now| same(&now, set)) {
            // An error means that the parameter had not been set either.
            let _ = fs::write(sysctl_path(name), before);
        }
    }
    let _ = fs::remove_file(journal);
}

/// Compares lists of words regardless of order and white space, because the kernel uses
/// tabs and its own order.
fn same(one: &str, other: &str) -> bool {
    let words = |text: &str| {
        let mut words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        words.sort();
        words
    };
    words(one) == words(other)
}

/// Writes a file so that it is either complete or absent, also after a power failure.
fn write_durably(path: &PathBuf, text: &str) -> io::Result<()> {
    let staged = path.with_extension("new");
    let mut file = File::create(&staged)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&staged, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_that_has_the_value_is_not_written() {
        // This parameter is read-only, even for root.
        let name = "kernel.ostype";
        let path = std::env::temp_dir().join(format!("longhaul-machine-{}", std::process::id()));
        let state = StateDirectory::at(path.clone()).unwrap();
        let apply = |value: &str| {
            let settings = [(name.to_owned(), value.to_owned())];
            Change::apply(&state, Kind::Momentary, &settings).map(drop)
        };
        apply(&sysctl(name).unwrap()).unwrap();
        assert!(matches!(apply("another"), Err(MachineError::Set { .. })));
        fs::remove_dir_all(path).unwrap();
    }
}
