//! Selects and draws the figures of a report.

use std::collections::BTreeSet;
use std::time::Duration;

use super::streams;
use crate::analysis::{Analysis, BoxFigures, FEWEST_BOXED, MethodProfile, milliseconds};
use crate::plot::{
    BoxPanel, LinePlot, MOST_SERIES, Plot, PlotPoint, Series, Share, StackedBar, Table, box_panels,
    line_plot, precise_number, rate_unit, short_number, stacked_bars, with_interval,
};
use crate::profile::PointFigure;
use crate::runs::Runs;
use crate::stats::{Figure, Interval};

/// Draws every figure for which the runs have data.
pub fn figures(runs: &Runs, analysis: &Analysis) -> Vec<Plot> {
    let mut plots = Vec::new();
    plots.extend(profiles(analysis));
    plots.extend(coefficient_lines(analysis));
    plots.extend(c_uc_bars(analysis));
    plots.extend(boxes_by_rtt(analysis));
    plots.extend(streams::all(runs, analysis));
    plots.extend(super::loss::over_loss(analysis));
    plots.extend(layer_bars(analysis));
    plots
}

/// Returns a note about methods that are not drawn. Methods are sorted by utilisation.
fn left_out(count: usize) -> String {
    match count.saturating_sub(MOST_SERIES) {
        0 => String::new(),
        1 => " The table below includes one more method, which is not drawn.".to_owned(),
        more => format!(" The table below includes {more} more methods, which are not drawn."),
    }
}

fn greatest_rate(methods: &[&MethodProfile]) -> f64 {
    let rates = methods.iter().flat_map(|method| {
        let capacity = method.capacity.bits_per_second();
        let points = method.figures.points.iter();
        points.map(move |point| point.summary.greatest * capacity)
    });
    rates.fold(0.0, f64::max)
}

fn profile_series(method: &MethodProfile, label: String, unit: f64) -> Series {
    let scale = method.capacity.bits_per_second() / unit;
    let points = method.figures.points.iter().map(|point| PlotPoint {
        x: point.rtt.as_secs_f64() * 1e3,
        y: point.mean.estimate * scale,
        interval: Some((
            point.mean.interval.low * scale,
            point.mean.interval.high * scale,
        )),
    });
    Series {
        label,
        points: points.collect(),
        curve: None,
    }
}

/// Draws Θ_E(τ), and Θ_T(τ) up to the maximum number of series.
fn profiles(analysis: &Analysis) -> Option<Plot> {
    let transfers = analysis.transfers.iter();
    let all: Vec<(&MethodProfile, &str)> = transfers
        .map(|method| (method, "Θ_E"))
        .chain(analysis.memory.iter().map(|method| (method, "Θ_T")))
        .collect();
    let methods: Vec<&MethodProfile> = all.iter().map(|(method, _)| *method).collect();
    if !methods.iter().any(|m| m.figures.points.len() > 1) {
        return None;
    }
    let (unit, scale) = rate_unit(greatest_rate(&methods));
    let mut capacities: Vec<f64> = methods
        .iter()
        .map(|m| m.capacity.bits_per_second())
        .collect();
    capacities.sort_by(f64::total_cmp);
    capacities.dedup();
    let title = "Throughput profiles";
    let plot = LinePlot {
        title: title.to_owned(),
        x_title: "round-trip time τ (ms)".to_owned(),
        y_title: format!("throughput ({unit})"),
        series: all
            .iter()
            .map(|(m, symbol)| profile_series(m, format!("{symbol} {}", m.label), scale))
            .collect(),
        x_labels: rtt_labels(&methods),
        levels: capacities
            .iter()
            .map(|capacity| (capacity / scale, "capacity".to_owned()))
            .collect(),
        has_markers: true,
    };
    Some(Plot {
        name: "profiles".to_owned(),
        table: plot.table("method", "RTT (ms)", unit),
        svg: line_plot(&plot),
        title: title.to_owned(),
        caption: format!(
            "Mean throughput over round-trip time with {} % intervals. Θ_E is from files to \
             files, Θ_T from memory to memory.{}",
            analysis.resampling.level * 100.0,
            left_out(all.len())
        ),
    })
}

