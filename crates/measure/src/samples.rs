//! TCP over time: the sidecar of a run, opened only when it is plotted.
//!
//! A line is one stream at one moment, with counters that only grow, as TCP_INFO
//! has them. FORMAT.md has the fields.

use std::collections::BTreeMap;
use std::io::{self, BufRead};
use std::time::Duration;

use longhaul_units::BitRate;
use serde::{Deserialize, Serialize};

/// The most bytes of a sample's line.
const LONGEST_LINE: usize = 512;

/// The most samples that are read of one run: an hour of 64 streams at 4 Hz.
pub const MOST_SAMPLES: usize = 1_000_000;

/// One stream at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Since the run began.
    pub seconds: f64,
    /// Which stream.
    pub stream: u32,
    /// Bytes acknowledged so far.
    pub acknowledged_bytes: u64,
    /// Bytes that its process gave it and that are not acknowledged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_bytes: Option<u32>,
    /// Of those, what was not sent once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsent_bytes: Option<u32>,
    /// Segments sent again so far.
    #[serde(default)]
    pub retransmitted_segments: u64,
    /// The congestion window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_bytes: Option<u64>,
    /// The smoothed round-trip time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_seconds: Option<f64>,
    /// What its kernel lets it send in a second at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace_bytes_per_second: Option<u64>,
    /// The port it leads to, where several transfers share the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

/// A sidecar that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SamplesError {
    /// The file itself.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// A line is no sample.
    #[error("line {line} is no sample: {cause}")]
    Line {
        /// The line, from 1.
        line: u64,
        /// Why not.
        cause: String,
    },
    /// There are too many.
    #[error("more than {MOST_SAMPLES} samples: sample less often")]
    TooMany,
}

/// Reads a sidecar. A last line that ends in its middle is left out: the run was
/// stopped.
///
/// # Errors
///
/// Where the file cannot be read, a line is no sample, or there are too many.
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
                return Err(fault(format!("{} is no time", sample.seconds)));
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

/// All streams together in one stretch of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch {
    /// Its middle, since the run began.
    pub at: Duration,
    /// Bytes acknowledged within it over its length.
    pub rate: BitRate,
    /// Segments sent again within it.
    pub retransmitted_segments: f64,
}

/// Sums streams up in `count` equal stretches, at least 1, from the start to the
/// last sample. What a stream did between two samples is spread evenly between
/// them.
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

/// Adds `amount` to the stretches that a span covers, by its share in each.
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

    /// A look at a stream that sent one segment in a hundred bytes again.
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
    fn streams_add_up_and_nothing_is_lost() {
        let samples = [
            sample(1.0, 1, 1_000),
            sample(2.0, 1, 3_000),
            sample(2.0, 2, 2_000),
        ];
        let stretches = over_time(&samples, 2);
        // Stream 2 is spread over both seconds.
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
    fn a_sidecar_is_read_and_its_faults_are_named() {
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
