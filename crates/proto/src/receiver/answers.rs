//! Answers the sender's questions with the results of comparing entries.

use super::Receiver;
use super::ending::Ending;
use super::jobs::Compared;
use crate::manifest::{Entry, EntryKind};
use crate::message::{Answer, Message, Outcome};

impl Receiver {
    /// Handles the results of comparing a list.
    pub fn handle_compared(&mut self, found: Vec<(Entry, Compared)>) {
        self.comparisons.end_list();
        let mut answers = Vec::with_capacity(found.len());
        for (entry, compared) in found {
            let id = entry.id;
            answers.extend(self.answer(entry, compared).map(|answer| (id, answer)));
        }
        if !answers.is_empty() {
            self.outbox.push_message(Message::Answers(answers));
        }
        self.settle();
    }

    /// Handles the result of comparing contents, or of work that [`Compared::Later`] announced. A
    /// file that differs must be sent.
    pub fn handle_contents_compared(&mut self, entry: Entry, compared: Compared) {
        let id = entry.id;
        self.comparisons.end_later(&entry);
        if compared == Compared::Differs {
            self.outcomes.count_differed();
        }
        if let Some(answer) = self.answer(entry, compared) {
            let answers = vec![(id, answer)];
            self.outbox.push_message(Message::Answers(answers));
        }
        self.settle();
    }

    /// Returns the answer for a compared entry; `None` if the answer follows later.
    fn answer(&mut self, entry: Entry, compared: Compared) -> Option<Answer> {
        // A directory is done after all its entries, independent of the comparison.
        let known = self.outcomes.is_done(entry.id) || entry.kind == EntryKind::Directory;
        let (answer, outcome, digest) = match compared {
            Compared::Later => {
                self.comparisons.begin_later(&entry);
                return None;
            }
            Compared::Send | Compared::Differs => return Some(Answer::Send),
            Compared::Contents | Compared::Partial(_) if known => return Some(Answer::Send),
            Compared::Contents => {
                self.comparisons.wait_for_digest(entry);
                return Some(Answer::Compare);
            }
            Compared::Partial(blocks) => {
                return Some(self.files.resume(entry, &blocks, &mut self.outbox));
            }
            Compared::Same(digest) => {
                let mended = false;
                (Answer::Skip { digest, mended }, None, digest)
            }
            Compared::Mended(digest) => {
                let mended = true;
                let outcome = Some(Outcome::Mended);
                (Answer::Skip { digest, mended }, outcome, digest)
            }
            Compared::Refused(failure) => {
                let outcome = Some(Outcome::Failed(failure.clone()));
                (Answer::Refuse(failure), outcome, None)
            }
            Compared::Left(held) => (Answer::Leave(held), Some(Outcome::Left(held)), None),
            Compared::Planned(change) => {
                let outcome = Some(Outcome::Planned(Some(change)));
                (Answer::Planned(change), outcome, None)
            }
        };
        if !known {
            self.end(Ending {
                id: entry.id,
                parent: entry.parent,
                entry: Some(entry),
                outcome,
                digest,
                is_answered: true,
            });
        }
        Some(answer)
    }
}
