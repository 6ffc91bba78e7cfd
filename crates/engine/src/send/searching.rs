//! Searches for a probe of the other end in all directories of the sources, and in their parent
//! directories if the question says so: a directory in which the other end deletes, or overwrites
//! with backups, must not be a source ([`longhaul_proto::distinct`]).

use std::io;
use std::path::Path;
use std::sync::Arc;

use longhaul_proto::distinct::SourcesQuestion;
use longhaul_proto::manifest::TreePath;
use longhaul_proto::message::{Failure, FailureKind};
use longhaul_storage::failure::failure_of;
use longhaul_storage::journal::names::temporary;
use longhaul_storage::listing::SortedListing;
use longhaul_storage::nested::{Nested, place_of};
use longhaul_storage::spill::{Sorted, Sorter, SpillSettings};
use longhaul_storage::{Directory, FileKind};
use longhaul_units::ByteCount;

use super::Sending;
use super::select::{Place, Selected};
use super::source::{Source, What};
use crate::session::Transfer;

/// Memory for the names of directories that are still to be entered. More names spill to a file.
const MEMORY: (ByteCount, usize) = (ByteCount(64 << 10), 2 << 10);

/// A directory whose subdirectories are still to be searched.
struct Level {
    path: Option<TreePath>,
    place: Place,
    inner: Sorted,
}

/// A search of all sources.
struct Search<'a> {
    transfer: &'a Transfer,
    selected: &'a Selected,
    /// Name of the probe.
    name: Box<[u8]>,
    /// True if the parent directories of the sources are searched, too.
    above: bool,
}

impl Sending<'_> {
    /// Succeeds if no source contains a probe.
    ///
    /// # Errors
    ///
    /// The source that is the other end's directory, is in it or contains it, or cannot be
    /// searched.
    pub(super) fn search(&self, question: &SourcesQuestion) -> Result<(), Failure> {
        let search = Search {
            transfer: self.transfer,
            selected: &self.side.selected,
            name: temporary(question.probe.session, question.probe.number),
            above: question.above,
        };
        let mut before = None;
        for source in self.side.sources.list() {
            if let What::Missing { .. } = source.what {
                continue;
            }
            let failed = |error: io::Error| search.failed(source, &error);
            let directory = source.directory.open().map_err(failed)?;
            let place = Some(place_of(&*directory).map_err(failed)?);
            let is_file = matches!(source.what, What::File { .. });
            // Search the common directory of several files once.
            if !is_file || before != place {
                search.around(source, &*directory)?;
            }
            before = place;
            if !is_file {
                search.beneath(source, directory)?;
            }
        }
        Ok(())
    }
}

