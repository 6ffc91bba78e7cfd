//! Answers the receiver's questions if a probe is in a directory of the sources
//! ([`crate::distinct`]).

use super::{Sender, SenderError};
use crate::distinct::SourcesQuestion;
use crate::message::{Failure, Message};

/// Maximum number of searches of one session. Deletion and backups need one each. Names that are
/// replaced by another kind of file need two for the anchor and one for each directory in it, up to
/// 514 (`recv/replacing/proof.rs` in the engine).
const MOST_SEARCHES: u32 = 520;

/// Searches that the receiver asked for.
#[derive(Debug, Default)]
pub(super) struct Searching {
    step: Step,
    /// Number of questions so far.
    count: u32,
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

impl Sender {
    pub(super) fn handle_ask_sources(
        &mut self,
        question: SourcesQuestion,
    ) -> Result<(), SenderError> {
        let searching = &mut self.searching;
        searching.count = searching.count.saturating_add(1);
        match searching.step {
            Step::Idle if self.settings.moves && searching.count <= MOST_SEARCHES => {
                searching.step = Step::Asked(question);
                Ok(())
            }
            _ => Err(SenderError::Probes),
        }
    }

    /// True if [`Sender::poll_search`] returns a question.
    pub fn has_search(&self) -> bool {
        matches!(self.searching.step, Step::Asked(_))
    }

    /// Returns the probe for which the sources must be searched. [`Sender::handle_searched`] takes
    /// the result.
    pub fn poll_search(&mut self) -> Option<SourcesQuestion> {
        match std::mem::take(&mut self.searching.step) {
            Step::Asked(question) => {
                self.searching.step = Step::Busy;
                Some(question)
            }
            other => {
                self.searching.step = other;
                None
            }
        }
    }

    /// Handles the end of a search. An error means that the probe is or may be there.
    pub fn handle_searched(&mut self, result: Result<(), Failure>) {
        if let Step::Busy = self.searching.step {
            self.searching.step = Step::Idle;
            self.messages.push_back(Message::Sources(result.err()));
        }
    }
}

#[cfg(test)]
mod tests {
    use longhaul_units::Moment;

    use super::*;
    use crate::distinct::Probe;
    use crate::sender::SenderSettings;

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
            assert!(sender.has_search());
            assert_eq!(sender.poll_search(), Some(question()));
            assert_eq!(sender.poll_search(), None);
            assert!(ask(&mut sender).is_err());
            sender.handle_searched(Ok(()));
            assert_eq!(sender.poll_message(), Some(Message::Sources(None)));
        }
    }

    #[test]
    fn a_dry_run_is_not_asked() {
        let mut sender = Sender::new(SenderSettings {
            moves: false,
            ..SenderSettings::default()
        });
        let asked = sender.handle_message(Message::AskSources(question()), Moment(0));
        assert!(asked.is_err());
    }
}
