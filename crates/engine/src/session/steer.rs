//! Steering of a running transfer: the dialer's end gets the observations of both ends, and its
//! orders are carried out.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use longhaul_net::StreamHandle;
use longhaul_proto::coding::MAXIMUM_CODEC_USES;
use longhaul_proto::message::{Flows, MAXIMUM_CONGESTION_BYTES, Message, Observation, Tuning};
use longhaul_proto::session::StreamId;
use longhaul_units::Moment;

use super::levelling::Levellers;
use super::levelling::{Delivered, Flow, Governed};
use super::paths::{Ends, only_path};
use super::streams::{Slot, StreamSet};
use super::{Side, Transfer};

/// Interval for an end that only receives, which has no streams to level.
const NOTHING_TO_LEVEL: Duration = Duration::from_secs(1);

/// Congestion control whose slow start ends by itself, and congestion control whose slow start
/// continues.
pub(super) const ENDS_BY_ITSELF: &str = "cubic";
const GOES_ON: &str = "reno";

/// Congestion control that measures the path's rate and keeps to it.
const KEEPS_TO_A_RATE: &str = "bbr";

/// Pace of a stream without pacing: its kernel may send a window in one burst.
pub(super) const UNBOUND: u64 = u64::MAX;

/// Pace that is never reached, but makes the kernel spread a window over a round trip.
const SPREAD: u64 = u64::MAX - 1;

/// Time after which a coupled stream is restarted. If no round trip equals the minimum for ten
/// seconds, BBR keeps almost no data in flight for 200 ms to measure it. Coupled streams keep the
/// queue short, so they need no such measurement: they restart before it.
const RENEWED_AFTER: Duration = Duration::from_secs(8);

/// Divisor for the number of streams restarted at once, so that few streams pause at the same time.
const RENEWED_AT_ONCE: usize = 16;

/// Minimum round trip from which a window is spread: a burst overflows the short queues of long
/// paths. Within a site the timers would only cost CPU time.
const SPREAD_FROM: Duration = Duration::from_millis(5);

/// Slow start threshold of a stream that has none yet (`TCP_INFINITE_SSTHRESH` of Linux).
const NO_THRESHOLD: u32 = i32::MAX as u32;

/// Observations of both ends.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Time of the sending end's observation, on its own clock.
    pub at: Moment,
    /// Observation of the sending end, whose kernel knows the windows.
    pub sender: &'a Observation,
    /// Observation of the receiving end; empty before its first message.
    pub receiver: &'a Observation,
}

/// Orders of the steering end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Orders {
    /// Number of streams from now on.
    pub streams: usize,
    /// Settings for the sender's kernel.
    pub tuning: Tuning,
    /// Number of flows of the layers from now on; the streams in it are ignored.
    pub layers: Flows,
}

/// Steers a transfer. Called many times a second by the transfer's timer; it
/// must not block.
pub trait Steer: Send {
    /// Examines an observation; returns orders if a change is needed.
    fn look(&mut self, view: &View<'_>) -> Option<Orders>;
}

/// Changes the streams, the flows and the rate of a running transfer.
#[derive(Clone, Copy)]
pub struct Regulator<'a> {
    transfer: &'a Transfer,
}

impl<'a> Regulator<'a> {
    pub(super) fn of(transfer: &'a Transfer) -> Regulator<'a> {
        Regulator { transfer }
    }
}

impl Regulator<'_> {
    /// Sets the steering end from now on. Only the dialer's end can open streams.
    pub fn steer_by(&self, steer: Box<dyn Steer>) {
        *longhaul_system::queue::lock(&self.transfer.steering) = Some(steer);
    }

