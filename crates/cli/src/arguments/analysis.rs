//! What the commands take that analyse records of runs.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// Which records, and how intervals are drawn.
#[derive(Clone, Debug, Args)]
pub struct AnalysisArguments {
    /// Files of records, a run a line (FORMAT.md, "Records of runs"); - is standard input.
    #[arg(value_name = "RECORDS", required = true)]
    pub records: Vec<PathBuf>,
    /// Leave out lines that cannot be read or repeat a run, naming them, instead of refusing.
    #[arg(long)]
    pub skip_faults: bool,
    /// Bootstrap draws for each interval.
    #[arg(long, value_name = "N", default_value = "1000", value_parser = draws)]
    pub draws: usize,
    /// Where the draws come from: the same seed gives the same intervals.
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: u64,
}

/// What `profile` takes.
#[derive(Clone, Debug, Args)]
pub struct ProfileArguments {
    /// Which records.
    #[command(flatten)]
    pub analysis: AnalysisArguments,
    /// One JSON object instead of tables.
    #[arg(long)]
    pub json: bool,
}

/// What `report` takes.
#[derive(Clone, Debug, Args)]
pub struct ReportArguments {
    /// Which records.
    #[command(flatten)]
    pub analysis: AnalysisArguments,
    /// The report: one HTML file that opens offline.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Write each figure as an SVG file too.
    #[arg(long, value_name = "DIR")]
    pub svg: Option<PathBuf>,
    /// Plot a run over time: its file of TCP samples; of a directory of them one run of each
    /// configuration and round-trip time, the one whose throughput is in the middle.
    #[arg(long, value_name = "FILE|DIR")]
    pub samples: Vec<PathBuf>,
    /// The report's title.
    #[arg(long, default_value = "Throughput of file transfers")]
    pub title: String,
}

/// What to do with records.
#[derive(Clone, Debug, Subcommand)]
pub enum RecordsCommand {
    /// Write records as a table: CSV or Parquet, a row a run.
    #[command(after_help = "Example:\n  longhaul records export runs.jsonl -o runs.parquet")]
    Export(ExportArguments),
}

/// What `records export` takes.
#[derive(Clone, Debug, Args)]
pub struct ExportArguments {
    /// Files of records, a run a line; - is standard input.
    #[arg(value_name = "RECORDS", required = true)]
    pub records: Vec<PathBuf>,
    /// Leave out lines that cannot be read, naming them, instead of refusing.
    #[arg(long)]
    pub skip_faults: bool,
    /// The table.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Its format [default: as its name ends]
    #[arg(long, value_enum)]
    pub format: Option<ExportFormat>,
}

/// A table's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// Comma-separated values.
    Csv,
    /// Columns with types.
    Parquet,
}

/// Below a hundred, the ends of a 95 % interval are two or three draws; a million take minutes.
fn draws(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(draws) if (100..=1_000_000).contains(&draws) => Ok(draws),
        _ => Err("draws are a whole number from 100 to 1000000".to_owned()),
    }
}
