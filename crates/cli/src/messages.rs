//! What goes to standard error, and what the process's exit code says.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use longhaul_proto::text::is_hidden;

use crate::sweep::clock;

/// Exit codes; documented in the README and in `longhaul --help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Everything is done.
    Done,
    /// The command line makes no sense.
    Usage,
    /// Some files failed; the others are done.
    Partial,
    /// The other end could not be reached, or was lost.
    Connection,
    /// One end did not accept the other.
    Authentication,
    /// Data differ, or arrive corrupted again and again.
    Integrity,
    /// This end, or its disk, cannot.
    Local,
    /// A newer run of the same transfer took over.
    Superseded,
    /// A signal ended it.
    Interrupted,
}

impl Exit {
    /// The number.
    pub fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Usage => 1,
            Exit::Partial => 2,
            Exit::Connection => 3,
            Exit::Authentication => 4,
            Exit::Integrity => 5,
            Exit::Local => 6,
            Exit::Superseded => 7,
            // 128 + SIGINT, as shells have it.
            Exit::Interrupted => 130,
        }
    }

    /// What a number means; another end that ended otherwise was lost.
    pub fn of_code(code: u8) -> Exit {
        let all = [
            Exit::Done,
            Exit::Usage,
            Exit::Partial,
            Exit::Connection,
            Exit::Authentication,
            Exit::Integrity,
            Exit::Local,
            Exit::Superseded,
            Exit::Interrupted,
        ];
        let found = all.into_iter().find(|exit| exit.code() == code);
        found.unwrap_or(Exit::Connection)
    }

    /// What the code means that another end gave with a failure; none: it was
    /// lost.
    pub fn of_failure(code: Option<u8>) -> Exit {
        match code.map(Exit::of_code) {
            None | Some(Exit::Done) => Exit::Connection,
            Some(exit) => exit,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// Why a command ended early.
#[derive(Debug)]
pub struct Stop {
    /// What the exit code says.
    pub exit: Exit,
    /// The thing, the cause and the remedy.
    pub text: String,
}

impl Stop {
    /// A stop.
    pub fn new(exit: Exit, text: impl Into<String>) -> Stop {
        Stop {
            exit,
            text: text.into(),
        }
    }

    /// A stop because of an error.
    pub fn because(exit: Exit, error: impl std::fmt::Display) -> Stop {
        Stop::new(exit, error.to_string())
    }
}

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

/// Writes to standard output. A reader that went away (`head`) is no failure;
/// any other is told at the end, by [`after_output`].
pub fn write_output(bytes: &[u8]) {
    let output = std::io::stdout();
    // Names and what other hosts say of themselves are part of it.
    let shown = output
        .is_terminal()
        .then(|| harmless(&String::from_utf8_lossy(bytes)));
    let bytes = shown.as_ref().map_or(bytes, |text| text.as_bytes());
    let mut output = output.lock();
    let written = output.write_all(bytes).and_then(|()| output.flush());
    if let Err(error) = written
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
    () => { $crate::messages::write_output(b"\n") };
    ($($part:tt)*) => {
        $crate::messages::write_output((format!($($part)*) + "\n").as_bytes())
    };
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

/// Ends the process at once, as all of what it wrote is flushed. `exit` would first
/// let the cryptography library (AWS-LC) take down its source of random numbers,
/// which aborts the process where another thread is just about to use it.
pub fn leave(exit: Exit) -> ! {
    signal_hook::low_level::exit(i32::from(exit.code()))
}

/// Says something on standard error, in one line.
pub fn say(text: &str) {
    clear_line();
    let stamp = match STAMPED.load(Ordering::Relaxed) {
        true => format!("{} ", clock::now()),
        false => String::new(),
    };
    write_error_line(&format!("{stamp}longhaul: {text}"));
}

/// Each line of [`say`] says when.
static STAMPED: AtomicBool = AtomicBool::new(false);

/// From here on standard error is a log: each line of [`say`] begins with the time.
pub fn stamp_lines() {
    STAMPED.store(true, Ordering::Relaxed);
}

/// What somebody else said, without what would move a terminal's cursor or turn its text
/// around.
pub fn harmless(text: &str) -> String {
    let harmless = |c: char| match c {
        '\n' | '\t' => c,
        c if is_hidden(c) => '\u{fffd}',
        c => c,
    };
    text.chars().map(harmless).collect()
}

/// What the log has of words that somebody else said, in bytes at most.
pub const MAXIMUM_LOGGED_BYTES: usize = 200;

/// Text that others had a part in, as one line of no control characters and at most so many
/// bytes: with an end of line in it, it could look like another message.
pub fn one_line(text: &str, most: usize) -> String {
    let mut line = harmless(text).replace(['\n', '\t'], "\u{fffd}");
    line.truncate(line.floor_char_boundary(most));
    line
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_said_is_one_short_line() {
        assert_eq!(
            one_line("a\nlonghaul: b\x1b[2J", 200),
            "a\u{fffd}longhaul: b\u{fffd}[2J"
        );
        assert_eq!(one_line("aaé", 3), "aa");
    }

    #[test]
    fn no_control_character_comes_to_a_terminal() {
        assert_eq!(harmless("a\x1b[2J\r\n\tb"), "a\u{fffd}[2J\u{fffd}\n\tb");
        let all: String = ('\0'..=char::MAX).collect();
        let moves = |c: char| is_hidden(c) && !matches!(c, '\n' | '\t');
        assert!(!harmless(&all).contains(moves));
    }

    #[test]
    fn no_failure_counts_as_done() {
        for (code, exit) in [
            (None, Exit::Connection),
            (Some(0), Exit::Connection),
            (Some(1), Exit::Usage),
            (Some(4), Exit::Authentication),
            (Some(99), Exit::Connection),
        ] {
            assert_eq!(Exit::of_failure(code), exit, "{code:?}");
        }
    }
}
