//! Throughput over loss with the fitted laws.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::figures::{MOST_SWEEPS, in_parts};
use crate::analysis::{Analysis, LossLine, cubic_bend, loss_laws, milliseconds};
use crate::plot::{
    LinePlot, Plot, PlotPoint, Series, Table, line_plot, precise_number, rate_unit, with_interval,
};

/// Number of points of a drawn law.
const LAW_POINTS: u32 = 60;

/// Minimum number of loss rates for a figure.
const FEWEST: usize = 3;

/// Draws the lines with at least three loss rates: one figure for each round-trip time, or several
/// if one cannot distinguish all lines.
pub fn over_loss(analysis: &Analysis) -> Vec<Plot> {
    let mut by_rtt: BTreeMap<Duration, Vec<&LossLine>> = BTreeMap::new();
    for line in analysis
        .over_loss
        .iter()
        .filter(|l| l.points.len() >= FEWEST)
    {
        by_rtt.entry(line.rtt).or_default().push(line);
    }
    let figures = by_rtt.into_iter().take(MOST_SWEEPS);
    figures
        .flat_map(|(rtt, lines)| in_parts(&lines, |part| figure(rtt, part, analysis)))
        .collect()
}

fn figure(rtt: Duration, lines: &[&LossLine], analysis: &Analysis) -> Plot {
    let points = lines.iter().flat_map(|line| &line.points);
    let (unit, scale) = rate_unit(
        points
            .clone()
            .map(|point| point.mean.estimate)
            .fold(0.0, f64::max),
    );
    let losses: BTreeSet<u64> = points.map(|point| point.loss.to_bits()).collect();
    let mut capacities: Vec<f64> = lines.iter().map(|l| l.capacity.bits_per_second()).collect();
    capacities.sort_by(f64::total_cmp);
    capacities.dedup();
    let title = format!("Throughput over loss at {} ms", milliseconds(rtt));
    let svg = line_plot(&LinePlot {
        title: title.clone(),
        x_title: "share of segments lost at random, logarithmic".to_owned(),
        y_title: format!("throughput ({unit})"),
        series: lines.iter().map(|line| series(line, scale)).collect(),
        x_labels: losses
            .into_iter()
            .map(f64::from_bits)
            .map(|loss| (loss.log10(), format!("{loss:e}")))
            .collect(),
        levels: capacities
            .iter()
            .map(|capacity| (capacity / scale, "capacity".to_owned()))
            .collect(),
        has_markers: true,
    });
    Plot {
        name: format!("loss-at-{}-us", rtt.as_micros()),
        title,
        caption: format!(
            "Points are means with standard errors, lines are the fitted laws: rate = factor × \
            loss^power, up to the capacity. A line is missing if loss limits fewer than three points. \
            About the power: {}. The power of CUBIC changes at a loss of {:.1e} at this round-trip time.",
            loss_laws(),
            cubic_bend(rtt)
        ),
        svg,
        table: table(lines, (unit, scale), analysis),
    }
}

fn table(lines: &[&LossLine], (unit, scale): (&str, f64), analysis: &Analysis) -> Table {
    let interval = format!("mean, {} % interval", analysis.resampling.level * 100.0);
    let of = format!("{unit} of");
    let columns = [
        of.as_str(),
        "loss",
        "runs",
        &interval,
        "standard error",
        "law",
    ];
    let mut table = Table::of(1, columns);
    let short = |rate: Option<f64>| {
        let none = || "–".to_owned();
        rate.map_or_else(none, |rate| precise_number(rate / scale))
    };
    for line in lines {
        table.rows.extend(line.points.iter().map(|point| {
            vec![
                line.label.clone(),
                format!("{:e}", point.loss),
                point.runs.to_string(),
                with_interval(&point.mean.scaled(1.0 / scale)),
                short(point.standard_error),
                short(line.rate(point.loss)),
            ]
        }));
    }
    table
}

fn series(line: &LossLine, scale: f64) -> Series {
    let points = line.points.iter().map(|point| {
        let error = point.standard_error.map(|error| error / scale);
        let y = point.mean.estimate / scale;
        PlotPoint {
            x: point.loss.log10(),
            y,
            interval: error.map(|error| (y - error, y + error)),
        }
    });
    let ends = line.points.first().zip(line.points.last());
    let curve = ends.into_iter().flat_map(|(first, last)| {
        let (from, to) = (first.loss.log10(), last.loss.log10());
        (0..=LAW_POINTS).filter_map(move |step| {
            let x = from + (to - from) * f64::from(step) / f64::from(LAW_POINTS);
            Some((x, line.rate(10_f64.powf(x))? / scale))
        })
    });
    Series {
        label: line.label.clone(),
        points: points.collect(),
        curve: Some(curve.collect()),
    }
}
