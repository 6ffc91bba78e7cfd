//! Compares listed entries with the destination, one list after the other, and answers them.

use super::{Compared, ReceivedEvent, Receiver, ReceiverError, StorageJob};
use crate::digest::Checksum;
use crate::filter::LeftOut;
use crate::manifest::{Entry, EntryId, EntryKind};
use crate::message::{Answer, MAXIMUM_LISTED_ENTRIES, Message, Outcome};

/// Bytes of a path that count as another entry.
const WEIGHED_BYTES: usize = 8192;

impl Receiver {
    /// Returns the numbers of names that the sender's walk left out on purpose (zero before its
    /// end) and of entries that this end leaves unchanged.
    pub fn left_out(&self) -> LeftOut {
        self.left_out.with_held(self.held)
    }

    pub(super) fn handle_entries(&mut self, entries: Vec<Entry>) -> Result<(), ReceiverError> {
        if !entries.iter().all(Entry::is_valid) {
            return Err(ReceiverError::InvalidEntry);
        }
        if !self.settings.compares {
            return Ok(());
        }
        if entries.len() > MAXIMUM_LISTED_ENTRIES {
            return Err(ReceiverError::TooMany);
        }
        // Directories are not compared (they are handled after all their entries), but wait with
        // the other entries.
        let weight = entries.iter().map(weight).sum();
        let texts = entries.iter().map(Entry::text_bytes).sum();
        self.asked += weight;
        self.texts += texts;
        self.lists.push_back((weight, texts));
        self.jobs.push_back(StorageJob::Compare(entries));
        Ok(())
    }

    /// Handles the results of comparing a list.
    pub fn handle_compared(&mut self, found: Vec<(Entry, Compared)>) {
        // Lists are compared in order, so this is the oldest one.
        let (weight, texts) = self.lists.pop_front().unwrap_or_default();
        self.asked = self.asked.saturating_sub(weight);
        self.texts = self.texts.saturating_sub(texts);
        let answers = found.into_iter();
        let answers: Vec<(EntryId, Answer)> = answers
            .filter_map(|(entry, compared)| Some((entry.id, self.answer(entry, compared)?)))
            .collect();
        self.say_answers(answers);
    }

    /// Handles digests that were requested from the sender.
    pub(super) fn handle_digests(
        &mut self,
        digests: Vec<(EntryId, Checksum)>,
    ) -> Result<(), ReceiverError> {
        if digests.len() > MAXIMUM_LISTED_ENTRIES {
            return Err(ReceiverError::TooMany);
        }
        for (id, digest) in digests {
            // The entry keeps its weight until its file is read.
            if let Some(entry) = self.comparing.remove(&id) {
                self.push_job(StorageJob::CompareContents(entry, digest));
            }
        }
        Ok(())
    }

    /// Handles the result of comparing contents, or of work that `Compared::Later` announced. A
    /// file that differs must be sent.
    pub fn handle_contents_compared(&mut self, entry: Entry, compared: Compared) {
        let id = entry.id;
        self.uncount_compared(&entry);
        if compared == Compared::Differs {
            self.totals.differed += 1;
        }
        let answer = self.answer(entry, compared);
        self.say_answers(answer.map(|answer| (id, answer)).into_iter().collect());
    }

    /// Removes a file whose digest was requested from the sender and that ended before its contents
    /// were compared.
    pub(super) fn take_compared(&mut self, id: EntryId) -> Option<Entry> {
        let entry = self.comparing.remove(&id)?;
        self.uncount_compared(&entry);
        Some(entry)
    }

    fn uncount_compared(&mut self, entry: &Entry) {
        self.comparing_weight = self.comparing_weight.saturating_sub(weight(entry));
        self.texts = self.texts.saturating_sub(entry.text_bytes());
    }

    fn say_answers(&mut self, answers: Vec<(EntryId, Answer)>) {
        if !answers.is_empty() {
            self.unsaid += answers.len();
            self.push_message(Message::Answers(answers));
        }
    }

