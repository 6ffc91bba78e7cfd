//! The dialer's side of a session: opens the wanted number of streams, and replaces lost ones. Each
//! is dialed on a thread of its own, so that many streams need no more round trips than one.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use longhaul_net::Stream;
use longhaul_proto::calls::{self, Call, MAXIMUM_CALLS};
use longhaul_proto::frame::FrameError;
use longhaul_proto::message::Message;
use longhaul_proto::session::StreamId;

use super::{Slot, StreamSet, StreamThread, Streams};
use crate::session::{SessionError, Shared};

/// First and longest pause before a failed dial is repeated.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// Maximum number of streams dialed at the same time.
const AT_ONCE: usize = 32;

/// Time limit for a further stream to join. The first one joined, and an attempt that hangs delays
/// others.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reasons why a stream could not be dialed.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// A network error; the dial is repeated.
    #[error("{0}")]
    Network(String),
    /// A permanent refusal by the other end.
    #[error("{0}")]
    Refused(String),
}

/// A stream that joined the session.
pub struct Joined {
    /// The stream.
    pub stream: Stream,
    /// True if it carries blocks in clear.
    pub clear: bool,
    /// Number of messages that the other end has received.
    pub received: u64,
}

/// Opens one stream and joins the session with it. Arguments: its number, the number of messages
/// received so far, and the time limit.
pub type Dialer = Arc<dyn Fn(StreamId, u64, Duration) -> Result<Joined, DialError> + Send + Sync>;

/// Number of streams, and the end that opens them.
pub(super) struct Dialing {
    /// Opens streams, if this end does so.
    dialer: Option<Dialer>,
    /// First unused number of a stream.
    next: u32,
    /// Wanted number of streams.
    wanted: usize,
    /// Maximum number of streams for which the system gives threads.
    most: usize,
}

impl Dialing {
    /// Creates the state of an end that does not dial yet.
    pub fn new(wanted: usize) -> Dialing {
        Dialing {
            dialer: None,
            next: 0,
            wanted,
            most: usize::MAX,
        }
    }

    /// Returns the dialer, if this end dials.
    pub fn dialer(&self) -> Option<Dialer> {
        self.dialer.clone()
    }
}

impl StreamSet {
    /// True if this end dials.
    pub(crate) fn dials(&self) -> bool {
        self.dialing.dialer.is_some()
    }

    /// Sets the wanted number of streams that this end has agreed on.
    pub(crate) fn handle_agreed(&mut self, wanted: usize) {
        self.dialing.wanted = wanted;
    }

    /// Sets the wanted number of streams, at least one and at most as many as the system allows.
    pub(crate) fn want(&mut self, wanted: usize) {
        let most = self.dialing.most.min(crate::flows::MAXIMUM_FLOWS);
        self.dialing.wanted = wanted.clamp(1, most);
    }

    /// Limits the number of streams for good.
    pub(crate) fn limit_to(&mut self, most: usize) {
        self.dialing.most = most;
        self.dialing.wanted = self.dialing.wanted.min(most);
    }
}

/// Connections that the other end asks this end to open to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calls {
    /// Number of connections.
    pub count: u32,
    /// If true, one connection to each of its addresses instead, with a report by
    /// [`Streams::tell_calls`].
    pub told: bool,
}

/// Begins to connect to the other end, without waiting for it.
pub type Caller = Arc<dyn Fn(Calls) + Send + Sync>;

/// State of the connections that one end asks the other end to open.
#[derive(Default)]
pub(in crate::session) struct Calling {
    caller: Option<Caller>,
    asked: Asked,
}

/// State of this end's request for a report about its addresses.
#[derive(Default)]
enum Asked {
    #[default]
    Nothing,
    Waiting,
    Told(Vec<Call>),
}

