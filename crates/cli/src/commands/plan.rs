//! `longhaul plan`: the best numbers of flows, what limits them, and what would help.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use longhaul_instrument::plan::{PlanInput, real_plan};
use longhaul_instrument::records::{each_record, open, write};
use longhaul_measure::record::{Ended, RunRecord};
use longhaul_model::explain::{comparison, explain, one_figure, page};
use longhaul_model::graph::{Graph, file};
use longhaul_model::host::HostModel;
use longhaul_model::optimise::{Bound, Optimum, SolveError};
use longhaul_model::policy::{Policy, outcome};
use longhaul_model::what_if::what_if;
use longhaul_transfer::endpoint::Endpoint;
use serde_json::{Value, json};

use super::model::host_model;
use crate::arguments::PlanArguments;
use crate::messages::{Exit, Stop, finish, print_line};

/// For each program that is solved: a plan is made of some tens, nearly all of which take
/// milliseconds.
const LONGEST_SEARCH: Duration = Duration::from_secs(2);

/// What one policy gives.
type Outcome = (Policy, Result<Optimum, SolveError>);

/// Runs it.
pub fn run(arguments: &PlanArguments) -> Exit {
    finish(plan(arguments))
}

fn plan(arguments: &PlanArguments) -> Result<Exit, Stop> {
    let (mut graph, lines, unknown) = match &arguments.graph {
        Some(name) => (read(name)?, Vec::new(), Vec::new()),
        None => {
            let real = real_plan(input(arguments)?).map_err(|error| usage(error.to_string()))?;
            (real.built.graph, real.lines, real.built.doubts)
        }
    };
    if let Some(changes) = &arguments.what_if {
        let changed = what_if(&graph, changes);
        graph = changed.map_err(|error| usage(format!("--what-if: {error}")))?;
    }
    if let Some(path) = &arguments.write_graph {
        let is_json = path.extension().is_some_and(|ending| ending == "json");
        let text = if is_json {
            graph.to_json()
        } else {
            graph.to_toml()
        };
        let text = text.map_err(|error| usage(error.to_string()))?;
        write(path, text.as_bytes())?;
    }
    let bound = Bound {
        time: Some(LONGEST_SEARCH),
        ..Bound::DEFAULT
    };
    let mut explained = explain(&graph, bound).map_err(|error| usage(error.to_string()))?;
    explained.doubts.splice(0..0, unknown);
    let policies = arguments.policies();
    let outcomes: Vec<Outcome> = match policies[..] {
        [Policy::Model] => Vec::new(),
        _ => policies
            .into_iter()
            .map(|policy| (policy, outcome(policy, &graph, bound)))
            .collect(),
    };
    if let Some(path) = &arguments.plot {
        let figures = explained.figures(&graph, bound);
        let is_page = path.extension().is_some_and(|ending| ending == "html");
        let drawn = match is_page {
            true => page(&explained.text(&graph), &figures),
            false => one_figure(&figures),
        };
        write(path, drawn.as_bytes())?;
    }
    if arguments.json {
        let mut value = explained.to_json(&graph);
        value["policies"] = outcomes.iter().map(compared).collect();
        print_line!("{value:#}");
        return Ok(Exit::Done);
    }
    for line in lines {
        print_line!("{line}");
    }
    print_line!("{}", explained.text(&graph));
    print_line!("");
    print_line!("{}", explained.layers(&graph).trim_end());
    if !outcomes.is_empty() {
        print_line!("");
        print_line!("{}", comparison(&outcomes).trim_end());
    }
    Ok(Exit::Done)
}

/// What the options say, with the files that they name.
fn input(arguments: &PlanArguments) -> Result<PlanInput, Stop> {
    let endpoint = |text: &String| {
        Endpoint::parse_checked(&text.into()).map_err(|error| usage(error.to_string()))
    };
    let mut sources = arguments.paths.iter().map(endpoint);
    let destination = sources.next_back().transpose()?;
    let sources = sources.collect::<Result<Vec<_>, Stop>>()?;
    let (Some(destination), Some(source)) = (destination, sources.first()) else {
        let text = "name a source and a destination, or a graph with --graph";
        return Err(usage(text.to_owned()));
    };
    let model = |profile: &Option<PathBuf>, endpoint: &Endpoint| {
        profile
            .as_deref()
            .map(|file| model_of(file, endpoint))
            .transpose()
    };
    Ok(PlanInput {
        source_model: model(&arguments.source_profile, source)?,
        destination_model: model(&arguments.destination_profile, &destination)?,
        dataset: arguments
            .bytes
            .map(|bytes| (bytes, arguments.files.unwrap_or(1))),
        rtt: arguments.rtt,
        rate: arguments.rate,
        loss: arguments.loss,
        window: arguments.window,
        congestion: arguments.congestion.clone(),
        probed: arguments.probe.as_deref().map(last_record).transpose()?,
        sources,
        destination,
    })
}

/// A host's model; of its disks the one below an endpoint on this host.
fn model_of(file: &Path, endpoint: &Endpoint) -> Result<HostModel, Stop> {
    let here = match endpoint {
        Endpoint::Local(path) => fs::canonicalize(OsStr::from_bytes(path)).ok(),
        _ => None,
    };
    host_model(file, here.as_deref())
}

/// The last good record of a file: a path may have changed since the others.
fn last_record(file: &Path) -> Result<RunRecord, Stop> {
    let mut last = None;
    each_record(&[file.to_owned()], false, |_, record| {
        if record.outcome.ended == Ended::Done {
            last = Some(record);
        }
        Ok(())
    })?;
    last.ok_or_else(|| {
        let name = file.display();
        usage(format!("{name}: it has no record of a run that ended well"))
    })
}

fn usage(text: String) -> Stop {
    Stop::new(Exit::Usage, text)
}

fn read(path: &Path) -> Result<Graph, Stop> {
    let mut text = String::new();
    // One byte more than is read: the reader says what is wrong with more.
    let mut bounded = open(path)?.take(file::MOST_BYTES as u64 + 1);
    let read = bounded.read_to_string(&mut text);
    read.map_err(|error| Stop::new(Exit::Local, format!("{}: {error}", path.display())))?;
    Graph::from_text(&text).map_err(|error| usage(format!("{}: {error}", path.display())))
}

fn compared((policy, outcome): &Outcome) -> Value {
    match outcome {
        Ok(it) => json!({
            "policy": policy.name(),
            "rate_bytes_per_second": it.rate,
            "seconds": it.seconds,
            "cpu_seconds_per_second": it.cpu,
            "flows": it.flows,
        }),
        Err(error) => json!({ "policy": policy.name(), "error": error.to_string() }),
    }
}
