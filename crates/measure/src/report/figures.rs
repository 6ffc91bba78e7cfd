//! Which figures a report has.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::SampledRun;
use crate::analysis::{Analysis, BoxFigures, MethodProfile, milliseconds};
use crate::plot::{
    BoxPanel, HeatMap, LinePlot, MOST_SERIES, Plot, PlotPoint, Series, Share, StackedBar,
    box_panels, heat_map, line_plot, rate_unit, stacked_bars,
};
use crate::record::{Ended, Measures};
use crate::runs::{Configuration, Run, Runs};
use crate::stats::{mean, median, standard_error};

/// Every figure that the runs have data for.
pub fn figures(runs: &Runs, analysis: &Analysis) -> Vec<Plot> {
    let mut plots = Vec::new();
    plots.extend(profiles(analysis));
    plots.extend(coefficient_lines(analysis));
    plots.extend(c_uc_bars(analysis));
    plots.extend(boxes_by_rtt(analysis));
    plots.extend(sweeps_over_streams(runs));
    plots.extend(boxes_by_streams(runs));
    plots.extend(streams_by_rtt(runs));
    plots.extend(super::loss::over_loss(analysis));
    plots.extend(layer_bars(runs, analysis));
    plots
}

/// A note where not everything fits into a figure of methods, which come by utilisation.
fn left_out(count: usize) -> String {
    match count.saturating_sub(MOST_SERIES) {
        0 => String::new(),
        more => format!(" The {more} with the least utilisation are left out."),
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

/// Θ_E(τ), and Θ_T(τ) while there is room.
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
    let svg = line_plot(&LinePlot {
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
    });
    Some(Plot {
        name: "profiles".to_owned(),
        title: title.to_owned(),
        caption: format!(
            "Mean throughput over round-trip time with {} % intervals. Θ_E is from files to \
             files, Θ_T from memory to memory.{}",
            analysis.resampling.level * 100.0,
            left_out(all.len())
        ),
        svg,
    })
}

fn rtt_labels(methods: &[&MethodProfile]) -> Vec<(f64, String)> {
    let points = methods.iter().flat_map(|m| &m.figures.points);
    let rtts: BTreeSet<Duration> = points.map(|point| point.rtt).collect();
    rtts.into_iter()
        .map(|rtt| (rtt.as_secs_f64() * 1e3, milliseconds(rtt)))
        .collect()
}

/// C_UC over [τ_L, τ], as the lower halves of Figs. 14 to 18 of paper 001.
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
    let svg = line_plot(&LinePlot {
        title: title.to_owned(),
        x_title: "upper end τ of the interval (ms)".to_owned(),
        y_title: "C_UC".to_owned(),
        series: series.collect(),
        // The first has no coefficient.
        x_labels: rtt_labels(&methods).split_off(1),
        levels: vec![(1.0, String::new())],
        has_markers: true,
    });
    Some(Plot {
        name: "c-uc-over-rtt".to_owned(),
        title: title.to_owned(),
        caption: format!(
            "C_UC of Θ_E over all intervals that begin at the shortest round-trip time, with {} % \
             intervals.{}",
            analysis.resampling.level * 100.0,
            left_out(methods.len())
        ),
        svg,
    })
}

/// Fig. 2 of paper 001. Its blue, green and red in hues that all can tell apart.
fn c_uc_bars(analysis: &Analysis) -> Option<Plot> {
    const OWN: &str = "#0072b2";
    const TCP: &str = "#009e73";
    const UNUSED: &str = "#d55e00";
    let bars: Vec<StackedBar> = analysis
        .transfers
        .iter()
        .filter_map(|method| {
            let own = method.figures.coefficients.last()?.c_uc;
            let mut parts = vec![Share {
                length: own.estimate.max(0.0),
                colour: OWN,
            }];
            let tcp = method.tcp.and_then(|index| {
                let tcp = analysis.memory[index].figures.coefficients.last()?;
                Some(tcp.c_uc.estimate)
            });
            if let Some(tcp) = tcp {
                let upper = tcp.max(own.estimate);
                for (length, colour) in [(upper - own.estimate, TCP), (1.0 - upper, UNUSED)] {
                    parts.push(Share {
                        length: length.max(0.0),
                        colour,
                    });
                }
            }
            Some(StackedBar {
                label: method.label.clone(),
                parts,
                interval: Some((own.interval.low, own.interval.high)),
            })
        })
        .collect();
    if bars.is_empty() {
        return None;
    }
    let title = "C_UC of the methods";
    let legend = [
        (OWN, "C_UC of the transfer".to_owned()),
        (TCP, "what TCP adds".to_owned()),
        (UNUSED, "not used by TCP".to_owned()),
    ];
    Some(Plot {
        name: "c-uc".to_owned(),
        title: title.to_owned(),
        caption: format!(
            "The coefficient over all round-trip times with its {} % interval, and how far \
             memory-to-memory TCP is from it and from 1. It is linear in the profile's points \
             and rewards a slow start: read it beside the profiles.",
            analysis.resampling.level * 100.0
        ),
        svg: stacked_bars(title, "C_UC", 1.0, &bars, &legend),
    })
}

