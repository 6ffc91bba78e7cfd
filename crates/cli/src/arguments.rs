//! The command line: all options with their help and parsers.

// The help uses brackets for optional parts, which rustdoc would read as links.
#![allow(rustdoc::broken_intra_doc_links, rustdoc::invalid_html_tags)]

mod accounts;
mod analysis;
mod bench;
mod between;
mod choices;
mod cluster;
mod commands;
mod compression;
mod criteria;
mod deletion;
mod doctor;
mod filters;
mod history;
mod keeping;
pub mod lab;
mod ls;
mod model;
#[cfg(test)]
mod option_values;
mod other_tools;
mod plan;
mod probe;
#[cfg(test)]
mod quantities;
mod s3;
mod short_help;
mod spec;
mod ssh;
mod sweep;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::log::{LogFormat, LogLevel};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use longhaul_net::identity::Fingerprint;
use longhaul_net::principals::Fault;
use longhaul_proto::digest::Integrity;
use longhaul_proto::options::Stack;
use longhaul_transfer::daemon::listen_address;
use longhaul_transfer::daemon::{config_file, metrics};
use longhaul_transfer::settings::DataSecurity;
use longhaul_transfer::spec::written;
use longhaul_units::ByteCount;

pub use accounts::{AccountArguments, WriteArguments};
pub use analysis::{
    AnalysisArguments, CompressArguments, ExportArguments, ExportFormat, ImportArguments,
    ProfileArguments, RecordsCommand, ReportArguments,
};
pub use bench::BenchCommand;
pub use between::{
    AttachArguments, BetweenArguments, CancelArguments, JobsArguments, LimitArguments,
};
use choices::{Choice, one_of};
pub use cluster::{ClusterArguments, WorkerArguments};
pub use commands::CommandArguments;
pub use compression::CompressionArguments;
pub use criteria::CriteriaArguments;
pub use deletion::DeletionArguments;
pub use doctor::DoctorArguments;
pub use filters::FilterArguments;
pub use history::HistoryArguments;
pub use keeping::KeepingArguments;
use longhaul_transfer::planning::choice::AskedPolicy;
pub use longhaul_transfer::ports::Ports;
pub use longhaul_transfer::rate_limit::{BandwidthLimit, ChangedLimit};
pub use ls::ListArguments;
pub use model::{CheckArguments, FitArguments, ModelCommand};
pub use plan::PlanArguments;
pub use probe::ProbeArguments;
pub use ssh::{RemoteArguments, SshArguments};
pub use sweep::SweepArguments;

// tidy: long file because it lists the commands and the options that several of them share.

/// Default memory for the blocks of one end of a session.
const USUAL_MEMORY: &str = "128MiB";

/// Copies files and trees between distant hosts: many streams, encrypted, verified, resumable.
#[derive(Debug, Parser)]
#[command(name = "longhaul", version, after_help = EXIT_CODES, max_term_width = 100)]
pub struct Arguments {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

impl Arguments {
    /// Parses the command line.
    ///
    /// # Errors
    ///
    /// Returns an error if the line is invalid. Help and version are returned as errors too.
    pub fn read() -> Result<Arguments, clap::Error> {
        Arguments::read_line(std::env::args_os().collect())
    }

    fn read_line(line: Vec<OsString>) -> Result<Arguments, clap::Error> {
        let refused = |of_cp: bool| {
            move |text: String| other_tools::error_of(Arguments::shown(), of_cp, text)
        };
        let line = config_file::with_config(line).map_err(refused(false))?;
        other_tools::refuse_command(&line).map_err(refused(false))?;
        let matches = match Arguments::shown().try_get_matches_from(&line) {
            Ok(matches) => matches,
            Err(error) => {
                if error.use_stderr() {
                    other_tools::refuse_options_of_line(Arguments::shown(), &line)
                        .map_err(refused(true))?;
                }
                return Err(other_tools::without_wrong_tips(error));
            }
        };
        if let Some(("cp", cp)) = matches.subcommand()
            && let Err(text) = other_tools::refuse_options(cp)
        {
            return Err(refused(true)(other_tools::better_hint(text, &line)));
        }
        Arguments::from_arg_matches(&matches)
    }

    /// Returns the short list of options if the command line is exactly `longhaul cp -h`.
    /// Next to other words, `-h` is an option of rsync.
    pub fn short_help() -> Option<&'static str> {
        let asks = std::env::args_os().skip(1).eq(["cp", "-h"]);
        asks.then_some(short_help::CP)
    }

