//! Draws an explanation: the graph, throughput by the number of flows of each layer, and the
//! prices.

use longhaul_measure::plot::{
    self, LayerBox, LayerEdge, LinePlot, MOST_SERIES, Plot, PlotPoint, Series, Share, StackedBar,
    Table, escape, layers, line_plot, precise_number, stacked_bars,
};

use super::Explanation;
use super::text::{flows_text, rate_text};
use crate::graph::Graph;
use crate::optimise::prices::Constraint;
use crate::optimise::{Bound, best_rate_near};

/// Numbers of flows that are drawn for each layer, up to four times the best one.
const COUNTS: [u32; 16] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256];

/// Maximum number of prices that are drawn.
const MOST_PRICES: usize = 12;

/// Minimum gain that is drawn. A smaller gain would be shown as 0.0 %.
const LEAST_GAIN: f64 = 0.0005;

impl Explanation {
    /// Draws all figures.
    pub fn figures(&self, graph: &Graph, bound: Bound) -> Vec<Plot> {
        vec![
            self.picture(graph),
            self.by_flows(graph, bound),
            self.price_bars(graph),
        ]
    }

    fn picture(&self, graph: &Graph) -> Plot {
        let columns = columns(graph);
        let binding: Vec<Constraint> = self.binding.iter().flatten().copied().collect();
        let boxes: Vec<LayerBox> = graph
            .nodes
            .iter()
            .zip(&self.optimum.nodes)
            .enumerate()
            .map(|(at, (node, used))| {
                let host = node.host.map(|host| &graph.hosts[host]);
                let by_host = node.host.is_some_and(|host| {
                    used.cpu > 0.0 && binding.contains(&Constraint::Cores(host))
                });
                let lines = if node.is_logical() {
                    vec![rate_text(self.optimum.rate)]
                } else {
                    vec![
                        flows_text(node, used),
                        rate_text(used.rate),
                        match host {
                            Some(host) if used.cpu >= 0.05 => {
                                format!("{:.1} cores of {}", used.cpu, host.name)
                            }
                            _ => format!("{:.0} % busy", used.utilisation * 100.0),
                        },
                    ]
                };
                LayerBox {
                    name: node.name.clone(),
                    lines,
                    busy: used.utilisation,
                    is_binding: by_host || binding.contains(&Constraint::Node(at)),
                    column: columns[at],
                }
            })
            .collect();
        let edges: Vec<LayerEdge> = graph
            .edges
            .iter()
            .zip(&self.optimum.edges)
            .map(|(&ends, &rate)| LayerEdge {
                ends,
                share: rate / self.optimum.rate,
                label: rate_text(rate),
            })
            .collect();
        let rows = boxes.iter().map(|it| {
            let lines = it.lines.join("; ");
            let limits = if it.is_binding { "yes" } else { "no" };
            vec![it.name.clone(), lines, limits.to_owned()]
        });
        let title = "The transfer's components".to_owned();
        Plot {
            name: "plan-graph".to_owned(),
            svg: layers(&title, &boxes, &edges),
            title,
            caption: "The work of each component in the best plan, in source bytes.".to_owned(),
            table: table(3, &["component", "work", "limits"], rows.collect()),
        }
    }

    fn by_flows(&self, graph: &Graph, bound: Bound) -> Plot {
        let mut series = Vec::new();
        let mut greatest = 1;
        for (at, (node, used)) in graph.nodes.iter().zip(&self.optimum.nodes).enumerate() {
            let flexible = node.flows_of.is_empty() && node.most_flows > node.least_flows;
            let best = used.members.iter().map(|&(flows, _)| flows).max();
            let (Some(best), true) = (best, flexible && series.len() < MOST_SERIES) else {
                continue;
            };
            let within = |flows: &&u32| {
                (node.least_flows..=node.most_flows).contains(*flows) && **flows <= best.max(2) * 4
            };
            let mut counts: Vec<u32> = COUNTS.iter().filter(within).copied().collect();
            counts.push(best);
            counts.sort_unstable();
            counts.dedup();
            greatest = greatest.max(counts.last().copied().unwrap_or(1));
            let point = |&flows: &u32| {
                let mut fixed = graph.clone();
                (fixed.nodes[at].least_flows, fixed.nodes[at].most_flows) = (flows, flows);
                let (rate, _) = best_rate_near(&fixed, self.optimum.rate, bound).ok()?;
                Some(PlotPoint {
                    x: f64::from(flows).log2(),
                    y: rate / 1e6,
                    interval: None,
                })
            };
            series.push(Series {
                label: node.name.clone(),
                points: counts.iter().filter_map(point).collect(),
                curve: None,
            });
        }
        let labels = COUNTS
            .iter()
            .filter(|flows| flows.is_power_of_two() && **flows <= greatest);
        let it = LinePlot {
            title: "Throughput by the flows of one layer, the others at their best".to_owned(),
            x_title: "flows of one member".to_owned(),
            y_title: "MB/s of the source".to_owned(),
            series,
            x_labels: labels
                .map(|&flows| (f64::from(flows).log2(), flows.to_string()))
                .collect(),
            levels: Vec::new(),
            has_markers: true,
        };
        Plot {
            name: "plan-flows".to_owned(),
            title: it.title.clone(),
            caption: "Each point is an exact optimum with that number fixed.".to_owned(),
            table: it.table("layer", "flows", "MB/s"),
            svg: line_plot(&it),
        }
    }

