//! What the commands take that analyse records of runs.

use std::path::PathBuf;

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use longhaul_units::BitRate;

use super::probe::capacity;

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
    /// Make records of what other instruments measured: iperf3's JSON, results of pScheduler,
    /// tables with named columns.
    #[command(after_help = IMPORT_EXAMPLES)]
    Import(ImportArguments),
}

const IMPORT_EXAMPLES: &str = "Examples:
  longhaul records import results/*.json -o runs.jsonl
  longhaul records import --rtt 91.6ms --capacity 9.4Gbit archive.csv -o runs.jsonl
  longhaul profile runs.jsonl
A file may be what `iperf3 --json` or --json-stream wrote (TCP; also with -R, --bidir or -P, of a
client or a server, interrupted or failed), a result of a throughput test of pScheduler, or a table
whose first line names its columns: throughput_mbps (or _bps, _gbps) with seconds or bytes, and
started, rtt_ms, streams, source, destination, direction, retransmits, congestion, tool, error.
The docs (docs/import.md) tell all of them.";

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

/// What `records import` takes.
#[derive(Clone, Debug, Args)]
pub struct ImportArguments {
    /// Files of results; - is standard input.
    #[arg(value_name = "FILES", required = true)]
    pub files: Vec<PathBuf>,
    /// The records, a run a line; - is standard output. What an import wrote there before is
    /// replaced, other records are not.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// The path's round trip without load [default: the least that the files have of runs
    /// between the same hosts]
    #[arg(long, value_name = "TIME", value_parser = longhaul_units::parse_span)]
    pub rtt: Option<Duration>,
    /// What TCP payload can carry over the path [default: the most that was measured, of which a
    /// share means nothing beyond these runs]
    #[arg(long, value_name = "RATE", value_parser = capacity)]
    pub capacity: Option<BitRate>,
    /// All runs are of the path of this name [default: as their files name the hosts]
    #[arg(long, value_name = "NAME")]
    pub path: Option<String>,
    /// How long each run took whose file does not say.
    #[arg(long, value_name = "TIME", value_parser = longhaul_units::parse_span)]
    pub time: Option<Duration>,
    /// Leave out files and runs that cannot be used, naming them, instead of refusing.
    #[arg(long)]
    pub skip_faults: bool,
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
