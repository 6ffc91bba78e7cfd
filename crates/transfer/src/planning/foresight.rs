//! Makes a copy's forecast from the data available when its session opens: the path's round trip,
//! this kernel's limits, earlier transfers, the hosts' profiles, and a short survey. The forecast
//! is made while the copy runs, and is compared with the outcome at the end.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use longhaul_engine::flows::LayerUse;
use longhaul_engine::session::Progress;
use longhaul_model::capacity::Window;
use longhaul_model::control::Bound;
use longhaul_model::forecast::{Forecast, Known, LayerFigures, Outcome, forecast};
use longhaul_model::graph::Part;
use longhaul_model::history::{self, PastLayer, PastTransfer, Remembered, Way};
use longhaul_model::host::HostModel;
use longhaul_model::kernel::{BufferLimits, window_between};
use longhaul_model::limit::Limit;
use longhaul_model::response::Congestion;
use longhaul_model::transfer::{End, Filter, PathFacts};
use longhaul_net::host_limits::HostLimits;
use longhaul_proto::coding::{Codec, Compression};
use longhaul_units::rfc3339;
use serde_json::{Value, json};

use super::history::Past;
use super::limiting::{all_layers, full_layer, without_holes};
use super::profiles;
use super::sampling::sample;
use super::survey::SurveyLimits;
use crate::spec::FixedFlows;

/// Limits of the survey of the dataset. The copy walks it too, so the forecast is refined at the
/// end.
const LOOK: SurveyLimits = SurveyLimits {
    time: Duration::from_millis(15),
    entries: 20_000,
};

/// Number of data samples, which take about 2 ms each.
const SAMPLES: usize = 12;

/// Size of an unknown dataset, in bytes: a terabyte of large files, for which the start is
/// negligible.
const LARGE: f64 = 1e12;

/// Payload of a segment at an MTU of 1500 with timestamps, in bytes.
const SEGMENT: f64 = 1448.0;

/// Ratio and difference (in seconds) of two round trips above which they belong to different paths.
/// Both must be exceeded.
const SAME_RTT: (f64, f64) = (1.2, 2e-3);

/// Relative difference between the surveyed and the transferred dataset above which the forecast is
/// made again.
const REFINED_FROM: f64 = 0.05;

/// Data that are available when a session opens.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The other host, without user or principal; `None` for a copy within this host.
    pub host: Option<String>,
    /// True if this end receives.
    pub receives: bool,
    /// Round trip of the handshake.
    pub rtt: Duration,
    /// Earlier transfers.
    pub past: Past,
    /// Limits of this host's kernel.
    pub limits: HostLimits,
    /// Congestion control, if known.
    pub congestion: Option<String>,
    /// Sources on this host, to be surveyed.
    pub sources: Vec<PathBuf>,
    /// The destination, if it is on this host.
    pub destination: Option<PathBuf>,
    /// Number of bytes of a source of zeros, which has no file.
    pub zeros: Option<u64>,
    /// Number of usable cores of this host.
    pub cores: usize,
    /// Flow counts that the user fixed.
    pub flows: FixedFlows,
    /// Requested rate limit, in bytes per second.
    pub rate: Option<u64>,
    /// Compression of blocks.
    pub compression: Option<Compression>,
    /// Filter of the files.
    pub filter: Option<Filter>,
}

/// A forecast, and the data that it was made from.
#[derive(Debug)]
pub struct Foreseen {
    known: Known,
    /// The forecast, or the reason why it cannot be made.
    pub forecast: Result<Forecast, String>,
    transfers: usize,
    /// Hosts whose profiles were used.
    profiles: Vec<String>,
}

/// Thread that makes a forecast.
pub type Foreseeing = JoinHandle<Foreseen>;

/// A forecast, and the outcome of the copy.
#[derive(Debug)]
pub struct Explained {
    /// The forecast.
    pub forecast: Forecast,
    /// The outcome.
    pub outcome: Outcome,
    /// True if the forecast was made again for the transferred dataset.
    pub refined: bool,
}

