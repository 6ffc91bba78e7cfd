//! Who steers a running transfer: the dialer's end is shown what both ends see,
//! and its orders are carried out.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longhaul_net::StreamHandle;
use longhaul_proto::message::{Flows, MAXIMUM_CONGESTION_BYTES, Message, Observation, Tuning};
use longhaul_proto::session::StreamId;
use longhaul_units::Moment;

use super::levelling::{Delivered, Flow, Governed};
use super::paths::{Ends, only_path};
use super::streams::Slot;
use super::{Machine, Shared, Transfer};

/// An end that only receives has no streams to keep level.
const NOTHING_TO_LEVEL: Duration = Duration::from_secs(1);

/// A congestion control whose slow start ends by itself, and one that continues.
pub(super) const ENDS_BY_ITSELF: &str = "cubic";
const GOES_ON: &str = "reno";

/// A congestion control that finds the path's rate, and keeps to it.
const KEEPS_TO_A_RATE: &str = "bbr";

/// The pace of a stream whose kernel sends as fast as it can, a window in one burst where
/// there is one.
pub(super) const UNBOUND: u64 = u64::MAX;

/// A pace that nobody reaches, with which the kernel spreads a window over a round trip.
const SPREAD: u64 = u64::MAX - 1;

/// After ten seconds in which no round trip was the least again, BBR has next to nothing on
/// its way for 200 ms to find it. Coupled streams keep the queue short all the time, and
/// have no use for it: before that they begin anew with what they know.
const RENEWED_AFTER: Duration = Duration::from_secs(8);

/// At once one of this many: what each does for a moment is not to be what all do.
const RENEWED_AT_ONCE: usize = 16;

/// From this round trip on a window is spread: a burst overflows the short queues of long
/// paths. Within a site a timer for each burst is a cost without a use.
const SPREAD_FROM: Duration = Duration::from_millis(5);

/// A slow start threshold that was not met yet (`TCP_INFINITE_SSTHRESH` of Linux).
const NO_THRESHOLD: u32 = i32::MAX as u32;

/// What both ends see.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// When the sending end saw it, on its own clock.
    pub at: Moment,
    /// The end that sends: its kernel knows the windows.
    pub sender: &'a Observation,
    /// The end that receives; empty before its first word.
    pub receiver: &'a Observation,
}

/// What should be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Orders {
    /// Streams from now on.
    pub streams: usize,
    /// How the sender's kernel should send on them.
    pub tuning: Tuning,
    /// Flows of the layers from now on; nothing of streams.
    pub layers: Flows,
}

/// Steers a transfer. Called many times a second by the transfer's timer; it
/// must not block.
pub trait Steer: Send {
    /// Looks at what is seen now; orders where something should change.
    fn look(&mut self, view: &View<'_>) -> Option<Orders>;
}

impl Transfer {
    /// From now on `steer` is asked. Only the dialer's end can open streams.
    pub fn steer_by(&self, steer: Box<dyn Steer>) {
        *longhaul_system::queue::lock(&self.steering) = Some(steer);
    }

    /// Shows the steering end what is seen.
    pub(super) fn look(&self) {
        let mut steering = longhaul_system::queue::lock(&self.steering);
        let Some(steer) = steering.as_mut() else {
            return;
        };
        let own = self.observe();
        let shared = self.lock();
        let peer = shared.peer.clone();
        let sends = matches!(shared.machine, Machine::Sending(_));
        drop(shared);
        let (sender, receiver) = if sends { (own, peer) } else { (peer, own) };
        let view = View {
            at: Moment(sender.at),
            sender: &sender,
            receiver: &receiver,
        };
        if let Some(orders) = steer.look(&view) {
            self.carry_out(orders);
        }
    }

    /// Opens and closes streams, and has the sender's kernel tuned, at
    /// whichever end that is.
    pub fn carry_out(&self, orders: Orders) {
        self.limit_as(&orders.tuning);
        let mut shared = self.lock();
        let most = shared.most_wanted.min(crate::flows::MAXIMUM_FLOWS);
        shared.wanted_streams = orders.streams.clamp(1, most);
        if orders.tuning != shared.tuning {
            match shared.machine {
                Machine::Sending(_) => shared.tune(orders.tuning),
                Machine::Receiving(_) => {
                    shared.tuning = orders.tuning.clone();
                    shared.say(&Message::Tune(orders.tuning));
                    shared.wake_writers();
                }
            }
        }
        drop(shared);
        self.living.notify_all();
        self.steer_layers(orders.layers);
    }

