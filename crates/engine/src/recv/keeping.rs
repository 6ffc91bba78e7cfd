//! Sets the mode and time of entries. If a file system refuses a value, or stores another one, a
//! notice is recorded and the data stay. Stored values are read after they were set.

use std::fmt::Display;
use std::io;

use longhaul_proto::manifest::{
    AnchorState, Entry, EntryId, EntryKind, Ownership, SET_ID_BITS, Timestamp, TreePath,
};
use longhaul_proto::message::{Failure, FailureKind};
use longhaul_proto::notice::NoticeKind;
use longhaul_storage::attributes::Inode;
use longhaul_storage::beneath::is_filling;
use longhaul_storage::notices::Notices;
use longhaul_storage::{Directory, FileKind, Special, Status, StoredFile};
use longhaul_units::rfc3339;

use super::commit::is_gone;
use super::keeper::{Before, Doing, Dressed, Dressing};
use super::landing::Destination;
use super::times::is_rounded;

/// Conditions under which a file keeps its set-user-ID and set-group-ID bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetIds {
    /// The bits are always kept: an authorized user requested it.
    Keep,
    /// A bit is kept if the file has the same user, or group, as at the source.
    #[default]
    SameOwner,
    /// The bits are dropped: the source's owner is only a claim of another party.
    Drop,
}

/// Maximum distance in seconds from the change time at which a time counts as the present.
const ABOUT_NOW_SECONDS: u64 = 2;

impl Destination {
    /// Returns the reason to refuse an entry of a kind that was not requested. The other end
    /// chooses what it sends and could otherwise create devices of a user's disks.
    pub(super) fn refuses(&self, entry: &Entry) -> Option<Failure> {
        let backups = self.backups.as_ref();
        let barred = backups.and_then(|backups| backups.refuses(entry, &self.path_of(&entry.path)));
        if barred.is_some() {
            return barred;
        }
        let keeping = self.keeper.keeping();
        let (asked, what) = match &entry.kind {
            EntryKind::Directory | EntryKind::File { .. } | EntryKind::Symlink { .. } => {
                return None;
            }
            EntryKind::Special { kind, .. } if kind.is_device() => (keeping.devices, "devices"),
            EntryKind::Special { .. } => (keeping.specials, "sockets and FIFOs"),
            EntryKind::HardLink { .. } => (keeping.hard_links, "hard links"),
        };
        let text = || format!("{}: the other end sends {what}, unasked", entry.path);
        (!asked).then(|| Failure::new(FailureKind::Other, text()))
    }

    /// True if a dry run must not reveal the attributes and lists of existing entries.
    pub(super) fn hides_attributes(&self) -> bool {
        let keeping = self.keeper.keeping();
        !self.keeper.may_compare() && (keeping.extended || keeping.acls)
    }

    /// Returns the mode of an entry with this owner, if the name may already exist.
    pub(super) fn mode_for(&self, entry: &Entry, here: Ownership, before: Before) -> u32 {
        self.mode_noting(entry, here, (before, &self.notices))
    }

    /// Returns the mode like [`Destination::mode_for`], with notices about dropped bits in
    /// `notices`.
    pub(super) fn mode_noting(
        &self,
        entry: &Entry,
        here: Ownership,
        (before, notices): (Before, &Notices),
    ) -> u32 {
        let mode = self.keeper.mode_of(entry, before);
        let bits = mode & SET_ID_BITS;
        if entry.kind == EntryKind::Directory || bits == 0 || self.set_ids == SetIds::Keep {
            return mode;
        }
        let trusted = self.set_ids == SetIds::SameOwner;
        let there = self.wanted_owner(entry).filter(|_| trusted);
        let mut kept = if trusted {
            self.keeper.named_set_ids(entry)
        } else {
            0
        };
        if there.is_some_and(|there| there.user == here.user) {
            kept |= 0o4000;
        }
        if there.is_some_and(|there| there.group == here.group) {
            kept |= 0o2000;
        }
        let dropped = bits & !kept;
        if dropped != 0 {
            let why = || self.why_dropped(entry, here, dropped);
            notices.note(NoticeKind::SetIdDropped, &entry.path, why);
        }
        mode & !dropped
    }

