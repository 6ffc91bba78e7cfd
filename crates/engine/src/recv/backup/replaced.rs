//! Backups of replaced files: each gets its backup name, the name is made durable, and then the new
//! file gets the old name.

use std::io;
use std::sync::Arc;

use longhaul_proto::manifest::TreePath;
use longhaul_proto::message::Failure;
use longhaul_storage::Directory;
use longhaul_storage::failure::failure_of;
use longhaul_system::descriptors;
use longhaul_system::queue::lock;

use super::{Kept, Known, with_remedy};
use crate::recv::folders::Folder;
use crate::recv::parts::journal_failure;
use crate::recv::{ReceiveSide, Remover};

impl ReceiveSide {
    /// Renames the old file just before a new file gets its name, if there are no hard links.
    /// Returns true if it was renamed. Call it while the session owns the anchor.
    pub(in crate::recv) fn make_way(
        &self,
        from: &Arc<Folder>,
        (name, kept): (&[u8], Option<&Kept>),
    ) -> io::Result<bool> {
        let directory = &**from.directory();
        let Some(kept) = kept.filter(|kept| kept.moves) else {
            return Ok(false);
        };
        let rename = || {
            // Holding the lock lets other threads that note a name see the final state.
            let known = self
                .destination
                .backups
                .as_ref()
                .map(|all| lock(&all.known));
            let is_of_copy = |known: &Known| {
                let target = kept.target.as_ref();
                target.is_some_and(|target| known.brought.contains(target))
            };
            if known.as_deref().is_some_and(is_of_copy) {
                let text = "the copy has the name of its backup, too: run it again";
                return Err(io::Error::other(text));
            }
            directory
                .rename(name, &**kept.folder.directory(), &kept.name)
                .map_err(with_remedy)
        };
        let sync = || {
            kept.folder.sync().inspect_err(|_| {
                rename_back(directory, (name, kept));
            })
        };
        let moved = match from {
            // The sync of one directory makes both names durable.
            from if Arc::ptr_eq(from, &kept.folder) => rename().map(|()| sync()),
            from => from.while_unsynced(|| rename().map(|()| sync())),
        };
        match moved {
            Ok(Ok(())) => Ok(true),
            Ok(Err(error)) => {
                let _ = directory.sync();
                Err(error)
            }
            // Another process removed the file.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Restores the name of the old file if the new file did not get it and no other file
    /// uses it.
    pub(in crate::recv) fn move_back(&self, directory: &dyn Directory, of: (&[u8], &Kept)) {
        if rename_back(directory, of) {
            let _ = directory.sync();
        }
    }
}

impl Remover<'_> {
    /// Makes durable backups of the files that these names will lose. Returns one result of
    /// [`Backups::keep`] for each name.
    pub(in crate::recv) fn keep_replaced(
        &self,
        names: &[(&Arc<Folder>, &TreePath)],
    ) -> Vec<Result<Option<Kept>, Failure>> {
        let Some(backups) = &self.side.destination.backups else {
            return names.iter().map(|_| Ok(None)).collect();
        };
        let failed = |path: &TreePath, error: &io::Error| {
            failure_of("keep a backup of", &path.to_string(), error)
        };
        let opened = names.iter().map(|(from, path)| {
            backups.note(path);
            let folder =
                descriptors::patiently_around(|_| backups.folder(&self.receiving(), from, path));
            folder.map_err(|error| failed(path, &with_remedy(error)))
        });
        let opened: Vec<_> = opened.collect();
        let kept = self.side.destination.while_owned(|| {
            let keep = |((from, path), folder): (&(&Arc<Folder>, &TreePath), _)| {
                let folder: Result<Option<Arc<Folder>>, Failure> = folder;
                let Some(folder) = folder? else {
                    return Ok(None);
                };
                let kept = backups.keep(self.side, (from, path), folder);
                kept.map(Some).map_err(|error| failed(path, &error))
            };
            names.iter().zip(opened).map(keep).collect::<Vec<_>>()
        });
        let mut kept = match kept {
            Ok(kept) => kept,
            Err(error) => {
                let failed =
                    |(_, path): &(_, &TreePath)| Err(journal_failure(&path.to_string(), &error));
                return names.iter().map(failed).collect();
            }
        };
        let mut synced: Vec<(Arc<Folder>, io::Result<()>)> = Vec::new();
        for ((_, path), result) in names.iter().zip(&mut kept) {
            let Ok(Some(of)) = result else { continue };
            let mut known = synced.iter();
            let known = known.position(|(done, _)| Arc::ptr_eq(done, &of.folder));
            let at = known.unwrap_or_else(|| {
                synced.push((Arc::clone(&of.folder), of.folder.sync()));
                synced.len() - 1
            });
            if let Err(error) = &synced[at].1 {
                *result = Err(failed(path, error));
            }
        }
        kept
    }
}

/// Gives a renamed file its old name, unless another file uses the name. If this fails, the file
/// keeps its backup name.
pub(super) fn rename_back(directory: &dyn Directory, (name, kept): (&[u8], &Kept)) -> bool {
    let there = kept.folder.directory();
    is_free(directory, name) && there.rename(&kept.name, directory, name).is_ok()
}

fn is_free(directory: &dyn Directory, name: &[u8]) -> bool {
    let status = directory.status_of(name);
    status.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}