    /// Changes the layers' flows, at whichever end they are.
    fn steer_layers(&self, layers: Flows) {
        let of_sender = Flows {
            readers: layers.readers,
            compressors: layers.compressors,
            ..Flows::default()
        };
        let of_receiver = Flows {
            decompressors: layers.decompressors,
            writers: layers.writers,
            committers: layers.committers,
            ..Flows::default()
        };
        let sends = matches!(self.lock().machine, Machine::Sending(_));
        let (own, others) = if sends {
            (of_sender, of_receiver)
        } else {
            (of_receiver, of_sender)
        };
        if own != Flows::default() {
            self.set_flows(own);
        }
        if others != Flows::default() {
            self.steer(others);
        }
    }

    /// Bytes of files that are not known to be durable at the destination, where the
    /// walk is over.
    pub(super) fn remaining(&self) -> Option<u64> {
        let get = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        let known = get(&counters.walked_bytes);
        let account = self.account();
        let there = [
            get(&counters.skipped_bytes),
            account.durable_bytes,
            account.resumed_bytes,
        ];
        let there = there.into_iter().fold(0, u64::saturating_add);
        (get(&counters.walk_ended) > 0).then(|| known.saturating_sub(there))
    }
}

impl Shared {
    /// This end's kernel should send so, on all streams from now on.
    pub(super) fn tune(&mut self, tuning: Tuning) {
        let named = tuning.congestion.as_ref();
        if named.is_some_and(|name| name.len() > MAXIMUM_CONGESTION_BYTES) {
            return;
        }
        self.end_slow_start();
        self.tuning = tuning;
        for (stream, slot) in &self.streams {
            self.apply(*stream, slot);
        }
    }

    /// A new stream has what was asked for by name, or what the distance calls for.
    pub(super) fn govern(&mut self, handle: &StreamHandle) {
        let Some(found) = handle.congestion_by_distance() else {
            return;
        };
        let found = *self.governed_by.get_or_insert(found);
        let named = self.tuning.congestion.as_ref();
        if named.is_none_or(|name| handle.set_congestion(name).is_err()) {
            // What it began with serves as well.
            let _ = handle.set_congestion(found);
        }
    }

    /// Has the kernel send so. What it refuses stays as it is: the steering end sees what governs
    /// the streams.
    pub(super) fn apply(&self, stream: StreamId, slot: &Slot) {
        let handle = slot.handle();
        if let Some(name) = &self.tuning.congestion {
            let _ = handle.set_congestion(name);
        }
        self.apply_pace(stream, slot);
        if let Some(bytes) = self.tuning.unsent {
            let _ = handle.set_unsent_limit(bytes);
        }
    }

    /// Streams whose slow start ends by itself have one that continues until it ends for all
    /// (`levelling`); where a congestion control was asked for, that is used alone. `handles` are
    /// those of streams that are levelled.
    fn lead_slow_start(&mut self, handles: &[(StreamId, StreamHandle)], may: bool) {
        if !may || self.tuning.congestion.is_some() || !self.leveller.begin() {
            return self.end_slow_start();
        }
        for (stream, handle) in handles {
            let own = || handle.congestion().is_ok_and(|name| name == ENDS_BY_ITSELF);
            if !self.led.contains(stream) && own() && handle.set_congestion(GOES_ON).is_ok() {
                self.led.insert(*stream);
            }
        }
    }

    /// Those streams have their own again.
    fn end_slow_start(&mut self) {
        for stream in std::mem::take(&mut self.led) {
            if let Some(slot) = self.streams.get(&stream) {
                let _ = slot.handle().set_congestion(ENDS_BY_ITSELF);
            }
        }
    }

    /// Coupled streams begin anew before they look for the least round trip, and where they may
    /// send more: otherwise they try to be faster in one of eight round trips. `permitted` are
    /// congestion controls that this process may ask for: one that came with a route or was set
    /// for it may have no way back.
    fn renew(&mut self, permitted: &[String], now: Moment) {
        let may = permitted.iter().any(|name| name == KEEPS_TO_A_RATE);
        let mut few = self.streams.len().div_ceil(RENEWED_AT_ONCE);
        let anew = self.leveller.take_anew();
        for slot in self.streams.values_mut() {
            let coupled = |path: &Ends| may && self.leveller.is_coupled(*path);
            let Some(path) = only_path(slot.handle()).filter(coupled) else {
                slot.renewed = None;
                continue;
            };
            let renewed = *slot.renewed.get_or_insert(now);
            let due = few > 0 && now - renewed >= RENEWED_AFTER;
            if !due && !anew.contains(&path) {
                continue;
            }
            few = few.saturating_sub(1);
            slot.renewed = Some(now);
            let handle = slot.handle();
            // It may have another one since it was looked at.
            let keeps = handle
                .congestion()
                .is_ok_and(|name| name == KEEPS_TO_A_RATE);
            if keeps && is_on_its_way(handle) && handle.set_congestion(GOES_ON).is_ok() {
                let _ = handle.set_congestion(KEEPS_TO_A_RATE);
            }
        }
    }

