//! Derives rates and bottlenecks from samples.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use longhaul_units::Moment;

use super::least::LeastRoundTrips;
use super::sample::{Sample, StreamSample};
use crate::response::Congestion;

/// A path has a queue if the round-trip time exceeds the least one by this part of it, within these
/// bounds. Below the lower bound, clocks and interrupts can be the cause. Above the upper bound, it
/// is a queue even on the longest path.
const QUEUE_PART: f64 = 0.25;
const QUEUE_BOUNDS: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(10));

/// Number of segments that a stream sends at once, because an acknowledgement covers two. At low
/// rates, the bursts of all streams can exceed the bounds without being a persistent queue.
const BURST_SEGMENTS: f64 = 2.0;

/// Minimum share of time in which streams have data to send, so that the path is measured and not
/// this host.
const BUSY: f64 = 0.75;

/// Utilisation above which a layer or a host is saturated.
const SATURATED: f64 = 0.92;

/// Loss above which a path is overloaded, even without a visible queue. More streams would lose
/// more.
const OVERLOADED: f64 = 0.02;

/// Growth within a span above which a rate is still growing.
const GROWING: f64 = 1.25;

/// The bottleneck in a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bound {
    /// No data moved.
    Silence,
    /// Streams waited for data: reading, compression or the CPU at the sender.
    Supply,
    /// The cores of a host are busy.
    Processor,
    /// The receiver is saturated.
    Receiver,
    /// The path is full: it has a queue, or a congestion control that measures the path has found
    /// its rate.
    Path,
    /// Windows are still growing.
    Growth,
    /// The receive buffer limits the windows.
    ReceiveBuffer,
    /// The send buffer limits the windows.
    SendBuffer,
    /// Loss keeps the windows small, and the path has no queue.
    Loss,
    /// Congestion windows are smaller than the path requires and grow slowly.
    Window,
}

impl Bound {
    /// True if more streams could raise the rate.
    pub fn may_need_streams(self) -> bool {
        matches!(
            self,
            Bound::ReceiveBuffer | Bound::SendBuffer | Bound::Loss | Bound::Window
        )
    }
}

/// Number of a stream, and number of its path.
type Place = (u32, u32);

/// The sums over the samples of a span.
#[derive(Clone, Debug)]
pub struct Span {
    began: Moment,
    /// Time of the last sample, and its streams by number and path.
    last: (Moment, BTreeMap<Place, StreamSample>),
    acknowledged: u64,
    /// Number of bytes acknowledged by the end of each sample.
    steps: Vec<(Moment, u64)>,
    retransmitted: u64,
    loss_events: u32,
    segments: f64,
    /// Sums of stream seconds: all, with data, limited by the receiver's window, limited by the
    /// send buffer.
    lived: f64,
    busy: f64,
    window_limited: f64,
    buffer_limited: f64,
    samples: u32,
    /// Number of samples with a queue on every used path, and on any.
    queued: (u32, u32),
    /// Utilisation of the busier host's cores times seconds, and these seconds.
    processor: (f64, f64),
    receiver: Option<f64>,
}

/// The measurement of a span.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measure {
    /// Length of the span in seconds.
    pub seconds: f64,
    /// Acknowledged bytes per second.
    pub bytes_per_second: f64,
    /// Rate in the second half divided by the rate in the first half.
    pub growth: f64,
    /// Share of segments that were retransmitted, 0 to 1.
    pub loss: f64,
    /// Number of times that a stream lost segments.
    pub loss_events: u32,
    /// Number of segments acknowledged.
    pub segments: f64,
    /// Share of the streams' time with data to send, 0 to 1.
    pub busy: f64,
    /// Share of the time with data that the receiver's window limited, 0 to 1.
    pub window_limited: f64,
    /// Share of the time with data that the send buffer limited, 0 to 1.
    pub buffer_limited: f64,
    /// Share of samples with a queue on every used path, 0 to 1.
    pub queued: f64,
    /// Share of samples with a queue on any path, 0 to 1.
    pub queued_somewhere: f64,
    /// Mean utilisation of the cores of the busier host, 0 to 1.
    pub processor: f64,
    /// Utilisation of the busiest layer at the receiver, 0 to 1.
    pub receiver: f64,
}

/// The round-trip times of the streams on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrips {
    /// Least round-trip time.
    pub least: Duration,
    /// Mean of the smoothed round-trip times, not less than `least`.
    pub mean: Duration,
    /// Time needed to send the bursts of all streams at the rate of their windows. Zero if the
    /// windows are unknown.
    pub burst: Duration,
}