impl Explained {
    /// Formats prediction and outcome side by side, in lines.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = self.forecast.beside(&self.outcome);
        if self.refined {
            lines.push("the prediction was made again for what really moved".to_owned());
        }
        lines
    }

    /// Formats prediction and outcome as JSON.
    pub fn to_json(&self) -> Value {
        let mut value = self.forecast.beside_json(&self.outcome);
        value["refined"] = json!(self.refined);
        value
    }
}

impl Foreseen {
    /// Makes a forecast.
    pub fn new(facts: &Facts) -> Foreseen {
        let remembered = remembered(facts);
        let mut known = known_from(facts, &remembered);
        let profiles = add_profiles(facts, &mut known);
        let forecast = forecast(&known).map_err(|error| error.to_string());
        Foreseen {
            known,
            forecast,
            transfers: remembered.transfers,
            profiles,
        }
    }

    /// Formats the forecast in lines.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = match &self.forecast {
            Ok(forecast) => forecast.lines(),
            Err(error) => vec![format!("plan: there is none: {error}")],
        };
        lines.extend(self.origin());
        lines
    }

    /// Describes the sources of the forecast in a line; `None` if there are only the session's own.
    fn origin(&self) -> Option<String> {
        let copies = match self.transfers {
            0 => None,
            1 => Some("1 earlier copy".to_owned()),
            count => Some(format!("{count} earlier copies")),
        };
        let profiles = self.profiles.iter();
        let profiles = profiles.map(|host| format!("the profile of {host}"));
        let more: Vec<String> = copies.into_iter().chain(profiles).collect();
        let (last, others) = more.split_last()?;
        let others: String = others.iter().map(|it| format!(", {it}")).collect();
        Some(format!(
            "plan: from this kernel, the handshake{others} and {last}"
        ))
    }

    /// Formats the forecast as JSON.
    pub fn to_json(&self) -> Value {
        let mut value = match &self.forecast {
            Ok(forecast) => forecast.to_json(),
            Err(error) => json!({ "error": error }),
        };
        value["earlier_transfers"] = json!(self.transfers);
        value["profiles"] = json!(self.profiles);
        value
    }

    /// Adds the outcome. Makes the forecast again if another dataset was transferred.
    pub fn conclude(mut self, outcome: Outcome) -> Option<Explained> {
        let refined = self.is_other_than(&outcome);
        if refined {
            self.known.parts = scaled(&self.known.parts, &outcome);
            self.known.is_dataset_known = true;
            self.forecast = forecast(&self.known).map_err(|error| error.to_string());
        }
        Some(Explained {
            forecast: self.forecast.ok()?,
            outcome,
            refined,
        })
    }

    fn is_other_than(&self, outcome: &Outcome) -> bool {
        let sum = |of: fn(&Part) -> f64| self.known.parts.iter().map(of).sum::<f64>();
        let differs = |looked: f64, moved: f64| (moved / looked - 1.0).abs() > REFINED_FROM;
        !self.known.is_dataset_known
            || differs(sum(|part| part.bytes), outcome.bytes)
            || differs(sum(|part| part.files), (outcome.files as f64).max(1.0))
    }
}

/// Scales the parts to the transferred bytes and files.
fn scaled(parts: &[Part], outcome: &Outcome) -> Vec<Part> {
    let sum = |of: fn(&Part) -> f64| parts.iter().map(of).sum::<f64>();
    let (bytes, files) = (sum(|part| part.bytes), sum(|part| part.files));
    let scaled = parts.iter().map(|part| Part {
        bytes: (part.bytes / bytes.max(1.0) * outcome.bytes).max(1.0),
        files: (part.files / files.max(1.0) * outcome.files as f64).max(1.0),
        ..part.clone()
    });
    scaled.collect()
}

fn part(bytes: f64, files: f64) -> Part {
    Part {
        name: "dataset".to_owned(),
        bytes: bytes.max(1.0),
        files: files.max(1.0),
        codecs: Vec::new(),
    }
}

