//! The streams of a session: a set of slots, and two threads for each stream.
//!
//! - [`reading`] reads frames from a stream and passes them on;
//! - [`writing`] writes messages and blocks to a stream;
//! - `arrive` serves the reader while a block arrives, and `pairing` gives the work of the layers
//!   to the threads of streams;
//! - [`dial`] opens the wanted number of streams, and [`tickets`] lets streams in clear join;
//! - [`stall`] replaces streams on which no data move, and [`black_hole`] finds paths that lose all
//!   large packets.

mod arrive;
pub mod black_hole;
pub(super) mod dial;
mod pairing;
pub(crate) mod reading;
mod stall;
mod tickets;
mod writing;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Thread;
use std::time::Duration;

use longhaul_net::{Stream, StreamHandle};
use longhaul_proto::session::StreamId;
use longhaul_system::limits::thread_refusal;
use longhaul_units::Moment;

use super::{Counters, Shared, Transfer, TransferSettings};

use black_hole::Passage;
use dial::Dialing;
use reading::Damage;
use stall::Stalls;
use tickets::Tickets;

/// Streams of a session at this end.
pub(crate) struct StreamSet {
    slots: BTreeMap<StreamId, Slot>,
    /// Greatest number of streams at one time.
    most: usize,
    /// If true, the thread of each stream also reads its blocks.
    paired: bool,
    damage: Damage,
    dialing: Dialing,
    stalls: Stalls,
    /// Records if data pass on the streams that this end dials.
    passage: Passage,
    tickets: Tickets,
}

impl StreamSet {
    pub fn new(settings: &TransferSettings) -> StreamSet {
        StreamSet {
            slots: BTreeMap::new(),
            most: 0,
            paired: settings.is_paired(),
            damage: Damage::default(),
            dialing: Dialing::new(settings.flows.streams),
            stalls: Stalls::default(),
            passage: Passage::default(),
            tickets: Tickets::default(),
        }
    }

    fn insert(&mut self, id: StreamId, slot: Slot) {
        self.slots.insert(id, slot);
        self.most = self.most.max(self.slots.len());
    }

    /// Returns the number of streams, with those whose threads have not ended yet.
    pub fn count(&self) -> usize {
        self.slots.len()
    }

    /// Returns the greatest number of streams at one time.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Returns the streams by number.
    pub fn iter(&self) -> impl Iterator<Item = (StreamId, &Slot)> {
        self.slots.iter().map(|(id, slot)| (*id, slot))
    }

    /// Returns the handles of the streams, so that the kernel is queried without the lock.
    pub fn handles(&self) -> Vec<(StreamId, StreamHandle)> {
        let slots = self.slots.iter();
        slots
            .map(|(id, slot)| (*id, slot.handle().clone()))
            .collect()
    }

    /// Returns the streams.
    pub fn slots_mut(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.slots.values_mut()
    }

    /// Returns a stream.
    pub fn get(&self, id: StreamId) -> Option<&Slot> {
        self.slots.get(&id)
    }

    /// Closes all streams.
    pub fn shutdown(&self) {
        self.slots.values().for_each(Slot::shutdown);
    }

    /// True if no stream still has data to write.
    pub fn have_all_written(&self) -> bool {
        self.slots.values().all(Slot::is_half_ended)
    }

    /// Wakes the writers of all streams.
    pub fn wake_all(&self) {
        self.slots.values().for_each(Slot::wake);
    }

    /// Counts the bytes that arrived on each stream; true if any did since the last call.
    pub fn has_heard_more(&mut self) -> bool {
        let slots = self.slots.values_mut();
        // Query every stream, since each call also updates its count.
        let heard = slots.filter_map(|slot| slot.has_heard_more().then_some(()));
        heard.count() > 0
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

/// Maximum number of streams of a session: the maximum that a daemon allows, one for messages
/// alone, and some that were lost and have not ended.
const MOST_STREAMS: usize = 576;

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
        let mut carriers = self
            .streams
            .slots
            .values()
            .filter(|slot| slot.carries_blocks());
        self.ready.is_empty() && carriers.all(Slot::is_waiting)
    }
}

