//! Line plots with intervals: profiles, coefficients over RTT, sweeps over a knob, and runs over
//! time.

use super::axes::{Frame, Scale};
use super::svg::{Anchor, Stroke, Svg, Type};
use super::{INK, SERIES_STYLES, SMALL_TEXT_SIZE, Table, WIDTH, precise_number, with_interval};
use crate::stats::{Figure, Interval};

/// A point with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlotPoint {
    /// Horizontal value.
    pub x: f64,
    /// Vertical value.
    pub y: f64,
    /// Ends of the interval, if known.
    pub interval: Option<(f64, f64)>,
}

/// A line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Name in the legend.
    pub label: String,
    /// Points in ascending order of x.
    pub points: Vec<PlotPoint>,
    /// A fitted curve that is drawn instead of lines between the points, in ascending order of x.
    /// Empty if no fit was found.
    pub curve: Option<Vec<(f64, f64)>>,
}

/// The data of a line plot.
#[derive(Clone, Debug, PartialEq)]
pub struct LinePlot {
    /// Text alternative of the figure.
    pub title: String,
    /// Title of the horizontal axis, with its unit.
    pub x_title: String,
    /// Title of the vertical axis, with its unit.
    pub y_title: String,
    /// At most [`super::MOST_SERIES`] series are drawn.
    pub series: Vec<Series>,
    /// Positions and texts of the horizontal labels. If empty, round numbers are used.
    pub x_labels: Vec<(f64, String)>,
    /// Horizontal lines with names, such as capacities.
    pub levels: Vec<(f64, String)>,
    /// True if points have markers. False for a run over time.
    pub has_markers: bool,
}

impl LinePlot {
    /// Returns the values as a table, one row for each point, including series that are not drawn.
    /// The arguments are the column titles, with units.
    pub fn table(&self, series: &str, x: &str, y: &str) -> Table {
        let mut table = Table::of(1, [series, x, y]);
        let at = |x: f64| {
            let label = self.x_labels.iter().find(|(place, _)| *place == x);
            label.map_or_else(|| precise_number(x), |(_, label)| label.clone())
        };
        for series in &self.series {
            let rows = series.points.iter().map(|point| {
                let value = match point.interval {
                    None => precise_number(point.y),
                    Some((low, high)) => with_interval(&Figure {
                        estimate: point.y,
                        interval: Interval { low, high },
                    }),
                };
                vec![series.label.clone(), at(point.x), value]
            });
            table.rows.extend(rows);
        }
        table
    }
}

const TOP: f64 = 12.0;
const PLOT_HEIGHT: f64 = 300.0;
const LEGEND_LINE: f64 = 19.0;
/// Width of a line sample in the legend.
const LEGEND_MARK: f64 = 34.0;

/// Draws a line plot.
pub fn line_plot(plot: &LinePlot) -> String {
    let shown = &plot.series[..plot.series.len().min(SERIES_STYLES.len())];
    let legend = legend_places(shown);
    let rows = legend.last().map_or(0.0, |(_, row)| row + 1.0);
    let frame = Frame {
        left: 64.0,
        top: TOP,
        right: WIDTH - 16.0,
        bottom: TOP + PLOT_HEIGHT,
    };
    let mut svg = Svg::new(frame.bottom + 52.0 + rows * LEGEND_LINE, &plot.title);
    let (x, y) = scales(plot, shown, &frame);
    frame.draw_vertical(&mut svg, &y, &plot.y_title);
    let labels = if !plot.x_labels.is_empty() {
        plot.x_labels
            .iter()
            .map(|(value, label)| (x.place(*value), label.clone()))
            .collect()
    } else {
        x.ticks()
            .iter()
            .map(|tick| (x.place(*tick), super::short_number(*tick)))
            .collect::<Vec<_>>()
    };
    frame.draw_labels(&mut svg, &labels, &plot.x_title);
    for (level, name) in &plot.levels {
        draw_level(&mut svg, &frame, y.place(*level), name);
    }
    for (place, series) in shown.iter().enumerate() {
        draw_series(&mut svg, place, series, &x, &y, plot.has_markers);
    }
    for ((left, row), (place, series)) in legend.iter().zip(shown.iter().enumerate()) {
        let at = (*left, frame.bottom + 58.0 + row * LEGEND_LINE);
        draw_legend_entry(&mut svg, place, series, at, plot.has_markers);
    }
    svg.finish()
}

