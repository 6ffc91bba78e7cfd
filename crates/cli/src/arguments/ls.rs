//! Arguments of `ls`.

use std::ffi::OsString;

use clap::Args;

use super::ConnectionArguments;

/// Arguments of `ls`.
#[derive(Clone, Debug, Args)]
pub struct ListArguments {
    /// A directory or file: a local path, [USER@]HOST:PATH, longhaul://HOST/PATH,
    /// ftp://HOST/PATH (gsiftp://, sshftp://), https://HOST/PATH or s3://BUCKET/PREFIX.
    #[arg(value_name = "ENDPOINT")]
    pub endpoint: OsString,
    /// Also print mode, size, time (UTC) and the target of links.
    #[arg(short, long)]
    pub long: bool,
    /// List directories with all their contents, as paths.
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// End each name with NUL instead of a newline, without escapes, for `xargs -0`.
    #[arg(short = '0', long, conflicts_with = "json")]
    pub null: bool,
    /// Print entries as JSON, one object per line.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub connection: ConnectionArguments,
}