    /// Returns the command with hidden options for its help. `probe` connects to a daemon, without
    /// ssh, and cannot yield to other traffic. Commands for jobs move no data.
    fn shown() -> clap::Command {
        let hide = |command: clap::Command, options: &[&'static str]| {
            options.iter().fold(command, |command, option| {
                command.mut_arg(option, |argument| argument.hide(true))
            })
        };
        // As in other tools, the last occurrence of an option counts, and -vv is -v.
        let repeats = |command: clap::Command| command.args_override_self(true);
        let mut shown = Arguments::command().mut_subcommand("cp", repeats);
        shown = shown.mut_subcommand("serve", repeats);
        shown = shown.mut_subcommand("cp", other_tools::add_options);
        shown = other_tools::take_any_value(shown);
        shown = shown.mut_subcommand("probe", |probe| {
            let others = [
                "ssh",
                "ssh_persist",
                "remote_longhaul",
                "install_remote",
                "ports",
                "nice",
            ];
            hide(probe, &others)
        });
        shown = shown.mut_subcommand("doctor", |doctor| hide(doctor, &["nice"]));
        // A listing uses the session's first stream.
        shown = shown.mut_subcommand("ls", |list| {
            hide(list, &["data_security", "congestion", "nice"])
        });
        for name in ["jobs", "attach", "cancel", "limit"] {
            shown = shown.mut_subcommand(name, |command| {
                let data = [
                    "data_security",
                    "congestion",
                    "nice",
                    "bind",
                    "buffer",
                    "mptcp",
                    "ports",
                ];
                hide(command, &data)
            });
        }
        shown
    }
}

const EXIT_CODES: &str = "Exit codes: 0 all done; 1 usage; 2 some files failed, the others are \
done; 3 connection; 4 authentication, or no right to the path; 5 integrity (data differ, verify could \
not compare everything, or the other end sent data that were not requested); 6 failure of this host, \
or a path that cannot be opened or was lost; 7 a newer run of the same transfer took over; 8 the time \
of --stop-after was over; 9 a plan that is not proven to be the best; 130 interrupted (the same command resumes).";