/// Streams of a transfer, as the caller opens them.
#[derive(Clone, Copy)]
pub struct Streams<'a> {
    transfer: &'a Arc<Transfer>,
}

impl<'a> Streams<'a> {
    pub(super) fn of(transfer: &'a Arc<Transfer>) -> Streams<'a> {
        Streams { transfer }
    }
}

/// One stream, as its two threads use it.
#[derive(Clone, Copy)]
pub(crate) struct StreamThread<'a> {
    transfer: &'a Transfer,
    id: StreamId,
}

impl<'a> StreamThread<'a> {
    pub(super) fn of(transfer: &'a Transfer, id: StreamId) -> StreamThread<'a> {
        StreamThread { transfer, id }
    }
}

impl Streams<'_> {
    /// Adds a stream to the session. `received` is the number of messages that its dialer has
    /// received. False if the session does not accept the stream.
    pub fn attach(&self, stream: Stream, id: StreamId, clear: bool, received: u64) -> bool {
        self.attach_as(stream, id, clear, received, false)
    }

    /// Adds the first stream, over a channel that is worse than later ones. It takes blocks only
    /// while there is no other stream.
    pub fn attach_bootstrap(&self, stream: Stream) -> bool {
        self.attach_as(stream, StreamId(0), false, 0, true)
    }

    /// Lets the first stream take blocks like all others, because no better streams will come.
    pub fn promote_bootstrap(&self) {
        let mut shared = self.transfer.lock();
        let Shared {
            streams, machine, ..
        } = &mut *shared;
        for (id, slot) in streams.slots.iter_mut().filter(|(_, slot)| slot.bootstrap) {
            slot.bootstrap = false;
            if let Some(sender) = machine.sender_mut() {
                sender.handle_reserve(*id, false);
            }
        }
        shared.wake_writers();
    }

    fn attach_as(
        &self,
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
        let mut shared = self.transfer.lock();
        // A value sent in clear may be forged.
        let received = if clear { 0 } else { received };
        // An end that dials limits the number of streams itself.
        let most = if !shared.streams.dials() && !self.transfer.settings.local {
            self.transfer.side().seat().streams(MOST_STREAMS)
        } else {
            MOST_STREAMS
        };
        if shared.streams.slots.len() >= most
            || shared.control.handle_acknowledged(received).is_err()
            || !shared.lifetime.handle_stream_up(id, self.transfer.now())
        {
            return false;
        }
        let info = handle.tcp_info();
        let round_trip = info.map(|info| info.rtt);
        let least = info.and_then(|info| info.minimum_rtt).or(round_trip);
        let slot = Slot {
            clear,
            blocks: clear == self.transfer.settings.is_clear(),
            bootstrap,
            fastest: super::steer::fastest(least),
            ..Slot::joined(handle, self.transfer.now())
        };
        shared.steering.govern(slot.handle());
        if shared.machine.is_sending() {
            shared.steering.apply(id, &slot);
            // The other end's disk may pause; this end detects a path that fails. A stream of a
            // local pair has no such option, so errors are ignored.
            let _ = slot.handle().wait_for_reader();
        }
        shared.streams.insert(id, slot);
        if let Some(sender) = shared.machine.sender_mut()
            && clear == self.transfer.settings.is_clear()
        {
            sender.handle_stream_up(id, self.transfer.now());
            if let Some(round_trip) = round_trip {
                sender.streams_mut().handle_round_trip(id, round_trip);
            }
        }
        shared.reserve_bootstrap();
        drop(shared);
        // The congestion window of a new path shows its capacity before the first block is read.
        self.transfer.regulator().look_for_codecs();
        self.start_half("receive", id, move |transfer| {
            transfer.stream(id).read_stream(reader);
        });
        self.start_half("send", id, move |transfer| {
            transfer.stream(id).write_stream(writer);
        });
        self.transfer.signals.living.notify_all();
        true
    }

    fn start_half(
        &self,
        name: &str,
        id: StreamId,
        run: impl FnOnce(&Arc<Transfer>) + Send + 'static,
    ) {
        let transfer = Arc::clone(self.transfer);
        let started = std::thread::Builder::new()
            .name(format!("{name} {}", id.0))
            .spawn(move || {
                run(&transfer);
                transfer.stream(id).handle_half_ended();
            });
        if let Err(error) = started {
            self.transfer.stream(id).handle_stream_lost();
            self.transfer.stream(id).handle_half_ended();
            self.lacks_stream_thread(&error);
        }
    }
}

