//! The walk: lists the sources depth first, each directory in byte order, and passes the entries to
//! the state machine. Entries that the state machine cannot accept yet wait in the `Backlog`.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use longhaul_proto::attributes::{Attributes, Ownership};
use longhaul_proto::filter::{LeftOut, MAXIMUM_OMITTED, MAXIMUM_RULE_SHOWN, Omitted, Reason};
use longhaul_proto::manifest::{
    AnchorState, Entry, EntryId, EntryKind, SET_ID_BITS, Timestamp, TreePath,
};
use longhaul_proto::message::{Failure, FailureKind};
use longhaul_proto::sender::Sender;
use longhaul_storage::attributes::Inode;
use longhaul_storage::failure::{again, failure_of};
use longhaul_storage::fan_out::Pace;
use longhaul_storage::following::{FollowingDirectory, LinkError};
use longhaul_storage::nested::{Nested, place_of};
use longhaul_storage::{Directory, FileKind, Status};

use super::ahead::{Ahead, Looked};
use super::backlog::{Backlog, Over, Step, wait_while};
use super::earlier::{Earlier, Settled};
use super::gather::Gathering;
use super::links::LinkTable;
use super::mounted::Mounted;
use super::origin::Origins;
use super::select::{Place, PlaceError, Selected};
use super::source::{Source, What};
use super::{Sending, tell};
use crate::session::entry_events::from_omitted;
use crate::session::{Counters, Reporting, Transfer};

// tidy: long file because one walk lists, orders and selects names.

/// A directory that is being walked.
struct Level {
    names: Ahead,
    /// Entry of this directory; `None` if its contents go directly into the anchor.
    entry: Option<Entry>,
    path: Option<TreePath>,
    /// Reason to copy no part of the directory and to report each name in it as a failure.
    left_out: Option<Leaving>,
    children: u64,
    /// Filters that apply in this directory.
    place: Place,
}

/// The walk of one source.
struct Walk<'a, 'b> {
    transfer: &'a Transfer,
    backlog: &'a mut Backlog<'b>,
    origins: &'a Origins,
    source: &'a Source,
    /// The earlier sources, and the names that they reported.
    before: &'a [Source],
    earlier: &'a mut Earlier,
    next: &'a mut u64,
    /// Measures how long a lookup takes.
    pace: Pace,
    /// Filters of the transfer.
    selected: &'a Selected,
    /// Counts of names that were left out on purpose, and the names to be reported.
    left_out: &'a mut LeftOut,
    omitted: Vec<Omitted>,
    /// Device of the source, if the walk must stay on one file system.
    device: Option<u64>,
    /// Collects the metadata of entries.
    gathering: &'a Gathering,
    mounted: &'a Mounted,
    /// Inodes with several names.
    links: &'a mut LinkTable,
}

/// Reason to leave a name out: an earlier source contains the same name.
#[derive(Clone)]
struct Leaving {
    /// Path that the earlier source has.
    path: TreePath,
    /// Name of the earlier source.
    first: Arc<str>,
}

/// Path of a directory that is left out, and the reason.
type Outside = (TreePath, Leaving);

/// Result of meeting a name.
enum Met {
    /// The name was reported.
    Told,
    /// The directory was reported and must be entered.
    Directory(Arc<dyn Directory>, Entry),
    /// The directory was reported as a failure, and its content must be, too.
    LeftOut(Arc<dyn Directory>, Outside),
    /// The name was reported as a failure that does not count in its directory.
    LeftAlone,
    /// An earlier source already reported the name.
    PassedOver,
}

