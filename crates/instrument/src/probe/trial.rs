//! Evaluates the samples of a session with one number of streams.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longhaul_engine::session::{Orders, Steer, View};
use longhaul_measure::samples::Sample as StreamSample;
use longhaul_measure::stats::median;
use longhaul_proto::message::{Observation, StreamObservation, Tuning};

use super::unqueued::{Look, Unqueued};

/// Maximum number of samples of a trial: 10 per second for an hour.
const MOST_SAMPLES: usize = 36_000;

/// Maximum number of stream observations of a trial. The other end determines the number
/// of streams.
const MOST_LOOKED_AT: usize = 2_000_000;

/// Number of acknowledged bytes per stream that do not count as data: TLS and the opening
/// take some kB. The same number is allowed for messages between the ends.
const OPENING_BYTES: u64 = 8 * 1024;

/// Observations of both ends at one time.
#[derive(Clone, Debug)]
struct Sample {
    /// Seconds since the session began at the sender.
    at: f64,
    streams: Vec<StreamObservation>,
    /// Clock, CPU time and number of cores of each end, the sender first.
    processors: [(u64, u64, u32); 2],
}

impl Sample {
    /// Returns the number of streams, each of which may use several paths.
    fn streams(&self) -> usize {
        let numbers = self.streams.iter().map(|stream| stream.stream);
        numbers.collect::<BTreeSet<u32>>().len()
    }
}

/// Facts about an end, as it reports them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EndFacts {
    /// Congestion control of its streams.
    pub congestion: String,
    /// Congestion controls that it permits.
    pub congestions: Vec<String>,
    /// Third value of `net.ipv4.tcp_wmem`: maximum send buffer in bytes.
    pub send_buffer: Option<u64>,
    /// Third value of `net.ipv4.tcp_rmem`: maximum receive buffer in bytes.
    pub receive_buffer: Option<u64>,
    /// Number of cores that it may use.
    pub cores: u32,
}

impl EndFacts {
    fn of(observation: &Observation) -> Option<EndFacts> {
        // The observation is empty before the first message of that end.
        (observation.cores > 0).then(|| EndFacts {
            congestion: observation.congestion.clone(),
            congestions: observation.congestions.clone(),
            send_buffer: observation.send_buffer,
            receive_buffer: observation.receive_buffer,
            cores: observation.cores,
        })
    }
}

/// Samples of a session.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    samples: Vec<Sample>,
    /// Total number of stream observations in all samples.
    looked_at: usize,
    /// Facts about the sending end.
    pub sender: Option<EndFacts>,
    /// Facts about the receiving end.
    pub receiver: Option<EndFacts>,
}

/// Samples shared between the session and the waiting thread.
pub type SharedSeen = Arc<Mutex<Seen>>;

/// Fixes the number of streams of a session and records its samples.
pub struct Watcher {
    orders: Option<Orders>,
    seen: SharedSeen,
}

impl Watcher {
    /// Creates a watcher that keeps this number of streams. `congestion` is the
    /// congestion control, or `None` for the kernel's default.
    pub fn new(streams: u32, congestion: Option<String>) -> (Watcher, SharedSeen) {
        let seen = SharedSeen::default();
        let tuning = Tuning {
            congestion,
            ..Tuning::default()
        };
        let orders = Orders {
            streams: streams as usize,
            tuning,
            ..Orders::default()
        };
        let watcher = Watcher {
            orders: Some(orders),
            seen: Arc::clone(&seen),
        };
        (watcher, seen)
    }
}

impl Steer for Watcher {
    fn look(&mut self, view: &View<'_>) -> Option<Orders> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.add(view);
        drop(seen);
        self.orders.take()
    }
}

