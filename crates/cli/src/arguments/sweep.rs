//! What `longhaul sweep` takes.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use longhaul_instrument::sweep::SweepSettings;

/// What `sweep` takes.
#[derive(Clone, Debug, Args)]
pub struct SweepArguments {
    /// The experiments (TOML).
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The records. Runs that are in it are not repeated [default: NAME.jsonl]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Directory for sources and destinations, removed at the end [default: next to the records,
    /// with .work]
    #[arg(long, value_name = "DIR")]
    pub work: Option<PathBuf>,
    /// Begin no run that would end after this time. The same command continues.
    #[arg(long = "for", value_name = "TIME", value_parser = longhaul_units::parse_span)]
    pub duration: Option<Duration>,
    /// Only these methods, by name.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub methods: Vec<String>,
    /// Only these data, by name.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub data: Vec<String>,
    /// Only paths with this setting, such as rtt=91.6ms. With several of one name, any of them.
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    pub paths: Vec<String>,
    /// Maximum number of repetitions.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub repetitions: Option<u64>,
    /// Print the runs that are left, and how long they take.
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Keep the directory of data at the end.
    #[arg(long)]
    pub keep: bool,
    /// The build of this longhaul, for the records.
    #[arg(long, value_name = "TEXT")]
    pub build: Option<String>,
}

impl SweepArguments {
    /// What is asked for. `step_command` makes one run.
    pub fn settings(&self, step_command: Vec<OsString>) -> SweepSettings {
        SweepSettings {
            file: self.file.clone(),
            output: self.output.clone(),
            work: self.work.clone(),
            duration: self.duration,
            methods: self.methods.clone(),
            data: self.data.clone(),
            paths: self.paths.clone(),
            repetitions: self.repetitions,
            keep: self.keep,
            build: self.build.clone(),
            step_command,
        }
    }
}
