//! Stacked horizontal bars, as in Fig. 2 of paper 001.

use super::axes::{Frame, Scale};
use super::lines::text_width;
use super::svg::{Anchor, Stroke, Svg, Type};
use super::{INK, SMALL_TEXT_SIZE, TEXT_SIZE, WIDTH, short_number};

/// A part of a bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// Length in the plot's unit, not negative.
    pub length: f64,
    /// Fill colour as `#rrggbb`.
    pub colour: &'static str,
}

/// A bar.
#[derive(Clone, Debug, PartialEq)]
pub struct StackedBar {
    /// Name of the bar.
    pub label: String,
    /// Parts from left to right.
    pub parts: Vec<Share>,
    /// Interval of the end of the first part, if known.
    pub interval: Option<(f64, f64)>,
    /// Value as text, drawn above the bar.
    pub value: String,
}

const BAR: f64 = 22.0;
/// Distance from one bar to the next, including a line of text.
const PITCH: f64 = 48.0;
const TEXT_LINE: f64 = 15.0;

/// Draws bars from 0 to `greatest`, with a legend of the colours below.
pub fn stacked_bars(
    title: &str,
    x_title: &str,
    greatest: f64,
    bars: &[StackedBar],
    legend: &[(&'static str, String)],
) -> String {
    let (left, right) = (24.0, WIDTH - 24.0);
    // If a name and a value do not fit on one line, each bar gets two lines.
    let has_room = |bar: &StackedBar| {
        let width = text_width(&bar.label) * TEXT_SIZE / SMALL_TEXT_SIZE + text_width(&bar.value);
        width + 20.0 < right - left
    };
    let lines = if bars.iter().all(has_room) { 1.0 } else { 2.0 };
    let pitch = PITCH + (lines - 1.0) * TEXT_LINE;
    let frame = Frame {
        left,
        top: 6.0,
        right,
        bottom: 6.0 + pitch * bars.len() as f64 + 8.0,
    };
    let mut svg = Svg::new(frame.bottom + 78.0, title);
    let x = Scale::between(0.0, greatest, frame.left, frame.right);
    let ticks: Vec<(f64, String)> = x
        .ticks()
        .iter()
        .map(|tick| (x.place(*tick), short_number(*tick)))
        .collect();
    for (index, bar) in bars.iter().enumerate() {
        draw_bar(&mut svg, &x, bar, (frame.top + pitch * index as f64, lines));
    }
    frame.draw_labels(&mut svg, &ticks, x_title);
    let mut left = frame.left;
    for (colour, name) in legend {
        let y = frame.bottom + 64.0;
        svg.rectangle((left, y - 10.0), (12.0, 12.0), colour, "none");
        let style = Type {
            size: SMALL_TEXT_SIZE,
            anchor: Anchor::Start,
            colour: INK,
        };
        svg.text((left + 18.0, y), name, style);
        left += 18.0 + text_width(name) + 20.0;
    }
    svg.finish()
}

fn draw_bar(svg: &mut Svg, x: &Scale, bar: &StackedBar, (top, lines): (f64, f64)) {
    let style = Type {
        size: TEXT_SIZE,
        anchor: Anchor::Start,
        colour: INK,
    };
    svg.text((x.place(0.0), top + 13.0), &bar.label, style);
    let value_style = Type {
        size: SMALL_TEXT_SIZE,
        anchor: Anchor::End,
        ..style
    };
    let value_line = top + 13.0 + (lines - 1.0) * TEXT_LINE;
    svg.text((x.end(), value_line), &bar.value, value_style);
    let top = top + 19.0 + (lines - 1.0) * TEXT_LINE;
    let mut from = 0.0;
    for part in &bar.parts {
        let (left, right) = (x.place(from), x.place(from + part.length));
        svg.rectangle((left, top), (right - left, BAR), part.colour, "#ffffff");
        from += part.length;
    }
    if let Some((low, high)) = bar.interval {
        let (low, high, y) = (x.place(low), x.place(high), top + BAR / 2.0);
        let stroke = Stroke::wide(INK, "");
        svg.line((low, y), (high, y), stroke);
        for end in [low, high] {
            svg.line((end, y - 5.0), (end, y + 5.0), stroke);
        }
    }
}
