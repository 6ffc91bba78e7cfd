//! `iperf3 --json`, versions 3.1 to 3.19; TCP only.

use std::io::BufRead;
use std::time::Duration;

use longhaul_units::{BitRate, ByteCount};
use serde::Deserialize;

use super::{ExternalRun, SourceError, from_microseconds, read_bounded};

const TOOL: &str = "iperf3";

#[derive(Deserialize)]
struct Output {
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    start: Start,
    #[serde(default)]
    end: End,
}

#[derive(Default, Deserialize)]
struct Start {
    #[serde(default)]
    version: String,
    #[serde(default)]
    test_start: TestStart,
}

#[derive(Default, Deserialize)]
struct TestStart {
    #[serde(default)]
    protocol: String,
    #[serde(default)]
    num_streams: u64,
    /// Seconds at the start that are left out.
    #[serde(default)]
    omit: u64,
}

#[derive(Default, Deserialize)]
struct End {
    #[serde(default)]
    streams: Vec<Stream>,
    sum_sent: Option<Sum>,
    sum_received: Option<Sum>,
    #[serde(default)]
    sender_tcp_congestion: String,
}

#[derive(Deserialize)]
struct Stream {
    sender: Option<Sender>,
}

#[derive(Deserialize)]
struct Sender {
    /// Microseconds.
    mean_rtt: Option<f64>,
}

#[derive(Deserialize)]
struct Sum {
    seconds: f64,
    bytes: u64,
    bits_per_second: f64,
    retransmits: Option<u64>,
}

/// Reads one result. Throughput is `sum_received`: what was sent may still lie in
/// buffers.
///
/// # Errors
///
/// Where it cannot be read, is too large, is no result of TCP, or a failure.
pub fn read_iperf3(input: impl BufRead) -> Result<ExternalRun, SourceError> {
    let bytes = read_bounded(input)?;
    let not_a_result = |cause: String| SourceError::NotAResult { tool: TOOL, cause };
    let output: Output =
        serde_json::from_slice(&bytes).map_err(|error| not_a_result(error.to_string()))?;
    if let Some(cause) = output.error {
        return Err(SourceError::Failed { tool: TOOL, cause });
    }
    let protocol = output.start.test_start.protocol;
    if protocol != "TCP" {
        return Err(not_a_result(format!(
            "its protocol is \"{protocol}\", not TCP"
        )));
    }
    let Some(received) = output.end.sum_received else {
        return Err(not_a_result("it has no end.sum_received".to_owned()));
    };
    let wall = Duration::try_from_secs_f64(received.seconds)
        .map_err(|error| not_a_result(error.to_string()))?;
    let throughput = BitRate::new(received.bits_per_second)
        .ok_or_else(|| not_a_result("its throughput is no rate".to_owned()))?;
    let senders = output.end.streams.iter().filter_map(|s| s.sender.as_ref());
    let rtts: Vec<f64> = senders.filter_map(|sender| sender.mean_rtt).collect();
    ExternalRun {
        tool: TOOL,
        version: output.start.version,
        moved: ByteCount(received.bytes),
        wall,
        omitted: Duration::from_secs(output.start.test_start.omit),
        throughput,
        streams: output.start.test_start.num_streams,
        retransmitted_segments: output.end.sum_sent.and_then(|sent| sent.retransmits),
        rtt: crate::stats::mean(&rtts).and_then(from_microseconds),
        congestion_control: output.end.sender_tcp_congestion,
        doubts: Vec::new(),
    }
    .checked()
}
