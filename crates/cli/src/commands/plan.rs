//! `longhaul plan`: the best numbers of flows, what limits them, and what would help.

mod real;
mod survey;

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use longhaul_model::explain::{comparison, explain, one_figure};
use longhaul_model::graph::{Graph, file};
use longhaul_model::optimise::{Bound, Optimum, SolveError};
use longhaul_model::policy::{Policy, outcome};
use longhaul_model::what_if::what_if;
use serde_json::{Value, json};

use super::profile::{open, write};
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
            let real = real::real(arguments)?;
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
        write(
            path,
            one_figure(&explained.figures(&graph, bound)).as_bytes(),
        )?;
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
