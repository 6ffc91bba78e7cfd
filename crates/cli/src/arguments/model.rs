//! Arguments of `model`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Commands for the model.
#[derive(Clone, Debug, Subcommand)]
pub enum ModelCommand {
    /// Fit capacities to host profiles written by `longhaul bench`: the best form for
    /// each component, its parameters with intervals, and doubts. From records of runs,
    /// fit the costs of the layers of copies.
    #[command(
        after_help = "Examples:\n  longhaul model fit longhaul-host.json\n  longhaul model fit model-fit.jsonl.zst -o fits.json"
    )]
    Fit(FitArguments),
    /// Compare predictions with records of runs: errors by limiting component, and the worst runs.
    #[command(
        after_help = "Example:\n  longhaul model check --plot check.svg bench/runs/2026-11-25-profile.jsonl.zst"
    )]
    Check(CheckArguments),
}

/// Arguments of `model fit`.
#[derive(Clone, Debug, Args)]
pub struct FitArguments {
    /// Host profiles, or records of runs (names that end with .jsonl, .ndjson or .zst),
    /// which contain the use of layers and cores in longhaul's own copies.
    #[arg(value_name = "FILE", required = true)]
    pub profiles: Vec<PathBuf>,
    /// Write the fits to FILE as JSON.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `model check`.
#[derive(Clone, Debug, Args)]
pub struct CheckArguments {
    /// Files of records; - is standard input.
    #[arg(value_name = "RECORDS", required = true)]
    pub records: Vec<PathBuf>,
    /// Skip and report lines that are not valid records.
    #[arg(long)]
    pub skip_faults: bool,
    /// Profile of the sending host, written by `longhaul bench`.
    #[arg(long, value_name = "FILE")]
    pub source_profile: Option<PathBuf>,
    /// Profile of the receiving host, written by `longhaul bench`.
    #[arg(long, value_name = "FILE")]
    pub destination_profile: Option<PathBuf>,
    /// Fits of other runs of these hosts, written by `longhaul model fit RECORDS -o FILE`.
    #[arg(long, value_name = "FILE")]
    pub fits: Option<PathBuf>,
    /// Write a plot of predictions over measurements to FILE, as SVG.
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Print JSON, one run per line.
    #[arg(long)]
    pub json: bool,
}
