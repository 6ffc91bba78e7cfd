//! Estimates and bounds the memory of a receiver. A bound on the number of entries is not enough,
//! because a path may have 16 KiB.

use super::{
    FRAGMENTS_PER_ENTRY, MAXIMUM_REMEMBERED_BYTES, MAXIMUM_UNDER_WAY, OUTCOME_BYTES_PER_ENTRY,
    Receiver, ReceiverError, StorageJob, UNSAID_PER_ENTRY,
};
use crate::block::ContentName;
use crate::message::{Answer, Failure, Message, Outcome};

/// Memory of one item of each kind in bytes, with its place in a tree or list but without paths and
/// texts. The values are slightly above measured ones.
const FILE_BYTES: usize = 1024;
const PACKED_BYTES: usize = 192;
const FOLDER_BYTES: usize = 320;
const NUMBER_BYTES: usize = 64;
const JOB_BYTES: usize = 256;
const LINK_BYTES: usize = 256;
const MESSAGE_BYTES: usize = 128;
const ASKED_BYTES: usize = 128;
const OUTCOME_BYTES: usize = 96;

impl Receiver {
    /// Returns the approximate memory in bytes for items that are not done or not sent.
    pub fn remembered_bytes(&self) -> usize {
        let numbers = self.seals.len()
            + self.expected.len()
            + self.done.fragments()
            + self.failed.fragments()
            + self.omitted.fragments()
            + self.fragments
            + self.durable.len();
        self.texts
            + self.outcome_bytes
            + self.files.len() * FILE_BYTES
            + self.packed.len() * PACKED_BYTES
            + self.folders.len() * FOLDER_BYTES
            + numbers * NUMBER_BYTES
            + self.jobs.len() * JOB_BYTES
            + self.links * LINK_BYTES
            + self.messages.len() * MESSAGE_BYTES
            + (self.asked + self.comparing.len()) * ASKED_BYTES
            + self.outcomes.len() * OUTCOME_BYTES
    }

    pub(super) fn push_job(&mut self, job: StorageJob) {
        self.texts += of_job(&job);
        self.jobs.push_back(job);
    }

    pub(super) fn push_message(&mut self, message: Message) {
        self.texts += of_message(&message);
        self.messages.push_back(message);
    }

    /// Checks that the items that the sender has under way are within all bounds.
    pub(super) fn check_bounds(&self) -> Result<(), ReceiverError> {
        let most = [
            self.files.len() + self.packed.len(),
            self.folders.len(),
            self.seals.len(),
            self.expected.len(),
            self.done.fragments(),
            self.jobs.len(),
            self.asked,
            self.links,
            self.comparing_weight,
            self.unsaid,
            self.messages.len(),
            self.outcomes.len() / UNSAID_PER_ENTRY,
            self.outcome_bytes / OUTCOME_BYTES_PER_ENTRY,
            self.durable.len() / UNSAID_PER_ENTRY,
            self.fragments / FRAGMENTS_PER_ENTRY,
        ];
        if !most.into_iter().all(|count| count <= MAXIMUM_UNDER_WAY) {
            return Err(ReceiverError::TooMany);
        }
        if self.remembered_bytes() <= MAXIMUM_REMEMBERED_BYTES {
            Ok(())
        } else {
            Err(ReceiverError::TooMuch)
        }
    }
}

/// Returns the bytes of the paths in a job. Comparisons and directories are counted elsewhere until
/// they are done, because many of them may wait.
pub(super) fn of_job(job: &StorageJob) -> usize {
    match job {
        StorageJob::Commit { entry, .. } | StorageJob::Link(entry) => entry.text_bytes(),
        StorageJob::ReadBack { entry, blocks, .. } => entry.text_bytes() + size_of_val(&blocks[..]),
        StorageJob::Compare(_)
        | StorageJob::CompareContents(..)
        | StorageJob::FinishDirectory(_)
        | StorageJob::Checkpoint(_)
        | StorageJob::Discard { .. }
        // The window for names bounds these jobs.
        | StorageJob::Names(_)
        | StorageJob::EndNames(_)
        | StorageJob::Remove
        // Only one question is open at a time.
        | StorageJob::MakeProbes(_)
        | StorageJob::RemoveProbes(_)
        | StorageJob::Finish => 0,
    }
}