impl Sending<'_> {
    /// Runs the walker's thread.
    pub(crate) fn walk(&self) {
        let mut next = 0;
        let sources = self.side.sources.list();
        let mut earlier = Earlier::new(sources);
        let mut left_out = LeftOut::default();
        let mut links = LinkTable::default();
        let mut backlog = Backlog::new(self.transfer);
        for (index, source) in sources.iter().enumerate() {
            self.side.sources.begin(EntryId(next));
            let mut walk = Walk {
                transfer: self.transfer,
                backlog: &mut backlog,
                origins: &self.side.origins,
                source,
                before: &sources[..index],
                earlier: &mut earlier,
                next: &mut next,
                pace: Pace::default(),
                selected: &self.side.selected,
                left_out: &mut left_out,
                omitted: Vec::new(),
                device: None,
                gathering: &self.side.gathering,
                mounted: &self.side.mounted,
                links: &mut links,
            };
            if walk.run().and_then(|()| walk.tell_omitted()).is_err() {
                return;
            }
        }
        let walk_ended = &self.transfer.counters.walk_ended;
        walk_ended.store(1, Ordering::Relaxed);
        if backlog.finish().is_err() {
            return;
        }
        self.tell(|sender| {
            sender.work_mut().handle_left_out(left_out);
            sender.work_mut().handle_walk_end();
        });
        self.transfer.signals.reading.notify_all();
        if self.transfer.settings.deletion.is_some() {
            self.tell_names();
        }
    }
}

/// Returns the entry that a status describes.
pub(super) fn entry_of(
    id: EntryId,
    parent: Option<EntryId>,
    path: TreePath,
    kind: EntryKind,
    status: &Status,
) -> Entry {
    let has_set_id = status.mode & SET_ID_BITS != 0 && matches!(kind, EntryKind::File { .. });
    Entry {
        id,
        parent,
        path,
        kind,
        mode: status.mode,
        modified: status.modified,
        owner: has_set_id.then(|| Box::new(Attributes::of(status.owner))),
    }
}

/// Returns the new state of a changed entry. Its name and extended attributes stay the same.
pub(super) fn entry_again(entry: &Entry, kind: EntryKind, status: &Status) -> Entry {
    let (id, parent, path) = (entry.id, entry.parent, entry.path.clone());
    let now = entry_of(id, parent, path, kind, status);
    match &entry.owner {
        Some(owner) if owner.owner() == status.owner => Entry {
            owner: Some(owner.clone()),
            ..now
        },
        Some(owner) => Entry {
            owner: Some(Box::new(Attributes {
                user: status.owner.user,
                group: status.owner.group,
                user_name: None,
                group_name: None,
                ..Attributes::clone(owner)
            })),
            ..now
        },
        None => now,
    }
}

/// Opens a directory. If links are followed, it rejects a directory that is one of those above it.
fn enter_new(
    directory: &dyn Directory,
    name: &[u8],
    above: &Nested,
) -> io::Result<Arc<dyn Directory>> {
    let inner = directory.open_directory(name)?;
    if directory.as_any().is::<FollowingDirectory>() {
        let place = place_of(&*inner)?;
        if above.contains(place)? {
            return Err(LinkError::Cycle.into());
        }
    }
    Ok(inner)
}

impl Walk<'_, '_> {
    fn run(&mut self) -> Result<(), Over> {
        let directory = match self.source.directory.open() {
            Ok(directory) => directory,
            Err(error) => {
                let failure = failure_of("open", &self.source.shown, &error);
                let name = self.source.landing();
                return self.report(
                    None,
                    name.and_then(|name| TreePath::new(name).ok()),
                    failure,
                );
            }
        };
        match &self.source.what {
            What::File { name, landing } => {
                let Ok(path) = TreePath::new(landing) else {
                    return Ok(());
                };
                let status = directory.content_status_of(name);
                if self.leaves_out(&Place::default(), name, status.as_ref().ok()) {
                    return Ok(());
                }
                self.meet(
                    (&directory, name, status),
                    (path, true),
                    None,
                    (&[], &Nested::default()),
                )
                .map(drop)
            }
            What::Missing { name, failure } => {
                self.report(None, TreePath::new(name).ok(), failure.clone())
            }
            What::Contents => {
                self.device = self.selected.device_of(&*directory);
                self.tell_anchor(&*directory)?;
                if self.bars_source() {
                    Ok(())
                } else {
                    self.walk_tree(directory, (None, None))
                }
            }
            What::Tree(name) => match TreePath::new(name) {
                Ok(path) => self.walk_named(directory, path),
                Err(_) => Ok(()),
            },
        }
    }