/// Commands of longhaul.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Copy files and trees.
    #[command(
        after_help = CP_EXAMPLES,
        override_usage = "longhaul cp [OPTIONS] SRC... DST"
    )]
    Cp(Box<CopyArguments>),
    /// List jobs: copies that this user started with --detach, or between two remote hosts.
    #[command(
        after_help = "Examples:\n  longhaul jobs\n  longhaul jobs user@dtn7.example.org\n  longhaul jobs longhaul://dtn9.example.org"
    )]
    Jobs(JobsArguments),
    /// Follow a job (cp --detach, or a copy between two remote hosts), with the output,
    /// summary and exit code of the copy. An interrupt leaves the job running.
    #[command(
        after_help = "Examples:\n  longhaul attach 5f0c2a9e\n  longhaul attach dtn7:5f0c2a9e\n  longhaul attach longhaul://dtn9.example.org:4960:5f0c2a9e"
    )]
    Attach(AttachArguments),
    /// Change or print the rate of a running copy. Without arguments: list the copies and jobs of
    /// this user that run on this host.
    #[command(
        after_help = "Examples:\n  longhaul limit\n  longhaul limit 31415 10MB/s\n  longhaul limit 31415 none\n  longhaul limit dtn7:5f0c2a9e 1Gbit/s"
    )]
    Limit(LimitArguments),
    /// Cancel a job (cp --detach, or a copy between two remote hosts). The same command resumes
    /// the copy later.
    #[command(after_help = "Example:\n  longhaul cancel 5f0c2a9e")]
    Cancel(CancelArguments),
    /// Compare two files or trees by content, without copying.
    #[command(
        override_usage = "longhaul verify [OPTIONS] A B",
        after_help = "Examples:\n  longhaul verify data longhaul://dtn.example.org/archive/data\n  longhaul verify --exclude '*.tmp' data/ user@host:mirror"
    )]
    Verify(Box<VerifyArguments>),
    /// List the files of an endpoint, by name in byte order.
    #[command(
        after_help = "Examples:\n  longhaul ls -l user@host:archive\n  longhaul ls -R -0 longhaul://dtn.example.org/archive | xargs -0 -n 1 echo\nNames that begin with .longhaul- (leftovers of interrupted copies) are skipped."
    )]
    Ls(ListArguments),
    /// Run a daemon that other hosts copy from and to.
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ServeArguments),
    /// List or remove leftovers of interrupted copies in a local tree.
    #[command(
        after_help = "Examples:\n  longhaul clean /srv/data\n  longhaul clean --remove --older-than 7d /srv/data"
    )]
    Clean(CleanArguments),
    /// Diagnose a copy: login, ports, clock, packets, kernels and disk, with a remedy for
    /// each problem. Takes up to a minute.
    #[command(
        after_help = "Examples:\n  longhaul doctor user@host:archive\n  longhaul doctor --ports 50000-50009 --json user@host:/scratch\nExit codes: 0 no problem found; 2 problems found; 3, 4, 6 as for cp."
    )]
    Doctor(DoctorArguments),
    /// Measure the path to a daemon: round-trip time, throughput by number of streams,
    /// loss and kernel limits, with advice.
    #[command(after_help = PROBE_EXAMPLES)]
    Probe(ProbeArguments),
    /// Measure this host alone: disks, codecs on your data, and encryption. Writes a host profile.
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Predict the best settings of a transfer, its duration, its limits, and possible
    /// improvements. Moves no data.
    #[command(
        override_usage = "longhaul plan [OPTIONS] SRC... DST\n       longhaul plan [OPTIONS] --graph FILE",
        after_help = "Examples:\n  longhaul plan --rtt 91.6ms --rate 10gbit run7 user@dtn9:/scratch\n  longhaul plan --probe probe.jsonl --what-if rate=40gbit run7 longhaul://dtn9/archive\n  longhaul plan --graph transfer.toml --what-if rtt=20ms,cores=64\n  longhaul plan --graph transfer.toml --policy all --plot plan.svg\ndocs/graph.md describes the file."
    )]
    Plan(PlanArguments),
    /// List the recorded copies with other hosts, on which forecasts are based.
    #[command(
        after_help = "Examples:\n  longhaul history\n  longhaul history --json dtn9.example.org\n  longhaul history --forget dtn9.example.org"
    )]
    History(HistoryArguments),
    /// Fit the model of transfers to measurements, or compare it with them.
    #[command(subcommand)]
    Model(ModelCommand),
    /// Analyse records of runs: throughput as a function of the round-trip time, its
    /// coefficients with confidence intervals, and doubts.
    #[command(
        after_help = "Example:\n  longhaul profile runs/*.jsonl\n  longhaul profile --json runs.jsonl | jq .doubts"
    )]
    Profile(ProfileArguments),
    /// Write a report about records of runs: one HTML file with figures.
    #[command(after_help = "Example:\n  longhaul report runs.jsonl -o report.html --svg figures")]
    Report(ReportArguments),
    /// Export records of runs, or import results of other instruments.
    #[command(subcommand)]
    Records(RecordsCommand),
    /// Run experiments described in a file: methods on emulated or real paths, repeated, in random
    /// order. Each run is one record. The same command resumes an interrupted sweep.
    #[command(after_help = SWEEP_EXAMPLES)]
    Sweep(SweepArguments),
    /// Perform one run of a sweep.
    #[command(hide = true)]
    SweepStep,
    /// Make a token for a principal, and its hash for the daemon.
    #[command(after_help = "Example:\n  longhaul token --principal alice")]
    Token(TokenArguments),
    /// Print the fingerprint of a certificate's key, for principals.toml and --fingerprint.
    #[command(after_help = "Example:\n  longhaul fingerprint alice.pem")]
    Fingerprint(FingerprintArguments),
    /// Run a worker of a copy between clusters. Started by `cp --cluster` on each host; orders come
    /// on standard input, and the worker ends with it.
    Worker(WorkerArguments),
    /// Serve the remote end of a copy over SSH. Started by ssh, not by users.
    #[command(hide = true)]
    Remote(RemoteArguments),
    /// Emulate a wide-area path on this machine, for any command.
    #[command(subcommand)]
    Lab(lab::LabCommand),
}

const CP_EXAMPLES: &str = include_str!("arguments/cp_examples.txt");

const PROBE_EXAMPLES: &str = "Examples:
  longhaul probe longhaul://dtn.example.org
  longhaul probe --streams 1,8,64 --rounds 5 --json longhaul://dtn.example.org
  longhaul probe --iperf3 result.json --records runs.jsonl longhaul://dtn.example.org
  longhaul probe --sweep real.toml --records probe.jsonl longhaul://dtn.example.org";

