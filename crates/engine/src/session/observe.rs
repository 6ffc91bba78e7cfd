//! Observations of this end. An end sends one to the other end four times a second and at the end
//! of the session; it is also the sign of life. The steering end also changes the number of flows
//! here.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

use longhaul_net::StreamHandle;
use longhaul_net::host_limits::HostLimits;
use longhaul_net::multipath::Subflow;
use longhaul_proto::coding::CodecUse;
use longhaul_proto::message::{Flows, Message, Observation, StreamObservation};
use longhaul_proto::session::StreamId;
use longhaul_units::Moment;

use super::paths::OnPath;
use super::steer::ENDS_BY_ITSELF;
use super::{Shared, Side, Transfer};
use crate::flows::LayerUse;

/// Interval of observations. The steering end learns the congestion windows of the other end only
/// from them.
const OBSERVE_EVERY: Duration = Duration::from_millis(250);

/// Interval at which the steering end of this process examines the transfer.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Time without a message after which the other end counts as silent. On a slow or full path
/// messages arrive late.
const SILENT_FROM: Duration = Duration::from_secs(3);

/// Delay of the timer's thread that means that the process was stopped. Usually the thread runs far
/// more often.
const PAUSED_FOR: Duration = Duration::from_secs(2);

/// Names of the layers in the order of the pipeline, as numbered in [`Observation::layers`];
/// commands are last.
pub const LAYERS: [&str; 10] = [
    "walk",
    "read",
    "compress",
    "wire",
    "open",
    "decompress",
    "write",
    "commit",
    "on-commit",
    "filter",
];

/// Data that an end knows about the other end and about the streams between them.
pub(super) struct Seen {
    /// Time since the session began at this end, until all was done.
    pub elapsed: Duration,
    /// Number of live streams.
    pub streams: usize,
    /// Number of retransmitted TCP segments of both ends.
    pub retransmitted: u64,
    /// Utilisation of the other end's layers.
    pub layers: Vec<LayerUse>,
    /// Statistics of the other end's codecs.
    pub codecs: Vec<CodecUse>,
    /// Time since the session began at the other end.
    pub peer_elapsed: Duration,
    /// Number of entries that the other end's walk found.
    pub known_entries: u64,
    /// Bytes of the files that the other end's walk found.
    pub known_bytes: u64,
    /// True if the other end's walk is complete.
    pub walk_ended: bool,
    /// Silence of the other end; `None` if it sends messages.
    pub silence: Option<Silence>,
}

/// Silence of the other end, which otherwise sends a message four times a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    /// Duration of the silence.
    pub span: Duration,
    /// True if new connections are being tried.
    pub reconnecting: bool,
}

impl Transfer {
    /// Returns the observation of this end as of now.
    pub fn observe(&self) -> Observation {
        let handles = self.handles();
        // A stream that was just closed has no congestion control to report.
        let mut told = handles
            .iter()
            .filter_map(|(_, handle)| handle.congestion().ok());
        let congestion = if self.lock().steering.leads() {
            ENDS_BY_ITSELF.to_owned()
        } else {
            told.next().unwrap_or_default()
        };
        let streams = self.look_at_paths();
        let streams = streams.iter().map(observe_path).collect();
        let known = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (layers, worked) = self
            .layers()
            .into_iter()
            .filter_map(|layer| {
                let number = LAYERS.iter().position(|name| *name == layer.layer)?;
                let told = (number as u8, layer.flows as u32, layer.utilisation as f32);
                Some((told, layer.busy))
            })
            .unzip();
        Observation {
            at: self.now().0,
            streams,
            layers,
            worked,
            cpu: cpu_time(),
            cores: cores(),
            remaining: match self.side() {
                Side::Sending(_) => self.remaining(),
                Side::Receiving(_) => None,
            },
            congestion,
            congestions: self.limits.congestions.clone(),
            send_buffer: self.limits.tcp_send,
            receive_buffer: self.limits.tcp_receive,
            known_entries: known(&self.counters.walked_entries),
            known_bytes: known(&self.counters.walked_bytes),
            walk_ended: known(&self.counters.walk_ended) > 0,
            clock: wall_clock(),
            idle: self.idle_cores(),
            codecs: self.side().stages().codec_uses(),
        }
    }

