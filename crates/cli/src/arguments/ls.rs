//! What `ls` takes.

use std::ffi::OsString;

use clap::Args;

use super::ConnectionArguments;

/// What `ls` takes.
#[derive(Clone, Debug, Args)]
pub struct ListArguments {
    /// A directory or file: a local path, [USER@]HOST:PATH or longhaul://HOST/PATH.
    #[arg(value_name = "ENDPOINT")]
    pub endpoint: OsString,
    /// Print mode, size, time (UTC) and the target of links too.
    #[arg(short, long)]
    pub long: bool,
    /// List directories with everything in them, as paths.
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// End each name with NUL instead of a newline, and escape nothing, for `xargs -0`.
    #[arg(short = '0', long, conflicts_with = "json")]
    pub null: bool,
    /// Print one JSON object per line for each entry.
    #[arg(long)]
    pub json: bool,
    /// How the other host is reached and known.
    #[command(flatten)]
    pub connection: ConnectionArguments,
}
