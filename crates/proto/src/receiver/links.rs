//! Makes hard links. Each link waits until the first name of its inode is done, so that it becomes
//! a link to the entry that is then at the destination.

use super::{Receiver, StorageJob};
use crate::manifest::{Entry, EntryId, EntryKind};
use crate::message::{Failure, FailureKind, Outcome};

/// Maximum number of remembered ranges of failed entries. With more failures, no further links are
/// made.
const MOST_FAILED: usize = 32_768;

impl Receiver {
    /// Handles a packed entry that is a hard link to an earlier entry. [`StorageJob::Link`] follows
    /// once the earlier entry is done. The link fails if the earlier entry failed.
    pub fn handle_link(&mut self, entry: Entry) {
        let EntryKind::HardLink { first, .. } = &entry.kind else {
            return;
        };
        let first = *first;
        if self.is_done(first) {
            self.released.push(entry);
            self.link_released();
            return;
        }
        self.texts += entry.text_bytes();
        self.links += 1;
        self.waiting_links.entry(first).or_default().push(entry);
    }

    /// Releases the hard links to an entry that is done.
    pub(super) fn release_links(&mut self, first: EntryId) {
        for entry in self.waiting_links.remove(&first).unwrap_or_default() {
            self.texts = self.texts.saturating_sub(entry.text_bytes());
            self.links -= 1;
            self.released.push(entry);
        }
        self.link_released();
    }

    /// Makes the released links. A link that fails releases the links to it. A list replaces
    /// recursion, because the other end determines the length of such a chain.
    fn link_released(&mut self) {
        if std::mem::replace(&mut self.releasing, true) {
            return;
        }
        while let Some(entry) = self.released.pop() {
            self.link(entry);
        }
        self.releasing = false;
    }

    /// Notes an entry that was left out on purpose. Hard links to it are left out, too.
    pub(super) fn note_left_out(&mut self, id: EntryId) {
        if self.omitted.fragments() < MOST_FAILED {
            self.omitted.insert(id.0, id.0.saturating_add(1));
        } else {
            self.failed_beyond = true;
        }
    }

    pub(super) fn note_failed(&mut self, id: EntryId) {
        if self.failed.fragments() < MOST_FAILED {
            self.failed.insert(id.0, id.0.saturating_add(1));
        } else {
            self.failed_beyond = true;
        }
    }

    fn link(&mut self, entry: Entry) {
        let EntryKind::HardLink { target, first } = &entry.kind else {
            return;
        };
        if self.omitted.contains(first.0, first.0.saturating_add(1)) {
            self.handle_packed(vec![(entry, Outcome::LeftOut)]);
            return;
        }
        let failed = self.failed.contains(first.0, first.0.saturating_add(1));
        if !failed && !self.failed_beyond {
            self.push_job(StorageJob::Link(entry));
            return;
        }
        let which = if failed {
            "which failed"
        } else {
            "of which is not known whether it is among the many that failed"
        };
        let text = format!(
            "{}: is another name of {target}, {which}: see why, then copy again",
            entry.path
        );
        let failure = Failure::new(FailureKind::Other, text);
        self.handle_packed(vec![(entry, Outcome::Failed(failure))]);
    }
}

#[cfg(test)]
mod tests {
    use longhaul_units::Moment;

    use super::super::{ReceiverSettings, Verdict};
    use super::*;
    use crate::block::PackedEntry;
    use crate::manifest::{Timestamp, TreePath};
    use crate::message::Message;

    fn entry(id: u64, kind: EntryKind) -> Entry {
        Entry {
            id: EntryId(id),
            parent: None,
            path: TreePath::new(format!("f{id}").as_bytes()).unwrap(),
            kind,
            mode: 0o644,
            modified: Timestamp::default(),
            owner: None,
        }
    }

    fn link(id: u64, first: u64) -> Entry {
        let target = TreePath::new(format!("f{first}").as_bytes()).unwrap();
        let first = EntryId(first);
        entry(id, EntryKind::HardLink { target, first })
    }

