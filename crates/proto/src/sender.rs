//! The sending end of a transfer: decides what to read next, which stream carries it, and how to
//! replace lost data.
//!
//! - [`Work`]: source of tasks, for example the walk of a tree ([`Walk`])
//! - plan: cuts and packs the data of tasks into blocks, and tracks the blocks on their way
//! - [`Streams`]: speed of each stream
//!
//! [`Sender`] connects them: it gives blocks to streams, plans lost blocks again, and gives the
//! receiver's reports to the plan and the work.

mod plan;
mod results;
mod settings;
mod still;
mod streams;
mod task;
#[cfg(test)]
mod tests;
mod walk;

use std::time::Duration;

use longhaul_units::Moment;

use crate::account::Account;
use crate::manifest::EntryId;
use crate::message::{Message, Totals};
use crate::notice::Notice;
use crate::session::StreamId;

pub use plan::is_large;
use plan::{Help, Plan, Speed};
pub use results::{
    BlockId, DigestRead, Dispatch, Ending, EntryEvent, FilterStep, PackedJob, PackedRead,
    PieceRead, ReadData, ReadJob, SenderError,
};
pub use settings::{MOST_FILTERED, MOST_LARGE_FILES, SenderSettings};
use still::{Activity, Still};
use streams::Hopeless;
pub use streams::Streams;
pub use task::{Part, Supply, Task, TaskId, TaskResult, Work};
pub use walk::{Moved, Moves, Names, Searches, Walk};

/// The sending end of a transfer, which sends the tasks of `W`.
#[derive(Debug)]
pub struct Sender<W = Walk> {
    /// Number of this session among those of the transfer.
    epoch: u64,
    work: W,
    plan: Plan,
    streams: Streams,
    still: Still,
    finished: Option<Totals>,
    notices: Vec<Notice>,
}

impl Sender<Walk> {
    /// Makes a sender of a walk without entries.
    pub fn new(settings: SenderSettings) -> Sender {
        Sender::with_work(settings, Walk::new(settings))
    }
}

impl<W: Work> Sender<W> {
    /// Makes a sender of tasks.
    pub fn with_work(settings: SenderSettings, work: W) -> Sender<W> {
        Sender {
            epoch: settings.epoch,
            work,
            plan: Plan::new(settings),
            streams: Streams::default(),
            still: Still::default(),
            finished: None,
            notices: Vec::new(),
        }
    }

    /// Handles the acceptance of the session: `asks` is true if every entry must be asked for, and
    /// `large_files` is the number of large files that the receiver can keep open. Before that, a
    /// sender that dials asks, so that the first questions travel with its request. If the
    /// destination is empty, the sender does not wait for the answers.
    pub fn handle_welcome(&mut self, asks: bool, epoch: u64, large_files: usize) {
        self.epoch = epoch;
        self.plan.bound_large_files(large_files);
        self.work.handle_welcome(asks);
    }

    /// Returns the source of the tasks.
    pub fn work(&self) -> &W {
        &self.work
    }

    /// Returns the source of the tasks. Tasks that are added to it are taken by
    /// [`Sender::poll_read`].
    pub fn work_mut(&mut self) -> &mut W {
        &mut self.work
    }

    /// Returns the streams.
    pub fn streams(&self) -> &Streams {
        &self.streams
    }

    /// Returns the streams.
    pub fn streams_mut(&mut self) -> &mut Streams {
        &mut self.streams
    }

    /// Adds a stream that can take blocks.
    pub fn handle_stream_up(&mut self, stream: StreamId, now: Moment) {
        self.streams.add(stream, now);
    }

    /// Handles the loss of a stream: all its blocks that have not arrived are planned again.
    pub fn handle_stream_down(&mut self, stream: StreamId) {
        self.plan.blocks_mut().handle_stream_down(stream);
        for block in self.streams.remove(stream) {
            self.plan.replan(block);
        }
    }

    /// Sets if a stream takes new blocks. A stream in reserve takes no new blocks, because better
    /// streams do. Its current blocks continue.
    pub fn handle_reserve(&mut self, stream: StreamId, reserve: bool) {
        if reserve {
            self.plan.blocks_mut().handle_stream_down(stream);
        }
        self.streams.handle_reserve(stream, reserve);
    }

