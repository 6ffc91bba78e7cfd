//! Commands of several files in extended block mode, sent before the data of the first file.

use std::collections::VecDeque;

use crate::control::Control;
use crate::error::Error;
use crate::protocol::command;
use crate::protocol::ranges::Ranges;
use crate::protocol::reply::Reply;

/// Ranges that the command `REST` names. Data of further ranges are sent again.
pub(super) const RESTART_RANGES: usize = 100;

/// Code of a reply: the server has received these ranges.
const RANGE_MARKER: u16 = 111;
/// Code of a reply: number of bytes transferred so far.
const PERFORMANCE_MARKER: u16 = 112;

/// Reply that the server owes.
#[derive(Clone, Copy)]
enum Owed {
    /// To `REST`.
    Restart,
    /// To the command of the file.
    File,
}

/// Replies to the commands of a pipeline.
pub(super) enum Answer {
    /// The server reports the ranges that it has received.
    Ranges(Reply),
    /// Reply to the ranges of a file that are present.
    Restart(Reply),
    /// The server begins the transfer of the current file.
    Announced,
    /// Final reply to the current file.
    Ended(Reply),
}

/// The commands of a batch of files.
pub(super) struct Pipeline<'a> {
    /// `RETR` or `STOR`.
    verb: &'static str,
    /// Path and present ranges of each file.
    files: Vec<(&'a [u8], &'a Ranges)>,
    /// Maximum number of files whose commands are sent and which have not ended.
    ahead: usize,
    /// Number of files whose commands are sent.
    sent: usize,
    /// Index of the current file.
    head: usize,
    owed: VecDeque<Owed>,
}

impl<'a> Pipeline<'a> {
    /// Creates a pipeline that has sent no command.
    pub(super) fn new(
        verb: &'static str,
        files: impl Iterator<Item = (&'a [u8], &'a Ranges)>,
        ahead: usize,
    ) -> Pipeline<'a> {
        Pipeline {
            verb,
            files: files.collect(),
            ahead,
            sent: 0,
            head: 0,
            owed: VecDeque::new(),
        }
    }

    /// Returns the index of the current file.
    pub(super) fn head(&self) -> usize {
        self.head
    }

    /// Ends the current file.
    pub(super) fn advance(&mut self) {
        self.head += 1;
        self.sent = self.sent.max(self.head);
    }

    /// Sends the commands of further files.
    ///
    /// # Errors
    ///
    /// If the connection failed, or if FTP cannot express the command of the current file. Then
    /// no command of this file was sent.
    pub(super) fn send(&mut self, control: &mut Control) -> Result<(), Error> {
        while self.sent - self.head < self.ahead
            && let Some((path, present)) = self.files.get(self.sent)
        {
            if let Err(error) = command::line(self.verb, Some(path)) {
                if self.sent == self.head {
                    return Err(error.into());
                }
                // The error belongs to a later file, whose turn comes when this one has ended.
                break;
            }
            if !present.is_empty() {
                let marker = present.first(RESTART_RANGES).marker();
                control.send("REST", Some(marker.as_bytes()))?;
                self.owed.push_back(Owed::Restart);
            }
            control.send(self.verb, Some(path))?;
            self.owed.push_back(Owed::File);
            self.sent += 1;
        }
        Ok(())
    }

    /// Returns the next answer that has arrived.
    pub(super) fn arrived(&mut self, control: &mut Control) -> Result<Option<Answer>, Error> {
        while let Some(reply) = control.arrived()? {
            return match (self.owed.front(), reply.code) {
                (_, PERFORMANCE_MARKER) => continue,
                (_, RANGE_MARKER) => Ok(Some(Answer::Ranges(reply))),
                (Some(Owed::Restart), _) => {
                    self.owed.pop_front();
                    Ok(Some(Answer::Restart(reply)))
                }
                (Some(Owed::File), 100..200) => Ok(Some(Answer::Announced)),
                (Some(Owed::File), _) => {
                    self.owed.pop_front();
                    Ok(Some(Answer::Ended(reply)))
                }
                (None, _) => {
                    let text = format!("a reply without a command: {}", reply.text());
                    Err(Error::Unexpected(text))
                }
            };
        }
        Ok(None)
    }
}
