//! Plans the deletion of whole directories: first their content, and then each directory, unless an
//! entry in it stays.

use std::io;
use std::sync::Arc;

use longhaul_proto::manifest::{RESERVED_PREFIX, TreePath};
use longhaul_proto::message::{Failure, FailureKind};
use longhaul_storage::Status;
use longhaul_storage::failure::failure_of;
use longhaul_storage::listing::SortedListing;

use super::super::Receiving;
use super::super::folders::Folder;
use super::plan::{Look, Place, Plan};
use super::protection::{At, Force};
use super::record::{Seen, Step};

/// Maximum depth of nested directories that are searched: each is kept open.
const MOST_LEVELS: usize = 100;

/// A directory that the source lacks.
struct Level {
    place: Place,
    seen: Seen,
    listing: SortedListing,
    /// True if an entry in it stays, and so the directory stays, too.
    kept: bool,
    /// True if an entry of the copy replaces the directory.
    is_replaced: bool,
}

impl Plan {
    /// Plans the deletion of a directory that the source lacks: first its content, and then the
    /// directory itself if no entry in it stays.
    pub(super) fn expand(
        &mut self,
        receiving: &Receiving<'_>,
        group: u64,
        (path, status): (TreePath, Status),
        (above, is_replaced): (&Place, bool),
    ) {
        let mut levels: Vec<Level> = Vec::new();
        let Place { force, folder, .. } = above;
        match self.enter(receiving, 0, (&path, &status), (force, folder)) {
            Ok(Some(level)) => levels.push(Level {
                is_replaced,
                ..level
            }),
            Ok(None) => return,
            Err(failure) => return self.push(group, &Step::Stays(path, failure)),
        }
        while let Some(level) = levels.last_mut() {
            if receiving.transfer.is_over() || self.broken.is_some() {
                return;
            }
            let Some(listed) = level.listing.next() else {
                self.leave(group, &mut levels);
                continue;
            };
            let path = level.place.path.clone();
            let listed = match listed {
                Ok(listed) => listed,
                Err(error) => {
                    level.kept = true;
                    self.stays_in(group, path, &error);
                    self.leave(group, &mut levels);
                    continue;
                }
            };
            if listed.name.starts_with(RESERVED_PREFIX) {
                // Another process may be using the name; `longhaul clean` can tell.
                level.kept = true;
                continue;
            }
            match self.look(receiving, &level.place, &listed.name) {
                Look::Gone => {}
                Look::Kept => level.kept = true,
                Look::Stays(path, failure) => {
                    level.kept = true;
                    self.push(group, &Step::Stays(path, failure));
                }
                Look::File(path, seen) => {
                    // The backup of the file stays in this directory.
                    let backups = receiving.side.destination.backups.as_ref();
                    level.kept |= backups.is_some_and(|backups| {
                        backups.stay_beside() && !backups.is_backup(&listed.name)
                    });
                    self.remove(group, path, seen);
                }
                Look::Directory(path, status) => {
                    let (force, folder) =
                        (level.place.force.clone(), Arc::clone(&level.place.folder));
                    let depth = levels.len();
                    match self.enter(receiving, depth, (&path, &status), (&force, &folder)) {
                        Ok(Some(level)) => levels.push(level),
                        Ok(None) => {
                            if let Some(level) = levels.last_mut() {
                                level.kept = true;
                            }
                        }
                        Err(failure) => {
                            if let Some(level) = levels.last_mut() {
                                level.kept = true;
                            }
                            self.push(group, &Step::Stays(path, failure));
                        }
                    }
                }
            }
        }
    }

    /// Ends the innermost directory.
    fn leave(&mut self, group: u64, levels: &mut Vec<Level>) {
        let Some(level) = levels.pop() else { return };
        match (level.kept, level.place.path) {
            (false, Some(path)) if level.is_replaced => {
                self.count += 1;
                self.push(group, &Step::Replace(path, level.seen));
            }
            (false, Some(path)) => self.remove(group, path, level.seen),
            _ => {
                if let Some(above) = levels.last_mut() {
                    above.kept = true;
                }
            }
        }
    }

    /// Opens a directory; `None` if it stays on purpose.
    fn enter(
        &self,
        receiving: &Receiving<'_>,
        depth: usize,
        (path, status): (&TreePath, &Status),
        (above, parent): (&Force, &Folder),
    ) -> Result<Option<Level>, Failure> {
        if depth >= MOST_LEVELS {
            let text = format!(
                "{path}: stays, since more than {MOST_LEVELS} directories lie within each other \
                 there: delete it yourself"
            );
            return Err(Failure::new(FailureKind::Other, text));
        }
        let open = || {
            let folder = receiving.side.folders.find(Some(path))?;
            let directory = &**folder.directory();
            let found = directory.status()?;
            if (found.inode, found.device) != (status.inode, status.device) {
                return Err(io::Error::other("another one has its name now"));
            }
            // A bind mount has the same device, so mounts are compared.
            if directory.mount() != parent.directory().mount() {
                if self.protection.one_file_system {
                    return Ok(None);
                }
                return Err(io::Error::other("it is a mount point: unmount it first"));
            }
            let at = At {
                anchor: &**receiving.side.folders.anchor().directory(),
                here: Some(path),
                source: Some(&self.at_source(path)),
            };
            let force = self.protection.enter(above, (directory, &[]), &at)?;
            let listing = SortedListing::open_nested(directory, depth + 1)?;
            Ok(Some((folder, force, listing)))
        };
        let opened = open();
        let opened = opened.map_err(|error| failure_of("list", &path.to_string(), &error));
        let Some((folder, force, listing)) = opened? else {
            return Ok(None);
        };
        // The directory of backups may be created in it before it is empty.
        let barred = receiving.side.destination.barred();
        let kept = barred.is_some_and(|barred| path.is_above(barred));
        Ok(Some(Level {
            place: Place {
                path: Some(path.clone()),
                folder,
                force,
                device: status.device,
            },
            seen: Seen::of(status),
            listing,
            kept,
            is_replaced: false,
        }))
    }
}