    /// Reports the metadata of the source that fills the destination.
    fn tell_anchor(&mut self, directory: &dyn Directory) -> Result<(), Over> {
        let status = directory.status();
        // A list of files includes this metadata only if it names the source itself.
        if !self.gathering.keeping().anchor || !self.source.takes_itself() {
            // An unreadable source counts as mode 0, which permits no access.
            let mode = status.map_or(0, |status| status.mode);
            let told = tell(self.transfer, |sender| {
                sender.work_mut().handle_filling(mode)
            });
            return told.ok_or(Over);
        }
        // The listing reports an unreadable directory.
        let Ok(status) = status else {
            return Ok(());
        };
        let anchor = AnchorState {
            mode: status.mode,
            modified: status.modified,
            owner: self.gathering.of(status.owner, directory.inode()),
            is_limit: false,
        };
        let told = tell(self.transfer, |sender| {
            sender.work_mut().handle_anchor(anchor)
        });
        told.ok_or(Over)
    }

    /// Walks a directory that is copied with its name.
    fn walk_named(&mut self, directory: Arc<dyn Directory>, path: TreePath) -> Result<(), Over> {
        let status = match directory.status() {
            Ok(status) => status,
            Err(error) => {
                let failure = failure_of("read", &self.source.shown, &error);
                return self.report(None, Some(path), failure);
            }
        };
        self.device = self.selected.device_of(&*directory);
        if self.leaves_out(&Place::default(), path.as_bytes(), Some(&status)) {
            return Ok(());
        }
        match self.settled(&path, status, &[]) {
            Err(None) => Ok(()),
            Err(Some(by)) => {
                self.leave_out(&path, &by)?;
                self.walk_tree(directory, (None, Some((path, by))))
            }
            Ok(status) => {
                let kind = EntryKind::Directory;
                let mut entry = entry_of(self.take_id(), None, path, kind, &status);
                self.gather(&mut entry, status.owner, || directory.inode());
                self.hand_over(entry.clone())?;
                if self.bars_source() {
                    self.tell_directory_end(entry, 0)
                } else {
                    self.walk_tree(directory, (Some(entry), None))
                }
            }
        }
    }

