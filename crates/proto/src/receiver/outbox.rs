//! Jobs, messages and events that wait to be taken.

use std::collections::VecDeque;

use super::jobs::{ReceivedEvent, StorageJob};
use super::load::{Load, MESSAGE_BYTES};
use crate::block::ContentName;
use crate::message::{Answer, Failure, Message, Outcome};

/// Memory of a job in bytes without paths and texts, slightly above the measured one.
const JOB_BYTES: usize = 256;

/// Jobs, messages and events that wait to be taken.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    jobs: VecDeque<StorageJob>,
    messages: VecDeque<Message>,
    events: VecDeque<ReceivedEvent>,
    /// Bytes of the paths and texts in jobs and messages.
    texts: usize,
    /// Number of answers in the messages.
    answers: usize,
}

impl Outbox {
    pub fn push_job(&mut self, job: StorageJob) {
        self.texts += of_job(&job);
        self.jobs.push_back(job);
    }

    pub fn push_message(&mut self, message: Message) {
        self.texts += of_message(&message);
        if let Message::Answers(answers) = &message {
            self.answers += answers.len();
        }
        self.messages.push_back(message);
    }

    pub fn push_event(&mut self, event: ReceivedEvent) {
        self.events.push_back(event);
    }

    pub fn has_job(&self) -> bool {
        !self.jobs.is_empty()
    }

    pub fn poll_job(&mut self) -> Option<StorageJob> {
        let job = self.jobs.pop_front()?;
        self.texts -= of_job(&job);
        Some(job)
    }

    pub fn has_message(&self) -> bool {
        !self.messages.is_empty()
    }

    pub fn poll_message(&mut self) -> Option<Message> {
        let message = self.messages.pop_front()?;
        self.texts -= of_message(&message);
        if let Message::Answers(answers) = &message {
            self.answers -= answers.len();
        }
        Some(message)
    }

    pub fn poll_event(&mut self) -> Option<ReceivedEvent> {
        self.events.pop_front()
    }

    pub fn load(&self) -> Load {
        let loads = [
            Load::of(self.jobs.len(), JOB_BYTES),
            Load::of(self.messages.len(), MESSAGE_BYTES),
            Load::of(self.answers, 0),
        ];
        loads.into_iter().sum::<Load>().with_bytes(self.texts)
    }
}

/// Returns the bytes of the paths in a job. Comparisons and directories are counted elsewhere until
/// they are done, because many of them may wait.
fn of_job(job: &StorageJob) -> usize {
    match job {
        StorageJob::Commit { entry, .. } | StorageJob::Link(entry) => entry.text_bytes(),
        StorageJob::ReadBack { entry, blocks, .. } => entry.text_bytes() + size_of_val(&blocks[..]),
        StorageJob::Compare(_)
        | StorageJob::CompareContents(..)
        | StorageJob::FinishDirectory(_)
        | StorageJob::Checkpoint(_)
        | StorageJob::Discard { .. }
        // The window for names bounds these jobs.
        | StorageJob::Names(_)
        | StorageJob::EndNames(_)
        | StorageJob::Remove
        // Only one question is open at a time.
        | StorageJob::MakeProbes(_)
        | StorageJob::RemoveProbes(_)
        | StorageJob::Finish => 0,
    }
}

/// Returns the bytes of lists and texts in an unsent message.
fn of_message(message: &Message) -> usize {
    match message {
        Message::Again {
            content: ContentName::Pack(ids),
            ..
        } => size_of_val(&ids[..]),
        Message::Answers(answers) => {
            let texts = answers.iter().map(|(_, answer)| match answer {
                Answer::Resume(ranges) => size_of_val(&ranges[..]),
                Answer::Refuse(Failure { text, .. }) => text.len(),
                Answer::Send
                | Answer::Skip { .. }
                | Answer::Planned(_)
                | Answer::Compare
                | Answer::Leave(_) => 0,
            });
            size_of_val(&answers[..]) + texts.sum::<usize>()
        }
        Message::Done { entries, .. } => {
            let texts = entries.iter().map(|(_, outcome)| match outcome {
                Outcome::Failed(Failure { text, .. }) => text.len(),
                Outcome::Committed { .. }
                | Outcome::Planned(_)
                | Outcome::Unchanged
                | Outcome::Mended
                | Outcome::LeftOut
                | Outcome::Left(_) => 0,
            });
            size_of_val(&entries[..]) + texts.sum::<usize>()
        }
        Message::Durable { pieces, .. } => size_of_val(&pieces[..]),
        _ => 0,
    }
}