fn rtt_labels(methods: &[&MethodProfile]) -> Vec<(f64, String)> {
    let points = methods.iter().flat_map(|m| &m.figures.points);
    let rtts: BTreeSet<Duration> = points.map(|point| point.rtt).collect();
    rtts.into_iter()
        .map(|rtt| (rtt.as_secs_f64() * 1e3, milliseconds(rtt)))
        .collect()
}

/// Draws C_UC over [τ_L, τ], like the lower halves of Figs. 14 to 18 of paper 001.
fn coefficient_lines(analysis: &Analysis) -> Option<Plot> {
    let with_some = analysis
        .transfers
        .iter()
        .filter(|m| m.figures.coefficients.len() > 1);
    let methods: Vec<&MethodProfile> = with_some.collect();
    if methods.is_empty() {
        return None;
    }
    let series = methods.iter().map(|method| Series {
        label: method.label.clone(),
        points: method
            .figures
            .coefficients
            .iter()
            .map(|row| PlotPoint {
                x: row.upto.as_secs_f64() * 1e3,
                y: row.c_uc.estimate,
                interval: Some((row.c_uc.interval.low, row.c_uc.interval.high)),
            })
            .collect(),
        curve: None,
    });
    let title = "Utilization-concavity coefficient over [τ_L, τ]";
    let plot = LinePlot {
        title: title.to_owned(),
        x_title: "upper end τ of the interval (ms)".to_owned(),
        y_title: "C_UC".to_owned(),
        series: series.collect(),
        // The shortest round-trip time has no coefficient.
        x_labels: rtt_labels(&methods).split_off(1),
        levels: vec![(1.0, String::new())],
        has_markers: true,
    };
    Some(Plot {
        name: "c-uc-over-rtt".to_owned(),
        table: plot.table("method", "τ (ms)", "C_UC"),
        svg: line_plot(&plot),
        title: title.to_owned(),
        caption: format!(
            "C_UC of Θ_E over all intervals that begin at the shortest round-trip time, with {} % \
             intervals.{}",
            analysis.resampling.level * 100.0,
            left_out(methods.len())
        ),
    })
}

/// Draws Fig. 2 of paper 001. Its blue, green and red are replaced by hues that remain
/// distinguishable with colour blindness.
fn c_uc_bars(analysis: &Analysis) -> Option<Plot> {
    let mut table = Table::of(1, ["method", "C_UC", "TCP adds", "not used by TCP"]);
    let mut bars: Vec<StackedBar> = Vec::new();
    for method in &analysis.transfers {
        if let Some((bar, row)) = c_uc_bar(method) {
            bars.push(bar);
            table.rows.push(row);
        }
    }
    if bars.is_empty() {
        return None;
    }
    let title = "C_UC of the methods";
    // Without a memory-to-memory reference, only the C_UC of the transfers is shown.
    let has_tcp = bars.iter().any(|bar| bar.parts.len() > 1);
    let mut legend = vec![(OWN, "C_UC of the transfer".to_owned())];
    let mut beside = "";
    if has_tcp {
        legend.push((TCP, "what TCP adds".to_owned()));
        legend.push((UNUSED, "not used by TCP".to_owned()));
        beside = ", and how far memory-to-memory TCP is from it and from 1";
    } else {
        table.columns.truncate(2);
        table.rows.iter_mut().for_each(|row| row.truncate(2));
    }
    Some(Plot {
        name: "c-uc".to_owned(),
        title: title.to_owned(),
        caption: format!(
            "The coefficient over all round-trip times with its {} % interval{beside}. It is linear \
             in the profile's points and rewards a slow start: read it beside the profiles.",
            analysis.resampling.level * 100.0
        ),
        svg: stacked_bars(title, "C_UC", 1.0, &bars, &legend),
        table,
    })
}

const OWN: &str = "#0072b2";
const TCP: &str = "#009e73";
const UNUSED: &str = "#d55e00";

