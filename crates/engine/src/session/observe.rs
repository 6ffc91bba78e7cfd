//! Observations of this end. An end sends one to the other end four times a second and at the end
//! of the session; it is also the sign of life. The steering end also changes the number of flows
//! here.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use longhaul_net::StreamHandle;
use longhaul_net::host_limits::HostLimits;
use longhaul_net::multipath::Subflow;
use longhaul_proto::account::Account;
use longhaul_proto::coding::CodecUse;
use longhaul_proto::handshake::Operation;
use longhaul_proto::message::{Message, Observation, StreamObservation};
use longhaul_proto::sender::MOST_LARGE_FILES;
use longhaul_proto::session::StreamId;
use longhaul_units::Moment;

use super::paths::OnPath;
use super::steer::ENDS_BY_ITSELF;
use super::{Progress, Shared, Side, Transfer};
use crate::flows::LayerUse;

/// Time without a message after which the other end counts as silent. On a slow or full path
/// messages arrive late.
const SILENT_FROM: Duration = Duration::from_secs(3);

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

/// Measurements of a running transfer.
#[derive(Clone, Copy)]
pub struct Measurements<'a> {
    transfer: &'a Transfer,
}

impl<'a> Measurements<'a> {
    pub(super) fn of(transfer: &'a Transfer) -> Measurements<'a> {
        Measurements { transfer }
    }
}

impl Measurements<'_> {
    /// Returns the number of large files that this end can have open if it receives. The other end
    /// must not exceed it.
    pub fn most_open_parts(&self) -> usize {
        self.transfer
            .side()
            .seat()
            .parts()
            .clamp(1, MOST_LARGE_FILES)
    }

    /// Returns the observation of this end as of now.
    pub fn observe(&self) -> Observation {
        let handles = self.handles();
        // A stream that was just closed has no congestion control to report.
        let mut told = handles
            .iter()
            .filter_map(|(_, handle)| handle.congestion().ok());
        let congestion = if self.transfer.lock().steering.leads() {
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
            at: self.transfer.now().0,
            streams,
            layers,
            worked,
            cpu: cpu_time(),
            cores: cores(),
            remaining: match self.transfer.side() {
                Side::Sending(_) => self.remaining(),
                Side::Receiving(_) => None,
            },
            congestion,
            congestions: self.transfer.limits.congestions.clone(),
            send_buffer: self.transfer.limits.tcp_send,
            receive_buffer: self.transfer.limits.tcp_receive,
            known_entries: known(&self.transfer.counters.walked_entries),
            known_bytes: known(&self.transfer.counters.walked_bytes),
            walk_ended: known(&self.transfer.counters.walk_ended) > 0,
            clock: wall_clock(),
            idle: self.idle_cores(),
            codecs: self.transfer.side().stages().codec_uses(),
        }
    }

    /// Sends a last observation before the goodbye of a finished session, since a short session has
    /// sent few or none. The other end does not wait for it, but receives it before the end.
    pub(crate) fn observe_at_last(&self) {
        let observation = self.observe();
        let mut shared = self.transfer.lock();
        if !shared.is_over() && shared.control.has_room() {
            shared.say(&Message::Observed(observation));
        }
    }

    /// Returns the handles of the streams, so that the kernel is queried without the lock.
    pub(crate) fn handles(&self) -> Vec<(StreamId, StreamHandle)> {
        self.transfer.lock().streams.handles()
    }

