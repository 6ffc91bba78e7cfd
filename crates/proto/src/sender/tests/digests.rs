//! Files whose contents the receiver compares with a digest.

use longhaul_units::Moment;

use crate::digest::Checksum;
use crate::manifest::{Entry, EntryId, EntryKind, SourceIdentity, Timestamp, TreePath};
use crate::message::{Answer, Failure, FailureKind, Message};
use crate::sender::{DigestRead, Ending, EntryEvent, Sender, SenderSettings};

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
fn compared_files() -> Sender {
    let mut sender = Sender::new(SenderSettings {
        asks: true,
        ..SenderSettings::default()
    });
    sender.work_mut().handle_entry(file());
    sender.work_mut().handle_walk_end();
    while sender.poll_message().is_some() {}
    answer(&mut sender, Answer::Compare);
    assert_eq!(sender.work_mut().poll_digest(), Some(file()));
    assert_eq!(sender.work_mut().poll_digest(), None, "twice");
    sender
}

fn answer(sender: &mut Sender, answer: Answer) {
    let answers = Message::Answers(vec![(EntryId(0), answer)]);
    sender.handle_message(answers, Moment(0)).unwrap();
}

#[test]
fn a_digest_is_read_sent_and_answered() {
    let mut sender = compared_files();
    sender
        .work_mut()
        .handle_digest_read(EntryId(0), DigestRead::Ready(DIGEST));
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
    let mut sender = compared_files();
    sender
        .work_mut()
        .handle_digest_read(EntryId(0), DigestRead::Ready(DIGEST));
    answer(&mut sender, Answer::Send);
    assert!(sender.poll_read(Moment(0)).is_some());
}

#[test]
fn a_file_that_changed_meanwhile_is_sent_and_one_that_cannot_be_read_fails() {
    let mut sender = compared_files();
    sender
        .work_mut()
        .handle_digest_read(EntryId(0), DigestRead::Changed(file()));
    assert!(sender.poll_message().is_none());
    assert!(sender.poll_read(Moment(0)).is_some());
    let mut sender = compared_files();
    let failure = Failure::new(FailureKind::Permission, "no");
    sender
        .work_mut()
        .handle_digest_read(EntryId(0), DigestRead::Failed(failure));
    let abandoned = sender.poll_message();
    assert!(matches!(abandoned, Some(Message::Abandoned { .. })));
}
