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
    /// Mode, size, time (UTC) and a link's target, too.
    #[arg(short, long)]
    pub long: bool,
    /// What lies in directories, too, as paths.
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// A NUL after each name instead of an end of line, and nothing escaped: for `xargs -0`.
    #[arg(short = '0', long, conflicts_with = "json")]
    pub null: bool,
    /// One JSON object a line for each entry.
    #[arg(long)]
    pub json: bool,
    /// How the other host is reached and known.
    #[command(flatten)]
    pub connection: ConnectionArguments,
}
