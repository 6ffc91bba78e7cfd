//! Arguments of `probe`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use longhaul_instrument::probe::prober::ProbeSettings;
use longhaul_measure::sources::Direction;
use longhaul_transfer::quantities;
use longhaul_units::BitRate;

use super::ConnectionArguments;

/// Maximum number of streams that a daemon allows.
const MOST_STREAMS: i64 = 512;

/// Arguments of `probe`.
#[derive(Clone, Debug, Args)]
pub struct ProbeArguments {
    /// The daemon: longhaul://[PRINCIPAL@]HOST[:PORT]. The principal needs the right "measure".
    #[arg(value_name = "ENDPOINT", required_unless_present_any = ["iperf3", "pscheduler"])]
    pub endpoint: Option<OsString>,
    /// Numbers of streams. Each is measured separately.
    #[arg(
        long,
        value_name = "N,N...",
        value_delimiter = ',',
        default_value = "1,2,4,8,16",
        value_parser = clap::value_parser!(u32).range(1..=MOST_STREAMS)
    )]
    pub streams: Vec<u32>,
    /// Direction of the data.
    #[arg(long, value_enum, default_value = "both")]
    pub direction: DirectionArgument,
    /// Number of repetitions for each number of streams, interleaved.
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Duration of each measurement, from the first data. If data or reports are late, up
    /// to 10 s longer [default: twenty round trips, 2 s to 10 s]
    #[arg(long, value_name = "TIME", value_parser = longhaul_units::parse_span)]
    pub time: Option<Duration>,
    /// Number of connections for measuring the round-trip time.
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub pings: u32,
    /// A result of `iperf3 --json` on this path, for comparison. May be given several times.
    #[arg(long, value_name = "FILE")]
    pub iperf3: Vec<PathBuf>,
    /// A result of a throughput test of perfSONAR's pScheduler (JSON), for comparison.
    /// May be given several times.
    #[arg(long, value_name = "FILE")]
    pub pscheduler: Vec<PathBuf>,
    /// Append each repetition to FILE as a record of a memory-to-memory run, for `longhaul
    /// profile`. Samples and descriptions of both hosts are written next to it.
    #[arg(long, value_name = "FILE")]
    pub records: Option<PathBuf>,
    /// Use name, rtt and capacity of the path in this sweep file for the records.
    /// `profile` then uses the probe as the Θ_T of the sweep's transfers.
    #[arg(long, value_name = "FILE", requires = "records")]
    pub sweep: Option<PathBuf>,
    /// Capacity of the path for TCP payload, for the records [default: the maximum that
    /// was measured]
    #[arg(long, value_name = "RATE", requires = "records", conflicts_with = "sweep", value_parser = quantities::positive_rate)]
    pub capacity: Option<BitRate>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
    /// Connection to the daemon, and its authentication. Several --bind addresses are
    /// separate paths, and so are several addresses of the host.
    #[command(flatten)]
    pub connection: ConnectionArguments,
}

/// Directions of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DirectionArgument {
    /// To the daemon.
    To,
    /// From the daemon.
    From,
    /// Both, one after the other.
    Both,
}

impl ProbeArguments {
    /// Returns the settings of the probe.
    pub fn settings(&self) -> ProbeSettings {
        ProbeSettings {
            streams: self.streams.clone(),
            directions: match self.direction {
                DirectionArgument::To => vec![Direction::To],
                DirectionArgument::From => vec![Direction::From],
                DirectionArgument::Both => vec![Direction::To, Direction::From],
            },
            rounds: self.rounds,
            time: self.time,
            pings: self.pings,
            keep_samples: self.records.is_some(),
            connection: self.connection.settings(),
        }
    }
}
