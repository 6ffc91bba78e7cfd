//! Deletion after the copy.

use longhaul_units::Moment;

use crate::deletion::{NAMES_WINDOW, NamesOf};
use crate::filter::LeftOut;
use crate::manifest::TreePath;
use crate::message::{Failure, FailureKind, Message, Removal};
use crate::receiver::removals::REMOVED_WINDOW;
use crate::receiver::{Receiver, ReceiverSettings, StorageJob};

fn receiver() -> Receiver {
    let mut receiver = Receiver::new(ReceiverSettings {
        deletes: true,
        ..ReceiverSettings::default()
    });
    let end = Message::WalkEnd {
        entries: 0,
        left_out: LeftOut::default(),
        anchor: None,
    };
    receiver.handle_message(end).unwrap();
    assert_eq!(receiver.poll_message(), Some(Message::AskNames));
    receiver
}

fn names(directory: &str) -> Message {
    Message::Names(vec![NamesOf {
        directory: TreePath::new(directory.as_bytes()).ok(),
        begins: true,
        ends: true,
        names: vec![b"a".to_vec().into()],
        rules: Vec::new(),
        is_empty_source: false,
    }])
}

fn job(receiver: &mut Receiver) -> Option<StorageJob> {
    receiver.poll_storage(Moment(0))
}

fn removal(path: &str) -> Removal {
    Removal {
        path: TreePath::new(path.as_bytes()).ok(),
        size: 3,
        directory: false,
        failure: None,
    }
}

#[test]
fn names_are_requested_and_compared_and_extra_names_removed() {
    let mut receiver = receiver();
    assert_eq!(job(&mut receiver), None, "it is not done yet");
    receiver.handle_message(names("")).unwrap();
    assert!(matches!(job(&mut receiver), Some(StorageJob::Names(_))));
    receiver.removals_mut().handle_names_taken();
    receiver.handle_message(Message::NamesEnd(None)).unwrap();
    assert_eq!(job(&mut receiver), Some(StorageJob::EndNames(None)));
    receiver.removals_mut().handle_names_compared(Ok(()));
    assert_eq!(job(&mut receiver), Some(StorageJob::Remove));
    receiver
        .removals_mut()
        .handle_removed(vec![removal("x")], false);
    assert_eq!(job(&mut receiver), Some(StorageJob::Remove));
    receiver
        .removals_mut()
        .handle_removed(vec![removal("y")], true);
    assert_eq!(job(&mut receiver), Some(StorageJob::Finish));
    let totals = receiver.totals();
    assert_eq!((totals.deleted, totals.deleted_bytes), (2, 6));
}

/// The last answers end the last entries, and the request for names follows them.
#[test]
fn names_are_requested_after_the_last_answers() {
    let mut receiver = Receiver::new(ReceiverSettings {
        deletes: true,
        ..ReceiverSettings::default()
    });
    let entry = crate::manifest::Entry {
        id: crate::manifest::EntryId(0),
        parent: None,
        path: TreePath::new(b"f").unwrap(),
        kind: crate::manifest::EntryKind::Symlink {
            target: b"t".to_vec(),
        },
        mode: 0,
        modified: Default::default(),
        owner: None,
    };
    let listed = Message::Entries(vec![entry.clone()]);
    receiver.handle_message(listed).unwrap();
    let end = Message::WalkEnd {
        entries: 1,
        left_out: LeftOut::default(),
        anchor: None,
    };
    receiver.handle_message(end).unwrap();
    assert!(job(&mut receiver).is_some());
    receiver.handle_compared(vec![(entry, crate::receiver::Compared::Same(None))]);
    let said: Vec<_> = std::iter::from_fn(|| receiver.poll_message()).collect();
    assert!(matches!(said[0], Message::Answers(_)), "{said:?}");
    assert_eq!(said.last(), Some(&Message::AskNames));
}

#[test]
fn removal_waits_for_the_sender_to_read_reports() {
    let mut receiver = receiver();
    receiver.handle_message(Message::NamesEnd(None)).unwrap();
    receiver.removals_mut().handle_names_compared(Ok(()));
    let mut steps = 0;
    while let Some(next) = job(&mut receiver) {
        if next == StorageJob::Remove {
            steps += 1;
            receiver
                .removals_mut()
                .handle_removed(vec![removal("x")], false);
        }
    }
    assert_eq!(steps, REMOVED_WINDOW);
    receiver.handle_message(Message::RemovedTaken).unwrap();
    assert_eq!(job(&mut receiver), Some(StorageJob::Remove));
}

#[test]
fn names_without_a_request_end_the_session() {
    let mut early = Receiver::new(ReceiverSettings {
        deletes: true,
        ..ReceiverSettings::default()
    });
    assert!(early.handle_message(names("")).is_err());
    let mut unasked = Receiver::new(ReceiverSettings::default());
    assert!(unasked.handle_message(Message::NamesEnd(None)).is_err());
    let mut flooded = receiver();
    let taken = (0..1000).take_while(|_| flooded.handle_message(names("")).is_ok());
    assert_eq!(taken.count(), NAMES_WINDOW as usize);
    let mut half = receiver();
    let begun = Message::Names(vec![NamesOf {
        directory: None,
        begins: true,
        ends: false,
        names: Vec::new(),
        rules: Vec::new(),
        is_empty_source: false,
    }]);
    half.handle_message(begun).unwrap();
    assert!(half.handle_message(Message::NamesEnd(None)).is_err());
}

#[test]
fn no_names_are_deleted_after_a_failure() {
    let failure = || Failure::new(FailureKind::Other, "no");
    let mut failed = Receiver::new(ReceiverSettings {
        deletes: true,
        ..ReceiverSettings::default()
    });
    let abandoned = Message::Abandoned {
        id: crate::manifest::EntryId(0),
        parent: None,
        failure: failure(),
    };
    failed.handle_message(abandoned).unwrap();
    let end = Message::WalkEnd {
        entries: 1,
        left_out: LeftOut::default(),
        anchor: None,
    };
    failed.handle_message(end).unwrap();
    let jobs: Vec<_> = std::iter::from_fn(|| job(&mut failed)).collect();
    assert!(jobs.contains(&StorageJob::Finish), "{jobs:?}");
    let said: Vec<_> = std::iter::from_fn(|| failed.poll_message()).collect();
    assert!(!said.contains(&Message::AskNames), "{said:?}");
    let undeleted =
        |message: &Message| matches!(message, Message::Removed(list) if list[0].path.is_none());
    assert!(said.iter().any(undeleted), "{said:?}");

    let mut unlisted = receiver();
    let end = Message::NamesEnd(Some(failure()));
    unlisted.handle_message(end).unwrap();
    assert!(matches!(
        job(&mut unlisted),
        Some(StorageJob::EndNames(Some(_)))
    ));
    unlisted
        .removals_mut()
        .handle_names_compared(Err(failure()));
    assert_eq!(job(&mut unlisted), Some(StorageJob::Finish));
    assert_eq!(unlisted.totals().deleted, 0);
}
