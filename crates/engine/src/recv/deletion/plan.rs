//! Plans deletion: compares the source's names of a directory with a listing of the destination,
//! both in byte order. Surplus names are examined with all their content.

use std::borrow::Cow;
use std::collections::HashSet;
use std::io;
use std::iter::Peekable;
use std::sync::Arc;

use longhaul_proto::deletion::NamesOf;
use longhaul_proto::manifest::{RESERVED_PREFIX, TreePath};
use longhaul_proto::message::{Failure, FailureKind};
use longhaul_storage::failure::failure_of;
use longhaul_storage::listing::SortedListing;
use longhaul_storage::{FileKind, Status};
use minicbor::bytes::ByteVec;

use super::super::Receiving;
use super::super::apart::MOST_TOPS;
use super::super::folders::Folder;
use super::super::replacing::is_obstructed;
use super::carry::Carry;
use super::protection::{At, Force, Protection};
use super::record::{Seen, Step, Steps};
use super::replaced::empty_source;
use super::too_many;

/// Maximum number of directories whose listing failed; with more, deletion removes no names.
const MOST_VOID: usize = 65_536;

/// The plan so far.
pub(super) struct Plan {
    pub(super) protection: Protection,
    /// Filters of the directories above the current one, from the anchor down.
    above: Vec<(TreePath, Force)>,
    at_anchor: Option<Force>,
    merge: Option<Merge>,
    /// First name of the source, if it has another name at the destination, for rules that begin
    /// with it.
    source_name: Option<Box<[u8]>>,
    steps: Steps,
    /// Number of directories of the copy that had surplus names.
    group: u64,
    /// Groups whose listing failed later.
    void: HashSet<u64>,
    pub(super) count: u64,
    /// True if the source sent the names of the anchor.
    pub(super) compares_anchor: bool,
    /// Failure of the plan itself.
    pub(super) broken: Option<Failure>,
    /// The topmost directories of the copy.
    tops: Vec<Option<TreePath>>,
}

/// A directory of the copy that is being compared.
pub(super) struct Merge {
    pub(super) place: Place,
    listing: Peekable<SortedListing>,
    /// Number of its group, if it has surplus names.
    group: Option<u64>,
    pub(super) count: u64,
}

/// A directory of the destination, and its filters.
pub(super) struct Place {
    pub(super) path: Option<TreePath>,
    pub(super) folder: Arc<Folder>,
    pub(super) force: Force,
    pub(super) device: u64,
}

impl Plan {
    pub(super) fn new(protection: Protection) -> Plan {
        Plan {
            protection,
            above: Vec::new(),
            at_anchor: None,
            merge: None,
            source_name: None,
            steps: Steps::default(),
            group: 0,
            void: HashSet::new(),
            count: 0,
            compares_anchor: false,
            broken: None,
            tops: Vec::new(),
        }
    }

    /// Processes the next names of the source.
    pub(super) fn take(&mut self, receiving: &Receiving<'_>, names: Vec<NamesOf>) {
        for some in names {
            if receiving.transfer.is_over() || self.broken.is_some() {
                return;
            }
            if some.begins {
                let path = some.directory.as_ref();
                self.compares_anchor |= path.is_none();
                if receiving.side.destination.rename.is_some() {
                    let first = path.and_then(|path| path.names().next());
                    self.source_name = first.map(Into::into);
                }
                let path = path.map(|path| receiving.side.destination.path_of(path));
                self.note_top(path.as_ref());
                self.merge = self.open(receiving, path, &some.rules);
            }
            for name in &some.names {
                self.advance(receiving, Some(name));
            }
            if some.ends {
                self.advance(receiving, None);
                let merge = self.merge.take();
                if some.is_empty_source && merge.is_some_and(|merge| merge.count > 0) {
                    self.broken = Some(empty_source(some.directory.as_ref()));
                }
            }
        }
    }

