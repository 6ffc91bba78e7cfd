//! Arguments of `doctor`.

use std::ffi::OsString;

use clap::Args;

use super::ConnectionArguments;

/// Arguments of `doctor`.
#[derive(Clone, Debug, Args)]
pub struct DoctorArguments {
    /// The source or destination of a copy: [USER@]HOST:PATH, longhaul://HOST[:PORT]/PATH or a
    /// local path.
    #[arg(value_name = "ENDPOINT")]
    pub endpoint: OsString,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub connection: ConnectionArguments,
}