/// Box plots by round-trip time, a panel a method.
fn boxes_by_rtt(analysis: &Analysis) -> Option<Plot> {
    let methods: Vec<&MethodProfile> = analysis.transfers.iter().take(MOST_SERIES).collect();
    if methods.is_empty() {
        return None;
    }
    let (unit, scale) = rate_unit(greatest_rate(&methods));
    let panels: Vec<BoxPanel> = methods
        .iter()
        .map(|method| BoxPanel {
            label: method.label.clone(),
            boxes: method
                .sample
                .cells()
                .iter()
                .filter_map(|cell| {
                    let factor = method.capacity.bits_per_second() / scale;
                    let values: Vec<f64> = cell.shares.iter().map(|s| s * factor).collect();
                    Some((milliseconds(cell.rtt), BoxFigures::of(&values)?))
                })
                .collect(),
        })
        .collect();
    let title = "Throughput by round-trip time";
    Some(Plot {
        name: "boxes-by-rtt".to_owned(),
        title: title.to_owned(),
        caption: format!(
            "Median, quartiles, and the farthest runs within one and a half times their distance; \
             rings are runs beyond.{}",
            left_out(analysis.transfers.len())
        ),
        svg: box_panels(title, "round-trip time (ms)", unit, &panels),
    })
}

/// How busy each layer was, a panel a method.
fn layer_bars(runs: &Runs, analysis: &Analysis) -> Vec<Plot> {
    const BUSY: &str = "#0072b2";
    const IDLE: &str = "#dddddd";
    let part = |length: f64, colour| Share { length, colour };
    let methods = analysis.transfers.iter().enumerate();
    let with_layers = methods.filter_map(|(place, method)| {
        let layers = runs.layers(method.configuration);
        let bars = layers.iter().map(|(layer, busy)| StackedBar {
            label: (*layer).to_owned(),
            parts: vec![part(busy * 100.0, BUSY), part(100.0 - busy * 100.0, IDLE)],
            interval: None,
        });
        let bars: Vec<StackedBar> = bars.collect();
        (!bars.is_empty()).then(|| {
            let title = format!("{}: utilisation of the layers", method.label);
            let legend = [(BUSY, "busy".to_owned()), (IDLE, "idle".to_owned())];
            let axis = "share of the run's time (%)";
            Plot {
                name: format!("layers-{}", place + 1),
                svg: stacked_bars(&title, axis, 100.0, &bars, &legend),
                title,
                caption: "The mean over all runs. A layer that is nearly always busy is what \
                          bounds the transfer."
                    .to_owned(),
            }
        })
    });
    with_layers.take(MOST_SERIES).collect()
}

/// A configuration's name without the knob that an axis shows.
fn without_streams(runs: &Runs, index: usize, labels: &[String]) -> String {
    let streams = runs.configurations()[index].knobs.get("streams");
    let streams = streams
        .map(|value| format!(" streams={value}"))
        .unwrap_or_default();
    match streams.is_empty() {
        true => labels[index].clone(),
        false => labels[index].replacen(&streams, "", 1),
    }
}

/// Rates by series, then by streams, at one round-trip time.
type StreamRates = BTreeMap<String, BTreeMap<u64, Vec<f64>>>;