    /// Sets the maximum size of new blocks to `bytes`, rounded down to a power of two. It is at
    /// least 64 KiB and at most the block size of the settings.
    pub fn bound_blocks(&mut self, bytes: u64) {
        self.plan.block_bytes.bound(bytes);
    }

    /// Handles the number of blocks that arrived on a stream since it began.
    pub fn handle_arrived(&mut self, stream: StreamId, blocks: u64, now: Moment) {
        let (known, mut races) = (self.plan.blocks_mut(), Vec::new());
        self.streams.handle_arrived(stream, blocks, now, |block| {
            races.extend(known.end_race(block));
        });
        for twin_won in races {
            self.streams.handle_race(twin_won);
        }
    }

    /// Returns a stream that seems to delay the others, so that [`Sender::poll_read`] would give
    /// one of its blocks to another stream. A driver with better knowledge calls
    /// [`Streams::handle_judged`] and then calls this method again.
    pub fn poll_suspect(&self, now: Moment) -> Option<StreamId> {
        let slow = self.hopeless(now)?.slow;
        (!self.streams.is_judged(slow, now)).then_some(slow)
    }

    /// Handles a message.
    ///
    /// # Errors
    ///
    /// [`SenderError`]: the session is over.
    pub fn handle_message(&mut self, message: Message, now: Moment) -> Result<(), SenderError> {
        self.exchange();
        match message {
            Message::Answers(answers) => {
                for (id, answer) in answers {
                    self.work.handle_answer(id, answer)?;
                }
            }
            Message::Durable { epoch, pieces } if epoch == self.epoch => {
                self.plan.handle_durable(pieces);
            }
            Message::Done { epoch, entries } if epoch == self.epoch => {
                for (id, outcome) in entries {
                    self.work.check_outcome(&outcome)?;
                    self.end(id, outcome.into());
                }
            }
            Message::Durable { .. } | Message::Done { .. } => {}
            Message::Again { content, reason } => self.plan.handle_again(content, reason),
            Message::Arrived { streams, room } => {
                self.streams.handle_room(room, now);
                for (stream, blocks) in streams {
                    self.handle_arrived(StreamId(stream), blocks, now);
                }
            }
            Message::Finished(totals, notices) => {
                if !self.work.is_done() {
                    return Err(SenderError::TooEarly);
                }
                self.finished = Some(totals);
                self.notices = notices;
            }
            Message::Entries(_) => return Err(SenderError::WrongRole("entries")),
            Message::Sealed { .. } => return Err(SenderError::WrongRole("a seal")),
            Message::WalkEnd { .. } => return Err(SenderError::WrongRole("the walk's end")),
            Message::Digests(_) => return Err(SenderError::WrongRole("digests")),
            message => self.work.handle_message(message)?,
        }
        self.exchange();
        Ok(())
    }

    /// Ends an entry whose outcome the receiver reported.
    fn end(&mut self, id: EntryId, ending: Ending) {
        match self.plan.end(id, ending) {
            // The work gets the outcomes in their order.
            None => self.exchange(),
            Some(ending) => self.work.handle_outcome(id, ending),
        }
    }

    /// Exchanges tasks and results between the work and the plan.
    fn exchange(&mut self) {
        self.plan.exchange(&mut self.work);
    }

    /// Handles the result of reading a pack, entry by entry. Returns false if the block is no
    /// longer needed, so that its buffer can be freed.
    pub fn handle_pack_read(
        &mut self,
        block: BlockId,
        results: Vec<(EntryId, PackedRead)>,
    ) -> bool {
        let is_needed = self.plan.handle_pack_read(block, results);
        self.exchange();
        is_needed
    }

    /// Handles the result of reading a piece. Returns false under the same condition as
    /// [`Sender::handle_pack_read`].
    pub fn handle_piece_read(&mut self, block: BlockId, result: PieceRead) -> bool {
        let is_needed = self.plan.handle_piece_read(block, result);
        self.exchange();
        is_needed
    }

    /// Returns the next data to read; `None` if no data can be read now.
    pub fn poll_read(&mut self, now: Moment) -> Option<ReadJob> {
        self.exchange();
        let speed = Speed {
            streams: self.streams.count(),
            is_proven: self.streams.are_proven(),
        };
        let job = self.plan.next_read(speed);
        job.or_else(|| self.next_twin(now))
    }

