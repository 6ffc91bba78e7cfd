//! What `model` takes.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// What to do with measurements.
#[derive(Clone, Debug, Subcommand)]
pub enum ModelCommand {
    /// Fit capacities to host profiles, which `longhaul bench` makes: the form that suits each
    /// component, its parameters with their intervals, and what to doubt. From records of runs,
    /// what the layers of copies took.
    #[command(
        after_help = "Examples:\n  longhaul model fit longhaul-host.json\n  longhaul model fit model-fit.jsonl.zst -o fits.json"
    )]
    Fit(FitArguments),
    /// Compare predictions with records of runs: errors by what limits, and the worst runs.
    #[command(
        after_help = "Example:\n  longhaul model check --plot check.svg bench/runs/2026-11-25-profile.jsonl.zst"
    )]
    Check(CheckArguments),
}

/// What `model fit` takes.
#[derive(Clone, Debug, Args)]
pub struct FitArguments {
    /// Host profiles, or records of runs (names that end with .jsonl, .ndjson or .zst): what the
    /// layers and cores of longhaul's own copies took.
    #[arg(value_name = "FILE", required = true)]
    pub profiles: Vec<PathBuf>,
    /// Write the fits as JSON.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// What `model check` takes.
#[derive(Clone, Debug, Args)]
pub struct CheckArguments {
    /// Files of records; - is standard input.
    #[arg(value_name = "RECORDS", required = true)]
    pub records: Vec<PathBuf>,
    /// Leave out lines that are no records of this schema, which are named.
    #[arg(long)]
    pub skip_faults: bool,
    /// The sending host's profile, as `longhaul bench` makes it.
    #[arg(long, value_name = "FILE")]
    pub source_profile: Option<PathBuf>,
    /// The receiving host's.
    #[arg(long, value_name = "FILE")]
    pub destination_profile: Option<PathBuf>,
    /// What other runs of these hosts took, as `longhaul model fit RECORDS -o FILE` writes it.
    #[arg(long, value_name = "FILE")]
    pub fits: Option<PathBuf>,
    /// Draw predictions over measurements: an SVG picture.
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Print JSON, a run a line.
    #[arg(long)]
    pub json: bool,
}