    /// Shows the observations to the steering end.
    pub(super) fn look(&self) {
        let mut steering = longhaul_system::queue::lock(&self.transfer.steering);
        let Some(steer) = steering.as_mut() else {
            return;
        };
        let own = self.transfer.measurements().observe();
        let shared = self.transfer.lock();
        let peer = shared.steering.peer.clone();
        let sends = shared.machine.is_sending();
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

    /// Carries out orders: changes the number of streams, and tunes the sender's kernel at either
    /// end.
    pub fn carry_out(&self, orders: Orders) {
        self.limit_as(&orders.tuning);
        let mut shared = self.transfer.lock();
        shared.streams.want(orders.streams);
        if orders.tuning != shared.steering.tuning {
            if shared.machine.is_sending() {
                let shared = &mut *shared;
                shared.steering.tune(orders.tuning, &shared.streams);
            } else {
                shared.steering.tuning = orders.tuning.clone();
                shared.say(&Message::Tune(orders.tuning));
                shared.wake_writers();
            }
        }
        drop(shared);
        self.transfer.signals.living.notify_all();
        self.steer_layers(orders.layers);
    }

    /// Sets the maximum rate of all streams together in bytes per second, at the sending end;
    /// `None` removes the limit. In any span at most rate times span plus a twentieth of a second's
    /// worth (at least 1 KiB) is sent.
    pub fn limit(&self, rate: Option<u64>) {
        let mut shared = self.transfer.lock();
        if shared.machine.is_sending() {
            self.transfer.pacing.set(rate, self.transfer.now());
        } else {
            let tuning = Tuning {
                limit: Some(rate.unwrap_or(0)),
                ..shared.steering.tuning().clone()
            };
            shared.say(&Message::Tune(tuning));
            shared.wake_writers();
        }
    }

    /// Applies a rate limit from the other end or from the steering end.
    pub(super) fn limit_as(&self, tuning: &Tuning) {
        if let Some(limit) = tuning.limit {
            self.transfer
                .pacing
                .set(Some(limit).filter(|limit| *limit > 0), self.transfer.now());
        }
    }

    /// Changes the number of flows of this end's layers while they run. Only the dialer changes the
    /// number of streams.
    pub fn set_flows(&self, flows: Flows) {
        if let Some(streams) = flows.streams {
            self.transfer.lock().streams.want(streams as usize);
            self.transfer.signals.living.notify_all();
        }
        if self.transfer.settings.is_paired() {
            // There are as many threads as streams.
            return;
        }
        self.transfer.side().stages().set_flows(flows);
        self.transfer.signals.reading.notify_all();
        self.transfer.signals.storing.notify_all();
    }

    /// Limits the requested flows to the threads of this session. The dialer limits streams.
    pub(super) fn bounded(&self, asked: Flows) -> Flows {
        let most = u32::try_from(self.transfer.side().seat().threads()).unwrap_or(u32::MAX);
        let bound = |flows: Option<u32>| flows.map(|flows| flows.min(most));
        Flows {
            readers: bound(asked.readers),
            compressors: bound(asked.compressors),
            decompressors: bound(asked.decompressors),
            writers: bound(asked.writers),
            committers: bound(asked.committers),
            ..asked
        }
    }

    /// Sends the other end the number of flows that its layers should have.
    pub fn steer(&self, flows: Flows) {
        let mut shared = self.transfer.lock();
        shared.say(&Message::SetFlows(flows));
        shared.wake_writers();
    }

    /// Adapts the number of flows of layers without a fixed number to their work.
    pub(super) fn adapt_flows(&self) {
        if let Side::Sending(side) = self.transfer.side()
            && side.adapt_flows()
        {
            // A superfluous flow may be waiting.
            self.transfer.signals.reading.notify_all();
        }
    }

    /// Shows the state of the transfer to the stage that chooses codecs.
    pub(super) fn look_for_codecs(&self) {
        if let Side::Sending(side) = self.transfer.side() {
            side.look_for_codecs(self.transfer);
        }
    }

    /// Changes the layers' flows at the end that has them.
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
        let sends = self.transfer.lock().machine.is_sending();
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
}

/// Settings of the sender's kernel, the levelling of the streams' rates, and the last observation
/// of the other end.
#[derive(Default)]
pub(crate) struct Steering {
    /// Settings for the sender's kernel.
    tuning: Tuning,
    /// Congestion control that the distance of the first stream selected. All streams use it.
    governed_by: Option<&'static str>,
    /// Levellers that keep the rates of the sender's streams equal.
    leveller: Levellers,
    /// Streams whose slow start is replaced for now.
    led: BTreeSet<StreamId>,
    peer: Observation,
    /// Lead of the other end's clock; see `Measurements::clock_lead`.
    clock_lead: Option<i64>,
}

impl Steering {
    /// Returns the settings of the sender's kernel.
    pub fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    /// True if the slow start of a stream is replaced for now.
    pub fn leads(&self) -> bool {
        !self.led.is_empty()
    }

