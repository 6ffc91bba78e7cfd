//! The two threads of a stream: one reads frames and passes them on, the other writes messages and
//! blocks.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use longhaul_net::{Stream, StreamHandle, StreamReader, StreamWriter};
use longhaul_proto::block::{BlockHeader, HeaderKey};
use longhaul_proto::control::Numbered;
use longhaul_proto::frame::{FrameError, FrameHeader, FrameKind, HEADER_BYTES};
use longhaul_proto::message::{Farewell, Message};
use longhaul_proto::sender::Dispatch;
use longhaul_proto::session::{Life, StreamId};
use longhaul_units::Moment;

use super::dial::Calls;
use super::pairing::{OwnRead, SourceThread};
use super::stages::WireBlock;
use super::tickets::MAXIMUM_TICKETS;
use super::{Counters, Event, Machine, SessionError, Shared, Side, Transfer};

// tidy: long file because the reading and the writing thread of a stream belong together.

/// Maximum number of streams that end because of corrupt data while no data become durable.
const MOST_DAMAGED: u32 = 64;

/// Error message if more streams were damaged.
const DAMAGED_AGAIN: &str = "what it sends arrives damaged again and again: look for faulty memory \
    or network hardware on the way, or for something that changes connections";

/// Number of streams closed because of corrupt data since the last block became durable.
#[derive(Debug, Default)]
pub(super) struct Damage {
    streams: u32,
    /// Durable bytes and completed entries at that time.
    durable: (u64, u64),
}

impl Damage {
    /// Counts a damaged stream; true if there were too many since the values in `durable` last
    /// changed.
    fn is_hopeless(&mut self, durable: (u64, u64)) -> bool {
        if self.durable != durable {
            *self = Damage {
                streams: 0,
                durable,
            };
        }
        self.streams += 1;
        self.streams > MOST_DAMAGED
    }
}

/// A live stream.
pub(crate) struct Slot {
    handle: StreamHandle,
    /// True if it is in clear; such a stream carries no messages.
    pub(super) clear: bool,
    /// True if it carries blocks.
    blocks: bool,
    /// True for the bootstrap stream, which began the session. It takes blocks only until there are
    /// other streams for them.
    bootstrap: bool,
    writer: Option<Thread>,
    /// If true, it takes no more blocks and ends when its data are sent.
    retired: bool,
    waiting: AtomicBool,
    halves: u8,
    /// Number of bytes that the kernel counts as moved, and the time of the last change.
    pub(super) moved: (u64, Moment),
    /// Number of bytes sent by this end and acknowledged, and the time of the last change.
    pub(super) acked: (u64, Moment),
    /// Number of bytes received, according to the kernel.
    pub(super) received: u64,
    /// Time when it joined.
    pub(super) born: Moment,
    /// True if sent data are still not acknowledged after several timeouts.
    pub(super) stuck: bool,
    /// Number of bytes read at the last check.
    came: u64,
    /// Time since when the rest of a block is read, on a stream in clear.
    pub(super) midway: Option<Moment>,
    /// Time since when lost segments are retransmitted one by one, and the acknowledged byte count
    /// that ends this loss. Later losses are counted separately.
    pub(super) mends: Option<(Moment, u64)>,
    /// For a coupled stream, the time when the coupling or its congestion control last began.
    pub(super) renewed: Option<Moment>,
    /// Pacing rate last set at its kernel, in bytes per second.
    pub(super) pace: AtomicU64,
    /// Pacing rate without a limit.
    pub(super) fastest: u64,
}

/// Next item for a stream's writer.
enum Outgoing {
    Message(Vec<u8>),
    Block(Box<dyn WireBlock>),
}

/// Maximum number of streams of a session: the maximum that a daemon allows, one for messages
/// alone, and some that were lost and have not ended.
const MOST_STREAMS: usize = 576;

/// Description of the damage if a message arrives on a stream without messages.
const MESSAGE_IN_CLEAR: &str = "a message came on a stream in clear";

