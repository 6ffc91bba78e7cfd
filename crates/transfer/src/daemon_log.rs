//! Log of a daemon on standard error: lines of text, or JSON objects.

use std::fmt::{self, Write as _};
use std::io;

use longhaul_system::clock;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::fmt::{FmtContext, FormatEvent};
use tracing_subscriber::registry::LookupSpan;

use crate::console::one_line;
use crate::log_writer::LogWriter;

/// Starts logging to standard error, in JSON or as lines of text. If `stamped`, lines have times,
/// and the log never delays other threads.
pub fn install(is_json: bool, level: Level, stamped: bool) {
    // A job and the remote end of SSH replace their standard error while they run, so they
    // write directly. A daemon also writes directly if no log thread can be started.
    let queued = stamped.then(|| LogWriter::install(is_json).ok()).flatten();
    let writer = match queued {
        Some(writer) => BoxMakeWriter::new(writer),
        None => BoxMakeWriter::new(io::stderr),
    };
    let builder = tracing_subscriber::fmt()
        .with_max_level(level)
        // An error about the log would also go to standard error.
        .log_internal_errors(false)
        .with_writer(writer);
    // Called once per process.
    if is_json {
        let json = builder.json().flatten_event(true).with_current_span(false);
        json.with_span_list(false)
            .with_target(false)
            .with_timer(Now)
            .init();
    } else {
        builder.event_format(Lines { stamped }).init();
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