    /// Returns the last observation of the other end; empty before its first message.
    pub fn peer(&self) -> &Observation {
        &self.peer
    }

    /// Returns the lead of the other end's clock; see `Measurements::clock_lead`.
    pub fn clock_lead(&self) -> Option<i64> {
        self.clock_lead
    }

    /// Records an observation of the other end. `clock` is this end's time in nanoseconds since
    /// 1970.
    pub fn handle_observed(&mut self, observation: &Observation, clock: u64) {
        let lead = i64::try_from(i128::from(observation.clock) - i128::from(clock));
        let said = lead.ok().filter(|_| observation.clock > 0);
        self.clock_lead = self.clock_lead.max(said);
        self.peer = observation.clone();
        self.peer.codecs.truncate(MAXIMUM_CODEC_USES);
    }

    /// Levels the rates of the streams; returns the time until the next call. `look` is the
    /// kernel's data about them, and `permitted` lists the congestion controls that this process
    /// may set.
    fn level(
        &mut self,
        look: Look<'_>,
        streams: &mut StreamSet,
        permitted: &[String],
        now: Moment,
    ) -> Duration {
        // Without permission to restore it, or with unobserved streams, each stream keeps its own
        // slow start.
        let may_return = permitted.iter().any(|name| name == ENDS_BY_ITSELF);
        let may_lead = may_return && look.flows.len() == look.handles.len();
        if self.leveller.handle_look(now, &look.governed, look.flows) {
            for (stream, slot) in streams.iter() {
                self.apply_pace(stream, slot);
            }
        }
        self.lead_slow_start(look.handles, may_lead, streams);
        self.renew(permitted, streams, now);
        self.leveller.interval()
    }

    /// Applies settings to the kernel of this end, for all streams from now on.
    pub(super) fn tune(&mut self, tuning: Tuning, streams: &StreamSet) {
        let named = tuning.congestion.as_ref();
        if named.is_some_and(|name| name.len() > MAXIMUM_CONGESTION_BYTES) {
            return;
        }
        self.end_slow_start(streams);
        self.tuning = tuning;
        for (stream, slot) in streams.iter() {
            self.apply(stream, slot);
        }
    }

    /// Sets the congestion control of a new stream: the requested one, or the one for its distance.
    pub(super) fn govern(&mut self, handle: &StreamHandle) {
        let Some(found) = handle.congestion_by_distance() else {
            return;
        };
        let found = *self.governed_by.get_or_insert(found);
        let named = self.tuning.congestion.as_ref();
        if named.is_none_or(|name| handle.set_congestion(name).is_err()) {
            // On failure the stream keeps the one with which it began.
            let _ = handle.set_congestion(found);
        }
    }

    /// Applies the settings to a stream. Settings that the kernel refuses are ignored: the steering
    /// end observes the congestion control in use.
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

    /// Gives streams whose slow start ends by itself another one that continues until it ends for
    /// all (`levelling`). A requested congestion control is never replaced. `handles` are those of
    /// levelled streams.
    fn lead_slow_start(
        &mut self,
        handles: &[(StreamId, StreamHandle)],
        may: bool,
        streams: &StreamSet,
    ) {
        if !may || self.tuning.congestion.is_some() || !self.leveller.begin() {
            return self.end_slow_start(streams);
        }
        for (stream, handle) in handles {
            let own = || handle.congestion().is_ok_and(|name| name == ENDS_BY_ITSELF);
            if !self.led.contains(stream) && own() && handle.set_congestion(GOES_ON).is_ok() {
                self.led.insert(*stream);
            }
        }
    }

