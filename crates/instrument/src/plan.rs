//! Builds a graph from a source, a destination and facts about the path. No data are
//! moved and no login takes place. The path comes from the caller, from a probe's record,
//! or from one TCP handshake and earlier transfers.

mod handshake;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use longhaul_measure::record::RunRecord;
use longhaul_model::capacity::{Capacity, Window};
use longhaul_model::graph::Graph;
use longhaul_model::history::{self, PastTransfer, Remembered, Way};
use longhaul_model::host::HostModel;
use longhaul_model::kernel::{BufferLimits, window_between};
use longhaul_model::limit::Limit;
use longhaul_model::response::Congestion;
use longhaul_model::transfer::{
    End, Filter, LayerCost, PathFacts, TransferGraph, UNKNOWN, transfer_graph,
};
use longhaul_net::host_limits::HostLimits;
use longhaul_transfer::endpoint::Endpoint;
use longhaul_transfer::planning::foresight::{buffer_limits, is_same_rtt};
use longhaul_transfer::planning::history as file;
use longhaul_transfer::planning::profiles;
use longhaul_transfer::planning::sampling::{Sampled, sample};
use longhaul_transfer::planning::survey::{Survey, SurveyLimits};
use longhaul_units::{BitRate, ByteCount, counted};

use handshake::round_trip;

/// Input of a plan. Missing facts are taken from the probe or from this host.
#[derive(Debug)]
pub struct PlanInput {
    /// Sources, at least one.
    pub sources: Vec<Endpoint>,
    /// Destination of the data.
    pub destination: Endpoint,
    /// Bytes and files of the dataset. `None` surveys the sources on this host.
    pub dataset: Option<(ByteCount, u64)>,
    /// Round-trip time of the path.
    pub rtt: Option<Duration>,
    /// Line rate of the path.
    pub rate: Option<BitRate>,
    /// Fraction of packets that the path loses at random, 0 to 1.
    pub loss: Option<f64>,
    /// Maximum number of bytes in flight per stream.
    pub window: Option<ByteCount>,
    /// Congestion control of the sending kernel.
    pub congestion: Option<String>,
    /// Record of a probe of the path.
    pub probed: Option<RunRecord>,
    /// Capacities of the sending host.
    pub source_model: Option<HostModel>,
    /// Capacities of the receiving host.
    pub destination_model: Option<HostModel>,
    /// Filter command that files pass through.
    pub filter: Option<Filter>,
}

/// Reasons why no plan can be made.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The dataset is on another host.
    #[error(
        "{0}: longhaul plan does not list files on other hosts: give --bytes and --files, for \
         example from the output of `longhaul ls`"
    )]
    RemoteDataset(String),
    /// A source on this host cannot be listed.
    #[error("{0}")]
    Survey(std::io::Error),
    /// Neither a round-trip time nor a probe is available.
    #[error(
        "the path is unknown and the other host did not answer: give --rtt and --rate, or name \
         records of `longhaul probe --records FILE` with --probe FILE"
    )]
    UnknownPath,
}

/// Payload bytes per segment at an MTU of 1500, with timestamps.
const SEGMENT: f64 = 1448.0;

/// Fraction of the line rate that is TCP payload at that MTU.
const PAYLOAD: f64 = 1448.0 / 1538.0;

/// Relative uncertainty of a rate that a probe measured. Given rates have none.
const PROBED: f64 = 0.05;

/// Number of data samples for estimating codecs; each takes about 2 ms.
const SAMPLES: usize = 32;

/// A graph, and lines to print above the plan.
pub struct RealPlan {
    /// The graph with its doubts.
    pub built: TransferGraph,
    /// Lines about the dataset and host profiles.
    pub lines: Vec<String>,
}

/// Collects the facts and builds the graph.
///
/// # Errors
///
/// Returns a [`PlanError`] if facts are missing.
pub fn real_plan(mut input: PlanInput) -> Result<RealPlan, PlanError> {
    let mut doubts = Vec::new();
    let files = take_profiles(&mut input, &mut doubts);
    let Sampled {
        survey: dataset,
        parts,
    } = dataset(&input, &mut doubts)?;
    let rtt = known_rtt(&input);
    let remembered = remembered(&input, rtt, &mut doubts);
    let path = path(&input, rtt, &remembered, &mut doubts)?;
    let mut lines = vec![dataset_line(&dataset)];
    lines.extend(files);
    let seen = |layers: &[Limit]| -> BTreeMap<Limit, LayerCost> {
        let of_end = remembered.layers.iter();
        let of_end = of_end.filter(|(layer, _)| layers.contains(layer));
        of_end.map(|(layer, cost)| (*layer, *cost)).collect()
    };
    let mut source = end(input.sources.first(), input.source_model);
    source.seen = seen(&[Limit::Read]);
    let destination = Some(&input.destination);
    let mut destination = end(destination, input.destination_model);
    destination.seen = seen(&[Limit::Write, Limit::Commit]);
    let mut built = transfer_graph(&source, &destination, Some(&path), parts, false);
    if let Some(filter) = input.filter {
        built.add_filter(filter);
    }
    built.doubts.splice(0..0, doubts);
    Ok(RealPlan { built, lines })
}

