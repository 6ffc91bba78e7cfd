//! Summarises the streams of a run from its TCP samples.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::samples::Sample;
use crate::stats::median;

/// A stream that carried less than this share of the largest stream's bytes is a control
/// connection.
const DATA_SHARE: f64 = 0.01;

/// Length of the window over which rates are computed: several samples, and not longer than the
/// shortest ramp of interest.
const WINDOW_SECONDS: f64 = 1.0;

/// Time at the start that is excluded from the settled rate.
const START_SECONDS: f64 = 5.0;

/// Bytes that opening a connection takes. A stream's time begins with the first sample that has
/// more bytes.
const OPENING_BYTES: u64 = 16 << 10;

/// Streams whose due share is less than this part of the largest are excluded, because they were
/// open too briefly.
const LIVED: f64 = 0.1;

/// Minimum number of windows for a meaningful last third.
const WINDOWS_WANTED: usize = 6;

/// A summary of the streams of a run. FORMAT.md lists the fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TcpSummary {
    /// Total number of streams that carried data.
    pub streams: u32,
    /// Maximum number of streams at one time.
    pub most_streams: u32,
    /// Bytes carried by the stream that carried most.
    pub largest_bytes: u64,
    /// Bytes carried by the stream that carried least.
    pub smallest_bytes: u64,
    /// Greatest ratio of the bytes that a stream carried to its equal share. The equal share is
    /// computed from the streams open at each time. Excludes streams that were open briefly. `None`
    /// without two samples with data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest_by_share: Option<f64>,
    /// Smallest ratio of the bytes that a stream carried to its equal share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smallest_by_share: Option<f64>,
    /// Greatest ratio of the bytes that a stream carried to its share by capacity. A stream's
    /// capacity is the smaller of its window divided by the round-trip time and its pacing rate.
    /// `None` without samples of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest_by_capacity: Option<f64>,
    /// Smallest ratio of the bytes that a stream carried to its share by capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smallest_by_capacity: Option<f64>,
    /// Congestion control of the stream that carried most, in its last sample.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub congestion: String,
    /// Time in seconds when the rate over a second first reached 90 % of the rate in the last third
    /// of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_to_90_percent: Option<f64>,
    /// Rate of all streams together from the fifth second to the last sample, in bits per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bits_per_second_after_5_seconds: Option<f64>,
    /// Time in seconds from the end of a cut until more bytes were acknowledged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_until_it_moved_again: Option<f64>,
    /// Part of all streams' time, 0 to 1, in which a stream had an empty queue while another stream
    /// had unsent bytes. A stream's time begins with its first data. `None` without samples of
    /// queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_beside_unsent: Option<f64>,
}

impl TcpSummary {
    /// Summarises samples in the order they were taken. Returns `None` if no stream carried data.
    /// `cut_ended` is the end of a cut in seconds since the start of the run.
    pub fn of(samples: &[Sample], cut_ended: Option<f64>) -> Option<TcpSummary> {
        let mut totals: BTreeMap<u32, u64> = BTreeMap::new();
        for sample in samples {
            let total = totals.entry(sample.stream).or_default();
            *total = sample.acknowledged_bytes.max(*total);
        }
        let largest_bytes = totals.values().copied().max().filter(|most| *most > 0)?;
        let carries = |bytes: u64| bytes as f64 > DATA_SHARE * largest_bytes as f64;
        totals.retain(|_, bytes| carries(*bytes));
        let mut at_once: BTreeMap<u64, u32> = BTreeMap::new();
        let is_data = |sample: &&Sample| totals.contains_key(&sample.stream);
        let data: Vec<Sample> = samples.iter().filter(is_data).copied().collect();
        for sample in &data {
            // Samples taken together have the same time.
            *at_once.entry(sample.seconds.to_bits()).or_default() += 1;
        }
        let [by_share, by_capacity] = [|_: &_, _: &_| Some(1.0), capacity].map(|part| {
            let by = carried_by(&data, part);
            [f64::max, f64::min].map(|choose| by.iter().copied().reduce(choose))
        });
        Some(TcpSummary {
            largest_by_share: by_share[0],
            smallest_by_share: by_share[1],
            largest_by_capacity: by_capacity[0],
            smallest_by_capacity: by_capacity[1],
            streams: totals.len() as u32,
            most_streams: at_once.into_values().max().unwrap_or_default(),
            largest_bytes,
            smallest_bytes: totals.values().copied().min().unwrap_or_default(),
            congestion: String::new(),
            seconds_to_90_percent: ramp(&growth(samples)),
            bits_per_second_after_5_seconds: settled(&growth(samples)),
            seconds_until_it_moved_again: cut_ended.and_then(|at| moved_again(samples, at)),
            idle_beside_unsent: idle_beside_unsent(&data),
        })
    }
}

