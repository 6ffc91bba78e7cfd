//! Box plots, as in Figs. 10 and 11 of paper 001: one panel for each method, all with the same
//! scale.

use super::axes::{Frame, Scale};
use super::svg::{Anchor, Stroke, Svg, Type};
use super::{INK, SERIES_STYLES, TEXT_SIZE, WIDTH};
use crate::analysis::BoxFigures;
use crate::stats::Interval;

/// A panel of box plots.
#[derive(Clone, Debug, PartialEq)]
pub struct BoxPanel {
    /// Name of the panel.
    pub label: String,
    /// Labels and their boxes, from left to right.
    pub boxes: Vec<(String, BoxFigures)>,
}

const PANEL_HEIGHT: f64 = 150.0;
const PANEL_PITCH: f64 = PANEL_HEIGHT + 56.0;

/// Draws panels one below the other.
pub fn box_panels(title: &str, x_title: &str, y_title: &str, panels: &[BoxPanel]) -> String {
    let mut svg = Svg::new(PANEL_PITCH * panels.len() as f64 + 24.0, title);
    let boxes = || panels.iter().flat_map(|panel| &panel.boxes);
    let tops = boxes().flat_map(|(_, figures)| figures.beyond.iter().chain([&figures.high]));
    let greatest = tops.copied().fold(0.0, f64::max);
    for (index, panel) in panels.iter().enumerate() {
        let top = 26.0 + PANEL_PITCH * index as f64;
        let frame = Frame {
            left: 64.0,
            top,
            right: WIDTH - 16.0,
            bottom: top + PANEL_HEIGHT,
        };
        let y = Scale::from_zero(greatest, 0.0, frame.bottom, frame.top);
        frame.draw_vertical(&mut svg, &y, y_title);
        let style = Type {
            size: TEXT_SIZE,
            anchor: Anchor::Start,
            colour: INK,
        };
        svg.text((frame.left, frame.top - 9.0), &panel.label, style);
        let pitch = (frame.right - frame.left) / panel.boxes.len().max(1) as f64;
        let middle = |place: usize| frame.left + pitch * (place as f64 + 0.5);
        let labels: Vec<(f64, String)> = panel
            .boxes
            .iter()
            .enumerate()
            .map(|(place, (label, _))| (middle(place), label.clone()))
            .collect();
        let is_last = index + 1 == panels.len();
        frame.draw_labels(&mut svg, &labels, if is_last { x_title } else { "" });
        let colour = SERIES_STYLES[index % SERIES_STYLES.len()].0;
        for (place, (_, figures)) in panel.boxes.iter().enumerate() {
            draw_box(
                &mut svg,
                middle(place),
                (pitch * 0.3).min(22.0),
                &y,
                figures,
                colour,
            );
        }
    }
    svg.finish()
}

/// Maximum number of outliers drawn in a box plot; the farthest are kept. A hundred thousand runs
/// have thousands of outliers, which would overlap.
const MOST_BEYOND: usize = 60;

fn draw_box(svg: &mut Svg, x: f64, half: f64, y: &Scale, figures: &BoxFigures, colour: &str) {
    let place = |value: f64| y.place(value);
    if !figures.runs.is_empty() {
        // Draws the values side by side, so that equal values remain visible.
        let step = half / figures.runs.len() as f64;
        let first = x - step * (figures.runs.len() - 1) as f64 / 2.0;
        for (number, value) in figures.runs.iter().enumerate() {
            let across = first + step * number as f64;
            svg.marker(4, (across, place(*value)), colour);
        }
        return;
    }
    let whisker = Stroke::thin(colour);
    for (from, to) in [
        (figures.low, figures.lower_quartile),
        (figures.upper_quartile, figures.high),
    ] {
        svg.line((x, place(from)), (x, place(to)), whisker);
    }
    for end in [figures.low, figures.high] {
        svg.line(
            (x - half / 2.0, place(end)),
            (x + half / 2.0, place(end)),
            whisker,
        );
    }
    let (top, bottom) = (place(figures.upper_quartile), place(figures.lower_quartile));
    svg.rectangle(
        (x - half, top),
        (2.0 * half, bottom - top),
        "#ffffff",
        colour,
    );
    let middle = place(figures.median);
    svg.line(
        (x - half, middle),
        (x + half, middle),
        Stroke {
            width: 2.5,
            ..whisker
        },
    );
    if let Some(Interval { low, high }) = figures.median_interval {
        let beside = x + half + (half * 0.4).min(6.0);
        let stroke = Stroke {
            width: 2.5,
            ..Stroke::thin(INK)
        };
        svg.line((beside, place(low)), (beside, place(high)), stroke);
    }
    let beyond = &figures.beyond;
    let ends = beyond.iter().take(MOST_BEYOND / 2);
    let rest = beyond[beyond.len().min(MOST_BEYOND / 2)..].iter().rev();
    for value in ends.chain(rest.take(MOST_BEYOND / 2)) {
        svg.marker(4, (x, place(*value)), colour);
    }
}
