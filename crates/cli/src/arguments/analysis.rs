//! What the commands take that analyse records of runs.

use std::path::PathBuf;

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use longhaul_units::BitRate;

use super::probe::positive_rate;

/// Which records, and how intervals are drawn.
#[derive(Clone, Debug, Args)]
pub struct AnalysisArguments {
    /// Files of records, one run per line (FORMAT.md, "Records of runs"), also compressed with
    /// zstd; - is standard input.
    #[arg(value_name = "RECORDS", required = true)]
    pub records: Vec<PathBuf>,
    /// Skip lines that cannot be read or repeat a run, and name them, instead of refusing the
    /// file.
    #[arg(long)]
    pub skip_faults: bool,
    /// Number of bootstrap draws for each interval.
    #[arg(long, value_name = "N", default_value = "1000", value_parser = draws)]
    pub draws: usize,
    /// Seed of the draws: the same seed gives the same intervals.
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: u64,
}

/// What `profile` takes.
#[derive(Clone, Debug, Args)]
pub struct ProfileArguments {
    /// Which records.
    #[command(flatten)]
    pub analysis: AnalysisArguments,
    /// Print one JSON object instead of tables.
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
    /// Plot runs over time: a file of TCP samples, or a directory of them. Of a directory, one run
    /// of each configuration and round-trip time is plotted, the one with the middle throughput.
    #[arg(long, value_name = "FILE|DIR")]
    pub samples: Vec<PathBuf>,
    /// The report's title.
    #[arg(long, default_value = "Throughput of file transfers")]
    pub title: String,
}

/// What to do with records.
#[derive(Clone, Debug, Subcommand)]
pub enum RecordsCommand {
    /// Write records as a table: CSV or Parquet, one row per run.
    #[command(after_help = "Example:\n  longhaul records export runs.jsonl -o runs.parquet")]
    Export(ExportArguments),
    /// Make records from results of other instruments: iperf3, pScheduler, tables with named
    /// columns.
    #[command(after_help = IMPORT_EXAMPLES)]
    Import(ImportArguments),
    /// Compress files of records or samples with zstd. All commands read them so.
    #[command(
        after_help = "Example:\n  longhaul records compress --remove runs.jsonl\n  longhaul profile \
                      runs.jsonl.zst"
    )]
    Compress(CompressArguments),
}

const IMPORT_EXAMPLES: &str = "Examples:
  longhaul records import results/*.json -o runs.jsonl
  longhaul records import --rtt 91.6ms --capacity 9.4Gbit archive.csv -o runs.jsonl
  longhaul profile runs.jsonl
A file may be what `iperf3 --json` or --json-stream wrote (TCP; also with -R, --bidir or -P, of a
client or a server, interrupted or failed), a result of a throughput test of pScheduler, or a table
whose first line names its columns: throughput_mbps (or _bps, _gbps) with seconds or bytes, and
started, rtt_ms, streams, source, destination, direction, retransmits, congestion, tool, error.
docs/import.md lists all of them.";

/// What `records export` takes.
#[derive(Clone, Debug, Args)]
pub struct ExportArguments {
    /// Files of records, one run per line; - is standard input.
    #[arg(value_name = "RECORDS", required = true)]
    pub records: Vec<PathBuf>,
    /// Skip lines that cannot be read, and name them, instead of refusing the file.
    #[arg(long)]
    pub skip_faults: bool,
    /// The table.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Its format [default: by the end of its name]
    #[arg(long, value_enum)]
    pub format: Option<ExportFormat>,
}

/// What `records compress` takes.
#[derive(Clone, Debug, Args)]
pub struct CompressArguments {
    /// Files of lines; each gets a compressed file with .zst after its name.
    #[arg(value_name = "FILES", required = true)]
    pub files: Vec<PathBuf>,
    /// Remove each file when its compressed form is on disk and was compared with it.
    #[arg(long)]
    pub remove: bool,
}

/// What `records import` takes.
#[derive(Clone, Debug, Args)]
pub struct ImportArguments {
    /// Files of results; - is standard input.
    #[arg(value_name = "FILES", required = true)]
    pub files: Vec<PathBuf>,
    /// The records, one run per line, compressed if the name ends in .zst; - is standard output.
    /// Records of an earlier import are replaced, other records are not.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Round trip of the path without load [default: the least of all runs between the same hosts]
    #[arg(long, value_name = "TIME", value_parser = longhaul_units::parse_span)]
    pub rtt: Option<Duration>,
    /// Capacity of the path for TCP payload [default: the most that was measured; a share of that
    /// means nothing beyond these runs]
    #[arg(long, value_name = "RATE", value_parser = positive_rate)]
    pub capacity: Option<BitRate>,
    /// Name of the path of all runs [default: from the hosts in their files]
    #[arg(long, value_name = "NAME")]
    pub path: Option<String>,
    /// Duration of runs whose file does not give one.
    #[arg(long, value_name = "TIME", value_parser = longhaul_units::parse_span)]
    pub time: Option<Duration>,
    /// Skip files and runs that cannot be used, and name them, instead of refusing all.
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
