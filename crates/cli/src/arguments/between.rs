//! Copies between two remote hosts, and the jobs that run them.

use std::path::PathBuf;

use clap::Args;

use super::{ChangedLimit, ConnectionArguments};

/// How a copy between two remote hosts is done.
#[derive(Clone, Debug, Args)]
pub struct BetweenArguments {
    /// Start the copy as a job, print its name and exit: on this host, or on one of two remote
    /// hosts. `longhaul attach` follows it. All questions are asked before.
    #[arg(long)]
    pub detach: bool,
    /// Between two remote hosts: carry the data through this host. Use it if no direct connection
    /// opens between them, or neither daemon may connect to the other.
    #[arg(long, conflicts_with = "detach")]
    pub through_local: bool,
}

/// What `jobs` takes.
#[derive(Clone, Debug, Args)]
pub struct JobsArguments {
    /// Hosts to ask: [USER@]HOST or longhaul://[PRINCIPAL@]HOST[:PORT] [default: those on which
    /// you started jobs from here]
    #[arg(value_name = "HOST")]
    pub hosts: Vec<String>,
    /// Print one JSON object per line for each job.
    #[arg(long)]
    pub json: bool,
    /// How hosts are reached, and daemons known.
    #[command(flatten)]
    pub connection: ConnectionArguments,
}

/// What `attach` takes.
#[derive(Clone, Debug, Args)]
pub struct AttachArguments {
    /// The job, as `longhaul jobs` lists it. If it was started from another host: HOST:JOB, or at
    /// a daemon longhaul://HOST:PORT:JOB.
    #[arg(value_name = "JOB")]
    pub job: String,
    /// Print progress as events, one JSON object per line. For a job that was started with --json.
    #[arg(long)]
    pub json: bool,
    /// Show no progress.
    #[arg(short, long)]
    pub quiet: bool,
    /// Write the manifest to this file, if the copy was started with --manifest.
    #[arg(long, value_name = "FILE")]
    pub manifest: Option<PathBuf>,
    /// Limit the copy to this rate from now on, as in `cp --bwlimit`; or none.
    #[arg(long, value_name = "RATE")]
    pub bwlimit: Option<ChangedLimit>,
    /// How hosts are reached, and daemons known.
    #[command(flatten)]
    pub connection: ConnectionArguments,
}

/// What `limit` takes.
#[derive(Clone, Debug, Args)]
pub struct LimitArguments {
    /// The number of the process that copies (PID), or a job as `longhaul jobs` lists it.
    #[arg(value_name = "PID|JOB")]
    pub copy: Option<String>,
    /// The rate from now on, as in `cp --bwlimit`; or none.
    #[arg(value_name = "RATE", requires = "copy")]
    pub rate: Option<ChangedLimit>,
    /// Print one JSON object per line for each copy.
    #[arg(long)]
    pub json: bool,
    /// How the host of a job is reached.
    #[command(flatten)]
    pub connection: ConnectionArguments,
}

/// What `cancel` takes.
#[derive(Clone, Debug, Args)]
pub struct CancelArguments {
    /// The job, as `longhaul jobs` lists it. If it was started from another host: HOST:JOB, or at
    /// a daemon longhaul://HOST:PORT:JOB.
    #[arg(value_name = "JOB")]
    pub job: String,
    /// How hosts are reached, and daemons known.
    #[command(flatten)]
    pub connection: ConnectionArguments,
}
