//! Draws a transfer as its components from left to right, with the work and the load of each, and
//! marks the bottlenecks.

use super::lines::text_width;
use super::svg::{Anchor, Stroke, Svg, Type};
use super::{FAINT_INK, INK, SMALL_TEXT_SIZE, TEXT_SIZE};

/// A component.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerBox {
    /// Name of the component.
    pub name: String,
    /// Lines of a few words that describe the work of the component.
    pub lines: Vec<String>,
    /// Utilisation, 0 to 1.
    pub busy: f64,
    /// True if the component limits the transfer.
    pub is_binding: bool,
    /// Column of the component, from 0.
    pub column: usize,
}

/// The flow of data from one component to another.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerEdge {
    /// Indices of the two components.
    pub ends: (usize, usize),
    /// Share of all data that takes this edge, 0 to 1.
    pub share: f64,
    /// Description of the flow.
    pub label: String,
}

const BOX_WIDTH: f64 = 142.0;
const GAP: f64 = 44.0;
const LINE: f64 = 15.0;
/// Vertical distance between boxes of one column, and between rows of columns.
const ROW_GAP: f64 = 26.0;
const MARGIN: f64 = 10.0;
/// Maximum number of columns in a row. Further columns continue in the next row.
const COLUMNS: usize = 4;
/// Vermilion and blue of Okabe and Ito.
const BINDING: &str = "#d55e00";
const BUSY: &str = "#0072b2";
const IDLE: &str = "#e8e8e8";

/// Draws components and edges. Columns beyond the first row continue below.
pub fn layers(title: &str, boxes: &[LayerBox], edges: &[LayerEdge]) -> String {
    let columns = boxes.iter().map(|it| it.column + 1).max().unwrap_or(1);
    let height_of = |it: &LayerBox| 34.0 + LINE * it.lines.len() as f64;
    let height = boxes.iter().map(height_of).fold(50.0, f64::max);
    let beside = |column: usize| boxes.iter().filter(|it| it.column == column).count();
    let rows = columns.div_ceil(COLUMNS);
    let deep = |row: usize| {
        let columns = row * COLUMNS..((row + 1) * COLUMNS).min(columns);
        columns.map(beside).max().unwrap_or(1).max(1) as f64
    };
    let top_of = |row: usize| {
        let above: f64 = (0..row)
            .map(|row| deep(row) * (height + ROW_GAP) + ROW_GAP)
            .sum();
        MARGIN + above
    };
    let mut seen = vec![0_usize; columns];
    let places: Vec<(f64, f64)> = boxes
        .iter()
        .map(|it| {
            let number = seen[it.column];
            seen[it.column] += 1;
            let row = it.column / COLUMNS;
            let x = MARGIN + (it.column % COLUMNS) as f64 * (BOX_WIDTH + GAP);
            (x, top_of(row) + number as f64 * (height + ROW_GAP))
        })
        .collect();
    let mut svg = Svg::new(top_of(rows) + 24.0, title);
    for edge in edges {
        if let (Some(&from), Some(&to)) = (places.get(edge.ends.0), places.get(edge.ends.1)) {
            draw_edge(&mut svg, from, to, height, edge);
        }
    }
    for (it, &at) in boxes.iter().zip(&places) {
        draw_box(&mut svg, it, at, height);
    }
    let style = Type {
        size: SMALL_TEXT_SIZE,
        anchor: Anchor::Start,
        colour: FAINT_INK,
    };
    let y = top_of(rows) + 6.0;
    let mut x = MARGIN;
    for (colour, text) in [
        (BUSY, "share of its time that it is busy"),
        (BINDING, "limits the transfer"),
    ] {
        svg.rectangle((x, y - 9.0), (11.0, 11.0), colour, "none");
        svg.text((x + 17.0, y), text, style);
        x += 17.0 + text_width(text) + 24.0;
    }
    svg.finish()
}

