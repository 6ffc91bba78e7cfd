//! How hosts are reached over SSH.

use clap::Args;

use super::Ports;

/// How the far side of `[user@]host:path` is reached.
#[derive(Clone, Debug, Args)]
pub struct SshArguments {
    /// The ssh command for [user@]host:path with its options, quoted as in a shell, such as "ssh
    /// -p 2222" [default: LONGHAUL_SSH, else ssh]
    #[arg(long, alias = "rsh", short_alias = 'e', value_name = "COMMAND")]
    pub ssh: Option<String>,
    /// The longhaul binary on the far side of SSH; `~/` is the home there [default: the one that
    /// --install-remote put there, else the one in its PATH]
    #[arg(long, value_name = "FILE")]
    pub remote_longhaul: Option<String>,
    /// Install longhaul on the far side, in ~/.cache/longhaul, if this release is not there. It is
    /// a static longhaul-MACHINE next to this binary or in ../lib/longhaul, else this binary.
    #[arg(long, conflicts_with = "remote_longhaul")]
    pub install_remote: bool,
    /// TCP ports for direct connections of a copy over SSH, at either end, as open in the
    /// firewalls: 50000-50009 [default: any]
    #[arg(long, value_name = "FIRST-LAST")]
    pub ports: Option<Ports>,
    /// Keep the login for this time after its last use, so that later commands do not log in; off:
    /// keep none, and end the one that is kept [default: 10min on a terminal, else off]
    #[arg(long, value_name = "TIME")]
    pub ssh_persist: Option<longhaul_transfer::settings::Persist>,
}

/// What ssh starts on the far side.
#[derive(Clone, Debug, Args)]
pub struct RemoteArguments {
    /// Carry one more channel to the session that listens under this name.
    #[arg(long)]
    pub join: Option<String>,
    /// Print the digest of this binary, and end.
    #[arg(long)]
    pub digest: bool,
    /// Run a job: a copy with another host, which the client introduces.
    #[arg(long)]
    pub drive: bool,
    /// Run a job of this host's, for the command that started this process.
    #[arg(long)]
    pub own_job: bool,
    /// Wait for the host that is introduced, and connect to it.
    #[arg(long)]
    pub meet: bool,
    /// Carry the channel of a job.
    #[arg(long)]
    pub attach: Option<String>,
    /// List the jobs of this user.
    #[arg(long)]
    pub jobs: bool,
    /// File with the daemon's principal that owns the job. The file is removed.
    #[arg(long)]
    pub confined: Option<std::path::PathBuf>,
    /// Hosts that the daemon connects to.
    #[arg(long)]
    pub dial: Option<String>,
    /// Where channels come to the job of a daemon that connects to no host for it.
    #[arg(long)]
    pub channels: Option<std::path::PathBuf>,
    /// Ports to listen on.
    #[arg(long, default_value = "0-0")]
    pub ports: Ports,
    /// Memory for blocks.
    #[arg(long, default_value = super::USUAL_MEMORY)]
    pub memory: longhaul_units::ByteCount,
    /// How long the session waits after its last connection was lost.
    #[arg(long, default_value = "60s", value_parser = longhaul_units::parse_span)]
    pub linger: std::time::Duration,
    /// When leftovers of killed copies expire.
    #[arg(long, default_value = "15d", value_parser = super::parse_expiry)]
    pub expire_leftovers: super::Expiry,
}