    /// Restores the congestion control of these streams.
    fn end_slow_start(&mut self, streams: &StreamSet) {
        for stream in std::mem::take(&mut self.led) {
            if let Some(slot) = streams.get(stream) {
                let _ = slot.handle().set_congestion(ENDS_BY_ITSELF);
            }
        }
    }

    /// Restarts coupled streams before they would measure the minimum round trip, and when they may
    /// send more; otherwise they probe for a higher rate in one of eight round trips. `permitted`
    /// lists the congestion controls that this process may set: one that a route or an
    /// administrator set might not be restored.
    fn renew(&mut self, permitted: &[String], streams: &mut StreamSet, now: Moment) {
        let may = permitted.iter().any(|name| name == KEEPS_TO_A_RATE);
        let mut few = streams.count().div_ceil(RENEWED_AT_ONCE);
        let anew = self.leveller.take_anew();
        for slot in streams.slots_mut() {
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
            // Its congestion control may have changed since the last observation.
            let keeps = handle
                .congestion()
                .is_ok_and(|name| name == KEEPS_TO_A_RATE);
            if keeps && is_on_its_way(handle) && handle.set_congestion(GOES_ON).is_ok() {
                let _ = handle.set_congestion(KEEPS_TO_A_RATE);
            }
        }
    }

    /// Sets the lesser of the steering end's pace and the leveller's pace.
    fn apply_pace(&self, stream: StreamId, slot: &Slot) {
        let level = only_path(slot.handle()).and_then(|path| self.leveller.pace(path, stream));
        let paces = [self.tuning.pace, level];
        slot.set_pace(paces.into_iter().flatten().min());
    }
}

/// True if a stream's packets may still take the route on which its kernel measured the minimum
/// round trip, with which BBR restarts. If that is less than half of the current round trip, a
/// window of two products is too small for the path.
fn is_on_its_way(handle: &StreamHandle) -> bool {
    handle.tcp_info().is_none_or(|info| {
        let least = info.minimum_rtt.unwrap_or(info.rtt);
        info.rtt < least * 2
    })
}

/// Returns the pace of a stream without a limit, by its minimum round trip.
pub(super) fn fastest(round_trip: Option<Duration>) -> u64 {
    if round_trip.is_some_and(|rtt| rtt >= SPREAD_FROM) {
        SPREAD
    } else {
        UNBOUND
    }
}

impl Slot {
    /// Limits the kernel to this many bytes per second. Does not repeat the last value, because the
    /// call takes a lock that the stream's writer holds while it copies.
    fn set_pace(&self, bytes_per_second: Option<u64>) {
        let wanted = bytes_per_second.unwrap_or(self.fastest);
        if self.pace.swap(wanted, Ordering::Relaxed) != wanted {
            // An error is ignored: the kernel keeps its old pace.
            let _ = self.handle().set_pace(Some(wanted));
        }
    }
}

impl Regulator<'_> {
    /// Levels the streams of a sending end; returns the time until the next call.
    pub(super) fn level(&self) -> Duration {
        if !self.transfer.summary().is_sending() || self.transfer.settings.local {
            return NOTHING_TO_LEVEL;
        }
        // Dropped after the lock: the last handle of a stream closes it.
        let handles = self.transfer.measurements().handles();
        let look = Look {
            governed: governed(&handles),
            flows: handles.iter().filter_map(flow).collect(),
            handles: &handles,
        };
        let shared = &mut *self.transfer.lock();
        let permitted = &self.transfer.limits.congestions;
        let now = self.transfer.now();
        shared
            .steering
            .level(look, &mut shared.streams, permitted, now)
    }
}

/// The kernel's data about the streams.
struct Look<'a> {
    handles: &'a [(StreamId, StreamHandle)],
    /// Kind of limit of each path.
    governed: BTreeMap<Ends, Governed>,
    /// Streams with kernel data and one path.
    flows: Vec<(Ends, Flow)>,
}

/// Returns the kind of limit for the streams of each path. A route may set another congestion
/// control than the next one; the streams of one path have the same.
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

/// Returns the kernel's data about a stream with one path. A stream with several paths is not
/// paced: its kernel divides the data.
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
