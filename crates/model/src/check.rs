//! Compares predictions of the model with records of runs.
//!
//! The model's inputs come from a record: path, kernel limits, cores, dataset. The prediction is
//! compared with the record's outcome. The model chooses the numbers of flows, except those that
//! the run fixed, and uses a codec that the run fixed for all data.
//!
//! - `fixed`: settings that a run fixed
//! - `unpredicted`: runs that cannot be predicted, with reasons

mod fixed;
mod unpredicted;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use longhaul_measure::plot::{LinePlot, Plot, PlotPoint, Series, line_plot};
use longhaul_measure::record::{HostRecord, Knob, Measures, RunRecord, Side};
use longhaul_measure::stats::{median, quantile, sorted};
use longhaul_units::counted;
use serde_json::{Value, json};

use crate::capacity::{Capacity, FlowCapacity};
use crate::explain::predict;
use crate::graph::{Graph, NodeKind, Part};
use crate::host::HostModel;
use crate::kernel::{BufferLimits, window_between};
use crate::limit::Limit;
use crate::optimise::prices::{Constraint, binding};
use crate::optimise::{Bound, solve};
use crate::records::{CpuCost, RecordFits};
use crate::response::Congestion;
use crate::transfer::{End, PathFacts, transfer_graph};
pub use unpredicted::Unpredicted;

/// Payload of a segment in bytes, at an MTU of 1500 and with timestamps.
const SEGMENT: f64 = 1448.0;

/// Knowledge beside the records.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Known {
    /// Profile of the sending host.
    pub source: Option<HostModel>,
    /// Profile of the receiving host.
    pub destination: Option<HostModel>,
    /// Costs fitted to other runs of these hosts.
    pub fits: Option<RecordFits>,
}

/// A run and its prediction. Rates are goodput in bytes per second.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    /// Identity of the run.
    pub run: String,
    /// File that contains the record. Empty if there is no file.
    pub file: String,
    /// Measured goodput.
    pub measured: f64,
    /// Predicted goodput.
    pub predicted: f64,
    /// Predicted bottleneck.
    pub binding: String,
    /// Prediction of the rule of thumb: min(link, n × window/τ).
    pub rule_of_thumb: f64,
}

impl Checked {
    /// Returns the relative error of the prediction. Positive if the prediction is above the
    /// measurement.
    pub fn error(&self) -> f64 {
        self.predicted / self.measured - 1.0
    }

    /// Converts the run to JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "run": self.run,
            "file": self.file,
            "measured_bytes_per_second": self.measured,
            "predicted_bytes_per_second": self.predicted,
            "error": self.error(),
            "binding": self.binding,
            "rule_of_thumb_bytes_per_second": self.rule_of_thumb,
        })
    }

    /// Returns the relative error of the rule of thumb.
    pub fn error_of_rule(&self) -> f64 {
        self.rule_of_thumb / self.measured - 1.0
    }
}

/// Predictions of many runs, and the numbers of runs without a prediction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checks {
    /// Runs with their predictions, in the order of the records.
    pub runs: Vec<Checked>,
    /// Number of runs without a prediction, by reason.
    pub unpredicted: BTreeMap<Unpredicted, usize>,
}

impl Checks {
    /// Adds a run of a file. Returns its result as JSON.
    pub fn add(&mut self, file: &Path, record: &RunRecord, known: &Known) -> Value {
        match check(record, known) {
            Ok(mut run) => {
                run.file = file.display().to_string();
                let value = run.to_json();
                self.runs.push(run);
                value
            }
            Err(why) => {
                let value = json!({
                    "run": record.run.id,
                    "file": file.display().to_string(),
                    "unpredicted": why.to_string(),
                });
                *self.unpredicted.entry(why).or_default() += 1;
                value
            }
        }
    }
}

