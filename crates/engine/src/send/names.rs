//! Lists the names of the source again after the copy, so that the destination can delete all
//! others. Any error ends the listing, and then no entries are deleted.

use std::io;
use std::sync::{Arc, PoisonError};

use longhaul_proto::deletion::{MAXIMUM_NAMES, MAXIMUM_NAMES_BYTES, MAXIMUM_TOLD_RULES, NamesOf};
use longhaul_proto::handshake::Operation;
use longhaul_proto::manifest::{RESERVED_PREFIX, TreePath};
use longhaul_proto::message::{Failure, FailureKind};
use longhaul_storage::failure::failure_of;
use longhaul_storage::following::FollowingDirectory;
use longhaul_storage::listing::SortedListing;
use longhaul_storage::nested::Nested;
use longhaul_storage::spill::{Sorted, Sorter, SpillSettings};
use longhaul_storage::{Directory, FileKind};
use longhaul_units::ByteCount;
use minicbor::bytes::ByteVec;

use super::mounted::{Mounted, Now};
use super::rule_files::rules_at;
use super::select::{Place, Selected};
use super::source::{Source, What};
use super::{Sending, tell};
use crate::session::Transfer;

/// Memory for the subdirectories of a listed directory that are still to be entered. More of them
/// spill.
const MEMORY: (ByteCount, usize) = (ByteCount(64 << 10), 2 << 10);

/// Reasons why the listing ends early.
enum Stopped {
    /// The session is over.
    Over,
    /// An entry could not be examined.
    Failed(Failure),
}

impl From<Failure> for Stopped {
    fn from(failure: Failure) -> Stopped {
        Stopped::Failed(failure)
    }
}

/// A directory whose names were reported.
struct Level {
    path: Option<TreePath>,
    place: Place,
    /// Subdirectories that are still to be listed.
    inner: Sorted,
}

/// A listing of all sources.
struct Naming<'a> {
    transfer: &'a Transfer,
    selected: &'a Selected,
    mounted: &'a Mounted,
    source: &'a Source,
    /// Names that are not reported yet.
    batch: Vec<NamesOf>,
    count: usize,
    bytes: usize,
}

