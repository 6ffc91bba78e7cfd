//! What belongs to the whole machine, not to a lab's hosts: changed only under
//! a lock, written down before, and put back at the end, by the next start if
//! need be.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use rustix::fs::{FlockOperation, flock};

use crate::netns::{sysctl, sysctl_path};
use crate::state::StateDirectory;

/// Which changes exclude each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// For as long as a lab lives (`--host-sysctl`): there is one at a time.
    Lasting,
    /// For the moment in which hosts are made: others wait for it.
    Momentary,
}

impl Kind {
    const ALL: [Kind; 2] = [Kind::Lasting, Kind::Momentary];

    /// The path of the lock; the list of changes is next to it.
    fn file(self) -> &'static str {
        match self {
            Kind::Lasting => "machine",
            Kind::Momentary => "machine-moment",
        }
    }
}

/// Why the machine stays as it is.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// Another lab has changed it.
    #[error("another lab has changed parameters of this machine: wait for its end")]
    Held,
    /// Not ours to change.
    #[error("{name} of this machine cannot be set to \"{value}\": {error}; only root may")]
    Set {
        /// The parameter.
        name: String,
        /// What it was to be.
        value: String,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// The list of changes cannot be kept.
    #[error("{}: {error}", path.display())]
    Journal {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
}

/// Changes that are undone when this is dropped.
#[derive(Debug)]
pub struct Change {
    journal: PathBuf,
    _lock: File,
}

impl Change {
    /// Sets parameters of the machine.
    ///
    /// # Errors
    ///
    /// Where another lab has done so, or the kernel refuses; then nothing is
    /// changed.
    pub fn apply(
        state: &StateDirectory,
        kind: Kind,
        settings: &[(String, String)],
    ) -> Result<Change, MachineError> {
        Change::apply_once_alone(state, kind, || settings.to_vec())
    }

    /// Likewise, with settings that are chosen once no other lab can change
    /// them.
    ///
    /// # Errors
    ///
    /// See [`Change::apply`].
    pub fn apply_once_alone(
        state: &StateDirectory,
        kind: Kind,
        choose: impl FnOnce() -> Vec<(String, String)>,
    ) -> Result<Change, MachineError> {
        let lock = lock(state, kind, kind == Kind::Momentary)?.ok_or(MachineError::Held)?;
        let journal = state.path().join(format!("{}.before", kind.file()));
        // Whoever had the lock before may have been killed.
        restore(&journal);
        let (mut settings, mut text) = (Vec::new(), String::new());
        for (name, value) in choose() {
            let before = sysctl(&name).map_err(|error| refused(&name, &value, error))?;
            // Lists come with tabs.
            let before: Vec<&str> = before.split_whitespace().collect();
            // What is right already needs no right to change it.
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

/// Undoes what killed labs changed.
///
/// # Errors
///
/// Where a lock cannot be had.
pub fn restore_leftovers(state: &StateDirectory) -> Result<(), MachineError> {
    for kind in Kind::ALL {
        if let Some(_lock) = lock(state, kind, false)? {
            restore(&state.path().join(format!("{}.before", kind.file())));
        }
    }
    Ok(())
}

/// `None` if another process holds it and we do not wait.
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

/// Puts back what still has the value that was given to it: what somebody else
/// has changed since stays.
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
            // Refused now, it was refused before.
            let _ = fs::write(sysctl_path(name), before);
        }
    }
    let _ = fs::remove_file(journal);
}

/// The kernel writes lists with tabs and in its own order.
fn same(one: &str, other: &str) -> bool {
    let words = |text: &str| {
        let mut words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        words.sort();
        words
    };
    words(one) == words(other)
}

/// Whole under its name or not there, also after a power cut.
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
    fn what_is_right_already_is_not_written() {
        // Nobody may write it, root neither.
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
