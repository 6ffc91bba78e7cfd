//! What a directory holds that goes: it goes first, and then the directory, unless anything in it
//! stays.

use std::io;
use std::sync::Arc;

use longhaul_proto::manifest::{RESERVED_PREFIX, TreePath};
use longhaul_proto::message::{Failure, FailureKind};
use longhaul_storage::Status;
use longhaul_storage::failure::failure_of;
use longhaul_storage::listing::SortedListing;

use super::super::folders::Folder;
use super::plan::{Here, Look, Place, Plan};
use super::protection::{At, Force};
use super::record::{Seen, Step};

/// Directories within each other that are looked through, at most: each is kept open.
const MOST_LEVELS: usize = 100;

/// A directory that the source does not have.
struct Level {
    place: Place,
    seen: Seen,
    listing: SortedListing,
    /// Something in it stays, and so does it.
    kept: bool,
    /// An entry of the copy takes its place.
    is_replaced: bool,
}

impl Plan {
    /// A directory that the source does not have: what it holds first, and itself if nothing in
    /// it stays.
    pub(super) fn expand(
        &mut self,
        here: Here<'_>,
        group: u64,
        (path, status): (TreePath, Status),
        (above, is_replaced): (&Place, bool),
    ) {
        let mut levels: Vec<Level> = Vec::new();
        match self.enter(here, 0, (&path, &status), (&above.force, &above.folder)) {
            Ok(Some(level)) => levels.push(Level {
                is_replaced,
                ..level
            }),
            Ok(None) => return,
            Err(failure) => return self.push(group, &Step::Stays(path, failure)),
        }
        while let Some(level) = levels.last_mut() {
            if here.transfer.is_over() || self.broken.is_some() {
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
                // Somebody may be at work there; `clean` knows.
                level.kept = true;
                continue;
            }
            match self.look(here, &level.place, &listed.name) {
                Look::Gone => {}
                Look::Kept => level.kept = true,
                Look::Stays(path, failure) => {
                    level.kept = true;
                    self.push(group, &Step::Stays(path, failure));
                }
                Look::File(path, seen) => {
                    // Its backup stays there.
                    let backups = here.side.destination.backups.as_ref();
                    level.kept |= backups.is_some_and(|backups| {
                        backups.stay_beside() && !backups.is_backup(&listed.name)
                    });
                    self.remove(group, path, seen);
                }
                Look::Directory(path, status) => {
                    let (force, folder) =
                        (level.place.force.clone(), Arc::clone(&level.place.folder));
                    let depth = levels.len();
                    match self.enter(here, depth, (&path, &status), (&force, &folder)) {
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

    /// The last of these was listed to its end.
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

    /// `None` if it stays on purpose.
    fn enter(
        &self,
        here: Here<'_>,
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
            let folder = here.side.folders.find(Some(path))?;
            let directory = &**folder.directory();
            let found = directory.status()?;
            if (found.inode, found.device) != (status.inode, status.device) {
                return Err(io::Error::other("another one has its name now"));
            }
            // Also one of the same file system, as a bind mount is.
            if directory.mount() != parent.directory().mount() {
                if self.protection.one_file_system {
                    return Ok(None);
                }
                return Err(io::Error::other("it is a mount point: unmount it first"));
            }
            let at = At {
                anchor: &**here.side.folders.anchor().directory(),
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
        // The directory of backups may be made in it before it is empty.
        let barred = here.side.destination.barred();
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