impl RoundTrips {
    /// Computes the round-trip times of the streams on one path. Returns `None` if no stream has
    /// measured it.
    fn of(streams: &[&StreamSample]) -> Option<RoundTrips> {
        let known = streams.iter().map(|stream| stream.minimum_rtt);
        let least = known.filter(|rtt| !rtt.is_zero()).min()?;
        let measured = streams.iter().filter(|stream| !stream.rtt.is_zero());
        let sum: Duration = measured.clone().map(|stream| stream.rtt).sum();
        let count = u32::try_from(measured.count()).ok()?.max(1);
        let mean = (sum / count).max(least);
        let sum = |bytes: fn(&StreamSample) -> f64| -> f64 {
            streams.iter().map(|stream| bytes(stream)).sum()
        };
        let windows = sum(|stream| stream.congestion_window as f64);
        let at_once = sum(|stream| f64::from(stream.segment)) * BURST_SEGMENTS;
        let part = if windows > 0.0 {
            at_once / windows
        } else {
            0.0
        };
        let burst = mean.mul_f64(part.min(1.0));
        Some(RoundTrips { least, mean, burst })
    }

    /// True if the path has a queue. `known` is the least round-trip time ever seen.
    pub fn is_queued(&self, known: Duration) -> bool {
        let part = known.mul_f64(QUEUE_PART);
        let most = self.burst.max(QUEUE_BOUNDS.1);
        self.mean > known + part.min(most).max(QUEUE_BOUNDS.0)
    }
}

/// Returns the round-trip times of each path. Omits paths that no stream has measured.
pub fn round_trips(streams: &[StreamSample]) -> BTreeMap<u32, RoundTrips> {
    let mut paths: BTreeMap<u32, Vec<&StreamSample>> = BTreeMap::new();
    for stream in streams {
        paths.entry(stream.path).or_default().push(stream);
    }
    let of = |(path, streams): (u32, Vec<&StreamSample>)| Some((path, RoundTrips::of(&streams)?));
    paths.into_iter().filter_map(of).collect()
}

fn place(stream: &StreamSample) -> Place {
    (stream.stream, stream.path)
}

fn by_place(sample: &Sample) -> BTreeMap<Place, StreamSample> {
    let streams = sample.streams.iter();
    streams.map(|stream| (place(stream), *stream)).collect()
}

/// True if the stream was idle here because its kernel uses its other paths. This has no
/// information about this host.
fn is_left_idle(stream: &StreamSample, before: &StreamSample, all: &[StreamSample]) -> bool {
    let others = |other: &StreamSample| other.stream == stream.stream && other.path != stream.path;
    stream.busy == before.busy && all.iter().any(others)
}

/// Returns two flags: true if every used path has a queue, and true if any has. If no path was
/// used, all paths count.
fn queued(streams: &[StreamSample], least: &LeastRoundTrips, used: &BTreeSet<u32>) -> (bool, bool) {
    let paths = round_trips(streams);
    let counted = paths
        .iter()
        .filter(|(path, _)| used.is_empty() || used.contains(*path));
    let queued = |(path, trips): (&u32, &RoundTrips)| {
        trips.is_queued(least.get(*path).unwrap_or(trips.least))
    };
    let counted: Vec<bool> = counted.map(queued).collect();
    let any = counted.contains(&true);
    (any && !counted.contains(&false), any)
}

impl Span {
    /// Starts a span with a sample.
    pub fn new(sample: &Sample) -> Span {
        Span {
            began: sample.at,
            last: (sample.at, by_place(sample)),
            acknowledged: 0,
            steps: vec![(sample.at, 0)],
            retransmitted: 0,
            loss_events: 0,
            segments: 0.0,
            lived: 0.0,
            busy: 0.0,
            window_limited: 0.0,
            buffer_limited: 0.0,
            samples: 0,
            queued: (0, 0),
            processor: (0.0, 0.0),
            receiver: None,
        }
    }

    /// Adds a sample. `least` has the least round-trip time of each path. Excludes the activity of
    /// a stream before its first and after its last sample.
    pub fn add(&mut self, sample: &Sample, least: &LeastRoundTrips) {
        let step = (sample.at - self.last.0).as_secs_f64();
        if step <= 0.0 {
            return;
        }
        let mut used = BTreeSet::new();
        for stream in &sample.streams {
            let Some(before) = self.last.1.get(&place(stream)).copied() else {
                continue;
            };
            if stream.acknowledged > before.acknowledged {
                used.insert(stream.path);
            } else if is_left_idle(stream, &before, &sample.streams) {
                continue;
            }
            self.add_stream(stream, &before, step);
        }
        self.steps.push((sample.at, self.acknowledged));
        self.samples += 1;
        let (everywhere, anywhere) = queued(&sample.streams, least, &used);
        self.queued.0 += u32::from(everywhere);
        self.queued.1 += u32::from(anywhere);
        if let Some(share) = sample.processor {
            self.processor.0 += share * step;
            self.processor.1 += step;
        }
        self.receiver = sample.receiver.or(self.receiver);
        self.last = (sample.at, by_place(sample));
    }

