//! Log of a daemon on standard error: lines of text, or JSON objects.

use std::fmt::{self, Write as _};
use std::io;

use clap::ValueEnum;
use longhaul_system::clock;
use longhaul_transfer::console::one_line;
use longhaul_transfer::log_writer::LogWriter;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::fmt::{FmtContext, FormatEvent};
use tracing_subscriber::registry::LookupSpan;

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
    install(format, level, true);
}

/// Starts logging for the remote end of SSH and for jobs, without times.
pub fn start_far_side() {
    let is_json = std::env::var_os(longhaul_transfer::daemon::JSON_LOG).is_some_and(|is| is == "1");
    let format = if is_json {
        LogFormat::Json
    } else {
        LogFormat::Text
    };
    install(format, LogLevel::Info, false);
}

fn install(format: LogFormat, level: LogLevel, stamped: bool) {
    // A job and the remote end of SSH replace their standard error while they run, so they
    // write directly. A daemon also writes directly if no log thread can be started.
    let queued = stamped
        .then(|| LogWriter::install(format == LogFormat::Json).ok())
        .flatten();
    let writer = match queued {
        Some(writer) => BoxMakeWriter::new(writer),
        None => BoxMakeWriter::new(io::stderr),
    };
    let builder = tracing_subscriber::fmt()
        .with_max_level(level.level())
        // An error about the log would also go to standard error.
        .log_internal_errors(false)
        .with_writer(writer);
    // Called once per process.
    match format {
        LogFormat::Text => builder.event_format(Lines { stamped }).init(),
        LogFormat::Json => {
            let json = builder.json().flatten_event(true).with_current_span(false);
            json.with_span_list(false)
                .with_target(false)
                .with_timer(Now)
                .init();
        }
    }
}

/// Timer that formats the time as in all of longhaul.
struct Now;

impl FormatTime for Now {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        writer.write_str(&clock::now())
    }
}

/// Formats an event as one line with only its message, which contains all of its fields.
struct Lines {
    stamped: bool,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> tracing_subscriber::fmt::FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut message = Message::default();
        event.record(&mut message);
        if self.stamped {
            write!(writer, "{} ", clock::now())?;
        }
        // The text may come from another host: it is reduced to one line without control
        // characters.
        writeln!(writer, "longhaul: {}", one_line(&message.0, usize::MAX))
    }
}

#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            // Writing to a string does not fail.
            let _ = write!(self.0, "{value:?}");
        }
    }
}