/// Returns the records of earlier copies between these hosts, on paths with a similar round trip.
fn remembered(facts: &Facts) -> Remembered {
    let Some(host) = &facts.host else {
        return Remembered::default();
    };
    let rtt = facts.rtt.as_secs_f64();
    let mut past = facts.past.transfers().to_vec();
    past.retain(|past| is_same_rtt(rtt, past.rtt_seconds));
    history::remember(&past, host, way(facts.receives))
}

/// True if two round trips, in seconds, may belong to one path.
pub fn is_same_rtt(one: f64, other: f64) -> bool {
    let (longer, shorter) = (one.max(other), one.min(other));
    longer <= shorter * SAME_RTT.0 || longer - shorter <= SAME_RTT.1
}

/// Returns the direction of the data, as seen from this host.
pub(super) fn way(receives: bool) -> Way {
    if receives { Way::From } else { Way::To }
}

/// Adds the hosts' profiles; returns the hosts that have one. The codecs' figures come from the
/// copy's own data, not from the profiles.
fn add_profiles(facts: &Facts, known: &mut Known) -> Vec<String> {
    let is_alone = facts.host.is_none();
    let ends = [
        (&mut known.source, !facts.receives, facts.sources.first()),
        (
            &mut known.destination,
            facts.receives,
            facts.destination.as_ref(),
        ),
    ];
    let (mut names, mut doubts) = (Vec::new(), Vec::new());
    for (end, is_here, path) in ends {
        let host = facts.host.as_deref().filter(|_| !is_here);
        let kept = profiles::kept(host, path.map(PathBuf::as_path));
        let model = kept.model.map(|model| HostModel {
            codecs: Vec::new(),
            ..model
        });
        if model.is_some() {
            names.push(end.name.clone());
        }
        end.model = model;
        doubts.extend(kept.doubts);
    }
    if is_alone {
        // Both ends are the same host.
        names.dedup();
        doubts.dedup();
    }
    known.doubts.extend(doubts);
    names
}

/// Combines the facts about path, dataset and hosts with the records of earlier copies.
pub(super) fn known_from(facts: &Facts, remembered: &Remembered) -> Known {
    let mut doubts = remembered.doubts.clone();
    let (parts, is_dataset_known) = dataset(facts, &mut doubts);
    if facts.compression.is_some() && facts.sources.is_empty() {
        doubts.push("what compression gives is not predicted: the data lie there".to_owned());
    }
    let seen = |layers: &[Limit]| -> BTreeMap<_, _> {
        let all = remembered.layers.iter();
        all.filter(|(layer, _)| layers.contains(layer))
            .map(|(layer, cost)| (*layer, *cost))
            .collect()
    };
    let here = |is_here: bool, layers: &[Limit]| End {
        name: match (is_here, &facts.host) {
            (false, Some(host)) => host.clone(),
            _ => "this host".to_owned(),
        },
        cores: is_here.then_some(facts.cores as f64),
        model: None,
        seen: seen(layers),
        cpu: None,
    };
    let is_alone = facts.host.is_none();
    Known {
        source: here(is_alone || !facts.receives, &[Limit::Read]),
        destination: here(is_alone || facts.receives, &[Limit::Write, Limit::Commit]),
        path: (!is_alone).then(|| path(facts, remembered.path.clone())),
        parts,
        is_dataset_known,
        rate_limit: facts.rate.map(|rate| rate as f64),
        fixed: fixed(&facts.flows),
        filter: facts.filter,
        doubts,
    }
}

/// Returns the fixed flow counts by layer.
fn fixed(flows: &FixedFlows) -> BTreeMap<Limit, u32> {
    let each = [
        (Limit::Read, flows.readers),
        (Limit::Compress, flows.compressors),
        (Limit::Wire, flows.streams),
        (Limit::Decompress, flows.decompressors),
        (Limit::Write, flows.writers),
    ];
    let fixed = each.into_iter();
    fixed
        .filter_map(|(layer, flows)| Some((layer, flows?)))
        .collect()
}