/// Returns the bar of a method and its row in the table.
fn c_uc_bar(method: &MethodProfile) -> Option<(StackedBar, Vec<String>)> {
    let own = method.figures.coefficients.last()?.c_uc;
    let mut parts = vec![Share {
        length: own.estimate.max(0.0),
        colour: OWN,
    }];
    let mut value = with_interval(&own);
    let mut row = vec![method.label.clone(), value.clone()];
    match method.tcp_adds.zip(method.unused) {
        None => row.extend(["–".to_owned(), "–".to_owned()]),
        Some((adds, unused)) => {
            for (length, colour) in [(adds.estimate, TCP), (unused.estimate, UNUSED)] {
                parts.push(Share {
                    length: length.max(0.0),
                    colour,
                });
            }
            row.push(with_interval(&Figure {
                estimate: adds.estimate,
                interval: adds.interval,
            }));
            row.push(with_interval(&unused));
            value += &format!(
                "; TCP adds {}; not used {}",
                short_number(adds.estimate),
                short_number(unused.estimate)
            );
        }
    }
    let bar = StackedBar {
        label: method.label.clone(),
        parts,
        interval: Some((own.interval.low, own.interval.high)),
        value,
    };
    Some((bar, row))
}

/// Draws box plots by round-trip time, one panel for each method.
fn boxes_by_rtt(analysis: &Analysis) -> Option<Plot> {
    let methods: Vec<&MethodProfile> = analysis.transfers.iter().collect();
    if methods.is_empty() {
        return None;
    }
    let (unit, scale) = rate_unit(greatest_rate(&methods));
    let mut table = box_table("RTT (ms)", unit, analysis);
    let mut panels = Vec::new();
    for method in methods {
        let mut boxes = Vec::new();
        for point in measured_points(method) {
            let rtt = milliseconds(point.figure.rtt);
            if let Some(figures) = point.boxed(scale) {
                table
                    .rows
                    .push(box_row([&method.label, &rtt], &figures, point));
                boxes.push((rtt, figures));
            }
        }
        if panels.len() < MOST_SERIES {
            let label = method.label.clone();
            panels.push(BoxPanel { label, boxes });
        }
    }
    let title = "Throughput by round-trip time";
    Some(Plot {
        name: "boxes-by-rtt".to_owned(),
        title: title.to_owned(),
        caption: boxes_caption(&panels) + &left_out(analysis.transfers.len()),
        svg: box_panels(title, "round-trip time (ms)", unit, &panels),
        table,
    })
}

/// Describes the boxes, and the single runs that are drawn instead of a box.
pub(super) fn boxes_caption(panels: &[BoxPanel]) -> String {
    let all = panels.iter().flat_map(|panel| &panel.boxes);
    let (few, many): (Vec<_>, Vec<_>) = all.partition(|(_, figures)| !figures.runs.is_empty());
    let boxes = "Median, quartiles, and the farthest runs within one and a half times their \
                 distance; rings are runs beyond. The bar beside a box is the interval of its \
                 median. With few runs it is their whole range.";
    match (few.is_empty(), many.is_empty()) {
        (true, _) => boxes.to_owned(),
        (false, true) => {
            format!("Each ring is a run. Fewer than {FEWEST_BOXED} runs have no box.")
        }
        (false, false) => format!(
            "{boxes} Where there are fewer than {FEWEST_BOXED} runs, each of them is a ring."
        ),
    }
}

/// The measurements of a method at one round-trip time.
#[derive(Clone, Copy)]
pub(super) struct MeasuredPoint<'a> {
    /// Capacity in bits per second by which the shares are multiplied.
    pub capacity: f64,
    /// Figures of the point, as shares.
    pub figure: &'a PointFigure,
    /// Repetitions, as shares.
    pub shares: &'a [f64],
}

impl MeasuredPoint<'_> {
    /// Computes the box in a unit of `unit` bits per second.
    pub fn boxed(&self, unit: f64) -> Option<BoxFigures> {
        let factor = self.capacity / unit;
        let values: Vec<f64> = self.shares.iter().map(|share| share * factor).collect();
        let median = self.figure.median.map(|median| median.scaled(factor));
        BoxFigures::of(&values, median.map(|median| median.interval))
    }
}

/// Returns all measured points of a method.
pub(super) fn measured_points(method: &MethodProfile) -> impl Iterator<Item = MeasuredPoint<'_>> {
    let cells = method.sample.cells().iter().zip(&method.figures.points);
    cells.map(|(cell, figure)| MeasuredPoint {
        capacity: method.capacity.bits_per_second(),
        figure,
        shares: &cell.shares,
    })
}