/// Description of the damage if a block's header is not authentic.
pub(crate) const CHANGED_IN_CLEAR: &str = "a block's header was changed on a stream in clear";

/// Reasons why a stream's reader stops.
pub(crate) enum Stop {
    /// The other end closed the stream, or the connection broke. Its blocks go to other streams.
    /// For corrupt data it holds a description.
    Lost(Option<String>),
    /// The other end violated the protocol; the session ends.
    Broken(SessionError),
}

/// Returns the header of a block on a stream in clear if it is authentic. An attacker on the path
/// can only end the stream.
fn proved(key: HeaderKey, decoded: Result<BlockHeader, FrameError>) -> Result<BlockHeader, Stop> {
    let proved = decoded
        .ok()
        .and_then(|mut block| key.check(&mut block).then_some(block));
    proved.ok_or_else(|| Stop::Lost(Some(CHANGED_IN_CLEAR.to_owned())))
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        let damaged = error.kind() == io::ErrorKind::InvalidData;
        Stop::Lost(damaged.then(|| error.to_string()))
    }
}

impl From<FrameError> for Stop {
    /// A stream with corrupt data is lost; its data are sent again on another one.
    fn from(error: FrameError) -> Stop {
        match error {
            FrameError::Unexpected(_) | FrameError::Undecodable(_) => Stop::Broken(error.into()),
            _ => Stop::Lost(Some(error.to_string())),
        }
    }
}

impl Slot {
    /// Returns the slot of a stream that joins now.
    fn joined(handle: StreamHandle, now: Moment) -> Slot {
        Slot {
            came: handle.bytes_read().0,
            handle,
            clear: false,
            blocks: true,
            bootstrap: false,
            writer: None,
            retired: false,
            waiting: AtomicBool::new(false),
            halves: 2,
            moved: (0, now),
            acked: (0, now),
            received: 0,
            born: now,
            stuck: false,
            midway: None,
            mends: None,
            renewed: None,
            pace: AtomicU64::new(super::steer::UNBOUND),
            fastest: super::steer::fastest(None),
        }
    }

    pub(super) fn wake(&self) {
        // The next wake-up must go to another stream.
        self.waiting.store(false, Ordering::Relaxed);
        if let Some(writer) = &self.writer {
            writer.unpark();
        }
    }

    /// True if it waits for a block.
    pub(super) fn is_waiting(&self) -> bool {
        self.blocks && !self.retired && self.waiting.load(Ordering::Relaxed)
    }

    pub(super) fn shutdown(&self) {
        self.handle.shutdown();
    }

    /// Ends a superfluous stream when its data are sent.
    pub(super) fn retire(&mut self) {
        self.retired = true;
        self.wake();
    }

    /// True if one of its two threads has ended: the writer after its last data, or either one if
    /// the stream is lost.
    pub(super) fn is_half_ended(&self) -> bool {
        self.halves < 2
    }

    pub(super) fn is_retired(&self) -> bool {
        self.retired
    }

    pub(super) fn is_bootstrap(&self) -> bool {
        self.bootstrap
    }

    pub(super) fn carries_blocks(&self) -> bool {
        self.blocks && !self.retired
    }

    /// True if it can take new blocks instead of the bootstrap stream.
    pub(super) fn replaces_bootstrap(&self) -> bool {
        self.blocks && !self.bootstrap && !self.retired
    }

    pub(super) fn handle(&self) -> &StreamHandle {
        &self.handle
    }

    /// True if the rest of a block has not arrived for longer than `patience`.
    pub(super) fn is_stuck_midway(&self, patience: Duration, now: Moment) -> bool {
        self.midway
            .is_some_and(|since| now - since.max(self.moved.1) > patience)
    }

    /// True if bytes were read since the last call.
    pub(super) fn has_heard_more(&mut self) -> bool {
        let came = self.handle.bytes_read().0;
        std::mem::replace(&mut self.came, came) != came
    }
}

