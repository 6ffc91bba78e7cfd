//! What goes to standard error, and what the process's exit code says.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

pub use longhaul_transfer::console::{Console, escaped_json, harmless, one_line};
pub use longhaul_transfer::stop::{Exit, Stop};

/// A progress line is on the terminal and has to be cleared first.
static LINE_OPEN: AtomicBool = AtomicBool::new(false);

/// Replaces the progress line. What does not fit into the terminal's width is
/// left out: a line that wraps could not be replaced.
pub fn progress_line(line: &str) {
    let columns =
        rustix::termios::tcgetwinsize(std::io::stderr()).map_or(0, |size| usize::from(size.ws_col));
    let fits = match columns {
        // Some terminals do not know their width.
        0 => line.len(),
        // The last column stays free, lest the terminal begins a new line.
        columns => columns - 1,
    };
    LINE_OPEN.store(true, Ordering::Relaxed);
    let line: String = one_line(line, usize::MAX).chars().take(fits).collect();
    write_error(&format!("\r{line}\x1b[K"));
}

/// Removes the progress line, if there is one.
pub fn clear_line() {
    if LINE_OPEN.swap(false, Ordering::Relaxed) {
        write_error("\r\x1b[K");
    }
}

/// Why standard output did not take everything.
static UNWRITTEN: Mutex<Option<String>> = Mutex::new(None);

/// Writes text to standard output, without what would move a terminal's cursor: names, and what
/// other hosts say of themselves, are part of it.
pub fn write_output(text: &str) {
    write_bytes(harmless(text).as_bytes());
}

/// Writes a line of JSON to standard output. It has the same value for programs.
pub fn print_json(json: &impl std::fmt::Display) {
    write_bytes((escaped_json(&format!("{json}")) + "\n").as_bytes());
}

/// Writes names to standard output: to programs as they are.
pub fn write_names(names: &[u8]) {
    if std::io::stdout().is_terminal() {
        write_output(&String::from_utf8_lossy(names));
    } else {
        write_bytes(names);
    }
}

/// A reader that went away (`head`) is no failure; [`after_output`] reports any other at the end.
fn write_bytes(bytes: &[u8]) {
    let mut output = std::io::stdout().lock();
    note_output(
        Exit::Done,
        output.write_all(bytes).and_then(|()| output.flush()),
    );
}

/// Keeps why standard output did not take something, for [`after_output`]. Of a command line that
/// makes no sense nothing is written there.
pub fn note_output(exit: Exit, written: std::io::Result<()>) {
    if let Err(error) = written
        && exit == Exit::Done
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        let mut unwritten = UNWRITTEN.lock().unwrap_or_else(PoisonError::into_inner);
        unwritten.get_or_insert(error.to_string());
    }
}

/// Writes to standard error. Where that takes nothing there is nobody left to tell, and
/// what the command does is not the worse for it.
pub fn write_error(text: &str) {
    // As `eprint!`, which panics where that fails.
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// A line of that. Others may have had a part in it: it stays one line, and moves no cursor.
pub fn write_error_line(line: &str) {
    write_error(&format!("{}\n", one_line(line, usize::MAX)));
}

/// A line on standard output, as `println!`, which panics where that fails.
macro_rules! print_line {
    () => { $crate::messages::write_output("\n") };
    ($($part:tt)*) => { $crate::messages::write_output(&(format!($($part)*) + "\n")) };
}
pub(crate) use print_line;

/// The exit of a command that did all it was asked for is another one where
/// standard output did not take what it wrote.
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

/// How long the last lines of a log may take: their reader may stand still.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Ends the process at once, as all of what it wrote is flushed. `exit` would first
/// let the cryptography library (AWS-LC) take down its source of random numbers,
/// which aborts the process where another thread is just about to use it. Commands that run for
/// files are ended before.
pub fn leave(exit: Exit) -> ! {
    longhaul_engine::shell::end_all();
    longhaul_transfer::log_writer::flush(LAST_LINES);
    signal_hook::low_level::exit(i32::from(exit.code()))
}

/// Says something on standard error, in one line.
pub fn say(text: &str) {
    clear_line();
    // Where there is a log, everything is one of its events.
    if tracing::dispatcher::has_been_set() {
        tracing::info!("{text}");
    } else {
        write_error_line(&format!("longhaul: {text}"));
    }
}

/// Reports how a command ended.
pub fn finish(result: Result<Exit, Stop>) -> Exit {
    match result {
        Ok(exit) => exit,
        Err(stop) => {
            say(&stop.text);
            stop.exit
        }
    }
}

/// The terminal, or whatever standard error is, as a transfer uses it.
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
        // ssh itself ends its lines with a carriage return.
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
