//! Opens paths of this host: either any path that the user may access, or paths beneath the roots
//! of a principal for whom a daemon runs the command.

use std::path::Path;
use std::sync::Arc;

use longhaul_engine::intents::Intents;
use longhaul_engine::recv::landing::{Arrival, Destination, LandingError, Missing};
use longhaul_engine::send::source::{Source, SourceError, open_source};
use longhaul_engine::send::wildcards::{ExpandError, Room, expand};
use longhaul_engine::session::opening::OpenError;
use longhaul_net::principals::Principal;
use longhaul_proto::command::FileCommand;
use longhaul_proto::handshake::{Landing, Refused};
use longhaul_proto::options::TransferOptions;
use longhaul_storage::roots::{Anywhere, OpenRoot};

use super::connection::open_stop;
use crate::daemon::audit::{AuditSession, file_audit};
use crate::daemon::{
    Access, Roots, expand_of, keeping_anywhere, may_not_measure, open_destination, open_source_of,
    source_filter_of,
};
use crate::endpoint::NoSource;
use crate::stop::{Exit, Stop};

/// Paths that a command may open.
#[derive(Clone, Debug, Default)]
pub enum Here {
    /// Any path that the user may access.
    #[default]
    Anywhere,
    /// Paths beneath the roots of this principal, written as in a URL, and the records of the
    /// session in the daemon's audit log.
    Beneath(Arc<Principal>, Option<Arc<AuditSession>>),
}

impl Here {
    /// Checks that `zero:` sources and the `null:` destination are allowed.
    ///
    /// # Errors
    ///
    /// The principal may not use them.
    pub fn may_measure(&self) -> Result<(), Stop> {
        match self {
            Here::Beneath(principal, _) if !principal.may_measure() => Err(stop(may_not_measure())),
            _ => Ok(()),
        }
    }

    /// Opens a source with the given access.
    ///
    /// # Errors
    ///
    /// It cannot be opened.
    pub fn source(&self, path: &[u8], how: Access<'_>, roots: &Roots) -> Result<Source, NoSource> {
        match self {
            Here::Anywhere => {
                let (recursive, copy_links) = (how.recursive, how.copy_links);
                let opened = open_source(&roots.anywhere, path, recursive, copy_links);
                opened.map_err(|error| no_source(&error))
            }
            Here::Beneath(principal, _) => {
                open_source_of(principal, path, how, roots).map_err(|error| NoSource {
                    failure: error.failure(path),
                    stop: stop(error.refused()),
                })
            }
        }
    }

    /// Returns the paths that a source path with wildcards matches, up to a limit.
    ///
    /// # Errors
    ///
    /// There are too many matches, or a directory cannot be listed completely.
    pub fn expand(
        &self,
        path: &[u8],
        copy_links: bool,
        (roots, room): (&Roots, Room),
    ) -> Result<Vec<Vec<u8>>, ExpandError> {
        match self {
            Here::Anywhere => expand(&*roots.anywhere, path, copy_links, room),
            Here::Beneath(principal, _) => expand_of(principal, path, copy_links, (roots, room)),
        }
    }

    /// Returns the filter command for sources, if one was requested.
    ///
    /// # Errors
    ///
    /// The principal has no such command.
    pub fn source_filter(&self, asked: Option<FileCommand>) -> Result<Option<FileCommand>, Stop> {
        match self {
            Here::Anywhere => Ok(asked),
            Here::Beneath(principal, _) => source_filter_of(principal, asked).map_err(stop),
        }
    }

    /// Opens a destination.
    ///
    /// # Errors
    ///
    /// It cannot be opened.
    pub fn destination(
        &self,
        path: &[u8],
        (landing, options): (Landing, &TransferOptions),
        mut arrival: Arrival,
    ) -> Result<Destination, Stop> {
        match self {
            Here::Anywhere => {
                let missing = Missing::for_operation(options.operation);
                let backup = arrival.backup.take();
                let opened = Destination::open(&Anywhere, path, landing, missing, arrival);
                let opened =
                    opened.and_then(|opened| keeping_anywhere(opened, path, backup.as_ref()));
                opened.map_err(|error| landing_stop(&error))
            }
            Here::Beneath(principal, _) => {
                arrival.intents = self.intents();
                open_destination(principal, path, (landing, options), arrival).map_err(stop)
            }
        }
    }

