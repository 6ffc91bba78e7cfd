//! The thread that writes a stream: messages first, then blocks.

use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use longhaul_net::StreamWriter;
use longhaul_proto::sender::Dispatch;
use longhaul_proto::session::StreamId;
use longhaul_units::Moment;

use super::pairing::{OwnRead, SourceThread, park};
use super::{Slot, StreamThread};
use crate::session::stages::WireBlock;
use crate::session::{Counters, Shared};

/// Next item for a stream's writer.
enum Outgoing {
    Message(Vec<u8>),
    Block(Box<dyn WireBlock>),
}

impl StreamThread<'_> {
    pub(super) fn write_stream(&self, mut writer: Box<dyn StreamWriter>) {
        if let Some(slot) = self.transfer.lock().streams.slots.get_mut(&self.id) {
            slot.writer = Some(std::thread::current());
        }
        let (mut thread, mut room) = (SourceThread::default(), Vec::new());
        while let Some(mut outgoing) = self.next_outgoing(&mut thread) {
            let written = match &mut outgoing {
                Outgoing::Message(frame) => {
                    let began = Instant::now();
                    writer.write_all(&[frame]).map(|()| began.elapsed())
                }
                Outgoing::Block(block) => self.send_block(&mut *writer, &mut **block, &mut room),
            };
            let bytes = match &outgoing {
                Outgoing::Message(frame) => frame.len(),
                Outgoing::Block(block) => block.frame_bytes() + block.payload_bytes(),
            };
            Counters::add(&self.transfer.counters.wire_bytes, bytes as u64);
            if matches!(outgoing, Outgoing::Message(_)) {
                Counters::add(&self.transfer.counters.message_bytes, bytes as u64);
            }
            if let Outgoing::Block(block) = &outgoing {
                Counters::add(&self.transfer.counters.hole_bytes, block.hole_bytes());
                let late = block.late_bytes();
                Counters::add(&self.transfer.counters.read_bytes, late as u64);
                Counters::add(&self.transfer.counters.late_bytes, late as u64);
            }
            let Ok(spent) = written else {
                self.handle_stream_lost();
                return;
            };
            Counters::add(
                &self.transfer.counters.wire_nanoseconds,
                spent.as_nanos() as u64,
            );
        }
        // An error is ignored: there is no remedy if the peer does not receive the end of the
        // stream.
        let _ = writer.finish();
    }

    /// Waits for an item to write on this stream; `None` when the stream is to end.
    fn next_outgoing(&self, thread: &mut SourceThread) -> Option<Outgoing> {
        loop {
            let mut shared = self.transfer.lock();
            if !shared.lifetime.has_stream(self.id) {
                return None;
            }
            let retired = shared
                .streams
                .slots
                .get(&self.id)
                .is_some_and(|slot| slot.retired);
            if retired && shared.control_stream() != Some(self.id) {
                return None;
            }
            self.look_at_room(&mut shared);
            if let Some(frame) = shared.next_message(self.id) {
                return Some(Outgoing::Message(frame));
            }
            if shared.is_over() {
                return None;
            }
            if let Some(block) = self.next_block(&mut shared) {
                return Some(Outgoing::Block(block));
            }
            let mut until = None;
            if shared.streams.paired {
                match self.poll_own_read(&mut shared, thread) {
                    OwnRead::Job(job, buffer) => {
                        drop(shared);
                        match self.read_for((*job, buffer), thread) {
                            Some(block) => return Some(Outgoing::Block(block)),
                            None => continue,
                        }
                    }
                    OwnRead::WantsBuffer => {
                        drop(shared);
                        thread.take_buffer(self.transfer);
                        continue;
                    }
                    OwnRead::Nothing(then) => until = then,
                }
                if let Some(frame) = shared.next_message(self.id) {
                    return Some(Outgoing::Message(frame));
                }
            }
            if let Some(slot) = shared.streams.slots.get(&self.id) {
                slot.waiting.store(true, Ordering::Relaxed);
            }
            drop(shared);
            park(until.map(|at| at - self.transfer.now()));
            if let Some(slot) = self.transfer.lock().streams.slots.get(&self.id) {
                slot.waiting.store(false, Ordering::Relaxed);
            }
        }
    }

    /// Writes a block at the transfer's rate; returns the time spent writing. `room` is a buffer
    /// for reuse.
    fn send_block(
        &self,
        writer: &mut dyn StreamWriter,
        block: &mut dyn WireBlock,
        room: &mut Vec<u8>,
    ) -> io::Result<Duration> {
        let (frame, payload) = (block.frame_bytes(), block.payload_bytes());
        let (mut framed, mut sent) = (0, 0);
        let mut spent = Duration::ZERO;
        while framed < frame || sent < payload {
            let most = self.transfer.pacing.write_bytes().unwrap_or(usize::MAX);
            let first = (frame - framed).min(most);
            let second = (payload - sent).min(most - first);
            if most < usize::MAX {
                self.transfer
                    .pacing
                    .wait_for(first + second, || self.transfer.now());
            }
            let began = Instant::now();
            block.send(writer, (framed, first), (sent, second), room)?;
            spent += began.elapsed();
            (framed, sent) = (framed + first, sent + second);
        }
        Ok(spent)
    }

    /// Reports to the state machine if there is room for more blocks. Room ends with the last
    /// buffer and returns when a quarter of the buffers is free, to avoid rapid changes. There is
    /// no room while the threads that hold the buffers are blocked.
    fn look_at_room(&self, shared: &mut Shared) {
        if let Some(receiver) = shared.machine.receiver_mut() {
            let most = self.transfer.pool.maximum_buffers() as u64
                * self.transfer.pool.buffer_bytes() as u64;
            let used = self.transfer.pool.in_use().0;
            if used >= most || self.is_held_up() {
                receiver.acks_mut().handle_room(false);
            } else if used < most / 4 * 3 {
                receiver.acks_mut().handle_room(true);
            }
        }
    }

    pub(super) fn next_block(&self, shared: &mut Shared) -> Option<Box<dyn WireBlock>> {
        if !shared.streams.slots.get(&self.id)?.blocks {
            return None;
        }
        let now = self.transfer.now();
        let block = loop {
            let sender = shared.machine.sender_mut()?;
            match sender.poll_dispatch(self.id, now)? {
                Dispatch::Send(block) => {
                    if let Some(sealed) = shared.ready.remove(block) {
                        break sealed;
                    }
                }
                Dispatch::Discard(block) => {
                    shared.ready.remove(block);
                    self.transfer.signals.reading.notify_one();
                }
            }
        };
        shared.wake_carrier();
        if !shared.is_far_ahead(&self.transfer.pool) {
            self.transfer.signals.reading.notify_one();
        }
        Some(block)
    }
}

