//! XDD's pairing (`--stack paired`; paper 001, section 2.1). At a source the thread that sends on a
//! stream also reads and encodes its blocks; at a sink the receiving thread also decodes and writes
//! them (`recv/verify.rs`). A block never changes threads between disk and wire, and there are as
//! many threads as streams. The state machine and all other parts are the same as with layers.

use std::sync::atomic::Ordering;
use std::time::Duration;

use longhaul_proto::sender::ReadJob;
use longhaul_proto::session::StreamId;
use longhaul_units::Moment;

use super::{Slot, StreamThread};
use crate::codec::coder::Coder;
use crate::pool::Buffer;
use crate::session::stages::WireBlock;
use crate::session::{Counters, Shared, Side, Transfer};

/// Maximum time to wait for a buffer while other threads have all of them.
const STARVED: Duration = Duration::from_millis(10);

/// Resources of a stream's thread for reading.
#[derive(Default)]
pub(super) struct SourceThread {
    /// Buffer that the thread takes before it requests a read.
    buffer: Option<Buffer>,
    coder: Option<Coder>,
}

impl SourceThread {
    /// Takes a buffer for the next block, or waits a short time. A thread that waits in the pool
    /// would miss messages, and blocks that a lost stream left.
    pub fn take_buffer(&mut self, transfer: &Transfer) {
        self.buffer = transfer.pool.try_take();
        if self.buffer.is_none() {
            park(Some(STARVED));
        }
    }
}

/// Next read for a stream's thread.
pub(super) enum OwnRead {
    /// A block to read, and a buffer for it.
    Job(Box<ReadJob>, Buffer),
    /// A buffer is needed first.
    WantsBuffer,
    /// No block to read until the thread is woken, or until this time.
    Nothing(Option<Moment>),
}

impl StreamThread<'_> {
    /// Returns the next read for this stream's thread.
    pub(super) fn poll_own_read(&self, shared: &mut Shared, thread: &mut SourceThread) -> OwnRead {
        if !shared.reads_for_itself(self.id) || shared.is_far_ahead(&self.transfer.pool) {
            thread.buffer = None;
            return OwnRead::Nothing(None);
        }
        let Some(buffer) = thread.buffer.take() else {
            return OwnRead::WantsBuffer;
        };
        let now = self.transfer.now();
        shared.judge_suspects(now);
        let Some(sender) = shared.machine.sender_mut() else {
            return OwnRead::Nothing(None);
        };
        if let Some(job) = sender.poll_read(now) {
            // There may be more reads for other threads.
            shared.wake_carrier();
            return OwnRead::Job(Box::new(job), buffer);
        }
        // Without a read, request the state of the entries walked so far.
        sender.work_mut().flush_listing();
        let until = sender.poll_timeout(now);
        shared.follow_better_stream(now);
        if shared.control_stream() != Some(self.id) {
            shared.wake_control();
        }
        OwnRead::Nothing(until)
    }

    /// Reads and encodes a block; returns the block that this stream sends next. That is another
    /// one if it comes first or if the block is no longer wanted.
    pub(super) fn read_for(
        &self,
        read: (ReadJob, Buffer),
        thread: &mut SourceThread,
    ) -> Option<Box<dyn WireBlock>> {
        let Side::Sending(side) = self.transfer.side() else {
            return None;
        };
        side.read_for(self.transfer, self.id, read, &mut thread.coder)
    }

    /// Returns the block that a stream sends next after a read; `None` if the stream was lost
    /// meanwhile, and other streams send the block.
    pub(crate) fn next_own_block(&self, shared: &mut Shared) -> Option<Box<dyn WireBlock>> {
        let lives = shared.lifetime.has_stream(self.id);
        lives.then(|| self.next_block(shared))?
    }
}

impl Transfer {
    /// Runs work on the thread of a stream that received a block, or waits there. Meanwhile the
    /// stream is not read, so silence is no evidence about the other end.
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
        self.lock().lifetime.note_heard(now);
        since.store(now.0, Ordering::Relaxed);
        held.fetch_sub(1, Ordering::Relaxed);
        result
    }
}

/// Waits until the stream's thread is woken, or for at most this time.
pub(super) fn park(span: Option<Duration>) {
    match span {
        Some(span) => std::thread::park_timeout(span.max(Duration::from_millis(1))),
        None => std::thread::park(),
    }
}

/// Time after which a thread that holds a block is assumed to wait for a disk.
const HELD_FOR: Duration = Duration::from_secs(1);

impl StreamThread<'_> {
    /// True if the threads that hold blocks have been blocked for long.
    pub(super) fn is_held_up(&self) -> bool {
        let since = Moment(self.transfer.counters.held_since.load(Ordering::Relaxed));
        self.transfer.counters.held_streams.load(Ordering::Relaxed) > 0
            && self.transfer.now() - since > HELD_FOR
    }
}

impl Shared {
    /// True if a stream's thread may read blocks for itself: not if better streams do.
    pub(super) fn reads_for_itself(&self, id: StreamId) -> bool {
        self.machine.is_sending() && self.takes_blocks(id)
    }

    /// True if a stream takes blocks: the bootstrap stream does not if there are better ones.
    pub(in crate::session) fn takes_blocks(&self, id: StreamId) -> bool {
        let slots = &self.streams.slots;
        let carries = slots.get(&id).filter(|slot| slot.carries_blocks());
        let better = || slots.values().any(Slot::replaces_bootstrap);
        carries.is_some_and(|slot| !slot.is_bootstrap() || !better())
    }
}