/// Returns the number of bytes acknowledged on all streams at each sampling time, with the time in
/// seconds.
pub fn growth(samples: &[Sample]) -> Vec<(f64, u64)> {
    let mut last: BTreeMap<u32, u64> = BTreeMap::new();
    let mut total = 0;
    let mut looks: Vec<(f64, u64)> = Vec::new();
    for sample in samples {
        let before = last.insert(sample.stream, sample.acknowledged_bytes);
        let more = sample
            .acknowledged_bytes
            .saturating_sub(before.unwrap_or_default());
        // Saturates because the other end of a probe may report any values.
        total = u64::saturating_add(total, more);
        match looks.last_mut() {
            Some((at, bytes)) if *at == sample.seconds => *bytes = total,
            _ => looks.push((sample.seconds, total)),
        }
    }
    looks
}

/// Returns the number of bytes acknowledged by a time, interpolated between samples. After the last
/// sample, returns its number.
pub fn bytes_by(looks: &[(f64, u64)], seconds: f64) -> f64 {
    let mut before = (0.0, 0.0);
    for &(at, bytes) in looks {
        let after = (at, bytes as f64);
        if after.0 >= seconds {
            let span = after.0 - before.0;
            let share = if span > 0.0 {
                (seconds - before.0) / span
            } else {
                1.0
            };
            return before.1 + share * (after.1 - before.1);
        }
        before = after;
    }
    before.1
}

/// Returns the time of the last growth in acknowledged bytes, or 0 if none were acknowledged.
pub fn last_growth(looks: &[(f64, u64)]) -> f64 {
    let total = looks.last().map_or(0, |(_, bytes)| *bytes);
    let done = looks.iter().find(|(_, bytes)| *bytes == total && total > 0);
    done.map_or(0.0, |(at, _)| *at)
}

/// Returns the rate after [`START_SECONDS`] in bits per second. Returns `None` if less than a
/// window remains.
fn settled(looks: &[(f64, u64)]) -> Option<f64> {
    let (end, bytes) = looks.last()?;
    let seconds = end - START_SECONDS;
    let bits = (*bytes as f64 - bytes_by(looks, START_SECONDS)) * 8.0;
    (seconds >= WINDOW_SECONDS).then(|| bits / seconds)
}

/// Returns the end of the first window whose rate reaches 90 % of the median of the last third.
fn ramp(looks: &[(f64, u64)]) -> Option<f64> {
    let end = looks.last()?.0;
    let count = (end / WINDOW_SECONDS) as usize;
    if count < WINDOWS_WANTED {
        return None;
    }
    let of = |window: usize| {
        let from = window as f64 * WINDOW_SECONDS;
        bytes_by(looks, from + WINDOW_SECONDS) - bytes_by(looks, from)
    };
    let rates: Vec<f64> = (0..count).map(of).collect();
    let last = median(&rates[count - count / 3..])?;
    // Moves the window by a tenth of its length, so that the result is finer than a window.
    let step = WINDOW_SECONDS / 10.0;
    let starts = (0..((end - WINDOW_SECONDS) / step) as usize).map(|n| n as f64 * step);
    let reached =
        |from: &f64| bytes_by(looks, from + WINDOW_SECONDS) - bytes_by(looks, *from) >= 0.9 * last;
    let mut reached = starts.filter(reached);
    reached.next().map(|from| from + WINDOW_SECONDS)
}

/// Returns a stream's weight between two samples, relative to the weights of the other streams.
type Part = fn(&Sample, &Sample) -> Option<f64>;

/// Returns the rate in bytes per second that a stream could send: the mean over both samples.
/// Returns `None` if a sample has no window or round-trip time.
fn capacity(before: &Sample, now: &Sample) -> Option<f64> {
    let of = |sample: &Sample| {
        let rtt = sample.rtt_seconds.filter(|rtt| *rtt > 0.0)?;
        let by_window = sample.window_bytes? as f64 / rtt;
        let pace = sample.pace_bytes_per_second;
        Some(pace.map_or(by_window, |pace| by_window.min(pace as f64)))
    };
    Some((of(before)? + of(now)?) / 2.0)
}

