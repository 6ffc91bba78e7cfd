//! An explanation as a paragraph of text.

use longhaul_units::{ByteCount, ByteRate, counted};

use super::{Alternative, CompressionGain, Difference, Explanation};
use crate::graph::{Graph, Node};
use crate::optimise::prices::{Change, Constraint};
use crate::optimise::{NodeUse, Optimum, SolveError};
use crate::policy::Policy;

/// Uncertainty above which a capacity is called a guess.
const GUESSED: f64 = 0.9;

/// Gap from which the search has no useful bound.
const MOST_GAP: f64 = 10.0;

/// Minimum gain, as a share of the rate, that is mentioned.
const NOTABLE_GAIN: f64 = 0.01;

/// Share of the time above which round trips are the bottleneck.
const MOSTLY_ROUND_TRIPS: f64 = 0.5;

/// Number of helpful changes that are mentioned.
const MOST_CHANGES: usize = 3;

impl Explanation {
    /// Describes the prediction, the bottleneck, the most helpful change, the flows and the
    /// runner-up in sentences.
    pub fn text(&self, graph: &Graph) -> String {
        let sentences = [
            self.not_proven(),
            Some(self.predicted(graph)),
            self.limits(graph),
            self.help(graph),
            Some(flows(graph, &self.optimum)),
            self.compression.map(|gain| gain.text()),
            self.runner_up(graph),
        ];
        let mut text: Vec<String> = sentences.into_iter().flatten().collect();
        text.extend(self.doubts.iter().map(|doubt| format!("Doubt: {doubt}.")));
        text.join(" ")
    }

    /// Formats the layers as a table: flows, rate, utilisation and CPU.
    pub fn layers(&self, graph: &Graph) -> String {
        let nodes = || graph.nodes.iter().zip(&self.optimum.nodes);
        let shown = || nodes().filter(|(node, _)| !node.is_logical());
        let width = shown().map(|(node, _)| node.name.chars().count()).max();
        let width = width.unwrap_or(0).max("layer".len());
        let mut text = format!(
            "{:<width$}  {:>14}  {:>10}  {:>6}  {:>6}\n",
            "layer", "flows", "carries", "busy", "cores"
        );
        for (node, used) in shown() {
            text += &format!(
                "{:<width$}  {:>14}  {:>10}  {:>4.0} %  {:>6.1}\n",
                node.name,
                members_text(node, used),
                rate_text(used.rate),
                used.utilisation * 100.0,
                used.cpu
            );
        }
        text
    }

    /// Warns that the search did not prove the optimum.
    fn not_proven(&self) -> Option<String> {
        if self.is_proven() {
            return None;
        }
        let faster = if self.optimum.gap < MOST_GAP {
            format!("up to {:.0} %", (self.optimum.gap * 100.0).ceil())
        } else {
            "many times".to_owned()
        };
        Some(format!(
            "Not the proven optimum: the search ended at its limit of work, and a plan that is {faster} \
            faster may exist."
        ))
    }

    fn predicted(&self, graph: &Graph) -> String {
        let bytes: f64 = graph.parts.iter().map(|part| part.bytes).sum();
        let (seconds, goodput) = (self.prediction.seconds, self.prediction.goodput);
        let between = |low: String, high: String| {
            if low == high {
                String::new()
            } else {
                format!(" ({low} to {high})")
            }
        };
        format!(
            "{} take {}{}, which is {}{}.",
            ByteCount(bytes as u64),
            span_text(seconds.likely),
            between(span_text(seconds.low), span_text(seconds.high)),
            rate_text(goodput.likely),
            between(rate_text(goodput.low), rate_text(goodput.high)),
        )
    }

    fn limits(&self, graph: &Graph) -> Option<String> {
        let names = |set: &Vec<Constraint>| {
            let names: Vec<String> = set.iter().map(|it| named(*it, graph)).collect();
            listed(&names, "and")
        };
        let waiting = self.share_of_round_trips(graph);
        if waiting > MOSTLY_ROUND_TRIPS {
            return Some(format!(
                "Round trips take {:.0} % of the time: connecting, and the growth of windows.",
                waiting * 100.0
            ));
        }
        let names = |set: &Vec<Constraint>| {
            if self.binding.len() == 1 || set.len() == 1 {
                names(set)
            } else {
                format!("{} together", names(set))
            }
        };
        match self.binding.as_slice() {
            [] => None,
            [one] if one.len() == 1 => Some(format!("The bottleneck is {}.", names(one))),
            [together] => Some(format!(
                "The bottlenecks are {} together: more of only one does not help.",
                names(together)
            )),
            several => {
                let each: Vec<String> = several.iter().map(names).collect();
                Some(format!(
                    "The bottlenecks are {}, each in part.",
                    listed(&each, "and")
                ))
            }
        }
    }

    /// Returns the share of the time for round trips: before the first byte, after the last one,
    /// and until the windows have grown.
    fn share_of_round_trips(&self, graph: &Graph) -> f64 {
        let prediction = self.prediction;
        let connecting = prediction.startup - graph.startup;
        (connecting + prediction.ramp.max(0.0)) / prediction.seconds.likely
    }