/// Returns an endpoint in the user's notation.
fn shown(endpoint: &Endpoint) -> String {
    String::from_utf8_lossy(&endpoint.text()).into_owned()
}

fn dataset(input: &PlanInput, doubts: &mut Vec<String>) -> Result<Sampled, PlanError> {
    if let Some((bytes, files)) = input.dataset {
        let survey = Survey {
            bytes: bytes.0 as f64,
            files: files as f64,
            is_whole: true,
            ..Survey::default()
        };
        return Ok(Sampled::unknown(survey));
    }
    let mut paths = Vec::new();
    for source in &input.sources {
        match source.local_path() {
            Some(path) => paths.push(PathBuf::from(OsStr::from_bytes(path))),
            None => return Err(PlanError::RemoteDataset(shown(source))),
        }
    }
    // A profile of the source host already has codecs measured on the user's files.
    let has_codecs = |model: &HostModel| !model.codecs.is_empty();
    let samples = if input.source_model.as_ref().is_some_and(has_codecs) {
        0
    } else {
        SAMPLES
    };
    let sampled = sample(&paths, SurveyLimits::default(), samples, |_| true);
    let sampled = sampled.map_err(PlanError::Survey)?;
    let found = &sampled.survey;
    if !found.is_whole {
        doubts.push(format!(
            "only a part of the dataset was examined: {} in {}; the rest is estimated",
            ByteCount(found.seen_bytes),
            counted(found.seen_files, "file")
        ));
    }
    if found.failed > 0 {
        doubts.push(format!(
            "{} of the files and directories could not be examined",
            found.failed
        ));
    }
    Ok(sampled)
}

/// Returns the endpoint on another host, and the direction of the data.
fn other_host(input: &PlanInput) -> Option<(&Endpoint, Way)> {
    let is_remote = |endpoint: &&Endpoint| endpoint.host_name().is_some();
    let destination = Some(&input.destination).filter(is_remote);
    let source = || input.sources.first().filter(is_remote);
    destination
        .map(|it| (it, Way::To))
        .or_else(|| source().map(|it| (it, Way::From)))
}

/// Returns the round-trip time that the user gave, that a probe measured, or that the other host
/// answers with.
fn known_rtt(input: &PlanInput) -> Option<Duration> {
    let given = input.rtt;
    let given = given.or(input.probed.as_ref().map(|record| record.path.rtt));
    given.or_else(|| other_host(input).and_then(|(endpoint, _)| round_trip(endpoint)))
}

/// Returns the results of earlier transfers between these hosts over the same path: with about the
/// same round-trip time.
fn remembered(input: &PlanInput, rtt: Option<Duration>, doubts: &mut Vec<String>) -> Remembered {
    let other = other_host(input);
    let host = other.and_then(|(endpoint, way)| Some((endpoint.host_name()?, way)));
    let (Some((host, way)), None) = (host, &input.probed) else {
        return Remembered::default();
    };
    let mut found = file::read().unwrap_or_default();
    if let [first, ..] = found.damaged.as_slice() {
        doubts.push(format!(
            "the history has {}; the first is line {first}",
            counted(found.damaged.len(), "damaged line")
        ));
    }
    let of_host = |it: &&PastTransfer| it.host == host && it.way == way;
    let before = found.transfers.iter().filter(of_host).count();
    if let Some(rtt) = rtt {
        let rtt = rtt.as_secs_f64();
        found
            .transfers
            .retain(|it| is_same_rtt(rtt, it.rtt_seconds));
    }
    let other = before - found.transfers.iter().filter(of_host).count();
    if other > 0 {
        doubts.push(format!(
            "{} with this host over a path with another round-trip time: not used",
            counted(other as u64, "earlier transfer")
        ));
    }
    let remembered = history::remember(&found.transfers, host, way);
    if input.rate.is_none() {
        doubts.extend(remembered.doubts.iter().cloned());
    }
    remembered
}

