//! Backups of deleted files: each gets its backup name, the name is made durable, and then the old
//! name is removed.

use std::io;
use std::sync::Arc;

use longhaul_proto::manifest::TreePath;
use longhaul_storage::failure::again;
use longhaul_system::queue::lock;

use super::replaced::rename_back;
use super::{Backups, Kept, link, with_remedy};
use crate::recv::ReceiveSide;
use crate::recv::folders::Folder;

impl Backups {
    /// Gives a deleted file its backup name, under the conditions of [`Backups::keep`]. Without
    /// hard links the file is renamed: its directory must not be synced before the directory of the
    /// backup.
    pub(in crate::recv) fn keep_deleted(
        &self,
        side: &ReceiveSide,
        from: &Arc<Folder>,
        path: &TreePath,
    ) -> io::Result<Kept> {
        // The file was just found, so the missing directory is that of the backup.
        let gone = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => {
                io::Error::other("the directory for its backup was removed: run it again")
            }
            _ => with_remedy(error),
        };
        let folder = match &self.place {
            None => Arc::clone(from),
            Some(place) => place.folder(side, path.parent().as_ref()).map_err(gone)?,
        };
        let mut known = lock(&self.known);
        let target = self.target(&known, &folder, path)?;
        let name: Box<[u8]> = target.name().into();
        let was_there = folder.directory().status_of(&name).is_ok();
        let mut moves = !link(side, (from, path.name()), (&folder, &name)).map_err(gone)?;
        if moves {
            let (from, to) = (from.directory(), folder.directory());
            from.rename(path.name(), &**to, &name).map_err(gone)?;
            // `rename` does not act if both names are the same inode, as a killed copy may have
            // left them.
            moves = !was_there || from.status_of(path.name()).is_err();
        }
        if was_there {
            known.renewed.add(target.clone());
        }
        self.remember(&mut known, target);
        drop(known);
        Ok(Kept {
            folder,
            name,
            target: None,
            moves,
        })
    }
}

/// Makes the backups of deleted files durable, with one sync for each directory. Returns one result
/// for each file.
pub(in crate::recv) fn sync_deleted(kept: &[Deleted<'_>]) -> Vec<io::Result<()>> {
    let mut synced: Vec<(&Arc<Folder>, io::Result<()>)> = Vec::new();
    let results = kept.iter().map(|of| {
        let folder = &of.kept.folder;
        let known = synced.iter().position(|(at, _)| Arc::ptr_eq(at, folder));
        let at = known.unwrap_or_else(|| {
            synced.push((folder, folder.sync()));
            synced.len() - 1
        });
        synced[at].1.as_ref().copied().map_err(again)
    });
    results.collect()
}

/// A deleted file with a backup.
pub(in crate::recv) struct Deleted<'a> {
    pub from: &'a Arc<Folder>,
    pub name: &'a [u8],
    pub kept: &'a Kept,
}

impl Deleted<'_> {
    /// True if the old name still exists.
    pub(in crate::recv) fn has_both_names(&self) -> bool {
        !self.kept.moves
    }

    /// Restores the old name of a file whose backup is not durable. Returns true if the old name
    /// must be made durable.
    pub(in crate::recv) fn stays(&self) -> bool {
        self.kept.moves && rename_back(&**self.from.directory(), (self.name, self.kept))
    }
}
