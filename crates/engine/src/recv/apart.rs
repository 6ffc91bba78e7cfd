//! Proves that directories of the destination are not directories of a source, are not within one
//! and do not contain one. A probe is created in each, and the other end searches its sources for
//! it ([`longhaul_proto::distinct`]).
//!
//! These operations remove or replace an existing name of the destination:
//!
//! - Deletion, and an entry that replaces a directory: proved once, before the first name is
//!   removed (`deletion/carry.rs`).
//! - A directory that replaces a file, and a file that replaces a special file because of
//!   `--delete`: proved before the first one in each part of the destination
//!   (`replacing/proof.rs`).
//! - A backup that replaces an older one in a directory for backups: proved once
//!   (`backup/proof.rs`). A backup next to its file needs no proof: it replaces only the older
//!   backup of that name, as `-b` requests.
//! - A file, link or special file that replaces one of the same name: not proved. Every copy does
//!   this, and the name then has the source's data.
//! - Removal of temporary files, parts and probes: not proved. Their names are reserved for
//!   longhaul, and files in use are locked.

use std::io;
use std::sync::{Arc, PoisonError};

use longhaul_proto::distinct::{Probe, SourcesQuestion};
use longhaul_proto::manifest::TreePath;
use longhaul_proto::message::{Failure, FailureKind};
use longhaul_storage::Directory;
use longhaul_storage::failure::failure_of;
use longhaul_storage::mounts::points_beneath;
use longhaul_system::queue::lock;

use super::probes::{Placed, random_number};
use super::{ReceiveSide, Remover};

/// Maximum number of topmost directories in which names are deleted, and of file systems mounted in
/// them.
pub(super) const MOST_TOPS: usize = 512;

/// Purpose of a proof.
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
    /// Returns the description of the refused operation.
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

    /// True if the probe is also created in file systems that are mounted beneath a directory.
    fn includes_mounted(self) -> bool {
        !matches!(self, For::ReplacementIn | For::ReplacementOnMount)
    }

    /// True if a directory must not contain a source. Replacing names in the directory itself does
    /// not affect a source beneath it.
    fn excludes_sources_beneath(self) -> bool {
        !matches!(self, For::ReplacementIn)
    }
}

impl Remover<'_> {
    /// Returns a failure unless these directories are not within a source and, if the purpose
    /// requires it, do not contain one.
    ///
    /// Waits for the other end. Do not call it while the session owns the anchor, or with a lock
    /// that another thread needs to end the session.
    ///
    /// # Errors
    ///
    /// Returns the reason why this is not proved.
    pub(super) fn ensure_apart(
        &self,
        directories: &[Arc<dyn Directory>],
        purpose: For,
    ) -> Result<(), Failure> {
        // The other end accepts one request at a time.
        let _one = lock(&self.side.asking);
        let refused = purpose.refused();
        let failed = |error: io::Error| {
            let what = "make a file that tells the destination from the source";
            let failure = failure_of(what, refused, &error);
            Failure::new(failure.kind, failure.text)
        };
        let number = random_number().map_err(failed)?;
        let probe = Probe {
            session: self.side.destination.owner.session_number(),
            number,
            landing: None,
            shown: false,
        };
        let mut placed = Vec::new();
        let made = place_all((self.side, purpose), directories, &probe, &mut placed);
        let asked = match made {
            Ok(()) => self.ask_sources(SourcesQuestion {
                probe,
                above: purpose.excludes_sources_beneath(),
            }),
            Err(error) => Some(Err(failed(error))),
        };
        let mut removed = Ok(());
        for placed in placed {
            removed = removed.and(placed.remove(self.side));
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

    /// Lets the other end search its sources for a probe. Returns `None` if the session is over.
    fn ask_sources(&self, question: SourcesQuestion) -> Option<Result<(), Failure>> {
        let asks = self
            .receiving()
            .tell(|receiver| receiver.probes_mut().ask_sources(question))?;
        if !asks {
            return None;
        }
        let mut shared = self.transfer.lock();
        loop {
            if shared.is_over() {
                return None;
            }
            let receiver = shared.machine.receiver_mut()?;
            if let Some(answer) = receiver.probes_mut().take_sources() {
                return Some(answer.map_or(Ok(()), Err));
            }
            let waited = self.transfer.signals.searching.wait(shared);
            shared = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Creates the probe in each of the directories and, if the purpose needs it, in each file system
/// mounted beneath them. Mounted file systems that refuse the probe also refuse deletion and
/// replacement.
fn place_all(
    (side, purpose): (&ReceiveSide, For),
    directories: &[Arc<dyn Directory>],
    probe: &Probe,
    placed: &mut Vec<Placed>,
) -> io::Result<()> {
    for directory in directories {
        match Placed::make(side, Arc::clone(directory), probe) {
            Ok(made) => placed.push(made),
            // The directory is mounted beneath another one of the list.
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

/// True if an error means that a directory cannot be changed, or that its probe already exists
/// because it is mounted twice.
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

/// Returns the mount points beneath this directory.
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
        // A directory that cannot be opened here is not entered by deletion either.
        found.extend(opened.and_then(Result::ok));
    }
    Ok(found)
}