const SERVE_EXAMPLES: &str = include_str!("arguments/serve_examples.txt");

const SWEEP_EXAMPLES: &str = "Examples:
  longhaul sweep profile.toml -o runs.jsonl
  longhaul sweep profile.toml --dry-run
  longhaul profile runs.jsonl
docs/sweep.md describes the file. Exit code 2: some runs are missing (--for was over, or a run could
not start). A run that fails is recorded and is not an error of the sweep.";

/// Connection to a daemon or host, and its authentication.
#[derive(Clone, Debug, Args)]
pub struct ConnectionArguments {
    /// Accept only this key of the daemon: sha256:…, as printed by `longhaul serve`. The
    /// key is not saved.
    #[arg(long, value_name = "KEY")]
    pub fingerprint: Option<Fingerprint>,
    /// Accept the key of an unknown daemon, and save it.
    #[arg(long, conflicts_with = "fingerprint")]
    pub accept_new: bool,
    /// Trust daemons whose certificate for their host is signed by these authorities (PEM).
    #[arg(long, value_name = "FILE", conflicts_with_all = ["fingerprint", "accept_new"])]
    pub authority: Option<PathBuf>,
    /// File of tokens, with lines HOST:PORT PRINCIPAL TOKEN [default: tokens in the
    /// configuration directory, ~/.config/longhaul]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Authenticate with this certificate (PEM) instead of a token.
    #[arg(long, value_name = "FILE", requires = "key")]
    pub certificate: Option<PathBuf>,
    /// Key of the certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub key: Option<PathBuf>,
    /// Encryption of file data. `clear` is for trusted networks, with a daemon that
    /// allows it. Over SSH and between two daemons, data are always encrypted.
    #[arg(long, value_parser = one_of(&DATA_SECURITY), default_value = "tls")]
    pub data_security: DataSecurity,
    /// Congestion control of the sending end, by its name in the kernel: cubic, bbr,
    /// reno... [default: the kernel's default; bbr if there is loss without a queue and
    /// the kernel allows it]
    #[arg(long, value_name = "NAME")]
    pub congestion: Option<String>,
    /// Yield to other traffic: start with one stream, and slow down as soon as a queue
    /// builds up on the path.
    #[arg(long)]
    pub nice: bool,
    /// Local IP address to connect from. With several addresses, connections use them in turn.
    #[arg(long, alias = "address", value_name = "ADDRESS")]
    pub bind: Vec<std::net::IpAddr>,
    /// Use Multipath TCP: the kernels spread each connection over the paths that `ip
    /// mptcp endpoint` configures. If an end does not support it, plain TCP is used and a
    /// message is printed.
    #[arg(long, conflicts_with = "nice")]
    pub mptcp: bool,
    /// Size of this end's socket buffers. Used only if it is larger than the kernel's own maximum.
    #[arg(long, value_name = "SIZE")]
    pub buffer: Option<ByteCount>,
    /// Maximum time for the daemon to answer, and to be silent later. A lost connection is dialled
    /// again for this time, but not longer than the daemon keeps the session (its --linger). A bare
    /// number is in seconds, and 0 is no timeout, as in rsync. [default: 60s; jobs: 20s]
    #[arg(long, alias = "contimeout", value_name = "TIME", value_parser = longhaul_transfer::quantities::timeout)]
    pub timeout: Option<Duration>,
    #[command(flatten)]
    pub ssh: SshArguments,
    #[command(flatten)]
    pub s3: s3::S3Arguments,
}

/// Encryption of blocks.
const DATA_SECURITY: [Choice<DataSecurity>; 2] = [
    ("tls", "Encrypted and authenticated", DataSecurity::Tls),
    (
        "clear",
        "File data and names in clear; authentication, control messages and digests in TLS",
        DataSecurity::Clear,
    ),
];

/// Integrity checks of files.
const INTEGRITY: [Choice<Integrity>; 2] = [
    ("digest", "BLAKE3 of blocks and files", Integrity::Digest),
    (
        "checksum",
        "XXH3 of each block, without digests of files",
        Integrity::Checksum,
    ),
];

/// Assignment of threads to the layers of an end.
const STACKS: [Choice<Stack>; 2] = [
    ("layered", "Each layer has its own threads", Stack::Layered),
    (
        "paired",
        "Each stream has one thread for all layers",
        Stack::Paired,
    ),
];

