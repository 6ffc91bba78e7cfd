//! Output to standard output and standard error, and the process's exit.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

pub use longhaul_transfer::console::{Console, escaped_json, harmless, one_line};
pub use longhaul_transfer::stop::{Exit, Stop};

/// True if a progress line is on the terminal and must be cleared first.
static LINE_OPEN: AtomicBool = AtomicBool::new(false);

/// Replaces the progress line. The text is cut at the terminal's width, because a wrapped
/// line cannot be replaced.
pub fn progress_line(line: &str) {
    let columns =
        rustix::termios::tcgetwinsize(std::io::stderr()).map_or(0, |size| usize::from(size.ws_col));
    let fits = match columns {
        // Some terminals do not report their width.
        0 => line.len(),
        // The last column stays free, because some terminals then begin a new line.
        columns => columns - 1,
    };
    LINE_OPEN.store(true, Ordering::Relaxed);
    let line: String = one_line(line, usize::MAX).chars().take(fits).collect();
    write_error(&format!("\r{line}\x1b[K"));
}

/// Clears the progress line, if there is one.
pub fn clear_line() {
    if LINE_OPEN.swap(false, Ordering::Relaxed) {
        write_error("\r\x1b[K");
    }
}

/// First error of standard output.
static UNWRITTEN: Mutex<Option<String>> = Mutex::new(None);

/// Writes text to standard output without control characters. The text may contain names
/// and messages of other hosts.
pub fn write_output(text: &str) {
    write_bytes(harmless(text).as_bytes());
}

/// Writes a line of JSON to standard output. Control characters are escaped, which keeps the value.
pub fn print_json(json: &impl std::fmt::Display) {
    write_bytes((escaped_json(&format!("{json}")) + "\n").as_bytes());
}

/// Writes names to standard output: unchanged to a program, and without control
/// characters to a terminal.
pub fn write_names(names: &[u8]) {
    if std::io::stdout().is_terminal() {
        write_output(&String::from_utf8_lossy(names));
    } else {
        write_bytes(names);
    }
}

/// Writes to standard output. A closed reader such as `head` is not a failure;
/// [`after_output`] reports other errors at the end.
fn write_bytes(bytes: &[u8]) {
    let mut output = std::io::stdout().lock();
    note_output(
        Exit::Done,
        output.write_all(bytes).and_then(|()| output.flush()),
    );
}

/// Stores an error of standard output for [`after_output`]. Errors are ignored if `exit`
/// is not [`Exit::Done`].
pub fn note_output(exit: Exit, written: std::io::Result<()>) {
    if let Err(error) = written
        && exit == Exit::Done
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        let mut unwritten = UNWRITTEN.lock().unwrap_or_else(PoisonError::into_inner);
        unwritten.get_or_insert(error.to_string());
    }
}

/// Writes to standard error. Errors are ignored: they cannot be reported and do not
/// affect the command.
pub fn write_error(text: &str) {
    // Unlike `eprint!`, this does not panic on errors.
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// Writes a line to standard error. The text may come from another host: it is reduced to
/// one line without control characters.
pub fn write_error_line(line: &str) {
    write_error(&format!("{}\n", one_line(line, usize::MAX)));
}

/// Writes a line to standard output. Unlike `println!`, it does not panic on errors.
macro_rules! print_line {
    () => { $crate::messages::write_output("\n") };
    ($($part:tt)*) => { $crate::messages::write_output(&(format!($($part)*) + "\n")) };
}
pub(crate) use print_line;

/// Returns the exit of a command. If standard output had an error, success becomes [`Exit::Local`].
pub fn after_output(exit: Exit) -> Exit {
    let unwritten = UNWRITTEN.lock().unwrap_or_else(PoisonError::into_inner);
    match unwritten.as_deref() {
        Some(error) => {
            say(&format!("cannot write to standard output: {error}"));
            match exit {
                Exit::Done => Exit::Local,
                other => other,
            }
        }
        None => exit,
    }
}

/// Maximum time for flushing the last lines of the log, whose reader may be blocked.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Ends the process at once. All output is flushed before, and commands that run for
/// files are ended. `exit` would let the cryptography library (AWS-LC) remove its random
/// number generator, which aborts the process if another thread is about to use it.
pub fn leave(exit: Exit) -> ! {
    longhaul_engine::shell::end_all();
    longhaul_transfer::log_writer::flush(LAST_LINES);
    signal_hook::low_level::exit(i32::from(exit.code()))
}

/// Prints a message on standard error, in one line.
pub fn say(text: &str) {
    clear_line();
    // If a log is active, all messages are events of it.
    if tracing::dispatcher::has_been_set() {
        tracing::info!("{text}");
    } else {
        write_error_line(&format!("longhaul: {text}"));
    }
}

/// Reports the error of a command and returns its exit code.
pub fn finish(result: Result<Exit, Stop>) -> Exit {
    match result {
        Ok(exit) => exit,
        Err(stop) => {
            say(&stop.text);
            stop.exit
        }
    }
}

/// Console of a transfer: standard error, which may be a terminal.
pub struct Terminal;

impl Console for Terminal {
    fn notice(&self, text: &str) {
        say(text);
    }

    fn progress(&self, line: &str) {
        progress_line(line);
    }

    fn clear_progress(&self) {
        clear_line();
    }

    fn shows_progress(&self) -> bool {
        std::io::stderr().is_terminal()
    }

    fn pass_on(&self, bytes: &[u8]) {
        // ssh ends its own lines with a carriage return.
        let lines = String::from_utf8_lossy(bytes).replace("\r\n", "\n");
        write_error(&harmless(&lines));
    }

    fn can_ask(&self) -> bool {
        std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
    }

    fn confirm(&self, question: &str) -> bool {
        clear_line();
        write_error(question);
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer).is_ok() && answer.trim() == "yes"
    }

    fn live_heap(&self) -> Option<u64> {
        crate::heap::live_bytes()
    }
}
