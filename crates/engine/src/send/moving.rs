//! Removes sources that are durable at the destination, as long as they are what was read.

use std::io;

use longhaul_proto::manifest::{Entry, EntryKind};
use longhaul_proto::message::{Failure, FailureKind};
use longhaul_proto::sender::Sender;

use super::Sending;
use super::origin::Origins;
use super::read::check_unchanged;
use crate::failure::failure_of;
use crate::flows::Flow;
use crate::storage::{DataMode, Directory, FileKind, Special};

impl Sending<'_> {
    /// The remover's thread.
    pub(crate) fn run_remover(&self, flow: &Flow) {
        // What is durable at the destination is removed even if the session is over by then.
        let poll = |sender: &mut Sender, _| sender.poll_moved();
        while let Some(entry) = self.next_step(flow, poll) {
            let result = flow.busy(|| self.remove(&entry));
            self.transfer
                .tell_sender(|sender| sender.handle_moved(entry, result));
        }
    }

    fn remove(&self, entry: &Entry) -> Result<(), Failure> {
        let shown = entry.path.to_string();
        let failed = |error: io::Error| {
            let failure = failure_of("remove the source", &shown, &error);
            let text = format!("{} (it was copied)", failure.text);
            Failure::new(failure.kind, text)
        };
        let opened = self.side.sources.open_parent(entry.id, &entry.path);
        let (parent, name) = opened.map_err(failed)?;
        let same = is_same(&self.side.origins, (&*parent, &name), entry);
        let same = same.map_err(failed)?;
        if !same {
            let text = format!(
                "{shown}: it was copied, and then changed at the source, where it stays: run the \
                 same command again"
            );
            return Err(Failure::new(FailureKind::Changing, text));
        }
        parent.remove_file(&name).map_err(failed)
    }
}

/// Whether a name still is what was read.
fn is_same(
    origins: &Origins,
    (parent, name): (&dyn Directory, &[u8]),
    entry: &Entry,
) -> io::Result<bool> {
    match &entry.kind {
        // Copies with hard links are not moved.
        EntryKind::Directory | EntryKind::HardLink { .. } => Ok(false),
        EntryKind::Special { kind, major, minor } => {
            let device = (*major, *minor);
            let special = Special {
                kind: *kind,
                device,
            };
            Ok(parent.status_of(name)?.special == Some(special))
        }
        EntryKind::Symlink { target } => {
            let status = parent.status_of(name)?;
            Ok(status.kind == FileKind::Symlink
                && status.modified == entry.modified
                && *parent.read_symlink(name)? == target[..])
        }
        EntryKind::File { .. } => {
            let file = parent.open_file(name, DataMode::Buffered)?;
            Ok(check_unchanged(origins, &*file, entry).is_ok())
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use longhaul_proto::manifest::{EntryId, SpecialKind, TreePath};

    use super::*;
    use crate::storage::Creation;
    use crate::storage::forgetting::ForgettingStorage;

    fn write(root: &Arc<dyn Directory>, name: &[u8], creation: Creation) {
        let file = root.create_file(name, creation, DataMode::Buffered);
        file.unwrap().write_at(b"data", 0).unwrap();
    }

    /// What has a name now, as it was read.
    fn entry(root: &Arc<dyn Directory>, name: &[u8]) -> Entry {
        let status = root.status_of(name).unwrap();
        let kind = match status.kind {
            FileKind::Symlink => EntryKind::Symlink {
                target: root.read_symlink(name).unwrap().into(),
            },
            _ => Origins::default().kind_of(&status),
        };
        Entry {
            id: EntryId(0),
            parent: None,
            path: TreePath::new(name).unwrap(),
            kind,
            mode: status.mode,
            modified: status.modified,
            owner: None,
        }
    }

    fn is_still(root: &Arc<dyn Directory>, entry: &Entry) -> bool {
        let place = (&**root, entry.path.name());
        is_same(&Origins::default(), place, entry).unwrap_or(false)
    }

    /// Each change that somebody makes between the last look and the removal.
    #[test]
    fn only_what_was_read_is_removed() {
        let root = ForgettingStorage::new().root();
        let make = |name: &[u8]| match name {
            b"file" => write(&root, name, Creation::New),
            _ => root.make_symlink(name, b"here").unwrap(),
        };
        let rewrite = || write(&root, b"file", Creation::Existing);
        let time = |name: &[u8]| {
            let then = root.status_of(name).unwrap().modified;
            let later = longhaul_proto::manifest::Timestamp {
                seconds: then.seconds + 1,
                ..then
            };
            root.set_modified_of(name, later).unwrap();
        };
        let replace = |name: &[u8], target: Option<&[u8]>| {
            let before = root.status_of(name).unwrap().modified;
            root.remove_file(name).unwrap();
            match target {
                Some(target) => root.make_symlink(name, target).unwrap(),
                None => write(&root, name, Creation::New),
            }
            // Even if it has the same time.
            root.set_modified_of(name, before).unwrap();
        };
        let changes: [(&[u8], &dyn Fn()); 7] = [
            (b"file", &rewrite),
            (b"file", &|| time(b"file")),
            (b"file", &|| replace(b"file", None)),
            (b"file", &|| replace(b"file", Some(b"here"))),
            (b"link", &|| time(b"link")),
            (b"link", &|| replace(b"link", Some(b"there"))),
            (b"link", &|| replace(b"link", None)),
        ];
        for (number, (name, change)) in changes.into_iter().enumerate() {
            make(name);
            let read = entry(&root, name);
            assert!(is_still(&root, &read), "{number}");
            change();
            assert!(!is_still(&root, &read), "{number}");
            root.remove_file(name).unwrap();
            assert!(!is_still(&root, &read), "{number}");
        }
    }

    #[test]
    fn neither_directories_nor_further_names_are_removed() {
        let root = ForgettingStorage::new().root();
        write(&root, b"file", Creation::New);
        let file = entry(&root, b"file");
        let further = EntryKind::HardLink {
            target: file.path.clone(),
            first: EntryId(0),
        };
        let device = EntryKind::Special {
            kind: SpecialKind::Fifo,
            major: 0,
            minor: 0,
        };
        for kind in [EntryKind::Directory, further, device] {
            let entry = Entry {
                kind,
                ..file.clone()
            };
            assert!(!is_still(&root, &entry), "{entry:?}");
        }
    }
}