/// Numbers of threads and streams, and sizes of blocks and memory.
#[derive(Clone, Debug, Args)]
pub struct LayerArguments {
    /// Threads at both ends. `layered` has threads for reading, compressing and writing, with
    /// queues between them. `paired` has one thread per stream at each end, as in XDD.
    #[arg(long, value_parser = one_of(&STACKS), default_value = "layered")]
    pub stack: Stack,
    /// Number of reading threads at the source [default: as many as there is work for, at
    /// most one per core, 2 to 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=512))]
    pub readers: Option<u32>,
    /// Number of compressing threads at the source [default: one per core]
    #[arg(long, aliases = ["compress-threads", "zt"], value_name = "N", value_parser = clap::value_parser!(u32).range(1..=512))]
    pub compressors: Option<u32>,
    /// Fixed number of TCP connections for data [default: adapted during the copy]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=512))]
    pub streams: Option<u32>,
    /// Number of threads at the destination that decompress and verify compressed blocks
    /// [default: one per core, at most 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=512))]
    pub decompressors: Option<u32>,
    /// Number of writing threads at the destination [default: one per core, 4 to 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=512))]
    pub writers: Option<u32>,
    /// Memory for blocks at this end. Half of it is for blocks of 1MiB and more.
    #[arg(long, value_name = "SIZE", default_value = USUAL_MEMORY)]
    pub memory: ByteCount,
    /// Size of a block, a power of two from 64KiB to 16MiB. A bare number is in bytes, as
    /// in rsync and dd. [default: 4MiB for a round-trip time below 1 ms, 1MiB below 20
    /// ms, else 512KiB; less if --memory or --bwlimit is small]
    #[arg(long, value_name = "SIZE", value_parser = written::block_bytes)]
    pub block_size: Option<u32>,
}

/// Arguments of `cp`.
#[derive(Clone, Debug, Args)]
pub struct CopyArguments {
    /// Sources, then the destination. Each is a local path, [USER@]HOST:PATH (over SSH),
    /// longhaul://[PRINCIPAL@]HOST[:PORT]/PATH (a daemon; port 4960 by default), ftp://HOST/PATH,
    /// or - for standard input or output. Sources may also be https://HOST/PATH or s3://BUCKET/KEY.
    /// For measurements: zero:SIZE and null:. A missing source is reported, and others are copied.
    #[arg(value_name = "SRC... DST", required = true)]
    pub paths: Vec<OsString>,
    /// Copy directories with all their contents. With --files-from, this option is needed
    /// even with -a.
    #[arg(short, long, overrides_with = "no_recursive")]
    pub recursive: bool,
    /// With -a: do not copy the contents of directories.
    #[arg(long, alias = "no-r", hide = true)]
    pub no_recursive: bool,
    /// Copy the targets of symbolic links below the sources instead of the links. A
    /// daemon follows only links within its root.
    #[arg(short = 'L', long)]
    pub copy_links: bool,
    #[command(flatten)]
    pub filters: FilterArguments,
    #[command(flatten)]
    pub keeping: KeepingArguments,
    #[command(flatten)]
    pub criteria: CriteriaArguments,
    #[command(flatten)]
    pub deletion: DeletionArguments,
    #[command(flatten)]
    pub commands: CommandArguments,
    #[command(flatten)]
    pub cluster: ClusterArguments,
    #[command(flatten)]
    pub accounts: AccountArguments,
    /// Keep the set-user-ID and set-group-ID bits of files that belong to another user or
    /// group at the destination than at the source. Without this option, such bits are
    /// removed with a message. At a daemon, the principal's right "set-id" decides.
    #[arg(long)]
    pub keep_set_ids: bool,
    /// Report how much would be copied: new, changed and unchanged files. Changes nothing
    /// at the destination, except that --install-remote still installs.
    #[arg(short = 'n', long, conflicts_with_all = ["verify", "manifest"])]
    pub dry_run: bool,
    /// Print the name of each file on standard output once it is durable; with --dry-run,
    /// of each new or changed file. The summary adds the use of each layer, the bytes on
    /// the wire, and decisions about streams.
    #[arg(short, long, conflicts_with_all = ["json", "quiet"])]
    pub verbose: bool,
    /// Print a forecast before the copy, and compare it with the result at the end, layer
    /// by layer. The forecast is based on this kernel, the handshake and earlier copies.
    /// It does not delay the copy.
    #[arg(long, conflicts_with_all = ["quiet", "dry_run"])]
    pub explain: bool,
    /// Method that chooses the numbers of flows not given: `model` adapts them during the
    /// copy; bdp[:RATE], globus, fixed and gradient are published rules, for comparison.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "model",
        hide_default_value = true,
        conflicts_with = "plan"
    )]
    pub policy: AskedPolicy,
    /// Use the numbers of flows of a plan: the output of `longhaul plan --json`, or a graph file.
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    #[command(flatten)]
    pub compression: CompressionArguments,
    /// Size of array elements in bytes (1, 2, 4 or 8). Their bytes are rearranged before
    /// compression; 1 means no arrays [default: found from samples of the data]
    #[arg(long, value_name = "N", value_parser = written::element_bytes)]
    pub element_size: Option<u8>,
    /// Integrity checks of files.
    #[arg(long, value_parser = one_of(&INTEGRITY), default_value = "digest")]
    pub integrity: Integrity,
    /// Read back each written file before it gets its name, bypassing the cache if the
    /// system allows it.
    #[arg(long)]
    pub verify: bool,
    /// Write the digests of all files of this copy to FILE, for `b3sum --check` at the
    /// destination. Unchanged files are included.
    #[arg(long, value_name = "FILE")]
    pub manifest: Option<PathBuf>,
    /// Bypass the page cache for reading and writing if the file system supports it.
    #[arg(long)]
    pub direct: bool,
    /// Maximum rate of the whole copy: 100Mbit/s, 10MB/s, 512KiB/s. As in rsync, a bare
    /// number is in KiB/s, 100k and 1m are KiB/s and MiB/s, and 0 means no limit.
    #[arg(long, value_name = "RATE")]
    pub bwlimit: Option<ChangedLimit>,
    /// Maximum size of data of large files that are not yet durable and would be sent again after a
    /// kill. They are made durable every second, or when half of this size has arrived.
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    pub checkpoint: ByteCount,
    /// Remove leftovers of killed copies at the destination after this time, in the
    /// directories that this copy visits; or never. A daemon uses its own
    /// --expire-leftovers.
    #[arg(long, value_name = "TIME", default_value = "15d", value_parser = parse_expiry)]
    pub expire_leftovers: Expiry,
    /// Print events as JSON, one object per line, instead of progress and summary.
    #[arg(long)]
    pub json: bool,
    /// Print only failures.
    #[arg(short, long)]
    pub quiet: bool,
    /// Run both ends on this machine across an emulated path, for example
    /// rtt=100ms,rate=1gbit. Source and destination are local paths. `longhaul lab run
    /// --help` lists the settings of a path.
    #[arg(long, value_name = "PATH")]
    pub lab: Option<String>,
    #[command(flatten)]
    pub layers: LayerArguments,
    #[command(flatten)]
    pub connection: ConnectionArguments,
    #[command(flatten)]
    pub between: BetweenArguments,
}

