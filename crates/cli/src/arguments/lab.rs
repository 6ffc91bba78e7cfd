//! Arguments of `longhaul lab`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use longhaul_lab::background::Background;
use longhaul_lab::command;
use longhaul_lab::emulator::gate::BlockRule;
use longhaul_lab::scenario::{
    Hosts, PairPath, PathSettings, Scenario, ScenarioError, Sysctl, Window, parse_block,
};
use longhaul_lab::settings::{
    LabSettings, MOST_BACKGROUND_STREAMS, SMALLEST_MTU, parse_host_sysctl, parse_nat, parse_on_off,
};
use longhaul_lab::storage::plan::StoragePlan;

/// Commands for labs.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Run a command on site A, with an emulated path to site B.
    #[command(after_help = RUN_EXAMPLES)]
    Run(Box<LabRunArguments>),
    /// Start a lab that runs until `lab down`.
    #[command(after_help = "Example:\n  longhaul lab up far --rtt 366ms --rate 10Gbit/s")]
    Up(Box<LabUpArguments>),
    /// Run a command on a host of a lab.
    #[command(after_help = "Example:\n  longhaul lab exec far b -- iperf3 -s")]
    Exec(LabExecArguments),
    /// List running labs, or report the counters of one.
    #[command(after_help = "Example:\n  longhaul lab status far")]
    Status(LabStatusArguments),
    /// Change the path of a running lab.
    #[command(
        after_help = "Examples:\n  longhaul lab set far cut=5s\n  longhaul lab set far rtt=10ms loss=1e-4\n  longhaul lab set far a-c:rtt=20ms"
    )]
    Set(LabSetArguments),
    /// End a lab and everything in it.
    #[command(after_help = "Example:\n  longhaul lab down far")]
    Down(LabDownArguments),
}

const RUN_EXAMPLES: &str = "Examples:
  longhaul lab run --rtt 100ms --rate 1Gbit/s -- ping -c 3 lab-b
  longhaul lab run --rtt 91.6ms --rate 5Gbit/s --server 'iperf3 -s -1' -- iperf3 -c lab-b
  longhaul lab run --rtt 20ms --rate 1Gbit/s --loss 1e-4 -- sh -c 'ping -c 3 $LONGHAUL_LAB_B'
  longhaul lab run --rtt 50ms --storage /data:read-rate=200MB/s,latency=5ms -- cp /data/f /tmp
  longhaul lab run --storage gluster:nodes=4,brick-rate=100MB/s -- sh -c 'df $LONGHAUL_LAB_STORAGE'
Variables of every command: LONGHAUL_LAB_A and LONGHAUL_LAB_B (addresses of the sites' first
hosts), LONGHAUL_LAB_A1, _A2, _B1 ... (every host), each with _V6 and _ALL; LONGHAUL_LAB_HOST,
LONGHAUL_LAB_PATH, LONGHAUL_LAB_CONGESTION; LONGHAUL_LAB_STORAGE, _STORAGE_2 ... Names: lab-a, lab-b, lab-a1 ...
The exit code is that of the command; if the lab cannot be started, 1 (usage) or 6.";

/// Settings of the path between sites.
#[derive(Clone, Debug, Args)]
pub struct PathArguments {
    /// Round-trip time without the time in queue and line [default: 0ms]
    #[arg(long, value_name = "TIME")]
    pub rtt: Option<String>,
    /// Rate of the Ethernet line, which adds 38 bytes to each IP packet [default: unlimited]
    #[arg(long, value_name = "RATE")]
    pub rate: Option<String>,
    /// Lost segments in each direction: a percentage such as 0.1%, a fraction below 1 such as 1e-5,
    /// SHARE/LENGTH for bursts, or ge:TO_BAD/TO_GOOD/LOSS_BAD/LOSS_GOOD [default: 0]
    #[arg(long, value_name = "LOSS")]
    pub loss: Option<String>,
    /// Size of the queue before the line, in bytes or BDPs (at least 128 KiB) [default: 1bdp]
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<String>,
    /// Maximum deviation of the delay in each direction. The order of packets is kept.
    #[arg(long, value_name = "TIME")]
    pub jitter: Option<String>,
    /// Segments that arrive later than those after them, with their additional delay: 1e-3:2ms.
    #[arg(long, value_name = "SHARE:TIME")]
    pub reorder: Option<String>,
    /// Segments that arrive twice.
    #[arg(long, value_name = "SHARE")]
    pub duplicate: Option<String>,
    /// Segments damaged so that TCP detects it.
    #[arg(long, value_name = "SHARE")]
    pub corrupt: Option<String>,
    /// Segments damaged with a correct checksum, so that only the application can detect it.
    #[arg(long, value_name = "SHARE")]
    pub corrupt_unseen: Option<String>,
    /// Part of the RTT on the way from B to A [default: half]
    #[arg(long, value_name = "TIME")]
    pub delay_back: Option<String>,
    /// Rate from B to A, if it differs.
    #[arg(long, value_name = "RATE")]
    pub rate_back: Option<String>,
    /// Loss from B to A, if it differs.
    #[arg(long, value_name = "LOSS")]
    pub loss_back: Option<String>,
}

