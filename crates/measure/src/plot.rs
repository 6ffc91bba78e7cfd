//! Draws figures as SVG without scripts, fonts or other files. The figures open offline, can be
//! printed, and can be used in a paper unchanged.
//!
//! Colours are those of Okabe and Ito (2008), which suit the common kinds of colour blindness. Each
//! series also has its own marker and dash, so that series remain distinguishable in a grey print.
//! A figure is 720 units wide: on the 170 mm of an A4 column its smallest text is 2.6 mm high,
//! about 7.4 points.

mod axes;
mod bars;
mod boxes;
mod heat;
mod layers;
mod lines;
mod svg;

pub use bars::{Share, StackedBar, stacked_bars};
pub use boxes::{BoxPanel, box_panels};
pub use heat::{HeatMap, heat_map};
pub use layers::{LayerBox, LayerEdge, layers};
pub use lines::{LinePlot, PlotPoint, Series, line_plot};
pub use svg::escape;

use crate::stats::{Figure, Interval};

/// A figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plot {
    /// Name of the figure's file without the extension: lower-case letters, digits and hyphens.
    pub name: String,
    /// Short title.
    pub title: String,
    /// Sentences that explain how to read the figure.
    pub caption: String,
    /// The complete SVG document.
    pub svg: String,
    /// The drawn values as numbers.
    pub table: Table,
}

/// A table of the numbers of a figure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Titles of the columns, with units.
    pub columns: Vec<String>,
    /// Number of leading columns that hold text.
    pub words: usize,
    /// Rows, each with one cell for each column.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table without rows.
    pub(crate) fn of<const COLUMNS: usize>(words: usize, columns: [&str; COLUMNS]) -> Table {
        Table {
            columns: columns.map(str::to_owned).to_vec(),
            words,
            rows: Vec::new(),
        }
    }
}

/// Formats a number for a table: four significant digits, and at most six decimals.
pub fn precise_number(value: f64) -> String {
    let decimals = decimals(value);
    format!("{value:.decimals$}")
}

/// Formats a figure and its interval, with the same number of decimals for both. Omits an interval
/// of zero width, as a single run has.
pub fn with_interval(figure: &Figure) -> String {
    let decimals = decimals(figure.estimate);
    let Interval { low, high } = figure.interval;
    if low == high {
        return precise_number(figure.estimate);
    }
    format!(
        "{:.decimals$} [{low:.decimals$}, {high:.decimals$}]",
        figure.estimate
    )
}

fn decimals(value: f64) -> usize {
    match value.abs() {
        v if v >= 1000.0 || v == 0.0 || !v.is_finite() => 0,
        v => (3.0 - v.log10().floor()).clamp(0.0, 6.0) as usize,
    }
}

/// Colour and dash of each series. The marker depends on the index of the series.
const SERIES_STYLES: [(&str, &str); 8] = [
    ("#0072b2", ""),
    ("#d55e00", ""),
    ("#009e73", ""),
    ("#cc79a7", ""),
    ("#56b4e9", "7 3"),
    ("#e69f00", "7 3"),
    ("#000000", "7 3"),
    ("#7f7f7f", "2 3"),
];

/// Maximum number of series in one figure.
pub const MOST_SERIES: usize = SERIES_STYLES.len();

/// Colours of text: nearly black, and grey for text beside the data.
const INK: &str = "#1a1a1a";
const FAINT_INK: &str = "#595959";
const GRID: &str = "#dddddd";

/// Symbols in plain text, each with its letter and its subscript.
pub(crate) const SYMBOLS: [(&str, (&str, &str)); 7] = [
    ("C_UC", ("C", "UC")),
    ("C_CC", ("C", "CC")),
    ("C_U", ("C", "U")),
    ("Θ_E", ("Θ", "E")),
    ("Θ_T", ("Θ", "T")),
    ("Θ_F", ("Θ", "F")),
    ("τ_L", ("τ", "L")),
];

/// Width of a figure in SVG units.
const WIDTH: f64 = 720.0;
/// Font sizes of normal text, and of text beside the data.
const TEXT_SIZE: f64 = 13.0;
const SMALL_TEXT_SIZE: f64 = 11.0;

