//! Files of which an earlier session left data.

use longhaul_units::Moment;

use crate::digest::{Integrity, whole_file};
use crate::ledger::DurableBlock;
use crate::manifest::{Entry, EntryId, EntryKind, SourceIdentity, TreePath};
use crate::message::{Failure, FailureKind, Message, Totals};
use crate::receiver::{Compared, Receiver, ReceiverSettings, StorageJob};

const SIZE: u64 = 3 << 20;

/// Makes a receiver that resumes a file whose data an earlier run left completely, and returns
/// the job that reads it.
fn resumed() -> (Receiver, EntryId) {
    let mut receiver = Receiver::new(ReceiverSettings::default());
    let entry = Entry {
        id: EntryId(0),
        parent: None,
        path: TreePath::new(b"file").unwrap(),
        kind: EntryKind::File {
            identity: SourceIdentity {
                size: SIZE,
                ..SourceIdentity::default()
            },
            sparse: false,
        },
        mode: 0o644,
        owner: Default::default(),
        modified: Default::default(),
    };
    let now = Moment(0);
    let entries = Message::Entries(vec![entry.clone()]);
    receiver.handle_message(entries).unwrap();
    assert!(receiver.poll_storage(now).is_some());
    let block = DurableBlock {
        offset: 0,
        length: SIZE,
        checksum: whole_file(Integrity::Digest, &vec![1; SIZE as usize]),
    };
    receiver.handle_compared(vec![(entry.clone(), Compared::Partial(vec![block]))]);
    let job = StorageJob::ReadBack {
        entry,
        generation: 0,
        blocks: vec![block],
    };
    assert_eq!(receiver.poll_storage(now), Some(job));
    let sealed = Message::Sealed {
        file: EntryId(0),
        generation: 0,
        size: SIZE,
        grew: false,
    };
    receiver.handle_message(sealed).unwrap();
    assert_eq!(receiver.poll_storage(now), None, "it was not read yet");
    (receiver, EntryId(0))
}

#[test]
fn data_of_an_earlier_session_are_read_before_the_commit() {
    let (mut receiver, id) = resumed();
    receiver.handle_read_back(id, 0, Ok(()));
    let job = receiver.poll_storage(Moment(0));
    assert!(matches!(job, Some(StorageJob::Commit { .. })), "{job:?}");
}

#[test]
fn altered_data_of_an_earlier_session_fail_the_file() {
    let (mut receiver, id) = resumed();
    // Results for another generation are ignored.
    let failure = Failure::new(FailureKind::Corrupt, "altered");
    receiver.handle_read_back(id, 1, Err(failure.clone()));
    assert_eq!(receiver.totals(), Totals::default());
    receiver.handle_read_back(id, 0, Err(failure));
    assert_eq!(receiver.totals().failed, 1);
    let discard = StorageJob::Discard {
        file: id,
        generation: 0,
        stays: false,
    };
    assert_eq!(receiver.poll_storage(Moment(0)), Some(discard));
}
