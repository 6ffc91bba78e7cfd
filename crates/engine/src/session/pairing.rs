//! XDD's pairing (`--stack paired`; paper 001, section 2.1): at a source the thread that
//! sends on a stream also reads and encodes what it sends, at a sink the one that
//! receives also decodes and writes (`recv/verify.rs`). A block never changes
//! hands between disk and wire, and there are as many threads as streams, however
//! many that are. What is read and what it means is decided by the same state
//! machine as in layers, and all the rest is the same.

use std::sync::atomic::Ordering;
use std::time::Duration;

use longhaul_proto::sender::ReadJob;
use longhaul_proto::session::StreamId;
use longhaul_units::Moment;

use super::stages::WireBlock;
use super::{Counters, Machine, Shared, Side, Transfer};
use crate::codec::coder::Coder;
use crate::flows::Stack;
use crate::pool::Buffer;

/// How long to wait where the others have all buffers.
const STARVED: Duration = Duration::from_millis(10);

/// What a stream's thread has for its reading.
#[derive(Default)]
pub(super) struct SourceThread {
    /// Had before it asks what to read.
    buffer: Option<Buffer>,
    coder: Option<Coder>,
}

impl SourceThread {
    /// Has room for the next block, or waits a little: the waiting thread for the pool would hear
    /// of no message and of no block that a lost stream left.
    pub fn take_buffer(&mut self, transfer: &Transfer) {
        self.buffer = transfer.pool.try_take();
        if self.buffer.is_none() {
            transfer.park(Some(transfer.now() + STARVED));
        }
    }
}

/// What there is to read for a stream.
pub(super) enum OwnRead {
    /// This.
    Job(Box<ReadJob>, Buffer),
    /// A buffer is needed to know.
    WantsBuffer,
    /// Nothing, until something happens or then.
    Nothing(Option<Moment>),
}

impl Transfer {
    /// Whether streams' own threads do the work of the layers.
    pub fn is_paired(&self) -> bool {
        self.settings.stack == Stack::Paired
    }

    /// What this stream's thread should read now.
    pub(super) fn poll_own_read(
        &self,
        shared: &mut Shared,
        id: StreamId,
        thread: &mut SourceThread,
    ) -> OwnRead {
        if !shared.reads_for_itself(id) || self.is_far_ahead(shared) {
            thread.buffer = None;
            return OwnRead::Nothing(None);
        }
        let Some(buffer) = thread.buffer.take() else {
            return OwnRead::WantsBuffer;
        };
        let now = self.now();
        shared.judge_suspects(now);
        let Machine::Sending(sender) = &mut shared.machine else {
            return OwnRead::Nothing(None);
        };
        if let Some(job) = sender.poll_read(now) {
            // There may be more for the others.
            shared.wake_carrier();
            return OwnRead::Job(Box::new(job), buffer);
        }
        // Nothing to read: what was walked is worth asking for now.
        sender.flush_listing();
        let until = sender.poll_timeout(now);
        shared.follow_better_stream(now);
        if shared.control_stream() != Some(id) {
            shared.wake_control();
        }
        OwnRead::Nothing(until)
    }

    /// Reads and encodes, and gives what this stream sends next: that block,
    /// unless it is not wanted any more or another one comes first.
    pub(super) fn read_for(
        &self,
        id: StreamId,
        read: (ReadJob, Buffer),
        thread: &mut SourceThread,
    ) -> Option<Box<dyn WireBlock>> {
        let Side::Sending(side) = self.side() else {
            return None;
        };
        side.read_for(self, id, read, &mut thread.coder)
    }

    /// What a stream that just read something sends next; `None` if it was lost
    /// meanwhile: what was read then goes elsewhere.
    pub(crate) fn next_own_block(
        &self,
        shared: &mut Shared,
        id: StreamId,
    ) -> Option<Box<dyn WireBlock>> {
        let lives = shared.life.streams().any(|live| live == id);
        lives.then(|| self.next_block(shared, id))?
    }

    /// At a sink, does what is to be done with a block on the thread that
    /// received it; or waits on it. Meanwhile nothing is read there, so that silence
    /// says nothing of the other end.
    pub(crate) fn hold_stream<T>(&self, work: impl FnOnce() -> T) -> T {
        let Counters {
            held_streams: held,
            held_since: since,
            ..
        } = &self.counters;
        if held.fetch_add(1, Ordering::Relaxed) == 0 {
            since.store(self.now().0, Ordering::Relaxed);
        }
        let result = work();
        let now = self.now();
        self.lock().note_heard(now);
        since.store(now.0, Ordering::Relaxed);
        held.fetch_sub(1, Ordering::Relaxed);
        result
    }

    /// Waits until the stream's thread is woken, or then.
    pub(super) fn park(&self, until: Option<Moment>) {
        match until {
            Some(at) => {
                let span = at - self.now();
                std::thread::park_timeout(span.max(Duration::from_millis(1)));
            }
            None => std::thread::park(),
        }
    }
}

/// Who takes longer for a block waits for a disk.
const HELD_FOR: Duration = Duration::from_secs(1);

impl Transfer {
    /// Whether the threads that hold blocks have stood still for long.
    pub(super) fn is_held_up(&self) -> bool {
        let since = Moment(self.counters.held_since.load(Ordering::Relaxed));
        self.counters.held_streams.load(Ordering::Relaxed) > 0 && self.now() - since > HELD_FOR
    }
}

impl Shared {
    /// Whether a stream takes what its thread would read: not where better ones
    /// do.
    pub(super) fn reads_for_itself(&self, id: StreamId) -> bool {
        matches!(self.machine, Machine::Sending(_)) && self.takes_blocks(id)
    }

    /// Whether blocks go over a stream: not where better ones take them.
    pub(super) fn takes_blocks(&self, id: StreamId) -> bool {
        let carries = self.streams.get(&id).filter(|slot| slot.carries_blocks());
        let better = || self.streams.values().any(super::Slot::replaces_bootstrap);
        carries.is_some_and(|slot| !slot.is_bootstrap() || !better())
    }
}