fn draw_edge(svg: &mut Svg, from: (f64, f64), to: (f64, f64), height: f64, edge: &LayerEdge) {
    let width = 1.0 + 4.0 * edge.share.clamp(0.0, 1.0);
    let stroke = Stroke {
        colour: "#9a9a9a",
        width,
        dash: "",
    };
    let begin = (from.0 + BOX_WIDTH, from.1 + height / 2.0);
    let end = (to.0, to.1 + height / 2.0);
    let style = Type {
        size: SMALL_TEXT_SIZE,
        anchor: Anchor::Middle,
        colour: INK,
    };
    if to.0 > from.0 {
        svg.line(begin, end, stroke);
        return;
    }
    // An edge to the next row goes down on the right, back above the next row, and enters from the
    // left.
    let below = to.1 - ROW_GAP / 2.0 - 4.0;
    // Keeps the whole width of the line inside the picture.
    let (right, left) = (begin.0 + 6.0, end.0 - 6.0);
    let way = [
        begin,
        (right, begin.1),
        (right, below),
        (left, below),
        (left, end.1),
        end,
    ];
    svg.polyline(&way, stroke);
    svg.text(((right + left) / 2.0, below - 4.0), &edge.label, style);
}

fn draw_box(svg: &mut Svg, it: &LayerBox, (x, y): (f64, f64), height: f64) {
    let outline = if it.is_binding { BINDING } else { INK };
    svg.rectangle((x, y), (BOX_WIDTH, height), "#ffffff", outline);
    let fill = if it.is_binding { BINDING } else { BUSY };
    let bar = (x + 8.0, y + height - 12.0);
    svg.rectangle(bar, (BOX_WIDTH - 16.0, 6.0), IDLE, "none");
    svg.rectangle(
        bar,
        ((BOX_WIDTH - 16.0) * it.busy.clamp(0.0, 1.0), 6.0),
        fill,
        "none",
    );
    let style = Type {
        size: TEXT_SIZE,
        anchor: Anchor::Start,
        colour: outline,
    };
    svg.text((x + 8.0, y + 16.0), &fitting(&it.name), style);
    for (number, line) in it.lines.iter().enumerate() {
        let style = Type {
            size: SMALL_TEXT_SIZE,
            anchor: Anchor::Start,
            colour: INK,
        };
        let y = y + 16.0 + LINE * (number + 1) as f64;
        svg.text((x + 8.0, y), &fitting(line), style);
    }
}

/// Truncates a text to the width of a box.
fn fitting(text: &str) -> String {
    if text_width(text) <= BOX_WIDTH - 20.0 {
        return text.to_owned();
    }
    let mut short = String::new();
    for character in text.chars() {
        if text_width(&short) > BOX_WIDTH - 34.0 {
            break;
        }
        short.push(character);
    }
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_all_components_and_marks_the_limiting_ones() {
        let boxes: Vec<LayerBox> = (0..6)
            .map(|column| LayerBox {
                name: format!("layer {column} <&>"),
                lines: vec![
                    "4 flows".to_owned(),
                    "a line that is much too long for a box".to_owned(),
                ],
                busy: 0.5,
                is_binding: column == 2,
                column,
            })
            .collect();
        let edges: Vec<LayerEdge> = (1..6)
            .map(|to| LayerEdge {
                ends: (to - 1, to),
                share: 1.0,
                label: "1 GB/s".to_owned(),
            })
            .collect();
        let svg = layers("A plan", &boxes, &edges);
        assert_eq!(svg.matches("layer ").count(), 6);
        assert!(svg.contains("&lt;&amp;&gt;") && svg.contains('…') && svg.contains("1 GB/s"));
        // The outline, the bar and the legend have this colour.
        assert!(svg.matches(BINDING).count() >= 3);
        assert!(layers("Nothing", &[], &[]).contains("<svg"));
        // The edge to the next row is drawn inside the picture with its line width of 5.
        let turn = svg.split("points=\"").nth(1).unwrap();
        let points = turn.split('"').next().unwrap().split(' ');
        let right = points.map(|point| point.split(',').next().unwrap().parse().unwrap());
        assert!(
            right.fold(0.0, f64::max) + 2.5 <= super::super::WIDTH,
            "{turn}"
        );
    }
}
