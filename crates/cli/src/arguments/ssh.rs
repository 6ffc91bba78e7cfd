//! Arguments for connections over SSH.

use clap::Args;

use super::Ports;

/// Arguments for connections to `[user@]host:path`.
#[derive(Clone, Debug, Args)]
pub struct SshArguments {
    /// Command that runs ssh for [user@]host:path, with its options, quoted as in a
    /// shell, for example "ssh -p 2222" [default: LONGHAUL_SSH, else ssh]
    #[arg(long, alias = "rsh", short_alias = 'e', value_name = "COMMAND")]
    pub ssh: Option<String>,
    /// Path of longhaul on the remote host; `~/` means the home directory there [default: the
    /// binary that --install-remote installed, else longhaul in the PATH there]
    #[arg(long, value_name = "FILE")]
    pub remote_longhaul: Option<String>,
    /// If this release is missing on the remote host, install it in ~/.cache/longhaul. The
    /// installed binary is a static longhaul-MACHINE next to this binary or in
    /// ../lib/longhaul, else this binary.
    #[arg(long, conflicts_with = "remote_longhaul")]
    pub install_remote: bool,
    /// TCP ports for direct connections of a copy over SSH, at either end, that are open
    /// in the firewalls: 50000-50009 [default: any]
    #[arg(long, value_name = "FIRST-LAST")]
    pub ports: Option<Ports>,
    /// Keep the ssh login open for this time after its last use, so that later commands need no
    /// login; `off` keeps none and closes an open one [default: 10min on a terminal, else off]
    #[arg(long, value_name = "TIME")]
    pub ssh_persist: Option<longhaul_transfer::settings::Persist>,
}

/// Arguments of the process that ssh starts on the remote host.
#[derive(Clone, Debug, Args)]
pub struct RemoteArguments {
    /// Carry one more channel of the session with this name.
    #[arg(long)]
    pub join: Option<String>,
    /// Print the digest of this binary and exit.
    #[arg(long)]
    pub digest: bool,
    /// Run a job: a copy with another host, to which the client introduces this host.
    #[arg(long)]
    pub drive: bool,
    /// Run a job of this host for the command that started this process.
    #[arg(long)]
    pub own_job: bool,
    /// Wait for the introduced host and connect to it.
    #[arg(long)]
    pub meet: bool,
    /// Carry the channel of the job with this name.
    #[arg(long)]
    pub attach: Option<String>,
    /// List the jobs of this user.
    #[arg(long)]
    pub jobs: bool,
    /// File with the daemon's principal that owns the job. The file is removed.
    #[arg(long)]
    pub confined: Option<std::path::PathBuf>,
    /// Hosts to which the daemon connects.
    #[arg(long)]
    pub dial: Option<String>,
    /// Path where channels arrive for a job whose daemon does not connect to hosts itself.
    #[arg(long)]
    pub channels: Option<std::path::PathBuf>,
    /// Ports to listen on.
    #[arg(long, default_value = "0-0")]
    pub ports: Ports,
    /// Memory for blocks.
    #[arg(long, default_value = super::USUAL_MEMORY)]
    pub memory: longhaul_units::ByteCount,
    /// Time that the session waits after its last connection was lost.
    #[arg(long, default_value = "60s", value_parser = longhaul_units::parse_span)]
    pub linger: std::time::Duration,
    /// Age at which leftovers of killed copies expire.
    #[arg(long, default_value = "15d", value_parser = super::parse_expiry)]
    pub expire_leftovers: super::Expiry,
}