/// Predicts a run.
///
/// # Errors
///
/// The reason why the model cannot predict the run.
pub fn check(record: &RunRecord, known: &Known) -> Result<Checked, Unpredicted> {
    if let Some(why) = unpredicted::reason(record, known) {
        return Err(why);
    }
    let path = path_of(record);
    let is_lab = record.is_one_machine();
    // Both ends share the cores of one host, in a lab also with the emulator.
    let fitted = known.fits.as_ref().and_then(|fits| fits.emulator);
    let busy = if is_lab && fitted.is_none() {
        emulator_cores(record)
    } else {
        0.0
    };
    let share = known.fits.as_ref().and_then(|fits| fits.busiest);
    let share = share.unwrap_or(1.0);
    let end = |host: &HostRecord, model: &Option<HostModel>| End {
        name: host.name.clone(),
        cores: (host.cores > 0).then(|| (f64::from(host.cores) * share - busy).max(0.1)),
        model: model.clone(),
        ..End::default()
    };
    let mut source = end(&record.source, &known.source);
    let mut destination = end(&record.destination, &known.destination);
    if let Some(fits) = &known.fits {
        apply(fits, &mut source, &mut destination);
    }
    let mut built = transfer_graph(
        &source,
        &destination,
        Some(&path),
        vec![part_of(record)],
        is_lab,
    );
    if let (true, Some(cost)) = (is_lab, fitted) {
        emulate(cost, &mut built.graph);
    }
    fixed::apply(record, known.source.as_ref(), &mut built.graph)?;
    if record.measures == Measures::Memory {
        keep_only_streams(&mut built.graph);
    }
    let graph = &built.graph;
    let optimum = solve(graph, Bound::DEFAULT);
    let optimum = optimum.map_err(|error| Unpredicted::Unsolved(error.to_string()))?;
    let limits = binding(graph, &optimum, Bound::DEFAULT).unwrap_or_default();
    let mut limiting = limits.iter().flatten();
    if limiting.any(|it| is_guess(graph, *it, &source, &destination)) {
        return Err(Unpredicted::Guess);
    }
    let names: Vec<String> = limits.iter().flatten().map(|it| it.name(graph)).collect();
    let streams = graph
        .nodes
        .iter()
        .zip(&optimum.nodes)
        .find(|(node, _)| node.name == "path");
    let streams = streams.map_or(1, |(_, used)| used.flows());
    let in_flight = f64::from(streams) * path.window.map_or(f64::INFINITY, |window| window.likely);
    let payload = path.payload.unwrap_or(f64::INFINITY);
    Ok(Checked {
        run: record.run.id.clone(),
        file: String::new(),
        measured: record.outcome.goodput.bits_per_second() / 8.0,
        predicted: predict(&certain(graph), &optimum, Bound::DEFAULT)
            .goodput
            .likely,
        binding: if names.is_empty() {
            "nothing".to_owned()
        } else {
            names.join(" and ")
        },
        rule_of_thumb: payload.min(in_flight / path.rtt.as_secs_f64().max(f64::MIN_POSITIVE)),
    })
}

/// True if the constraint is storage without measurements.
fn is_guess(graph: &Graph, limit: Constraint, source: &End, destination: &End) -> bool {
    let Constraint::Node(at) = limit else {
        return false;
    };
    match Limit::of_name(&graph.nodes[at].name) {
        Some(Limit::Read) => !source.knows(Limit::Read),
        Some(layer @ (Limit::Write | Limit::Commit)) => !destination.knows(layer),
        _ => false,
    }
}

/// Returns the graph without uncertainty. Only the expected rate is compared with the measured one,
/// so no interval is computed.
fn certain(graph: &Graph) -> Graph {
    let mut certain = graph.clone();
    certain.nodes.iter_mut().for_each(|it| it.uncertainty = 0.0);
    certain
}

/// Removes the costs of files, of encryption and of the mover's handshakes: a run from memory to
/// memory has only streams.
fn keep_only_streams(graph: &mut Graph) {
    (graph.startup, graph.round_trips) = (0.0, 0.0);
    for node in graph
        .nodes
        .iter_mut()
        .filter(|node| node.kind != NodeKind::Path)
    {
        node.capacity = Capacity::Flows(FlowCapacity::Unlimited);
        (node.seconds_per_file, node.cpu_per_file) = (0.0, 0.0);
        node.cpu_per_byte = 0.0;
        node.uncertainty = 0.0;
    }
}