    fn add_stream(&mut self, stream: &StreamSample, before: &StreamSample, step: f64) {
        let acknowledged = stream.acknowledged.saturating_sub(before.acknowledged);
        self.acknowledged += acknowledged;
        self.segments += acknowledged as f64 / f64::from(stream.segment.max(1));
        let retransmitted = stream.retransmitted.saturating_sub(before.retransmitted);
        self.retransmitted += retransmitted;
        // Segments lost together are one event, to which a window reacts once (RFC 5348, section
        // 5.2). A sample covers one or several round trips.
        self.loss_events += u32::from(retransmitted > 0);
        let spent =
            |now: Duration, before: Duration| now.saturating_sub(before).as_secs_f64().min(step);
        self.lived += step;
        self.busy += spent(stream.busy, before.busy);
        self.window_limited += spent(stream.window_limited, before.window_limited);
        self.buffer_limited += spent(stream.buffer_limited, before.buffer_limited);
    }

    /// Returns the current length of the span.
    pub fn length(&self) -> Duration {
        self.last.0 - self.began
    }

    /// Returns the rate in the later part divided by the rate in the earlier part. The parts are
    /// separated at the sample after the middle. Returns 1 if a part is empty.
    fn growth(&self) -> f64 {
        let middle = self.began + self.length() / 2;
        let Some(&(at, before)) = self.steps.iter().find(|step| step.0 >= middle) else {
            return 1.0;
        };
        let (early, late) = (at - self.began, self.last.0 - at);
        if early.is_zero() || late.is_zero() || before == 0 {
            return 1.0;
        }
        let rate = |bytes: u64, span: Duration| bytes as f64 / span.as_secs_f64();
        rate(self.acknowledged - before, late) / rate(before, early)
    }

    /// Returns the measurement, or `None` if no stream was open during the span.
    pub fn measure(&self) -> Option<Measure> {
        let seconds = self.length().as_secs_f64();
        if seconds <= 0.0 || self.lived <= 0.0 {
            return None;
        }
        let of_busy = |time: f64| {
            if self.busy > 0.0 {
                time / self.busy
            } else {
                0.0
            }
        };
        let of_samples = |count: u32| f64::from(count) / f64::from(self.samples.max(1));
        let sent = self.segments + self.retransmitted as f64;
        Some(Measure {
            seconds,
            bytes_per_second: self.acknowledged as f64 / seconds,
            growth: self.growth(),
            loss: self.retransmitted as f64 / sent.max(1.0),
            loss_events: self.loss_events,
            segments: self.segments,
            busy: self.busy / self.lived,
            window_limited: of_busy(self.window_limited),
            buffer_limited: of_busy(self.buffer_limited),
            queued: of_samples(self.queued.0),
            queued_somewhere: of_samples(self.queued.1),
            processor: self.processor.0 / self.processor.1.max(f64::MIN_POSITIVE),
            receiver: self.receiver.unwrap_or(0.0),
        })
    }
}

impl Measure {
    /// Returns the mean size of a segment in bytes, at least 1.
    pub fn segment_bytes(&self) -> f64 {
        (self.bytes_per_second * self.seconds / self.segments.max(1.0)).max(1.0)
    }

    /// True if there was a queue on every used path in at least half of the samples.
    pub fn is_queued(&self) -> bool {
        self.queued >= 0.5
    }

    /// True if no path had a queue in any sample.
    pub fn has_no_queue(&self) -> bool {
        self.queued_somewhere <= 0.0
    }

    /// Returns the bottleneck. `may_lose` is true if high loss can be random while there is no
    /// queue.
    pub fn bound(&self, congestion: &Congestion, may_lose: bool) -> Bound {
        if self.bytes_per_second <= 0.0 {
            return Bound::Silence;
        }
        if self.processor >= SATURATED {
            return Bound::Processor;
        }
        if self.busy < BUSY {
            return Bound::Supply;
        }
        if self.growth > GROWING {
            return Bound::Growth;
        }
        let by_chance = may_lose && self.has_no_queue();
        if self.is_queued() || self.loss > OVERLOADED && !by_chance {
            return Bound::Path;
        }
        if self.receiver >= SATURATED {
            return Bound::Receiver;
        }
        if self.window_limited >= 0.5 {
            return Bound::ReceiveBuffer;
        }
        if self.buffer_limited >= 0.5 {
            return Bound::SendBuffer;
        }
        match (congestion.takes_loss_for_congestion(), self.loss > 0.0) {
            (false, _) => Bound::Path,
            (true, true) => Bound::Loss,
            (true, false) => Bound::Window,
        }
    }
}
