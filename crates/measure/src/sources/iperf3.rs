//! Reads the output of `iperf3 --json` and `--json-stream`, versions 3.0 to 3.21, of a client or a
//! server. Supports TCP only.

use std::collections::HashSet;
use std::io::BufRead;
use std::time::Duration;

use longhaul_units::{BitRate, ByteCount, rfc3339};
use serde::Deserialize;
use serde_json::Value;

use super::{
    Direction, ExternalRun, HostName, LONGEST_ERROR, SourceError, from_microseconds, only_sent,
    read_bounded, shortened, whole, word,
};

const TOOL: &str = "iperf3";

/// A whole result, or one event of a result with `--json-stream`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Output {
    event: Option<String>,
    data: Value,
    error: Option<String>,
    start: Start,
    intervals: Vec<Interval>,
    end: End,
    /// Output of the server. Present with `--get-server-output` if the server also writes JSON.
    server_output_json: Option<Box<Output>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Start {
    connected: Vec<Connected>,
    version: String,
    /// Text in the format of `uname -a`.
    system_info: String,
    timestamp: Timestamp,
    /// Present in the output of a client.
    connecting_to: Option<HostAndPort>,
    /// Present in the output of a server.
    accepted_connection: Option<HostAndPort>,
    /// Identity of the test.
    cookie: String,
    test_start: TestStart,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Connected {
    local_host: String,
    remote_host: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Timestamp {
    timesecs: Option<f64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct HostAndPort {
    host: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TestStart {
    protocol: String,
    num_streams: Option<f64>,
    /// Seconds at the start that are excluded from the measurement.
    omit: Option<f64>,
    reverse: Option<f64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Interval {
    streams: Vec<Figures>,
    sum: Option<Figures>,
    sum_bidir_reverse: Option<Figures>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct End {
    streams: Vec<Stream>,
    sum_sent: Option<Figures>,
    sum_received: Option<Figures>,
    sum_sent_bidir_reverse: Option<Figures>,
    sum_received_bidir_reverse: Option<Figures>,
    sender_tcp_congestion: String,
    receiver_tcp_congestion: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Stream {
    sender: Option<Figures>,
}

/// Figures of one stream or of all streams, in total or for one interval. Unknown values are
/// absent, null or zero.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct Figures {
    seconds: Option<f64>,
    bytes: Option<f64>,
    bits_per_second: Option<f64>,
    retransmits: Option<f64>,
    /// True if the host that wrote the result is the sender.
    sender: Option<bool>,
    omitted: Option<bool>,
    /// Round-trip time in microseconds, like the next two fields.
    rtt: Option<f64>,
    min_rtt: Option<f64>,
    mean_rtt: Option<f64>,
}

/// Reads results. A server writes several results into one file. Each direction of a bidirectional
/// test is a run, and a failed test is a run with an error. Throughput is `sum_received`, because
/// sent data may still be in buffers.
///
/// # Errors
///
/// If the file cannot be read, is too large, or is not a TCP result.
pub fn read_iperf3(input: impl BufRead) -> Result<Vec<ExternalRun>, SourceError> {
    runs(&read_bounded(input)?)
}

fn not_a_result(cause: impl Into<String>) -> SourceError {
    SourceError::NotAResult {
        tool: TOOL,
        cause: cause.into(),
    }
}

/// Parses results.
pub(super) fn runs(bytes: &[u8]) -> Result<Vec<ExternalRun>, SourceError> {
    let mut runs = Vec::new();
    // With full output enabled, a stream of events is followed by the whole result.
    let mut cookies = HashSet::new();
    for output in outputs(bytes)? {
        let cookie = &output.start.cookie;
        if cookie.is_empty() || cookies.insert(cookie.clone()) {
            runs.extend(output.runs()?);
        }
    }
    if runs.is_empty() {
        Err(not_a_result("it contains no test"))
    } else {
        Ok(runs)
    }
}

fn outputs(bytes: &[u8]) -> Result<Vec<Output>, SourceError> {
    if bytes.trim_ascii().is_empty() {
        let text = "it is empty: iperf3 was killed before it wrote its result";
        return Err(not_a_result(text));
    }
    let mut outputs = Vec::new();
    let mut open: Option<Output> = None;
    for document in serde_json::Deserializer::from_slice(bytes).into_iter::<Output>() {
        let output = match document {
            // A killed process leaves an incomplete last line. The lines before are complete.
            Err(error) if error.is_eof() && open.is_some() => break,
            Err(error) => return Err(not_a_result(error.to_string())),
            Ok(output) => output,
        };
        match &output.event {
            Some(event) => match Output::take(open.take(), event, output.data)? {
                Taken::Open(output) => open = Some(output),
                Taken::Whole(output) => outputs.push(output),
            },
            None => outputs.push(output),
        }
    }
    if let Some(mut output) = open {
        let text = "the output ends before the test: iperf3 was killed";
        output.error.get_or_insert_with(|| text.to_owned());
        outputs.push(output);
    }
    Ok(outputs)
}

/// The state of a test after an event.
enum Taken {
    /// More events follow.
    Open(Output),
    /// The test is complete.
    Whole(Output),
}

impl Output {
    /// Adds an event of `--json-stream` to a test.
    fn take(before: Option<Output>, event: &str, data: Value) -> Result<Taken, SourceError> {
        fn read<T: serde::de::DeserializeOwned>(data: Value) -> Result<T, SourceError> {
            serde_json::from_value(data).map_err(|error| not_a_result(error.to_string()))
        }
        let mut output = before.unwrap_or_default();
        match event {
            "start" => output.start = read(data)?,
            "interval" => output.intervals.push(read(data)?),
            "error" => output.error = Some(read(data)?),
            "server_output_json" => output.server_output_json = read(data)?,
            "end" => {
                output.end = read(data)?;
                return Ok(Taken::Whole(output));
            }
            // Ignores events of newer versions.
            _ => {}
        }
        Ok(Taken::Open(output))
    }

    fn runs(self) -> Result<Vec<ExternalRun>, SourceError> {
        let protocol = &self.start.test_start.protocol;
        let has_begun = !protocol.is_empty();
        if has_begun && protocol != "TCP" {
            return Err(not_a_result(format!(
                "it is a {} test, but only TCP tests can be used",
                word(protocol)
            )));
        }
        if !has_begun && self.error.is_none() {
            return Err(not_a_result("it has no start.test_start.protocol"));
        }
        let end = &self.end;
        let both = end.sum_sent_bidir_reverse.is_some()
            || end.sum_received_bidir_reverse.is_some()
            || self.intervals.iter().any(|i| i.sum_bidir_reverse.is_some());
        let is_reverse = self.start.test_start.reverse.is_some_and(|flag| flag > 0.0);
        let first = if is_reverse {
            Direction::From
        } else {
            Direction::To
        };
        let mut runs = vec![self.run(has_begun.then_some(first), both, false)?];
        if both {
            runs.push(self.run(Some(first.back()), both, true)?);
        }
        Ok(runs)
    }

    /// Returns the run of one direction: the direction of the sums, or the opposite one with
    /// `is_back`.
    fn run(
        &self,
        direction: Option<Direction>,
        bidirectional: bool,
        is_back: bool,
    ) -> Result<ExternalRun, SourceError> {
        let measured = self.measured(is_back);
        let seconds = measured.figures.seconds.unwrap_or(0.0);
        let wall = Duration::try_from_secs_f64(seconds)
            .map_err(|error| not_a_result(error.to_string()))?;
        let moved = whole(measured.figures.bytes.unwrap_or(0.0));
        let moved = moved.ok_or_else(|| not_a_result("its number of bytes is not valid"))?;
        let throughput = match measured.figures.bits_per_second {
            Some(rate) => BitRate::new(rate),
            None => Some(BitRate::from_transfer(ByteCount(moved), wall)),
        };
        let start = &self.start;
        let [near, far] = start.hosts();
        let end = &self.end;
        let congestion = match (is_back, end.receiver_tcp_congestion.is_empty()) {
            (true, false) => &end.receiver_tcp_congestion,
            _ => &end.sender_tcp_congestion,
        };
        let id = match (is_back, start.cookie.is_empty()) {
            (true, false) => format!("{}-back", word(&start.cookie)),
            _ => word(&start.cookie),
        };
        ExternalRun {
            tool: TOOL.to_owned(),
            version: word(&start.version),
            id,
            started: start.started(),
            direction,
            bidirectional,
            near,
            far,
            measures: None,
            moved: ByteCount(moved),
            wall,
            omitted: Duration::from_secs(start.test_start.omit.and_then(whole).unwrap_or(0)),
            throughput: throughput
                .ok_or_else(|| not_a_result("its throughput is not a valid rate"))?,
            streams: start.test_start.num_streams.and_then(whole).unwrap_or(0),
            retransmitted_segments: self.retransmits(is_back),
            rtt: self.mean_rtt(measured.of_sender),
            least_rtt: self.least_rtt(),
            congestion_control: word(congestion),
            error: self.error.as_deref().map_or_else(String::new, |error| {
                let said = shortened(error, LONGEST_ERROR);
                if said.is_empty() {
                    "it does not say why".to_owned()
                } else {
                    said
                }
            }),
            doubts: if measured.was_sent {
                vec![only_sent(TOOL)]
            } else {
                Vec::new()
            },
        }
        .checked(TOOL)
    }

    fn sums(&self, is_back: bool) -> [Option<&Figures>; 2] {
        let end = &self.end;
        if !is_back {
            [&end.sum_sent, &end.sum_received].map(Option::as_ref)
        } else {
            [&end.sum_sent_bidir_reverse, &end.sum_received_bidir_reverse].map(Option::as_ref)
        }
    }

    /// Returns the received figures, else the sent figures, else the sum over the intervals. After
    /// a lost connection, the figures at the end are missing. An interrupted client does not know
    /// how much data arrived.
    fn measured(&self, is_back: bool) -> Measured {
        let [sent, received] = self.sums(is_back);
        let has_some = |figures: &&Figures| figures.bytes.is_some_and(|bytes| bytes > 0.0);
        let of_sender = sent.or(received).and_then(|figures| figures.sender);
        let measured = |figures: &Figures, was_sent| Measured {
            figures: figures.clone(),
            was_sent,
            of_sender,
        };
        if let Some(received) = received.filter(has_some) {
            return measured(received, false);
        }
        if let Some(sent) = sent.filter(has_some) {
            return measured(sent, true);
        }
        let sums = self.intervals.iter().filter_map(|interval| {
            if !is_back {
                interval.sum.as_ref()
            } else {
                interval.sum_bidir_reverse.as_ref()
            }
        });
        let mut total = Measured::default();
        let (mut seconds, mut bytes) = (0.0, 0.0);
        for sum in sums.filter(|sum| sum.omitted != Some(true)) {
            seconds += sum.seconds.unwrap_or(0.0);
            bytes += sum.bytes.unwrap_or(0.0);
            total.was_sent |= sum.sender.unwrap_or(!is_back);
            total.of_sender = sum.sender;
        }
        total.figures.seconds = Some(seconds);
        total.figures.bytes = Some(bytes);
        total
    }

    fn retransmits(&self, is_back: bool) -> Option<u64> {
        let [sent, _] = self.sums(is_back);
        sent?.retransmits.and_then(whole)
    }

    /// Returns the mean round-trip time over the streams of one direction.
    fn mean_rtt(&self, of_sender: Option<bool>) -> Option<Duration> {
        let senders = self.end.streams.iter().filter_map(|s| s.sender.as_ref());
        let own = senders.filter(|sender| sender.sender == of_sender);
        let mut rtts: Vec<f64> = own
            .filter_map(|sender| sender.mean_rtt)
            .filter(|rtt| *rtt > 0.0)
            .collect();
        if rtts.is_empty() {
            let streams = self.intervals.iter().flat_map(|i| &i.streams);
            let own = streams.filter(|stream| stream.sender == of_sender);
            rtts = own
                .filter_map(|stream| stream.rtt)
                .filter(|rtt| *rtt > 0.0)
                .collect();
        }
        let far = || {
            self.server_output_json
                .as_ref()?
                .mean_rtt(of_sender.map(|own| !own))
        };
        crate::stats::mean(&rtts)
            .and_then(from_microseconds)
            .or_else(far)
    }

    /// Returns the least round-trip time over all streams, because both directions of a path have
    /// the same. A receiving client has no samples; its server may have some.
    fn least_rtt(&self) -> Option<Duration> {
        let senders = self.end.streams.iter().filter_map(|s| s.sender.as_ref());
        let over_time = self.intervals.iter().flat_map(|i| &i.streams);
        let rtts = senders
            .filter_map(|sender| sender.min_rtt.or(sender.mean_rtt))
            .chain(over_time.filter_map(|stream| stream.rtt));
        let own = rtts.filter_map(from_microseconds).min();
        own.or_else(|| self.server_output_json.as_ref()?.least_rtt())
    }
}

/// The figures of one direction.
#[derive(Default)]
struct Measured {
    figures: Figures,
    /// True if the figures are of sent data, because the amount received is unknown.
    was_sent: bool,
    /// True if the host that wrote the result is the sender. `None` if unknown.
    of_sender: Option<bool>,
}

impl Start {
    fn started(&self) -> String {
        let seconds = self.timestamp.timesecs.and_then(whole);
        seconds
            .filter(|seconds| *seconds < 253_402_300_800)
            .map_or_else(String::new, |seconds| rfc3339(seconds.cast_signed()))
    }

    /// Returns the client and the server, in this order. Either may have written the result.
    fn hosts(&self) -> [HostName; 2] {
        let mut uname = self.system_info.split_ascii_whitespace().skip(1);
        let mut next = || uname.next().map(word).unwrap_or_default();
        let own = HostName {
            name: next(),
            kernel: next(),
        };
        let connected = self.connected.first();
        let of = |connected: &Connected| connected.remote_host.clone();
        let client = self.accepted_connection.as_ref();
        let peer = client.or(self.connecting_to.as_ref());
        let peer = peer.map(|peer| peer.host.clone());
        let other = HostName {
            name: word(&peer.or_else(|| connected.map(of)).unwrap_or_default()),
            kernel: String::new(),
        };
        let own = match (own.name.is_empty(), connected) {
            (true, Some(connected)) => HostName {
                name: word(&connected.local_host),
                ..own
            },
            _ => own,
        };
        match client {
            Some(_) => [other, own],
            None => [own, other],
        }
    }
}
