//! Files that go through a command.

use longhaul_units::Moment;

use super::file;
use crate::manifest::EntryId;
use crate::message::{Answer, Failure, FailureKind, Message, Outcome};
use crate::sender::{FilterStep, MOST_FILTERED, ReadData, Sender, SenderSettings};
use crate::session::StreamId;

/// Makes a sender of files of five bytes. The receiver has answered that it has all of them.
fn questioned_files(files: u64) -> Sender {
    let mut sender = Sender::new(SenderSettings {
        asks: true,
        filters: true,
        ..SenderSettings::default()
    });
    (0..files).for_each(|id| sender.work_mut().handle_entry(file(id, 5)));
    sender.work_mut().handle_walk_end();
    while sender.poll_message().is_some() {}
    sender.handle_stream_up(StreamId(0), Moment(0));
    let answers = (0..files).map(|id| (EntryId(id), Answer::Resume(vec![(0, 5)])));
    say(&mut sender, Message::Answers(answers.collect()));
    sender
}

fn say(sender: &mut Sender, message: Message) {
    sender.handle_message(message, Moment(0)).unwrap();
}

fn done(sender: &mut Sender, id: u64) {
    let entries = vec![(EntryId(id), Outcome::Committed { digest: None })];
    say(sender, Message::Done { epoch: 1, entries });
}

/// The receiver's earlier state of the file does not matter.
#[test]
fn the_output_is_sent_with_its_own_size() {
    let mut sender = questioned_files(1);
    assert!(sender.poll_read(Moment(0)).is_none(), "before the command");
    assert_eq!(
        sender.work_mut().poll_filter(),
        Some(FilterStep::Filter(file(0, 5)))
    );
    assert_eq!(sender.work_mut().poll_filter(), None, "twice");
    assert!(sender.poll_read(Moment(0)).is_none(), "during the command");
    sender
        .work_mut()
        .handle_filtered(EntryId(0), Ok(file(0, 3 << 20)));
    let data = sender.poll_read(Moment(0)).unwrap().data;
    let ReadData::Piece { entry, piece } = data else {
        panic!("{data:?}");
    };
    assert_eq!(
        (entry.size(), piece.generation, piece.offset),
        (3 << 20, 1, 0)
    );
    assert!(!sender.work().has_filter_step());
    done(&mut sender, 0);
    assert!(sender.work().has_filter_step());
    assert_eq!(
        sender.work_mut().poll_filter(),
        Some(FilterStep::Forget(EntryId(0)))
    );
    assert!(!sender.work().has_filter_step());
}

#[test]
fn a_file_whose_command_fails_is_abandoned() {
    let mut sender = questioned_files(1);
    sender.work_mut().poll_filter().unwrap();
    let failure = Failure::new(FailureKind::Other, "no");
    sender
        .work_mut()
        .handle_filtered(EntryId(0), Err(failure.clone()));
    let told = sender.poll_message();
    let is_that =
        |told: &Message| matches!(told, Message::Abandoned { failure: why, .. } if *why == failure);
    assert!(told.as_ref().is_some_and(is_that), "{told:?}");
    let entries = vec![(EntryId(0), Outcome::Failed(failure))];
    say(&mut sender, Message::Done { epoch: 1, entries });
    assert_eq!(sender.work().tracked(), 0);
    assert_eq!(
        sender.work_mut().poll_filter(),
        Some(FilterStep::Forget(EntryId(0)))
    );
}

/// The receiver ends the file while the command runs.
#[test]
fn an_output_that_comes_too_late_is_not_needed() {
    let mut sender = questioned_files(2);
    sender.work_mut().poll_filter().unwrap();
    done(&mut sender, 0);
    assert_eq!(
        sender.work_mut().poll_filter(),
        Some(FilterStep::Forget(EntryId(0)))
    );
    assert!(
        !sender
            .work_mut()
            .handle_filtered(EntryId(0), Ok(file(0, 1)))
    );
    sender.work_mut().poll_filter().unwrap();
    assert!(
        sender
            .work_mut()
            .handle_filtered(EntryId(1), Ok(file(1, 1)))
    );
}

#[test]
fn the_number_of_waiting_outputs_is_bounded() {
    let mut sender = questioned_files(100);
    let begun = std::iter::from_fn(|| sender.work_mut().poll_filter()).count();
    assert_eq!(begun, MOST_FILTERED);
    for id in 0..64 {
        assert!(
            sender
                .work_mut()
                .handle_filtered(EntryId(id), Ok(file(id, 1)))
        );
    }
    assert_eq!(sender.work_mut().poll_filter(), None);
    done(&mut sender, 7);
    assert_eq!(
        sender.work_mut().poll_filter(),
        Some(FilterStep::Forget(EntryId(7)))
    );
    assert_eq!(
        sender.work_mut().poll_filter(),
        Some(FilterStep::Filter(file(64, 5)))
    );
    assert_eq!(sender.work_mut().poll_filter(), None);
}