    fn price_bars(&self, graph: &Graph) -> Plot {
        let rate = self.optimum.rate;
        let share = |gain: f64| (gain / rate * 100.0).min(1000.0);
        let mut priced: Vec<(String, f64)> = self
            .prices
            .iter()
            .map(|price| (price.change.name(graph), price.gain))
            .collect();
        if let Some(joint) = &self.joint {
            let names: Vec<String> = joint.changes.iter().map(|it| it.name(graph)).collect();
            priced.insert(0, (names.join(" and "), joint.gain));
        }
        // Changes without a gain are listed in the caption.
        let (mut priced, idle): (Vec<_>, Vec<_>) =
            priced.into_iter().partition(|it| it.1 >= rate * LEAST_GAIN);
        priced.truncate(MOST_PRICES);
        let idle: Vec<&str> = idle.iter().map(|it| it.0.as_str()).collect();
        let caption = "Each is the difference of two exact optima.";
        let caption = if idle.is_empty() {
            caption.to_owned()
        } else {
            format!(
                "{caption} These changes have no gain by themselves: {}.",
                idle.join(", ")
            )
        };
        let greatest = priced.iter().map(|it| share(it.1)).fold(1.0, f64::max);
        let value = |gain: f64| {
            if gain.is_finite() {
                format!("+{} ({:.1} %)", rate_text(gain), share(gain))
            } else {
                "no limit".to_owned()
            }
        };
        let bars: Vec<StackedBar> = priced
            .iter()
            .map(|(name, gain)| StackedBar {
                label: name.clone(),
                parts: vec![Share {
                    length: share(*gain),
                    colour: "#0072b2",
                }],
                interval: None,
                value: value(*gain),
            })
            .collect();
        let title = "Gain of a single change".to_owned();
        let rows = priced
            .iter()
            .map(|(name, gain)| vec![name.clone(), precise_number(gain / 1e6)]);
        Plot {
            name: "plan-prices".to_owned(),
            svg: stacked_bars(&title, "% more throughput", greatest, &bars, &[]),
            title,
            caption,
            table: table(1, &["change", "MB/s more"], rows.collect()),
        }
    }
}

/// Formats all figures as one self-contained HTML page: the explanation, then each figure with its
/// numbers.
pub fn page(explanation: &str, figures: &[Plot]) -> String {
    let mut page = String::from(PAGE_BEGINS);
    page += &format!("<p>{}</p>\n", escape(explanation));
    for figure in figures {
        page += &format!(
            "<h2>{}</h2>\n{}\n<p>{}</p>\n<details><summary>Numbers</summary>{}</details>\n",
            escape(&figure.title),
            figure.svg,
            escape(&figure.caption),
            numbers(&figure.table)
        );
    }
    page + "</body></html>\n"
}

const PAGE_BEGINS: &str = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
<title>Plan of a transfer</title>\n<style>body { font: 15px/1.5 sans-serif; max-width: 46em; \
margin: 2em auto; padding: 0 1em; color: #1a1a1a } svg { width: 100%; height: auto } \
table { border-collapse: collapse; font-size: 13px } td, th { padding: 2px 10px; text-align: left; \
border-bottom: 1px solid #ddd }</style></head>\n<body>\n<h1>Plan of a transfer</h1>\n";

fn numbers(table: &Table) -> String {
    let row = |tag: &str, cells: &[String]| {
        let cells: String = cells
            .iter()
            .map(|cell| format!("<{tag}>{}</{tag}>", escape(cell)))
            .collect();
        format!("<tr>{cells}</tr>")
    };
    let rows: String = table.rows.iter().map(|cells| row("td", cells)).collect();
    format!("<table>{}{rows}</table>", row("th", &table.columns))
}

/// Combines all figures into one.
pub fn one_figure(figures: &[Plot]) -> String {
    plot::below_each_other("Plan of a transfer", figures)
}

fn table(words: usize, columns: &[&str], rows: Vec<Vec<String>>) -> Table {
    Table {
        columns: columns.iter().map(|&it| it.to_owned()).collect(),
        words,
        rows,
    }
}

/// Returns the column of each node: the length of the longest path from the start.
fn columns(graph: &Graph) -> Vec<usize> {
    let mut columns = vec![0; graph.nodes.len()];
    for node in graph.in_order().unwrap_or_default() {
        for &(_, to) in graph.edges.iter().filter(|edge| edge.0 == node) {
            columns[to] = columns[to].max(columns[node] + 1);
        }
    }
    columns
}