    /// Completes the plan after all names have arrived.
    ///
    /// # Errors
    ///
    /// Returns the reason to remove no names.
    pub(super) fn finish(
        mut self,
        receiving: &Receiving<'_>,
        most: Option<u64>,
    ) -> Result<Carry, Failure> {
        self.replace_in_anchor(receiving);
        self.count += receiving.side.replacements.made();
        if let Some(failure) = self.broken {
            return Err(failure);
        }
        if let Some(most) = most.filter(|most| self.count > *most) {
            return Err(too_many(self.count, most));
        }
        let planned = self.steps.finish().map_err(|error| not_kept(&error))?;
        let tops = (self.count > 0).then_some(self.tops);
        Ok(Carry::new(planned, self.void, tops))
    }

    /// Records a directory of the copy, if no other directory of the copy contains it.
    pub(super) fn note_top(&mut self, path: Option<&TreePath>) {
        let is_top = match path {
            None => true,
            Some(path) => path.parent().is_none() && !self.tops.contains(&None),
        };
        let path = path.cloned();
        if is_top && self.tops.len() <= MOST_TOPS && !self.tops.contains(&path) {
            self.tops.push(path);
        }
    }

    /// Opens a directory for comparison; `None` if there is no need to compare it.
    pub(super) fn open(
        &mut self,
        receiving: &Receiving<'_>,
        path: Option<TreePath>,
        told: &[Option<ByteVec>],
    ) -> Option<Merge> {
        let barred = receiving.side.destination.barred();
        if let (Some(barred), Some(path)) = (barred, &path)
            && (barred == path || barred.is_above(path))
        {
            return None;
        }
        let folder = match receiving.side.folders.find(path.as_ref()) {
            Ok(folder) => folder,
            // A copy would create it, it was removed meanwhile, or an entry of another kind was
            // left in its place.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) if is_obstructed(&error) => return None,
            Err(error) => {
                self.stays_whole(path, "look into the directory", &error);
                return None;
            }
        };
        let opened = self
            .force_in(receiving, path.as_ref(), (&folder, told))
            .and_then(|force| {
                let device = folder.device()?;
                let listing = SortedListing::open_nested(&**folder.directory(), 0)?;
                Ok((force, device, listing))
            });
        let (force, device, listing) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.stays_whole(path, "list the directory", &error);
                return None;
            }
        };
        if self.protection.one_file_system && self.is_elsewhere(receiving, device) {
            return None;
        }
        Some(Merge {
            place: Place {
                path,
                folder,
                force,
                device,
            },
            listing: listing.peekable(),
            group: None,
            count: 0,
        })
    }

    fn is_elsewhere(&self, receiving: &Receiving<'_>, device: u64) -> bool {
        let anchor = receiving.side.folders.anchor().device();
        !anchor.is_ok_and(|anchor| anchor == device)
    }

    /// Returns the filters of a directory of the copy. Directories come from the top down.
    fn force_in(
        &mut self,
        receiving: &Receiving<'_>,
        path: Option<&TreePath>,
        (folder, told): (&Folder, &[Option<ByteVec>]),
    ) -> io::Result<Force> {
        if !self.protection.is_local() {
            return Ok(Force::default());
        }
        // If the source has another name here, the files beside it do not belong to the copy.
        if self.at_anchor.is_none() && self.source_name.is_none() {
            let none = Force::default();
            let told = if path.is_none() { told } else { &[] };
            let anchor = receiving.side.folders.anchor().directory();
            let at = At {
                anchor: &**anchor,
                here: None,
                source: None,
            };
            let force = self.protection.enter(&none, (&**anchor, told), &at)?;
            self.at_anchor = Some(force);
        }
        let anchor = self.at_anchor.clone().unwrap_or_default();
        let Some(path) = path else {
            return Ok(anchor);
        };
        while self
            .above
            .last()
            .is_some_and(|(last, _)| !last.is_above(path))
        {
            self.above.pop();
        }
        // Enters the directories between the last known one and this one.
        let known = self.above.last().map(|(last, _)| last.names().count());
        let mut force = self.above.last().map_or(anchor, |(_, force)| force.clone());
        let mut walked = self.above.last().map(|(last, _)| last.clone());
        let names: Vec<&[u8]> = path.names().collect();
        for (depth, name) in names.iter().enumerate().skip(known.unwrap_or(0)) {
            let next = TreePath::beneath(walked.as_ref(), name);
            let next = next.map_err(io::Error::other)?;
            let at = At {
                anchor: &**receiving.side.folders.anchor().directory(),
                here: Some(&next),
                source: Some(&self.at_source(&next)),
            };
            force = if depth + 1 == names.len() {
                let directory = &**folder.directory();
                self.protection.enter(&force, (directory, told), &at)?
            } else {
                let between = receiving.side.folders.find(Some(&next))?;
                let directory = &**between.directory();
                self.protection.enter(&force, (directory, &[]), &at)?
            };
            self.above.push((next.clone(), force.clone()));
            walked = Some(next);
        }
        Ok(force)
    }

    /// Advances to the source's next name; `None` ends the directory.
    fn advance(&mut self, receiving: &Receiving<'_>, name: Option<&[u8]>) {
        let Some(mut merge) = self.merge.take() else {
            return;
        };
        let mut is_listed = false;
        loop {
            let found = match merge.listing.peek() {
                None => break,
                Some(Err(_)) => {
                    let Some(Err(error)) = merge.listing.next() else {
                        break;
                    };
                    return self.give_up(&merge, "list the directory", &error);
                }
                Some(Ok(listed)) => match name {
                    Some(name) if *listed.name > *name => break,
                    Some(name) if *listed.name == *name => {
                        merge.listing.next();
                        is_listed = true;
                        break;
                    }
                    _ => listed.name.clone(),
                },
            };
            merge.listing.next();
            if !found.starts_with(RESERVED_PREFIX) {
                let before = self.count;
                self.judge(receiving, &mut merge, &found);
                merge.count += self.count - before;
            }
        }
        if let Some(name) = name.filter(|_| is_listed) {
            self.judge_replaced(receiving, &mut merge, name);
        }
        if let Some(name) = name.filter(|_| !is_listed)
            && let Some(error) = other_spelling(&merge.place, name)
        {
            return self.give_up(&merge, "compare the directory", &error);
        }
        self.merge = Some(merge);
    }

    /// Keeps a directory whole whose listing failed or is incomplete: the names that it gave may be
    /// wrong, too.
    fn give_up(&mut self, merge: &Merge, what: &str, error: &io::Error) {
        self.count -= merge.count;
        self.void.extend(merge.group);
        self.stays_whole(merge.place.path.clone(), what, error);
    }

    /// Returns the path as the rules see it.
    pub(super) fn at_source<'a>(&self, path: &'a TreePath) -> Cow<'a, TreePath> {
        let renamed = self.source_name.as_ref().and_then(|first| {
            let first = TreePath::new(first).ok()?;
            path.names()
                .skip(1)
                .try_fold(first, |above, name| above.join(name).ok())
        });
        renamed.map_or(Cow::Borrowed(path), Cow::Owned)
    }

    /// Plans the removal of a name that the source lacks.
    fn judge(&mut self, receiving: &Receiving<'_>, merge: &mut Merge, name: &[u8]) {
        let group = self.group_of(merge);
        match self.look(receiving, &merge.place, name) {
            Look::Gone | Look::Kept => {}
            Look::Stays(path, failure) => self.push(group, &Step::Stays(path, failure)),
            Look::File(path, seen) => self.remove(group, path, seen),
            Look::Directory(path, status) => {
                self.expand(receiving, group, (path, status), (&merge.place, false));
            }
        }
    }

    pub(super) fn group_of(&mut self, merge: &mut Merge) -> u64 {
        if let Some(group) = merge.group {
            return group;
        }
        self.group += 1;
        merge.group = Some(self.group);
        self.push(self.group, &Step::Within(merge.place.path.clone()));
        self.group
    }

    /// Examines a name that the source lacks.
    pub(super) fn look(&self, receiving: &Receiving<'_>, place: &Place, name: &[u8]) -> Look {
        let path = TreePath::beneath(place.path.as_ref(), name);
        let Ok(path) = path else {
            // The path is too long for a message, so the name stays.
            return Look::Kept;
        };
        let status = match place.folder.directory().status_of(name) {
            Ok(status) => status,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Look::Gone,
            Err(error) => {
                let failure = failure_of("look at", &path.to_string(), &error);
                return Look::Stays(path, failure);
            }
        };
        let is_directory = status.kind == FileKind::Directory;
        let is_barred = receiving.side.destination.barred() == Some(&path);
        let there = self.at_source(&path);
        if is_barred || self.protection.protects(&place.force, &there, is_directory) {
            return Look::Kept;
        }
        if !is_directory {
            Look::File(path, Seen::of(&status))
        } else if status.device == place.device {
            Look::Directory(path, status)
        } else if self.protection.one_file_system {
            Look::Kept
        } else {
            let text = format!("{path}: is a mount point, and stays: unmount it first");
            Look::Stays(path, Failure::new(FailureKind::Conflict, text))
        }
    }

    pub(super) fn remove(&mut self, group: u64, path: TreePath, seen: Seen) {
        self.count += 1;
        self.push(group, &Step::Remove(path, seen));
    }

    /// Keeps a directory of the copy whole, because its surplus names are not known.
    fn stays_whole(&mut self, path: Option<TreePath>, what: &str, error: &io::Error) {
        self.group += 1;
        let shown = path.as_ref().map_or(".".to_owned(), TreePath::to_string);
        let failure = failure_of(what, &shown, error);
        let text = format!("{}; nothing in it was deleted", failure.text);
        let failure = Failure::new(failure.kind, text);
        let path = path.or_else(|| TreePath::new(b"destination").ok());
        if let Some(path) = path {
            self.push(self.group, &Step::Stays(path, failure));
        }
        if self.void.len() > MOST_VOID {
            let text =
                "nothing was deleted: too many directories of the destination cannot be listed";
            self.broken = Some(Failure::new(FailureKind::Other, text));
        }
    }

    pub(super) fn stays_in(&mut self, group: u64, path: Option<TreePath>, error: &io::Error) {
        if let Some(path) = path {
            let failure = failure_of("list the directory", &path.to_string(), error);
            self.push(group, &Step::Stays(path, failure));
        }
    }

    pub(super) fn push(&mut self, group: u64, step: &Step) {
        if let Err(error) = self.steps.push(group, step) {
            self.broken = Some(not_kept(&error));
        }
    }
}

/// Result of examining a name that the source lacks.
pub(super) enum Look {
    /// The name no longer exists.
    Gone,
    /// The name stays on purpose.
    Kept,
    /// The name stays, for this reason.
    Stays(TreePath, Failure),
    File(TreePath, Seen),
    Directory(TreePath, Status),
}

/// Returns an error if a name that the listing lacks exists: on a file system that folds or changes
/// names, it may have another spelling, and then the listing does not show the surplus names.
fn other_spelling(place: &Place, name: &[u8]) -> Option<io::Error> {
    match place.folder.directory().status_of(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => Some(error),
        Ok(_) => Some(io::Error::other(format!(
            "{} is there under another spelling, or came meanwhile",
            name.escape_ascii()
        ))),
    }
}

fn not_kept(error: &io::Error) -> Failure {
    let failure = failure_of(
        "keep the list of what is deleted",
        "nothing was deleted",
        error,
    );
    Failure::new(failure.kind, failure.text)
}
