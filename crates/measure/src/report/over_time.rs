//! Figures of one run over time.

use super::SampledRun;
use crate::plot::{LinePlot, Plot, PlotPoint, Series, line_plot, rate_unit};
use crate::samples::Stretch;

/// Draws throughput and retransmissions of one run over time.
pub fn run_over_time(run: &SampledRun, number: usize) -> Vec<Plot> {
    let rates = run.stretches.iter().map(|s| s.rate.bits_per_second());
    let (unit, scale) = rate_unit(rates.fold(0.0, f64::max));
    // All stretches have the same length, and the first begins at the start of the run.
    let first = run.stretches.first().map(|first| first.at.as_secs_f64());
    let length = 2.0 * first.unwrap_or(0.5);
    if length <= 0.0 {
        // The run was shorter than a nanosecond.
        return Vec::new();
    }
    vec![
        over_time(
            run,
            ("Throughput", &format!("throughput-over-time-{number}")),
            format!("acknowledged ({unit})"),
            "All streams of one run together, from TCP's own counters. TCP counts bytes once all \
            earlier bytes have arrived, so after a loss many are counted at once.",
            |stretch| stretch.rate.bits_per_second() / scale,
        ),
        over_time(
            run,
            (
                "Retransmissions",
                &format!("retransmissions-over-time-{number}"),
            ),
            "segments sent again in a second".to_owned(),
            "Segments that TCP sent again in each stretch of time, for each second of it; all \
             streams of one run together, from TCP's own counters. Some of these segments were not lost.",
            |stretch| stretch.retransmitted_segments / length,
        ),
    ]
}

fn over_time(
    run: &SampledRun,
    (what, name): (&str, &str),
    y_title: String,
    caption: &str,
    value: impl Fn(&Stretch) -> f64,
) -> Plot {
    let points = run.stretches.iter().map(|stretch| PlotPoint {
        x: stretch.at.as_secs_f64(),
        y: value(stretch),
        interval: None,
    });
    let series = Series {
        label: String::new(),
        points: points.collect(),
        curve: None,
    };
    let title = format!("{what} over time: {}", run.label);
    let plot = LinePlot {
        title: title.clone(),
        x_title: "time (s)".to_owned(),
        y_title,
        series: vec![series],
        x_labels: Vec::new(),
        levels: Vec::new(),
        has_markers: false,
    };
    let mut table = plot.table("", &plot.x_title, &plot.y_title);
    // With a single run, the table needs no column of names.
    table.words = 0;
    table.columns.remove(0);
    table.rows.iter_mut().for_each(|row| drop(row.remove(0)));
    Plot {
        name: name.to_owned(),
        svg: line_plot(&plot),
        title,
        caption: caption.to_owned(),
        table,
    }
}
