//! Arguments for copies between two remote hosts, and for jobs.

use std::path::PathBuf;

use clap::Args;

use super::{ChangedLimit, ConnectionArguments};

/// Arguments for copies between two remote hosts, and for jobs.
#[derive(Clone, Debug, Args)]
pub struct BetweenArguments {
    /// Start the copy as a job, print the job's name and exit. The job runs on this host, or on one
    /// of two remote hosts. `longhaul attach` follows it. Questions are asked before it starts.
    #[arg(long)]
    pub detach: bool,
    /// Between two remote hosts: carry the data through this host. Use this if the hosts
    /// cannot connect to each other, or neither daemon may connect to the other.
    #[arg(long, conflicts_with = "detach")]
    pub through_local: bool,
}

/// Arguments of `jobs`.
#[derive(Clone, Debug, Args)]
pub struct JobsArguments {
    /// Hosts to ask: [USER@]HOST or longhaul://[PRINCIPAL@]HOST[:PORT] [default: hosts on
    /// which you started jobs from here]
    #[arg(value_name = "HOST")]
    pub hosts: Vec<String>,
    /// Print jobs as JSON, one object per line.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub connection: ConnectionArguments,
}

/// Arguments of `attach`.
#[derive(Clone, Debug, Args)]
pub struct AttachArguments {
    /// Name of the job, as listed by `longhaul jobs`. If it was started from another
    /// host: HOST:JOB, or at a daemon longhaul://HOST:PORT:JOB.
    #[arg(value_name = "JOB")]
    pub job: String,
    /// Print progress events as JSON, one object per line. For a job that was started with --json.
    #[arg(long)]
    pub json: bool,
    /// Print no progress.
    #[arg(short, long)]
    pub quiet: bool,
    /// Write the manifest to this file, if the copy was started with --manifest.
    #[arg(long, value_name = "FILE")]
    pub manifest: Option<PathBuf>,
    /// Limit the copy to this rate from now on, as in `cp --bwlimit`; `none` removes the limit.
    #[arg(long, value_name = "RATE")]
    pub bwlimit: Option<ChangedLimit>,
    #[command(flatten)]
    pub connection: ConnectionArguments,
}

/// Arguments of `limit`.
#[derive(Clone, Debug, Args)]
pub struct LimitArguments {
    /// Process number (PID) of the copy, or a job as listed by `longhaul jobs`.
    #[arg(value_name = "PID|JOB")]
    pub copy: Option<String>,
    /// New maximum rate, as in `cp --bwlimit`; `none` removes the limit.
    #[arg(value_name = "RATE", requires = "copy")]
    pub rate: Option<ChangedLimit>,
    /// Print copies as JSON, one object per line.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub connection: ConnectionArguments,
}

/// Arguments of `cancel`.
#[derive(Clone, Debug, Args)]
pub struct CancelArguments {
    /// Name of the job, as listed by `longhaul jobs`. If it was started from another
    /// host: HOST:JOB, or at a daemon longhaul://HOST:PORT:JOB.
    #[arg(value_name = "JOB")]
    pub job: String,
    #[command(flatten)]
    pub connection: ConnectionArguments,
}