    fn help(&self, graph: &Graph) -> Option<String> {
        let share = |gain: f64| {
            if gain.is_finite() {
                format!("{:.0} % more", gain / self.optimum.rate * 100.0)
            } else {
                "the rate is then unlimited".to_owned()
            }
        };
        if self.share_of_round_trips(graph) > MOSTLY_ROUND_TRIPS {
            return None;
        }
        let notable = self
            .prices
            .iter()
            .filter(|it| it.gain >= self.optimum.rate * NOTABLE_GAIN);
        let mut named = notable.take(MOST_CHANGES);
        if let Some(best) = named.next() {
            let best = format!("{}: {}", best.change.name(graph), share(best.gain));
            let others: Vec<String> = named
                .map(|it| format!("{} ({})", it.change.name(graph), share(it.gain)))
                .collect();
            let others = if others.is_empty() {
                String::new()
            } else {
                format!(" Other changes: {}.", others.join(", "))
            };
            return Some(format!("The most helpful change is {best}.{others}"));
        }
        let joint = self.joint.as_ref()?;
        let names: Vec<String> = joint.changes.iter().map(|it| it.name(graph)).collect();
        let what = listed(&names, "and");
        Some(if joint.gain >= self.optimum.rate * NOTABLE_GAIN {
            format!(
                "No single change would help, but {what} would together: {}.",
                share(joint.gain)
            )
        } else {
            format!("Even {what} together would not help.")
        })
    }

    fn runner_up(&self, graph: &Graph) -> Option<String> {
        let other = self.alternatives.first()?;
        let lost = (self.optimum.rate - other.rate) / self.optimum.rate;
        let why = if lost >= 1e-4 {
            let limits: Vec<String> = other
                .binding
                .iter()
                .flatten()
                .map(|it| it.name(graph))
                .collect();
            let by = if limits.is_empty() {
                String::new()
            } else {
                format!(", because {} would limit it", listed(&limits, "and"))
            };
            format!("is {:.1} % slower{by}", lost * 100.0)
        } else if let Some(cpu) = other.cpu.filter(|cpu| *cpu > self.optimum.cpu * 1.002) {
            format!(
                "is as fast, but takes {:.1} % more CPU",
                (cpu / self.optimum.cpu - 1.0) * 100.0
            )
        } else if let Some(flows) = other.flows.filter(|flows| *flows < self.optimum.flows) {
            format!(
                "is as fast, with {}: the search for the fewest flows ended with {}",
                counted(flows, "flow"),
                self.optimum.flows
            )
        } else {
            format!(
                "is as fast, with {} instead of {}",
                counted(other.flows.unwrap_or(self.optimum.flows), "flow"),
                self.optimum.flows
            )
        };
        Some(format!(
            "The next best choice, {}, {why}.",
            difference(graph, other)
        ))
    }
}

impl CompressionGain {
    /// Describes the gain in a sentence.
    pub fn text(self) -> String {
        format!(
            "Codecs make the data {:.2} times smaller on the path; without codecs the rate would be {}.",
            self.ratio,
            rate_text(self.plain_rate)
        )
    }
}

fn difference(graph: &Graph, other: &Alternative) -> String {
    let name = |node: &usize| graph.nodes[*node].name.clone();
    match &other.difference {
        Difference::FewerFlows { node, most } => {
            format!("at most {} in {}", counted(*most, "flow"), name(node))
        }
        Difference::MoreFlows { node, least } => {
            format!("{} or more in {}", counted(*least, "flow"), name(node))
        }
        Difference::FewerMembers { node, most } => format!("only {most} of {}", name(node)),
        Difference::WithoutCodec { part, codec } => {
            format!("{} without {codec}", graph.parts[*part].name)
        }
    }
}

/// Describes the chosen flows and codecs.
fn flows(graph: &Graph, optimum: &Optimum) -> String {
    let of_node = |(node, used): (&Node, &NodeUse)| {
        if node.is_logical() || used.members.is_empty() || !node.flows_of.is_empty() {
            return None;
        }
        Some(format!("{} {}", node.name, members_text(node, used)))
    };
    let nodes = graph.nodes.iter().zip(&optimum.nodes);
    let flows: Vec<String> = nodes.filter_map(of_node).collect();
    let codecs: Vec<String> = optimum
        .codecs
        .iter()
        .filter_map(|&(it, _)| {
            let codec = graph.codec_of(it)?;
            let (part, ratio) = (&graph.parts[it.part].name, codec.ratio);
            Some(format!(
                "{part} with {}, {ratio:.2} times smaller",
                codec.name
            ))
        })
        .collect();
    let codecs = if codecs.is_empty() {
        String::new()
    } else {
        format!("; {}", codecs.join(", "))
    };
    format!("Flows: {}{codecs}.", flows.join(", "))
}

