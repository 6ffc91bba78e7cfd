//! Backups of what is deleted: each gets its other name, that is made durable, and then the old
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
    /// Gives what is deleted its backup's name, too. If there are no further names, it is renamed:
    /// its directory must not be synced before the backup's. As [`Backups::keep`].
    pub(in crate::recv) fn keep_deleted(
        &self,
        side: &ReceiveSide,
        from: &Arc<Folder>,
        path: &TreePath,
    ) -> io::Result<Kept> {
        // What has the name was just looked at: what is missing is the directory of backups.
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
            // Of two names of one inode the kernel renames none: a killed copy has linked it.
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

/// Makes the backups of what is deleted durable, each directory once; one result for each.
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

/// What is deleted, and has a backup.
pub(in crate::recv) struct Deleted<'a> {
    pub from: &'a Arc<Folder>,
    pub name: &'a [u8],
    pub kept: &'a Kept,
}

impl Deleted<'_> {
    /// The old name still leads to it.
    pub(in crate::recv) fn has_both_names(&self) -> bool {
        !self.kept.moves
    }

    /// Its backup is not durable: it gets its old name again. True if that is to be made durable.
    pub(in crate::recv) fn stays(&self) -> bool {
        self.kept.moves && rename_back(&**self.from.directory(), (self.name, self.kept))
    }
}
