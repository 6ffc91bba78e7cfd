//! What an entry gets beside its data: mode and time. Both are wishes: where a file system
//! refuses one, or keeps something else, that is noted and the data stay. What was kept is
//! looked at after it was set.

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

/// When a file keeps a set-user-ID or set-group-ID bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetIds {
    /// Always: somebody asked for it who may.
    Keep,
    /// Where the file belongs to the user, or group, that it belongs to at the source.
    #[default]
    SameOwner,
    /// Never: who owns the source is the word of somebody else.
    Drop,
}

/// Seconds between a time and that of a file's last change up to which it is taken for "now".
const ABOUT_NOW_SECONDS: u64 = 2;

impl Destination {
    /// Why an entry of a kind that nobody asked for does not come here. The other end says what it
    /// sends, and could make devices of a user's disks.
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

    /// Whether a dry run must not say which attributes and lists an entry has here.
    pub(super) fn hides_attributes(&self) -> bool {
        let keeping = self.keeper.keeping();
        !self.keeper.may_compare() && (keeping.extended || keeping.acls)
    }

    /// The mode that an entry of this owner gets here, where something may have one already.
    pub(super) fn mode_for(&self, entry: &Entry, here: Ownership, before: Before) -> u32 {
        self.mode_noting(entry, here, (before, &self.notices))
    }

    /// The same, with what is dropped noted there.
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

    /// Who owns an entry at the source, by the numbers that count here.
    fn wanted_owner(&self, entry: &Entry) -> Option<Ownership> {
        let attributes = entry.owner.as_deref()?;
        let (user, group) = self.keeper.owner_of(attributes);
        Some(Ownership {
            user: user.unwrap_or(attributes.user),
            group: group.unwrap_or(attributes.group),
        })
    }

    /// What a file of a directory gets its mode by, where modes are left alone.
    fn before(&self, directory: &dyn Directory, entry: &Entry) -> Before {
        if !self.keeper.keeping().leaves_modes {
            return Before::There(0);
        }
        match directory.status_of(self.path_of(&entry.path).name()) {
            Ok(status) if status.kind == FileKind::File => Before::There(status.mode),
            _ => self.before_new(directory, 0),
        }
    }

    /// The same of what is new in a directory, and has these bits from it.
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

    /// Gives an inode its owner, lists and attributes, or sees whether it has them.
    pub(super) fn dress(
        &self,
        inode: Option<&dyn Inode>,
        entry: &Entry,
        (here, doing): (Ownership, Doing),
    ) -> io::Result<Dressed> {
        self.dress_noting(inode, entry, (here, doing, &self.notices))
    }

    /// The same, with what is not kept noted there.
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

    /// Gives a new file its mode and time, and looks at what it has then.
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

    /// The mode of the file that a stream becomes. It has no owner at the source.
    pub(super) fn stream_mode(&self, mode: u32) -> u32 {
        match self.set_ids {
            SetIds::Keep => mode,
            SetIds::SameOwner | SetIds::Drop => mode & !SET_ID_BITS,
        }
    }

    /// The same of a directory, where it has others. Where modes are left alone, only one that this
    /// copy `made` gets one.
    pub(super) fn finish_folder(
        &self,
        directory: &dyn Directory,
        entry: &Entry,
        made: bool,
    ) -> io::Result<bool> {
        let status = directory.status()?;
        let path = &entry.path;
        let keeping = self.keeper.keeping();
        // It has the default list of the directory that it is in until it gets its own.
        let before = self.before_new(directory, status.mode & 0o2000);
        let dressed = self.dress(
            directory.inode().as_deref(),
            entry,
            (status.owner, Doing::Set),
        )?;
        let mode = self.mode_for(entry, dressed.owner, before);
        // A change of the owner or of a list may have changed it.
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

    /// Gives the destination what the source that fills it has.
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

    /// Opens the destination to others once everything in it is done, if the copy made it.
    /// `filling` are the permission bits that all sources have that fill it; `None` if none does.
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

    /// Makes a device, socket or FIFO under its temporary name.
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

    /// Makes a link under its temporary name. One that was taken for a leftover meanwhile is
    /// made again when it gets its own.
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

    /// Gives a link its time.
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
        let kind = match is_rounded(set, is) {
            true => NoticeKind::TimeRounded,
            false if from_now <= ABOUT_NOW_SECONDS => NoticeKind::TimeNotKept,
            false => NoticeKind::TimeLimited,
        };
        self.notices.note(kind, &entry.path, || {
            format!("set to {}, the file system has {}", shown(set), shown(is))
        });
    }
}

/// What was just made under a temporary name, by its handle where there is one: somebody who may
/// write into the directory may have given the name to something else, which is not theirs to have
/// given away.
fn made(
    directory: &dyn Directory,
    temporary: &[u8],
    (inode, is_made): (Option<&dyn Inode>, impl Fn(&Status) -> bool),
) -> io::Result<Status> {
    let status = match inode {
        Some(inode) => inode.status()?,
        None => directory.status_of(temporary)?,
    };
    // Some file systems count none.
    if is_made(&status) && status.names <= 1 {
        Ok(status)
    } else {
        Err(io::Error::other(
            "something else was given its temporary name meanwhile",
        ))
    }
}

/// Notes where a mode that was set is another one.
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
