//! Writes an analysis as one HTML file that opens offline: doubts first, then tables and figures.

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
    /// Label of the run's configuration, and its round-trip time.
    pub label: String,
    /// Samples of all streams over time.
    pub stretches: Vec<Stretch>,
}

/// The heading of a report.
#[derive(Clone, Debug, Default)]
pub struct Heading {
    /// Title of the report.
    pub title: String,
    /// Sources of the report and the program that made it, one line each.
    pub sources: Vec<String>,
    /// Scope of the runs: names and texts.
    pub scope: Vec<(&'static str, String)>,
}

/// Formats a complete report as one HTML file.
pub fn report(heading: &Heading, analysis: &crate::analysis::Analysis, plots: &[Plot]) -> String {
    page(heading, analysis, plots)
}
