//! Figures as SVG, drawn by hand: no script, no font and no file beside them,
//! so that they open offline, print, and go into a paper as they are.
//!
//! Colours are those of Okabe and Ito (2008), which survive the common kinds of
//! colour blindness; each series has its own marker and dash as well, so that a
//! grey print still tells them apart. A figure is 720 units wide: on the 170 mm
//! of an A4 column its smallest text is 2.6 mm high, about 7.4 points.

mod axes;
mod bars;
mod boxes;
mod heat;
mod lines;
mod svg;

pub use bars::{Share, StackedBar, stacked_bars};
pub use boxes::{BoxPanel, box_panels};
pub use heat::{HeatMap, heat_map};
pub use lines::{LinePlot, PlotPoint, Series, line_plot};
pub use svg::escape;

/// A figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plot {
    /// Its file's name without the ending: lower case, digits and hyphens.
    pub name: String,
    /// What it shows, in a few words.
    pub title: String,
    /// How to read it: sentences.
    pub caption: String,
    /// The whole of an SVG document.
    pub svg: String,
}

/// How series are told apart: colour and dash; the marker goes by place.
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

/// The most series that one figure tells apart.
pub const MOST_SERIES: usize = SERIES_STYLES.len();

/// Text: nearly black, and lighter for what is beside the data.
const INK: &str = "#1a1a1a";
const FAINT_INK: &str = "#595959";
const GRID: &str = "#dddddd";

/// Symbols as plain text has them, each with its head and its lower part.
pub(crate) const SYMBOLS: [(&str, (&str, &str)); 7] = [
    ("C_UC", ("C", "UC")),
    ("C_CC", ("C", "CC")),
    ("C_U", ("C", "U")),
    ("Θ_E", ("Θ", "E")),
    ("Θ_T", ("Θ", "T")),
    ("Θ_F", ("Θ", "F")),
    ("τ_L", ("τ", "L")),
];

/// Figures are this wide.
const WIDTH: f64 = 720.0;
/// The size of most text, and of what is beside the data.
const TEXT_SIZE: f64 = 13.0;
const SMALL_TEXT_SIZE: f64 = 11.0;

/// A rate's unit for a figure whose greatest rate is this: name and bits per
/// second in one.
pub fn rate_unit(greatest_bits_per_second: f64) -> (&'static str, f64) {
    match greatest_bits_per_second {
        rate if rate >= 2e9 => ("Gbit/s", 1e9),
        rate if rate >= 2e6 => ("Mbit/s", 1e6),
        _ => ("kbit/s", 1e3),
    }
}

/// A number for people: three significant digits or so, no needless zeros.
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
    fn numbers_are_short() {
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
    }
}