/// Arguments of `verify`.
#[derive(Clone, Debug, Args)]
pub struct VerifyArguments {
    /// A file or directory: a local path, [USER@]HOST:PATH, longhaul://HOST/PATH,
    /// ftp://HOST/PATH (gsiftp://, sshftp://) or, as A only, https:// or s3://.
    #[arg(value_name = "A")]
    pub left: OsString,
    /// The file or directory to compare it with. Its name may differ.
    #[arg(value_name = "B")]
    pub right: OsString,
    /// With --files-from: compare listed directories with all their contents. Without
    /// --files-from, directories are always compared in full.
    #[arg(short, long)]
    pub recursive: bool,
    /// Compare the targets of symbolic links in A, as `cp --copy-links` copies them.
    #[arg(short = 'L', long)]
    pub copy_links: bool,
    #[command(flatten)]
    pub filters: FilterArguments,
    #[command(flatten)]
    pub writes: WriteArguments,
    /// Add to the summary the use of each layer, the bytes on the wire, and decisions
    /// about streams.
    #[arg(short, long, conflicts_with_all = ["json", "quiet"])]
    pub verbose: bool,
    /// Print events as JSON, one object per line, instead of progress and summary.
    #[arg(long)]
    pub json: bool,
    /// Print only differences.
    #[arg(short, long)]
    pub quiet: bool,
    #[command(flatten)]
    pub layers: LayerArguments,
    #[command(flatten)]
    pub connection: ConnectionArguments,
    #[command(flatten)]
    pub between: BetweenArguments,
}