    /// The less of what the steering end allows and what keeps the streams level.
    fn apply_pace(&self, stream: StreamId, slot: &Slot) {
        let level = only_path(slot.handle()).and_then(|path| self.leveller.pace(path, stream));
        let paces = [self.tuning.pace, level];
        slot.set_pace(paces.into_iter().flatten().min());
    }
}

/// Whether a stream's packets may still take the way on which its kernel saw the least round
/// trip, which BBR begins with: with less than half of what there is, two products of it are no
/// window for the path.
fn is_on_its_way(handle: &StreamHandle) -> bool {
    handle.tcp_info().is_none_or(|info| {
        let least = info.minimum_rtt.unwrap_or(info.rtt);
        info.rtt < least * 2
    })
}

/// The pace of a stream that nothing bounds, by the least round trip it has seen.
pub(super) fn fastest(round_trip: Option<Duration>) -> u64 {
    if round_trip.is_some_and(|rtt| rtt >= SPREAD_FROM) {
        SPREAD
    } else {
        UNBOUND
    }
}

impl Slot {
    /// Has the kernel send no faster than this many bytes per second, unless it does already: this
    /// asks for a lock that the stream's writer has while it copies.
    fn set_pace(&self, bytes_per_second: Option<u64>) {
        let wanted = bytes_per_second.unwrap_or(self.fastest);
        if self.pace.swap(wanted, Ordering::Relaxed) != wanted {
            // What the kernel refuses stays as it is.
            let _ = self.handle().set_pace(Some(wanted));
        }
    }
}

impl Transfer {
    /// Keeps the streams level, where this end sends: returns when to look
    /// again.
    pub(super) fn level(&self) -> Duration {
        let shared = self.lock();
        let sends = matches!(shared.machine, Machine::Sending(_));
        if !sends || self.settings.local {
            return NOTHING_TO_LEVEL;
        }
        drop(shared);
        let handles = self.handles();
        let governed = governed(&handles);
        let flows: Vec<(Ends, Flow)> = handles.iter().filter_map(flow).collect();
        // Without a way back, or where some are not watched, each has its own.
        let known = &self.limits.congestions;
        let may_return = known.iter().any(|name| name == ENDS_BY_ITSELF);
        let may_lead = may_return && flows.len() == handles.len();
        let mut shared = self.lock();
        if shared.leveller.handle_look(self.now(), &governed, flows) {
            for (stream, slot) in &shared.streams {
                shared.apply_pace(*stream, slot);
            }
        }
        shared.lead_slow_start(&handles, may_lead);
        shared.renew(known, self.now());
        shared.leveller.interval()
    }
}

/// What bounds the streams of each path: a route may bring another congestion control than
/// the next one. Those of one path have the same.
fn governed(handles: &[(StreamId, StreamHandle)]) -> BTreeMap<Ends, Governed> {
    let mut known = BTreeMap::new();
    for (_, handle) in handles {
        let Some(Entry::Vacant(place)) = only_path(handle).map(|path| known.entry(path)) else {
            continue;
        };
        place.insert(match handle.congestion().ok().as_deref() {
            Some(KEEPS_TO_A_RATE) => Governed::ByRate,
            _ => Governed::ByWindow,
        });
    }
    known
}

/// A stream of one path. What takes several has no pace of its own: its kernel
/// divides the data.
fn flow((stream, handle): &(StreamId, StreamHandle)) -> Option<(Ends, Flow)> {
    let path = only_path(handle)?;
    let info = handle.tcp_info()?;
    Some((
        path,
        Flow {
            stream: *stream,
            delivered: match info.delivered_segments {
                Some(segments) => Delivered::Segments(segments, info.send_segment.0),
                None => Delivered::Acknowledged(info.acknowledged?.0),
            },
            rtt: info.rtt,
            minimum_rtt: info.minimum_rtt?,
            lost: info.lost_segments > 0 || info.retransmitted_segments > 0,
            retransmitted: (info.retransmitted_segments, info.send_segment.0),
            waits: info.unsent.is_none_or(|unsent| unsent.0 > 0),
            in_slow_start: info.congestion_window_segments < info.slow_start_threshold_segments,
            first_slow_start: info.slow_start_threshold_segments >= NO_THRESHOLD,
            pacing: info.pacing_rate.map(|rate| rate.bits_per_second() / 8.0),
        },
    ))
}