impl Seen {
    fn add(&mut self, view: &View<'_>) {
        self.sender = EndFacts::of(view.sender).or(self.sender.take());
        self.receiver = EndFacts::of(view.receiver).or(self.receiver.take());
        let at = view.at.0 as f64 / 1e9;
        let news = self.samples.last().is_none_or(|last| at > last.at);
        let streams = view.sender.streams.len();
        let is_full = self.samples.len() >= MOST_SAMPLES
            || self.looked_at.saturating_add(streams) > MOST_LOOKED_AT;
        if !news || streams == 0 || is_full {
            return;
        }
        self.looked_at += streams;
        let processor = |end: &Observation| (end.at, end.cpu, end.cores);
        self.samples.push(Sample {
            at,
            streams: view.sender.streams.clone(),
            processors: [processor(view.sender), processor(view.receiver)],
        });
    }

    /// True if a kernel reported on any stream.
    pub fn saw_streams(&self) -> bool {
        !self.samples.is_empty()
    }

    /// True if any data arrived.
    pub fn saw_data(&self) -> bool {
        self.first_data(&self.totals()).is_some()
    }

    /// Returns the first sample with more acknowledged bytes than the opening of streams
    /// takes.
    fn first_data(&self, totals: &[Total]) -> Option<usize> {
        totals.iter().position(|total| {
            let opening = OPENING_BYTES.saturating_mul(total.streams + 1);
            total.acknowledged > opening
        })
    }

    /// Returns the minimum round-trip time of any stream in seconds.
    pub fn least_rtt(&self) -> Option<f64> {
        let streams = self.samples.iter().flat_map(|sample| &sample.streams);
        let known = streams.map(|stream| f64::from(stream.minimum_rtt) / 1e6);
        known.filter(|rtt| *rtt > 0.0).reduce(f64::min)
    }

    /// Evaluates the samples. Returns `None` if there are fewer than two samples in the
    /// second half of the time since the first data were acknowledged.
    pub fn trial(&self, streams: u32) -> Option<Trial> {
        let last = self.samples.last()?;
        let totals = self.totals();
        let first = self.first_data(&totals)?;
        let middle = f64::midpoint(self.samples[first].at, last.at);
        let half = self.samples.iter().position(|s| s.at >= middle)?;
        let (middle, end) = (totals.get(half)?, totals.last()?);
        let span = last.at - self.samples[half].at;
        if span <= 0.0 {
            return None;
        }
        // The far end sends the counts and may send smaller ones than before.
        let settled = end.acknowledged.saturating_sub(middle.acknowledged) as f64 / span;
        let late = || self.samples[half..].iter().flat_map(|s| &s.streams);
        let rtts: Vec<f64> = late().map(|s| f64::from(s.rtt) / 1e6).collect();
        let segment = late().map(|stream| stream.segment).max()?;
        let share = |part: fn(&StreamObservation) -> u64| {
            let sum = |of: fn(&StreamObservation) -> u64| total(last.streams.iter().map(of));
            sum(part) as f64 / sum(|stream| stream.busy).max(1) as f64
        };
        Some(Trial {
            streams,
            most_streams: self.samples.iter().map(Sample::streams).max()?,
            bytes: end.acknowledged,
            wall: Duration::from_secs_f64(last.at),
            bytes_per_second: end.acknowledged as f64 / last.at,
            settled,
            retransmitted: end.retransmitted,
            retransmitted_bytes: end.retransmitted_bytes,
            duplicates: end.duplicates,
            lost: end.lost,
            lost_at_end: total(last.streams.iter().map(|stream| stream.lost.into())),
            unqueued: self.unqueued(&totals, segment),
            segments: end.acknowledged / u64::from(segment.max(1)),
            sent: end.sent,
            segment,
            rtt: Duration::from_secs_f64(median(&rtts)?),
            window_limited: share(|stream| stream.window_limited).min(1.0),
            buffer_limited: share(|stream| stream.buffer_limited).min(1.0),
            processors: [self.processor(0), self.processor(1)],
            samples: Vec::new(),
        })
    }

