//! An analysis as one HTML file that opens offline: doubts first, then tables
//! and figures.

mod figures;
mod loss;
mod over_time;
mod page;
mod streams;

use crate::plot::Plot;
use crate::samples::Stretch;
pub use figures::figures;
pub use over_time::run_over_time;
pub use page::page;

/// A run whose samples were read.
#[derive(Clone, Debug)]
pub struct SampledRun {
    /// Which run: its configuration's label and round-trip time.
    pub label: String,
    /// All its streams over time.
    pub stretches: Vec<Stretch>,
}

/// A report's own words.
#[derive(Clone, Debug, Default)]
pub struct Heading {
    /// Its title.
    pub title: String,
    /// What it was made of and by, a line each.
    pub sources: Vec<String>,
    /// What its runs are of: a name, and lines.
    pub scope: Vec<(&'static str, String)>,
}

/// The whole of a report, to be written into one file.
pub fn report(heading: &Heading, analysis: &crate::analysis::Analysis, plots: &[Plot]) -> String {
    page(heading, analysis, plots)
}