    /// Walks a directory: as an entry, as a part that is left out, or as content of the anchor.
    fn walk_tree(
        &mut self,
        directory: Arc<dyn Directory>,
        (entry, left_out): (Option<Entry>, Option<Outside>),
    ) -> Result<(), Over> {
        let (mut levels, mut open) = (Vec::new(), Nested::default());
        self.enter((&mut levels, &mut open), directory, (entry, left_out))?;
        while let Some(level) = levels.last_mut() {
            let directory = open.last();
            let next = match &directory {
                Ok(directory) => self.next_name(&mut level.names, &**directory)?,
                Err(error) => Some(Err(again(error))),
            };
            match next {
                Some(Ok(Looked { name, status })) => {
                    level.children += 1;
                    let parent = level.entry.as_ref().map(|entry| entry.id);
                    let path = TreePath::beneath(level.path.as_ref(), &name);
                    let Ok(path) = path else {
                        let (shown, above) = (shown_name(level, &name), level.path.clone());
                        let text = format!("{shown}: the path is too long to be sent");
                        self.report(parent, above, Failure::new(FailureKind::Name, text))?;
                        continue;
                    };
                    let Ok(directory) = directory else {
                        continue;
                    };
                    let place = &level.place;
                    if let Ok(status) = &status {
                        let (count, copied) =
                            self.report_unreachable(place, (&path, status), parent)?;
                        level.children += count;
                        if !copied {
                            uncount(&mut levels);
                            continue;
                        }
                    }
                    let place = &level.place;
                    if self.leaves_out(place, path.as_bytes(), status.as_ref().ok()) {
                        uncount(&mut levels);
                        continue;
                    }
                    let empty = self.selected.leaves_empty(place, path.as_bytes());
                    let enters = !empty && self.enters(place, status.as_ref().ok());
                    let path = (path, enters);
                    match self.meet((&directory, &name, status), path, parent, (&levels, &open))? {
                        Met::Told => (),
                        Met::Directory(inner, entry) => {
                            self.enter((&mut levels, &mut open), inner, (Some(entry), None))?;
                        }
                        Met::LeftOut(inner, outside) => {
                            uncount(&mut levels);
                            self.enter((&mut levels, &mut open), inner, (None, Some(outside)))?;
                        }
                        Met::LeftAlone | Met::PassedOver => uncount(&mut levels),
                    }
                }
                Some(Err(error)) => {
                    level.children += 1;
                    let (parent, above) = (level.entry.as_ref().map(|e| e.id), level.path.clone());
                    self.report_unlisted(parent, above, &error)?;
                    open.pop();
                    self.leave(&mut levels)?;
                }
                None => {
                    open.pop();
                    self.leave(&mut levels)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the next name of a directory. The name may take long, so that steps do not wait for
    /// it; a stream gives no name before its earlier pieces are sent.
    fn next_name(
        &mut self,
        names: &mut Ahead,
        directory: &dyn Directory,
    ) -> Result<Option<io::Result<Looked>>, Over> {
        let may_wait = directory.lists_in_order() || self.pace.is_slow();
        if may_wait && !names.has_looked() {
            self.backlog.report_some()?;
        }
        Ok(names.next(directory, &self.pace))
    }

    /// Reports a failure that belongs to no entry. It gets an entry, so that both ends count it.
    fn report(
        &mut self,
        parent: Option<EntryId>,
        path: Option<TreePath>,
        failure: Failure,
    ) -> Result<(), Over> {
        let id = self.take_id();
        let Some(path) = path.or_else(|| TreePath::new(b"source").ok()) else {
            return Ok(());
        };
        let entry = unreadable(id, parent, path);
        self.tell_unreadable(entry, failure)
    }

    fn report_unlisted(
        &mut self,
        parent: Option<EntryId>,
        path: Option<TreePath>,
        error: &io::Error,
    ) -> Result<(), Over> {
        let shown = path
            .as_ref()
            .map_or(self.source.shown.clone(), TreePath::to_string);
        self.report(
            parent,
            path,
            failure_of("list the directory", &shown, error),
        )
    }

    fn enter(
        &mut self,
        (levels, open): (&mut Vec<Level>, &mut Nested),
        directory: Arc<dyn Directory>,
        (entry, outside): (Option<Entry>, Option<Outside>),
    ) -> Result<(), Over> {
        let (outside, left_out) = outside.unzip();
        let path = entry.as_ref().map(|entry| entry.path.clone()).or(outside);
        let above = levels.last().map(|level| &level.place);
        let of = (self.source, &*directory);
        let place = match self.selected.enter(above, of, path.as_ref()) {
            Ok(place) => place,
            Err(error) => return self.report_unfiltered(entry, path, &error),
        };
        let names = match place.names() {
            Some(names) => Ok(Ahead::of(names)),
            None => Ahead::open(&*directory, levels.len()),
        };
        match names {
            Ok(names) => {
                let parent = entry.as_ref().map(|entry| entry.id);
                let missing = self.report_missing(&place, &*directory, (parent, path.as_ref()))?;
                open.push(directory, path.as_ref().map_or(b"", TreePath::name));
                levels.push(Level {
                    names,
                    entry,
                    path,
                    left_out,
                    children: missing,
                    place,
                });
            }
            Err(error) => {
                self.report_unlisted(entry.as_ref().map(|entry| entry.id), path, &error)?;
                if let Some(entry) = entry {
                    self.tell_directory_end(entry, 1)?;
                }
            }
        }
        Ok(())
    }

    /// Reports names in the list of files that the directory lacks and that its listing would not
    /// reveal. Returns their number.
    fn report_missing(
        &mut self,
        place: &Place,
        directory: &dyn Directory,
        (parent, path): (Option<EntryId>, Option<&TreePath>),
    ) -> Result<u64, Over> {
        let mut count = 0;
        for name in place.expected() {
            let Err(error) = directory.status_of(&name) else {
                continue;
            };
            let path = TreePath::beneath(path, &name);
            if error.kind() == io::ErrorKind::NotFound
                && let Ok(path) = path
            {
                let failure = failure_of("read", &path.to_string(), &error);
                self.report(parent, Some(path), failure)?;
                count += 1;
            }
        }
        Ok(count)
    }

    /// Reports listed paths beneath a name that is not a directory. Returns their number, and true
    /// if the name itself is copied.
    fn report_unreachable(
        &mut self,
        place: &Place,
        (path, status): (&TreePath, &Status),
        parent: Option<EntryId>,
    ) -> Result<(u64, bool), Over> {
        if status.kind == FileKind::Directory {
            return Ok((0, true));
        }
        let (beneath, copied) = place.unreachable(path.name());
        let above = path.parent();
        for listed in &beneath {
            let listed = match &above {
                Some(above) => [above.as_bytes(), b"/", listed].concat(),
                None => listed.clone(),
            };
            let shown = listed.escape_ascii();
            let text = match status.kind {
                FileKind::Symlink => format!(
                    "{shown}: {path} is a link, which is not followed: copy with -L, or list the \
                     path that it leads to"
                ),
                _ => format!("{shown}: {path} is not a directory"),
            };
            let failure = Failure::new(FailureKind::Other, text);
            let path = TreePath::new(&listed).unwrap_or_else(|_| path.clone());
            self.report(parent, Some(path), failure)?;
        }
        Ok((beneath.len() as u64, copied || beneath.is_empty()))
    }

    /// Reports a directory whose filters cannot be read. The directory is created, but its content
    /// is not copied.
    fn report_unfiltered(
        &mut self,
        entry: Option<Entry>,
        path: Option<TreePath>,
        error: &PlaceError,
    ) -> Result<(), Over> {
        let shown = path
            .as_ref()
            .map_or(self.source.shown.clone(), TreePath::to_string);
        let failure = Failure::new(FailureKind::Other, format!("{shown}: {error}"));
        self.report(entry.as_ref().map(|entry| entry.id), path, failure)?;
        entry.map_or(Ok(()), |entry| self.tell_directory_end(entry, 1))
    }

    /// True if a name is left out on purpose, which is also counted.
    fn leaves_out(&mut self, place: &Place, path: &[u8], status: Option<&Status>) -> bool {
        let reason = status.and_then(|status| self.selected.judge(place, path, status));
        if let (Some(reason), Some(status)) = (reason, status) {
            self.note_omitted(place, path, (reason, status));
        }
        self.count_left_out(reason)
    }

    /// True if a directory is entered; a directory that is not entered is counted.
    fn enters(&mut self, place: &Place, status: Option<&Status>) -> bool {
        let directory = status.filter(|status| status.kind == FileKind::Directory);
        let reason = directory.and_then(|status| self.selected.bars(place, status, self.device));
        !self.count_left_out(reason)
    }

    /// Records a name that is left out, for a report.
    fn note_omitted(&mut self, place: &Place, path: &[u8], (reason, status): (Reason, &Status)) {
        let reporting = self.transfer.settings.omitted;
        let Some(path) = TreePath::new(path)
            .ok()
            .filter(|_| reporting != Reporting::No)
        else {
            return;
        };
        let is_directory = status.kind == FileKind::Directory;
        let rule = || self.selected.rule_of(place, path.as_bytes(), is_directory);
        let mut rule = (reason == Reason::Rule).then(rule).flatten();
        if let Some(rule) = &mut rule {
            // The text is escaped, so each byte is a character.
            rule.truncate(MAXIMUM_RULE_SHOWN);
        }
        self.omitted.push(Omitted { path, reason, rule });
        if self.omitted.len() >= MAXIMUM_OMITTED {
            // If the session is over, the next entry stops the walk.
            let _ = self.tell_omitted();
        }
    }

    fn tell_omitted(&mut self) -> Result<(), Over> {
        let omitted = std::mem::take(&mut self.omitted);
        match self.transfer.settings.omitted {
            Reporting::There if !omitted.is_empty() => {
                wait_while(self.transfer, |sender| {
                    !sender.work().names().has_omitted_credit()
                })?;
                let told =
                    |sender: &mut Sender| sender.work_mut().names_mut().handle_omitted(omitted);
                tell(self.transfer, told).ok_or(Over)
            }
            _ => {
                let events = omitted.into_iter().map(from_omitted);
                events.for_each(|event| self.transfer.report(event));
                Ok(())
            }
        }
    }

    fn bars_source(&mut self) -> bool {
        let reason = self.selected.bars_source();
        self.count_left_out(reason)
    }

    fn count_left_out(&mut self, reason: Option<Reason>) -> bool {
        if let Some(reason) = reason {
            self.left_out.count(reason);
        }
        reason.is_some()
    }

    fn leave(&mut self, levels: &mut Vec<Level>) -> Result<(), Over> {
        match levels.pop() {
            Some(Level {
                entry: Some(entry),
                children,
                ..
            }) => self.tell_directory_end(entry, children),
            _ => Ok(()),
        }
    }

    fn tell_directory_end(&mut self, entry: Entry, children: u64) -> Result<(), Over> {
        self.backlog.add(Step::DirectoryEnd(entry, children))
    }

    fn take_id(&mut self) -> EntryId {
        let id = EntryId(*self.next);
        *self.next += 1;
        id
    }

    /// Reports a name of a directory, unless an earlier source contains the same name.
    fn meet(
        &mut self,
        (directory, name, status): (&Arc<dyn Directory>, &[u8], io::Result<Status>),
        (path, enters): (TreePath, bool),
        parent: Option<EntryId>,
        (levels, above): (&[Level], &Nested),
    ) -> Result<Met, Over> {
        let status = match status {
            Ok(status) => match self.settled(&path, status, levels) {
                Ok(status) => Ok(status),
                Err(None) => return Ok(Met::PassedOver),
                Err(Some(by)) => {
                    self.leave_out(&path, &by)?;
                    let inner = match status.kind {
                        FileKind::Directory if enters => enter_new(&**directory, name, above).ok(),
                        _ => None,
                    };
                    return Ok(match inner {
                        Some(inner) => Met::LeftOut(inner, (path, by)),
                        None => Met::LeftAlone,
                    });
                }
            },
            Err(error) => Err(error),
        };
        let looked = status.and_then(|status| {
            let kind = kind_of((self.origins, self.selected), &**directory, name, &status)?;
            let inner = match kind {
                Some(EntryKind::Directory) if enters => Some(enter_new(&**directory, name, above)?),
                _ => None,
            };
            Ok((status, kind, inner))
        });
        match looked {
            Ok((status, Some(kind), inner)) => {
                if kind == EntryKind::Directory
                    && let Ok(above) = directory.status()
                {
                    self.mounted.note(&path, status.device, above.device);
                }
                let id = self.take_id();
                let kind = match self.first_name(&kind, &status, (id, &path)) {
                    Ok(first) => first.unwrap_or(kind),
                    Err(error) => {
                        let failure =
                            failure_of("keep track of the names of", &path.to_string(), &error);
                        let entry = unreadable(id, parent, path);
                        self.tell_unreadable(entry, failure)?;
                        return Ok(Met::Told);
                    }
                };
                let mut entry = entry_of(id, parent, path, kind, &status);
                self.gather(&mut entry, status.owner, || directory.inode_of(name));
                if entry.kind != EntryKind::Directory {
                    self.hand_over(entry)?;
                    return Ok(Met::Told);
                }
                self.hand_over(entry.clone())?;
                match inner {
                    Some(inner) => return Ok(Met::Directory(inner, entry)),
                    None if !enters => self.tell_directory_end(entry, 0)?,
                    None => (),
                }
                Ok(Met::Told)
            }
            // `leaves_out` usually sees such names; this one became a special file just now.
            Ok((_, None, _)) => {
                self.count_left_out(Some(Reason::Special));
                Ok(Met::LeftAlone)
            }
            Err(error) => {
                let failure = unread(&path.to_string(), levels, &error);
                let entry = unreadable(self.take_id(), parent, path);
                self.tell_unreadable(entry, failure)?;
                Ok(Met::Told)
            }
        }
    }

    /// Adds the requested metadata to an entry.
    fn gather<'i>(
        &self,
        entry: &mut Entry,
        owner: Ownership,
        inode: impl FnOnce() -> Option<Box<dyn Inode + 'i>>,
    ) {
        let keeping = self.gathering.keeping();
        // A hard link shares the metadata of its first name.
        if !keeping.has_attributes() || matches!(entry.kind, EntryKind::HardLink { .. }) {
            return;
        }
        entry.owner = self.gathering.of(owner, inode());
    }

    /// Returns a hard link if the walk met another name of the same inode before.
    fn first_name(
        &mut self,
        kind: &EntryKind,
        status: &Status,
        (id, path): (EntryId, &TreePath),
    ) -> io::Result<Option<EntryKind>> {
        let linked = self.gathering.keeping().hard_links && status.names > 1;
        if !linked || *kind == EntryKind::Directory {
            return Ok(None);
        }
        let place = (status.device, status.inode);
        let first = self.links.meet(place, status.names, (id, path))?;
        Ok(first.map(|(first, target)| EntryKind::HardLink { target, first }))
    }

    /// Returns the status with which a path is reported. Otherwise returns `None` if the path was
    /// reported before, or the reason to leave it out.
    fn settled(
        &self,
        path: &TreePath,
        status: Status,
        above: &[Level],
    ) -> Result<Status, Option<Leaving>> {
        if let Some(leaving) = above.last().and_then(|level| level.left_out.clone()) {
            return Err(Some(leaving));
        }
        match self.earlier.settle(self.before, path, status) {
            Settled::Told(status) => Ok(status),
            Settled::Same => Err(None),
            Settled::Taken(first) => Err(Some(Leaving {
                path: path.clone(),
                first: first.shown.as_str().into(),
            })),
        }
    }

    /// Reports a name that an earlier source has.
    fn leave_out(&mut self, path: &TreePath, by: &Leaving) -> Result<(), Over> {
        let Leaving { path: taken, first } = by;
        let shown = &self.source.shown;
        let text = format!(
            "{path}: left out of what {shown} has, because {first}, named before it, has {taken}: \
             copy them to different destinations"
        );
        // The directory's count of children excludes this entry; it includes the earlier source's
        // entry.
        let entry = unreadable(self.take_id(), None, path.clone());
        self.tell_unreadable(entry, Failure::new(FailureKind::Conflict, text))
    }

    fn tell_unreadable(&mut self, entry: Entry, failure: Failure) -> Result<(), Over> {
        Counters::add(&self.transfer.counters.walked_entries, 1);
        self.backlog.add(Step::Unreadable(entry, failure))
    }

    fn hand_over(&mut self, entry: Entry) -> Result<(), Over> {
        self.earlier.note(&entry.path);
        Counters::add(&self.transfer.counters.walked_entries, 1);
        Counters::add(&self.transfer.counters.walked_bytes, entry.size());
        self.backlog.add(Step::Entry(entry))
    }
}

/// Returns the failure for a name that cannot be read.
fn unread(shown: &str, levels: &[Level], error: &io::Error) -> Failure {
    let is_listed = levels.last().is_some_and(|it| it.place.names().is_some());
    if !is_listed || error.kind() != io::ErrorKind::NotFound {
        return failure_of("read", shown, error);
    }
    let text = format!(
        "{shown}: the list has this name, but the source does not: check how it is written"
    );
    Failure::new(FailureKind::Vanished, text)
}

/// Removes the last name from the count of its directory.
fn uncount(levels: &mut [Level]) {
    if let Some(level) = levels.last_mut() {
        level.children -= 1;
    }
}

/// Returns an entry for a name of which only the path is known.
fn unreadable(id: EntryId, parent: Option<EntryId>, path: TreePath) -> Entry {
    let modified = Timestamp::default();
    Entry {
        id,
        parent,
        path,
        kind: EntryKind::Directory,
        mode: 0,
        modified,
        owner: None,
    }
}

fn shown_name(level: &Level, name: &[u8]) -> String {
    let parent = level
        .path
        .as_ref()
        .map_or(String::new(), |path| format!("{path}/"));
    format!("{parent}{}", name.escape_ascii())
}

/// Returns the kind of an entry; `None` for a device, socket or FIFO that is not copied.
fn kind_of(
    (origins, selected): (&Origins, &Selected),
    directory: &dyn Directory,
    name: &[u8],
    status: &Status,
) -> io::Result<Option<EntryKind>> {
    Ok(Some(match status.kind {
        FileKind::Directory => EntryKind::Directory,
        FileKind::File => {
            origins.learn(directory, status);
            origins.kind_of(status)
        }
        FileKind::Symlink => EntryKind::Symlink {
            target: directory.read_symlink(name)?.into_vec(),
        },
        FileKind::Special => match status.special.filter(|_| selected.takes(status.special)) {
            Some(special) => EntryKind::Special {
                kind: special.kind,
                major: special.device.0,
                minor: special.device.1,
            },
            None => return Ok(None),
        },
    }))
}