    /// Returns the kernel's data about each path of each stream. Locks the paths before it reads
    /// the kernel's data: if another thread's older data were applied after newer data, streams
    /// would seem to end and begin again.
    fn look_at_paths(&self) -> Vec<OnPath> {
        let mut paths = longhaul_system::queue::lock(&self.paths);
        let streams: Vec<(StreamId, Vec<Subflow>)> = self
            .handles()
            .iter()
            .map(|(id, handle)| (*id, handle.paths()))
            .collect();
        paths.handle_look(&streams)
    }

    /// Records the kernel's last data about a stream that ended, before the stream is removed.
    pub(super) fn look_for_the_last_time(&self, id: StreamId, handle: &StreamHandle) {
        let mut paths = longhaul_system::queue::lock(&self.paths);
        paths.handle_last_look(id, &handle.paths());
    }

    /// Returns the paths of this end's streams, and the bytes that each carried as of the last
    /// observation.
    pub fn paths(&self) -> Vec<super::PathUse> {
        longhaul_system::queue::lock(&self.paths).list()
    }

    /// Returns the lead of the other end's clock over this end's clock, less the delay of a
    /// message, in nanoseconds. It is the greatest value of all messages: that message waited
    /// least. `None` before the first observation of the other end.
    pub fn clock_lead(&self) -> Option<i64> {
        self.lock().steering.clock_lead()
    }

    /// Returns the limits that this host's kernel sets for TCP.
    pub fn limits(&self) -> &HostLimits {
        &self.limits
    }

    /// Changes the number of flows of this end's layers while they run. Only the dialer changes the
    /// number of streams.
    pub fn set_flows(&self, flows: Flows) {
        if let Some(streams) = flows.streams {
            self.lock().streams.want(streams as usize);
            self.living.notify_all();
        }
        if self.is_paired() {
            // There are as many threads as streams.
            return;
        }
        self.side().stages().set_flows(flows);
        self.reading.notify_all();
        self.storing.notify_all();
    }

    /// Limits the requested flows to the threads of this session. The dialer limits streams.
    pub(super) fn bounded(&self, asked: Flows) -> Flows {
        let most = u32::try_from(self.seat().threads()).unwrap_or(u32::MAX);
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
        let mut shared = self.lock();
        shared.say(&Message::SetFlows(flows));
        shared.wake_writers();
    }

    /// Returns the utilisation of this end's layers.
    pub(crate) fn layers(&self) -> Vec<LayerUse> {
        self.side().stages().layers(self)
    }

    /// Returns the time that the streams of this end spent on blocks and messages.
    pub(crate) fn wire_use(&self, layer: &'static str) -> LayerUse {
        let shared = self.lock();
        let (flows, until) = (
            shared.streams.most(),
            shared.lifetime.end_of_work().unwrap_or_else(|| self.now()),
        );
        drop(shared);
        let busy = self.counters.wire_nanoseconds.load(Ordering::Relaxed);
        let time = until.0 as f64 * flows.max(1) as f64;
        LayerUse {
            layer,
            flows,
            busy,
            utilisation: (busy as f64 / time).min(1.0),
        }
    }

    /// Returns the state of the other end as it reported it, and the state of the streams.
    pub(super) fn seen(&self) -> Seen {
        self.look_at_paths();
        let own = longhaul_system::queue::lock(&self.paths).retransmitted();
        let shared = self.lock();
        let peer = shared.steering.peer();
        let at = Moment(peer.at);
        // The other end's counts are not trusted and may overflow.
        let counts = peer.streams.iter().map(|stream| stream.retransmitted);
        let retransmitted = counts.fold(own, u64::saturating_add);
        let layers = peer.layers.iter().filter_map(|(number, flows, part)| {
            let layer = LAYERS.get(usize::from(*number))?;
            let utilisation = f64::from(*part).clamp(0.0, 1.0);
            let time = at.0 as f64 * f64::from(*flows);
            Some(LayerUse {
                layer,
                flows: *flows as usize,
                busy: (utilisation * time) as u64,
                utilisation,
            })
        });
        Seen {
            elapsed: shared.lifetime.end_of_work().unwrap_or_else(|| self.now()) - Moment(0),
            streams: shared.streams.count(),
            retransmitted,
            layers: layers.collect(),
            codecs: peer.codecs.clone(),
            peer_elapsed: at - Moment(0),
            known_entries: peer.known_entries,
            known_bytes: peer.known_bytes,
            walk_ended: peer.walk_ended,
            silence: self.silence(&shared),
        }
    }

