//! Makes probes in directories of the destination, and asks for probes in directories of the
//! sources ([`crate::distinct`]). Each end has one question at a time.

use std::collections::VecDeque;

use super::jobs::{ReceiverError, StorageJob};
use super::load::{Load, MESSAGE_BYTES};
use crate::distinct::{MAXIMUM_PROBES, Probe, Question, SourcesQuestion};
use crate::message::{Failure, Message};

/// State of the answer to the sender's question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Answering {
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
enum Asking {
    /// No question is open.
    #[default]
    Idle,
    /// The sender searches its sources.
    Asked,
    /// The sender answered.
    Answered(Option<Failure>),
}

/// Questions of both ends about directories.
#[derive(Debug, Default)]
pub struct Probes {
    /// True if the sender removes its sources. Only then it asks.
    moves_away: bool,
    answering: Answering,
    asking: Asking,
    /// True if the sender reported the end of the removal of its sources.
    moves_ended: bool,
    messages: VecDeque<Message>,
}

impl Probes {
    pub(super) fn new(moves_away: bool) -> Probes {
        Probes {
            moves_away,
            ..Probes::default()
        }
    }

    /// Asks if a probe is in a directory of the sources. Returns false if another question is open.
    /// [`Probes::take_sources`] returns the answer.
    pub fn ask_sources(&mut self, question: SourcesQuestion) -> bool {
        let is_idle = matches!(self.asking, Asking::Idle);
        if is_idle {
            self.asking = Asking::Asked;
            self.messages.push_back(Message::AskSources(question));
        }
        is_idle
    }

    pub(super) fn handle_sources(&mut self, found: Option<Failure>) -> Result<(), ReceiverError> {
        match self.asking {
            Asking::Asked => {
                self.asking = Asking::Answered(found);
                Ok(())
            }
            _ => Err(ReceiverError::Probes),
        }
    }

    /// True if [`Probes::take_sources`] returns an answer.
    pub fn has_sources(&self) -> bool {
        matches!(self.asking, Asking::Answered(_))
    }

    /// Returns the answer; `None` in it if the probe is in no such directory.
    pub fn take_sources(&mut self) -> Option<Option<Failure>> {
        match std::mem::take(&mut self.asking) {
            Asking::Answered(found) => Some(found),
            other => {
                self.asking = other;
                None
            }
        }
    }

    /// Handles the sender's question. Returns the job that makes the probes.
    pub(super) fn handle_ask(
        &mut self,
        questions: Vec<Question>,
    ) -> Result<StorageJob, ReceiverError> {
        let in_turn = self.moves_away && !self.moves_ended;
        let fits = (1..=MAXIMUM_PROBES).contains(&questions.len());
        if !in_turn || !fits || self.answering != Answering::Idle {
            return Err(ReceiverError::Probes);
        }
        self.answering = Answering::Making;
        Ok(StorageJob::MakeProbes(questions))
    }

    /// Handles the probes that were made; `None` for directories in which that failed.
    pub fn handle_probes_made(&mut self, probes: Vec<Option<Probe>>) {
        if self.answering == Answering::Making {
            self.answering = Answering::Made(probes.len());
            self.messages.push_back(Message::Probes(probes));
        }
    }

    /// Handles the result of the sender's search. Returns the job that removes the probes.
    pub(super) fn handle_sighted(&mut self, seen: Vec<bool>) -> Result<StorageJob, ReceiverError> {
        if self.answering != Answering::Made(seen.len()) {
            return Err(ReceiverError::Probes);
        }
        self.answering = Answering::Removing;
        Ok(StorageJob::RemoveProbes(seen))
    }

    /// Handles the removal of the probes. A result is the reason why a directory may be a source's.
    pub fn handle_probes_removed(&mut self, results: Vec<Option<Failure>>) {
        if self.answering == Answering::Removing {
            self.answering = Answering::Idle;
            self.messages.push_back(Message::Distinct(results));
        }
    }

    pub(super) fn handle_moves_end(&mut self) {
        self.moves_ended = true;
    }

    /// True if the sender removes no sources, or removed all of them.
    pub(super) fn have_moves_ended(&self) -> bool {
        self.moves_ended || !self.moves_away
    }

    pub(super) fn has_message(&self) -> bool {
        !self.messages.is_empty()
    }

    pub(super) fn poll_message(&mut self) -> Option<Message> {
        self.messages.pop_front()
    }

    pub(super) fn load(&self) -> Load {
        Load::of(self.messages.len(), MESSAGE_BYTES)
    }
}