fn dataset(facts: &Facts, doubts: &mut Vec<String>) -> (Vec<Part>, bool) {
    if let Some(bytes) = facts.zeros {
        return (vec![part(bytes as f64, 1.0)], true);
    }
    if facts.sources.is_empty() {
        return (vec![part(LARGE, 1.0)], false);
    }
    let samples = match facts.compression {
        Some(_) => SAMPLES,
        None => 0,
    };
    let uses = |codec: Codec| match facts.compression {
        Some(Compression::Auto) => true,
        Some(compression) => codec == compression.codec(),
        None => false,
    };
    let Ok(found) = sample(&facts.sources, LOOK, samples, uses) else {
        return (vec![part(LARGE, 1.0)], false);
    };
    if !found.survey.is_whole {
        doubts.push("the dataset was looked at for a moment, and the rest is estimated".to_owned());
    }
    (found.parts, true)
}

fn path(facts: &Facts, remembered: Option<PathFacts>) -> PathFacts {
    let own = buffer_limits(&facts.limits);
    let nothing = BufferLimits::default();
    let window = if facts.receives {
        window_between(&nothing, &own)
    } else {
        window_between(&own, &nothing)
    };
    let unknown = || PathFacts {
        payload: None,
        rtt: Duration::ZERO,
        loss: 0.0,
        window: None,
        segment: SEGMENT,
        congestion: Congestion::Cubic,
        uncertainty: 0.0,
    };
    let mut path = remembered.unwrap_or_else(unknown);
    path.rtt = facts.rtt.max(Duration::from_micros(10));
    path.window = path.window.or(window);
    if let Some(name) = &facts.congestion {
        path.congestion = Congestion::of_name(name);
    }
    path
}

/// Converts a kernel's limits into those of the model.
pub fn buffer_limits(limits: &HostLimits) -> BufferLimits {
    BufferLimits {
        tcp_send: limits.tcp_send,
        tcp_receive: limits.tcp_receive,
        core_send: limits.core_send,
        core_receive: limits.core_receive,
    }
}

/// Final state of a transfer, for its forecast and its record.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ended<'a> {
    /// Last limit of the streams.
    pub bound: Option<Bound>,
    /// Congestion control of the streams.
    pub congestion: Option<&'a str>,
    /// Window of one stream by both kernels' limits, in bytes.
    pub window: Option<Window>,
    /// True if the requested rate was reached.
    pub at_rate: bool,
}

/// Computes the outcome of a transfer.
pub fn outcome(progress: &Progress, ended: Ended<'_>) -> Outcome {
    let bytes = progress
        .done_bytes
        .saturating_sub(progress.account.resumed_bytes);
    let bytes = without_holes(bytes, progress);
    let seconds = progress.elapsed.as_secs_f64().max(1e-9);
    let rate = bytes as f64 / seconds;
    let layers: Vec<LayerUse> = all_layers(progress).copied().collect();
    let figures = |layer: &LayerUse| {
        let flows = u32::try_from(layer.flows).unwrap_or(u32::MAX);
        let named = Limit::of_name(layer.layer)?;
        Some((named, LayerFigures::of_use(flows, layer.utilisation, rate)))
    };
    Outcome {
        bytes: bytes as f64,
        files: progress.files,
        seconds,
        layers: layers.iter().filter_map(figures).collect(),
        limit: if ended.at_rate {
            Some(Limit::Rate)
        } else {
            full_layer(&layers, ended.bound)
        },
    }
}