/// Returns the number of cores that the lab's emulator used.
fn emulator_cores(record: &RunRecord) -> f64 {
    let seconds = record.cpu_seconds(&[Side::Emulator]);
    seconds.unwrap_or(0.0) / record.outcome.wall.as_secs_f64().max(f64::MIN_POSITIVE)
}

/// Sets the CPU cost of the path to the emulator's cost fitted to other runs.
fn emulate(cost: CpuCost, graph: &mut Graph) {
    for node in graph.nodes.iter_mut().filter(|node| node.name == "path") {
        node.host = Some(0);
        (node.cpu_per_byte, node.cpu_per_file) = (cost.seconds_per_byte, cost.seconds_per_file);
    }
}

/// Sets the costs of both ends to those fitted to other runs.
fn apply(fits: &RecordFits, source: &mut End, destination: &mut End) {
    let cpu = |cost: Option<CpuCost>| Some((cost?.seconds_per_byte, cost?.seconds_per_file));
    (source.cpu, destination.cpu) = (cpu(fits.source), cpu(fits.destination));
    source.seen.clone_from(&fits.layers);
    destination.seen.clone_from(&fits.layers);
}

fn part_of(record: &RunRecord) -> Part {
    Part {
        name: record.dataset.name.clone(),
        bytes: record.outcome.moved.0 as f64,
        files: (record.dataset.files as f64).max(1.0),
        codecs: Vec::new(),
    }
}

fn path_of(record: &RunRecord) -> PathFacts {
    let limit = |host: &HostRecord, name: &str| -> Option<u64> {
        host.settings
            .get(name)?
            .split_whitespace()
            .last()?
            .parse()
            .ok()
    };
    let limits = |host: &HostRecord| BufferLimits {
        tcp_send: limit(host, "net.ipv4.tcp_wmem"),
        tcp_receive: limit(host, "net.ipv4.tcp_rmem"),
        ..BufferLimits::default()
    };
    // If both ends are on one machine, the record may have the settings of one end only.
    let far = if record.destination.settings.is_empty() && record.is_one_machine() {
        &record.source
    } else {
        &record.destination
    };
    PathFacts {
        payload: Some(record.path.capacity.bits_per_second() / 8.0),
        rtt: record.path.rtt.max(Duration::from_micros(10)),
        loss: record.path.loss,
        window: window_between(&limits(&record.source), &limits(far)),
        segment: SEGMENT,
        congestion: congestion_of(record),
        uncertainty: 0.02,
    }
}

/// Returns the congestion control of the windows: the one that the run fixed, else the observed
/// one, else the mover's choice. With loss, the mover tries BBR and keeps it.
fn congestion_of(record: &RunRecord) -> Congestion {
    if let Some(Knob::Word(name)) = record.knobs.get("congestion") {
        return Congestion::of_name(name);
    }
    let seen = record.tcp.as_ref().map(|tcp| tcp.congestion.as_str());
    match seen.filter(|name| !name.is_empty()) {
        Some(name) => Congestion::of_name(name),
        None if record.path.loss > 0.0 => Congestion::Bbr,
        None => Congestion::of_name(&record.path.congestion_control),
    }
}

/// Formats a summary of all runs: the errors by bottleneck, beside those of the rule of thumb, the
/// worst runs, and the runs without a prediction.
pub fn summary(checks: &Checks) -> String {
    let mut text = errors(&checks.runs);
    if !checks.unpredicted.is_empty() {
        text += "not predicted:\n";
    }
    let (mut tools, mut by_tools) = (Vec::new(), 0);
    for (why, count) in &checks.unpredicted {
        match why {
            Unpredicted::OtherTool(name) => {
                tools.push(format!("{name} {count}"));
                by_tools += count;
            }
            _ => text += &format!("  {}: {why}\n", counted(*count, "run")),
        }
    }
    if by_tools > 0 {
        let (runs, tools) = (counted(by_tools, "run"), tools.join(", "));
        text += &format!("  {runs}: another tool moved the data ({tools})\n");
    }
    text
}