    /// Returns the silence of the other end, if there is one. Silence means nothing if this end
    /// does not read or if all is done.
    fn silence(&self, shared: &Shared) -> Option<Silence> {
        let now = self.now();
        let span = shared.lifetime.silence(now);
        let listens = self.counters.held_streams.load(Ordering::Relaxed) == 0;
        let expected = !self.settings.local && listens && shared.lifetime.end_of_work().is_none();
        let lost = shared.streams.dials() && !shared.lifetime.is_active();
        (expected && span >= SILENT_FROM).then(|| Silence {
            span,
            reconnecting: lost || shared.streams.tries_anew(now),
        })
    }

    /// Runs the timer's thread: ends sessions and streams that timed out, and sends observations.
    pub(super) fn keep_time(self: &Arc<Transfer>) {
        let mut next = self.now() + OBSERVE_EVERY;
        let mut next_look = self.now() + LOOK_EVERY;
        let mut next_level = self.now();
        let mut last = self.now();
        loop {
            let mut shared = self.lock();
            let now = self.now();
            if now - last > PAUSED_FOR {
                shared.handle_pause(now - last, now);
            }
            last = now;
            shared.lifetime.handle_timeout(now);
            if shared.is_over() {
                self.wake_everybody(&shared);
                return;
            }
            if now >= next_level {
                drop(shared);
                next_level = now + self.level();
                continue;
            }
            if now >= next_look {
                next_look = now + LOOK_EVERY;
                drop(shared);
                self.coded.handle_tick();
                self.watch_streams();
                self.look();
                self.adapt_flows();
                self.look_for_codecs();
                continue;
            }
            if now >= next {
                next = now + OBSERVE_EVERY;
                drop(shared);
                self.tick();
                continue;
            }
            let next = next.min(next_look).min(next_level);
            let until = shared
                .lifetime
                .poll_timeout()
                .map_or(next, |end| end.min(next));
            let wait = (until - now).max(Duration::from_millis(1));
            drop(
                self.living
                    .wait_timeout(shared, wait)
                    .unwrap_or_else(PoisonError::into_inner),
            );
        }
    }

    /// Adapts the number of flows of layers without a fixed number to their work.
    fn adapt_flows(&self) {
        if let Side::Sending(side) = self.side()
            && side.adapt_flows()
        {
            // A superfluous flow may be waiting.
            self.reading.notify_all();
        }
    }

    /// Shows the state of the transfer to the stage that chooses codecs.
    pub(super) fn look_for_codecs(&self) {
        if let Side::Sending(side) = self.side() {
            side.look_for_codecs(self);
        }
    }

    /// Returns the number of idle cores among those that this process may use.
    pub(crate) fn idle_cores(&self) -> Option<f32> {
        Some(self.idle.look()?.min(self.settings.cores as f64) as f32)
    }

    pub(super) fn tick(&self) {
        let observation = self.observe();
        let mut shared = self.lock();
        shared.note_what_came(self.now());
        let listens = self.counters.held_streams.load(Ordering::Relaxed) == 0;
        if !listens || self.settings.local {
            shared.lifetime.note_deaf(self.now());
        }
        shared
            .lifetime
            .end_untold(self.settings.silence, self.now());
        let silent =
            !self.settings.local && shared.lifetime.silence(self.now()) > self.settings.silence;
        if shared.lifetime.is_active() && listens && silent {
            shared.streams.shutdown();
        }
        self.end_stalled(&shared);
        self.find_lost(&mut shared);
        let listened = shared.control.is_drained() && shared.control.has_room();
        if listened && shared.lifetime.is_active() {
            shared.say(&Message::Observed(observation));
            shared.wake_writers();
        }
        drop(shared);
        self.reading.notify_all();
        self.storing.notify_all();
    }