/// Creates the table of a box plot, without rows.
pub(super) fn box_table(x: &str, unit: &str, analysis: &Analysis) -> Table {
    let median = format!("median, {} % interval", analysis.resampling.level * 100.0);
    let columns = [
        "", x, "runs", "low", "quartile", &median, "quartile", "high", "beyond",
    ];
    let mut table = Table::of(1, columns);
    table.columns[0] = format!("{unit} of");
    table
}

/// Returns the row of a box.
pub(super) fn box_row(of: [&str; 2], figures: &BoxFigures, point: MeasuredPoint) -> Vec<String> {
    let median = Figure {
        estimate: figures.median,
        interval: figures.median_interval.unwrap_or(Interval {
            low: figures.median,
            high: figures.median,
        }),
    };
    let [name, place] = of.map(str::to_owned);
    let short = precise_number;
    // Quartiles of too few runs would be interpolations only.
    let quartile = |value| {
        if figures.runs.is_empty() {
            short(value)
        } else {
            "–".to_owned()
        }
    };
    vec![
        name,
        place,
        point.shares.len().to_string(),
        short(figures.low),
        quartile(figures.lower_quartile),
        with_interval(&median),
        quartile(figures.upper_quartile),
        short(figures.high),
        figures.beyond.len().to_string(),
    ]
}

/// Draws the utilisation of each layer, one figure for each method.
fn layer_bars(analysis: &Analysis) -> Vec<Plot> {
    const BUSY: &str = "#0072b2";
    const IDLE: &str = "#dddddd";
    let part = |length: f64, colour| Share { length, colour };
    let methods = analysis.transfers.iter().zip(1..);
    let with_layers = methods.filter(|(method, _)| !method.layers.is_empty());
    let figure = |(method, place): (&MethodProfile, usize)| {
        let mut table = Table::of(1, ["layer", "RTT (ms)", "busy (%)"]);
        let mut bars = Vec::new();
        for layer in &method.layers {
            let busy = layer.busy.scaled(100.0);
            bars.push(StackedBar {
                label: layer.layer.clone(),
                parts: vec![part(busy.estimate, BUSY), part(100.0 - busy.estimate, IDLE)],
                interval: Some((busy.interval.low, busy.interval.high)),
                value: format!(
                    "{:.1} % [{:.1}, {:.1}]",
                    busy.estimate, busy.interval.low, busy.interval.high
                ),
            });
            let all = std::iter::once(("all".to_owned(), layer.busy));
            let by_rtt = layer.by_rtt.iter();
            let by_rtt = by_rtt.map(|(rtt, busy)| (milliseconds(*rtt), *busy));
            table.rows.extend(all.chain(by_rtt).map(|(rtt, busy)| {
                vec![layer.layer.clone(), rtt, with_interval(&busy.scaled(100.0))]
            }));
        }
        let title = format!("{}: utilisation of the layers", method.label);
        let legend = [(BUSY, "busy".to_owned()), (IDLE, "idle".to_owned())];
        let axis = "share of the run's time (%)";
        Plot {
            name: format!("layers-{place}"),
            svg: stacked_bars(&title, axis, 100.0, &bars, &legend),
            title,
            caption: format!(
                "The mean over all runs with its {} % interval. A layer that is nearly always \
                busy limits the transfer.",
                analysis.resampling.level * 100.0
            ),
            table,
        }
    };
    with_layers.take(MOST_SERIES).map(figure).collect()
}

/// Maximum number of round-trip times that get a figure of their own.
pub(super) const MOST_SWEEPS: usize = 8;

/// Splits lines or panels into as many figures as needed to distinguish them. Several figures are
/// numbered.
pub(super) fn in_parts<T>(all: &[T], figure: impl Fn(&[T]) -> Plot) -> Vec<Plot> {
    let parts = all.chunks(MOST_SERIES);
    let count = parts.len();
    let figures = parts.zip(1..).map(|(part, number)| {
        let mut plot = figure(part);
        if count > 1 {
            plot.title += &format!(", {number} of {count}");
            plot.name += &format!("-{number}");
        }
        plot
    });
    figures.collect()
}