/// Arguments of `serve`.
#[derive(Clone, Debug, Args)]
pub struct ServeArguments {
    /// IP address and port to listen on.
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        default_value = "[::]:4960",
        value_parser = listen_address::parse_listen
    )]
    pub listen: SocketAddr,
    /// Listen on the first free port of this range, on all addresses, for example if a firewall
    /// opens a range for several daemons. All streams of a daemon use its one port.
    #[arg(long, value_name = "FIRST-LAST", conflicts_with = "listen")]
    pub ports: Option<Ports>,
    /// File of principals with their roots and rights (TOML, see below). SIGHUP reads it again.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["root", "write"])]
    pub principals: Option<PathBuf>,
    /// Serve this directory to one principal named `user`. Its token is made on first use.
    #[arg(long, value_name = "PATH", required_unless_present = "principals")]
    pub root: Option<PathBuf>,
    /// Allow the principal `user` to write.
    #[arg(long, requires = "root")]
    pub write: bool,
    /// Keep the set-user-ID and set-group-ID bits of files that the principal `user`
    /// writes. Such programs run with the rights of the daemon's user.
    #[arg(long, requires = "write")]
    pub keep_set_ids: bool,
    /// Keep the owners of files that the principal `user` writes, if the daemon runs as root.
    #[arg(long, requires = "write")]
    pub keep_owners: bool,
    /// Allow the principal `user` to make devices, if the daemon runs as root.
    #[arg(long, requires = "write")]
    pub make_devices: bool,
    /// Allow the principal `user` to delete files, with `cp --delete` to the daemon.
    #[arg(long, requires = "write")]
    pub delete: bool,
    /// Allow the principal `user` to run CMD (by a shell) for files that it writes, with
    /// cp --on-commit NAME.
    #[arg(long, value_name = "NAME=CMD", requires = "write", value_parser = parse_command)]
    pub on_commit: Vec<(String, String)>,
    /// Allow the principal `user` to pass files through CMD, with cp --filter-cmd NAME.
    #[arg(long, value_name = "NAME=CMD", value_parser = parse_command)]
    pub filter_cmd: Vec<(String, String)>,
    /// Directory of the daemon's key, the token and jobs. It must not be below a root, and no other
    /// user may write to it [default: the configuration directory, ~/.config/longhaul]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Use this certificate (PEM) instead of a self-signed one.
    #[arg(long, value_name = "FILE", requires = "key")]
    pub certificate: Option<PathBuf>,
    /// The certificate's key (PEM).
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub key: Option<PathBuf>,
    /// Allow clients to request file data without encryption. Only for trusted networks.
    #[arg(long)]
    pub allow_clear: bool,
    /// Allow principals to copy between this daemon and daemons on these hosts; without
    /// names, on any host. Private networks are included; loopback, link-local, multicast
    /// and this host's own addresses are not. The other daemon must have the key that the
    /// principal verified [default: no host]
    #[arg(
        long,
        value_name = "HOST,HOST",
        num_args = 0..,
        require_equals = true,
        value_delimiter = ',',
        value_parser = longhaul_transfer::between_hosts::dialing::parse_host
    )]
    pub allow_dial: Option<Vec<String>>,
    /// Memory for blocks per session. Half of it is for blocks of 1MiB and more.
    #[arg(long, value_name = "SIZE", default_value = USUAL_MEMORY)]
    pub memory: ByteCount,
    /// Time that a session waits for its client after its last connection was lost.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = longhaul_units::parse_span)]
    pub linger: Duration,
    /// Remove leftovers of killed copies after this time, in the directories that later
    /// copies visit; or never.
    #[arg(long, value_name = "TIME", default_value = "15d", value_parser = parse_expiry)]
    pub expire_leftovers: Expiry,
    /// Read further options from this file (TOML with the names of these options). Options of the
    /// command line take precedence.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Check all options and files, and exit.
    #[arg(long)]
    pub check: bool,
    /// After SIGTERM accept no new sessions, and end when the running ones have ended or this time
    /// is over. Their commands then resume with the restarted daemon. [default: end at once]
    #[arg(long, value_name = "TIME", default_value = "0s", hide_default_value = true, value_parser = longhaul_units::parse_span)]
    pub drain: Duration,
    /// Serve metrics for Prometheus at http://ADDRESS:PORT/metrics, and the health at /healthz. The
    /// address is a loopback address.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = metrics::parse_address)]
    pub metrics: Option<SocketAddr>,
    /// Append a record of who read, wrote or deleted which paths to this file, as JSON lines. A
    /// session's record is durable before it changes files.
    #[arg(long, value_name = "FILE")]
    pub audit: Option<PathBuf>,
    /// Also record each file in the audit log: each commit and deletion durably before it is made,
    /// and its outcome.
    #[arg(long, requires = "audit")]
    pub audit_files: bool,
    /// Accept data even if the audit log cannot be written, for example because its disk is full.
    #[arg(long, requires = "audit")]
    pub audit_optional: bool,
    /// Maximum number of concurrent sessions. One principal may use three quarters of them, or half
    /// while another one waits.
    #[arg(long, value_name = "N", default_value = "64", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub sessions: u32,
    /// Serve directories even if they contain secrets of the daemon.
    #[arg(long, hide = true)]
    pub unguarded: bool,
    /// Print address, fingerprint, principal and token file as one line of JSON when the
    /// daemon is ready.
    #[arg(long)]
    pub print_ready: bool,
    /// Format of the log on standard error: lines of text, or one JSON object per event.
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "text")]
    pub log_format: LogFormat,
    /// Minimum importance of logged events: failures of the daemon (error), also refused
    /// requests (warn), also each session (info).
    #[arg(long, value_name = "LEVEL", value_enum, default_value = "info")]
    pub log_level: LogLevel,
}

