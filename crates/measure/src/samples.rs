//! Reads the TCP samples of a run. The file is opened only if the run is plotted.
//!
//! Each line has the state of one stream at one time. Like in TCP_INFO, counters only grow.
//! FORMAT.md lists the fields.

use std::collections::BTreeMap;
use std::io::{self, BufRead};
use std::time::Duration;

use longhaul_units::BitRate;
use serde::{Deserialize, Serialize};

/// Maximum length of a sample's line in bytes.
const LONGEST_LINE: usize = 512;

/// Maximum number of samples of one run: an hour of 64 streams at 4 Hz.
pub const MOST_SAMPLES: usize = 1_000_000;

/// The state of one stream at one time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Time since the start of the run, in seconds.
    pub seconds: f64,
    /// Number of the stream.
    pub stream: u32,
    /// Number of bytes acknowledged so far.
    pub acknowledged_bytes: u64,
    /// Number of bytes that the process has written and that are not acknowledged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_bytes: Option<u32>,
    /// Number of bytes of `queued_bytes` that were never sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsent_bytes: Option<u32>,
    /// Number of segments retransmitted so far.
    #[serde(default)]
    pub retransmitted_segments: u64,
    /// Congestion window in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_bytes: Option<u64>,
    /// Smoothed round-trip time in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_seconds: Option<f64>,
    /// Maximum rate at which the kernel paces the stream, in bytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace_bytes_per_second: Option<u64>,
    /// Destination port, if several transfers share the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

/// Reasons why a file of samples cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SamplesError {
    /// Reading the file failed.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// A line is not a sample.
    #[error("line {line} is not a sample: {cause}")]
    Line {
        /// Line number, from 1.
        line: u64,
        /// Reason why the line is not a sample.
        cause: String,
    },
    /// The file has too many samples.
    #[error("more than {MOST_SAMPLES} samples: sample less often")]
    TooMany,
}

/// Reads a file of samples. Ignores an incomplete last line, which a stopped run leaves.
///
/// # Errors
///
/// If the file cannot be read, a line is not a sample, or there are too many samples.
pub fn read_samples(mut input: impl BufRead) -> Result<Vec<Sample>, SamplesError> {
    let (mut samples, mut buffer, mut line) = (Vec::new(), Vec::new(), 0);
    loop {
        buffer.clear();
        let limit = LONGEST_LINE as u64 + 1;
        let read = io::Read::take(&mut input, limit).read_until(b'\n', &mut buffer)?;
        if read == 0 {
            return Ok(samples);
        }
        line += 1;
        if buffer.trim_ascii().is_empty() {
            continue;
        }
        let is_whole = buffer.last() == Some(&b'\n');
        let fault = |cause: String| SamplesError::Line { line, cause };
        if !is_whole && read > LONGEST_LINE {
            return Err(fault(format!("longer than {LONGEST_LINE} bytes")));
        }
        match serde_json::from_slice::<Sample>(&buffer) {
            Ok(sample) if !(0.0..=1e9).contains(&sample.seconds) => {
                return Err(fault(format!("{} is not a valid time", sample.seconds)));
            }
            Ok(sample) => samples.push(sample),
            Err(error) if error.is_eof() && !is_whole => return Ok(samples),
            Err(error) => return Err(fault(error.to_string())),
        }
        if samples.len() > MOST_SAMPLES {
            return Err(SamplesError::TooMany);
        }
    }
}

/// The sum of all streams in one interval of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch {
    /// Middle of the interval, since the start of the run.
    pub at: Duration,
    /// Number of acknowledged bytes divided by the length of the interval.
    pub rate: BitRate,
    /// Number of segments retransmitted in the interval.
    pub retransmitted_segments: f64,
}