    /// Returns a block that another stream would deliver sooner than the slow stream that carries
    /// it, if no new data can be read.
    fn hopeless(&self, now: Moment) -> Option<Hopeless> {
        // If the receiver has no room, waiting is not the fault of a stream.
        let waits = self.waits_for_streams() && self.streams.has_room();
        let blocks = self.plan.blocks();
        if !waits || blocks.races() >= self.streams.most_twins() {
            return None;
        }
        self.streams.hopeless(now, |block| blocks.is_single(block))
    }

    /// Returns a job that reads the last block of a slow stream once more for a faster stream, if
    /// no new data can be read.
    fn next_twin(&mut self, now: Moment) -> Option<ReadJob> {
        let Hopeless {
            slow,
            block,
            helper,
        } = self.hopeless(now)?;
        let helper = Some(helper);
        self.plan.read_twin(block, Help { slow, helper })
    }

    /// True if it is useful to search for slow streams now.
    fn waits_for_streams(&self) -> bool {
        self.plan.waits_for_streams(self.work.supply())
    }

    /// Returns the next block for a stream that can take one.
    pub fn poll_dispatch(&mut self, stream: StreamId, now: Moment) -> Option<Dispatch> {
        if self.streams.is_reserve(stream) {
            return None;
        }
        let alone = self.streams.count() <= 1;
        let (dispatch, bytes) = self.plan.dispatch(stream, alone)?;
        if let Dispatch::Send(block) = dispatch {
            self.streams.handle_sent(stream, block, bytes, now);
        }
        Some(dispatch)
    }

    /// True if [`Sender::poll_dispatch`] would return a block for this stream.
    pub fn has_ready_for(&self, stream: StreamId) -> bool {
        let alone = self.streams.count() <= 1;
        self.streams.contains(stream)
            && !self.streams.is_reserve(stream)
            && self.plan.blocks().has_ready_for(stream, alone)
    }

    /// Sends blocks again that seem lost. Called regularly. Acts only if all sent blocks count as
    /// arrived, the other end has room, and for `patience` there was no progress. A block that is
    /// already there costs only its transmission. Returns the number of blocks.
    pub fn handle_stillness(&mut self, patience: Duration, now: Moment) -> usize {
        let account = self.account();
        let seen = Activity {
            arrived_bytes: account.arrived_bytes,
            durable_bytes: account.durable_bytes,
            tasks: self.plan.task_count(),
            work: self.work.progress(),
        };
        let waits = self.streams.is_busy() || !self.streams.has_room();
        if !self.still.is_over(patience, seen, waits, now) {
            return 0;
        }
        self.still.note_try(now);
        self.plan.replan_sent()
    }

    /// True if [`Sender::poll_message`] returns a message.
    pub fn has_message(&self) -> bool {
        self.work.has_message() || !self.plan.messages.is_empty()
    }

    /// Returns the next message for the receiver. The plan has few messages, which may end large
    /// files, so they come first. The receiver has learned of their entries before.
    pub fn poll_message(&mut self) -> Option<Message> {
        let message = self.plan.messages.pop_front();
        message.or_else(|| self.work.poll_message())
    }

    /// Returns the next event of an entry.
    pub fn poll_event(&mut self) -> Option<EntryEvent> {
        let event = self.plan.events.pop_front();
        event.or_else(|| self.work.poll_event())
    }

    /// Returns the time at which [`Sender::poll_read`] and [`Streams::poll_control`] must be called
    /// even without an event, because a stream may have turned out to be slow.
    pub fn poll_timeout(&self, now: Moment) -> Option<Moment> {
        self.streams.poll_timeout(self.waits_for_streams(), now)
    }

    /// Returns the account of file data so far.
    pub fn account(&self) -> Account {
        let account = self.plan.account();
        Account {
            // A block without data counts as one byte in the measurement of rates.
            arrived_bytes: self.streams.arrived_bytes().min(account.moved_bytes),
            ..account
        }
    }

    /// Returns the receiver's totals after everything is done and durable.
    pub fn finished(&self) -> Option<Totals> {
        // Sources that must be removed remain until their removal ends.
        self.finished.filter(|_| self.work.is_settled())
    }

    /// Returns the properties that the destination lost or refused, after everything is done.
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// Returns the number of blocks that are being read, wait for a stream, or are sent and not
    /// acknowledged.
    pub fn blocks_under_way(&self) -> usize {
        self.plan.blocks().count()
    }
}
