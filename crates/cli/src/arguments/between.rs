//! Copies between two remote hosts, and the jobs that run them.

use std::path::PathBuf;

use clap::Args;

use super::{ChangedLimit, ConnectionArguments};

/// How a copy between two remote hosts is done.
#[derive(Clone, Debug, Args)]
pub struct BetweenArguments {
    /// Of a copy between two remote hosts: start it, print the job's name and end; `longhaul
    /// attach` shows it.
    #[arg(long)]
    pub detach: bool,
    /// Of a copy between two remote hosts: carry the data through this host, where no direct
    /// connection opens between them, or no daemon of the two may connect to the other.
    #[arg(long, conflicts_with = "detach")]
    pub through_local: bool,
}

/// What `jobs` takes.
#[derive(Clone, Debug, Args)]
pub struct JobsArguments {
    /// Hosts to ask, as [USER@]HOST or longhaul://[PRINCIPAL@]HOST[:PORT] [default: those where this user started jobs from here]
    #[arg(value_name = "HOST")]
    pub hosts: Vec<String>,
    /// One JSON object a line for each job.
    #[arg(long)]
    pub json: bool,
    /// How hosts are reached, and daemons known.
    #[command(flatten)]
    pub connection: ConnectionArguments,
}

/// What `attach` takes.
#[derive(Clone, Debug, Args)]
pub struct AttachArguments {
    /// The job, as `longhaul jobs` lists it; HOST:JOB, at a daemon longhaul://HOST:PORT:JOB, where
    /// it was started from elsewhere.
    #[arg(value_name = "JOB")]
    pub job: String,
    /// Progress as events, one JSON object a line; for a job that was begun with --json.
    #[arg(long)]
    pub json: bool,
    /// Show no progress.
    #[arg(short, long)]
    pub quiet: bool,
    /// Write the manifest of a copy that was begun with --manifest to this file.
    #[arg(long, value_name = "FILE")]
    pub manifest: Option<PathBuf>,
    /// Bind the copy to this rate from now on, as `cp --bwlimit` takes it; or none.
    #[arg(long, value_name = "RATE")]
    pub bwlimit: Option<ChangedLimit>,
    /// How hosts are reached, and daemons known.
    #[command(flatten)]
    pub connection: ConnectionArguments,
}

/// What `cancel` takes.
#[derive(Clone, Debug, Args)]
pub struct CancelArguments {
    /// The job, as `longhaul jobs` lists it; HOST:JOB, at a daemon longhaul://HOST:PORT:JOB, where
    /// it was started from elsewhere.
    #[arg(value_name = "JOB")]
    pub job: String,
    /// How hosts are reached, and daemons known.
    #[command(flatten)]
    pub connection: ConnectionArguments,
}
