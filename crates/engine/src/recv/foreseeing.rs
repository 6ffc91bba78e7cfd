//! Predicts, for a dry run, which modes, times, owners and attributes of existing entries a copy
//! would change.

use std::io;

use longhaul_proto::criteria::Held;
use longhaul_proto::handshake::Operation;
use longhaul_proto::manifest::Entry;
use longhaul_proto::message::{Change, Outcome};
use longhaul_proto::receiver::Compared;
use longhaul_storage::failure::failure_of;
use longhaul_storage::{FileKind, Status};

use super::Comparer;
use super::folders::Folder;
use super::mending::{look, look_at};
use super::replacing::{Way, is_obstructed};

impl Comparer<'_> {
    /// Compares a directory at the end of its listing.
    pub(super) fn compare_directory(&self, entry: Entry) {
        if self.transfer.settings.operation == Operation::Verify {
            let result = self
                .receiving()
                .committer()
                .finish_directory(&entry)
                .map(drop);
            self.receiving().tell(|r| match result {
                Ok(()) => r.handle_directory(entry, Outcome::Unchanged),
                Err(failure) => r.handle_directory(entry, Outcome::Failed(failure)),
            });
            return;
        }
        let path = self.side.destination.path_of(&entry.path);
        let existing = self.transfer.settings.criteria.existing;
        let mut found = self.side.folders.find(Some(&path));
        if found.as_ref().is_err_and(is_obstructed) && self.receiving().remover().replaces_kinds() {
            match self.receiving().remover().clear_way(&path) {
                Ok(Way::Free) => found = Err(io::ErrorKind::NotFound.into()),
                Ok(Way::Left(held)) => {
                    self.receiving()
                        .tell(|r| r.handle_directory(entry, Outcome::Left(held)));
                    return;
                }
                Err(failure) => {
                    self.receiving()
                        .tell(|r| r.handle_directory(entry, Outcome::Failed(failure)));
                    return;
                }
            }
        }
        let planned = match found {
            Ok(folder) => Ok(self.planned_directory(&folder, &entry)),
            Err(error) if existing && error.kind() == io::ErrorKind::NotFound => {
                self.receiving()
                    .tell(|r| r.handle_directory(entry, Outcome::Left(Held::Missing)));
                return;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Some(Change::New)),
            Err(error) => {
                let shown = entry.path.to_string();
                Err(failure_of("look into the directory", &shown, &error))
            }
        };
        self.receiving().tell(|receiver| match planned {
            Ok(change) => receiver.handle_directory(entry, Outcome::Planned(change)),
            Err(failure) => receiver.handle_directory(entry, Outcome::Failed(failure)),
        });
    }

    /// Returns the change that a copy would make to an existing directory.
    fn planned_directory(&self, folder: &Folder, entry: &Entry) -> Option<Change> {
        let (destination, directory) = (&self.side.destination, folder.directory());
        if destination.hides_attributes() {
            let is_usual = destination.keeper.keeping().is_usual();
            return (!is_usual).then_some(Change::Attributes);
        }
        let status = directory.status().ok()?;
        let looked = look_at(self.side, directory.inode().as_deref(), entry, &status);
        let same = self.side.is_directory_right(entry, &status, looked);
        (!same).then_some(Change::Attributes)
    }

    /// Handles an existing entry with the source's data. In a dry run, returns the changes that a
    /// copy would make to its metadata. Otherwise the entry counts as unchanged.
    pub(super) fn planned(&self, folder: &Folder, entry: &Entry, status: &Status) -> Compared {
        if self.transfer.settings.operation != Operation::DryRun {
            return Compared::Same(None);
        }
        if self.side.destination.hides_attributes() {
            return if self.side.destination.keeper.keeping().is_usual() {
                Compared::Same(None)
            } else {
                Compared::Planned(Change::Attributes)
            };
        }
        // Notices are dropped here; the copy reports them.
        let looked = look(self.side, folder, entry, status);
        let same_time = match status.kind {
            FileKind::File => !self.is_late(entry, status),
            _ => {
                let operation = self.transfer.settings.operation;
                self.side
                    .destination
                    .keeps_as(entry.modified, status, operation)
            }
        };
        if same_time && looked.keeps(status) {
            Compared::Same(None)
        } else {
            Compared::Planned(Change::Attributes)
        }
    }
}
