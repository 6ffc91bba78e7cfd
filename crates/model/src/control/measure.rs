//! From samples to what they mean: a rate over a span, and what bound it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use longhaul_units::Moment;

use super::least::LeastRoundTrips;
use super::sample::{Sample, StreamSample};
use crate::response::Congestion;

/// A queue stands on the path if the round trip exceeds the least one by this part of it, within
/// these bounds. Below the lower bound, clocks and interrupts do as much. Above the upper one, it
/// is a queue even on the longest path.
const QUEUE_PART: f64 = 0.25;
const QUEUE_BOUNDS: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(10));

/// Segments that a stream sends at once: an acknowledgement is of two. Where rates are low
/// those of all streams take longer than the bounds say, and are no queue that stands.
const BURST_SEGMENTS: f64 = 2.0;

/// Part of their time that streams must have data for the path, and not this
/// host, to be what is measured.
const BUSY: f64 = 0.75;

/// A layer or a host that works more than this has nothing left.
const SATURATED: f64 = 0.92;

/// A path that loses more than this part is overloaded, though nobody sees its queue: more
/// streams would lose more.
const OVERLOADED: f64 = 0.02;

/// A rate that grew by more than this within a span is still growing.
const GROWING: f64 = 1.25;

/// What bound the rate in a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bound {
    /// Nothing moved at all.
    Silence,
    /// Streams waited for data: reading, compressing or the CPU at the sender.
    Supply,
    /// A host's cores.
    Processor,
    /// The receiving end works as fast as it can.
    Receiver,
    /// The path is full: a queue stands on it, or the congestion control that
    /// measures the path found its rate.
    Path,
    /// Windows still grow.
    Growth,
    /// Windows ended at the receiver's buffer.
    ReceiveBuffer,
    /// Windows ended at the sender's buffer.
    SendBuffer,
    /// Loss keeps the windows small, and no queue stands on the path.
    Loss,
    /// Congestion windows are smaller than the path, and grow slowly.
    Window,
}

impl Bound {
    /// Whether more streams may carry more.
    pub fn may_need_streams(self) -> bool {
        matches!(
            self,
            Bound::ReceiveBuffer | Bound::SendBuffer | Bound::Loss | Bound::Window
        )
    }
}

/// A stream on a path.
type Place = (u32, u32);

/// A span, summed over its samples.
#[derive(Clone, Debug)]
pub struct Span {
    began: Moment,
    /// The last sample, by stream and path.
    last: (Moment, BTreeMap<Place, StreamSample>),
    acknowledged: u64,
    /// Bytes acknowledged by the end of each sample.
    steps: Vec<(Moment, u64)>,
    retransmitted: u64,
    loss_events: u32,
    segments: f64,
    /// Stream seconds: in all, with data, held up by either window.
    lived: f64,
    busy: f64,
    window_limited: f64,
    buffer_limited: f64,
    samples: u32,
    /// Of them, those in which a queue stood on every path that was used, and on any.
    queued: (u32, u32),
    /// The busier host's share of its cores times seconds, and those seconds.
    processor: (f64, f64),
    receiver: Option<f64>,
}

/// What a span showed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measure {
    /// Length of the span.
    pub seconds: f64,
    /// Bytes acknowledged per second.
    pub bytes_per_second: f64,
    /// The rate of its later half by that of the earlier one.
    pub growth: f64,
    /// Part of the segments that were sent again, 0 to 1.
    pub loss: f64,
    /// Times that a stream lost segments.
    pub loss_events: u32,
    /// Segments acknowledged.
    pub segments: f64,
    /// Parts of the streams' time, 0 to 1: with data; of that held up by the
    /// receiver's window; by the send buffer.
    pub busy: f64,
    /// As above.
    pub window_limited: f64,
    /// As above.
    pub buffer_limited: f64,
    /// Part of the samples in which a queue stood on every path, 0 to 1.
    pub queued: f64,
    /// Part of them in which one stood on any path, 0 to 1.
    pub queued_somewhere: f64,
    /// Mean share of its cores' time that the busier host worked, 0 to 1.
    pub processor: f64,
    /// The receiving end's busiest layer, 0 to 1.
    pub receiver: f64,
}

/// Round trips of the streams on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrips {
    /// The least that was seen.
    pub least: Duration,
    /// Mean of the smoothed ones, no less than the least.
    pub mean: Duration,
    /// Time in which what all streams send at once is sent at the rate their windows have;
    /// zero where windows are not known.
    pub burst: Duration,
}

impl RoundTrips {
    /// Of streams that are on one path; `None` if no stream has measured it.
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

    /// Whether a queue stands, `known` being the least round trip that was ever seen.
    pub fn is_queued(&self, known: Duration) -> bool {
        let part = known.mul_f64(QUEUE_PART);
        let most = self.burst.max(QUEUE_BOUNDS.1);
        self.mean > known + part.min(most).max(QUEUE_BOUNDS.0)
    }
}

/// Round trips on each path; without those that no stream has measured.
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

/// Whether a stream's kernel uses its other paths instead, which says nothing of this host.
fn is_left_idle(stream: &StreamSample, before: &StreamSample, all: &[StreamSample]) -> bool {
    let others = |other: &StreamSample| other.stream == stream.stream && other.path != stream.path;
    stream.busy == before.busy && all.iter().any(others)
}

/// Whether a queue stands on every path that is used (where one has room, more
/// streams may fill it), and on any. Where none was used, all count.
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
    /// Begins with a sample.
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

    /// Adds a sample; `least` has the least round trip of each path. What a
    /// stream did before it was first seen, or after it was last seen, is not
    /// counted.
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
        // Segments lost together are one event, to which a window answers once
        // (RFC 5348, section 5.2); a sample is about a round trip, or some.
        self.loss_events += u32::from(retransmitted > 0);
        let spent =
            |now: Duration, before: Duration| now.saturating_sub(before).as_secs_f64().min(step);
        self.lived += step;
        self.busy += spent(stream.busy, before.busy);
        self.window_limited += spent(stream.window_limited, before.window_limited);
        self.buffer_limited += spent(stream.buffer_limited, before.buffer_limited);
    }

    /// How long it is so far.
    pub fn length(&self) -> Duration {
        self.last.0 - self.began
    }

    /// The rate of its later part by that of its earlier one, as near to the
    /// middle as samples lie; 1 where there is no such.
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

    /// What it showed; `None` if no stream lived through a part of it.
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
    /// Mean bytes of a segment, at least 1.
    pub fn segment_bytes(&self) -> f64 {
        (self.bytes_per_second * self.seconds / self.segments.max(1.0)).max(1.0)
    }

    /// Whether a queue stood on every path, in a good part of the time.
    pub fn is_queued(&self) -> bool {
        self.queued >= 0.5
    }

    /// Whether no queue stood on any path at any time.
    pub fn has_no_queue(&self) -> bool {
        self.queued_somewhere <= 0.0
    }

    /// What bound the rate, on paths that may lose much by chance where no queue stands, or not.
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