impl Shared {
    /// True if all streams wait for blocks and no block is ready.
    pub(crate) fn starves(&self) -> bool {
        let mut carriers = self.streams.values().filter(|slot| slot.carries_blocks());
        self.has_nothing_prepared() && carriers.all(Slot::is_waiting)
    }
}

impl Transfer {
    /// Returns the handles of the streams, so that the kernel is queried without the lock.
    pub(crate) fn handles(&self) -> Vec<(StreamId, StreamHandle)> {
        let shared = self.lock();
        let streams = shared.streams.iter();
        streams
            .map(|(id, slot)| (*id, slot.handle().clone()))
            .collect()
    }

    /// Adds a stream to the session. `received` is the number of messages that its dialer has
    /// received. False if the session does not accept the stream.
    pub fn attach(
        self: &Arc<Transfer>,
        stream: Stream,
        id: StreamId,
        clear: bool,
        received: u64,
    ) -> bool {
        self.attach_as(stream, id, clear, received, false)
    }

    /// Adds the first stream, over a channel that is worse than later ones. It takes blocks only
    /// while there is no other stream.
    pub fn attach_bootstrap(self: &Arc<Transfer>, stream: Stream) -> bool {
        self.attach_as(stream, StreamId(0), false, 0, true)
    }

    /// Lets the first stream take blocks like all others, because no better streams will come.
    pub fn promote_bootstrap(&self) {
        let mut shared = self.lock();
        let Shared {
            streams, machine, ..
        } = &mut *shared;
        for (id, slot) in streams.iter_mut().filter(|(_, slot)| slot.bootstrap) {
            slot.bootstrap = false;
            if let Machine::Sending(sender) = machine {
                sender.handle_reserve(*id, false);
            }
        }
        shared.wake_writers();
    }

    fn attach_as(
        self: &Arc<Transfer>,
        stream: Stream,
        id: StreamId,
        clear: bool,
        received: u64,
        bootstrap: bool,
    ) -> bool {
        let Stream {
            reader,
            writer,
            handle,
        } = stream;
        let mut shared = self.lock();
        // A value sent in clear may be forged.
        let received = if clear { 0 } else { received };
        // An end that dials limits the number of streams itself.
        let most = if shared.dialer.is_none() && !self.settings.local {
            self.seat().streams(MOST_STREAMS)
        } else {
            MOST_STREAMS
        };
        let was_alone = *shared.life.life() != Life::Active;
        if shared.streams.len() >= most
            || shared.control.handle_acknowledged(received).is_err()
            || !shared.life.handle_stream_up(id)
        {
            return false;
        }
        shared.note_joined(was_alone, self.now());
        let info = handle.tcp_info();
        let round_trip = info.map(|info| info.rtt);
        let least = info.and_then(|info| info.minimum_rtt).or(round_trip);
        let slot = Slot {
            clear,
            blocks: clear == self.is_clear(),
            bootstrap,
            fastest: super::steer::fastest(least),
            ..Slot::joined(handle, self.now())
        };
        shared.govern(slot.handle());
        if matches!(shared.machine, Machine::Sending(_)) {
            shared.apply(id, &slot);
            // The other end's disk may pause; this end detects a path that fails. A stream of a
            // local pair has no such option, so errors are ignored.
            let _ = slot.handle().wait_for_reader();
        }
        shared.streams.insert(id, slot);
        shared.most_streams = shared.most_streams.max(shared.streams.len());
        if let Machine::Sending(sender) = &mut shared.machine
            && clear == self.is_clear()
        {
            sender.handle_stream_up(id, self.now());
            if let Some(round_trip) = round_trip {
                sender.streams_mut().handle_round_trip(id, round_trip);
            }
        }
        shared.reserve_bootstrap();
        drop(shared);
        // The congestion window of a new path shows its capacity before the first block is read.
        self.look_for_codecs();
        self.start_half("receive", id, move |transfer| {
            transfer.read_stream(id, reader);
        });
        self.start_half("send", id, move |transfer| {
            transfer.write_stream(id, writer);
        });
        self.living.notify_all();
        true
    }