/// Returns the record of a transfer; `None` if no bytes were transferred.
pub fn past(
    (host, receives): (&str, bool),
    progress: &Progress,
    ended: Ended<'_>,
    predicted: Option<f64>,
) -> Option<PastTransfer> {
    let outcome = outcome(progress, ended);
    if outcome.bytes < 1.0 {
        return None;
    }
    let rtts = progress.paths.iter().filter_map(|path| path.minimum_rtt);
    let rtt = rtts
        .min()
        .or_else(|| progress.paths.iter().map(|path| path.rtt).min())?;
    let segments = progress.wire_bytes as f64 / SEGMENT;
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = since.map_or(0, |since| since.as_secs().cast_signed());
    let layers = outcome.layers.iter().map(|(layer, figures)| PastLayer {
        layer: layer.name().to_owned(),
        flows: figures.flows,
        busy: figures.busy.clamp(0.0, 1.0),
    });
    let streams = progress.paths.iter().map(|path| path.streams).max();
    Some(PastTransfer {
        schema: history::SCHEMA,
        at: rfc3339(now),
        host: host.to_owned(),
        way: way(receives),
        rtt_seconds: rtt.as_secs_f64(),
        bytes: outcome.bytes as u64,
        files: outcome.files,
        seconds: outcome.seconds,
        wire_bytes: progress.wire_bytes,
        streams: u32::try_from(streams.unwrap_or(0)).unwrap_or(u32::MAX),
        congestion: ended.congestion.unwrap_or_default().to_owned(),
        window_bytes: ended.window.map(|window| window.least as u64),
        likely_window_bytes: ended.window.map(|window| window.likely as u64),
        sent_again: (progress.retransmitted as f64 / segments.max(1.0)).min(1.0),
        limit: outcome.limit.map(|limit| limit.name().to_owned()),
        bound: ended.at_rate,
        layers: layers.collect(),
        predicted_seconds: predicted.filter(|seconds| seconds.is_finite()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(name: &'static str, utilisation: f64) -> LayerUse {
        LayerUse {
            layer: name,
            flows: 2,
            busy: 0,
            utilisation,
        }
    }

    fn progress() -> Progress {
        Progress {
            elapsed: Duration::from_secs(10),
            done_bytes: 1_000_000_000,
            files: 4,
            wire_bytes: 1_000_000_000,
            layers: vec![layer("read", 0.1), layer("wire", 0.95)],
            peer_layers: vec![layer("open", 0.3), layer("write", 0.4)],
            ..Progress::default()
        }
    }

    #[test]
    fn a_copy_with_an_unknown_dataset_is_forecast_again() {
        let facts = Facts {
            cores: 2,
            ..Facts::default()
        };
        let foreseen = Foreseen::new(&facts);
        let first = foreseen.lines().join("\n");
        assert!(first.contains("the dataset is not known yet"), "{first}");
        let ended = Ended {
            bound: Some(Bound::Path),
            ..Ended::default()
        };
        let outcome = outcome(&progress(), ended);
        assert_eq!(outcome.limit, Some(Limit::Path));
        let explained = foreseen.conclude(outcome).unwrap();
        assert!(explained.refined && explained.forecast.is_dataset_known);
        let lines = explained.forecast.beside(&explained.outcome).join("\n");
        assert!(lines.contains("write") && lines.contains("path"), "{lines}");
    }

    #[test]
    fn a_forecast_uses_the_size_of_zeros_and_fixed_flows() {
        let facts = Facts {
            zeros: Some(1 << 30),
            cores: 2,
            flows: FixedFlows {
                writers: Some(7),
                ..FixedFlows::default()
            },
            ..Facts::default()
        };
        let foreseen = Foreseen::new(&facts);
        let layers = foreseen.forecast.unwrap().layers();
        let write = layers.iter().find(|it| it.0 == Limit::Write).unwrap();
        assert_eq!(write.1.flows, 7);
    }

    #[test]
    fn the_history_has_neither_names_nor_users() {
        let mut done = progress();
        assert_eq!(past(("dtn7", false), &done, Ended::default(), None), None);
        done.paths = vec![longhaul_engine::session::PathUse {
            local: [10, 0, 0, 1].into(),
            peer: [10, 0, 0, 2].into(),
            streams: 8,
            acknowledged: longhaul_units::ByteCount(1),
            received: longhaul_units::ByteCount(0),
            retransmitted: 0,
            rtt: Duration::from_millis(110),
            minimum_rtt: Some(Duration::from_millis(100)),
            window: longhaul_units::ByteCount(1),
        }];
        let it = past(("dtn7", false), &done, Ended::default(), Some(9.0)).unwrap();
        assert!(it.is_sound());
        assert_eq!((it.rtt_seconds, it.streams, it.way), (0.1, 8, Way::To));
        assert_eq!(it.limit.as_deref(), Some("wire"));
        assert_eq!(it.layers.len(), 4);
    }
}