/// Returns the bytes of lists and texts in an unsent message.
pub(super) fn of_message(message: &Message) -> usize {
    match message {
        Message::Again {
            content: ContentName::Pack(ids),
            ..
        } => size_of_val(&ids[..]),
        Message::Answers(answers) => {
            let texts = answers.iter().map(|(_, answer)| match answer {
                Answer::Resume(ranges) => size_of_val(&ranges[..]),
                Answer::Refuse(Failure { text, .. }) => text.len(),
                Answer::Send
                | Answer::Skip { .. }
                | Answer::Planned(_)
                | Answer::Compare
                | Answer::Leave(_) => 0,
            });
            size_of_val(&answers[..]) + texts.sum::<usize>()
        }
        Message::Done { entries, .. } => {
            let texts = entries.iter().map(|(_, outcome)| match outcome {
                Outcome::Failed(Failure { text, .. }) => text.len(),
                Outcome::Committed { .. }
                | Outcome::Planned(_)
                | Outcome::Unchanged
                | Outcome::Mended
                | Outcome::LeftOut
                | Outcome::Left(_) => 0,
            });
            size_of_val(&entries[..]) + texts.sum::<usize>()
        }
        Message::Durable { pieces, .. } => size_of_val(&pieces[..]),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use longhaul_units::Moment;

    use super::super::ReceiverSettings;
    use super::*;
    use crate::manifest::{Entry, EntryId, EntryKind, Timestamp, TreePath};

    fn entry(id: u64, kind: EntryKind, path: &[u8]) -> Entry {
        Entry {
            id: EntryId(id),
            parent: None,
            path: TreePath::new(path).unwrap(),
            kind,
            mode: 0o755,
            modified: Timestamp::default(),
            owner: None,
        }
    }

    fn long(id: u64) -> Vec<u8> {
        let name = "x".repeat(240);
        let mut names = vec![name.as_str(); 65];
        let first = id.to_string();
        names[0] = &first;
        names.join("/").into_bytes()
    }

    /// Directories wait for their entries and have paths of the maximum length.
    #[test]
    fn paths_are_bounded_by_their_bytes() {
        let mut receiver = Receiver::new(ReceiverSettings::default());
        let mut ended = 0;
        let refused = loop {
            let entry = entry(ended, EntryKind::Directory, &long(ended));
            match receiver.handle_message(Message::DirectoryEnd { entry, children: 7 }) {
                Ok(()) => ended += 1,
                Err(refused) => break refused,
            }
        };
        assert_eq!(refused, ReceiverError::TooMuch);
        let bytes = long(0).len() as u64;
        assert!(ended * bytes < MAXIMUM_REMEMBERED_BYTES as u64);
        assert!(ended > 1000, "{ended}");
    }

    #[test]
    fn what_is_done_weighs_nothing() {
        let mut receiver = Receiver::new(ReceiverSettings::default());
        for id in 0..100 {
            let directory = entry(id, EntryKind::Directory, &long(id));
            // The second message replaces the first.
            for children in [7, 0] {
                let entry = directory.clone();
                receiver
                    .handle_message(Message::DirectoryEnd { entry, children })
                    .unwrap();
            }
        }
        let link = |id| {
            let target = vec![b't'; 4000];
            entry(id, EntryKind::Symlink { target }, b"link")
        };
        let listed = Message::Entries((100..200).map(link).collect());
        receiver.handle_message(listed).unwrap();
        assert!(receiver.remembered_bytes() > 100 * 16_000);
        while let Some(job) = receiver.poll_storage(Moment(0)) {
            match job {
                StorageJob::FinishDirectory(entry) => {
                    receiver.handle_directory_finished(entry, Ok(()));
                }
                StorageJob::Compare(entries) => {
                    let same = |entry| (entry, super::super::Compared::Same(None));
                    receiver.handle_compared(entries.into_iter().map(same).collect());
                }
                job => panic!("{job:?}"),
            }
        }
        while receiver.poll_message().is_some() {}
        while receiver.poll_event().is_some() {}
        // One range of finished numbers remains.
        assert_eq!(receiver.remembered_bytes(), NUMBER_BYTES);
    }
}