/// Sums up all streams in `count` equal intervals (at least 1) from the start to the last sample.
/// The progress of a stream between two samples is distributed evenly between them.
pub fn over_time(samples: &[Sample], count: usize) -> Vec<Stretch> {
    let end = samples
        .iter()
        .map(|sample| sample.seconds)
        .fold(0.0, f64::max);
    if end <= 0.0 {
        return Vec::new();
    }
    let length = end / count as f64;
    let mut bytes = vec![0.0; count];
    let mut again = vec![0.0; count];
    let mut before: BTreeMap<u32, Sample> = BTreeMap::new();
    for sample in samples {
        let start = Sample {
            seconds: 0.0,
            acknowledged_bytes: 0,
            retransmitted_segments: 0,
            ..*sample
        };
        let last = before.insert(sample.stream, *sample).unwrap_or(start);
        let gain = sample
            .acknowledged_bytes
            .saturating_sub(last.acknowledged_bytes);
        let lost = sample
            .retransmitted_segments
            .saturating_sub(last.retransmitted_segments);
        let span = (last.seconds / length, sample.seconds / length);
        spread(&mut bytes, span, gain as f64);
        spread(&mut again, span, lost as f64);
    }
    (0..count)
        .map(|index| Stretch {
            at: Duration::from_secs_f64((index as f64 + 0.5) * length),
            rate: BitRate::new(bytes[index] * 8.0 / length).unwrap_or_default(),
            retransmitted_segments: again[index],
        })
        .collect()
}

/// Distributes `amount` over the intervals that a span overlaps, in proportion to the overlap.
fn spread(stretches: &mut [f64], (from, to): (f64, f64), amount: f64) {
    let last = stretches.len() - 1;
    if amount == 0.0 {
        return;
    }
    if to <= from {
        stretches[(to as usize).min(last)] += amount;
        return;
    }
    for (index, stretch) in stretches
        .iter_mut()
        .enumerate()
        .take((to.ceil() as usize).min(last + 1))
        .skip((from as usize).min(last))
    {
        let inside = to.min(index as f64 + 1.0) - from.max(index as f64);
        *stretch += amount * inside.max(0.0) / (to - from);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a sample of a stream that retransmitted one segment for each hundred bytes.
    pub(crate) fn sample(seconds: f64, stream: u32, acknowledged_bytes: u64) -> Sample {
        Sample {
            seconds,
            stream,
            acknowledged_bytes,
            queued_bytes: None,
            unsent_bytes: None,
            retransmitted_segments: acknowledged_bytes / 100,
            window_bytes: None,
            rtt_seconds: None,
            pace_bytes_per_second: None,
            port: None,
        }
    }

    #[test]
    fn sums_over_streams_preserve_the_totals() {
        let samples = [
            sample(1.0, 1, 1_000),
            sample(2.0, 1, 3_000),
            sample(2.0, 2, 2_000),
        ];
        let stretches = over_time(&samples, 2);
        // The progress of stream 2 is distributed over both seconds.
        let rates: Vec<f64> = stretches.iter().map(|s| s.rate.bits_per_second()).collect();
        assert_eq!(rates, [16_000.0, 24_000.0]);
        let again: f64 = stretches.iter().map(|s| s.retransmitted_segments).sum();
        assert!((again - 50.0).abs() < 1e-9);
        assert_eq!(over_time(&[], 5), []);
        let thirds = over_time(&samples, 3);
        let bytes: f64 = thirds.iter().map(|s| s.rate.bits_per_second()).sum::<f64>() * 2.0 / 24.0;
        assert!((bytes - 5_000.0).abs() < 1e-6, "{bytes}");
    }

    #[test]
    fn samples_are_read_and_errors_name_the_line() {
        let line = serde_json::to_string(&sample(1.0, 1, 5)).unwrap();
        let read = |text: &str| read_samples(text.as_bytes());
        assert_eq!(read(&format!("{line}\n\n{line}\n")).unwrap().len(), 2);
        assert_eq!(read(&format!("{line}\n{}", &line[..20])).unwrap().len(), 1);
        for text in [
            format!("{line}\nnonsense\n{line}"),
            format!("{line}\n{}", line.replace("1.0", "-1.0")),
            format!("{line}\n{}", "x".repeat(600)),
        ] {
            let error = read(&text).unwrap_err();
            assert!(
                matches!(error, SamplesError::Line { line: 2, .. }),
                "{error}"
            );
        }
    }
}
