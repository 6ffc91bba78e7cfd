//! Hard links.

use longhaul_units::Moment;

use crate::block::PackedEntry;
use crate::manifest::{Entry, EntryId, EntryKind, Timestamp, TreePath};
use crate::message::{Failure, FailureKind, Message, Outcome};
use crate::receiver::{Receiver, ReceiverSettings, StorageJob, Verdict};

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
fn a_link_is_made_once_its_first_name_is_done() {
    for link_first in [true, false] {
        let mut receiver = with_link(link_first);
        receiver.handle_link(link(1, 0));
        assert_eq!(receiver.poll_storage(Moment(0)), None);
        assert!(receiver.load().bytes > 0);
        file(&mut receiver, Outcome::Committed { digest: None });
        let job = StorageJob::Link(link(1, 0));
        assert_eq!(receiver.poll_storage(Moment(0)), Some(job));
        receiver.handle_packed(vec![(link(1, 0), Outcome::Unchanged)]);
        let totals = receiver.totals();
        assert_eq!((totals.committed, totals.skipped, totals.failed), (1, 1, 0));
    }
}

#[test]
fn a_link_to_a_failed_entry_fails() {
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
fn a_link_to_an_omitted_entry_is_left_out() {
    let mut receiver = with_link(false);
    receiver.handle_link(link(1, 0));
    file(&mut receiver, Outcome::LeftOut);
    assert_eq!(receiver.poll_storage(Moment(0)), None);
    assert_eq!(receiver.totals().failed, 0);
    assert!(receiver.outcomes.is_done(EntryId(1)));
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
fn a_link_follows_its_first_name() {
    assert!(link(1, 0).is_valid());
    assert!(!link(1, 1).is_valid() && !link(1, 2).is_valid());
    let listed = Message::Entries(vec![link(1, 2)]);
    let mut receiver = Receiver::new(ReceiverSettings::default());
    assert!(receiver.handle_message(listed).is_err());
}