impl Streams<'_> {
    /// Lets the other end ask this end to connect to it from now on.
    pub fn call_by(&self, caller: Caller) {
        longhaul_system::queue::lock(&self.transfer.calls).caller = Some(caller);
    }

    /// Asks the other end to open this many connections to this end.
    pub fn want_calls(&self, count: u32) {
        let mut shared = self.transfer.lock();
        shared.say(&Message::WantCalls { count, told: false });
        shared.wake_writers();
    }

    /// Asks the other end to connect to each of this end's addresses, and waits for its report;
    /// `None` if there is no report in that time. Each connection that opens joins as a stream, as
    /// with [`Streams::want_calls`].
    pub fn ask_calls(&self, patience: Duration) -> Option<Vec<Call>> {
        let until = self.transfer.now() + patience;
        let mut shared = self.transfer.lock();
        longhaul_system::queue::lock(&self.transfer.calls).asked = Asked::Waiting;
        shared.say(&Message::WantCalls {
            count: 1,
            told: true,
        });
        shared.wake_writers();
        loop {
            if let Asked::Told(calls) = &longhaul_system::queue::lock(&self.transfer.calls).asked {
                return Some(calls.clone());
            }
            let left = until - self.transfer.now();
            if left.is_zero() || shared.is_over() {
                return None;
            }
            let waited = self.transfer.signals.living.wait_timeout(shared, left);
            shared = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Reports the results of connecting to each of the other end's addresses, limited to the
    /// number that it accepts.
    pub fn tell_calls(&self, mut calls: Vec<Call>) {
        calls.truncate(MAXIMUM_CALLS);
        let mut shared = self.transfer.lock();
        shared.say(&Message::Called(calls));
        shared.wake_writers();
    }
}

impl StreamThread<'_> {
    /// Opens the connections that the other end requested, even if it does not need them.
    pub(super) fn answer_calls(&self, calls: Calls) {
        let caller = longhaul_system::queue::lock(&self.transfer.calls)
            .caller
            .clone();
        if let Some(caller) = caller {
            caller(calls);
        }
    }

    /// Handles the report about this end's addresses. The caller holds the lock of the session.
    pub(super) fn handle_called(&self, calls: Vec<Call>) -> Result<(), SessionError> {
        let mut calling = longhaul_system::queue::lock(&self.transfer.calls);
        if matches!(calling.asked, Asked::Nothing) || !calls::are_valid(&calls) {
            return Err(FrameError::Unexpected("calls that nobody asked for, or too many").into());
        }
        calling.asked = Asked::Told(calls);
        drop(calling);
        self.transfer.signals.living.notify_all();
        Ok(())
    }
}

