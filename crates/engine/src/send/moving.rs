//! Removes sources that are durable at the destination, as long as they are what was read.

use std::io;

use longhaul_proto::manifest::{Entry, EntryKind};
use longhaul_proto::message::{Failure, FailureKind};
use longhaul_proto::sender::Sender;

use super::Sending;
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
        let same = self.is_same(&*parent, &name, entry).map_err(failed)?;
        if !same {
            let text = format!(
                "{shown}: it was copied, and then changed at the source, where it stays: run the \
                 same command again"
            );
            return Err(Failure::new(FailureKind::Changing, text));
        }
        parent.remove_file(&name).map_err(failed)
    }

    /// Whether a name still is what was read.
    fn is_same(&self, parent: &dyn Directory, name: &[u8], entry: &Entry) -> io::Result<bool> {
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
                Ok(check_unchanged(&self.side.origins, &*file, entry).is_ok())
            }
        }
    }
}
