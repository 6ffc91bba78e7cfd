//! Reads results of perfSONAR's pScheduler throughput test: bare results of `pscheduler result
//! --format json`, those in messages of archivers (`result`), and those in runs of the API
//! (`result-merged`). Supports TCP only.

use std::io::BufRead;
use std::time::Duration;

use longhaul_units::{BitRate, ByteCount, microseconds_of, rfc3339};
use serde::Deserialize;
use serde_json::Value;

use super::{
    Direction, ExternalRun, HostName, LONGEST_ERROR, SourceError, from_microseconds, only_sent,
    read_bounded, shortened, whole, word,
};

const TOOL: &str = "pscheduler";

/// A result, or a document that contains a result.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Document {
    /// Identity of the run, from an archiver.
    id: Option<String>,
    /// URL of the run, from the API.
    href: Option<String>,
    start_time: Option<String>,
    run: Option<RunTimes>,
    schedule: Option<Schedule>,
    test: Option<Test>,
    participants: Vec<Option<String>>,
    /// Error message of a run without a result.
    errors: Option<String>,
    state: Option<String>,
    /// Result in a message of an archiver.
    result: Option<Box<Document>>,
    /// Result in a run of the API.
    result_merged: Option<Box<Document>>,
    succeeded: Option<bool>,
    error: Option<String>,
    summary: Option<Summary>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct RunTimes {
    start_time: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Schedule {
    start: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Test {
    #[serde(rename = "type")]
    kind: Option<String>,
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Spec {
    source: Option<String>,
    dest: Option<String>,
    reverse: Value,
    link_rtt: Option<String>,
    congestion: Option<String>,
}

#[derive(Deserialize)]
struct Summary {
    #[serde(default)]
    streams: Vec<Figures>,
    summary: Figures,
}

/// Field names are those of pScheduler's plug-in for iperf3.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Figures {
    #[serde(default)]
    start: f64,
    #[serde(default)]
    end: f64,
    /// Throughput in bits per second, despite the field's name.
    throughput_bits: Option<f64>,
    throughput_bytes: Option<f64>,
    /// Received throughput in bits per second, despite the field's name. Only in newer releases.
    receiver_throughput_bits: Option<f64>,
    retransmits: Option<f64>,
    /// Round-trip time in microseconds.
    rtt: Option<f64>,
    /// Present in UDP tests only.
    sent: Option<f64>,
}

/// Reads one or several results, consecutive or in an array. A failed test is a run with an error.
///
/// # Errors
///
/// If the file cannot be read, is too large, or is not the result of a TCP throughput test.
pub fn read_pscheduler(input: impl BufRead) -> Result<Vec<ExternalRun>, SourceError> {
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
    let malformed = |error: serde_json::Error| not_a_result(error.to_string());
    let mut documents: Vec<Document> = Vec::new();
    if bytes.trim_ascii_start().first() == Some(&b'[') {
        documents = serde_json::from_slice(bytes).map_err(malformed)?;
    } else {
        for document in serde_json::Deserializer::from_slice(bytes).into_iter() {
            documents.push(document.map_err(malformed)?);
        }
    }
    if documents.is_empty() {
        return Err(not_a_result("it is empty"));
    }
    documents
        .into_iter()
        .map(|document| document.run(Around::default()))
        .collect()
}

/// The values that surround a result.
#[derive(Default)]
struct Around {
    id: String,
    started: Option<String>,
    test: Option<Test>,
    participants: Vec<Option<String>>,
    errors: Option<String>,
}

impl Document {
    fn run(mut self, mut around: Around) -> Result<ExternalRun, SourceError> {
        let id = self.id.as_deref().or(self.href.as_deref());
        if let Some(id) = id.and_then(|id| id.rsplit('/').next()) {
            around.id = word(id);
        }
        let run = self.run.take().and_then(|run| run.start_time);
        let schedule = self.schedule.take().and_then(|schedule| schedule.start);
        let started = run.or(self.start_time.take()).or(schedule);
        around.started = started.or(around.started);
        around.test = self.test.take().or(around.test);
        if !self.participants.is_empty() {
            around.participants = std::mem::take(&mut self.participants);
        }
        around.errors = self.errors.take().or(self.state.take()).or(around.errors);
        match self.result.take().or(self.result_merged.take()) {
            // A document with `succeeded` is itself the result.
            Some(inner) if self.succeeded.is_none() => inner.run(around),
            _ => self.measured(around),
        }
    }

    fn measured(self, around: Around) -> Result<ExternalRun, SourceError> {
        let test = around.test.unwrap_or_default();
        if let Some(kind) = test.kind.as_deref().filter(|kind| *kind != "throughput") {
            return Err(not_a_result(format!(
                "it is a {} test, but only throughput tests can be used",
                word(kind)
            )));
        }
        let is_known = test.spec.dest.is_some();
        let has_run = around.started.is_some() || is_known;
        let mut run = ExternalRun {
            tool: TOOL.to_owned(),
            id: around.id,
            started: around.started.as_deref().and_then(utc).unwrap_or_default(),
            direction: is_known.then(|| test.spec.direction()),
            least_rtt: test.spec.link_rtt.as_deref().and_then(iso_duration),
            congestion_control: test
                .spec
                .congestion
                .as_deref()
                .map(word)
                .unwrap_or_default(),
            ..ExternalRun::default()
        };
        let named = |name: Option<String>, place: usize| {
            let participant = around.participants.get(place).cloned().flatten();
            HostName {
                name: word(&name.or(participant).unwrap_or_default()),
                kernel: String::new(),
            }
        };
        run.near = named(test.spec.source, 0);
        run.far = named(test.spec.dest, 1);
        let error = match (self.succeeded, self.error) {
            (Some(true), _) => None,
            (Some(false), error) => Some(error),
            (None, _) if has_run && self.summary.is_none() => Some(around.errors),
            (None, _) => return Err(not_a_result("it has no field \"succeeded\"")),
        };
        if let Some(error) = error {
            let error = error.filter(|error| !error.trim().is_empty());
            let error = error.unwrap_or_else(|| "it does not say why".to_owned());
            run.error = shortened(&error, LONGEST_ERROR);
            return Ok(run);
        }
        let Some(summary) = self.summary else {
            return Err(not_a_result("it has no summary: is it a throughput test?"));
        };
        summary.add_to(run)?.checked(TOOL)
    }
}

impl Summary {
    fn add_to(self, run: ExternalRun) -> Result<ExternalRun, SourceError> {
        let Summary { streams, summary } = self;
        if summary.sent.is_some() {
            return Err(not_a_result(
                "it is a UDP test, but only TCP tests can be used",
            ));
        }
        let arrived = summary.receiver_throughput_bits.and_then(BitRate::new);
        let sent = summary.throughput_bits.and_then(BitRate::new);
        let throughput = arrived.or(sent);
        let throughput = throughput.ok_or_else(|| not_a_result("it has no throughput-bits"))?;
        let wall = Duration::try_from_secs_f64(summary.end - summary.start);
        let wall = wall.map_err(|error| not_a_result(error.to_string()))?;
        let computed = throughput.bits_per_second() / 8.0 * wall.as_secs_f64();
        // The number of bytes is available for sent data only.
        let told = summary.throughput_bytes.filter(|_| arrived.is_none());
        let moved = whole(told.unwrap_or(computed));
        let moved = moved.ok_or_else(|| not_a_result("its throughput-bytes is not valid"))?;
        let again = streams.iter().map(|stream| stream.retransmits);
        let again = again.fold(None, |sum: Option<f64>, one| match (sum, one) {
            (Some(sum), Some(one)) => Some(sum + one),
            (sum, one) => sum.or(one),
        });
        let rtts: Vec<f64> = streams
            .iter()
            .filter_map(|stream| stream.rtt)
            .filter(|rtt| *rtt > 0.0)
            .collect();
        let rtt = crate::stats::mean(&rtts).and_then(from_microseconds);
        Ok(ExternalRun {
            moved: ByteCount(moved),
            wall,
            throughput,
            streams: streams.len().max(1) as u64,
            retransmitted_segments: summary.retransmits.or(again).and_then(whole),
            rtt,
            // The least of the streams' means is the best available value.
            least_rtt: run
                .least_rtt
                .or_else(|| rtts.into_iter().filter_map(from_microseconds).min()),
            doubts: match arrived {
                Some(_) => Vec::new(),
                None => vec![only_sent("pScheduler")],
            },
            ..run
        })
    }
}

impl Spec {
    fn direction(&self) -> Direction {
        match &self.reverse {
            Value::Bool(true) => Direction::From,
            Value::String(text) if text.eq_ignore_ascii_case("true") => Direction::From,
            _ => Direction::To,
        }
    }
}

/// Converts a time with an offset to UTC.
fn utc(text: &str) -> Option<String> {
    let microseconds = microseconds_of(text)?;
    Some(rfc3339(microseconds.div_euclid(1_000_000)))
}

/// Parses an ISO 8601 duration in seconds, such as `PT0.0916S`.
fn iso_duration(text: &str) -> Option<Duration> {
    let seconds = text.strip_prefix("PT")?.strip_suffix('S')?;
    let seconds: f64 = seconds.parse().ok()?;
    let span = Duration::try_from_secs_f64(seconds).ok()?;
    (!span.is_zero()).then_some(span)
}
