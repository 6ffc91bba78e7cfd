//! What `history` takes.

use clap::Args;

/// Which transfers to show, or to forget.
#[derive(Clone, Debug, Args)]
pub struct HistoryArguments {
    /// Only transfers with this host.
    #[arg(value_name = "HOST")]
    pub host: Option<String>,
    /// Forget the transfers with this host; `all` is every host.
    #[arg(long, value_name = "HOST", conflicts_with = "host")]
    pub forget: Option<String>,
    /// Print JSON, a transfer a line.
    #[arg(long)]
    pub json: bool,
}