    fn start_half(
        self: &Arc<Transfer>,
        name: &str,
        id: StreamId,
        run: impl FnOnce(&Arc<Transfer>) + Send + 'static,
    ) {
        let transfer = Arc::clone(self);
        let started = std::thread::Builder::new()
            .name(format!("{name} {}", id.0))
            .spawn(move || {
                run(&transfer);
                transfer.handle_half_ended(id);
            });
        if let Err(error) = started {
            self.handle_stream_lost(id);
            self.handle_half_ended(id);
            self.lacks_stream_thread(&error);
        }
    }

    fn handle_half_ended(&self, id: StreamId) {
        let mut shared = self.lock();
        let ended = shared.streams.get_mut(&id).and_then(|slot| {
            slot.halves -= 1;
            (slot.halves == 0).then(|| slot.handle.clone())
        });
        drop(shared);
        if let Some(handle) = ended {
            self.look_for_the_last_time(id, &handle);
            self.lock().streams.remove(&id);
        }
        self.living.notify_all();
    }

    /// Handles the loss of a stream: its blocks and messages go to other streams.
    pub(crate) fn handle_stream_lost(&self, id: StreamId) {
        let mut shared = self.lock();
        let Some(slot) = shared.streams.get(&id) else {
            return;
        };
        slot.shutdown();
        slot.wake();
        let known = shared.life.streams().any(|live| live == id);
        if known {
            let retired = shared.streams.get(&id).is_some_and(|slot| slot.retired);
            if !retired && !shared.is_over() && shared.finished.is_none() {
                Counters::add(&self.counters.lost_streams, 1);
                shared.note_lost_stream(id, self.now());
            }
            if shared.life.handle_stream_down(id, self.now()) {
                shared.control.handle_stream_change();
            }
            match &mut shared.machine {
                Machine::Sending(sender) => sender.handle_stream_down(id),
                Machine::Receiving(receiver) => receiver.handle_stream_down(id),
            }
            shared.reserve_bootstrap();
            if self.end_if_heavy(&shared) {
                let text = "its connections were lost while it had much under way";
                shared.life.end(Farewell::Broken(text.to_owned()));
                self.wake_everybody(&shared);
            }
        }
        self.settle(shared);
        self.living.notify_all();
    }

    /// Returns the number of messages received so far, for a stream that joins.
    pub fn received(&self) -> u64 {
        self.lock().control.received()
    }

    fn read_stream(self: &Arc<Transfer>, id: StreamId, mut reader: Box<dyn StreamReader>) {
        let stop = loop {
            if let Err(stop) = self.read_frame(id, &mut *reader) {
                break stop;
            }
        };
        match stop {
            Stop::Broken(error) => self.break_off(&error),
            Stop::Lost(Some(error)) => self.handle_damage(id, error),
            Stop::Lost(None) => self.hear_out(&mut *reader),
        }
        self.handle_stream_lost(id);
    }

    /// Closes a stream with corrupt data. Ends the session after too many of them, because a path
    /// that damages all data would cost stream after stream.
    fn handle_damage(&self, id: StreamId, error: String) {
        let mut shared = self.lock();
        if shared.is_over() || shared.finished.is_some() {
            return;
        }
        let account = match &shared.machine {
            Machine::Sending(sender) => sender.account(),
            Machine::Receiving(receiver) => receiver.account(),
        };
        let done = self.counters.done_entries.load(Ordering::Relaxed);
        let hopeless = shared.damage.is_hopeless((account.durable_bytes, done));
        drop(shared);
        self.report(Event::StreamDamaged {
            stream: id.0,
            error,
        });
        if hopeless {
            self.break_off(&DAMAGED_AGAIN);
        }
    }

