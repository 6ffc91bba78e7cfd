//! Reads files, for their digests, that the receiver has with the same size and time.

use std::io;

use longhaul_proto::manifest::Entry;
use longhaul_proto::sender::{DigestRead, Sender};
use longhaul_storage::Advice;
use longhaul_storage::failure::failure_of;
use longhaul_storage::file_data::{digest_of, read_mode_for};

use super::Sending;
use super::read::{Unread, check_unchanged};
use crate::flows::Flow;
use crate::session::Counters;

impl Sending<'_> {
    /// Runs a digester's thread.
    pub(crate) fn run_digester(&self, flow: &Flow) {
        let poll = |sender: &mut Sender, is_over| {
            if is_over {
                None
            } else {
                sender.work_mut().poll_digest()
            }
        };
        while let Some(entry) = self.next_step(flow, poll) {
            let read = flow.busy(|| self.read_digest(&entry));
            self.tell(|sender| sender.work_mut().handle_digest_read(entry.id, read));
        }
    }

    fn read_digest(&self, entry: &Entry) -> DigestRead {
        let failed = |what: &str, error: &io::Error| {
            DigestRead::Failed(failure_of(what, &entry.path.to_string(), error))
        };
        let mode = read_mode_for(self.transfer.settings.direct, entry.size());
        let opened = self.side.sources.open_parent(entry.id, &entry.path);
        let file = match opened.and_then(|(parent, name)| parent.open_file(&name, mode)) {
            Ok(file) => file,
            Err(error) => return failed("open", &error),
        };
        let unread = |unread| match unread {
            Unread::Changed(entry) => DigestRead::Changed(*entry),
            Unread::Failed(failure) => DigestRead::Failed(failure),
        };
        if let Err(changed) = check_unchanged(&self.side.origins, &*file, entry) {
            return unread(changed);
        }
        file.advise(Advice::Sequential, 0, entry.size());
        let digest = digest_of(&|| self.transfer.is_over(), &*file, entry.size());
        // A file that ends early has changed.
        if let Err(changed) = check_unchanged(&self.side.origins, &*file, entry) {
            return unread(changed);
        }
        match digest {
            Ok(digest) => {
                Counters::add(&self.transfer.counters.read_bytes, entry.size());
                DigestRead::Ready(digest)
            }
            Err(error) => failed("read", &error),
        }
    }
}
