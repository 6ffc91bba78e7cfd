//! Hard links. Each is created with a temporary name after its target is complete, and then
//! renamed, so that a reader finds either the old or the new file.

use std::io;
use std::sync::atomic::Ordering;

use longhaul_proto::manifest::{Entry, EntryId, EntryKind, TreePath};
use longhaul_proto::message::{Failure, FailureKind, Outcome};
use longhaul_storage::failure::failure_of;
use longhaul_storage::journal::temporary;
use longhaul_storage::{Directory, FileKind};
use longhaul_system::queue::lock;
use rustix::io::Errno;

use super::commit::{Staged, StagedFile};
use super::parts::journal_failure;
use super::{Committer, ReceiveSide};

/// Creates a hard link to a path beneath the anchor.
pub(super) fn make(
    side: &ReceiveSide,
    target: &TreePath,
    (directory, name): (&dyn Directory, &[u8]),
) -> io::Result<()> {
    let target = side.destination.path_of(target);
    let above = side.folders.find_in_copy(target.parent().as_ref())?;
    let first = side.replacements.name_now(&target);
    above.directory().link(&first, directory, name)
}

/// True if two paths beneath the anchor name one inode.
pub(super) fn are_one(side: &ReceiveSide, path: &TreePath, target: &TreePath) -> io::Result<bool> {
    let status = |path: &TreePath| {
        let folder = side.folders.find(path.parent().as_ref())?;
        folder.directory().status_of(path.name())
    };
    let (own, first) = (
        status(&side.destination.path_of(path))?,
        status(&side.destination.path_of(target))?,
    );
    let place = |status: longhaul_storage::Status| (status.device, status.inode);
    Ok(place(own) == place(first) && own.kind != FileKind::Directory)
}

impl ReceiveSide {
    /// Checks that a hard link names an announced entry, and not another file beneath the anchor.
    fn tie(&self, entry: &Entry, (first, target): (EntryId, &TreePath)) -> Result<(), Failure> {
        let shown = entry.path.to_string();
        let tied = match &self.announced {
            Some(announced) => lock(announced).is(first, target),
            None => Ok(false),
        };
        match tied {
            Ok(true) => Ok(()),
            Ok(false) => {
                let text = format!(
                    "{shown}: the other end calls it another name of {target}, which is not what it \
                     sent under that number: use the same release of longhaul on both ends"
                );
                Err(Failure::new(FailureKind::Other, text))
            }
            Err(error) => Err(failure_of("keep track of the names of", &shown, &error)),
        }
    }
}

impl Committer<'_> {
    /// Creates a hard link, unless the name already is one.
    pub(super) fn link(&self, entry: Entry) {
        let EntryKind::HardLink { target, first } = &entry.kind else {
            return;
        };
        if let Err(failure) = self.side.tie(&entry, (*first, target)) {
            let done = vec![(entry, Outcome::Failed(failure))];
            self.receiving()
                .tell(|receiver| receiver.handle_packed(done));
            return;
        }
        let done = match are_one(self.side, &entry.path, target) {
            Ok(true) => Ok(None),
            Ok(false) | Err(_) => self.stage_link(&entry, target).map(Some),
        };
        match done {
            Ok(Some(file)) => {
                let _writing = self.side.staging.write();
                self.side.staging.push(Staged {
                    entry,
                    file,
                    digest: None,
                });
            }
            Ok(None) => {
                let done = vec![(entry, Outcome::Unchanged)];
                self.receiving()
                    .tell(|receiver| receiver.handle_packed(done));
            }
            Err(failure) => {
                if self.receiving().end_if_lost() {
                    return;
                }
                let done = vec![(entry, Outcome::Failed(failure))];
                self.receiving()
                    .tell(|receiver| receiver.handle_packed(done));
            }
        }
    }

    fn stage_link(&self, entry: &Entry, target: &TreePath) -> Result<StagedFile, Failure> {
        let shown = entry.path.to_string();
        if !self.side.destination.keeper.may_link() {
            let text = format!(
                "{shown}: cannot become another name of {target}: that needs the right \"read\", too; \
                 leave out -H"
            );
            return Err(Failure::new(FailureKind::Other, text));
        }
        let owned = self.side.destination.ensure_owned();
        owned.map_err(|error| journal_failure(&shown, &error))?;
        let path = self.side.destination.path_of(&entry.path);
        let folder = self.side.folders.make(path.parent().as_ref());
        let folder = folder.map_err(|error| failure_of("make its directory", &shown, &error))?;
        let number = self.side.temporaries.fetch_add(1, Ordering::Relaxed);
        let name = temporary(self.side.destination.owner.session_number(), number);
        let made = make(self.side, target, (&**folder.directory(), &name));
        made.map_err(|error| link_failure(&shown, target, &error))?;
        Ok(StagedFile {
            folder,
            temporary: name,
            name: path,
            file: None,
        })
    }
}

/// Returns the failure of creating a hard link.
fn link_failure(shown: &str, target: &TreePath, error: &io::Error) -> Failure {
    let remedy = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::MLINK) => "that has as many names as the file system allows",
        Some(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => {
            "the file system has no hard links, or not for this user: leave out -H"
        }
        Some(Errno::XDEV) => "they are on two file systems: leave out -H",
        _ => return failure_of("make another name of an earlier file", shown, error),
    };
    let text = format!("{shown}: cannot become another name of {target} ({error}): {remedy}");
    Failure::new(FailureKind::Other, text)
}