    /// True if a stream is in clear and therefore carries no messages.
    fn carries_no_messages(&self, id: StreamId) -> bool {
        let shared = self.lock();
        shared.streams.get(&id).is_some_and(|slot| slot.clear)
    }

    fn read_frame(
        self: &Arc<Transfer>,
        id: StreamId,
        reader: &mut dyn StreamReader,
    ) -> Result<(), Stop> {
        let mut bytes = [0; HEADER_BYTES];
        read_exact(reader, &mut bytes)?;
        let header = FrameHeader::parse(&bytes)?;
        let mut body = vec![0; header.body];
        read_exact(reader, &mut body)?;
        Counters::add(
            &self.counters.wire_bytes,
            (HEADER_BYTES + header.body + header.payload) as u64,
        );
        match header.kind {
            FrameKind::Control => {
                let bytes = HEADER_BYTES + header.body + header.payload;
                Counters::add(&self.counters.message_bytes, bytes as u64);
                if self.carries_no_messages(id) {
                    // An attacker on the path may have sent it.
                    return Err(Stop::Lost(Some(MESSAGE_IN_CLEAR.to_owned())));
                }
                let numbered = header.decode(&body)?;
                self.handle_control(id, numbered).map_err(Stop::Broken)
            }
            FrameKind::Block => {
                let block = match self.settings.clear {
                    Some(key) => proved(key, header.decode(&body))?,
                    None => header.decode(&body)?,
                };
                match self.side() {
                    Side::Receiving(side) => {
                        side.read_block(self, id, (block, header.payload), reader)
                    }
                    Side::Sending(_) => {
                        Err(FrameError::Unexpected("a block came to a sender").into())
                    }
                }
            }
            FrameKind::Handshake if self.carries_no_messages(id) => {
                Err(Stop::Lost(Some(MESSAGE_IN_CLEAR.to_owned())))
            }
            FrameKind::Handshake => {
                Err(FrameError::Unexpected("a handshake within a session").into())
            }
        }
    }

    fn handle_control(&self, id: StreamId, numbered: Numbered) -> Result<(), SessionError> {
        let mut shared = self.lock();
        shared.note_heard(self.now());
        // Answers go to the stream on which the questions arrive.
        if matches!(shared.machine, Machine::Receiving(_)) && shared.life.move_control(id) {
            shared.control.handle_stream_change();
            // There may be no new message, but the earlier messages must be sent again.
            shared.wake_writers();
        }
        let Some(message) = shared.control.handle_frame(numbered)? else {
            // The control channel may have room again for waiting messages.
            if shared.has_message() {
                shared.wake_control();
            }
            return Ok(());
        };
        if self.handle_session_message(&mut shared, &message) {
            return Ok(());
        }
        if let Message::SetFlows(flows) = message {
            drop(shared);
            self.set_flows(self.bounded(flows));
            return Ok(());
        }
        if let Message::WantCalls { count, told } = message {
            drop(shared);
            self.answer_calls(Calls { count, told });
            return Ok(());
        }
        match message {
            Message::Called(calls) => return self.handle_called(calls),
            Message::WantTickets(count) => {
                self.issue_tickets(&mut shared, count);
                return Ok(());
            }
            Message::Tickets(tickets) => {
                let room = (MAXIMUM_TICKETS as usize).saturating_sub(shared.tickets.len());
                shared.tickets.extend(tickets.into_iter().take(room));
                self.living.notify_all();
                return Ok(());
            }
            _ => {}
        }
        if let (Message::Checksums { content, checksums }, Side::Receiving(side)) =
            (&message, self.side())
        {
            drop(shared);
            if !side.handle_checksums(self, content.clone(), checksums.clone()) {
                return Err(FrameError::Unexpected("too many checksums without blocks").into());
            }
            return Ok(());
        }
        if let Side::Receiving(side) = self.side() {
            side.check_message(&message)?;
        }
        if matches!(message, Message::Finished(..)) && !shared.is_over() {
            // A goodbye follows.
            drop(shared);
            self.observe_at_last();
            shared = self.lock();
        }
        let now = self.now();
        match &mut shared.machine {
            Machine::Sending(sender) => sender.handle_message(message, now)?,
            Machine::Receiving(receiver) => {
                receiver.handle_message(message)?;
                self.check_memory(receiver)?;
            }
        }
        self.settle(shared);
        Ok(())
    }

