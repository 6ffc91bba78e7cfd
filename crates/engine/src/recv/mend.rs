//! Gives a file that is there unchanged the owner, attributes, mode and time that it should have.

use std::io;

use longhaul_proto::manifest::Entry;
use longhaul_proto::notice::NoticeKind;

use super::ReceiveSide;
use super::folders::Folder;
use super::keeper::Doing;
use super::keeping::note_mode;
use crate::session::Transfer;
use crate::storage::{Status, StoredFile};

impl Transfer {
    /// Whether its time should follow: one within the window is right.
    pub(super) fn is_late(&self, side: &ReceiveSide, entry: &Entry, status: &Status) -> bool {
        let criteria = &self.settings.criteria;
        let (wanted, there) = (entry.modified, status.modified);
        !criteria.is_near(wanted, there)
            && (criteria.checksum || criteria.size_only)
            && !side
                .destination
                .keeps_as(wanted, status, self.settings.operation)
    }

    /// Gives a file that is there its owner, attributes, mode and time; false where that failed.
    pub(super) fn mend(
        &self,
        side: &ReceiveSide,
        folder: &Folder,
        (entry, status): (&Entry, &Status),
        file: &dyn StoredFile,
    ) -> bool {
        let late = self.is_late(side, entry, status);
        let mended = mend(side, file, entry, status);
        if late || mended == Some(true) {
            self.tell_receiver(|receiver| receiver.handle_mended());
        }
        let has_time = || !late || mend_time(side, file, entry);
        mended.is_some() && has_time() && side.ensure_up(folder).is_ok()
    }
}

/// Gives a file that is there its owner, attributes and mode; whether anything changed, `None`
/// where that failed. Another user's, who alone can set it, keeps the mode that it has.
fn mend(side: &ReceiveSide, file: &dyn StoredFile, entry: &Entry, status: &Status) -> Option<bool> {
    let destination = &side.destination;
    let owner = status.owner;
    // One that a later session fenced changes nothing.
    let set = destination.while_owned(|| -> io::Result<Option<u32>> {
        let dressed = destination.dress(file.inode().as_deref(), entry, (owner, Doing::Set))?;
        let mode = destination.mode_for(entry, dressed.owner, Some(status.mode));
        if !dressed.changed && mode == status.mode {
            return Ok(None);
        }
        let set = file.set_mode(mode);
        let kind = NoticeKind::ModeRefused;
        let set = destination.notices.wish(kind, &entry.path, set)?;
        Ok(set.map(|()| mode))
    });
    let mode = match set {
        Ok(Ok(Some(mode))) => mode,
        Ok(Ok(None)) => return Some(false),
        Ok(Err(_)) | Err(_) => return None,
    };
    let kept = file.status().ok()?;
    note_mode(&destination.notices, &entry.path, mode, kept.mode);
    let changed = kept.changed != status.changed;
    (!changed || file.sync_all().is_ok()).then_some(changed)
}

/// Gives a file that is there its time; false where that failed. Another user's keeps its own.
fn mend_time(side: &ReceiveSide, file: &dyn StoredFile, entry: &Entry) -> bool {
    let destination = &side.destination;
    let Ok(set) = destination.while_owned(|| file.set_modified(entry.modified)) else {
        return false;
    };
    let set = destination
        .notices
        .wish(NoticeKind::TimeRefused, &entry.path, set);
    set.is_ok() && file.sync_all().is_ok()
}