    /// Returns the source's owner of an entry in local numbers.
    fn wanted_owner(&self, entry: &Entry) -> Option<Ownership> {
        let attributes = entry.owner.as_deref()?;
        let (user, group) = self.keeper.owner_of(attributes);
        Some(Ownership {
            user: user.unwrap_or(attributes.user),
            group: group.unwrap_or(attributes.group),
        })
    }

    /// Returns the state that determines the mode of a file, if modes are left alone.
    fn before(&self, directory: &dyn Directory, entry: &Entry) -> Before {
        if !self.keeper.keeping().leaves_modes {
            return Before::There(0);
        }
        match directory.status_of(self.path_of(&entry.path).name()) {
            Ok(status) if status.kind == FileKind::File => Before::There(status.mode),
            _ => self.before_new(directory, 0),
        }
    }

    /// Returns the state that determines the mode of a new entry, which inherits these bits from
    /// its directory.
    fn before_new(&self, directory: &dyn Directory, inherited: u32) -> Before {
        if self.keeper.keeping().leaves_modes {
            Before::New {
                allowed: self.keeper.allowed_in(directory),
                inherited,
            }
        } else {
            Before::There(0)
        }
    }

    /// Sets, or compares, the owner, lists and attributes of an inode.
    pub(super) fn dress(
        &self,
        inode: Option<&dyn Inode>,
        entry: &Entry,
        (here, doing): (Ownership, Doing),
    ) -> io::Result<Dressed> {
        self.dress_noting(inode, entry, (here, doing, &self.notices))
    }

    /// Works like [`Destination::dress`], with notices in `notices`.
    pub(super) fn dress_noting(
        &self,
        inode: Option<&dyn Inode>,
        entry: &Entry,
        (here, doing, notices): (Ownership, Doing, &Notices),
    ) -> io::Result<Dressed> {
        let (owner, changed) = (here, false);
        if !self.keeper.dresses() {
            return Ok(Dressed { owner, changed });
        }
        let Some(inode) = inode else {
            let why = || "nothing of it can be reached there".to_owned();
            let kind = NoticeKind::AttributeNotKept;
            notices.note(kind, &entry.path, why);
            return Ok(Dressed { owner, changed });
        };
        let dressing = Dressing {
            inode,
            entry,
            notices,
            doing,
            capabilities: self.set_ids != SetIds::Drop,
        };
        self.keeper.dress(&dressing, here)
    }

    fn why_dropped(&self, entry: &Entry, here: Ownership, dropped: u32) -> String {
        let whose = match dropped & 0o4000 {
            0 => "group",
            _ => "user",
        };
        match (self.set_ids, self.wanted_owner(entry)) {
            (SetIds::SameOwner, Some(there)) => {
                let (there, here) = match dropped & 0o4000 {
                    0 => (there.group, here.group),
                    _ => (there.user, here.user),
                };
                format!("it belongs to {whose} {there} at the source, and to {whose} {here} here")
            }
            _ => format!("whether it belongs to the same {whose} at the source is not known"),
        }
    }

    /// Sets the mode and time of a new file, and compares the stored values.
    pub(super) fn finish_file(
        &self,
        directory: &dyn Directory,
        file: &dyn StoredFile,
        entry: &Entry,
    ) -> io::Result<()> {
        let before = self.before(directory, entry);
        let plain = entry.mode & SET_ID_BITS == 0 && !self.keeper.dresses();
        let owner = if plain && self.keeper.keeping().modes.is_empty() {
            Ownership::default()
        } else {
            let here = file.status()?.owner;
            self.dress(file.inode().as_deref(), entry, (here, Doing::Set))?
                .owner
        };
        let mode = self.mode_for(entry, owner, before);
        let path = &entry.path;
        let set = file.set_mode(mode);
        let mode_set = self.notices.wish(NoticeKind::ModeRefused, path, set)?;
        let set = file.set_modified(entry.modified);
        let time_set = self.notices.wish(NoticeKind::TimeRefused, path, set)?;
        let kept = file.status()?;
        if mode_set.is_some() {
            note_mode(&self.notices, path, mode, kept.mode);
        }
        if time_set.is_some() {
            self.compare_time(entry, &kept);
        }
        Ok(())
    }