    fn write_stream(&self, id: StreamId, mut writer: Box<dyn StreamWriter>) {
        if let Some(slot) = self.lock().streams.get_mut(&id) {
            slot.writer = Some(std::thread::current());
        }
        let (mut thread, mut room) = (SourceThread::default(), Vec::new());
        while let Some(mut outgoing) = self.next_outgoing(id, &mut thread) {
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
            Counters::add(&self.counters.wire_bytes, bytes as u64);
            if matches!(outgoing, Outgoing::Message(_)) {
                Counters::add(&self.counters.message_bytes, bytes as u64);
            }
            if let Outgoing::Block(block) = &outgoing {
                Counters::add(&self.counters.hole_bytes, block.hole_bytes());
                let late = block.late_bytes();
                Counters::add(&self.counters.read_bytes, late as u64);
                Counters::add(&self.counters.late_bytes, late as u64);
            }
            let Ok(spent) = written else {
                self.handle_stream_lost(id);
                return;
            };
            Counters::add(&self.counters.wire_nanoseconds, spent.as_nanos() as u64);
        }
        // An error is ignored: there is no remedy if the peer does not receive the end of the
        // stream.
        let _ = writer.finish();
    }

    /// Waits for an item to write on this stream; `None` when the stream is to end.
    fn next_outgoing(&self, id: StreamId, thread: &mut SourceThread) -> Option<Outgoing> {
        loop {
            let mut shared = self.lock();
            if !shared.life.streams().any(|live| live == id) {
                return None;
            }
            let retired = shared.streams.get(&id).is_some_and(|slot| slot.retired);
            if retired && shared.control_stream() != Some(id) {
                return None;
            }
            self.look_at_room(&mut shared);
            if let Some(frame) = shared.next_message(id) {
                return Some(Outgoing::Message(frame));
            }
            if shared.is_over() {
                return None;
            }
            if let Some(block) = self.next_block(&mut shared, id) {
                return Some(Outgoing::Block(block));
            }
            let mut until = None;
            if shared.paired {
                match self.poll_own_read(&mut shared, id, thread) {
                    OwnRead::Job(job, buffer) => {
                        drop(shared);
                        match self.read_for(id, (*job, buffer), thread) {
                            Some(block) => return Some(Outgoing::Block(block)),
                            None => continue,
                        }
                    }
                    OwnRead::WantsBuffer => {
                        drop(shared);
                        thread.take_buffer(self);
                        continue;
                    }
                    OwnRead::Nothing(then) => until = then,
                }
                if let Some(frame) = shared.next_message(id) {
                    return Some(Outgoing::Message(frame));
                }
            }
            if let Some(slot) = shared.streams.get(&id) {
                slot.waiting.store(true, Ordering::Relaxed);
            }
            drop(shared);
            self.park(until);
            if let Some(slot) = self.lock().streams.get(&id) {
                slot.waiting.store(false, Ordering::Relaxed);
            }
        }
    }

    /// Reports to the state machine if there is room for more blocks. Room ends with the last
    /// buffer and returns when a quarter of the buffers is free, to avoid rapid changes. There is
    /// no room while the threads that hold the buffers are blocked.
    fn look_at_room(&self, shared: &mut Shared) {
        if let Machine::Receiving(receiver) = &mut shared.machine {
            let most = self.pool.maximum_buffers() as u64 * self.pool.buffer_bytes() as u64;
            let used = self.pool.in_use().0;
            if used >= most || self.is_held_up() {
                receiver.handle_room(false);
            } else if used < most / 4 * 3 {
                receiver.handle_room(true);
            }
        }
    }

