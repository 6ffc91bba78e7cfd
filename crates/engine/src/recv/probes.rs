//! Probes in directories of the destination. The sender removes a source only if the probe does not
//! appear in the source's directory ([`longhaul_proto::distinct`]). A directory has its old mode
//! and time after its probe was removed.

use std::io;
use std::sync::{Arc, Mutex};

use longhaul_net::token::fill_random;
use longhaul_proto::distinct::{Probe, Question};
use longhaul_proto::manifest::{Timestamp, TreePath};
use longhaul_proto::message::{Failure, FailureKind};
use longhaul_proto::notice::NoticeKind;
use longhaul_proto::receiver::StorageJob;
use longhaul_storage::failure::failure_of;
use longhaul_storage::journal::names::temporary;
use longhaul_storage::nested::place_of;
use longhaul_storage::{Creation, DataMode, Directory, Status};
use longhaul_system::queue::lock;

use super::folders::Folder;
use super::{ReceiveSide, Remover};

/// Existing probes, or the failures to create them.
#[derive(Default)]
pub(crate) struct Probes(Mutex<Vec<Result<Made, Failure>>>);

/// A probe file.
struct Made {
    path: Option<TreePath>,
    /// Device and inode number of its directory.
    place: (u64, u64),
    name: Box<[u8]>,
    before: Kept,
    after: Kept,
}

/// Mode and time of a directory before and after its probe was created; they are restored.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Kept {
    mode: u32,
    modified: Timestamp,
}

impl Kept {
    fn of(status: &Status) -> Kept {
        Kept {
            mode: status.mode,
            modified: status.modified,
        }
    }
}

impl Remover<'_> {
    /// Runs a step of probing on a committer's thread.
    pub(super) fn probe(&self, job: StorageJob) {
        match job {
            StorageJob::MakeProbes(questions) => {
                let (probes, made): (Vec<_>, Vec<_>) = questions
                    .iter()
                    .map(|question| match make(self.side, question) {
                        Ok((probe, made)) => (Some(probe), Ok(made)),
                        Err(failure) => (None, Err(failure)),
                    })
                    .unzip();
                *lock(&self.side.probes.0) = made;
                self.receiving()
                    .tell(|receiver| receiver.probes_mut().handle_probes_made(probes));
            }
            StorageJob::RemoveProbes(seen) => {
                let made = std::mem::take(&mut *lock(&self.side.probes.0));
                let results = made.into_iter().zip(seen);
                let results = results.map(|(made, seen)| conclude(self.side, made, seen).err());
                let results = results.collect();
                self.receiving()
                    .tell(|receiver| receiver.probes_mut().handle_probes_removed(results));
            }
            _ => {}
        }
    }
}

impl Probes {
    /// Removes all probes at the end of the session.
    pub(super) fn clear(side: &ReceiveSide) {
        let made = std::mem::take(&mut *lock(&side.probes.0));
        for made in made.into_iter().flatten() {
            // A probe that stays is a leftover like any other.
            let _ = remove(side, &made);
        }
    }
}

/// Creates a probe in the destination directory of a directory of the source.
fn make(side: &ReceiveSide, question: &Question) -> Result<(Probe, Made), Failure> {
    let destination = &side.destination;
    if destination.is_sink {
        let text = "the destination keeps no files";
        return Err(Failure::new(FailureKind::Other, text));
    }
    let path = question.directory.as_ref();
    let path = path.map(|directory| destination.path_of(directory));
    let shown = path.as_ref();
    let shown = shown.map_or("the destination".to_owned(), TreePath::to_string);
    let what = "make a file that tells the source from its copy in";
    let failed = |error: io::Error| failure_of(what, &shown, &error);
    let number = random_number().map_err(failed)?;
    let session = destination.owner.session_number();
    let folder = side.folders.find_in_copy(path.as_ref()).map_err(failed)?;
    let shows = |theirs: &Probe| {
        let name = temporary(theirs.session, theirs.number);
        match folder.directory().status_of(&name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            found => found.map(|_| true),
        }
    };
    let theirs = question.probe.as_ref();
    let is_shown = theirs.map_or(Ok(false), shows).map_err(failed)?;
    // Only entries directly in the anchor get another name.
    let landing = destination.rename.as_ref().filter(|_| path.is_none());
    let probe = Probe {
        session,
        number,
        landing: landing.map(|landing| landing.as_bytes().to_vec().into()),
        shown: is_shown,
    };
    let placed = Placed::make(side, Arc::clone(folder.directory()), &probe);
    let made = Made {
        path,
        ..placed.map_err(failed)?.made
    };
    Ok((probe, made))
}

