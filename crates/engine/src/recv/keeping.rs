//! What an entry gets beside its data: mode and time. Both are wishes: where a file system
//! refuses one, or keeps something else, that is noted and the data stay. What was kept is
//! looked at after it was set.

use std::fmt::Display;
use std::io;

use longhaul_proto::manifest::{Entry, EntryKind, Ownership, SET_ID_BITS, Timestamp};
use longhaul_proto::notice::NoticeKind;
use longhaul_units::rfc3339;

use super::commit::is_gone;
use super::landing::Destination;
use super::times::is_rounded;
use crate::notices::Notices;
use crate::storage::{Directory, Status, StoredFile};

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
    /// The mode that a file of this owner gets here.
    pub(super) fn mode_for(&self, entry: &Entry, here: Ownership) -> u32 {
        let is_file = matches!(entry.kind, EntryKind::File { .. });
        let bits = entry.mode & SET_ID_BITS;
        if !is_file || bits == 0 || self.set_ids == SetIds::Keep {
            return entry.mode;
        }
        let trusted = self.set_ids == SetIds::SameOwner;
        let there = entry.owner.as_deref().filter(|_| trusted);
        let mut kept = 0;
        if there.is_some_and(|there| there.user == here.user) {
            kept |= 0o4000;
        }
        if there.is_some_and(|there| there.group == here.group) {
            kept |= 0o2000;
        }
        let dropped = bits & !kept;
        if dropped != 0 {
            self.notices
                .note(NoticeKind::SetIdDropped, &entry.path, || {
                    self.why_dropped(entry, here, dropped)
                });
        }
        entry.mode & !dropped
    }

    fn why_dropped(&self, entry: &Entry, here: Ownership, dropped: u32) -> String {
        let whose = match dropped & 0o4000 {
            0 => "group",
            _ => "user",
        };
        match (self.set_ids, entry.owner.as_deref()) {
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
    pub(super) fn finish_file(&self, file: &dyn StoredFile, entry: &Entry) -> io::Result<()> {
        let mode = match entry.mode & SET_ID_BITS {
            0 => entry.mode,
            _ => self.mode_for(entry, file.status()?.owner),
        };
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

    /// The same of a directory, where it has others.
    pub(super) fn finish_folder(&self, directory: &dyn Directory, entry: &Entry) -> io::Result<()> {
        let status = directory.status()?;
        let path = &entry.path;
        let changes_mode = status.mode != entry.mode;
        let changes_time = !self.is_known_to_keep(entry.modified, &status);
        if !changes_mode && !changes_time {
            return Ok(());
        }
        let mut mode_set = None;
        if changes_mode {
            let set = directory.set_mode(entry.mode);
            mode_set = self.notices.wish(NoticeKind::ModeRefused, path, set)?;
        }
        let mut time_set = None;
        if changes_time {
            let set = directory.set_modified(entry.modified);
            time_set = self.notices.wish(NoticeKind::TimeRefused, path, set)?;
        }
        let kept = directory.status()?;
        if mode_set.is_some() {
            note_mode(&self.notices, path, entry.mode, kept.mode);
        }
        if time_set.is_some() {
            self.compare_time(entry, &kept);
        }
        Ok(())
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
        let dated = self.date_link(directory, temporary, entry);
        dated.or_else(|error| if is_gone(&error) { Ok(()) } else { Err(error) })
    }

    /// Gives a link its time.
    pub(super) fn date_link(
        &self,
        directory: &dyn Directory,
        name: &[u8],
        entry: &Entry,
    ) -> io::Result<()> {
        let set = directory.set_modified_of(name, entry.modified);
        let set = self
            .notices
            .wish(NoticeKind::TimeRefused, &entry.path, set)?;
        if set.is_some() {
            self.compare_time(entry, &directory.status_of(name)?);
        }
        Ok(())
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

/// Notes where a mode that was set is another one.
pub(super) fn note_mode(notices: &Notices, example: &dyn Display, set: u32, kept: u32) {
    if kept == set {
        return;
    }
    let kind = match kept == set & !SET_ID_BITS {
        true => NoticeKind::SetIdDropped,
        false => NoticeKind::ModeNotKept,
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