/// Formats the flows of the used members: `8`, or `2 × 3 + 1 × 4` if there are several members.
pub(super) fn members_text(node: &Node, used: &NodeUse) -> String {
    let members: Vec<String> = used
        .members
        .iter()
        .map(|&(flows, members)| match (members, node.members) {
            (1, 1) => flows.to_string(),
            _ => format!("{members} × {flows}"),
        })
        .collect();
    if members.is_empty() {
        "0".to_owned()
    } else {
        members.join(" + ")
    }
}

/// Formats the flows with a noun: `1 flow`, `8 flows`, `2 × 3 + 1 × 4 flows`.
pub(super) fn flows_text(node: &Node, used: &NodeUse) -> String {
    let one = used.members.iter().all(|&(flows, _)| flows == 1) && !used.members.is_empty();
    let word = if one { "flow" } else { "flows" };
    format!("{} {word}", members_text(node, used))
}

/// Formats the optima of several policies as a table: rate, rate relative to the best, time, CPU
/// and flows.
pub fn comparison(outcomes: &[(Policy, Result<Optimum, SolveError>)]) -> String {
    let rates = outcomes.iter().filter_map(|(_, it)| it.as_ref().ok());
    let best = rates.map(|it| it.rate).fold(0.0, f64::max);
    let mut text = format!(
        "{:<10} {:>12} {:>9} {:>14} {:>7} {:>7}\n",
        "policy", "rate", "of best", "time for bytes", "cores", "flows"
    );
    for (policy, outcome) in outcomes {
        text += &match outcome {
            Ok(it) => format!(
                "{:<10} {:>12} {:>7.1} % {:>14} {:>7.1} {:>7}\n",
                policy.name(),
                rate_text(it.rate),
                it.rate / best * 100.0,
                span_text(it.seconds),
                it.cpu,
                it.flows
            ),
            Err(error) => format!("{:<10} {error}\n", policy.name()),
        };
    }
    text
}

impl Constraint {
    /// Returns the name of the constraint for display.
    pub fn name(self, graph: &Graph) -> String {
        match self {
            Constraint::Node(node) => graph.nodes[node].name.clone(),
            Constraint::Cores(host) => format!("the CPU of {}", graph.hosts[host].name),
            Constraint::Memory(host) => format!("the memory of {}", graph.hosts[host].name),
        }
    }
}

impl Change {
    /// Returns a description of the change for display.
    pub fn name(self, graph: &Graph) -> String {
        let node = |at: usize| &graph.nodes[at].name;
        let host = |at: usize| &graph.hosts[at].name;
        match self {
            Change::Core(at) => format!("one more core of {}", host(at)),
            Change::Memory(at) => format!("1 GiB more memory of {}", host(at)),
            Change::Member(at) => format!("one more of {}", node(at)),
            Change::Flow(at) => format!("one more flow in {}", node(at)),
            Change::Gigabit(at) => format!("1 Gbit/s more of {}", node(at)),
            Change::HalfLoss(at) => format!("half the loss of {}", node(at)),
            Change::HalfRtt(at) => format!("half the round trip of {}", node(at)),
            Change::Bbr(at) => format!("BBR on {}", node(at)),
            Change::TwiceWindow(at) => format!("windows of twice the size on {}", node(at)),
        }
    }
}

/// Returns the name of a constraint, with a note if its capacity is a guess.
fn named(constraint: Constraint, graph: &Graph) -> String {
    let name = constraint.name(graph);
    match constraint {
        Constraint::Node(node) if graph.nodes[node].uncertainty >= GUESSED => {
            format!("{name} (a guess, because it was not measured)")
        }
        _ => name,
    }
}

/// Joins names: `a`, `a and b`, `a, b and c`.
fn listed(names: &[String], word: &str) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} {word} {last}", most.join(", ")),
    }
}

/// Formats bytes per second: `1.05 GB/s`.
pub fn rate_text(rate: f64) -> String {
    match ByteRate::new(rate) {
        Some(rate) => rate.to_string(),
        None => "no rate".to_owned(),
    }
}

/// Formats seconds: `0.85 s`, `12 s`, `3 min 20 s`, `10 h 35 min`, `2 d 4 h`.
pub fn span_text(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return "no time".to_owned();
    }
    if seconds < 9.95 {
        return format!("{seconds:.2} s");
    }
    // Limited to about a thousand years, far below the maximum of u64.
    let whole = seconds.round().min(3e10) as u64;
    let two = |large: u64, unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{large} {unit}"),
        _ => format!("{large} {unit} {small} {small_unit}"),
    };
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => two(whole / 60, "min", whole % 60, "s"),
        3600..86_400 => two(whole / 3600, "h", whole % 3600 / 60, "min"),
        _ => two(whole / 86_400, "d", whole % 86_400 / 3600, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_two_units_at_most() {
        for (seconds, text) in [
            (0.846, "0.85 s"),
            (12.2, "12 s"),
            (200.0, "3 min 20 s"),
            (38_100.0, "10 h 35 min"),
            (172_800.0, "2 d"),
            (f64::INFINITY, "no time"),
        ] {
            assert_eq!(span_text(seconds), text);
        }
    }
}