impl PathArguments {
    fn settings(&self) -> Result<PathSettings, ScenarioError> {
        let mut path = PathSettings::default();
        for (key, value) in [
            ("rtt", &self.rtt),
            ("rate", &self.rate),
            ("loss", &self.loss),
            ("queue", &self.queue),
            ("jitter", &self.jitter),
            ("reorder", &self.reorder),
            ("duplicate", &self.duplicate),
            ("corrupt", &self.corrupt),
            ("corrupt-unseen", &self.corrupt_unseen),
            ("delay-back", &self.delay_back),
            ("rate-back", &self.rate_back),
            ("loss-back", &self.loss_back),
        ] {
            if let Some(value) = value {
                path.apply_one(key, value)?;
            }
        }
        path.links()?;
        Ok(path)
    }
}

/// Settings of a lab.
#[derive(Clone, Debug, Args)]
pub struct ScenarioArguments {
    #[command(flatten)]
    pub path: PathArguments,
    /// Settings of the path between two sites, if they differ: a-c:rtt=20ms,rate=10gbit.
    #[arg(long = "path", value_name = "PAIR:KEY=VALUE")]
    pub pairs: Vec<PairPath>,
    /// Connect two hosts by a cable (a veth pair) instead of an emulated path, to measure
    /// the cost of the hosts. Excludes settings of the path.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    pub veth: bool,
    /// Number of hosts per site: 2x2 is two sites of two hosts, 1x1x1 is three sites of one host.
    #[arg(long, value_name = "NxN", default_value = "1x1")]
    pub hosts: Hosts,
    /// Congestion control of the hosts.
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    pub congestion: String,
    /// TCP window of the hosts, set by tcp_rmem and tcp_wmem: in BDPs, in bytes, or
    /// `host` for this machine's settings. Never less than this machine's settings.
    #[arg(long, value_name = "WINDOW", default_value = "2bdp", value_parser = |text: &str| text.parse::<Window>())]
    pub window: Window,
    /// A kernel parameter of all hosts, or of one site or host (b:net.ipv4.tcp_sack=0).
    #[arg(long, value_name = "K=V")]
    pub sysctl: Vec<Sysctl>,
    /// A kernel parameter of the whole machine (net.core.*), restored at the end. Only
    /// one lab at a time can set it.
    #[arg(long, value_name = "K=V", value_parser = parse_host_sysctl)]
    pub host_sysctl: Vec<(String, String)>,
    /// Maximum size of IP packets (MTU).
    #[arg(long, value_name = "BYTES", default_value = "1500", value_parser = clap::value_parser!(u16).range(i64::from(SMALLEST_MTU)..))]
    pub mtu: u16,
    /// Number of addresses per host.
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u8).range(1..=9))]
    pub addresses: u8,
    /// Firewall of a site: SITE:PORT, SITE:FROM-TO or SITE:new (TCP connections) drops
    /// packets from other sites; :reset answers with a reset instead. b:4960, a:new:reset
    #[arg(long, value_name = "RULE", value_parser = parse_block)]
    pub block: Vec<BlockRule>,
    /// Site behind NAT: its hosts share one public address.
    #[arg(long, value_name = "SITE", value_parser = parse_nat)]
    pub nat: Option<usize>,
    /// Number of background TCP streams of other hosts on the path from A to B.
    #[arg(long, value_name = "N", default_value = "0", value_parser = clap::value_parser!(u16).range(0..=i64::from(MOST_BACKGROUND_STREAMS)))]
    pub background: u16,
    /// Sending time and pause of the background streams: 2s/1s.
    #[arg(long, value_name = "ON/OFF", value_parser = parse_on_off, requires = "background")]
    pub background_on_off: Option<(Duration, Duration)>,
    /// Storage of the lab: a directory behind a modelled device
    /// (DIR:read-rate=100MB/s,latency=5ms), or a parallel file system of 1 to 8 nodes
    /// (gluster:nodes=4,brick-rate=100MB/s), mounted at LONGHAUL_LAB_STORAGE. Each is a
    /// separate device.
    #[arg(long, value_name = "STORAGE", value_parser = |text: &str| text.parse::<StoragePlan>())]
    pub storage: Vec<StoragePlan>,
    /// Seed of all random events: the same seed loses the same segments.
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: u64,
}