impl StreamThread<'_> {
    fn handle_half_ended(&self) {
        let mut shared = self.transfer.lock();
        let ended = shared.streams.slots.get_mut(&self.id).and_then(|slot| {
            slot.halves -= 1;
            (slot.halves == 0).then(|| slot.handle.clone())
        });
        drop(shared);
        if let Some(handle) = ended {
            self.transfer
                .measurements()
                .look_for_the_last_time(self.id, &handle);
            self.transfer.lock().streams.slots.remove(&self.id);
        }
        self.transfer.signals.living.notify_all();
    }

    /// Handles the loss of a stream: its blocks and messages go to other streams.
    pub(crate) fn handle_stream_lost(&self) {
        let mut shared = self.transfer.lock();
        let Some(slot) = shared.streams.slots.get(&self.id) else {
            return;
        };
        slot.shutdown();
        slot.wake();
        let known = shared.lifetime.has_stream(self.id);
        if known {
            let retired = shared
                .streams
                .slots
                .get(&self.id)
                .is_some_and(|slot| slot.retired);
            if !retired && !shared.lifetime.is_ending() {
                Counters::add(&self.transfer.counters.lost_streams, 1);
                let shared = &mut *shared;
                let sender = shared.machine.sender();
                shared
                    .streams
                    .note_lost_stream(self.id, sender, self.transfer.now());
            }
            if shared
                .lifetime
                .handle_stream_down(self.id, self.transfer.now())
            {
                shared.control.handle_stream_change();
            }
            shared.machine.handle_stream_down(self.id);
            shared.reserve_bootstrap();
            if shared.is_heavy() {
                let text = "its connections were lost while it had much under way";
                shared.lifetime.break_off(text.to_owned());
                self.transfer.wake_everybody(&shared);
            }
        }
        self.transfer.settle(shared);
        self.transfer.signals.living.notify_all();
    }
}

impl Streams<'_> {
    /// Returns the number of messages received so far, for a stream that joins.
    pub fn received(&self) -> u64 {
        self.transfer.lock().control.received()
    }
}

impl Streams<'_> {
    /// Handles a refused thread of a stream: limits the number of streams to the current one.
    /// Without any stream the session ends.
    fn lacks_stream_thread(&self, error: &std::io::Error) {
        let mut shared = self.transfer.lock();
        let live = shared.lifetime.streams().count();
        shared.streams.limit_to(live.max(1));
        drop(shared);
        if live == 0 {
            self.transfer.fail_here(&thread_refusal(error));
        }
    }
}

impl Shared {
    /// Moves new blocks, and the sender's messages, from the bootstrap stream to a better stream as
    /// soon as there is one.
    fn reserve_bootstrap(&mut self) {
        let slot_of = |id| Some((id, self.streams.slots.get(&id)?));
        let better = {
            let mut live = self.lifetime.streams().filter_map(slot_of);
            let better = live.find(|(_, slot)| slot.replaces_bootstrap());
            better.map(|(id, slot)| (id, slot.clear))
        };
        let bootstrap = self.streams.slots.iter().find(|(_, slot)| slot.bootstrap);
        let Some(bootstrap) = bootstrap.map(|(id, _)| *id) else {
            return;
        };
        let Some(sender) = self.machine.sender_mut() else {
            return;
        };
        sender.handle_reserve(bootstrap, better.is_some());
        let messages = better.filter(|(_, clear)| !clear);
        if let Some((better, _)) = messages
            && self.control_stream() == Some(bootstrap)
            && self.lifetime.move_control(better)
        {
            self.control.handle_stream_change();
        }
    }

    /// Returns the stream that carries this end's messages.
    pub(super) fn control_stream(&mut self) -> Option<StreamId> {
        let streams = &self.streams.slots;
        self.lifetime
            .control_stream(|id| streams.get(&id).is_some_and(|slot| !slot.clear))
    }
}
