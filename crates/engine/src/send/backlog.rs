//! Entries that the walk found and the state machine cannot accept yet. They wait in an unnamed
//! file, so that the walk does not wait: each name is looked up once, and the totals are known
//! early. If the file is full or cannot be written, the walk waits.

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use longhaul_proto::manifest::Entry;
use longhaul_proto::message::{Failure, Farewell};
use longhaul_proto::sender::Sender;
use longhaul_storage::spill::queue::SpillQueue;
use minicbor::{Decode, Encode};

use super::tell;
use crate::session::Transfer;

/// Maximum size of the file in bytes: about four million entries.
const FILE_BYTES: u64 = 512 << 20;

/// The backlog reports steps in batches: when this many steps are in memory, when their names and
/// attributes have this many bytes, or with the first step this long after the last batch. A report
/// wakes several threads and sends a message, which takes longer than the lookup of a cached name.
const MOST_NEXT: usize = 128;
const MOST_NEXT_BYTES: usize = 64 << 10;
const LONGEST_WAIT: Duration = Duration::from_millis(1);

/// Number of steps written to the file before the state machine grants credit again.
const ASK_EVERY: u32 = 64;

/// The walk waits until the state machine accepts this many entries, so that it is not woken for
/// each one, and requests travel in batches.
const MOST_AT_ONCE: usize = 64;

/// Error: the session is over.
pub(super) struct Over;

/// One step of the walk.
#[derive(Encode, Decode)]
pub(super) enum Step {
    /// The walk found an entry.
    #[n(0)]
    Entry(#[n(0)] Entry),
    /// The walk found a name that cannot be copied.
    #[n(1)]
    Unreadable(#[n(0)] Entry, #[n(1)] Failure),
    /// The walk left a directory with this many entries.
    #[n(2)]
    DirectoryEnd(#[n(0)] Entry, #[n(1)] u64),
}

impl Step {
    fn needs_credit(&self) -> bool {
        !matches!(self, Step::DirectoryEnd(..))
    }

    fn bytes(&self) -> usize {
        match self {
            Step::Entry(entry) | Step::Unreadable(entry, _) | Step::DirectoryEnd(entry, _) => {
                entry.text_bytes()
            }
        }
    }

    fn tell(self, sender: &mut Sender) {
        match self {
            Step::Entry(entry) => sender.work_mut().handle_entry(entry),
            Step::Unreadable(entry, failure) => sender.work_mut().handle_unreadable(entry, failure),
            Step::DirectoryEnd(entry, children) => {
                sender.work_mut().handle_directory_end(entry, children)
            }
        }
    }
}

/// Reports the steps of a walk to the state machine in order.
pub(super) struct Backlog<'a> {
    transfer: &'a Transfer,
    /// The oldest steps.
    next: VecDeque<Step>,
    /// Bytes of names and attributes of the steps in `next`.
    next_bytes: usize,
    /// The steps after them.
    queue: SpillQueue,
    /// Number of steps queued since the state machine was last asked for credit.
    unasked: u32,
    /// Time of the last batch.
    told: Option<Instant>,
}

impl<'a> Backlog<'a> {
    pub(super) fn new(transfer: &'a Transfer) -> Backlog<'a> {
        Backlog {
            transfer,
            next: VecDeque::new(),
            next_bytes: 0,
            queue: SpillQueue::new(std::env::temp_dir(), FILE_BYTES),
            unasked: 0,
            told: None,
        }
    }

    /// Reports a step, or keeps it until its batch is full and the state machine accepts it.
    pub(super) fn add(&mut self, step: Step) -> Result<(), Over> {
        if self.queue.is_empty() && self.has_room_next() {
            self.next_bytes += step.bytes();
            self.next.push_back(step);
            let is_recent = |told: Instant| told.elapsed() < LONGEST_WAIT;
            if self.has_room_next() && self.told.is_some_and(is_recent) {
                return Ok(());
            }
            return self.report_some();
        }
        while !self.queue.has_room() {
            wait_for_credit(self.transfer)?;
            self.report_some()?;
        }
        match minicbor::to_vec(&step) {
            Ok(record) => self.queue.push(&record),
            Err(error) => {
                self.transfer.break_off(&error);
                return Err(Over);
            }
        }
        self.unasked += 1;
        if self.unasked < ASK_EVERY {
            return Ok(());
        }
        self.report_some()
    }

    /// Waits until the state machine has accepted all steps.
    pub(super) fn finish(&mut self) -> Result<(), Over> {
        loop {
            self.report_some()?;
            if self.next.is_empty() && self.queue.is_empty() {
                return Ok(());
            }
            wait_for_credit(self.transfer)?;
        }
    }

    /// Reports as many steps as the state machine accepts now.
    pub(super) fn report_some(&mut self) -> Result<(), Over> {
        self.unasked = 0;
        loop {
            self.refill()?;
            if self.next.is_empty() {
                self.told = Some(Instant::now());
                return Ok(());
            }
            if self.transfer.is_over() {
                return Err(Over);
            }
            let next = &mut self.next;
            let told = tell(self.transfer, |sender| tell_next(sender, next));
            told.ok_or(Over)?;
            self.next_bytes = self.next.iter().map(Step::bytes).sum();
            if !self.next.is_empty() {
                return Ok(());
            }
        }
    }

    fn has_room_next(&self) -> bool {
        self.next.len() < MOST_NEXT && self.next_bytes < MOST_NEXT_BYTES
    }

    /// Reads the oldest steps of the queue. A failure loses them, and the session ends.
    fn refill(&mut self) -> Result<(), Over> {
        while !self.queue.is_empty() && self.has_room_next() {
            let step = match self.queue.pop() {
                Ok(record) => record.map(minicbor::decode::<Step>).transpose(),
                Err(error) => {
                    self.transfer.end(Farewell::Storage(error.to_string()));
                    return Err(Over);
                }
            };
            match step {
                Ok(step) => {
                    self.next_bytes += step.as_ref().map_or(0, Step::bytes);
                    self.next.extend(step);
                }
                Err(error) => {
                    self.transfer.break_off(&error);
                    return Err(Over);
                }
            }
        }
        Ok(())
    }
}

/// Reports steps until the state machine accepts no more.
fn tell_next(sender: &mut Sender, next: &mut VecDeque<Step>) {
    while let Some(step) = next.pop_front() {
        if step.needs_credit() && sender.work().entry_credit() == 0 {
            next.push_front(step);
            return;
        }
        step.tell(sender);
    }
}

/// Waits until the state machine accepts some entries.
fn wait_for_credit(transfer: &Transfer) -> Result<(), Over> {
    wait_while(transfer, |sender| {
        sender.work().entry_credit() < MOST_AT_ONCE
    })
}

/// Waits while the condition holds. The state machine sends requests for all its entries meanwhile.
pub(super) fn wait_while(transfer: &Transfer, waits: impl Fn(&Sender) -> bool) -> Result<(), Over> {
    let mut shared = transfer.lock();
    loop {
        if shared.is_over() {
            return Err(Over);
        }
        let Some(sender) = shared.machine.sender_mut() else {
            return Err(Over);
        };
        if !waits(sender) {
            return Ok(());
        }
        sender.work_mut().flush_listing();
        shared.wake_writers();
        shared = transfer
            .signals
            .walking
            .wait(shared)
            .unwrap_or_else(PoisonError::into_inner);
    }
}
