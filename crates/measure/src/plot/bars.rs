//! Horizontal bars of parts, as Fig. 2 of paper 001 has them.

use super::axes::{Frame, Scale};
use super::svg::{Anchor, Stroke, Svg, Type};
use super::{INK, SMALL_TEXT_SIZE, TEXT_SIZE, WIDTH, short_number};

/// A part of a bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// Its length in the plot's unit, not negative.
    pub length: f64,
    /// Its colour, `#rrggbb`.
    pub colour: &'static str,
}

/// A bar.
#[derive(Clone, Debug, PartialEq)]
pub struct StackedBar {
    /// What it is of.
    pub label: String,
    /// Its parts, from the left.
    pub parts: Vec<Share>,
    /// The interval of the first part's end, if there is one.
    pub interval: Option<(f64, f64)>,
}

const BAR: f64 = 22.0;
const PITCH: f64 = 48.0;

/// Draws bars from 0 to `greatest`, and below them what the colours mean.
pub fn stacked_bars(
    title: &str,
    x_title: &str,
    greatest: f64,
    bars: &[StackedBar],
    legend: &[(&'static str, String)],
) -> String {
    let frame = Frame {
        left: 24.0,
        top: 6.0,
        right: WIDTH - 24.0,
        bottom: 6.0 + PITCH * bars.len() as f64 + 8.0,
    };
    let mut svg = Svg::new(frame.bottom + 78.0, title);
    let x = Scale::between(0.0, greatest, frame.left, frame.right);
    let ticks: Vec<(f64, String)> = x
        .ticks()
        .iter()
        .map(|tick| (x.place(*tick), short_number(*tick)))
        .collect();
    for (index, bar) in bars.iter().enumerate() {
        draw_bar(&mut svg, &x, bar, frame.top + PITCH * index as f64);
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
        left += 18.0 + super::lines::text_width(name) + 20.0;
    }
    svg.finish()
}

fn draw_bar(svg: &mut Svg, x: &Scale, bar: &StackedBar, top: f64) {
    let style = Type {
        size: TEXT_SIZE,
        anchor: Anchor::Start,
        colour: INK,
    };
    svg.text((x.place(0.0), top + 13.0), &bar.label, style);
    let top = top + 19.0;
    let mut from = 0.0;
    for part in &bar.parts {
        let (left, right) = (x.place(from), x.place(from + part.length));
        svg.rectangle((left, top), (right - left, BAR), part.colour, "#ffffff");
        from += part.length;
        let text = short_number(part.length);
        // A number stands in its part where it fits.
        if right - left > text.len() as f64 * 7.0 + 8.0 {
            let style = Type {
                size: SMALL_TEXT_SIZE,
                anchor: Anchor::Start,
                colour: if part.colour == super::GRID {
                    INK
                } else {
                    "#ffffff"
                },
            };
            svg.text((left + 5.0, top + 15.0), &text, style);
        }
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