    /// Returns the segments sent and lost while no queue can have dropped them.
    fn unqueued(&self, totals: &[Total], segment: u32) -> Unqueued {
        let looks = self.samples.iter().zip(totals).map(|(sample, total)| {
            let rtts = sample.streams.iter().map(|stream| stream.rtt);
            let acknowledged = total.acknowledged / u64::from(segment.max(1));
            Look {
                at: sample.at,
                rtt: f64::from(rtts.max().unwrap_or(0)) / 1e6,
                lost: total.lost.unwrap_or(total.retransmitted),
                sent: total
                    .sent
                    .unwrap_or_else(|| acknowledged.saturating_add(total.retransmitted)),
            }
        });
        let looks: Vec<Look> = looks.collect();
        Unqueued::of(&looks, self.least_rtt().unwrap_or(0.0))
    }

    /// Returns the observations of each stream for records of runs, at most `most`. A
    /// stream over several paths counts as one stream per path.
    pub fn stream_samples(&self, most: usize) -> Vec<StreamSample> {
        let mut numbers: BTreeMap<(u32, u32), u32> = BTreeMap::new();
        let mut samples = Vec::new();
        for look in &self.samples {
            if samples.len() + look.streams.len() > most {
                // The other end determines the number of streams.
                break;
            }
            for stream in &look.streams {
                let next = numbers.len() as u32 + 1;
                let number = numbers.entry((stream.stream, stream.path)).or_insert(next);
                samples.push(StreamSample {
                    // Rounded to microseconds, which are finer than the interval of samples.
                    seconds: (look.at * 1e6).round() / 1e6,
                    stream: *number,
                    acknowledged_bytes: stream.acknowledged,
                    queued_bytes: None,
                    unsent_bytes: None,
                    retransmitted_segments: stream.retransmitted,
                    window_bytes: Some(stream.window),
                    rtt_seconds: Some(f64::from(stream.rtt) / 1e6),
                    pace_bytes_per_second: None,
                    port: None,
                });
            }
        }
        samples
    }

    /// Returns sums over all streams for each sample. A stream that has ended counts with
    /// its last values.
    fn totals(&self) -> Vec<Total> {
        let mut known: BTreeMap<(u32, u32), &StreamObservation> = BTreeMap::new();
        let sums = self.samples.iter().map(|sample| {
            for stream in &sample.streams {
                known.insert((stream.stream, stream.path), stream);
            }
            let all = |of: fn(&StreamObservation) -> Option<u64>| {
                let counts: Option<Vec<u64>> = known.values().map(|stream| of(stream)).collect();
                counts.map(|counts| total(counts.into_iter()))
            };
            Total {
                streams: known.len() as u64,
                acknowledged: total(known.values().map(|stream| stream.acknowledged)),
                retransmitted: total(known.values().map(|stream| stream.retransmitted)),
                retransmitted_bytes: all(|stream| stream.retransmitted_bytes),
                duplicates: all(|stream| stream.duplicates),
                lost: all(|stream| Some(stream.retransmitted.saturating_sub(stream.duplicates?))),
                sent: all(|stream| stream.sent),
            }
        });
        sums.collect()
    }

    /// Returns the fraction of an end's cores that its process used, 0 to 1.
    fn processor(&self, end: usize) -> Option<f64> {
        let mut known = self.samples.iter().map(|sample| sample.processors[end]);
        let first = known.by_ref().find(|processor| processor.2 > 0)?;
        let last = known.next_back()?;
        let span = last.0.checked_sub(first.0).filter(|span| *span > 0)?;
        let worked = last.1.saturating_sub(first.1) as f64;
        Some((worked / (span as f64 * f64::from(last.2.max(1)))).min(1.0))
    }
}

/// Sums over all streams up to a sample.
struct Total {
    streams: u64,
    acknowledged: u64,
    retransmitted: u64,
    retransmitted_bytes: Option<u64>,
    duplicates: Option<u64>,
    lost: Option<u64>,
    sent: Option<u64>,
}

