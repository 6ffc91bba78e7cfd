//! `iperf3 --json` and `--json-stream`, versions 3.0 to 3.21, of a client or a server; TCP only.

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

/// A whole result, or with `--json-stream` an event, which is a part of one.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Output {
    event: Option<String>,
    data: Value,
    error: Option<String>,
    start: Start,
    intervals: Vec<Interval>,
    end: End,
    /// With `--get-server-output`, where the server writes JSON too.
    server_output_json: Option<Box<Output>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Start {
    connected: Vec<Connected>,
    version: String,
    /// As `uname -a` prints it.
    system_info: String,
    timestamp: Timestamp,
    /// Present at a client.
    connecting_to: Option<HostAndPort>,
    /// Present at a server.
    accepted_connection: Option<HostAndPort>,
    /// What tells a test from others.
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
    /// Seconds at the start that are left out.
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

/// Of a stream or of all, at the end or over an interval. What iperf3 does not know is
/// absent, null or zero.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct Figures {
    seconds: Option<f64>,
    bytes: Option<f64>,
    bits_per_second: Option<f64>,
    retransmits: Option<f64>,
    /// Whether the one that wrote the result is the sender.
    sender: Option<bool>,
    omitted: Option<bool>,
    /// Microseconds, as the next two.
    rtt: Option<f64>,
    min_rtt: Option<f64>,
    mean_rtt: Option<f64>,
}

/// Reads results, which a server writes one after the other into one file. Each direction of
/// a bidirectional test is a run, and a test that failed is one with an error. Throughput is
/// `sum_received`: what was sent may still lie in buffers.
///
/// # Errors
///
/// Where it cannot be read, is too large, or is no result of TCP.
pub fn read_iperf3(input: impl BufRead) -> Result<Vec<ExternalRun>, SourceError> {
    runs(&read_bounded(input)?)
}

fn not_a_result(cause: impl Into<String>) -> SourceError {
    SourceError::NotAResult {
        tool: TOOL,
        cause: cause.into(),
    }
}

/// The same of what was read.
pub(super) fn runs(bytes: &[u8]) -> Result<Vec<ExternalRun>, SourceError> {
    let mut runs = Vec::new();
    // A stream's full output follows its events.
    let mut cookies = HashSet::new();
    for output in outputs(bytes)? {
        let cookie = &output.start.cookie;
        if cookie.is_empty() || cookies.insert(cookie.clone()) {
            runs.extend(output.runs()?);
        }
    }
    if runs.is_empty() {
        Err(not_a_result("it has no test in it"))
    } else {
        Ok(runs)
    }
}

fn outputs(bytes: &[u8]) -> Result<Vec<Output>, SourceError> {
    if bytes.trim_ascii().is_empty() {
        let text = "it is empty: iperf3 writes its result when it ends, and was killed before";
        return Err(not_a_result(text));
    }
    let mut outputs = Vec::new();
    let mut open: Option<Output> = None;
    for document in serde_json::Deserializer::from_slice(bytes).into_iter::<Output>() {
        let output = match document {
            // A kill cuts its last line off; what stands before is whole.
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
        let text = "its output ends before its test does: it was killed";
        output.error.get_or_insert_with(|| text.to_owned());
        outputs.push(output);
    }
    Ok(outputs)
}

/// What a test is after an event.
enum Taken {
    /// More is to come.
    Open(Output),
    /// That was all.
    Whole(Output),
}

impl Output {
    /// Adds an event of `--json-stream` to what is known of its test.
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
            // What newer versions have.
            _ => {}
        }
        Ok(Taken::Open(output))
    }

    fn runs(self) -> Result<Vec<ExternalRun>, SourceError> {
        let protocol = &self.start.test_start.protocol;
        let has_begun = !protocol.is_empty();
        if has_begun && protocol != "TCP" {
            return Err(not_a_result(format!(
                "it is a test of {}, and only those of TCP can be used",
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

    /// One direction: the one that sums are named by, or with `is_back` the other.
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
        let moved = moved.ok_or_else(|| not_a_result("its bytes are no number of bytes"))?;
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
            throughput: throughput.ok_or_else(|| not_a_result("its throughput is no rate"))?,
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

    /// What arrived, else what was sent, else what the intervals have: an end that was
    /// lost is empty, and a client that was interrupted does not know what arrived.
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

    /// The mean over the streams of one direction.
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

    /// The least over all streams: both directions of a path have one round trip. A client
    /// that receives has none, and its server may.
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

/// What was measured of a direction.
#[derive(Default)]
struct Measured {
    figures: Figures,
    /// What arrived is not known.
    was_sent: bool,
    /// Whether the one that wrote the result is the sender, where it says.
    of_sender: Option<bool>,
}

impl Start {
    fn started(&self) -> String {
        let seconds = self.timestamp.timesecs.and_then(whole);
        seconds
            .filter(|seconds| *seconds < 253_402_300_800)
            .map_or_else(String::new, |seconds| rfc3339(seconds.cast_signed()))
    }

    /// The client and the server, whichever of them wrote this.
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
