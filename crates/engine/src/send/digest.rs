//! Reads, for their digests, files that the receiver has with the same size and time.

use std::io;
use std::sync::{Arc, PoisonError};

use longhaul_proto::digest::Checksum;
use longhaul_proto::manifest::Entry;
use longhaul_proto::sender::DigestRead;

use super::SendSide;
use super::read::{Unread, check_unchanged, read_mode_for};
use crate::failure::failure_of;
use crate::flows::Flow;
use crate::session::{Counters, Machine, Side, Transfer};
use crate::storage::{Advice, StoredFile};

/// Bytes read at once.
pub(crate) const CHUNK_BYTES: usize = 1 << 20;

impl Transfer {
    /// A digester's thread.
    pub(crate) fn run_digester(self: &Arc<Transfer>, flow: &Flow) {
        let Side::Sending(side) = self.side() else {
            return;
        };
        while let Some(entry) = self.next_digest(flow) {
            let read = flow.busy(|| self.read_digest(side, &entry));
            self.tell_sender(|sender| sender.handle_digest_read(entry.id, read));
        }
    }

    fn next_digest(&self, flow: &Flow) -> Option<Entry> {
        let mut shared = self.lock();
        loop {
            if shared.is_over() || !flow.is_wanted() {
                return None;
            }
            let Machine::Sending(sender) = &mut shared.machine else {
                return None;
            };
            if let Some(entry) = sender.poll_digest() {
                return Some(entry);
            }
            let waited = self.digesting.wait(shared);
            shared = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn read_digest(&self, side: &SendSide, entry: &Entry) -> DigestRead {
        let failed = |what: &str, error: &io::Error| {
            DigestRead::Failed(failure_of(what, &entry.path.to_string(), error))
        };
        let mode = read_mode_for(self.settings.direct, entry.size());
        let opened = side.sources.open_parent(entry.id, &entry.path);
        let file = match opened.and_then(|(parent, name)| parent.open_file(&name, mode)) {
            Ok(file) => file,
            Err(error) => return failed("open", &error),
        };
        let unread = |unread| match unread {
            Unread::Changed(entry) => DigestRead::Changed(*entry),
            Unread::Failed(failure) => DigestRead::Failed(failure),
        };
        if let Err(changed) = check_unchanged(&side.origins, &*file, entry) {
            return unread(changed);
        }
        file.advise(Advice::Sequential, 0, entry.size());
        let digest = digest_of(self, &*file, entry.size());
        // One that ends early has changed.
        if let Err(changed) = check_unchanged(&side.origins, &*file, entry) {
            return unread(changed);
        }
        match digest {
            Ok(digest) => {
                Counters::add(&self.counters.read_bytes, entry.size());
                DigestRead::Ready(digest)
            }
            Err(error) => failed("read", &error),
        }
    }
}

/// The digest of a file's first `size` bytes, read for it as long as the transfer continues.
///
/// # Errors
///
/// `UnexpectedEof` where it is shorter; else as `pread`, or that the transfer is over.
pub(crate) fn digest_of(
    transfer: &Transfer,
    file: &dyn StoredFile,
    size: u64,
) -> io::Result<Checksum> {
    let mut hasher = blake3::Hasher::new();
    let mut room = vec![0; CHUNK_BYTES.min(usize::try_from(size).unwrap_or(CHUNK_BYTES))];
    let mut offset = 0;
    while offset < size {
        if transfer.is_over() {
            return Err(io::Error::other("the copy ended before it was read"));
        }
        let wanted = (size - offset).min(room.len() as u64) as usize;
        let read = file.read_at(&mut room[..wanted], offset)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        hasher.update(&room[..read]);
        offset += read as u64;
    }
    Ok(Checksum::Blake3(*hasher.finalize().as_bytes()))
}