/// Arguments of `clean`.
#[derive(Clone, Debug, Args)]
pub struct CleanArguments {
    /// The tree to search.
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Remove leftovers that no running process uses, instead of listing them.
    #[arg(long)]
    pub remove: bool,
    /// Only leftovers that were not written to for this time: 90min, 12h, 7d.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = longhaul_units::parse_span)]
    pub older_than: Duration,
}

/// Arguments of `token`.
#[derive(Clone, Debug, Args)]
pub struct TokenArguments {
    /// Name of the principal.
    #[arg(long, value_name = "NAME", default_value = "user", value_parser = parse_principal)]
    pub principal: String,
    /// Time after which the token expires: 12h, 90d [default: never]
    #[arg(long, value_name = "TIME", value_parser = longhaul_units::parse_span)]
    pub expires: Option<Duration>,
}

/// Arguments of `fingerprint`.
#[derive(Clone, Debug, Args)]
pub struct FingerprintArguments {
    /// The certificate (PEM). Of a chain, the first certificate is used.
    #[arg(value_name = "FILE")]
    pub certificate: PathBuf,
}

/// Age at which leftovers expire; `None` means never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiry(pub Option<Duration>);

fn parse_expiry(text: &str) -> Result<Expiry, String> {
    match text {
        "never" => Ok(Expiry(None)),
        _ => longhaul_units::parse_span(text)
            .map(|age| Expiry(Some(age)))
            .map_err(|error| format!("{error}, or \"never\"")),
    }
}

fn parse_command(text: &str) -> Result<(String, String), String> {
    let (name, command) = text.split_once('=').ok_or("write NAME=CMD")?;
    Ok((name.to_owned(), command.to_owned()))
}

fn parse_principal(text: &str) -> Result<String, String> {
    let name = longhaul_net::principals::is_name(text).then(|| text.to_owned());
    name.ok_or_else(|| Fault::Name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::shown().debug_assert();
    }

    #[test]
    fn the_help_of_probe_has_no_options_of_ssh() {
        let mut shown = Arguments::shown();
        let mut help = |name: &str| {
            let command = shown.find_subcommand_mut(name).unwrap();
            command.render_long_help().to_string()
        };
        for option in ["--ssh", "--install-remote", "--ports"] {
            assert!(!help("probe").contains(option), "{option}");
            assert!(help("cp").contains(option), "{option}");
        }
    }

    #[test]
    fn options_may_stand_between_source_and_destination() {
        let parsed = Arguments::try_parse_from(["longhaul", "cp", "a", "-r", "b", "--json", "c"]);
        match parsed.unwrap().command {
            Command::Cp(copy) => assert_eq!(copy.paths, ["a", "b", "c"]),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn element_sizes_are_powers_of_two() {
        assert_eq!(written::element_bytes("8"), Ok(8));
        assert!(written::element_bytes("3").is_err());
    }

    #[test]
    fn block_sizes_are_powers_of_two() {
        assert_eq!(written::block_bytes("4MiB"), Ok(4 << 20));
        assert_eq!(written::block_bytes("65536"), Ok(65_536));
        for text in ["3MiB", "32MiB", "1KiB", "x"] {
            assert!(written::block_bytes(text).is_err(), "{text}");
        }
    }
}