fn scales(plot: &LinePlot, shown: &[Series], frame: &Frame) -> (Scale, Scale) {
    let points = || shown.iter().flat_map(|series| &series.points);
    let finite = |value: &f64| value.is_finite();
    let (mut least_x, mut greatest_x) = (f64::INFINITY, f64::NEG_INFINITY);
    for x in points().map(|point| point.x).filter(finite) {
        (least_x, greatest_x) = (least_x.min(x), greatest_x.max(x));
    }
    let edges = points().flat_map(|point| {
        let (low, high) = point.interval.unwrap_or((point.y, point.y));
        [point.y, low, high]
    });
    let edges: Vec<f64> = edges
        .chain(plot.levels.iter().map(|(level, _)| *level))
        .filter(finite)
        .collect();
    let greatest = edges.iter().copied().fold(0.0, f64::max);
    let least = edges.iter().copied().fold(0.0, f64::min);
    let margin = 0.02 * (greatest_x - least_x).max(0.0);
    (
        Scale::between(
            least_x - margin,
            greatest_x + margin,
            frame.left,
            frame.right,
        ),
        Scale::from_zero(greatest, least, frame.bottom, frame.top),
    )
}

fn draw_level(svg: &mut Svg, frame: &Frame, y: f64, name: &str) {
    let stroke = Stroke {
        colour: INK,
        width: 1.0,
        dash: "1 3",
    };
    svg.line((frame.left, y), (frame.right, y), stroke);
    svg.text(
        (frame.right, y - 4.0),
        name,
        Type {
            size: SMALL_TEXT_SIZE,
            anchor: Anchor::End,
            colour: INK,
        },
    );
}

fn draw_series(
    svg: &mut Svg,
    place: usize,
    series: &Series,
    x: &Scale,
    y: &Scale,
    has_markers: bool,
) {
    let (colour, dash) = SERIES_STYLES[place];
    let with_interval: Vec<(f64, (f64, f64))> = series
        .points
        .iter()
        .filter_map(|point| Some((x.place(point.x), point.interval?)))
        .collect();
    if series.curve.is_none() {
        let upper = with_interval.iter();
        let upper = upper.map(|(x, (_, high))| (*x, y.place(*high)));
        let lower = with_interval.iter().rev();
        let lower = lower.map(|(x, (low, _))| (*x, y.place(*low)));
        svg.band(&upper.chain(lower).collect::<Vec<_>>(), colour);
    }
    let points: Vec<(f64, f64)> = series
        .points
        .iter()
        .map(|point| (x.place(point.x), y.place(point.y)))
        .collect();
    let stroke = if has_markers {
        Stroke::wide(colour, dash)
    } else {
        Stroke {
            width: 1.5,
            ..Stroke::thin(colour)
        }
    };
    let curve = series.curve.as_ref().map(|curve| {
        let places = curve
            .iter()
            .map(|(at, value)| (x.place(*at), y.place(*value)));
        places.collect::<Vec<_>>()
    });
    svg.polyline(curve.as_ref().unwrap_or(&points), stroke);
    if !has_markers {
        return;
    }
    for (x, (low, high)) in &with_interval {
        let (low, high) = (y.place(*low), y.place(*high));
        let stroke = Stroke::thin(colour);
        svg.line((*x, low), (*x, high), stroke);
        for end in [low, high] {
            svg.line((x - 3.0, end), (x + 3.0, end), stroke);
        }
    }
    for point in points {
        svg.marker(place, point, colour);
    }
}

/// Returns the left end and the row of each entry of a legend that wraps.
fn legend_places(series: &[Series]) -> Vec<(f64, f64)> {
    if series.len() < 2 && series.iter().all(|s| s.label.is_empty()) {
        return Vec::new();
    }
    let (mut left, mut row) = (64.0, 0.0);
    let places = series.iter().map(|series| {
        let width = LEGEND_MARK + text_width(&series.label) + 18.0;
        if left > 64.0 && left + width > WIDTH {
            (left, row) = (64.0, row + 1.0);
        }
        let place = (left, row);
        left += width;
        place
    });
    places.collect()
}

/// Returns the approximate width of small text.
pub(super) fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * SMALL_TEXT_SIZE * 0.56
}

fn draw_legend_entry(
    svg: &mut Svg,
    place: usize,
    series: &Series,
    at: (f64, f64),
    has_marker: bool,
) {
    let (colour, dash) = SERIES_STYLES[place];
    let (x, y) = at;
    let stroke = Stroke::wide(colour, dash);
    svg.line((x, y - 4.0), (x + LEGEND_MARK - 8.0, y - 4.0), stroke);
    if has_marker {
        svg.marker(place, (x + LEGEND_MARK / 2.0 - 4.0, y - 4.0), colour);
    }
    svg.text(
        (x + LEGEND_MARK, y),
        &series.label,
        Type {
            size: SMALL_TEXT_SIZE,
            anchor: Anchor::Start,
            colour: INK,
        },
    );
}
