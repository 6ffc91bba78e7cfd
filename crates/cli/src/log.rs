//! Log of a daemon on standard error: lines of text, or JSON objects.

use clap::ValueEnum;
use longhaul_transfer::daemon_log;
use tracing::Level;

/// Formats of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One line of text with the time per event.
    Text,
    /// One JSON object per line and event.
    Json,
}

/// Minimum importance of logged events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// Failures of the daemon.
    Error,
    /// Also refused requests.
    Warn,
    /// Also each session.
    Info,
}

impl LogLevel {
    fn level(self) -> Level {
        match self {
            LogLevel::Error => Level::ERROR,
            LogLevel::Warn => Level::WARN,
            LogLevel::Info => Level::INFO,
        }
    }
}

/// Starts logging to standard error.
pub fn start(format: LogFormat, level: LogLevel) {
    daemon_log::install(format == LogFormat::Json, level.level(), true);
}

/// Starts logging for the remote end of SSH and for jobs, without times.
pub fn start_far_side() {
    let is_json = std::env::var_os(longhaul_transfer::daemon::JSON_LOG).is_some_and(|is| is == "1");
    daemon_log::install(is_json, Level::INFO, false);
}