    /// Returns the answer for a compared entry; `None` if the answer follows later.
    fn answer(&mut self, entry: Entry, compared: Compared) -> Option<Answer> {
        // A directory is done after all its entries, independent of the comparison.
        let known = self.is_done(entry.id) || entry.kind == EntryKind::Directory;
        Some(match compared {
            Compared::Later => {
                self.comparing_weight += weight(&entry);
                self.texts += entry.text_bytes();
                return None;
            }
            Compared::Send | Compared::Differs => Answer::Send,
            Compared::Same(digest) => {
                if !known {
                    self.end_compared(entry, None, digest);
                }
                Answer::Skip {
                    digest,
                    mended: false,
                }
            }
            Compared::Mended(digest) => {
                if !known {
                    self.end_compared(entry, Some(Outcome::Mended), digest);
                }
                Answer::Skip {
                    digest,
                    mended: true,
                }
            }
            Compared::Contents if known => Answer::Send,
            Compared::Contents => {
                self.comparing_weight += weight(&entry);
                self.texts += entry.text_bytes();
                self.comparing.insert(entry.id, entry);
                Answer::Compare
            }
            Compared::Partial(_) if known => Answer::Send,
            Compared::Partial(blocks) => self.resume(entry, &blocks),
            Compared::Refused(failure) => {
                if !known {
                    self.note_failed(entry.id);
                    let outcome = Outcome::Failed(failure.clone());
                    self.end_compared(entry, Some(outcome), None);
                }
                Answer::Refuse(failure)
            }
            Compared::Left(held) => {
                if !known {
                    self.end_compared(entry, Some(Outcome::Left(held)), None);
                }
                Answer::Leave(held)
            }
            Compared::Planned(change) => {
                if !known {
                    let outcome = Outcome::Planned(Some(change));
                    self.end_compared(entry, Some(outcome), None);
                }
                Answer::Planned(change)
            }
        })
    }

    /// Ends an entry with its comparison. The answer reports the result, so that no outcome is
    /// sent.
    fn end_compared(&mut self, entry: Entry, outcome: Option<Outcome>, digest: Option<Checksum>) {
        self.count(outcome.as_ref());
        let (id, parent) = (entry.id, entry.parent);
        self.events.push_back(ReceivedEvent::Ended {
            entry: Some(entry),
            id,
            outcome,
            digest,
        });
        self.mark_done(id, parent);
    }
}