/// Removes a probe. Returns an error if the directory may be the source's, or if its content is not
/// durable.
fn conclude(side: &ReceiveSide, made: Result<Made, Failure>, seen: bool) -> Result<(), Failure> {
    let made = made?;
    let shown = made.path.as_ref();
    let shown = shown.map_or("the destination".to_owned(), TreePath::to_string);
    let folder = remove(side, &made).map_err(|error| {
        let what = "be sure that the source is not the copy: remove the file for that in";
        failure_of(what, &shown, &error)
    })?;
    if seen {
        return Err(is_source(&shown));
    }
    if has_durable_names(side, &folder) {
        Ok(())
    } else {
        let text = format!(
            "{shown}: its file system does not make names durable, and the copy may not survive \
             a power cut"
        );
        Err(Failure::new(FailureKind::Other, text))
    }
}

fn is_source(shown: &str) -> Failure {
    let text = format!("{shown}: is the source's directory by another name, or shows its files");
    Failure::new(FailureKind::Conflict, text)
}

/// True if synced names in a directory survive a power failure. A directory that was reopened has
/// lost its record of a refused sync, so it is synced again.
fn has_durable_names(side: &ReceiveSide, folder: &Folder) -> bool {
    let notices = &side.destination.notices;
    let was_refused = notices.has(NoticeKind::NamesNotSynced);
    !was_refused || folder.sync().is_ok() && folder.has_durable_names()
}

/// Returns a random number for a name that was never looked up before.
pub(super) fn random_number() -> io::Result<u64> {
    let mut random = [0; 8];
    fill_random(&mut random).map_err(io::Error::other)?;
    Ok(u64::from_be_bytes(random))
}

/// A probe in a directory that stays open.
pub(super) struct Placed {
    directory: Arc<dyn Directory>,
    made: Made,
}

impl Placed {
    /// Creates the probe.
    ///
    /// # Errors
    ///
    /// Returns the error of `openat`, or an error if a later session of the same copy took over.
    pub fn make(
        side: &ReceiveSide,
        directory: Arc<dyn Directory>,
        probe: &Probe,
    ) -> io::Result<Placed> {
        let name = temporary(probe.session, probe.number);
        let made = side.destination.while_owned(|| {
            let before = directory.status()?;
            directory.create_file(&name, Creation::New, DataMode::Buffered)?;
            Ok::<_, io::Error>((before, directory.status()?))
        });
        let (before, after) = made.map_err(io::Error::other)??;
        let made = Made {
            path: None,
            place: (before.device, before.inode),
            name,
            before: Kept::of(&before),
            after: Kept::of(&after),
        };
        Ok(Placed { directory, made })
    }

    /// Removes the probe.
    ///
    /// # Errors
    ///
    /// Returns the error of `unlinkat`: a probe that another process removed proves no difference.
    pub fn remove(self, side: &ReceiveSide) -> io::Result<()> {
        remove_from(side, &*self.directory, &self.made)
    }
}

/// Removes a probe from the directory in which it was created.
fn remove(side: &ReceiveSide, made: &Made) -> io::Result<Arc<Folder>> {
    let folder = side.folders.find_in_copy(made.path.as_ref())?;
    let directory = folder.directory();
    if place_of(&**directory)? != made.place {
        return Err(io::Error::other("another directory has its name now"));
    }
    remove_from(side, &**directory, made)?;
    Ok(folder)
}

fn remove_from(side: &ReceiveSide, directory: &dyn Directory, made: &Made) -> io::Result<()> {
    let removed = side.destination.while_owned(|| {
        let now = Kept::of(&directory.status()?);
        directory.remove_file(&made.name)?;
        restore(directory, made, now);
        Ok(())
    });
    removed.map_err(io::Error::other)?
}

/// Restores the mode and time of a directory, unless they changed since the probe was created.
fn restore(directory: &dyn Directory, made: &Made, now: Kept) {
    let mode = if now.mode == made.after.mode {
        made.before.mode
    } else {
        now.mode
    };
    let modified = if now.modified == made.after.modified {
        made.before.modified
    } else {
        now.modified
    };
    // A value that is refused here was refused before, which was recorded.
    if directory.status().is_ok_and(|status| status.mode != mode) {
        let _ = directory.set_mode(mode);
    }
    let _ = directory.set_modified(modified);
}
