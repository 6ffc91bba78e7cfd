//! Figures by number of TCP streams.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::figures::{
    MOST_SWEEPS, MeasuredPoint, box_row, box_table, boxes_caption, in_parts, measured_points,
};
use crate::analysis::{Analysis, milliseconds};
use crate::plot::{
    BoxPanel, HeatMap, LinePlot, MOST_SERIES, Plot, PlotPoint, Series, Table, box_panels, heat_map,
    line_plot, precise_number, rate_unit, with_interval,
};
use crate::runs::Runs;

/// Measurements at one round-trip time, by series and number of streams.
type StreamPoints<'a> = BTreeMap<String, BTreeMap<u64, MeasuredPoint<'a>>>;

/// Draws all figures of this module.
pub(super) fn all(runs: &Runs, analysis: &Analysis) -> Vec<Plot> {
    let points = by_streams(runs, analysis);
    let mut plots = sweeps_over_streams(&points, analysis);
    plots.extend(boxes_by_streams(&points, analysis));
    plots.extend(streams_by_rtt(&points, analysis));
    plots
}

/// Groups the transfers that have a number of streams by round-trip time.
fn by_streams<'a>(runs: &Runs, analysis: &'a Analysis) -> BTreeMap<Duration, StreamPoints<'a>> {
    let mut by_rtt: BTreeMap<Duration, StreamPoints<'a>> = BTreeMap::new();
    for method in &analysis.transfers {
        let streams = runs.configurations()[method.configuration].count("streams");
        let Some(streams) = streams.filter(|streams| *streams > 0) else {
            continue;
        };
        // Removes the number of streams from the name, because an axis shows it.
        let name = method.label.replacen(&format!(" streams={streams}"), "", 1);
        for point in measured_points(method) {
            let series = by_rtt.entry(point.figure.rtt).or_default();
            let line = series.entry(name.clone()).or_default();
            line.insert(streams, point);
        }
    }
    by_rtt
}

/// Draws throughput by number of streams, as mean and standard error, like Figs. 3 to 6 of paper
/// 000: one figure for each round-trip time, or several if one cannot distinguish all lines.
fn sweeps_over_streams(all: &BTreeMap<Duration, StreamPoints>, analysis: &Analysis) -> Vec<Plot> {
    let swept = all.iter().filter(|(_, series)| {
        let streams: BTreeSet<&u64> = series.values().flat_map(BTreeMap::keys).collect();
        streams.len() > 2
    });
    let figures = swept.take(MOST_SWEEPS).flat_map(|(rtt, series)| {
        let lines: Vec<Line> = series.iter().collect();
        in_parts(&lines, |part| sweep_over_streams(*rtt, part, analysis))
    });
    figures.collect()
}

/// Name of a line, and its points by number of streams.
type Line<'a> = (&'a String, &'a BTreeMap<u64, MeasuredPoint<'a>>);

/// Returns the unit of the rates in these lines.
fn unit_of(lines: &[Line]) -> (&'static str, f64) {
    let points = lines.iter().flat_map(|line| line.1.values());
    let rates = points.map(|point| point.figure.summary.greatest * point.capacity);
    rate_unit(rates.fold(0.0, f64::max))
}