    /// Returns the mode of the file that a stream becomes. A stream has no owner at the source.
    pub(super) fn stream_mode(&self, mode: u32) -> u32 {
        match self.set_ids {
            SetIds::Keep => mode,
            SetIds::SameOwner | SetIds::Drop => mode & !SET_ID_BITS,
        }
    }

    /// Sets the mode and time of a directory if they differ, and returns true if any changed. If
    /// modes are left alone, only a directory that this copy `made` gets its mode.
    pub(super) fn finish_folder(
        &self,
        directory: &dyn Directory,
        entry: &Entry,
        made: bool,
    ) -> io::Result<bool> {
        let status = directory.status()?;
        let path = &entry.path;
        let keeping = self.keeper.keeping();
        // Until it gets its list, the directory has the default list of its parent.
        let before = self.before_new(directory, status.mode & 0o2000);
        let dressed = self.dress(
            directory.inode().as_deref(),
            entry,
            (status.owner, Doing::Set),
        )?;
        let mode = self.mode_for(entry, dressed.owner, before);
        // A change of the owner or of a list may have changed the mode.
        let sets_mode = made || !keeping.leaves_modes;
        let changes_mode = sets_mode && (dressed.changed || status.mode != mode);
        let changes_time =
            !keeping.omits_directory_times && !self.is_known_to_keep(entry.modified, &status);
        if !changes_mode && !changes_time {
            return Ok(dressed.changed);
        }
        let mut mode_set = None;
        if changes_mode {
            let set = directory.set_mode(mode);
            mode_set = self.notices.wish(NoticeKind::ModeRefused, path, set)?;
        }
        let mut time_set = None;
        if changes_time {
            let set = directory.set_modified(entry.modified);
            time_set = self.notices.wish(NoticeKind::TimeRefused, path, set)?;
        }
        let kept = directory.status()?;
        if mode_set.is_some() {
            note_mode(&self.notices, path, mode, kept.mode);
        }
        if time_set.is_some() {
            self.compare_time(entry, &kept);
        }
        Ok(dressed.changed || mode_set.is_some() || time_set.is_some())
    }

    /// Gives the destination the metadata of the source that fills it.
    pub(super) fn finish_anchor(
        &self,
        directory: &dyn Directory,
        state: &AnchorState,
    ) -> io::Result<()> {
        let Ok(path) = TreePath::new(b"destination") else {
            return Ok(());
        };
        let entry = Entry {
            id: EntryId(0),
            parent: None,
            path,
            kind: EntryKind::Directory,
            mode: state.mode,
            modified: state.modified,
            owner: state.owner.clone(),
        };
        self.finish_folder(directory, &entry, false).map(drop)
    }

    /// Gives a destination that the copy created its final mode, after all entries are complete.
    /// `filling` are the permission bits that all sources which fill it share; `None` if no source
    /// does.
    pub(super) fn open_anchor(
        &self,
        directory: &dyn Directory,
        filling: Option<u32>,
    ) -> io::Result<()> {
        let status = directory.status()?;
        if !self.is_made() || !is_filling(status.mode) {
            return Ok(());
        }
        let filling = filling.unwrap_or(0o777);
        let mode = self.keeper.opened_mode(directory, filling, status.mode);
        let set = directory.set_mode(mode);
        let shown = &"destination";
        self.notices
            .wish(NoticeKind::ModeRefused, shown, set)
            .map(drop)
    }

