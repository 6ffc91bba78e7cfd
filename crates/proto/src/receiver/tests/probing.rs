//! Probes in directories.

use longhaul_units::Moment;

use crate::distinct::{MAXIMUM_PROBES, Probe, Question, SourcesQuestion};
use crate::filter::LeftOut;
use crate::message::Message;
use crate::receiver::{Receiver, ReceiverSettings, StorageJob};

fn receiver() -> Receiver {
    Receiver::new(ReceiverSettings {
        moves_away: true,
        ..ReceiverSettings::default()
    })
}

fn questions(count: usize) -> Vec<Question> {
    let question = Question {
        directory: None,
        probe: None,
    };
    vec![question; count]
}

fn ask(count: usize) -> Message {
    Message::AskDistinct(questions(count))
}

#[test]
fn a_question_is_answered_and_then_the_next_one() {
    let mut receiver = receiver();
    for _ in 0..2 {
        receiver.handle_message(ask(1)).unwrap();
        let made = receiver.poll_storage(Moment(0));
        assert_eq!(made, Some(StorageJob::MakeProbes(questions(1))));
        let probe = Probe {
            session: 1,
            number: 2,
            landing: None,
            shown: false,
        };
        receiver
            .probes_mut()
            .handle_probes_made(vec![Some(probe.clone())]);
        let said = receiver.poll_message();
        assert_eq!(said, Some(Message::Probes(vec![Some(probe)])));
        receiver
            .handle_message(Message::Sighted(vec![true]))
            .unwrap();
        let removed = receiver.poll_storage(Moment(0));
        assert_eq!(removed, Some(StorageJob::RemoveProbes(vec![true])));
        receiver.probes_mut().handle_probes_removed(vec![None]);
        assert_eq!(receiver.poll_message(), Some(Message::Distinct(vec![None])));
    }
}

#[test]
fn questions_out_of_turn_end_the_session() {
    let mut unasked = Receiver::new(ReceiverSettings::default());
    assert!(unasked.handle_message(ask(1)).is_err());
    for count in [0, MAXIMUM_PROBES + 1] {
        assert!(receiver().handle_message(ask(count)).is_err());
    }
    let mut twice = receiver();
    twice.handle_message(ask(1)).unwrap();
    assert!(twice.handle_message(ask(1)).is_err());
    let mut early = receiver();
    early.handle_message(ask(1)).unwrap();
    assert!(early.handle_message(Message::Sighted(vec![false])).is_err());
    let mut other = receiver();
    other.handle_message(ask(1)).unwrap();
    other.probes_mut().handle_probes_made(vec![None]);
    let two = Message::Sighted(vec![false, false]);
    assert!(other.handle_message(two).is_err());
    let mut late = receiver();
    late.handle_message(Message::MovesEnd).unwrap();
    assert!(late.handle_message(ask(1)).is_err());
}

#[test]
fn the_sender_answers_one_question_at_a_time() {
    let question = || SourcesQuestion {
        probe: Probe {
            session: 1,
            number: 2,
            landing: None,
            shown: false,
        },
        above: true,
    };
    let mut receiver = Receiver::new(ReceiverSettings::default());
    assert!(receiver.handle_message(Message::Sources(None)).is_err());
    assert!(receiver.probes_mut().ask_sources(question()));
    assert!(
        !receiver.probes_mut().ask_sources(question()),
        "one at a time"
    );
    assert_eq!(
        receiver.poll_message(),
        Some(Message::AskSources(question()))
    );
    assert_eq!(receiver.probes_mut().take_sources(), None);
    receiver.handle_message(Message::Sources(None)).unwrap();
    assert!(receiver.handle_message(Message::Sources(None)).is_err());
    assert!(receiver.probes_mut().has_sources());
    assert_eq!(receiver.probes_mut().take_sources(), Some(None));
    assert!(receiver.probes_mut().ask_sources(question()));
}

#[test]
fn the_end_waits_for_sources_that_are_being_removed() {
    let mut receiver = receiver();
    let end = Message::WalkEnd {
        entries: 0,
        left_out: LeftOut::default(),
        anchor: None,
    };
    receiver.handle_message(end).unwrap();
    assert_eq!(receiver.poll_storage(Moment(0)), None);
    receiver.handle_message(Message::MovesEnd).unwrap();
    assert_eq!(receiver.poll_storage(Moment(0)), Some(StorageJob::Finish));
}