/// Returns for each stream the bytes that it carried divided by the bytes due to it. The bytes due
/// are the stream's part, by weight, of the bytes that all carried at the same time. Returns an
/// empty list if a weight is unknown.
fn carried_by(samples: &[Sample], part: Part) -> Vec<f64> {
    let mut before: BTreeMap<u32, Sample> = BTreeMap::new();
    // For each stream: the bytes carried and the bytes due.
    let mut known: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
    for look in samples.chunk_by(|one, next| one.seconds == next.seconds) {
        let (mut all, mut parts, mut together) = (Vec::new(), 0.0, 0.0);
        for sample in look {
            let began = before
                .get(&sample.stream)
                .filter(|old| old.acknowledged_bytes > OPENING_BYTES);
            let Some(began) = began else { continue };
            let more = sample.acknowledged_bytes;
            let more = more.saturating_sub(began.acknowledged_bytes) as f64;
            let Some(part) = part(began, sample) else {
                return Vec::new();
            };
            all.push((sample.stream, more, part));
            parts += part;
            together += more;
        }
        for (stream, more, part) in all {
            let (carried, due) = known.entry(stream).or_default();
            *carried += more;
            *due += together * if parts > 0.0 { part / parts } else { 0.0 };
        }
        before = look.iter().map(|now| (now.stream, *now)).collect();
    }
    let most = known.values().map(|(_, due)| *due).fold(0.0, f64::max);
    let lived = known.values().filter(|(_, due)| *due > most * LIVED);
    lived.map(|(carried, due)| carried / due).collect()
}

/// Computes the idle share. All sampling times have the same weight.
fn idle_beside_unsent(samples: &[Sample]) -> Option<f64> {
    let mut carrying: BTreeSet<u32> = BTreeSet::new();
    let (mut idle, mut all) = (0_usize, 0_usize);
    for look in samples.chunk_by(|one, next| one.seconds == next.seconds) {
        let (mut unsent, mut resting) = (0_u64, 0_usize);
        for sample in look {
            let queued = sample.queued_bytes?;
            if sample.acknowledged_bytes.saturating_add(queued.into()) > OPENING_BYTES {
                carrying.insert(sample.stream);
            }
            if carrying.contains(&sample.stream) {
                unsent += u64::from(sample.unsent_bytes?);
                resting += usize::from(queued == 0);
                all += 1;
            }
        }
        if unsent > 0 {
            idle += resting;
        }
    }
    (all > 0).then(|| idle as f64 / all as f64)
}