    /// Creates a device, socket or FIFO with its temporary name.
    pub(super) fn make_special(
        &self,
        directory: &dyn Directory,
        temporary: &[u8],
        (special, entry): (Special, &Entry),
    ) -> io::Result<()> {
        directory.make_special(temporary, special)?;
        let inode = directory.inode_of(temporary);
        let is_made = |status: &Status| status.special == Some(special);
        let here = made(directory, temporary, (inode.as_deref(), is_made))?.owner;
        let dressed = self.dress(inode.as_deref(), entry, (here, Doing::Set))?;
        let before = self.before_new(directory, 0);
        let mode = self.mode_for(entry, dressed.owner, before);
        let set = inode.map_or(Ok(()), |inode| inode.set_mode(mode));
        self.notices
            .wish(NoticeKind::ModeRefused, &entry.path, set)?;
        self.date_link(directory, temporary, entry).map(drop)
    }

    /// Creates a link with its temporary name. If a cleaner removes it as a leftover, it is created
    /// again when it gets its final name.
    pub(super) fn make_link(
        &self,
        directory: &dyn Directory,
        temporary: &[u8],
        (target, entry): (&[u8], &Entry),
    ) -> io::Result<()> {
        directory.make_symlink(temporary, target)?;
        if self.keeper.dresses() {
            let inode = directory.inode_of(temporary);
            let is_made = |status: &Status| status.kind == FileKind::Symlink;
            let here = made(directory, temporary, (inode.as_deref(), is_made))?.owner;
            self.dress(inode.as_deref(), entry, (here, Doing::Set))?;
        }
        let dated = self.date_link(directory, temporary, entry);
        let dated = dated.map(drop);
        dated.or_else(|error| if is_gone(&error) { Ok(()) } else { Err(error) })
    }

    /// Sets the time of a link.
    pub(super) fn date_link(
        &self,
        directory: &dyn Directory,
        name: &[u8],
        entry: &Entry,
    ) -> io::Result<bool> {
        let set = directory.set_modified_of(name, entry.modified);
        let set = self
            .notices
            .wish(NoticeKind::TimeRefused, &entry.path, set)?;
        if set.is_some() {
            self.compare_time(entry, &directory.status_of(name)?);
        }
        Ok(set.is_some())
    }

    fn compare_time(&self, entry: &Entry, kept: &Status) {
        let (set, is) = (entry.modified, kept.modified);
        if is == set {
            return;
        }
        let from_now = is.seconds.abs_diff(kept.changed.seconds);
        let kind = if is_rounded(set, is) {
            NoticeKind::TimeRounded
        } else if from_now <= ABOUT_NOW_SECONDS {
            NoticeKind::TimeNotKept
        } else {
            NoticeKind::TimeLimited
        };
        self.notices.note(kind, &entry.path, || {
            format!("set to {}, the file system has {}", shown(set), shown(is))
        });
    }
}

/// Returns the status of an entry that was just created with a temporary name, by its handle if
/// there is one. Another user with access to the directory may have given the name to a file that
/// must not change its owner.
fn made(
    directory: &dyn Directory,
    temporary: &[u8],
    (inode, is_made): (Option<&dyn Inode>, impl Fn(&Status) -> bool),
) -> io::Result<Status> {
    let status = match inode {
        Some(inode) => inode.status()?,
        None => directory.status_of(temporary)?,
    };
    // Some file systems report 0 names.
    if is_made(&status) && status.names <= 1 {
        Ok(status)
    } else {
        Err(io::Error::other(
            "something else was given its temporary name meanwhile",
        ))
    }
}

/// Records a notice if the stored mode differs from the mode that was set.
pub(super) fn note_mode(notices: &Notices, example: &dyn Display, set: u32, kept: u32) {
    if kept == set {
        return;
    }
    let kind = if kept == set & !SET_ID_BITS {
        NoticeKind::SetIdDropped
    } else {
        NoticeKind::ModeNotKept
    };
    notices.note(kind, example, || {
        format!("set to {set:o}, the file system has {kept:o}")
    });
}

fn shown(time: Timestamp) -> String {
    let whole = rfc3339(time.seconds);
    match (time.nanoseconds, whole.strip_suffix('Z')) {
        (1.., Some(whole)) => format!("{whole}.{:09}Z", time.nanoseconds),
        _ => whole,
    }
}