impl ScenarioArguments {
    /// Returns the settings of the lab.
    ///
    /// # Errors
    ///
    /// Returns an error if the settings are invalid.
    pub fn settings(&self) -> Result<LabSettings, ScenarioError> {
        let scenario = Scenario {
            hosts: self.hosts.clone(),
            path: self.path.settings()?,
            pairs: self.pairs.clone(),
            veth: self.veth,
            mtu: self.mtu,
            congestion: self.congestion.clone(),
            window: self.window,
            sysctls: self.sysctl.clone(),
            addresses: usize::from(self.addresses),
            blocks: self.block.clone(),
            nat: self.nat,
            background: self.background(),
            storage: self.storage.clone(),
            seed: self.seed,
        };
        scenario.directions()?;
        Ok(LabSettings {
            scenario,
            host_sysctls: self.host_sysctl.clone(),
        })
    }

    fn background(&self) -> Option<Background> {
        (self.background > 0).then_some(Background {
            streams: self.background,
            on_off: self.background_on_off,
        })
    }
}

/// Arguments of `lab run`.
#[derive(Clone, Debug, Args)]
pub struct LabRunArguments {
    #[command(flatten)]
    pub scenario: ScenarioArguments,
    /// Shell command that runs on the first host of site B. The main command starts once
    /// this server listens. Its output goes to standard error.
    #[arg(long, value_name = "CMD")]
    pub server: Option<String>,
    /// TCP port of the server [default: any]
    #[arg(long, value_name = "PORT", requires = "server")]
    pub server_port: Option<u16>,
    /// Maximum time until the server listens.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = longhaul_units::parse_span)]
    pub server_wait: Duration,
    /// Host that runs the command.
    #[arg(long, value_name = "HOST", default_value = "a1")]
    pub on: String,
    /// Name of the lab, for `lab set` and `lab exec` [default: run-PID]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Write a report of the lab to FILE, as JSON.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Print only doubts and failures on standard error.
    #[arg(short, long)]
    pub quiet: bool,
    /// The command and its arguments.
    #[arg(value_name = "CMD", required = true, last = true)]
    pub command: Vec<OsString>,
}

impl LabRunArguments {
    /// Returns the command that runs in the lab.
    pub fn command(&self) -> command::LabCommand {
        let server = self.server.as_ref().map(|command| command::Server {
            command: command.clone(),
            port: self.server_port,
            wait: self.server_wait,
        });
        command::LabCommand {
            words: self.command.clone(),
            on: self.on.clone(),
            server,
        }
    }
}

/// Arguments of `lab up`.
#[derive(Clone, Debug, Args)]
pub struct LabUpArguments {
    /// Name of the lab.
    #[arg(value_name = "NAME")]
    pub name: String,
    #[command(flatten)]
    pub scenario: ScenarioArguments,
}

/// Arguments of `lab exec`.
#[derive(Clone, Debug, Args)]
pub struct LabExecArguments {
    /// Name of the lab.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Name of the host, such as a1. A single letter means the first host of a site.
    #[arg(value_name = "HOST")]
    pub host: String,
    /// The command and its arguments.
    #[arg(value_name = "CMD", required = true, last = true)]
    pub command: Vec<OsString>,
}

/// Arguments of `lab status`.
#[derive(Clone, Debug, Args)]
pub struct LabStatusArguments {
    /// Name of the lab [default: list the names of all labs]
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `lab set`.
#[derive(Clone, Debug, Args)]
pub struct LabSetArguments {
    /// Name of the lab.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// New settings of the path: rtt=, rate=, loss=, queue= and others. a-c:rtt=20ms
    /// changes the path between two sites. cut=5s drops all packets for 5 s.
    #[arg(value_name = "KEY=VALUE", required = true)]
    pub settings: Vec<String>,
}

/// Arguments of `lab down`.
#[derive(Clone, Debug, Args)]
pub struct LabDownArguments {
    /// Name of the lab.
    #[arg(value_name = "NAME")]
    pub name: String,
}