fn path(
    input: &PlanInput,
    rtt: Option<Duration>,
    remembered: &Remembered,
    doubts: &mut Vec<String>,
) -> Result<PathFacts, PlanError> {
    let of_probe = input.probed.as_ref();
    let past = remembered.path.as_ref();
    let rtt = rtt.or_else(|| {
        let rtt = past.map(|past| past.rtt)?;
        doubts.push(
            "the other host did not answer: the round-trip time is that of earlier copies"
                .to_owned(),
        );
        Some(rtt)
    });
    let rtt = rtt.ok_or(PlanError::UnknownPath)?;
    let (payload, uncertainty) = match (input.rate, of_probe, past) {
        (Some(line), ..) => (Some(line.bits_per_second() / 8.0 * PAYLOAD), 0.0),
        (None, Some(record), _) => (Some(record.path.capacity.bits_per_second() / 8.0), PROBED),
        (None, None, Some(past)) => (past.payload, past.uncertainty),
        (None, None, None) => (None, 0.0),
    };
    let congestion = input.congestion.clone();
    let congestion = congestion.or_else(|| {
        let name = of_probe.map(|record| record.path.congestion_control.clone());
        name.filter(|name| !name.is_empty())
    });
    let congestion = congestion.map(|name| Congestion::of_name(&name));
    let congestion = congestion.or_else(|| past.map(|past| past.congestion.clone()));
    let window = input.window.map(|window| Window::of(window.0 as f64));
    let window = window.or_else(|| past.and_then(|past| past.window));
    Ok(PathFacts {
        payload,
        rtt: rtt.max(Duration::from_micros(10)),
        loss: input
            .loss
            .or(of_probe.map(|record| record.path.loss))
            .or(past.map(|past| past.loss))
            .unwrap_or(0.0),
        window: window.or_else(|| own_window(input)),
        segment: SEGMENT,
        congestion: congestion.unwrap_or(Congestion::Cubic),
        uncertainty,
    })
}

/// Returns the window that this host's kernel allows. The limits of another host are
/// unknown and count as unlimited. Without another host, this host's limits apply to both
/// ends.
fn own_window(input: &PlanInput) -> Option<Window> {
    let here = buffer_limits(&HostLimits::read());
    let nothing = BufferLimits::default();
    match other_host(input) {
        Some((_, Way::To)) => window_between(&here, &nothing),
        Some((_, Way::From)) => window_between(&nothing, &here),
        None => window_between(&here, &here),
    }
}

/// Uses the stored profile of a host if none was given. Returns a line per used file.
/// Restrictions of a profile are added to `doubts`.
fn take_profiles(input: &mut PlanInput, doubts: &mut Vec<String>) -> Vec<String> {
    let ends = [
        (input.sources.first(), &mut input.source_model),
        (Some(&input.destination), &mut input.destination_model),
    ];
    let (mut lines, mut found) = (Vec::new(), Vec::new());
    for (endpoint, model) in ends {
        let host = endpoint.and_then(Endpoint::host_name);
        if let Some(model) = model {
            found.extend(profiles::doubts(model, host));
            continue;
        }
        let path = endpoint.and_then(Endpoint::local_path);
        let path = path.map(|path| Path::new(OsStr::from_bytes(path)));
        let kept = profiles::kept(host, path);
        if kept.model.is_some() {
            let name = host.unwrap_or("this host");
            lines.push(format!("Profile of {name}: {}.", kept.file.display()));
        }
        *model = kept.model;
        found.extend(kept.doubts);
    }
    lines.dedup();
    found.dedup();
    doubts.extend(found);
    lines
}

fn end(endpoint: Option<&Endpoint>, model: Option<HostModel>) -> End {
    let remote = endpoint.and_then(|it| it.host_name().map(str::to_owned));
    let is_here = remote.is_none();
    let cores = std::thread::available_parallelism();
    let cores = cores.ok().filter(|_| is_here);
    End {
        name: remote.unwrap_or_else(|| "this host".to_owned()),
        cores: cores.map(|cores| cores.get() as f64),
        model,
        seen: BTreeMap::new(),
        cpu: None,
    }
}

fn dataset_line(found: &Survey) -> String {
    let about = if found.is_whole { "" } else { "about " };
    let mean = found.bytes / found.files.max(1.0);
    format!(
        "Dataset: {about}{} in {about}{}, {} each on average.",
        ByteCount(found.bytes as u64),
        counted(found.files.round() as u64, "file"),
        ByteCount(mean as u64)
    )
}