impl Streams<'_> {
    /// Keeps the wanted number of streams open until the session is over. `next` is the first
    /// unused stream number.
    ///
    /// # Errors
    ///
    /// Fails if the system gives no thread.
    pub fn keep_dialing(&self, dialer: Dialer, next: u32) -> std::io::Result<()> {
        let mut shared = self.transfer.lock();
        shared.streams.dialing.dialer = Some(Arc::clone(&dialer));
        shared.streams.dialing.next = next;
        shared.streams.stalls.note_moved(self.transfer.now());
        drop(shared);
        let transfer = Arc::clone(self.transfer);
        std::thread::Builder::new()
            .name("dial".into())
            .spawn(move || transfer.streams().dial(&dialer))
            .map(drop)
    }

    fn dial(&self, dialer: &Dialer) {
        let mut pause = PAUSES.0;
        while let Some(missing) = self.missing_streams() {
            let failed = self.dial_together(dialer, missing.min(AT_ONCE));
            if failed {
                pause = (pause * 2).min(PAUSES.1);
                self.pause(pause);
            } else {
                pause = PAUSES.0;
            }
        }
    }

    /// Dials this many streams at once; true if the network failed at one.
    fn dial_together(&self, dialer: &Dialer, count: usize) -> bool {
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for _ in 1..count {
                let id = self.next_stream();
                let thread = std::thread::Builder::new().name("dial".into());
                let dialing = move || self.dial_one(dialer, id, PATIENCE);
                match thread.spawn_scoped(scope, dialing) {
                    Ok(thread) => threads.push(thread),
                    // Missing streams are dialed later.
                    Err(_) => break,
                }
            }
            let own = self.dial_one(dialer, self.next_stream(), PATIENCE);
            threads.into_iter().fold(!own, |failed, thread| {
                failed | !thread.join().unwrap_or(false)
            })
        })
    }

    /// Returns an unused stream number.
    pub(super) fn next_stream(&self) -> StreamId {
        let next = &mut self.transfer.lock().streams.dialing.next;
        let number = *next;
        *next = number.saturating_add(1);
        StreamId(number)
    }

    /// Dials one stream. False if the network failed, there are too many streams already, or the
    /// next attempt should follow after a pause.
    pub(super) fn dial_one(&self, dialer: &Dialer, id: StreamId, patience: Duration) -> bool {
        match dialer(id, self.received(), patience) {
            Ok(Joined {
                stream,
                clear,
                received,
            }) => {
                let handle = stream.handle.clone();
                let attached = self.attach(stream, id, clear, received);
                if !attached {
                    handle.shutdown();
                }
                attached
            }
            Err(DialError::Network(_)) => false,
            Err(DialError::Refused(text)) => {
                let mut shared = self.transfer.lock();
                // With streams left, the session continues with fewer. In clear, no stream can join
                // without one for messages.
                let alone = self.transfer.settings.is_clear() && shared.control_stream().is_none();
                // Lost streams are listed until their threads have ended.
                if shared.lifetime.is_alone() || alone {
                    shared.lifetime.break_off(text);
                    self.transfer.wake_everybody(&shared);
                } else {
                    shared.streams.dialing.wanted = shared.live_streams();
                }
                !self.transfer.settings.is_clear() || self.messages_have_stream(&shared)
            }
        }
    }

    /// Waits until streams are missing and returns their number; `None` when the session is over.
    fn missing_streams(&self) -> Option<usize> {
        let mut shared = self.transfer.lock();
        loop {
            if shared.lifetime.is_ending() {
                return None;
            }
            if self.transfer.settings.is_clear() && !self.messages_have_stream(&shared) {
                // Streams in clear join with tickets sent within TLS, so that stream is first.
                return Some(1);
            }
            let (live, wanted) = (shared.live_streams(), shared.streams.dialing.wanted);
            if live < wanted {
                return Some(wanted - live);
            }
            for _ in wanted..live {
                shared.retire_last();
            }
            shared = self
                .transfer
                .signals
                .living
                .wait(shared)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn pause(&self, pause: Duration) {
        let until = self.transfer.now() + pause;
        let mut shared = self.transfer.lock();
        while !shared.is_over() && self.transfer.now() < until {
            let waited = self
                .transfer
                .signals
                .living
                .wait_timeout(shared, until - self.transfer.now());
            shared = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Shared {
    /// Returns the number of streams that count towards the wanted number. With blocks in clear,
    /// streams for messages alone do not count. Lost streams do not count, even if their threads
    /// have not ended.
    fn live_streams(&self) -> usize {
        let streams = self.lifetime.streams();
        let slots = streams.filter_map(|id| self.streams.slots.get(&id));
        let live = slots.filter(|slot| slot.carries_blocks() && !slot.is_bootstrap());
        live.count()
    }

    /// Ends the youngest stream that does not carry the messages.
    fn retire_last(&mut self) {
        let messages = self.control_stream();
        let sends = self.machine.is_sending();
        let mut streams = self.streams.slots.iter_mut().rev();
        let fit = |slot: &Slot| !slot.is_retired() && !slot.is_bootstrap();
        let last = streams.find(|(id, slot)| Some(**id) != messages && fit(slot));
        if let Some((_, slot)) = last {
            slot.retire();
            if !sends {
                // This informs the sender, which gives the blocks to other streams.
                slot.shutdown();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recv::ReceiveSide;
    use crate::recv::landing::{Arrival, Destination};
    use crate::session::{FlowCounts, Transfer, TransferSettings};
    use longhaul_net::clear::local_pair;
    use longhaul_net::stream::Closed;
    use longhaul_proto::block::HeaderKey;
    use longhaul_proto::handshake::Secret;
    use longhaul_proto::message::Farewell;
    use longhaul_storage::measuring::sink;
    use longhaul_units::Moment;

    /// Returns an end that dials, with three streams, and the other ends of the streams.
    fn with_three(clear: bool) -> (Arc<Transfer>, Vec<Stream>) {
        let settings = TransferSettings {
            clear: clear.then_some(HeaderKey::new(Secret([7; 32]))),
            flows: FlowCounts {
                streams: 3 - usize::from(clear),
                ..FlowCounts::default()
            },
            ..TransferSettings::default()
        };
        with_streams(settings)
    }

    /// Like `with_three`, with these settings.
    fn with_streams(settings: TransferSettings) -> (Arc<Transfer>, Vec<Stream>) {
        let clear = settings.clear.is_some();
        let arrival = Arrival::of_tests();
        let side = ReceiveSide::new(Destination::sink(sink(), arrival));
        let transfer = Transfer::receiving(settings, side, Arc::new(|_| {}));
        let far = (0..3).map(|number| {
            let (near, far) = local_pair().unwrap();
            let clear = clear && number > 0;
            assert!(transfer.streams().attach(near, StreamId(number), clear, 0));
            far
        });
        let far = far.collect();
        (transfer, far)
    }

    fn leave(transfer: &Transfer, far: Vec<Stream>) {
        drop(far);
        transfer.end(Farewell::Cancelled);
        transfer.wait();
    }

    #[test]
    fn a_stream_that_was_one_too_many_is_not_missed_when_it_ends() {
        let (transfer, far) = with_three(false);
        let mut shared = transfer.lock();
        assert_eq!(shared.live_streams(), 3);
        shared.streams.dialing.wanted = 2;
        shared.retire_last();
        assert_eq!(shared.live_streams(), 2);
        // It is lost, and stays in the list until its threads have ended.
        shared.lifetime.handle_stream_down(StreamId(2), Moment(0));
        assert!(shared.streams.slots.contains_key(&StreamId(2)));
        assert_eq!(shared.live_streams(), 2);
        drop(shared);
        leave(&transfer, far);
    }

    #[test]
    fn half_a_frame_counts_as_data_from_the_other_end() {
        let (transfer, mut far) = with_three(false);
        let mut shared = transfer.lock();
        far[1].writer.write_all(&[b"l"]).unwrap();
        let handle = shared.streams.slots[&StreamId(1)].handle().clone();
        while handle.bytes_read().0 == 0 {
            std::thread::yield_now();
        }
        for (now, heard) in [(2, 2), (3, 2)] {
            shared.note_what_came(Moment(now));
            assert_eq!(shared.lifetime.told(), Moment(heard));
        }
        drop(shared);
        leave(&transfer, far);
    }

    #[test]
    fn in_clear_one_stream_for_messages_comes_before_those_for_blocks() {
        let (transfer, mut far) = with_three(true);
        for number in 0..3 {
            let lifetime = &mut transfer.lock().lifetime;
            lifetime.handle_stream_down(StreamId(number), Moment(0));
        }
        assert_eq!(transfer.streams().missing_streams(), Some(1));
        // Several streams may have joined within TLS: each missing stream in clear still counts.
        for (number, clear, missing) in [(3, false, 2), (4, false, 2), (5, true, 1)] {
            let (near, other) = local_pair().unwrap();
            assert!(transfer.streams().attach(near, StreamId(number), clear, 0));
            far.push(other);
            assert_eq!(
                transfer.streams().missing_streams(),
                Some(missing),
                "{number}"
            );
        }
        leave(&transfer, far);
    }

    #[test]
    fn a_refusal_with_streams_that_are_lost_and_listed_still_ends_the_session() {
        let (transfer, far) = with_three(false);
        let mut shared = transfer.lock();
        for number in 0..3 {
            shared
                .lifetime
                .handle_stream_down(StreamId(number), Moment(0));
        }
        assert_eq!(
            shared.streams.slots.len(),
            3,
            "their threads have not ended"
        );
        drop(shared);
        let text = "the destination cannot be synced";
        let refusing: Dialer = Arc::new(|_, _, _| Err(DialError::Refused(text.to_owned())));
        assert!(
            transfer
                .streams()
                .dial_one(&refusing, StreamId(7), PATIENCE)
        );
        drop(far);
        assert_eq!(transfer.wait().farewell, Farewell::Broken(text.to_owned()));
    }

    #[test]
    fn a_jump_of_the_clock_is_not_silence() {
        let (transfer, far) = with_three(false);
        let stopped = Duration::from_secs(65);
        let mut shared = transfer.lock();
        let before = transfer.now();
        shared.lifetime.note_heard(before);
        shared.streams.stalls.note_moved(before);
        for slot in shared.streams.slots.values_mut() {
            slot.moved.1 = before;
        }
        shared.handle_pause(stopped, before + stopped);
        assert_eq!(shared.lifetime.told(), before + stopped);
        assert_eq!(shared.streams.stalls.quiet_since(), before + stopped);
        assert!(
            shared
                .streams
                .slots
                .values()
                .all(|slot| slot.moved.1 == before + stopped)
        );
        shared.lifetime.note_heard(before);
        drop(shared);
        leave(&transfer, far);
    }

    #[test]
    fn a_missing_rest_of_a_block_is_given_up() {
        let (transfer, far) = with_three(true);
        let at = |second: u64| Moment(0) + Duration::from_secs(second);
        let patience = Duration::from_secs(10);
        let mut shared = transfer.lock();
        if let Some(slot) = shared.streams.slots.get_mut(&StreamId(1)) {
            slot.moved.1 = at(7);
            assert!(!slot.is_stuck_midway(patience, at(60)), "nothing is due");
            slot.midway = Some(at(5));
            assert!(!slot.is_stuck_midway(patience, at(17)));
            assert!(slot.is_stuck_midway(patience, at(18)));
            slot.midway = Some(at(8));
            assert!(!slot.is_stuck_midway(patience, at(18)));
            slot.midway = None;
        }
        drop(shared);
        leave(&transfer, far);
    }

    #[test]
    fn silence_ends_no_session_within_a_host() {
        for local in [false, true] {
            let (transfer, far) = with_streams(TransferSettings {
                local,
                silence: Duration::ZERO,
                ..TransferSettings::default()
            });
            crate::session::timer::tick(&transfer);
            let shared = transfer.lock();
            let is_open = |slot: &Slot| slot.handle().is_closed() == Closed::Not;
            assert!(
                shared
                    .streams
                    .slots
                    .values()
                    .all(|slot| is_open(slot) == local)
            );
            drop(shared);
            leave(&transfer, far);
        }
    }

    #[test]
    fn a_refused_stream_leaves_the_session_with_the_existing_ones() {
        for clear in [false, true] {
            let (transfer, far) = with_three(clear);
            let mut shared = transfer.lock();
            shared.streams.dialing.wanted = 9;
            shared.retire_last();
            let refusing: Dialer = Arc::new(|_, _, _| Err(DialError::Refused("no".to_owned())));
            drop(shared);
            assert!(
                transfer
                    .streams()
                    .dial_one(&refusing, StreamId(7), PATIENCE)
            );
            let shared = transfer.lock();
            let wanted = 2 - usize::from(clear);
            // No more are dialed, because they would be refused as well.
            assert_eq!(shared.streams.dialing.wanted, wanted);
            assert_eq!(shared.live_streams(), wanted);
            drop(shared);
            leave(&transfer, far);
        }
    }
}
