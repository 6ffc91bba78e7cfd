//! Answers the receiver's questions if a probe is in a directory of the sources
//! ([`crate::distinct`]).

use std::collections::VecDeque;

use crate::distinct::SourcesQuestion;
use crate::message::{Failure, Message};
use crate::sender::results::SenderError;

/// Maximum number of searches of one session. Deletion and backups need one each. Names that are
/// replaced by another kind of file need two for the anchor and one for each directory in it, up to
/// 514 (`recv/replacing/proof.rs` in the engine).
const MOST_SEARCHES: u32 = 520;

/// Searches that the receiver asked for.
#[derive(Debug, Default)]
pub struct Searches {
    /// True if data is sent. A dry run has no searches.
    moves: bool,
    step: Step,
    /// Number of questions so far.
    count: u32,
    messages: VecDeque<Message>,
}

/// State of the search.
#[derive(Debug, Default)]
enum Step {
    /// No question is open.
    #[default]
    Idle,
    /// The receiver asked this question.
    Asked(SourcesQuestion),
    /// This end is searching its sources.
    Busy,
}

impl Searches {
    pub(super) fn new(moves: bool) -> Searches {
        Searches {
            moves,
            ..Searches::default()
        }
    }

    pub(super) fn handle_ask(&mut self, question: SourcesQuestion) -> Result<(), SenderError> {
        self.count = self.count.saturating_add(1);
        match self.step {
            Step::Idle if self.moves && self.count <= MOST_SEARCHES => {
                self.step = Step::Asked(question);
                Ok(())
            }
            _ => Err(SenderError::Probes),
        }
    }

    /// True if [`Searches::poll`] returns a question.
    pub fn has_step(&self) -> bool {
        matches!(self.step, Step::Asked(_))
    }

    /// Returns the probe for which the sources must be searched.
    /// [`Searches::handle_searched`] takes the result.
    pub fn poll(&mut self) -> Option<SourcesQuestion> {
        match std::mem::take(&mut self.step) {
            Step::Asked(question) => {
                self.step = Step::Busy;
                Some(question)
            }
            other => {
                self.step = other;
                None
            }
        }
    }

    /// Handles the end of a search. An error means that the probe is or may be there.
    pub fn handle_searched(&mut self, result: Result<(), Failure>) {
        if let Step::Busy = self.step {
            self.step = Step::Idle;
            self.messages.push_back(Message::Sources(result.err()));
        }
    }

    pub(super) fn has_message(&self) -> bool {
        !self.messages.is_empty()
    }

    pub(super) fn poll_message(&mut self) -> Option<Message> {
        self.messages.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use longhaul_units::Moment;

    use super::*;
    use crate::distinct::Probe;
    use crate::sender::{Sender, SenderSettings};

    fn question() -> SourcesQuestion {
        SourcesQuestion {
            probe: Probe {
                session: 1,
                number: 2,
                landing: None,
                shown: false,
            },
            above: true,
        }
    }

    #[test]
    fn one_search_at_a_time() {
        let ask =
            |sender: &mut Sender| sender.handle_message(Message::AskSources(question()), Moment(0));
        let mut sender = Sender::new(SenderSettings::default());
        for _ in 0..2 {
            ask(&mut sender).unwrap();
            assert!(sender.work().searches().has_step());
            assert_eq!(sender.work_mut().searches_mut().poll(), Some(question()));
            assert_eq!(sender.work_mut().searches_mut().poll(), None);
            assert!(ask(&mut sender).is_err());
            sender.work_mut().searches_mut().handle_searched(Ok(()));
            assert_eq!(sender.poll_message(), Some(Message::Sources(None)));
        }
    }

    #[test]
    fn a_dry_run_has_no_searches() {
        let mut sender = Sender::new(SenderSettings {
            moves: false,
            ..SenderSettings::default()
        });
        let asked = sender.handle_message(Message::AskSources(question()), Moment(0));
        assert!(asked.is_err());
    }
}