/// Describes the path of a graph: round trip, rate, loss, windows and congestion control. Returns
/// `None` if the graph has no path.
pub fn path_line(graph: &Graph) -> Option<String> {
    let mut paths = graph.nodes.iter().filter_map(|node| match &node.capacity {
        Capacity::Path(path) => Some((path, node.uncertainty)),
        Capacity::Flows(_) => None,
    });
    let (path, uncertainty) = paths.next_back()?;
    let rate = path.path.min(path.nic);
    let rate = if rate.is_finite() && uncertainty < UNKNOWN {
        format!("{:.2} Gbit/s of payload", rate * 8.0 / 1e9)
    } else {
        "unknown rate".to_owned()
    };
    let window = if path.window.likely.is_finite() {
        format!("windows of {}", ByteCount(path.window.likely as u64))
    } else {
        "unknown windows".to_owned()
    };
    Some(format!(
        "Path: {:.1} ms, {rate}, {:.4} % loss, {window}, {}.",
        path.rtt.as_secs_f64() * 1e3,
        path.loss * 100.0,
        path.congestion
    ))
}

#[cfg(test)]
mod tests {
    use longhaul_model::check::{self, check};
    use longhaul_model::explain::explain;
    use longhaul_model::optimise::Bound;
    use longhaul_model::what_if::what_if;
    use longhaul_transfer::planning::foresight::{Facts, Foreseen};
    use longhaul_transfer::spec::FixedFlows;
    use serde_json::json;

    use super::*;

    /// 10 TB with four streams and an RTT of 10 s: only windows limit the rate.
    #[test]
    fn plan_explain_and_check_agree() {
        const HOST: &str = "nowhere.invalid";
        let limits = HostLimits::read();
        let rtt = Duration::from_secs(10);
        let input = PlanInput {
            sources: vec![Endpoint::parse(OsStr::new("data")).unwrap()],
            destination: Endpoint::parse(OsStr::new(&format!("longhaul://{HOST}/x"))).unwrap(),
            dataset: Some((ByteCount(10_000_000_000_000), 1)),
            rtt: Some(rtt),
            rate: Some("10gbit".parse().unwrap()),
            loss: None,
            window: None,
            congestion: None,
            probed: None,
            source_model: None,
            destination_model: None,
            filter: None,
        };
        let graph = real_plan(input).unwrap().built.graph;
        let graph = what_if(&graph, "flows.path=4").unwrap();
        let plan = explain(&graph, Bound::DEFAULT).unwrap().prediction;
        let facts = Facts {
            host: Some(HOST.to_owned()),
            rtt,
            limits: limits.clone(),
            zeros: Some(10_000_000_000_000),
            cores: 2,
            flows: FixedFlows {
                streams: Some(4),
                ..FixedFlows::default()
            },
            ..Facts::default()
        };
        let forecast = Foreseen::new(&facts).forecast.unwrap().prediction;
        let record: RunRecord = serde_json::from_value(json!({
            "schema": 1, "run": { "id": "a" }, "measures": "transfer",
            "method": { "name": "longhaul" }, "knobs": { "streams": 4 },
            "path": { "rtt_seconds": 10.0, "capacity_bits_per_second": 10e9,
                "congestion_control": "cubic" },
            "source": { "name": "a", "settings": {
                "net.ipv4.tcp_wmem": format!("4096 16384 {}", limits.tcp_send.unwrap()) } },
            "dataset": { "name": "one", "bytes": 10e12 as u64, "files": 1 },
            "outcome": { "ended": "done", "bytes": 10e12 as u64, "wall_seconds": 1e6,
                "goodput_bits_per_second": 80e6 },
        }))
        .unwrap();
        let checked = check(&record, &check::Known::default()).unwrap();
        let window = buffer_limits(&limits);
        let window = window_between(&window, &BufferLimits::default()).unwrap();
        for predicted in [
            plan.goodput.likely,
            forecast.goodput.likely,
            checked.predicted,
        ] {
            let share = predicted / (4.0 * window.likely / 10.0);
            assert!((0.98..=1.0).contains(&share), "{predicted} {window:?}");
        }
    }

    #[test]
    fn hosts_of_endpoints_are_recognised() {
        for (endpoint, host) in [
            ("data", None),
            ("./a:b", None),
            ("dtn7:run7", Some("dtn7")),
            ("user@dtn7:/scratch", Some("dtn7")),
            (
                "longhaul://alice@dtn9.example.org:4960/x",
                Some("dtn9.example.org"),
            ),
        ] {
            let parsed = Endpoint::parse(OsStr::new(endpoint)).unwrap();
            assert_eq!(parsed.host_name(), host, "{endpoint}");
        }
    }
}
