//! `longhaul plan`: predicts the best numbers of flows, their limits, and possible
//! improvements.

use std::path::PathBuf;

use longhaul_instrument::model_files::{end_model, read_graph};
use longhaul_instrument::plan::{PlanInput, path_line, real_plan};
use longhaul_instrument::records::{last_done, write};
use longhaul_model::explain::{comparison, explain, one_figure, page};
use longhaul_model::optimise::{Bound, Optimum, SolveError};
use longhaul_model::policy::{Policy, outcome};
use longhaul_model::transfer::Filter;
use longhaul_model::what_if::what_if;
use longhaul_proto::options::FilterAt;
use longhaul_transfer::endpoint::Endpoint;
use serde_json::{Value, json};

use crate::arguments::PlanArguments;
use crate::messages::{Exit, Stop, finish, print_json, print_line};

/// A policy and its result.
type Outcome = (Policy, Result<Optimum, SolveError>);

/// Runs `longhaul plan`.
pub fn run(arguments: &PlanArguments) -> Exit {
    finish(plan(arguments))
}

fn plan(arguments: &PlanArguments) -> Result<Exit, Stop> {
    let (mut graph, mut lines, unknown) = match &arguments.graph {
        Some(name) => (read_graph(name)?, Vec::new(), Vec::new()),
        None => {
            let real = real_plan(input(arguments)?).map_err(|error| usage(error.to_string()))?;
            (real.built.graph, real.lines, real.built.doubts)
        }
    };
    if let Some(changes) = &arguments.what_if {
        let changed = what_if(&graph, changes);
        graph = changed.map_err(|error| usage(format!("--what-if: {error}")))?;
    }
    if arguments.graph.is_none() {
        lines.splice(1..1, path_line(&graph));
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
    let bound = Bound::DEFAULT;
    let mut explained = explain(&graph, bound).map_err(|error| usage(error.to_string()))?;
    explained.doubts.splice(0..0, unknown);
    let proven = explained.is_proven();
    let exit = if proven { Exit::Done } else { Exit::NotProven };
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
        let drawn = if is_page {
            page(&explained.text(&graph), &figures)
        } else {
            one_figure(&figures)
        };
        write(path, drawn.as_bytes())?;
    }
    if arguments.json {
        let mut value = explained.to_json(&graph);
        value["policies"] = outcomes.iter().map(compared).collect();
        print_json(&format!("{value:#}"));
        return Ok(exit);
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
    Ok(exit)
}

/// Returns the input of a plan, including the files that the options name.
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
            .map(|file| end_model(file, endpoint))
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
        filter: arguments.filter_cmd.as_ref().map(|_| Filter {
            at_source: arguments.filter_at == FilterAt::Source,
            flows: arguments.filter_flows,
            rate: arguments.filter_rate.map(|it| it.bits_per_second() / 8.0),
        }),
        probed: arguments.probe.as_deref().map(last_done).transpose()?,
        sources,
        destination,
    })
}

fn usage(text: String) -> Stop {
    Stop::new(Exit::Usage, text)
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
