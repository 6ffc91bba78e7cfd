//! Proof that directories of the destination are no sources' directories, do not lie in one and
//! hold none. A probe is made in each, and the other end searches its sources for it
//! ([`longhaul_proto::distinct`]).
//!
//! These operations remove or replace an existing name of the destination:
//!
//! - Deletion, and an entry that takes the place of a directory: proved once, before the first
//!   name is removed (`deletion/carry.rs`).
//! - A directory that takes the place of a file, and a file that takes the place of a special file
//!   because of `--delete`: proved before the first one in each part of the destination
//!   (`replacing/proof.rs`).
//! - A backup that replaces an older one in a directory for backups: proved once
//!   (`backup/proof.rs`). The proof is not needed for a backup next to its file: it replaces only
//!   the older backup of that name, as `-b` asks.
//! - A file, link or special file that takes the place of one of the same name: not proved. This is
//!   what every copy does, and the name then has the source's data.
//! - Removal of temporary files, parts and probes: not proved. Their names are reserved for
//!   longhaul, and one that is in use is locked.

use std::io;
use std::sync::{Arc, PoisonError};

use longhaul_proto::distinct::{Probe, SourcesQuestion};
use longhaul_proto::manifest::TreePath;
use longhaul_proto::message::{Failure, FailureKind};
use longhaul_storage::Directory;
use longhaul_storage::failure::failure_of;
use longhaul_storage::mounts::points_beneath;
use longhaul_system::queue::lock;

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
    /// Names are replaced in a directory itself.
    ReplacementIn,
    /// Names are replaced in a directory and beneath it, on its file system.
    ReplacementOnMount,
    /// Names are replaced in a directory and beneath it.
    Replacement,
}

impl For {
    /// What is refused.
    fn refused(self) -> &'static str {
        match self {
            For::Deletion => "nothing was deleted at the destination",
            For::Backups => "the directory for backups cannot be used",
            For::ReplacementIn | For::ReplacementOnMount | For::Replacement => {
                "it is not replaced by another kind of file"
            }
        }
    }

    fn directory(self) -> &'static str {
        match self {
            For::Deletion => "in which names would be deleted",
            For::Backups => "for backups",
            For::ReplacementIn | For::ReplacementOnMount | For::Replacement => {
                "in which names would be replaced"
            }
        }
    }

    /// True if the probe is also made in file systems that are mounted beneath a directory.
    fn includes_mounted(self) -> bool {
        !matches!(self, For::ReplacementIn | For::ReplacementOnMount)
    }

    /// True if a directory may not hold a source. A source beneath it does not lose names that are
    /// replaced in the directory itself.
    fn excludes_sources_beneath(self) -> bool {
        !matches!(self, For::ReplacementIn)
    }
}

impl Transfer {
    /// Fails unless these directories are no part of a source, and no part of them is one.
    ///
    /// Waits for the other end: it must not be called while the session owns the anchor, or with a
    /// lock held that another thread needs to end the session.
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
        // The other end takes one question at a time.
        let _one = lock(&side.asking);
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
        let made = place_all((side, purpose), directories, &probe, &mut placed);
        let asked = match made {
            Ok(()) => self.ask_sources(SourcesQuestion {
                probe,
                above: purpose.excludes_sources_beneath(),
            }),
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
    fn ask_sources(&self, question: SourcesQuestion) -> Option<Result<(), Failure>> {
        let asks = self.tell_receiver(|receiver| receiver.ask_sources(question))?;
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

/// Makes the probe in each of the directories and, if the purpose needs it, in each file system
/// that is mounted beneath them. Where nothing may be made, nothing can be deleted or replaced.
fn place_all(
    (side, purpose): (&ReceiveSide, For),
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
        if !purpose.includes_mounted() {
            continue;
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
