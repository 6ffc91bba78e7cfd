//! Heat maps of a figure over two knobs, with the value in each cell.

use super::svg::{Anchor, Svg, Type};
use super::{FAINT_INK, INK, SMALL_TEXT_SIZE, TEXT_SIZE, WIDTH, short_number};

/// The data of a heat map.
#[derive(Clone, Debug, PartialEq)]
pub struct HeatMap {
    /// Text alternative of the figure.
    pub title: String,
    /// Name and unit of the horizontal axis, and its values.
    pub columns: (String, Vec<String>),
    /// Name and unit of the vertical axis, and its values from bottom to top.
    pub rows: (String, Vec<String>),
    /// Name and unit of the values in the cells.
    pub value: String,
    /// Rows of cells from bottom to top. `None` if the cell was not measured.
    pub cells: Vec<Vec<Option<f64>>>,
}

const CELL_HEIGHT: f64 = 34.0;
const LEFT: f64 = 84.0;

/// Lightest and darkest shade of one hue. The order remains visible in grey and with colour
/// blindness.
const LIGHT: (f64, f64, f64) = (240.0, 246.0, 251.0);
const DARK: (f64, f64, f64) = (8.0, 69.0, 122.0);

/// Draws a heat map.
pub fn heat_map(map: &HeatMap) -> String {
    let (columns, rows) = (&map.columns.1, &map.rows.1);
    let bottom = 14.0 + CELL_HEIGHT * rows.len() as f64;
    let mut svg = Svg::new(bottom + 76.0, &map.title);
    let width = (WIDTH - LEFT - 16.0) / columns.len().max(1) as f64;
    let values = map.cells.iter().flatten().flatten();
    let greatest = values.copied().fold(0.0, f64::max);
    let small = Type {
        size: SMALL_TEXT_SIZE,
        anchor: Anchor::Middle,
        colour: FAINT_INK,
    };
    for (row, cells) in map.cells.iter().enumerate() {
        let top = bottom - CELL_HEIGHT * (row + 1) as f64;
        for (column, cell) in cells.iter().enumerate() {
            let left = LEFT + width * column as f64;
            let share = cell.map_or(0.0, |value| value / greatest.max(f64::MIN_POSITIVE));
            let fill = if cell.is_some() {
                shade(share)
            } else {
                "#ffffff".to_owned()
            };
            svg.rectangle((left, top), (width, CELL_HEIGHT), &fill, "#ffffff");
            let text = cell.map_or_else(|| "–".to_owned(), short_number);
            let colour = if share > 0.5 { "#ffffff" } else { INK };
            let place = (left + width / 2.0, top + CELL_HEIGHT / 2.0 + 4.0);
            svg.text(place, &text, Type { colour, ..small });
        }
        let place = (LEFT - 8.0, top + CELL_HEIGHT / 2.0 + 4.0);
        let style = Type {
            anchor: Anchor::End,
            ..small
        };
        svg.text(place, &rows[row], style);
    }
    for (column, label) in columns.iter().enumerate() {
        let x = LEFT + width * (column as f64 + 0.5);
        svg.text((x, bottom + 18.0), label, small);
    }
    let titles = Type {
        size: TEXT_SIZE,
        anchor: Anchor::Middle,
        colour: INK,
    };
    let middle = f64::midpoint(LEFT, WIDTH - 16.0);
    svg.text((middle, bottom + 40.0), &map.columns.0, titles);
    svg.text((middle, bottom + 64.0), &map.value, small);
    svg.upward_text((22.0, f64::midpoint(14.0, bottom)), &map.rows.0, TEXT_SIZE);
    svg.finish()
}

fn shade(share: f64) -> String {
    let share = share.clamp(0.0, 1.0);
    let mixed = |light: f64, dark: f64| (light + (dark - light) * share).round() as u8;
    format!(
        "#{:02x}{:02x}{:02x}",
        mixed(LIGHT.0, DARK.0),
        mixed(LIGHT.1, DARK.1),
        mixed(LIGHT.2, DARK.2)
    )
}
