//! Comparison of listed entries.

use std::time::Duration;

use crate::digest::{Checksum, Integrity};
use crate::manifest::{Entry, EntryId, EntryKind, Timestamp, TreePath};
use crate::message::{Answer, Message};
use crate::receiver::{Compared, Receiver, ReceiverSettings, StorageJob};

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
    let heard = receiver.handle_message(Message::Digests(many));
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
fn unsent_answers_are_bounded() {
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