fn errors(runs: &[Checked]) -> String {
    if runs.is_empty() {
        return "no run has a prediction\n".to_owned();
    }
    let mut groups: Vec<&str> = runs.iter().map(|run| run.binding.as_str()).collect();
    groups.sort_unstable();
    groups.dedup();
    let width = groups
        .iter()
        .map(|name| name.chars().count())
        .max()
        .unwrap_or(0)
        .max(10);
    let mut text = format!(
        "{:<width$}  {:>5}  {:>12}  {:>10}  {:>7}  {:>14}\n",
        "limited by", "runs", "median error", "90 % below", "bias", "rule of thumb"
    );
    // Writing to a String cannot fail.
    let mut row = |name: &str, runs: &[&Checked]| {
        let errors = sorted(&runs.iter().map(|run| run.error().abs()).collect::<Vec<_>>());
        let rule: Vec<f64> = runs.iter().map(|run| run.error_of_rule().abs()).collect();
        let bias: Vec<f64> = runs.iter().map(|run| run.error()).collect();
        let share = |value: Option<f64>| value.unwrap_or(f64::NAN) * 100.0;
        let _ = writeln!(
            text,
            "{name:<width$}  {:>5}  {:>10.1} %  {:>8.1} %  {:>+5.1} %  {:>12.1} %",
            runs.len(),
            share(quantile(&errors, 0.5)),
            share(quantile(&errors, 0.9)),
            share(median(&bias)),
            share(median(&rule)),
        );
    };
    for group in groups {
        let of_group: Vec<&Checked> = runs.iter().filter(|run| run.binding == group).collect();
        row(group, &of_group);
    }
    row("all", &runs.iter().collect::<Vec<_>>());
    let mut worst: Vec<&Checked> = runs.iter().collect();
    worst.sort_by(|a, b| b.error().abs().total_cmp(&a.error().abs()));
    let _ = writeln!(text, "worst:");
    for run in worst.iter().take(5) {
        let _ = writeln!(
            text,
            "  {} in {}: predicted {:.1} MB/s, measured {:.1} ({:+.0} %), limited by {}",
            run.run,
            run.file,
            run.predicted / 1e6,
            run.measured / 1e6,
            run.error() * 100.0,
            run.binding
        );
    }
    text
}

/// Draws predicted against measured goodput. On the line both are equal.
pub fn figure(runs: &[Checked]) -> Plot {
    let mut groups: Vec<&str> = runs.iter().map(|run| run.binding.as_str()).collect();
    groups.sort_unstable();
    groups.dedup();
    let greatest = runs
        .iter()
        .map(|run| run.measured.max(run.predicted))
        .fold(0.0, f64::max)
        / 1e6;
    let series = groups.into_iter().map(|group| {
        let mut points: Vec<PlotPoint> = runs
            .iter()
            .filter(|run| run.binding == group)
            .map(|run| PlotPoint {
                x: run.measured / 1e6,
                y: run.predicted / 1e6,
                interval: None,
            })
            .collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        Series {
            label: format!("limited by {group}"),
            points,
            curve: Some(vec![(0.0, 0.0), (greatest, greatest)]),
        }
    });
    let it = LinePlot {
        title: "Predicted over measured goodput".to_owned(),
        x_title: "measured MB/s".to_owned(),
        y_title: "predicted MB/s".to_owned(),
        series: series.collect(),
        x_labels: Vec::new(),
        levels: Vec::new(),
        has_markers: true,
    };
    Plot {
        name: "model-check".to_owned(),
        title: it.title.clone(),
        caption: "Each point is a run. On the line, prediction and measurement are equal."
            .to_owned(),
        table: it.table("limited by", "measured MB/s", "predicted MB/s"),
        svg: line_plot(&it),
    }
}