fn moved_again(samples: &[Sample], cut_ended: f64) -> Option<f64> {
    let looks = growth(samples);
    let then = bytes_by(&looks, cut_ended);
    let first = looks
        .iter()
        .find(|(at, bytes)| *at > cut_ended && *bytes as f64 > then)?;
    Some(first.0 - cut_ended)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::tests::sample;

    /// Returns the samples of two streams with a constant rate from 2 s on, and of a control
    /// connection.
    fn run() -> Vec<Sample> {
        (0..=40)
            .flat_map(|quarter: u64| {
                let at = quarter as f64 / 4.0;
                let bytes = quarter.saturating_sub(8) * 1_000_000;
                [
                    sample(at, 1, bytes),
                    sample(at, 2, bytes / 2),
                    sample(at, 3, 100),
                ]
            })
            .collect()
    }

    #[test]
    fn data_streams_are_counted_and_the_ramp_is_found() {
        let summary = TcpSummary::of(&run(), None).unwrap();
        assert_eq!((summary.streams, summary.most_streams), (2, 2));
        assert_eq!(summary.largest_bytes, 32_000_000);
        assert_eq!(summary.smallest_bytes, 16_000_000);
        // No data flow for two seconds, so a window reaches 90 % at 2.9 s.
        let ramp = summary.seconds_to_90_percent.unwrap();
        assert!((ramp - 2.9).abs() < 0.11, "{ramp}");
        // Both streams together carry six million bytes per second; the third carries no data.
        let settled = summary.bits_per_second_after_5_seconds.unwrap();
        assert!((settled - 48e6).abs() < 1.0, "{settled}");
        assert_eq!(TcpSummary::of(&[sample(1.0, 1, 0)], None), None);
        assert_eq!(TcpSummary::of(&[], Some(1.0)), None);
    }

    #[test]
    fn a_late_stream_is_compared_only_while_it_is_open() {
        let looks = |quarter: u64| {
            let at = quarter as f64 / 4.0;
            let old = sample(at, 1, 100_000 + quarter * 1_000_000);
            let new = (quarter >= 30).then(|| sample(at, 2, 100_000 + (quarter - 30) * 500_000));
            // The third stream opens at the end and is still slow.
            let last = (quarter >= 39).then(|| sample(at, 3, 500_000 + (quarter - 39) * 1000));
            [Some(old), new, last].into_iter().flatten()
        };
        let samples: Vec<Sample> = (0..=40).flat_map(looks).collect();
        let summary = TcpSummary::of(&samples, None).unwrap();
        // At 9 of 40 sampling times there are two streams, one of which carries a third. At one
        // there are three.
        let by = |carried: f64, due: f64| carried / due;
        let last = (1_000_000.0 + 500_000.0 + 1000.0) / 3.0;
        let largest = by(40e6, 30e6 + 9.0 * 0.75e6 + last);
        let smallest = by(5e6, 9.0 * 0.75e6 + last);
        let near = |found: Option<f64>, wanted: f64| (found.unwrap() - wanted).abs() < 1e-9;
        assert!(near(summary.largest_by_share, largest), "{summary:?}");
        assert!(near(summary.smallest_by_share, smallest), "{summary:?}");
        let run = TcpSummary::of(&run(), None).unwrap();
        assert!(near(run.smallest_by_share, 2.0 / 3.0), "{run:?}");
        let once = TcpSummary::of(&[sample(1.0, 1, 100_000)], None).unwrap();
        assert_eq!(once.largest_by_share, None);
    }

    #[test]
    fn streams_with_a_smaller_window_or_pace_have_a_smaller_share() {
        let look = |second: u64, stream, rate: u64, window, pace| Sample {
            window_bytes: Some(window),
            rtt_seconds: Some(0.1),
            pace_bytes_per_second: pace,
            ..sample(second as f64, stream, 100_000 + second * rate)
        };
        // The capacities are 4, 1 and 1 MB/s. The last stream carries half of its capacity.
        let looks = |second| {
            [
                look(second, 1, 4_000_000, 400_000, None),
                look(second, 2, 1_000_000, 400_000, Some(1_000_000)),
                look(second, 3, 500_000, 100_000, Some(9_000_000)),
            ]
        };
        let samples: Vec<Sample> = (0..=20).flat_map(looks).collect();
        let summary = TcpSummary::of(&samples, None).unwrap();
        let near = |found: Option<f64>, wanted: f64| (found.unwrap() - wanted).abs() < 1e-9;
        assert!(near(summary.largest_by_capacity, 6.0 / 5.5), "{summary:?}");
        assert!(near(summary.smallest_by_capacity, 3.0 / 5.5), "{summary:?}");
        assert!(near(summary.largest_by_share, 12.0 / 5.5), "{summary:?}");
        // If one sample has no window, the shares by capacity are unknown.
        let mut samples = samples;
        samples[30].window_bytes = None;
        let summary = TcpSummary::of(&samples, None).unwrap();
        assert_eq!(summary.largest_by_capacity, None);
        assert!(summary.largest_by_share.is_some());
    }

    #[test]
    fn the_first_progress_after_a_cut_is_found() {
        let mut samples = vec![sample(1.0, 1, 1000), sample(2.0, 1, 2000)];
        samples.extend([4.0, 6.0].map(|at| sample(at, 1, 2000)));
        samples.push(sample(6.5, 1, 2001));
        let again = |cut| {
            TcpSummary::of(&samples, Some(cut))
                .unwrap()
                .seconds_until_it_moved_again
        };
        assert_eq!(again(5.0), Some(1.5));
        assert_eq!(again(6.5), None);
    }

    #[test]
    fn idle_streams_beside_unsent_bytes_are_counted() {
        let look = |at, stream, acknowledged, queued, unsent| Sample {
            queued_bytes: Some(queued),
            unsent_bytes: Some(unsent),
            ..sample(at, stream, acknowledged)
        };
        let samples = [
            // The second stream is still opening, so its time has not begun.
            look(1.0, 1, 100_000, 50_000, 9000),
            look(1.0, 2, 2000, 0, 0),
            // Both streams have queued bytes, and the first also has unsent bytes.
            look(2.0, 1, 200_000, 50_000, 9000),
            look(2.0, 2, 30_000, 10_000, 0),
            // The second stream is idle while the first has unsent bytes.
            look(3.0, 1, 300_000, 50_000, 9000),
            look(3.0, 2, 40_000, 0, 0),
            // The second stream is idle, but the first has no unsent bytes.
            look(4.0, 1, 400_000, 50_000, 0),
            look(4.0, 2, 40_000, 0, 0),
        ];
        let idle = |samples: &[Sample]| TcpSummary::of(samples, None).unwrap().idle_beside_unsent;
        // One of the seven counted samples is idle beside unsent bytes.
        assert_eq!(idle(&samples), Some(1.0 / 7.0));
        assert_eq!(idle(&samples[..4]), Some(0.0));
        assert_eq!(idle(&run()), None);
    }

    #[test]
    fn bytes_are_interpolated_between_samples() {
        let looks = [(1.0, 100), (2.0, 300)];
        assert_eq!(bytes_by(&looks, 0.5), 50.0);
        assert_eq!(bytes_by(&looks, 1.5), 200.0);
        assert_eq!(bytes_by(&looks, 9.0), 300.0);
        assert_eq!(last_growth(&looks), 2.0);
        assert_eq!(last_growth(&[(1.0, 5), (2.0, 9), (3.0, 9), (4.0, 9)]), 2.0);
        assert_eq!(last_growth(&[(1.0, 0), (2.0, 0)]), 0.0);
    }
}
