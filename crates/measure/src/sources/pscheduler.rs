//! Results of perfSONAR's pScheduler throughput test, as `pscheduler result
//! --format json` gives them, within what its archivers send (`result`), or within
//! a run of its API (`result-merged`); TCP only.

use std::io::BufRead;
use std::time::Duration;

use longhaul_units::{BitRate, ByteCount};
use serde::Deserialize;

use super::{ExternalRun, SourceError, from_microseconds, read_bounded};
use crate::doubt::Doubt;

const TOOL: &str = "pscheduler";

/// What its API has around a result.
#[derive(Deserialize)]
struct RunOfIt {
    #[serde(rename = "result-merged")]
    result: Output,
}

/// What its archivers have around a result.
#[derive(Deserialize)]
struct Archived {
    result: Output,
}

#[derive(Deserialize)]
struct Output {
    succeeded: bool,
    #[serde(default)]
    error: Option<String>,
    summary: Option<Summary>,
}

#[derive(Deserialize)]
struct Summary {
    #[serde(default)]
    streams: Vec<Figures>,
    summary: Figures,
}

/// Named as the plug-in for iperf3 renames them.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Figures {
    #[serde(default)]
    start: f64,
    #[serde(default)]
    end: f64,
    /// Bits per second, whatever its name says.
    throughput_bits: Option<f64>,
    throughput_bytes: Option<f64>,
    /// What arrived, likewise; newer releases have it.
    receiver_throughput_bits: Option<f64>,
    retransmits: Option<u64>,
    /// Microseconds.
    rtt: Option<f64>,
    /// UDP has it.
    sent: Option<u64>,
}

/// Reads one result.
///
/// # Errors
///
/// Where it cannot be read, is too large, is no result of TCP throughput, or a
/// failure.
pub fn read_pscheduler(input: impl BufRead) -> Result<ExternalRun, SourceError> {
    let bytes = read_bounded(input)?;
    let not_a_result = |cause: &str| SourceError::NotAResult {
        tool: TOOL,
        cause: cause.to_owned(),
    };
    let output = serde_json::from_slice(&bytes)
        .map(|RunOfIt { result }| result)
        .or_else(|_| serde_json::from_slice(&bytes).map(|Archived { result }| result))
        .or_else(|_| serde_json::from_slice::<Output>(&bytes))
        .map_err(|error| not_a_result(&error.to_string()))?;
    if !output.succeeded {
        let cause = output
            .error
            .unwrap_or_else(|| "it does not say why".to_owned());
        return Err(SourceError::Failed { tool: TOOL, cause });
    }
    let Some(Summary { streams, summary }) = output.summary else {
        return Err(not_a_result("it has no summary: is it a throughput test?"));
    };
    if summary.sent.is_some() {
        return Err(not_a_result("it is of UDP"));
    }
    let arrived = summary.receiver_throughput_bits.and_then(BitRate::new);
    let sent = summary.throughput_bits.and_then(BitRate::new);
    let throughput = arrived.or(sent);
    let throughput = throughput.ok_or_else(|| not_a_result("it has no throughput-bits"))?;
    let wall = Duration::try_from_secs_f64(summary.end - summary.start);
    let wall = wall.map_err(|error| not_a_result(&error.to_string()))?;
    let computed = throughput.bits_per_second() / 8.0 * wall.as_secs_f64();
    // Bytes are only told of what was sent.
    let told = summary.throughput_bytes.filter(|_| arrived.is_none());
    let moved = told.unwrap_or(computed);
    if !(0.0..1e19).contains(&moved) {
        return Err(not_a_result("its throughput-bytes is no number of bytes"));
    }
    let again = streams.iter().map(|stream| stream.retransmits);
    let again = again.fold(None, |sum: Option<u64>, one| match (sum, one) {
        (Some(sum), Some(one)) => Some(sum.saturating_add(one)),
        (sum, one) => sum.or(one),
    });
    let rtts: Vec<f64> = streams.iter().filter_map(|stream| stream.rtt).collect();
    ExternalRun {
        tool: TOOL,
        version: String::new(),
        moved: ByteCount(moved.round() as u64),
        wall,
        omitted: Duration::ZERO,
        throughput,
        streams: streams.len().max(1) as u64,
        retransmitted_segments: summary.retransmits.or(again),
        rtt: crate::stats::mean(&rtts).and_then(from_microseconds),
        congestion_control: String::new(),
        doubts: match arrived {
            Some(_) => Vec::new(),
            None => vec![Doubt::DifferentReference {
                what: "pScheduler told what was sent, not what arrived".to_owned(),
            }],
        },
    }
    .checked()
}
