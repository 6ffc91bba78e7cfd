//! Arguments of `bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use longhaul_instrument::bench::{BenchSettings, Subject};
use longhaul_units::ByteCount;

/// Subjects of a benchmark.
#[derive(Clone, Debug, Subcommand)]
pub enum BenchCommand {
    /// Measure a file system: large files by block size, flows, direct or buffered; small
    /// files by the way to make them durable. Removes its test files.
    #[command(after_help = "Example:\n  longhaul bench disk --budget 60s /data")]
    Disk(DiskArguments),
    /// Measure codecs on your own data: ratio and throughput.
    #[command(after_help = "Example:\n  longhaul bench codec run1.h5 run2.h5")]
    Codec(CodecArguments),
    /// Measure the cost of encryption on this host.
    #[command(after_help = "Example:\n  longhaul bench tls")]
    Tls(TlsArguments),
    /// Measure disk, codecs and encryption.
    #[command(
        after_help = "Example:\n  longhaul bench all --budget 2min -o host.json /data /data/run1.h5"
    )]
    All(AllArguments),
}

/// Duration, repetitions and output of a benchmark.
#[derive(Clone, Debug, Args)]
pub struct BenchOptions {
    /// Stop after this time. The same command resumes.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = longhaul_units::parse_span)]
    pub budget: Duration,
    /// Number of counted repetitions, interleaved, after one warm-up.
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Maximum number of threads or streams [default: 16 for disks, else one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=512))]
    pub flows: Option<u32>,
    /// Path of the host profile. Results are added to it.
    #[arg(short, long, value_name = "FILE", default_value = "longhaul-host.json")]
    pub output: PathBuf,
    /// Discard earlier results of this command and measure again.
    #[arg(long)]
    pub again: bool,
    /// Print the host profile instead of tables.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `bench disk`.
#[derive(Clone, Debug, Args)]
pub struct DiskArguments {
    /// A directory on the file system.
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// Sizes of the test files. Each size is measured separately.
    #[arg(
        long,
        value_name = "SIZE,SIZE...",
        value_delimiter = ',',
        default_value = "64MiB,512MiB"
    )]
    pub size: Vec<ByteCount>,
    #[command(flatten)]
    pub options: BenchOptions,
}

/// Arguments of `bench codec`.
#[derive(Clone, Debug, Args)]
pub struct CodecArguments {
    /// Files similar to those that you will copy. 64 MiB of them are used.
    #[arg(value_name = "FILES", required = true)]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub options: BenchOptions,
}

/// Arguments of `bench tls`.
#[derive(Clone, Debug, Args)]
pub struct TlsArguments {
    #[command(flatten)]
    pub options: BenchOptions,
}

/// Arguments of `bench all`.
#[derive(Clone, Debug, Args)]
pub struct AllArguments {
    /// A directory on the file system.
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// Files for the codecs.
    #[arg(value_name = "FILES")]
    pub files: Vec<PathBuf>,
    /// Sizes of the test files on disk. Each size is measured separately.
    #[arg(
        long,
        value_name = "SIZE,SIZE...",
        value_delimiter = ',',
        default_value = "64MiB,512MiB"
    )]
    pub size: Vec<ByteCount>,
    #[command(flatten)]
    pub options: BenchOptions,
}

impl BenchCommand {
    /// Returns the subject of the benchmark.
    pub fn subject(&self) -> Subject {
        match self {
            BenchCommand::Disk(disk) => Subject::Disk {
                path: disk.path.clone(),
                sizes: disk.size.clone(),
            },
            BenchCommand::Codec(codec) => Subject::Codec(codec.files.clone()),
            BenchCommand::Tls(_) => Subject::Tls,
            BenchCommand::All(all) => Subject::All {
                path: all.path.clone(),
                sizes: all.size.clone(),
                files: all.files.clone(),
            },
        }
    }

    /// Returns the options of the benchmark.
    pub fn options(&self) -> &BenchOptions {
        match self {
            BenchCommand::Disk(disk) => &disk.options,
            BenchCommand::Codec(codec) => &codec.options,
            BenchCommand::Tls(tls) => &tls.options,
            BenchCommand::All(all) => &all.options,
        }
    }
}

impl BenchOptions {
    /// Returns the settings of the benchmark.
    pub fn settings(&self) -> BenchSettings {
        BenchSettings {
            budget: self.budget,
            rounds: self.rounds,
            flows: self.flows,
            output: self.output.clone(),
            again: self.again,
        }
    }
}