impl Search<'_> {
    /// Searches a source's directory and, if the question says so, its parent directories.
    fn around(&self, source: &Source, directory: &dyn Directory) -> Result<(), Failure> {
        self.look(source, directory, None)?;
        if !self.above {
            return Ok(());
        }
        let Some(location) = directory.location() else {
            return Ok(());
        };
        for above in location.ancestors().skip(1) {
            if shows(above, &self.name).map_err(|error| self.failed(source, &error))? {
                let text = format!("{}: lies in the directory", source.shown);
                return Err(Failure::new(FailureKind::Conflict, text));
            }
        }
        Ok(())
    }

    fn look(
        &self,
        source: &Source,
        directory: &dyn Directory,
        path: Option<&TreePath>,
    ) -> Result<(), Failure> {
        match directory.status_of(&self.name) {
            Err(error) if is_absent(&error) => Ok(()),
            Err(error) => Err(self.failed(source, &error)),
            Ok(_) => {
                let text = match path {
                    None => format!("{}: is by another name the directory", source.shown),
                    Some(path) => format!("{path}: is by another name the directory"),
                };
                Err(Failure::new(FailureKind::Conflict, text))
            }
        }
    }

    /// Searches every directory of a source that is copied.
    fn beneath(&self, source: &Source, directory: Arc<dyn Directory>) -> Result<(), Failure> {
        let path = match &source.what {
            What::Tree(name) => TreePath::new(name).ok(),
            _ => None,
        };
        let device = self.selected.device_of(&*directory);
        let (mut levels, mut open): (Vec<Level>, Nested) = Default::default();
        if let Some(level) = self.enter(source, &*directory, (path, None), device)? {
            open.push(directory, b"");
            levels.push(level);
        }
        while let Some(level) = levels.last_mut() {
            if self.transfer.is_over() {
                return Ok(());
            }
            let next = level.inner.next_record();
            let next = next.map_err(|error| self.failed(source, &error))?;
            let Some(name) = next.map(|record| record.key.to_vec()) else {
                levels.pop();
                open.pop();
                continue;
            };
            let Ok(path) = TreePath::beneath(level.path.as_ref(), &name) else {
                continue;
            };
            let opened = open.last().and_then(|above| above.open_directory(&name));
            let inner = match opened {
                Ok(inner) => inner,
                Err(error) if is_closed(&error) => continue,
                Err(error) => return Err(self.failed(source, &error)),
            };
            let place = place_of(&*inner).and_then(|place| open.contains(place));
            if place.map_err(|error| self.failed(source, &error))? {
                continue;
            }
            let above = levels.last().map(|level| &level.place);
            if let Some(level) = self.enter(source, &*inner, (Some(path), above), device)? {
                open.push(inner, &name);
                levels.push(level);
            }
        }
        Ok(())
    }

    /// Searches a directory, and lists its subdirectories; `None` if its contents are not copied.
    fn enter(
        &self,
        source: &Source,
        directory: &dyn Directory,
        (path, above): (Option<TreePath>, Option<&Place>),
        device: Option<u64>,
    ) -> Result<Option<Level>, Failure> {
        self.look(source, directory, path.as_ref())?;
        // If its rules cannot be read, its contents are not copied.
        let Ok(place) = self
            .selected
            .enter(above, (source, directory), path.as_ref())
        else {
            return Ok(None);
        };
        let failed = |error: io::Error| self.failed(source, &error);
        let mut settings = SpillSettings::default();
        (settings.memory, settings.records) = MEMORY;
        let mut inner = Sorter::new(settings);
        let listing = match SortedListing::open_nested(directory, 0) {
            Ok(listing) => listing,
            Err(error) if is_closed(&error) => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        for listed in listing {
            let listed = listed.map_err(failed)?;
            let may_be = matches!(
                listed.kind,
                None | Some(FileKind::Directory | FileKind::Symlink)
            );
            if may_be && self.is_entered(directory, (&listed.name, path.as_ref()), &place, device) {
                inner.push(&listed.name, b"").map_err(failed)?;
            }
        }
        let inner = inner.finish().map_err(failed)?;
        Ok(Some(Level { path, place, inner }))
    }

    /// True if a name is a directory whose contents are copied.
    fn is_entered(
        &self,
        directory: &dyn Directory,
        (name, path): (&[u8], Option<&TreePath>),
        place: &Place,
        device: Option<u64>,
    ) -> bool {
        let Ok(whole) = TreePath::beneath(path, name) else {
            return false;
        };
        let status = directory.status_of(name);
        status.is_ok_and(|status| {
            status.kind == FileKind::Directory
                && !self.selected.excludes(place, whole.as_bytes(), true)
                && self.selected.bars(place, &status, device).is_none()
        })
    }

    fn failed(&self, source: &Source, error: &io::Error) -> Failure {
        failure_of("tell from the destination", &source.shown, error)
    }
}

/// True if a directory of this host contains a name.
fn shows(directory: &Path, name: &[u8]) -> io::Result<bool> {
    use std::os::unix::ffi::OsStrExt;
    let path = directory.join(std::ffi::OsStr::from_bytes(name));
    match path.symlink_metadata() {
        Ok(_) => Ok(true),
        // Parent directories of the source can usually be searched, since the source was opened
        // through them.
        Err(error) if is_closed(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// True if a directory is gone or cannot be searched: its contents are not copied.
fn is_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied | io::ErrorKind::NotADirectory
    )
}
