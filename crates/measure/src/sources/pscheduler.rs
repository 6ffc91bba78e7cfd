//! Results of perfSONAR's pScheduler throughput test, as `pscheduler result
//! --format json` gives them, within what its archivers send (`result`), or within
//! a run of its API (`result-merged`); TCP only.

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

/// A result, or what is around one.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Document {
    /// Of a run, as archivers send it.
    id: Option<String>,
    /// Of a run, as in its API.
    href: Option<String>,
    start_time: Option<String>,
    run: Option<RunTimes>,
    schedule: Option<Schedule>,
    test: Option<Test>,
    participants: Vec<Option<String>>,
    /// Why a run has no result.
    errors: Option<String>,
    state: Option<String>,
    /// What archivers send.
    result: Option<Box<Document>>,
    /// What its API has.
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
    /// What arrived, likewise; in newer releases.
    receiver_throughput_bits: Option<f64>,
    retransmits: Option<f64>,
    /// Microseconds.
    rtt: Option<f64>,
    /// Present for UDP.
    sent: Option<f64>,
}

/// Reads results, one or several, one after the other or in an array. A test that failed is
/// a run with an error.
///
/// # Errors
///
/// Where it cannot be read, is too large, or is no result of TCP throughput.
pub fn read_pscheduler(input: impl BufRead) -> Result<Vec<ExternalRun>, SourceError> {
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

/// What stands around a result.
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
            // A result has no other within it.
            Some(inner) if self.succeeded.is_none() => inner.run(around),
            _ => self.measured(around),
        }
    }

    fn measured(self, around: Around) -> Result<ExternalRun, SourceError> {
        let test = around.test.unwrap_or_default();
        if let Some(kind) = test.kind.as_deref().filter(|kind| *kind != "throughput") {
            return Err(not_a_result(format!(
                "it is of a test of {}, and only those of throughput can be used",
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
            (None, _) => return Err(not_a_result("it does not say whether it succeeded")),
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
                "it is a test of UDP, and only those of TCP can be used",
            ));
        }
        let arrived = summary.receiver_throughput_bits.and_then(BitRate::new);
        let sent = summary.throughput_bits.and_then(BitRate::new);
        let throughput = arrived.or(sent);
        let throughput = throughput.ok_or_else(|| not_a_result("it has no throughput-bits"))?;
        let wall = Duration::try_from_secs_f64(summary.end - summary.start);
        let wall = wall.map_err(|error| not_a_result(error.to_string()))?;
        let computed = throughput.bits_per_second() / 8.0 * wall.as_secs_f64();
        // Bytes are only told of what was sent.
        let told = summary.throughput_bytes.filter(|_| arrived.is_none());
        let moved = whole(told.unwrap_or(computed));
        let moved =
            moved.ok_or_else(|| not_a_result("its throughput-bytes is no number of bytes"))?;
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
            // Its streams' means are the least that it tells.
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

/// A time with an offset, in UTC.
fn utc(text: &str) -> Option<String> {
    let microseconds = microseconds_of(text)?;
    Some(rfc3339(microseconds.div_euclid(1_000_000)))
}

/// A time in ISO 8601 format. Round trips have seconds: `PT0.0916S`.
fn iso_duration(text: &str) -> Option<Duration> {
    let seconds = text.strip_prefix("PT")?.strip_suffix('S')?;
    let seconds: f64 = seconds.parse().ok()?;
    let span = Duration::try_from_secs_f64(seconds).ok()?;
    (!span.is_zero()).then_some(span)
}
