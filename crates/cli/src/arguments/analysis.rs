//! Arguments of the commands that analyse records of runs.

use std::path::PathBuf;

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use longhaul_transfer::quantities;
use longhaul_units::BitRate;

/// Records to analyse, and settings of confidence intervals.
#[derive(Clone, Debug, Args)]
pub struct AnalysisArguments {
    /// Files of records, one run per line (FORMAT.md, "Records of runs"), plain or
    /// compressed with zstd; - is standard input.
    #[arg(value_name = "RECORDS", required = true)]
    pub records: Vec<PathBuf>,
    /// Skip and report lines that cannot be read or repeat a run, instead of rejecting the file.
    #[arg(long)]
    pub skip_faults: bool,
    /// Number of bootstrap draws per interval, 100 to 1000000.
    #[arg(long, value_name = "N", default_value = "1000", value_parser = draws)]
    pub draws: usize,
    /// Seed of the draws. The same seed gives the same intervals.
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: u64,
}

/// Arguments of `profile`.
#[derive(Clone, Debug, Args)]
pub struct ProfileArguments {
    #[command(flatten)]
    pub analysis: AnalysisArguments,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `report`.
#[derive(Clone, Debug, Args)]
pub struct ReportArguments {
    #[command(flatten)]
    pub analysis: AnalysisArguments,
    /// The report, one HTML file without external resources.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Also write each figure as an SVG file to DIR.
    #[arg(long, value_name = "DIR")]
    pub svg: Option<PathBuf>,
    /// Plot runs over time: a file of TCP samples, or a directory of them. From a directory, one
    /// run per configuration and round-trip time is plotted, the one with the median throughput.
    #[arg(long, value_name = "FILE|DIR")]
    pub samples: Vec<PathBuf>,
    /// Title of the report.
    #[arg(long, default_value = "Throughput of file transfers")]
    pub title: String,
}

/// Commands for records.
#[derive(Clone, Debug, Subcommand)]
pub enum RecordsCommand {
    /// Write records as a table in CSV or Parquet, one row per run.
    #[command(after_help = "Example:\n  longhaul records export runs.jsonl -o runs.parquet")]
    Export(ExportArguments),
    /// Make records from results of other instruments: iperf3, pScheduler, or tables with
    /// named columns.
    #[command(after_help = IMPORT_EXAMPLES)]
    Import(ImportArguments),
    /// Compress files of records or samples with zstd. All commands read the compressed files.
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

/// Arguments of `records export`.
#[derive(Clone, Debug, Args)]
pub struct ExportArguments {
    /// Files of records, one run per line; - is standard input.
    #[arg(value_name = "RECORDS", required = true)]
    pub records: Vec<PathBuf>,
    /// Skip and report lines that cannot be read, instead of rejecting the file.
    #[arg(long)]
    pub skip_faults: bool,
    /// Path of the table.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Format of the table [default: by the extension of the file]
    #[arg(long, value_enum)]
    pub format: Option<ExportFormat>,
}

/// Arguments of `records compress`.
#[derive(Clone, Debug, Args)]
pub struct CompressArguments {
    /// Files of lines. The compressed file has the same name with .zst appended.
    #[arg(value_name = "FILES", required = true)]
    pub files: Vec<PathBuf>,
    /// Remove each file after its compressed form was written to disk and compared with it.
    #[arg(long)]
    pub remove: bool,
}

/// Arguments of `records import`.
#[derive(Clone, Debug, Args)]
pub struct ImportArguments {
    /// Files of results; - is standard input.
    #[arg(value_name = "FILES", required = true)]
    pub files: Vec<PathBuf>,
    /// Path of the records, one run per line, compressed if the name ends in .zst; - is standard
    /// output. An existing file is kept, unless --replace is given.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Replace the records of an earlier import. A file with other records is never replaced.
    #[arg(long)]
    pub replace: bool,
    /// Round-trip time of the path without load [default: the minimum of all runs between
    /// the same hosts]
    #[arg(long, value_name = "TIME", value_parser = longhaul_units::parse_span)]
    pub rtt: Option<Duration>,
    /// Capacity of the path for TCP payload [default: the maximum that was measured;
    /// fractions of it are meaningful only within these runs]
    #[arg(long, value_name = "RATE", value_parser = quantities::positive_rate)]
    pub capacity: Option<BitRate>,
    /// Name of the path of all runs [default: from the hosts in their files]
    #[arg(long, value_name = "NAME")]
    pub path: Option<String>,
    /// Duration of runs whose file does not contain it.
    #[arg(long, value_name = "TIME", value_parser = longhaul_units::parse_span)]
    pub time: Option<Duration>,
    /// Skip and report unusable files and runs, instead of rejecting all files.
    #[arg(long)]
    pub skip_faults: bool,
}

/// Formats of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// Comma-separated values.
    Csv,
    /// Typed columns.
    Parquet,
}

/// Parses the number of draws. With fewer than a hundred, the ends of a 95 % interval are
/// two or three draws. A million draws take minutes.
fn draws(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(draws) if (100..=1_000_000).contains(&draws) => Ok(draws),
        _ => Err("write a whole number from 100 to 1000000".to_owned()),
    }
}