    /// Returns a path of this host, or `None` if it is relative to a principal's roots.
    pub fn path<'a>(&self, path: &'a [u8]) -> Option<&'a Path> {
        use std::os::unix::ffi::OsStrExt;
        match self {
            Here::Anywhere => Some(Path::new(std::ffi::OsStr::from_bytes(path))),
            Here::Beneath(..) => None,
        }
    }

    /// Returns the records of the principal's files, if the daemon records each file.
    pub fn intents(&self) -> Option<Arc<dyn Intents>> {
        file_audit(self.audit())
    }

    /// Returns the records of the principal's session in the audit log.
    pub fn audit(&self) -> Option<&Arc<AuditSession>> {
        match self {
            Here::Anywhere => None,
            Here::Beneath(_, audit) => audit.as_ref(),
        }
    }

    /// Returns the name of the principal, if there is one.
    pub fn principal(&self) -> Option<&str> {
        match self {
            Here::Anywhere => None,
            Here::Beneath(principal, _) => Some(principal.name()),
        }
    }
}

/// Opens a destination in the file system of a server. Backups are kept beside the files.
///
/// # Errors
///
/// It cannot be opened, or the backups have a directory, which would be one of this host.
pub(super) fn destination_in(
    root: &dyn OpenRoot,
    path: &[u8],
    (landing, options): (Landing, &TransferOptions),
    mut arrival: Arrival,
) -> Result<Destination, Stop> {
    let backup = arrival.backup.take();
    if backup
        .as_ref()
        .is_some_and(|backup| backup.directory.is_some())
    {
        let text = "--backup-dir: an FTP or GridFTP server keeps backups only beside the files";
        return Err(Stop::new(Exit::Usage, text));
    }
    let missing = Missing::for_operation(options.operation);
    let opened = Destination::open(root, path, landing, missing, arrival);
    let opened = opened.and_then(|opened| keeping_anywhere(opened, path, backup.as_ref()));
    opened.map_err(|error| landing_stop(&error))
}

fn stop(refused: Refused) -> Stop {
    open_stop(&"here", &OpenError::Refused(refused))
}

/// Returns the error for the user and the failure of the entry if a source cannot be opened.
pub(super) fn no_source(error: &SourceError) -> NoSource {
    NoSource {
        failure: error.failure(),
        stop: source_stop(error),
    }
}

fn source_stop(error: &SourceError) -> Stop {
    let exit = match error {
        SourceError::Directory(_) => Exit::Usage,
        _ => Exit::Local,
    };
    Stop::new(exit, error.to_string())
}

/// Returns the error for the user if a destination cannot be used.
pub fn landing_stop(error: &LandingError) -> Stop {
    let exit = match error {
        LandingError::Superseded => Exit::Superseded,
        _ => Exit::Local,
    };
    Stop::new(exit, error.to_string())
}

/// True if an interrupted copy has left files in a directory.
pub(super) fn has_leftovers(directory: &Path) -> bool {
    let directory = if directory.as_os_str().is_empty() {
        Path::new(".")
    } else {
        directory
    };
    let Ok(mut names) = std::fs::read_dir(directory) else {
        return false;
    };
    names.any(|name| {
        name.is_ok_and(|name| name.file_name().to_string_lossy().starts_with(".longhaul-"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_that_a_newer_run_took_is_not_one_that_cannot_be_opened() {
        let stop = landing_stop(&LandingError::Superseded);
        assert_eq!(stop.exit, Exit::Superseded);
        assert!(stop.text.contains("newer run"), "{}", stop.text);
        let other = LandingError::Open("x".to_owned());
        assert_eq!(landing_stop(&other).exit, Exit::Local);
    }
}
