//! Finds and removes the files that interrupted copies left in a tree. Files in use stay.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use longhaul_engine::recv::landing::{SESSION_NAME, file_time_now};
use longhaul_storage::failure::failure_of;
use longhaul_storage::journal::{Leftover, LeftoverKind, expire, leftovers};
use longhaul_storage::posix::PosixDirectory;
use longhaul_storage::{Directory, FileKind};
use longhaul_units::ByteCount;

use crate::endpoint::Endpoint;
use crate::stop::{Exit, Stop};

/// Number of bytes shown of a session's hash.
const SHOWN_BYTES: usize = 6;

/// Settings of a cleaning.
#[derive(Clone, Copy, Debug)]
pub struct Cleaning<'a> {
    /// Root of the tree.
    pub directory: &'a Path,
    /// If true, removes leftovers that are not in use; if false, lists them.
    pub remove: bool,
    /// Minimum age of a leftover to be considered.
    pub older_than: Duration,
}

/// Counts of a cleaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Number of listed leftovers.
    pub found: u64,
    /// Size of the listed or removed leftovers in bytes.
    pub bytes: u64,
    /// Number of removed leftovers.
    pub removed: u64,
    /// Number of leftovers and directories that could not be examined or removed.
    pub failed: u64,
}

/// Receivers of output lines.
pub struct Told<'a> {
    /// Receives a line for each leftover that was found or is in use.
    pub leftover: &'a mut dyn FnMut(&str),
    /// Receives a line for each failure.
    pub failure: &'a mut dyn FnMut(&str),
}

/// Searches a whole tree.
///
/// # Errors
///
/// The root of the tree cannot be opened. Failures below it are reported and counted.
pub fn clean(cleaning: &Cleaning<'_>, told: Told<'_>) -> Result<Cleaned, Stop> {
    let root = PosixDirectory::open_root(cleaning.directory).map_err(|error| {
        let name = cleaning.directory.display();
        let parsed = Endpoint::parse(cleaning.directory.as_os_str());
        match parsed.ok().as_ref().and_then(Endpoint::host_name) {
            Some(host) => {
                let text = format!(
                    "{name}: clean works on local directories: run it on {host} (a local directory \
                     of that name: ./{name})"
                );
                Stop::new(Exit::Usage, text)
            }
            None => Stop::new(Exit::Local, format!("cannot open {name}: {error}")),
        }
    })?;
    let mut visit = Visit {
        cleaning,
        told,
        cleaned: Cleaned::default(),
    };
    visit.tree(&root, cleaning.directory);
    Ok(visit.cleaned)
}

struct Visit<'a, 't> {
    cleaning: &'a Cleaning<'a>,
    told: Told<'t>,
    cleaned: Cleaned,
}

impl Visit<'_, '_> {
    fn fail(&mut self, what: &str, path: &Path, error: &io::Error) {
        self.cleaned.failed += 1;
        (self.told.failure)(&failure_of(what, &path.display().to_string(), error).text);
    }

    fn tree(&mut self, directory: &Arc<dyn Directory>, path: &Path) {
        let looked = self.leftovers(directory, path);
        let listed = self.directories(directory, path);
        // A directory that cannot be listed fails twice but is reported once.
        if let Err(error) = looked.and(listed) {
            self.fail("list", path, &error);
        }
    }

    /// Searches the subdirectories of a directory.
    fn directories(&mut self, directory: &Arc<dyn Directory>, path: &Path) -> io::Result<()> {
        let mut names = directory.list()?;
        while let Some(listed) = names.next_name()? {
            use std::os::unix::ffi::OsStrExt;
            let is_directory = match listed.kind {
                Some(kind) => kind == FileKind::Directory,
                None => directory
                    .status_of(&listed.name)
                    .is_ok_and(|s| s.kind == FileKind::Directory),
            };
            if !is_directory {
                continue;
            }
            let path = path.join(std::ffi::OsStr::from_bytes(&listed.name));
            match directory.open_directory(&listed.name) {
                Ok(inner) => self.tree(&inner, &path),
                // A running copy may have removed its own directory.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => self.fail("open", &path, &error),
            }
        }
        Ok(())
    }

    fn leftovers(&mut self, directory: &Arc<dyn Directory>, path: &Path) -> io::Result<()> {
        let now = file_time_now();
        let older_than = self.cleaning.older_than;
        if self.cleaning.remove {
            // A running copy may take over a leftover between its examination and its removal.
            // `expire` removes each under its lock.
            let all = u64::MAX;
            expire(
                &**directory,
                older_than,
                now,
                all,
                &mut |name, removed| match removed {
                    Ok(bytes) => {
                        self.cleaned.removed += 1;
                        self.cleaned.bytes += bytes;
                    }
                    Err(error) => {
                        self.cleaned.failed += 1;
                        (self.told.failure)(&format!("{}: {error}", shown(path, name)));
                    }
                },
            )?;
        }
        for leftover in leftovers(Arc::clone(directory))? {
            let leftover = leftover?;
            let is_wanted = leftover.age(now) >= older_than;
            if is_wanted && (leftover.held || !self.cleaning.remove) {
                (self.told.leftover)(&describe(path, &leftover));
            }
            if is_wanted && !self.cleaning.remove {
                self.cleaned.found += 1;
                self.cleaned.bytes += leftover.size;
            }
        }
        Ok(())
    }
}

fn shown(path: &Path, name: &[u8]) -> String {
    format!("{}/{}", path.display(), name.escape_ascii())
}

/// Returns the subject of a journal: a file, or the session that holds the directory.
fn subject(name: &[u8]) -> String {
    match name.strip_prefix(SESSION_NAME) {
        Some(source) => {
            let digits = source.iter().take(SHOWN_BYTES);
            let digits: String = digits.map(|byte| format!("{byte:02x}")).collect();
            format!("session {digits}")
        }
        None => String::from_utf8_lossy(name).escape_debug().to_string(),
    }
}

fn describe(path: &Path, leftover: &Leftover) -> String {
    let held = if leftover.held { ", in use" } else { "" };
    let whose = match &leftover.kind {
        LeftoverKind::Journal(Some(whose)) => {
            format!(
                ", of {} by {} ({})",
                subject(&whose.name),
                whose.principal,
                whose.owner
            )
        }
        _ => String::new(),
    };
    format!(
        "{}: {}{whose}{held}",
        shown(path, &leftover.name),
        ByteCount(leftover.size)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_shown_as_digits_and_a_file_by_its_name() {
        let session = [SESSION_NAME, &[0xab; 32]].concat();
        assert_eq!(subject(&session), "session abababababab");
        assert_eq!(subject("a\u{fc}\x1b".as_bytes()), "a\u{fc}\\u{1b}");
    }
}
