//! Proof that directories of the destination are no sources' directories, do not lie in one and
//! hold none: before names are deleted in them, and before backups replace what is there. A probe
//! is made in each, and the other end searches its sources for it
//! ([`longhaul_proto::distinct`]).

use std::io;
use std::sync::{Arc, PoisonError};

use longhaul_proto::distinct::Probe;
use longhaul_proto::manifest::TreePath;
use longhaul_proto::message::{Failure, FailureKind};
use longhaul_storage::Directory;
use longhaul_storage::failure::failure_of;
use longhaul_storage::mounts::points_beneath;

use super::ReceiveSide;
use super::probes::{Placed, random_number};
use crate::session::{Machine, Transfer};

/// Most directories in which names are deleted that no other one holds, and most file systems
/// mounted in them.
pub(super) const MOST_TOPS: usize = 512;

/// What the probes are for.
#[derive(Clone, Copy)]
pub(super) enum For {
    Deletion,
    Backups,
}

impl For {
    /// What is refused.
    fn refused(self) -> &'static str {
        match self {
            For::Deletion => "nothing was deleted at the destination",
            For::Backups => "the directory for backups cannot be used",
        }
    }

    fn directory(self) -> &'static str {
        match self {
            For::Deletion => "in which names would be deleted",
            For::Backups => "for backups",
        }
    }
}

impl Transfer {
    /// Fails unless these directories are no part of a source, and no part of them is one.
    ///
    /// # Errors
    ///
    /// Why that is not known.
    pub(super) fn ensure_apart(
        &self,
        side: &ReceiveSide,
        directories: &[Arc<dyn Directory>],
        purpose: For,
    ) -> Result<(), Failure> {
        let refused = purpose.refused();
        let failed = |error: io::Error| {
            let what = "make a file that tells the destination from the source";
            let failure = failure_of(what, refused, &error);
            Failure::new(failure.kind, failure.text)
        };
        let number = random_number().map_err(failed)?;
        let probe = Probe {
            session: side.destination.owner.session_number(),
            number,
            landing: None,
            shown: false,
        };
        let mut placed = Vec::new();
        let made = place_all(side, directories, &probe, &mut placed);
        let asked = match made {
            Ok(()) => self.ask_sources(probe),
            Err(error) => Some(Err(failed(error))),
        };
        let mut removed = Ok(());
        for placed in placed {
            removed = removed.and(placed.remove(side));
        }
        match asked {
            None => {
                let text = format!("{refused}: the copy ended");
                Err(Failure::new(FailureKind::Other, text))
            }
            Some(Ok(())) => removed.map_err(|error| {
                let what = "be sure that the source is not the destination";
                failure_of(what, refused, &error)
            }),
            Some(Err(failure)) => {
                let directory = purpose.directory();
                let text = format!("{refused}: {} {directory}", failure.text);
                Err(Failure::new(failure.kind, text))
            }
        }
    }

    /// Has the other end search its sources for a probe. `None` if the session is over.
    fn ask_sources(&self, probe: Probe) -> Option<Result<(), Failure>> {
        let asks = self.tell_receiver(|receiver| receiver.ask_sources(probe))?;
        if !asks {
            return None;
        }
        let mut shared = self.lock();
        loop {
            if shared.is_over() {
                return None;
            }
            let Machine::Receiving(receiver) = &mut shared.machine else {
                return None;
            };
            if let Some(answer) = receiver.take_sources() {
                return Some(answer.map_or(Ok(()), Err));
            }
            let waited = self.searching.wait(shared);
            shared = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Makes the probe in each of the directories, and in each file system that is mounted beneath
/// them. Where nothing may be made, nothing can be deleted or replaced.
fn place_all(
    side: &ReceiveSide,
    directories: &[Arc<dyn Directory>],
    probe: &Probe,
    placed: &mut Vec<Placed>,
) -> io::Result<()> {
    for directory in directories {
        match Placed::make(side, Arc::clone(directory), probe) {
            Ok(made) => placed.push(made),
            // It is mounted beneath another one of them.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        for below in mounted_beneath(&**directory)? {
            match Placed::make(side, below, probe) {
                Ok(made) => placed.push(made),
                Err(error) if may_not(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Whether an error says that nothing may be changed in a directory. The probe of a directory may
/// be there already, if it is mounted twice.
fn may_not(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::AlreadyExists
            | io::ErrorKind::NotFound
            | io::ErrorKind::NotADirectory
    )
}

/// The directories beneath this one on which something is mounted.
fn mounted_beneath(directory: &dyn Directory) -> io::Result<Vec<Arc<dyn Directory>>> {
    let Some(location) = directory.location() else {
        return Ok(Vec::new());
    };
    let points = points_beneath(&location);
    if points.len() > MOST_TOPS {
        let text = format!("more than {MOST_TOPS} file systems are mounted beneath it");
        return Err(io::Error::other(text));
    }
    let mut found = Vec::new();
    for point in points {
        let Ok(path) = TreePath::new(point.as_os_str().as_encoded_bytes()) else {
            continue;
        };
        let mut names = path.names();
        let first = names.next().map(|name| directory.open_directory(name));
        let opened = names.fold(first, |above, name| {
            Some(above?.and_then(|above| above.open_directory(name)))
        });
        // What cannot be opened here is not entered to delete in it.
        found.extend(opened.and_then(Result::ok));
    }
    Ok(found)
}
