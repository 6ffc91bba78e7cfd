//! Arguments of `history`.

use clap::Args;

/// Arguments of `history`.
#[derive(Clone, Debug, Args)]
pub struct HistoryArguments {
    /// Only transfers with this host.
    #[arg(value_name = "HOST")]
    pub host: Option<String>,
    /// Remove the records of transfers with this host; `all` means every host.
    #[arg(long, value_name = "HOST", conflicts_with = "host")]
    pub forget: Option<String>,
    /// Print JSON, one transfer per line.
    #[arg(long)]
    pub json: bool,
}