    pub(super) fn next_block(
        &self,
        shared: &mut Shared,
        id: StreamId,
    ) -> Option<Box<dyn WireBlock>> {
        if !shared.streams.get(&id)?.blocks {
            return None;
        }
        let now = self.now();
        let block = loop {
            let Machine::Sending(sender) = &mut shared.machine else {
                return None;
            };
            match sender.poll_dispatch(id, now)? {
                Dispatch::Send(block) => {
                    if let Some(sealed) = shared.prepared.remove(&block) {
                        break sealed;
                    }
                }
                Dispatch::Discard(block) => {
                    shared.prepared.remove(&block);
                    self.reading.notify_one();
                }
            }
        };
        shared.wake_carrier();
        if !self.is_far_ahead(shared) {
            self.reading.notify_one();
        }
        Some(block)
    }
}

impl Shared {
    /// Wakes a waiting stream that can take a ready block. In clear the first stream takes no
    /// blocks. In paired mode it also wakes a stream whose thread can read a block itself.
    pub(super) fn wake_carrier(&self) {
        let Machine::Sending(sender) = &self.machine else {
            return;
        };
        let takes = |id, slot: &Slot| {
            let reads = || self.paired && self.reads_for_itself(id);
            slot.is_waiting() && (sender.has_ready_for(id) || reads())
        };
        if let Some((_, slot)) = self.streams.iter().find(|(id, slot)| takes(**id, slot)) {
            slot.wake();
        }
    }

    /// Moves new blocks, and the sender's messages, from the bootstrap stream to a better stream as
    /// soon as there is one.
    fn reserve_bootstrap(&mut self) {
        let slot_of = |id| Some((id, self.streams.get(&id)?));
        let better = {
            let mut live = self.life.streams().filter_map(slot_of);
            let better = live.find(|(_, slot)| slot.replaces_bootstrap());
            better.map(|(id, slot)| (id, slot.clear))
        };
        let bootstrap = self.streams.iter().find(|(_, slot)| slot.bootstrap);
        let Some(bootstrap) = bootstrap.map(|(id, _)| *id) else {
            return;
        };
        let Machine::Sending(sender) = &mut self.machine else {
            return;
        };
        sender.handle_reserve(bootstrap, better.is_some());
        let messages = better.filter(|(_, clear)| !clear);
        if let Some((better, _)) = messages
            && self.control_stream() == Some(bootstrap)
            && self.life.move_control(better)
        {
            self.control.handle_stream_change();
        }
    }

    /// Returns the stream that carries this end's messages.
    pub(super) fn control_stream(&mut self) -> Option<StreamId> {
        let streams = &self.streams;
        self.life
            .control_stream(|id| streams.get(&id).is_some_and(|slot| !slot.clear))
    }

    /// Moves messages from a slow or silent stream to a better one.
    pub(crate) fn follow_better_stream(&mut self, now: Moment) {
        let Some(current) = self.control_stream() else {
            return;
        };
        let Machine::Sending(sender) = &mut self.machine else {
            return;
        };
        let better = sender.streams_mut().poll_control(current, now);
        let fit = |id: &StreamId| self.streams.get(id).is_some_and(|slot| !slot.clear);
        if let Some(better) = better.filter(fit)
            && self.life.move_control(better)
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
    pub(super) fn next_frame(&mut self) -> Option<Vec<u8>> {
        if self.control.is_drained() && self.control.has_room() {
            let message = match &mut self.machine {
                Machine::Sending(sender) => sender.poll_message(),
                Machine::Receiving(receiver) => receiver.poll_message(),
            };
            if let Some(message) = message {
                self.say(&message);
            }
        }
        self.control.poll_frame().ok().flatten()
    }
}

/// Reads all of `buffer`.
pub(crate) fn read_exact(reader: &mut dyn StreamReader, buffer: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => filled += count,
        }
    }
    Ok(())
}
