//! Reads files for their digests if the receiver has files with the same size and time. The
//! receiver compares its contents with the digests.

use std::collections::VecDeque;

use super::{Sender, Stage};
use crate::digest::Checksum;
use crate::manifest::{Entry, EntryId, EntryKind};
use crate::message::{Failure, MAXIMUM_LISTED_ENTRIES};

/// Result of reading a file for its digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DigestRead {
    /// The file was read and has not changed since the walk.
    Ready(Checksum),
    /// The file changed. This is its new state.
    Changed(Entry),
    /// The file cannot be read.
    Failed(Failure),
}

/// Files to read, and digests to send.
#[derive(Debug, Default)]
pub(super) struct Comparing {
    unread: VecDeque<EntryId>,
    digests: Vec<(EntryId, Checksum)>,
}

impl Comparing {
    pub fn has_digests(&self) -> bool {
        !self.digests.is_empty()
    }

    /// Removes and returns the digests for one message.
    pub fn take_digests(&mut self) -> Option<Vec<(EntryId, Checksum)>> {
        let count = self.digests.len().min(MAXIMUM_LISTED_ENTRIES);
        (count > 0).then(|| self.digests.drain(..count).collect())
    }
}

impl Sender {
    /// Queues a file whose digest the receiver requested.
    pub(super) fn compare(&mut self, id: EntryId) {
        let Some(tracked) = self.entries.get_mut(&id) else {
            return;
        };
        if !matches!(tracked.stage, Stage::Asked) {
            return;
        }
        match tracked.entry.kind {
            EntryKind::File { .. } => {
                tracked.stage = Stage::Compared;
                self.comparing.unread.push_back(id);
            }
            // The entry has no digest.
            _ => self.route(id),
        }
    }

    /// True if [`Sender::poll_digest`] may return a file.
    pub fn has_unread_digest(&self) -> bool {
        !self.comparing.unread.is_empty()
    }

    /// Returns the next file to read for its digest. Its reader reports to
    /// [`Sender::handle_digest_read`].
    pub fn poll_digest(&mut self) -> Option<Entry> {
        while let Some(id) = self.comparing.unread.pop_front() {
            let tracked = self.entries.get(&id);
            let waits = tracked.filter(|tracked| matches!(tracked.stage, Stage::Compared));
            if let Some(tracked) = waits {
                return Some(tracked.entry.clone());
            }
        }
        None
    }

    /// Handles a file that was read for its digest.
    pub fn handle_digest_read(&mut self, id: EntryId, read: DigestRead) {
        let stage = self.entries.get(&id).map(|tracked| &tracked.stage);
        if !matches!(stage, Some(Stage::Compared)) {
            return;
        }
        match read {
            DigestRead::Ready(digest) => self.comparing.digests.push((id, digest)),
            DigestRead::Changed(entry) => self.restart(id, entry),
            DigestRead::Failed(failure) => self.abandon(id, failure),
        }
    }
}

#[cfg(test)]
mod tests {
    use longhaul_units::Moment;

    use super::*;
    use crate::manifest::{SourceIdentity, Timestamp, TreePath};
    use crate::message::{Answer, FailureKind, Message};
    use crate::sender::{Ending, EntryEvent, SenderSettings};

    const DIGEST: Checksum = Checksum::Blake3([7; 32]);

    fn file() -> Entry {
        Entry {
            id: EntryId(0),
            parent: None,
            path: TreePath::new(b"file").unwrap(),
            kind: EntryKind::File {
                identity: SourceIdentity {
                    size: 5,
                    ..SourceIdentity::default()
                },
                sparse: false,
            },
            mode: 0o644,
            owner: Default::default(),
            modified: Timestamp::default(),
        }
    }

    /// Makes a sender of files that the receiver has with the same size and time.
    fn asked() -> Sender {
        let mut sender = Sender::new(SenderSettings {
            asks: true,
            ..SenderSettings::default()
        });
        sender.handle_entry(file());
        sender.handle_walk_end();
        while sender.poll_message().is_some() {}
        answer(&mut sender, Answer::Compare);
        assert_eq!(sender.poll_digest(), Some(file()));
        assert_eq!(sender.poll_digest(), None, "twice");
        sender
    }

    fn answer(sender: &mut Sender, answer: Answer) {
        let answers = Message::Answers(vec![(EntryId(0), answer)]);
        sender.handle_message(answers, Moment(0)).unwrap();
    }

    #[test]
    fn a_digest_is_read_told_and_answered() {
        let mut sender = asked();
        sender.handle_digest_read(EntryId(0), DigestRead::Ready(DIGEST));
        assert!(sender.has_message());
        let told = Message::Digests(vec![(EntryId(0), DIGEST)]);
        assert_eq!(sender.poll_message(), Some(told));
        assert!(sender.poll_read(Moment(0)).is_none(), "not to be sent yet");
        answer(
            &mut sender,
            Answer::Skip {
                digest: Some(DIGEST),
                mended: false,
            },
        );
        let ended = sender.poll_event();
        let skipped = |event| matches!(event, EntryEvent::Ended { ending: Ending::Skipped(Some(digest)), .. } if digest == DIGEST);
        assert!(ended.is_some_and(skipped));
    }

    #[test]
    fn contents_that_differ_are_sent() {
        let mut sender = asked();
        sender.handle_digest_read(EntryId(0), DigestRead::Ready(DIGEST));
        answer(&mut sender, Answer::Send);
        assert!(sender.poll_read(Moment(0)).is_some());
    }

    #[test]
    fn a_file_that_changed_meanwhile_is_sent_and_one_that_cannot_be_read_fails() {
        let mut sender = asked();
        sender.handle_digest_read(EntryId(0), DigestRead::Changed(file()));
        assert!(sender.poll_message().is_none());
        assert!(sender.poll_read(Moment(0)).is_some());
        let mut sender = asked();
        let failure = Failure::new(FailureKind::Permission, "no");
        sender.handle_digest_read(EntryId(0), DigestRead::Failed(failure));
        let abandoned = sender.poll_message();
        assert!(matches!(abandoned, Some(Message::Abandoned { .. })));
    }
}