/// Combines several figures and their captions, one below the other, into one SVG document.
pub fn below_each_other(title: &str, figures: &[Plot]) -> String {
    let style = svg::Type {
        size: TEXT_SIZE,
        anchor: svg::Anchor::Start,
        colour: INK,
    };
    let mut whole = String::new();
    let mut top = 0.0;
    for figure in figures {
        let mut heading = svg::Svg::new(30.0, &figure.title);
        heading.text((10.0, 22.0), &figure.title, style);
        for part in [
            heading.finish(),
            figure.svg.clone(),
            caption(&figure.caption),
        ] {
            let height = height_of(&part);
            // Attributes that position the inner document.
            let place =
                format!("<svg x=\"0\" y=\"{top:.0}\" width=\"{WIDTH}\" height=\"{height:.0}\" ");
            whole.push_str(&part.replacen("<svg ", &place, 1));
            top += height;
        }
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {top:.0}\" role=\"img\">\n\
         <title>{}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{whole}</svg>\n",
        escape(title)
    )
}

/// Draws a caption as an SVG document, with lines as wide as a figure.
fn caption(text: &str) -> String {
    let (margin, line) = (10.0, 15.0);
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let begun = lines.last_mut();
        let longer = begun.as_ref().map(|begun| format!("{begun} {word}"));
        match (begun, longer) {
            (Some(begun), Some(longer)) if lines::text_width(&longer) <= WIDTH - 2.0 * margin => {
                *begun = longer.trim_start().to_owned();
            }
            _ => lines.push(word.to_owned()),
        }
    }
    let style = svg::Type {
        size: SMALL_TEXT_SIZE,
        anchor: svg::Anchor::Start,
        colour: FAINT_INK,
    };
    let mut drawn = svg::Svg::new(line * lines.len() as f64 + 20.0, "Caption");
    for (number, text) in lines.iter().enumerate() {
        drawn.text((margin, line * (number + 1) as f64), text, style);
    }
    drawn.finish()
}

/// Returns the height of an SVG document that this module drew.
fn height_of(svg: &str) -> f64 {
    let after = svg.split("viewBox=\"").nth(1).unwrap_or_default();
    let numbers = after.split('"').next().unwrap_or_default();
    let height = numbers.split(' ').nth(3);
    height.and_then(|text| text.parse().ok()).unwrap_or(0.0)
}

/// Returns the unit for a figure with this greatest rate: its name and its value in bits per
/// second.
pub fn rate_unit(greatest_bits_per_second: f64) -> (&'static str, f64) {
    match greatest_bits_per_second {
        rate if rate >= 2e9 => ("Gbit/s", 1e9),
        rate if rate >= 2e6 => ("Mbit/s", 1e6),
        _ => ("kbit/s", 1e3),
    }
}

/// Formats a number with about three significant digits and without trailing zeros.
pub fn short_number(value: f64) -> String {
    let decimals: usize = match value.abs() {
        v if v >= 100.0 || v == 0.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.decimals$}");
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_without_trailing_zeros() {
        let cases = [
            (0.0, "0"),
            (941.5, "942"),
            (91.6, "91.6"),
            (0.4, "0.4"),
            (2.0, "2"),
            (0.0234, "0.023"),
        ];
        for (value, text) in cases {
            assert_eq!(short_number(value), text);
        }
        let cases = [
            (0.0, "0"),
            (941.52, "941.5"),
            (12_345.6, "12346"),
            (-7.654_32, "-7.654"),
            (0.012_346, "0.01235"),
            (1e-9, "0.000000"),
        ];
        for (value, text) in cases {
            assert_eq!(precise_number(value), text);
        }
        let interval = Interval {
            low: 99.0,
            high: 1000.26,
        };
        let figure = Figure {
            estimate: 500.0,
            interval,
        };
        assert_eq!(with_interval(&figure), "500.0 [99.0, 1000.3]");
        let interval = Interval {
            low: 500.0,
            high: 500.0,
        };
        assert_eq!(with_interval(&Figure { interval, ..figure }), "500.0");
    }

    #[test]
    fn captions_are_wrapped_below_their_figures() {
        let figure = |caption: &str| Plot {
            name: "a".to_owned(),
            title: "A".to_owned(),
            caption: caption.to_owned(),
            svg: svg::Svg::new(50.0, "A").finish(),
            table: Table::default(),
        };
        let words = "every <word> of a long caption ".repeat(20);
        let drawn = below_each_other("All", &[figure(&words), figure("short")]);
        assert_eq!(drawn.matches("&lt;word&gt;").count(), 20);
        let texts = drawn.split("<text").skip(1);
        let longest = texts.filter_map(|text| text.split(['>', '<']).nth(1));
        let longest = longest.map(str::len).max().unwrap();
        assert!(longest < 160, "{drawn}");
        // There are two figures, two titles, a caption of one line and a caption of several lines.
        assert!(height_of(&drawn) > 2.0 * (50.0 + 30.0) + 35.0 + 5.0 * 15.0);
    }
}