/// Returns the weight of a waiting entry. Most paths are short, so that an entry counts as one.
fn weight(entry: &Entry) -> usize {
    1 + entry.text_bytes() / WEIGHED_BYTES
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::digest::Integrity;
    use crate::manifest::{EntryId, Timestamp, TreePath};
    use crate::receiver::ReceiverSettings;

    fn receiver() -> Receiver {
        Receiver::new(ReceiverSettings {
            integrity: Integrity::Digest,
            epoch: 1,
            checkpoint_bytes: 1 << 20,
            checkpoint_span: Duration::from_secs(1),
            digests: false,
            compares: true,
            ..ReceiverSettings::default()
        })
    }

    fn directories(count: u64) -> Message {
        let directory = |id| Entry {
            id: EntryId(id),
            parent: None,
            path: TreePath::new(format!("d{id}").as_bytes()).unwrap(),
            kind: EntryKind::Directory,
            mode: 0o755,
            modified: Timestamp::default(),
            owner: None,
        };
        Message::Entries((0..count).map(directory).collect())
    }

    /// Lists that wait, and lists that are compared as they arrive.
    #[test]
    fn directories_that_wait_are_bounded() {
        assert!(receiver().handle_message(directories(513)).is_err());
        let mut slow = receiver();
        let lists = (0..10_000).take_while(|_| slow.handle_message(directories(512)).is_ok());
        assert_eq!(lists.count(), 128);
        let mut fast = receiver();
        for _ in 0..10_000 {
            fast.handle_message(directories(512)).unwrap();
            while fast.poll_storage(longhaul_units::Moment(0)).is_some() {
                fast.handle_compared(Vec::new());
            }
        }
    }

    fn files(list: u64, kind: EntryKind) -> Vec<Entry> {
        let files = (0..512).map(|number| {
            let Message::Entries(mut entries) = directories(1) else {
                unreachable!()
            };
            let mut file = entries.remove(0);
            file.id = EntryId(list * 512 + number);
            file.kind = kind.clone();
            file
        });
        files.collect()
    }

    /// A peer lists entries and never sends the requested digests.
    #[test]
    fn digests_that_never_come_are_bounded() {
        let mut receiver = receiver();
        let kind = EntryKind::File {
            identity: Default::default(),
            sparse: false,
        };
        let lists = (0..10_000_u64).take_while(|list| {
            let entries = files(*list, kind.clone());
            let heard = receiver.handle_message(Message::Entries(entries));
            while let Some(StorageJob::Compare(entries)) =
                receiver.poll_storage(longhaul_units::Moment(0))
            {
                let found = entries.into_iter().map(|entry| (entry, Compared::Contents));
                receiver.handle_compared(found.collect());
            }
            while receiver.poll_message().is_some() {}
            heard.is_ok()
        });
        assert!((100..200).contains(&lists.count()));
        let many = vec![(EntryId(0), Checksum::Xxh3(0)); 513];
        let heard = super::super::Receiver::handle_message(&mut receiver, Message::Digests(many));
        assert!(heard.is_err());
    }

    /// An existing file is done only if its content has the source's digest.
    #[test]
    fn contents_are_compared_with_the_senders_digest() {
        let kind = EntryKind::File {
            identity: Default::default(),
            sparse: false,
        };
        let digest = Checksum::Blake3([3; 32]);
        for found in [
            Compared::Same(Some(digest)),
            Compared::Mended(Some(digest)),
            Compared::Differs,
            Compared::Send,
        ] {
            let mut receiver = receiver();
            let file = files(0, kind.clone()).remove(0);
            let now = longhaul_units::Moment(0);
            let entries = Message::Entries(vec![file.clone()]);
            receiver.handle_message(entries).unwrap();
            assert!(receiver.poll_storage(now).is_some());
            receiver.handle_compared(vec![(file.clone(), Compared::Contents)]);
            let asked = Message::Answers(vec![(file.id, Answer::Compare)]);
            assert_eq!(receiver.poll_message(), Some(asked));
            assert!(receiver.poll_storage(now).is_none());
            let told = Message::Digests(vec![(file.id, digest), (file.id, digest)]);
            receiver.handle_message(told).unwrap();
            let job = StorageJob::CompareContents(file.clone(), digest);
            assert_eq!(receiver.poll_storage(now), Some(job));
            assert!(receiver.poll_storage(now).is_none(), "told twice");
            let mended = matches!(found, Compared::Mended(_));
            let same = mended || matches!(found, Compared::Same(_));
            let differs = found == Compared::Differs;
            receiver.handle_contents_compared(file.clone(), found);
            let answer = if same {
                Answer::Skip {
                    digest: Some(digest),
                    mended,
                }
            } else {
                Answer::Send
            };
            let answered = Message::Answers(vec![(file.id, answer)]);
            assert_eq!(receiver.poll_message(), Some(answered));
            let totals = receiver.totals();
            assert_eq!(totals.skipped, u64::from(same));
            assert_eq!(totals.mended, u64::from(mended));
            assert_eq!(receiver.totals().differed, u64::from(differs));
        }
    }

    /// A peer lists entries and acknowledges no answer.
    #[test]
    fn answers_that_are_not_said_are_bounded() {
        let mut receiver = receiver();
        let lists = (0..10_000_u64).take_while(|list| {
            let kind = EntryKind::Symlink {
                target: b"x".to_vec(),
            };
            let heard = receiver.handle_message(Message::Entries(files(*list, kind)));
            while let Some(StorageJob::Compare(entries)) =
                receiver.poll_storage(longhaul_units::Moment(0))
            {
                let found = entries.into_iter().map(|entry| (entry, Compared::Send));
                receiver.handle_compared(found.collect());
            }
            heard.is_ok()
        });
        assert!((100..200).contains(&lists.count()));
    }
}