/// Returns a sum without overflow, because a far end may send any number.
fn total(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

/// Result of one session with one number of streams.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// Requested number of streams.
    pub streams: u32,
    /// Maximum number of streams that existed.
    pub most_streams: usize,
    /// Acknowledged bytes of TCP payload.
    pub bytes: u64,
    /// Time since the session began.
    pub wall: Duration,
    /// Mean rate over `wall` in bytes per second, including the ramp-up.
    pub bytes_per_second: f64,
    /// Mean rate in bytes per second in the second half of the time since the first data
    /// were acknowledged.
    pub settled: f64,
    /// Number of retransmitted segments.
    pub retransmitted: u64,
    /// Number of retransmitted bytes, if the sender's kernel counts them.
    pub retransmitted_bytes: Option<u64>,
    /// Number of retransmitted segments that the receiver already had (DSACK), which were
    /// unnecessary. `None` if the sender's kernel does not count them.
    pub duplicates: Option<u64>,
    /// Estimated number of lost segments: retransmissions minus duplicates, per stream.
    pub lost: Option<u64>,
    /// Number of segments that counted as lost at the end. Some of them are also counted
    /// as retransmitted.
    pub lost_at_end: u64,
    /// Segments sent and lost while no queue can have dropped them.
    pub unqueued: Unqueued,
    /// Number of acknowledged segments.
    pub segments: u64,
    /// Number of sent segments with data, including retransmissions, if the sender's
    /// kernel counts them.
    pub sent: Option<u64>,
    /// Segment size in bytes.
    pub segment: u32,
    /// Median round-trip time in the second half.
    pub rtt: Duration,
    /// Fraction of the time in which the receiver's window was the limit, 0 to 1.
    pub window_limited: f64,
    /// Fraction of the time in which the send buffer was the limit, 0 to 1.
    pub buffer_limited: f64,
    /// Fractions of the sender's and of the receiver's cores that were used, 0 to 1.
    pub processors: [Option<f64>; 2],
    /// Samples of streams over time, if they are kept ([`Seen::stream_samples`]).
    pub samples: Vec<StreamSample>,
}

impl Trial {
    /// Returns the fraction of sent segments that were retransmissions, 0 to 1.
    pub fn retransmission_rate(&self) -> f64 {
        self.share_of_sent(self.retransmitted)
    }

    /// Returns an estimate of the fraction of sent segments that were lost, 0 to 1, at
    /// most [`Trial::retransmission_rate`]. `None` if the sender's kernel does not count
    /// unnecessary retransmissions.
    pub fn loss_rate(&self) -> Option<f64> {
        Some(self.share_of_sent(self.lost?))
    }

    /// Returns the fraction (0 to 1) of segments lost while no queue can have dropped them.
    /// Unnecessary retransmissions count as losses if the sender's kernel does not report them.
    pub fn unqueued_loss(&self) -> f64 {
        self.unqueued.loss()
    }

    fn share_of_sent(&self, segments: u64) -> f64 {
        let sent = self
            .sent
            .unwrap_or_else(|| self.segments.saturating_add(self.retransmitted));
        // The other end may send any number.
        (segments as f64 / sent.max(1) as f64).min(1.0)
    }
}