    /// Handles a message about the session rather than its state machine; false for other messages.
    pub(super) fn handle_session_message(&self, shared: &mut Shared, message: &Message) -> bool {
        match message {
            Message::Observed(observation) => {
                shared.steering.handle_observed(observation, wall_clock());
            }
            Message::Tune(tuning) => {
                // A receiver sends no data whose transmission could be tuned.
                if shared.machine.is_sending() {
                    self.limit_as(tuning);
                    shared.steering.tune(tuning.clone(), &shared.streams);
                }
            }
            Message::Goodbye(farewell) => {
                shared.lifetime.handle_goodbye(farewell);
                self.wake_everybody(shared);
            }
            _ => return false,
        }
        true
    }
}

/// Returns the number of cores that this process may use. The result is cached: a query reads a
/// dozen control group files, and observations are frequent.
fn cores() -> u32 {
    static CORES: OnceLock<u32> = OnceLock::new();
    let ask = || std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    *CORES.get_or_init(ask)
}

/// Converts the kernel's data about a stream on one of its paths to an observation.
fn observe_path(look: &OnPath) -> StreamObservation {
    let (info, counts) = (&look.info, look.counts);
    let micros = |span: Duration| u32::try_from(span.as_micros()).unwrap_or(u32::MAX);
    let long = |span: Option<Duration>| span.unwrap_or_default().as_micros() as u64;
    StreamObservation {
        stream: look.stream.0,
        rtt: micros(info.rtt),
        window: u64::from(info.congestion_window_segments) * info.send_segment.0,
        retransmitted: counts.retransmitted,
        acknowledged: counts.acknowledged,
        received: counts.received,
        minimum_rtt: micros(info.minimum_rtt.unwrap_or(info.rtt)),
        segment: u32::try_from(info.send_segment.0).unwrap_or(u32::MAX),
        busy: long(info.busy),
        window_limited: long(info.window_limited),
        buffer_limited: long(info.buffer_limited),
        send_window: info.send_window.unwrap_or_default().0,
        path: look.path,
        sent: counts.sent,
        duplicates: counts.duplicates,
        retransmitted_bytes: counts.retransmitted_bytes,
        lost: info.lost_segments,
    }
}

impl Shared {
    /// Records a sign of life if bytes arrived on any stream. On a slow path it takes long until a
    /// block, and a message behind it, is complete.
    pub(super) fn note_what_came(&mut self, now: Moment) {
        if self.streams.has_heard_more() {
            self.lifetime.note_heard(now);
        }
    }

    /// Wakes writers for waiting messages and blocks.
    pub(crate) fn wake_writers(&mut self) {
        self.wake_control();
        self.wake_carrier();
    }

    /// Handles a pause in which this process or its host was stopped. The pause is not counted as
    /// silence of the other end.
    pub(super) fn handle_pause(&mut self, span: Duration, now: Moment) {
        let later = |moment: Moment| now.min(moment + span);
        self.streams.handle_pause(later);
        self.lifetime.handle_pause(span, later);
    }

    /// Wakes the writer of the control stream, because messages wait.
    pub(super) fn wake_control(&mut self) {
        let control = self.control_stream();
        if let Some(slot) = control.and_then(|id| self.streams.get(id)) {
            slot.wake();
        }
    }
}

impl Shared {
    /// True if no block waits for a stream.
    pub(crate) fn has_nothing_prepared(&self) -> bool {
        self.prepared.is_empty()
    }
}

/// Returns nanoseconds since 1970; 0 if the clock is set to an earlier time.
fn wall_clock() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(0))
}

/// Returns the CPU time of this process so far, in nanoseconds.
pub fn cpu_time() -> u64 {
    cpu_clock(rustix::time::ClockId::ProcessCPUTime)
}

/// Returns the CPU time of this thread so far, in nanoseconds.
pub(crate) fn thread_cpu_time() -> u64 {
    cpu_clock(rustix::time::ClockId::ThreadCPUTime)
}

fn cpu_clock(clock: rustix::time::ClockId) -> u64 {
    let time = rustix::time::clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}