fn sweep_over_streams(rtt: Duration, lines: &[Line], analysis: &Analysis) -> Plot {
    let (unit, scale) = unit_of(lines);
    let interval = format!("mean, {} % interval", analysis.resampling.level * 100.0);
    let unit_of_line = format!("{unit} of");
    let columns = [
        unit_of_line.as_str(),
        "streams",
        "runs",
        &interval,
        "standard error",
    ];
    let mut table = Table::of(1, columns);
    let mut series = Vec::new();
    for (label, by_streams) in lines {
        let mut points = Vec::new();
        for (streams, point) in by_streams.iter() {
            let factor = point.capacity / scale;
            let mean = point.figure.mean.scaled(factor);
            let error = point.figure.summary.standard_error;
            let error = error.map(|error| error * factor);
            points.push(PlotPoint {
                x: (*streams as f64).log2(),
                y: mean.estimate,
                interval: error.map(|error| (mean.estimate - error, mean.estimate + error)),
            });
            table.rows.push(vec![
                (*label).clone(),
                streams.to_string(),
                point.shares.len().to_string(),
                with_interval(&mean),
                error.map_or_else(|| "–".to_owned(), precise_number),
            ]);
        }
        series.push(Series {
            label: (*label).clone(),
            points,
            curve: None,
        });
    }
    let title = format!("Throughput over streams at {} ms", milliseconds(rtt));
    let streams: BTreeSet<u64> = lines.iter().flat_map(|l| l.1.keys().copied()).collect();
    let svg = line_plot(&LinePlot {
        title: title.clone(),
        x_title: "TCP streams, by doublings".to_owned(),
        y_title: format!("throughput ({unit})"),
        series,
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
        caption: "Mean with its standard error; the other settings distinguish the lines."
            .to_owned(),
        svg,
        table,
    }
}

/// Draws box plots by number of streams, one panel for each combination of the other settings and
/// one figure for each round-trip time.
fn boxes_by_streams(all: &BTreeMap<Duration, StreamPoints>, analysis: &Analysis) -> Vec<Plot> {
    let swept = all.iter().filter(|(_, series)| {
        let most = series.values().map(BTreeMap::len).max();
        most > Some(1)
    });
    swept
        .take(MOST_SWEEPS)
        .flat_map(|(rtt, series)| {
            let panels: Vec<Line> = series.iter().collect();
            in_parts(&panels, |part| boxes_at(*rtt, part, analysis))
        })
        .collect()
}

fn boxes_at(rtt: Duration, series: &[Line], analysis: &Analysis) -> Plot {
    let (unit, scale) = unit_of(series);
    let mut table = box_table("streams", unit, analysis);
    let mut panels = Vec::new();
    for (label, by_streams) in series {
        let mut boxes = Vec::new();
        for (streams, point) in by_streams.iter() {
            if let Some(figures) = point.boxed(scale) {
                let streams = streams.to_string();
                table
                    .rows
                    .push(box_row([label, &streams], &figures, *point));
                boxes.push((streams, figures));
            }
        }
        let label = (*label).clone();
        panels.push(BoxPanel { label, boxes });
    }
    let title = format!("Throughput by streams at {} ms", milliseconds(rtt));
    Plot {
        name: format!("boxes-by-streams-at-{}-us", rtt.as_micros()),
        svg: box_panels(&title, "TCP streams", unit, &panels),
        title,
        caption: boxes_caption(&panels),
        table,
    }
}

/// Draws median throughput by round-trip time and number of streams, one map for each method.
fn streams_by_rtt(all: &BTreeMap<Duration, StreamPoints>, analysis: &Analysis) -> Vec<Plot> {
    let mut maps: BTreeMap<&str, Rows> = BTreeMap::new();
    for (rtt, series) in all {
        for (label, by_streams) in series {
            for (streams, point) in by_streams {
                let rows = maps.entry(label).or_default();
                rows.entry(*streams).or_default().insert(*rtt, *point);
            }
        }
    }
    let wide = maps
        .into_iter()
        .filter(|(_, rows)| rows.len() > 1 && rows.values().any(|row| row.len() > 1));
    wide.take(MOST_SERIES)
        .zip(1..)
        .map(|((label, rows), place)| heat_map_of(label, &rows, place, analysis))
        .collect()
}

/// Measurements by number of streams and round-trip time.
type Rows<'a> = BTreeMap<u64, BTreeMap<Duration, MeasuredPoint<'a>>>;

fn heat_map_of(label: &str, rows: &Rows, place: usize, analysis: &Analysis) -> Plot {
    let rate = |point: &MeasuredPoint| point.figure.summary.median * point.capacity;
    let rates = rows.values().flat_map(BTreeMap::values).map(rate);
    let (unit, scale) = rate_unit(rates.fold(0.0, f64::max));
    let rtts: BTreeSet<Duration> = rows.values().flat_map(|r| r.keys().copied()).collect();
    let median = format!(
        "median {unit}, {} % interval",
        analysis.resampling.level * 100.0
    );
    let mut table = Table::of(0, ["streams", "RTT (ms)", "runs", &median]);
    let mut cells = Vec::new();
    for (streams, row) in rows {
        for (rtt, point) in row {
            let median = point
                .figure
                .median
                .map(|m| m.scaled(point.capacity / scale));
            table.rows.push(vec![
                streams.to_string(),
                milliseconds(*rtt),
                point.shares.len().to_string(),
                median.as_ref().map_or_else(String::new, with_interval),
            ]);
        }
        let at = |rtt| row.get(rtt).map(|point| rate(point) / scale);
        cells.push(rtts.iter().map(at).collect());
    }
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
        cells,
    };
    Plot {
        name: format!("streams-by-rtt-{place}"),
        title,
        caption: "Darker is faster. A dash means not measured.".to_owned(),
        svg: heat_map(&map),
        table,
    }
}