/// Transfers that have a number of streams, by round-trip time.
fn by_streams(runs: &Runs) -> BTreeMap<Duration, StreamRates> {
    let labels = runs.labels();
    let names: Vec<Option<(u64, String)>> = runs
        .configurations()
        .iter()
        .enumerate()
        .map(|(index, configuration): (usize, &Configuration)| {
            let streams = configuration
                .count("streams")
                .filter(|streams| *streams > 0)?;
            let is_transfer = configuration.measures == Measures::Transfer;
            is_transfer.then(|| (streams, without_streams(runs, index, &labels)))
        })
        .collect();
    let mut rates: BTreeMap<Duration, StreamRates> = BTreeMap::new();
    let done = |run: &&Run| run.ended == Ended::Done;
    for run in runs.runs().iter().filter(done) {
        if let Some((streams, name)) = &names[run.configuration] {
            let at_rtt = rates.entry(run.rtt).or_default();
            let series = at_rtt.entry(name.clone()).or_default();
            let values = series.entry(*streams).or_default();
            values.push(run.goodput.bits_per_second());
        }
    }
    rates
}

/// The most round-trip times that get a figure of their own.
pub(super) const MOST_SWEEPS: usize = 8;

/// Throughput over streams, mean with standard error, as Figs. 3 to 6 of paper
/// 000: one figure a round-trip time, or several where one cannot tell all lines
/// apart.
fn sweeps_over_streams(runs: &Runs) -> Vec<Plot> {
    let all = by_streams(runs);
    let swept = all.iter().filter(|(_, series)| {
        let streams: BTreeSet<&u64> = series.values().flat_map(BTreeMap::keys).collect();
        streams.len() > 2
    });
    let figures = swept.take(MOST_SWEEPS).flat_map(|(rtt, series)| {
        let lines: Vec<Line> = series.iter().collect();
        in_parts(&lines, |part| sweep_over_streams(*rtt, part))
    });
    figures.collect()
}

/// As many figures as it takes to tell all lines or panels apart, each with its number
/// where there are several.
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

/// A line's name, and its rates by streams.
type Line<'a> = (&'a String, &'a BTreeMap<u64, Vec<f64>>);

fn sweep_over_streams(rtt: Duration, lines: &[Line]) -> Plot {
    let values = lines.iter().flat_map(|line| line.1.values()).flatten();
    let (unit, scale) = rate_unit(values.copied().fold(0.0, f64::max));
    let series = lines.iter().map(|(label, by_streams)| Series {
        label: (*label).clone(),
        points: by_streams
            .iter()
            .filter_map(|(streams, rates)| {
                let centre = mean(rates)? / scale;
                let error = standard_error(rates).map(|error| error / scale);
                Some(PlotPoint {
                    x: (*streams as f64).log2(),
                    y: centre,
                    interval: error.map(|error| (centre - error, centre + error)),
                })
            })
            .collect(),
        curve: None,
    });
    let title = format!("Throughput over streams at {} ms", milliseconds(rtt));
    let streams: BTreeSet<u64> = lines.iter().flat_map(|l| l.1.keys().copied()).collect();
    let svg = line_plot(&LinePlot {
        title: title.clone(),
        x_title: "TCP streams, by doublings".to_owned(),
        y_title: format!("throughput ({unit})"),
        series: series.collect(),
        x_labels: streams
            .into_iter()
            .map(|streams| ((streams as f64).log2(), streams.to_string()))
            .collect(),
        levels: Vec::new(),
        has_markers: true,
    });
    Plot {
        name: format!("streams-at-{}-us", rtt.as_micros()),
        title,
        caption: "Mean with its standard error; what else was set distinguishes the lines."
            .to_owned(),
        svg,
    }
}

/// Box plots by streams, a panel for what else was set: one figure a round-trip time.
fn boxes_by_streams(runs: &Runs) -> Vec<Plot> {
    let all = by_streams(runs);
    let swept = all.iter().filter(|(_, series)| {
        let most = series.values().map(BTreeMap::len).max();
        most > Some(1)
    });
    swept
        .take(MOST_SWEEPS)
        .flat_map(|(rtt, series)| {
            let panels: Vec<Line> = series.iter().collect();
            in_parts(&panels, |part| boxes_at(*rtt, part))
        })
        .collect()
}

