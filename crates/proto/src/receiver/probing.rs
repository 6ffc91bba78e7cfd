//! Makes probes in directories of the destination ([`crate::distinct`]), for one question of the
//! sender at a time.

use super::{Receiver, ReceiverError, StorageJob};
use crate::distinct::{MAXIMUM_PROBES, Probe, Question, SourcesQuestion};
use crate::message::{Failure, Message};

/// State of the answer to the sender's question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Probing {
    /// The sender has not asked.
    #[default]
    Idle,
    /// Probes are being made.
    Making,
    /// This number of probes exists. The sender searches for them.
    Made(usize),
    /// Probes are being removed.
    Removing,
}

/// State of this end's question to the sender.
#[derive(Debug, Default)]
pub(super) enum AskingSources {
    /// No question is open.
    #[default]
    Idle,
    /// The sender searches its sources.
    Asked,
    /// The sender answered.
    Answered(Option<Failure>),
}

impl Receiver {
    /// Asks if a probe is in a directory of the sources. Returns false if another question is open.
    /// [`Receiver::take_sources`] returns the answer.
    pub fn ask_sources(&mut self, question: SourcesQuestion) -> bool {
        let is_idle = matches!(self.asking_sources, AskingSources::Idle);
        if is_idle {
            self.asking_sources = AskingSources::Asked;
            self.push_message(Message::AskSources(question));
        }
        is_idle
    }

    pub(super) fn handle_sources(&mut self, found: Option<Failure>) -> Result<(), ReceiverError> {
        match self.asking_sources {
            AskingSources::Asked => {
                self.asking_sources = AskingSources::Answered(found);
                Ok(())
            }
            _ => Err(ReceiverError::Probes),
        }
    }

    /// True if [`Receiver::take_sources`] returns an answer.
    pub fn has_sources(&self) -> bool {
        matches!(self.asking_sources, AskingSources::Answered(_))
    }

    /// Returns the answer; `None` in it if the probe is in no such directory.
    pub fn take_sources(&mut self) -> Option<Option<Failure>> {
        match std::mem::take(&mut self.asking_sources) {
            AskingSources::Answered(found) => Some(found),
            other => {
                self.asking_sources = other;
                None
            }
        }
    }

    pub(super) fn handle_ask_distinct(
        &mut self,
        questions: Vec<Question>,
    ) -> Result<(), ReceiverError> {
        let in_turn = self.settings.moves_away && !self.moves_ended;
        let fits = (1..=MAXIMUM_PROBES).contains(&questions.len());
        if !in_turn || !fits || self.probing != Probing::Idle {
            return Err(ReceiverError::Probes);
        }
        self.probing = Probing::Making;
        self.push_job(StorageJob::MakeProbes(questions));
        Ok(())
    }

    /// Handles the probes that were made; `None` for directories in which that failed.
    pub fn handle_probes_made(&mut self, probes: Vec<Option<Probe>>) {
        if self.probing == Probing::Making {
            self.probing = Probing::Made(probes.len());
            self.push_message(Message::Probes(probes));
        }
    }

    pub(super) fn handle_sighted(&mut self, seen: Vec<bool>) -> Result<(), ReceiverError> {
        if self.probing != Probing::Made(seen.len()) {
            return Err(ReceiverError::Probes);
        }
        self.probing = Probing::Removing;
        self.push_job(StorageJob::RemoveProbes(seen));
        Ok(())
    }

    /// Handles the removal of the probes. A result is the reason why a directory may be a source's.
    pub fn handle_probes_removed(&mut self, results: Vec<Option<Failure>>) {
        if self.probing == Probing::Removing {
            self.probing = Probing::Idle;
            self.push_message(Message::Distinct(results));
        }
    }

    pub(super) fn handle_moves_end(&mut self) {
        self.moves_ended = true;
        self.finish_if_done();
    }
}

#[cfg(test)]
mod tests {
    use longhaul_units::Moment;

    use super::*;
    use crate::distinct::Probe;
    use crate::filter::LeftOut;
    use crate::receiver::ReceiverSettings;

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
            receiver.handle_probes_made(vec![Some(probe.clone())]);
            let said = receiver.poll_message();
            assert_eq!(said, Some(Message::Probes(vec![Some(probe)])));
            receiver
                .handle_message(Message::Sighted(vec![true]))
                .unwrap();
            let removed = receiver.poll_storage(Moment(0));
            assert_eq!(removed, Some(StorageJob::RemoveProbes(vec![true])));
            receiver.handle_probes_removed(vec![None]);
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
        other.handle_probes_made(vec![None]);
        let two = Message::Sighted(vec![false, false]);
        assert!(other.handle_message(two).is_err());
        let mut late = receiver();
        late.handle_message(Message::MovesEnd).unwrap();
        assert!(late.handle_message(ask(1)).is_err());
    }

    #[test]
    fn the_sender_answers_what_it_was_asked() {
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
        assert!(receiver.ask_sources(question()));
        assert!(!receiver.ask_sources(question()), "one at a time");
        assert_eq!(
            receiver.poll_message(),
            Some(Message::AskSources(question()))
        );
        assert_eq!(receiver.take_sources(), None);
        receiver.handle_message(Message::Sources(None)).unwrap();
        assert!(receiver.handle_message(Message::Sources(None)).is_err());
        assert!(receiver.has_sources());
        assert_eq!(receiver.take_sources(), Some(None));
        assert!(receiver.ask_sources(question()));
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
}