    /// Makes a receiver to which a file and a hard link to it came in packs, in this order.
    fn with_link(link_first: bool) -> Receiver {
        let kind = EntryKind::File {
            identity: Default::default(),
            sparse: false,
        };
        let mut receiver = Receiver::new(ReceiverSettings {
            compares: false,
            ..ReceiverSettings::default()
        });
        let mut entries = vec![entry(0, kind), link(1, 0)];
        if link_first {
            entries.reverse();
        }
        for entry in entries {
            let packed = PackedEntry {
                entry,
                generation: 0,
                checksum: None,
            };
            let kept = receiver.handle_pack(&[packed]).unwrap();
            assert_eq!(kept, [Verdict::Keep]);
        }
        receiver
    }

    fn file(receiver: &mut Receiver, outcome: Outcome) {
        let kind = EntryKind::File {
            identity: Default::default(),
            sparse: false,
        };
        receiver.handle_packed(vec![(entry(0, kind), outcome)]);
    }

    #[test]
    fn another_name_is_made_once_its_first_one_is_done() {
        for link_first in [true, false] {
            let mut receiver = with_link(link_first);
            receiver.handle_link(link(1, 0));
            assert_eq!(receiver.poll_storage(Moment(0)), None);
            assert!(receiver.remembered_bytes() > 0);
            file(&mut receiver, Outcome::Committed { digest: None });
            let job = StorageJob::Link(link(1, 0));
            assert_eq!(receiver.poll_storage(Moment(0)), Some(job));
            receiver.handle_packed(vec![(link(1, 0), Outcome::Unchanged)]);
            let totals = receiver.totals();
            assert_eq!((totals.committed, totals.skipped, totals.failed), (1, 1, 0));
        }
    }

    #[test]
    fn another_name_of_what_failed_has_failed() {
        for waits in [true, false] {
            let mut receiver = with_link(false);
            let failed = Outcome::Failed(Failure::new(FailureKind::Other, "x"));
            if waits {
                receiver.handle_link(link(1, 0));
                file(&mut receiver, failed);
            } else {
                file(&mut receiver, failed);
                receiver.handle_link(link(1, 0));
            }
            assert_eq!(receiver.poll_storage(Moment(0)), None);
            assert_eq!(receiver.totals().failed, 2);
        }
    }

    #[test]
    fn another_name_of_what_was_left_out_is_left_out() {
        let mut receiver = with_link(false);
        receiver.handle_link(link(1, 0));
        file(&mut receiver, Outcome::LeftOut);
        assert_eq!(receiver.poll_storage(Moment(0)), None);
        assert_eq!(receiver.totals().failed, 0);
        assert!(receiver.is_done(EntryId(1)));
    }

    /// Each entry is a link to the one before it. A hostile end may send as many as may wait.
    #[test]
    fn a_long_chain_of_names_fails_without_deep_calls() {
        const LONG: u64 = 60_000;
        let kind = EntryKind::File {
            identity: Default::default(),
            sparse: false,
        };
        let mut receiver = Receiver::new(ReceiverSettings {
            compares: false,
            ..ReceiverSettings::default()
        });
        let mut entries: Vec<Entry> = (1..=LONG).map(|id| link(id, id - 1)).collect();
        entries.insert(0, entry(0, kind));
        for entry in &entries {
            let packed = PackedEntry {
                entry: entry.clone(),
                generation: 0,
                checksum: None,
            };
            receiver.handle_pack(&[packed]).unwrap();
        }
        for entry in entries.drain(1..) {
            receiver.handle_link(entry);
        }
        let failed = Outcome::Failed(Failure::new(FailureKind::Other, "x"));
        file(&mut receiver, failed);
        assert_eq!(receiver.totals().failed, LONG + 1);
    }

    #[test]
    fn a_name_comes_after_what_it_is_a_name_of() {
        assert!(link(1, 0).is_valid());
        assert!(!link(1, 1).is_valid() && !link(1, 2).is_valid());
        let listed = Message::Entries(vec![link(1, 2)]);
        let mut receiver = Receiver::new(ReceiverSettings::default());
        assert!(receiver.handle_message(listed).is_err());
    }
}