fn boxes_at(rtt: Duration, series: &[Line]) -> Plot {
    let values = series.iter().flat_map(|line| line.1.values()).flatten();
    let (unit, scale) = rate_unit(values.copied().fold(0.0, f64::max));
    let panels = series.iter().map(|(label, by_streams)| {
        let boxes = by_streams.iter().filter_map(|(streams, rates)| {
            let scaled: Vec<f64> = rates.iter().map(|rate| rate / scale).collect();
            Some((streams.to_string(), BoxFigures::of(&scaled)?))
        });
        BoxPanel {
            label: (*label).clone(),
            boxes: boxes.collect(),
        }
    });
    let panels: Vec<BoxPanel> = panels.collect();
    let title = format!("Throughput by streams at {} ms", milliseconds(rtt));
    Plot {
        name: format!("boxes-by-streams-at-{}-us", rtt.as_micros()),
        svg: box_panels(&title, "TCP streams", unit, &panels),
        title,
        caption: "Median, quartiles, and the farthest runs within one and a half times their \
                  distance; rings are runs beyond."
            .to_owned(),
    }
}

/// Median throughput over round-trip time and streams, a map a method.
fn streams_by_rtt(runs: &Runs) -> Vec<Plot> {
    let all = by_streams(runs);
    let mut maps: BTreeMap<&str, BTreeMap<u64, BTreeMap<Duration, f64>>> = BTreeMap::new();
    for (rtt, series) in &all {
        for (label, by_streams) in series {
            for (streams, rates) in by_streams {
                let rows = maps.entry(label).or_default();
                let row = rows.entry(*streams).or_default();
                row.extend(median(rates).map(|rate| (*rtt, rate)));
            }
        }
    }
    let wide = maps
        .into_iter()
        .filter(|(_, rows)| rows.len() > 1 && rows.values().any(|row| row.len() > 1));
    wide.take(MOST_SERIES)
        .enumerate()
        .map(|(place, (label, rows))| {
            let values = rows.values().flat_map(BTreeMap::values);
            let (unit, scale) = rate_unit(values.copied().fold(0.0, f64::max));
            let rtts: BTreeSet<Duration> = rows.values().flat_map(|r| r.keys().copied()).collect();
            let cells = rows.values().map(|row| {
                rtts.iter()
                    .map(|rtt| row.get(rtt).map(|rate| rate / scale))
                    .collect()
            });
            let title = format!("{label}: throughput over round-trip time and streams");
            let map = HeatMap {
                title: title.clone(),
                columns: (
                    "round-trip time (ms)".to_owned(),
                    rtts.iter().map(|rtt| milliseconds(*rtt)).collect(),
                ),
                rows: (
                    "TCP streams".to_owned(),
                    rows.keys().map(u64::to_string).collect(),
                ),
                value: format!("median throughput ({unit})"),
                cells: cells.collect(),
            };
            Plot {
                name: format!("streams-by-rtt-{}", place + 1),
                title,
                caption: "Darker is faster; a dash was not measured.".to_owned(),
                svg: heat_map(&map),
            }
        })
        .collect()
}

/// Throughput and retransmissions of one run over time.
pub fn run_over_time(run: &SampledRun, number: usize) -> Vec<Plot> {
    let rates = run.stretches.iter().map(|s| s.rate.bits_per_second());
    let (unit, scale) = rate_unit(rates.fold(0.0, f64::max));
    let series = |of: &dyn Fn(&crate::samples::Stretch) -> f64| {
        let points = run.stretches.iter().map(|stretch| PlotPoint {
            x: stretch.at.as_secs_f64(),
            y: of(stretch),
            interval: None,
        });
        vec![Series {
            label: String::new(),
            points: points.collect(),
            curve: None,
        }]
    };
    let plot = |what: &str, name: &str, y_title: String, series: Vec<Series>| {
        let title = format!("{what} over time: {}", run.label);
        Plot {
            name: format!("{name}-{number}"),
            svg: line_plot(&LinePlot {
                title: title.clone(),
                x_title: "time (s)".to_owned(),
                y_title,
                series,
                x_labels: Vec::new(),
                levels: Vec::new(),
                has_markers: false,
            }),
            title,
            caption: "All streams of one run together, from TCP's own counters.".to_owned(),
        }
    };
    vec![
        plot(
            "Throughput",
            "throughput-over-time",
            format!("acknowledged ({unit})"),
            series(&|stretch| stretch.rate.bits_per_second() / scale),
        ),
        plot(
            "Retransmissions",
            "retransmissions-over-time",
            "segments sent again".to_owned(),
            series(&|stretch| stretch.retransmitted_segments),
        ),
    ]
}
