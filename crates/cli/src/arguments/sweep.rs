//! Arguments of `longhaul sweep`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use longhaul_instrument::sweep::SweepSettings;

/// Arguments of `sweep`.
#[derive(Clone, Debug, Args)]
pub struct SweepArguments {
    /// The sweep file with the experiments (TOML).
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Path of the records. Recorded runs are not repeated [default: NAME.jsonl]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Directory for sources and destinations, removed at the end [default: the path of
    /// the records with the extension .work]
    #[arg(long, value_name = "DIR")]
    pub work: Option<PathBuf>,
    /// Start no run that would end after this time. The same command resumes.
    #[arg(long = "for", value_name = "TIME", value_parser = longhaul_units::parse_span)]
    pub duration: Option<Duration>,
    /// Run only these methods, by name.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub methods: Vec<String>,
    /// Use only these datasets, by name.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub data: Vec<String>,
    /// Use only paths with this setting, for example rtt=91.6ms. Of several values of one
    /// key, any may match.
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    pub paths: Vec<String>,
    /// Maximum number of repetitions.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub repetitions: Option<u64>,
    /// Print the remaining runs and their expected time.
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Keep the directory of sources and destinations at the end.
    #[arg(long)]
    pub keep: bool,
    /// Description of the build of this longhaul, for the records.
    #[arg(long, value_name = "TEXT")]
    pub build: Option<String>,
}

impl SweepArguments {
    /// Returns the settings of the sweep. `step_command` performs one run.
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