    /// Returns the bytes of files that are not known to be durable at the destination; `None` until
    /// the walk is complete.
    fn remaining(&self) -> Option<u64> {
        let get = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.transfer.counters;
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

    /// Returns the rate limit in bytes per second, and true if a stream waits for it; `None` if
    /// unlimited.
    pub(crate) fn paced(&self) -> Option<(u64, bool)> {
        self.transfer.pacing.look()
    }

    /// Returns the current progress.
    pub fn progress(&self) -> Progress {
        let counters = &self.transfer.counters;
        let get = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let seen = self.seen();
        let own = self.transfer.side().stages().codec_uses();
        let (source_codecs, destination_codecs) = match self.transfer.side() {
            Side::Sending(_) => (own, seen.codecs),
            Side::Receiving(_) => (seen.codecs, own),
        };
        let account = self.account();
        // The lock must not be held while the other values are read.
        let left_out = self.transfer.lock().machine.left_out();
        Progress {
            elapsed: seen.elapsed,
            // Only a sender walks.
            walked_entries: get(&counters.walked_entries).max(seen.known_entries),
            walked_bytes: get(&counters.walked_bytes).max(seen.known_bytes),
            walk_ended: get(&counters.walk_ended) > 0 || seen.walk_ended,
            done_entries: get(&counters.done_entries),
            files: get(&counters.files),
            done_bytes: get(&counters.done_bytes),
            skipped_entries: get(&counters.skipped_entries),
            skipped_bytes: get(&counters.skipped_bytes),
            new_entries: get(&counters.new_entries),
            changed_entries: get(&counters.changed_entries),
            fixed_entries: get(&counters.fixed_entries),
            fixed_directories: get(&counters.fixed_directories),
            planned_bytes: get(&counters.planned_bytes),
            planned_files: get(&counters.planned_files),
            planned_directories: get(&counters.planned_directories),
            differing_entries: get(&counters.differing_entries),
            failed_entries: get(&counters.failed_entries),
            deleted_entries: get(&counters.deleted_entries),
            deleted_bytes: get(&counters.deleted_bytes),
            left_out,
            wire_bytes: get(&counters.wire_bytes),
            message_bytes: get(&counters.message_bytes),
            hole_bytes: get(&counters.hole_bytes),
            disk_bytes: get(&counters.read_bytes) + get(&counters.written_bytes),
            read_bytes: get(&counters.read_bytes),
            uncopied_bytes: get(&counters.uncopied_bytes),
            late_bytes: get(&counters.late_bytes),
            block_bytes: self.transfer.settings.block_bytes,
            settled_bytes: account.durable_bytes,
            account: match self.transfer.settings.operation {
                Operation::Copy => account,
                Operation::Verify | Operation::DryRun => Account {
                    durable_bytes: 0,
                    ..account
                },
            },
            compression: (get(&counters.coded_from), get(&counters.coded_to)),
            source_codecs,
            destination_codecs,
            streams: seen.streams,
            silence: seen.silence,
            lost_streams: get(&counters.lost_streams),
            again_blocks: get(&counters.again_blocks),
            retransmitted: seen.retransmitted,
            layers: self.layers(),
            peer_layers: seen.layers,
            peer_elapsed: seen.peer_elapsed,
            memory: (
                self.transfer.pool.peak_in_use(),
                self.transfer.coded.peak_in_use(),
            ),
            paths: self.paths(),
        }
    }

    fn account(&self) -> Account {
        self.transfer.lock().machine.account()
    }

    /// Returns the kernel's data about each path of each stream. Locks the paths before it reads
    /// the kernel's data: if another thread's older data were applied after newer data, streams
    /// would seem to end and begin again.
    fn look_at_paths(&self) -> Vec<OnPath> {
        let mut paths = longhaul_system::queue::lock(&self.transfer.paths);
        let streams: Vec<(StreamId, Vec<Subflow>)> = self
            .handles()
            .iter()
            .map(|(id, handle)| (*id, handle.paths()))
            .collect();
        paths.handle_look(&streams)
    }

    /// Records the kernel's last data about a stream that ended, before the stream is removed.
    pub(super) fn look_for_the_last_time(&self, id: StreamId, handle: &StreamHandle) {
        let mut paths = longhaul_system::queue::lock(&self.transfer.paths);
        paths.handle_last_look(id, &handle.paths());
    }

    /// Returns the paths of this end's streams, and the bytes that each carried as of the last
    /// observation.
    pub fn paths(&self) -> Vec<super::PathUse> {
        longhaul_system::queue::lock(&self.transfer.paths).list()
    }

    /// Returns the lead of the other end's clock over this end's clock, less the delay of a
    /// message, in nanoseconds. It is the greatest value of all messages: that message waited
    /// least. `None` before the first observation of the other end.
    pub fn clock_lead(&self) -> Option<i64> {
        self.transfer.lock().steering.clock_lead()
    }

    /// Returns the limits that this host's kernel sets for TCP.
    pub fn limits(&self) -> &HostLimits {
        &self.transfer.limits
    }

    /// Returns the utilisation of this end's layers.
    pub(crate) fn layers(&self) -> Vec<LayerUse> {
        self.transfer.side().stages().layers(self.transfer)
    }

    /// Returns the time that the streams of this end spent on blocks and messages.
    pub(crate) fn wire_use(&self, layer: &'static str) -> LayerUse {
        let shared = self.transfer.lock();
        let (flows, until) = (
            shared.streams.most(),
            shared
                .lifetime
                .end_of_work()
                .unwrap_or_else(|| self.transfer.now()),
        );
        drop(shared);
        let busy = self
            .transfer
            .counters
            .wire_nanoseconds
            .load(Ordering::Relaxed);
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
        let own = longhaul_system::queue::lock(&self.transfer.paths).retransmitted();
        let shared = self.transfer.lock();
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
            elapsed: shared
                .lifetime
                .end_of_work()
                .unwrap_or_else(|| self.transfer.now())
                - Moment(0),
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
        let now = self.transfer.now();
        let span = shared.lifetime.silence(now);
        let listens = self.transfer.counters.held_streams.load(Ordering::Relaxed) == 0;
        let expected =
            !self.transfer.settings.local && listens && shared.lifetime.end_of_work().is_none();
        let lost = shared.streams.dials() && !shared.lifetime.is_active();
        (expected && span >= SILENT_FROM).then(|| Silence {
            span,
            reconnecting: lost || shared.streams.tries_anew(now),
        })
    }

    /// Returns the number of idle cores among those that this process may use.
    pub(crate) fn idle_cores(&self) -> Option<f32> {
        Some(
            self.transfer
                .idle
                .look()?
                .min(self.transfer.settings.cores as f64) as f32,
        )
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

/// Returns nanoseconds since 1970; 0 if the clock is set to an earlier time.
pub(super) fn wall_clock() -> u64 {
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