impl Shared {
    /// Wakes writers for waiting messages and blocks.
    pub(crate) fn wake_writers(&mut self) {
        self.wake_control();
        self.wake_carrier();
    }

    /// Wakes the writer of the control stream, because messages wait.
    pub(in crate::session) fn wake_control(&mut self) {
        let control = self.control_stream();
        if let Some(slot) = control.and_then(|id| self.streams.get(id)) {
            slot.wake();
        }
    }

    /// Wakes a waiting stream that can take a ready block. In clear the first stream takes no
    /// blocks. In paired mode it also wakes a stream whose thread can read a block itself.
    pub(in crate::session) fn wake_carrier(&self) {
        let Some(sender) = self.machine.sender() else {
            return;
        };
        let takes = |id, slot: &Slot| {
            let reads = || self.streams.paired && self.reads_for_itself(id);
            slot.is_waiting() && (sender.has_ready_for(id) || reads())
        };
        if let Some((_, slot)) = self
            .streams
            .slots
            .iter()
            .find(|(id, slot)| takes(**id, slot))
        {
            slot.wake();
        }
    }

    /// Moves messages from a slow or silent stream to a better one.
    pub(crate) fn follow_better_stream(&mut self, now: Moment) {
        let Some(current) = self.control_stream() else {
            return;
        };
        let Some(sender) = self.machine.sender_mut() else {
            return;
        };
        let better = sender.streams_mut().poll_control(current, now);
        let fit = |id: &StreamId| self.streams.get(*id).is_some_and(|slot| !slot.clear);
        if let Some(better) = better.filter(fit)
            && self.lifetime.move_control(better)
        {
            self.control.handle_stream_change();
            self.wake_writers();
        }
    }

    /// Returns the next message, if this stream carries messages.
    fn next_message(&mut self, id: StreamId) -> Option<Vec<u8>> {
        if self.control_stream() != Some(id) {
            return None;
        }
        self.next_frame()
    }

    /// Returns the next message. It is taken from the state machine as late as possible, so that
    /// acknowledgements accumulate while the stream is busy.
    pub(in crate::session) fn next_frame(&mut self) -> Option<Vec<u8>> {
        if self.control.is_drained()
            && self.control.has_room()
            && let Some(message) = self.machine.poll_message()
        {
            self.say(&message);
        }
        self.control.poll_frame().ok().flatten()
    }
}