impl Sending<'_> {
    /// Reports the names if the receiver wants them. Runs after the walk, on its thread.
    pub(super) fn tell_names(&self) {
        let Some(withheld) = self.wait_until_wanted() else {
            return;
        };
        let told = match withheld {
            Some(failure) => Err(Stopped::Failed(failure)),
            None => self.name_all(),
        };
        let failure = match told {
            Ok(()) => None,
            Err(Stopped::Over) => return,
            Err(Stopped::Failed(failure)) => Some(failure),
        };
        self.tell(|sender| sender.work_mut().names_mut().handle_end(failure));
    }

    /// Waits until the names are wanted; returns the reason if they are known to be unavailable.
    /// `None` if the session is over.
    fn wait_until_wanted(&self) -> Option<Option<Failure>> {
        let mut shared = self.transfer.lock();
        loop {
            if shared.is_over() {
                return None;
            }
            let sender = shared.machine.sender()?;
            if sender.work().names().are_wanted() {
                return Some(sender.work().names().withheld());
            }
            let waited = self.transfer.signals.walking.wait(shared);
            shared = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn name_all(&self) -> Result<(), Stopped> {
        let sources = self.side.sources.list();
        if sources.len() > 1 && sources.iter().any(|source| source.what == What::Contents) {
            let text = "nothing was deleted at the destination: it is filled by several sources; \
                        copy each into a directory of its own";
            return Err(Failure::new(FailureKind::Other, text).into());
        }
        for source in sources {
            let mut naming = Naming {
                transfer: self.transfer,
                selected: &self.side.selected,
                mounted: &self.side.mounted,
                source,
                batch: Vec::new(),
                count: 0,
                bytes: 0,
            };
            naming.name_source()?;
            naming.flush()?;
        }
        Ok(())
    }
}

impl Naming<'_> {
    fn name_source(&mut self) -> Result<(), Stopped> {
        let path = match &self.source.what {
            // A file contains no superfluous entries.
            What::File { .. } => return Ok(()),
            What::Missing { failure, .. } => return Err(failure.clone().into()),
            What::Contents => None,
            What::Tree(name) => {
                let path = TreePath::new(name);
                Some(path.map_err(|error| self.undeleted(&error.to_string()))?)
            }
        };
        let opened = self.source.directory.open();
        let directory = opened.map_err(|error| self.failed("open", None, &error))?;
        let status = directory.status();
        let status = status.map_err(|error| self.failed("read", None, &error))?;
        let top = Place::default();
        let is_left_out = path.as_ref().is_some_and(|path| {
            self.selected
                .judge(&top, path.as_bytes(), &status)
                .is_some()
        });
        if is_left_out || self.selected.bars_source().is_some() {
            return Ok(());
        }
        let device = self.selected.device_of(&*directory);
        self.name_tree(directory, path, device)
    }

    fn name_tree(
        &mut self,
        directory: Arc<dyn Directory>,
        path: Option<TreePath>,
        device: Option<u64>,
    ) -> Result<(), Stopped> {
        let (mut levels, mut open): (Vec<Level>, Nested) = Default::default();
        let level = self.name_directory(&*directory, (path, None, 0), device)?;
        open.push(directory, b"");
        levels.push(level);
        while let Some(level) = levels.last_mut() {
            let next = level.inner.next_record();
            let shown = level.path.clone();
            let next = next.map_err(|error| self.failed("list", shown.as_ref(), &error))?;
            let Some(name) = next.map(|record| record.key.to_vec()) else {
                levels.pop();
                open.pop();
                continue;
            };
            let path = TreePath::beneath(level.path.as_ref(), &name);
            let path = path.map_err(|error| self.undeleted(&error.to_string()))?;
            let above = open.last();
            let inner = above.and_then(|above| above.open_directory(&name));
            let inner = match inner {
                Ok(inner) => inner,
                // It was removed or replaced meanwhile; its name was reported.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(self.failed("open", Some(&path), &error).into()),
            };
            let depth = levels.len();
            let place = levels.last().map(|level| &level.place);
            let level = self.name_directory(&*inner, (Some(path), place, depth), device)?;
            open.push(inner, &name);
            levels.push(level);
        }
        Ok(())
    }

    /// Reports the names in a directory, and returns its subdirectories.
    fn name_directory(
        &mut self,
        directory: &dyn Directory,
        (path, above, depth): (Option<TreePath>, Option<&Place>, usize),
        device: Option<u64>,
    ) -> Result<Level, Stopped> {
        self.check_mounted(directory, path.as_ref())?;
        let place = self
            .selected
            .enter(above, (self.source, directory), path.as_ref());
        let place = place.map_err(|error| self.undeleted(&error.to_string()))?;
        if place.names().is_some() && self.is_comparison() {
            // The superfluous entries of a partially listed directory are unknown.
            let inner = Sorter::new(SpillSettings::default()).finish();
            let inner = inner.map_err(|error| self.failed("list", path.as_ref(), &error))?;
            return Ok(Level { path, place, inner });
        }
        if place.names().is_some() {
            return Err(self.undeleted("only listed files were copied").into());
        }
        let failed = |error: &io::Error| {
            failure_of(
                "list the directory",
                &shown(self.source, path.as_ref()),
                error,
            )
        };
        let listing = SortedListing::open_nested(directory, depth).map_err(|e| failed(&e))?;
        let mut settings = SpillSettings::default();
        (settings.memory, settings.records) = MEMORY;
        let mut inner = Sorter::new(settings);
        let follows = directory.as_any().is::<FollowingDirectory>();
        let mut is_empty = true;
        if self.is_full() {
            self.flush()?;
        }
        let rules = self.rules_in(directory, &place, path.as_ref())?;
        self.begin(path.as_ref(), rules);
        for listed in listing {
            let listed = listed.map_err(|error| failed(&error))?;
            let name = &*listed.name;
            if name.starts_with(RESERVED_PREFIX) {
                continue;
            }
            is_empty = false;
            let whole = TreePath::beneath(path.as_ref(), name);
            let whole = whole.map_err(|error| self.undeleted(&error.to_string()))?;
            let kind = match listed.kind.filter(|_| !follows) {
                Some(kind) => Some(kind),
                // A name that cannot be examined exists.
                None => directory.status_of(name).ok().map(|status| status.kind),
            };
            let is_directory = kind == Some(FileKind::Directory);
            if kind.is_some()
                && self
                    .selected
                    .excludes(&place, whole.as_bytes(), is_directory)
            {
                continue;
            }
            if is_directory && !self.is_barred(directory, name, &place, device) {
                inner.push(name, b"").map_err(|error| failed(&error))?;
            }
            self.add(path.as_ref(), name)?;
        }
        self.end(is_empty && depth == 0 && !self.is_comparison());
        let inner = inner.finish().map_err(|error| failed(&error))?;
        Ok(Level { path, place, inner })
    }

    /// Fails if a mount point is on another file system than during the walk; after an unmount the
    /// directory is empty.
    fn check_mounted(
        &self,
        directory: &dyn Directory,
        path: Option<&TreePath>,
    ) -> Result<(), Failure> {
        let Some(path) = path else {
            return Ok(());
        };
        let status = directory.status();
        let status = status.map_err(|error| self.failed("read", Some(path), &error))?;
        let why = match self.mounted.now(path, status.device) {
            Now::Same => return Ok(()),
            Now::Another => "is on another file system than when it was copied",
            Now::Unknown => "more file systems are mounted within the source than are remembered",
        };
        Err(self.undeleted(&format!("{path}: {why}")))
    }

    /// True if a directory was copied without its contents.
    fn is_barred(
        &self,
        directory: &dyn Directory,
        name: &[u8],
        place: &Place,
        device: Option<u64>,
    ) -> bool {
        if !self.selected.may_bar() {
            return false;
        }
        match directory.status_of(name) {
            Ok(status) => self.selected.bars(place, &status, device).is_some(),
            Err(_) => true,
        }
    }

    /// Returns the rule files in a directory that also apply at the destination after the copy:
    /// those that are copied, and those that exclude themselves.
    fn rules_in(
        &self,
        directory: &dyn Directory,
        place: &Place,
        path: Option<&TreePath>,
    ) -> Result<Vec<Option<ByteVec>>, Failure> {
        let mut bytes = 0;
        let mut told = Vec::new();
        for file in self.selected.per_directory() {
            let whole = TreePath::beneath(path, &file.name);
            let is_told = file.is_excluded
                || whole.is_ok_and(|whole| !self.selected.excludes(place, whole.as_bytes(), false));
            let text = if is_told {
                rules_at((self.source, path), directory, file)
            } else {
                Ok(None)
            };
            let text = text.map_err(|error| self.undeleted(&error.to_string()))?;
            bytes += text.as_ref().map_or(0, Vec::len);
            told.push(text.map(Into::into));
        }
        if bytes > MAXIMUM_TOLD_RULES {
            Err(self.undeleted("a directory has files of rules that are too large together"))
        } else {
            Ok(told)
        }
    }

    fn begin(&mut self, path: Option<&TreePath>, rules: Vec<Option<ByteVec>>) {
        self.bytes += rules.iter().flatten().map(|text| text.len()).sum::<usize>();
        self.batch.push(NamesOf {
            directory: path.cloned(),
            begins: true,
            ends: false,
            names: Vec::new(),
            rules,
            is_empty_source: false,
        });
        self.count += 1;
        self.bytes += path.map_or(0, |path| path.as_bytes().len());
    }

    fn add(&mut self, path: Option<&TreePath>, name: &[u8]) -> Result<(), Stopped> {
        if self.is_full() {
            self.flush()?;
            self.begin(path, Vec::new());
            if let Some(last) = self.batch.last_mut() {
                last.begins = false;
            }
        }
        self.count += 1;
        self.bytes += name.len();
        if let Some(last) = self.batch.last_mut() {
            last.names.push(name.to_vec().into());
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.count >= MAXIMUM_NAMES || self.bytes >= MAXIMUM_NAMES_BYTES
    }

    fn end(&mut self, is_empty_source: bool) {
        if let Some(last) = self.batch.last_mut() {
            last.ends = true;
            last.is_empty_source = is_empty_source;
        }
    }

    /// Reports the collected names as soon as the receiver has room.
    fn flush(&mut self) -> Result<(), Stopped> {
        (self.count, self.bytes) = (0, 0);
        let batch = std::mem::take(&mut self.batch);
        if batch.is_empty() {
            return Ok(());
        }
        wait_for_credit(self.transfer)?;
        let told = tell(self.transfer, |sender| {
            sender.work_mut().names_mut().handle_names(batch)
        });
        told.ok_or(Stopped::Over)
    }

    fn failed(&self, what: &str, path: Option<&TreePath>, error: &io::Error) -> Failure {
        failure_of(what, &shown(self.source, path), error)
    }

    fn undeleted(&self, why: &str) -> Failure {
        let means = if self.is_comparison() {
            ""
        } else {
            "; nothing was deleted"
        };
        let text = format!("{}: {why}{means}", self.source.shown);
        Failure::new(FailureKind::Other, text)
    }

    fn is_comparison(&self) -> bool {
        self.transfer.settings.operation == Operation::Verify
    }
}

fn shown(source: &Source, path: Option<&TreePath>) -> String {
    path.map_or(source.shown.clone(), TreePath::to_string)
}

fn wait_for_credit(transfer: &Transfer) -> Result<(), Stopped> {
    let mut shared = transfer.lock();
    loop {
        if shared.is_over() {
            return Err(Stopped::Over);
        }
        let Some(sender) = shared.machine.sender() else {
            return Err(Stopped::Over);
        };
        if sender.work().names().has_credit() {
            return Ok(());
        }
        let waited = transfer.signals.walking.wait(shared);
        shared = waited.unwrap_or_else(PoisonError::into_inner);
    }
}