/// Returns samples of one stream: pairs of time in tenths of a second and acknowledged
/// bytes.
#[cfg(test)]
pub fn seen_at(looks: &[(u64, u64)]) -> Seen {
    let mut seen = Seen::default();
    for (tenths, acknowledged) in looks {
        let (at, sender) = tests::view_at(*tenths, vec![tests::stream(0, *acknowledged, 0)]);
        seen.add(&View {
            at: longhaul_units::Moment(at),
            sender: &sender,
            receiver: &Observation::default(),
        });
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_units::Moment;

    pub fn view_at(tenths: u64, streams: Vec<StreamObservation>) -> (u64, Observation) {
        let at = tenths * 100_000_000;
        let observation = Observation {
            at,
            streams,
            cpu: at,
            cores: 2,
            congestion: "cubic".into(),
            ..Observation::default()
        };
        (at, observation)
    }

    pub fn stream(number: u32, acknowledged: u64, retransmitted: u64) -> StreamObservation {
        StreamObservation {
            stream: number,
            acknowledged,
            retransmitted,
            rtt: 50_000,
            segment: 1000,
            busy: 10,
            window_limited: 5,
            ..StreamObservation::default()
        }
    }

    fn look(watcher: &mut Watcher, tenths: u64, streams: Vec<StreamObservation>) -> Option<Orders> {
        let (at, sender) = view_at(tenths, streams);
        let view = View {
            at: Moment(at),
            sender: &sender,
            receiver: &Observation::default(),
        };
        watcher.look(&view)
    }

    #[test]
    fn the_settled_rate_is_that_of_the_second_half() {
        let (mut watcher, seen) = Watcher::new(2, Some("bbr".into()));
        let orders = look(&mut watcher, 1, vec![stream(0, 0, 0)]).unwrap();
        assert_eq!(
            (orders.streams, orders.tuning.congestion.as_deref()),
            (2, Some("bbr"))
        );
        // The first second is slow, then 1 MB arrives per tenth. Stream 1 ends, and its
        // counts are kept.
        for tenths in 2..=10 {
            assert_eq!(
                look(
                    &mut watcher,
                    tenths,
                    vec![stream(0, 0, 0), stream(1, 1_000_000, 3)]
                ),
                None
            );
        }
        for tenths in 11..=20 {
            look(
                &mut watcher,
                tenths,
                vec![stream(0, (tenths - 10) * 1_000_000, 7)],
            );
        }
        let trial = seen.lock().unwrap().trial(2).unwrap();
        assert!((trial.settled - 10e6).abs() < 1.0, "{trial:?}");
        assert!((trial.bytes_per_second - 5.5e6).abs() < 1.0, "{trial:?}");
        assert_eq!((trial.retransmitted, trial.segments), (10, 11_000));
        assert!((trial.retransmission_rate() - 10.0 / 11_010.0).abs() < 1e-9);
        // Without counts of unnecessary retransmissions, no loss is estimated.
        assert_eq!((trial.loss_rate(), trial.duplicates), (None, None));
        assert_eq!(trial.rtt, Duration::from_millis(50));
        assert_eq!((trial.window_limited, trial.buffer_limited), (0.5, 0.0));
        assert_eq!(
            (trial.most_streams, trial.processors),
            (2, [Some(0.5), None])
        );
    }

    #[test]
    fn a_late_start_does_not_affect_the_settled_rate() {
        // No data for 1.5 s, then 1 MB per tenth.
        let late: Vec<(u64, u64)> = (1..=30)
            .map(|tenths: u64| (tenths, tenths.saturating_sub(15) * 1_000_000))
            .collect();
        let trial = seen_at(&late).trial(1).unwrap();
        assert!((trial.settled - 10e6).abs() < 1.0, "{trial:?}");
        assert!((trial.bytes_per_second - 5e6).abs() < 1.0, "{trial:?}");
    }

    #[test]
    fn the_opening_of_streams_does_not_count_as_data() {
        // TLS and the opening are acknowledged, a part of them later. Then no data for
        // 1.5 s, then 1 MB per tenth.
        let late: Vec<(u64, u64)> = (1..=30)
            .map(|tenths: u64| {
                let opening = if tenths == 1 { 3_000 } else { 9_000 };
                (tenths, opening + tenths.saturating_sub(15) * 1_000_000)
            })
            .collect();
        let seen = seen_at(&late);
        let trial = seen.trial(1).unwrap();
        assert!((trial.settled - 10e6).abs() < 1.0, "{trial:?}");
        assert!(seen.saw_data() && !seen_at(&late[..15]).saw_data());
        assert_eq!(seen_at(&late[..15]).trial(1), None);
        // Each of many streams has its own opening, which may be seen before its end.
        let many = |acknowledged| {
            (0..64)
                .map(|number| stream(number, acknowledged, 0))
                .collect()
        };
        let (mut watcher, seen) = Watcher::new(64, None);
        look(&mut watcher, 1, many(0));
        look(&mut watcher, 2, many(5_000));
        assert!(!seen.lock().unwrap().saw_data());
        look(&mut watcher, 3, many(50_000));
        assert!(seen.lock().unwrap().saw_data());
    }

    #[test]
    fn decreasing_or_extreme_counts_are_harmless() {
        let fallen = [(1, 0), (2, 900_000), (3, 900_000), (4, 900_000), (5, 5)];
        assert_eq!(seen_at(&fallen).trial(1).unwrap().settled, 0.0);
        let (mut watcher, seen) = Watcher::new(2, None);
        let most = |tenths| vec![stream(0, tenths, u64::MAX), stream(1, u64::MAX, u64::MAX)];
        look(&mut watcher, 1, vec![stream(0, 0, 0), stream(1, 0, 0)]);
        for tenths in 2..6 {
            let mut streams = most(tenths);
            streams.iter_mut().for_each(|stream| stream.busy = u64::MAX);
            look(&mut watcher, tenths, streams);
        }
        let trial = seen.lock().unwrap().trial(2).unwrap();
        assert!(
            (0.0..=1.0).contains(&trial.retransmission_rate()),
            "{trial:?}"
        );
    }

    #[test]
    fn unnecessary_retransmissions_do_not_count_as_losses() {
        let counted = |number, retransmitted, duplicates, sent| StreamObservation {
            duplicates,
            sent: Some(sent),
            retransmitted_bytes: Some(retransmitted * 1000),
            lost: 2,
            ..stream(number, 1_000_000, retransmitted)
        };
        let trial = |streams: &[StreamObservation]| {
            let (mut watcher, seen) = Watcher::new(2, None);
            for tenths in 1..=4 {
                let mut now = streams.to_vec();
                now.iter_mut().for_each(|s| s.acknowledged *= tenths);
                look(&mut watcher, tenths, now);
            }
            seen.lock().unwrap().trial(2).unwrap()
        };
        // On the second stream, more duplicates were reported than segments
        // retransmitted, as on a network that duplicates packets.
        let both = trial(&[counted(0, 30, Some(10), 4000), counted(1, 5, Some(9), 6000)]);
        assert_eq!((both.retransmitted, both.duplicates), (35, Some(19)));
        assert_eq!((both.lost, both.sent), (Some(20), Some(10_000)));
        assert_eq!(
            (both.retransmitted_bytes, both.lost_at_end),
            (Some(35_000), 4)
        );
        assert!((both.retransmission_rate() - 0.0035).abs() < 1e-12);
        assert!((both.loss_rate().unwrap() - 0.002).abs() < 1e-12);
        // If one stream has no count of duplicates, only the retransmission rate is
        // known.
        let one = trial(&[counted(0, 30, Some(10), 4000), counted(1, 5, None, 6000)]);
        assert_eq!(one.loss_rate(), None);
        assert!((one.retransmission_rate() - 0.0035).abs() < 1e-12);
    }

    #[test]
    fn too_few_samples_give_no_trial() {
        assert_eq!(seen_at(&[(1, 0), (2, 0), (3, 0)]).trial(1), None);
        assert_eq!(seen_at(&[(1, 0), (2, 700_000)]).trial(1), None);
        assert_eq!(Seen::default().trial(1), None);
        let (mut watcher, seen) = Watcher::new(1, None);
        look(&mut watcher, 1, vec![stream(0, 500_000, 0)]);
        assert_eq!(seen.lock().unwrap().trial(1), None);
    }
}
