//! Shows a job on another host as if it ran here.

use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use longhaul_transfer::between_hosts::job_protocol::{Channel, Shown, ShownProgress};
use longhaul_transfer::between_hosts::viewer::{Canceller, Viewer};
use longhaul_transfer::between_hosts::watch::{Watched, same_options};

use crate::messages::{
    Exit, clear_line, harmless, leave, print_line, progress_line, say, write_error,
};
use longhaul_transfer::signals::at_signal;

/// Maximum length in bytes of a line of standard error. Longer lines are shown in pieces.
const LONGEST_LINE: usize = 64 << 10;

/// Standard output and error of this process as the viewer of a job.
pub struct Screen {
    shown: Shown,
    written: Mutex<Written>,
}

/// Output that was shown.
#[derive(Default)]
struct Written {
    bytes: [u64; 2],
    /// Incomplete last line of standard error. A progress line must not interrupt it.
    begun: Vec<u8>,
}

impl Screen {
    /// Creates a viewer with these kinds of output.
    pub fn new(shown: Shown) -> Screen {
        Screen {
            shown,
            written: Mutex::default(),
        }
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Viewer for Screen {
    fn wants(&self) -> ShownProgress {
        match (self.shown.json, self.shown.quiet) {
            (true, _) => ShownProgress::Json,
            (false, false) if io::stderr().is_terminal() => ShownProgress::Line,
            _ => ShownProgress::None,
        }
    }

    fn notice(&self, text: &str) {
        if self.wants() == ShownProgress::Line {
            say(text);
        }
    }

    fn begun(&self, canceller: Canceller) {
        let mut asked = false;
        heed_signals(move || {
            if std::mem::replace(&mut asked, true) {
                clear_line();
                leave(Exit::Interrupted);
            }
            canceller.cancel();
        });
    }

    fn left(&self, name: &str) {
        print_line!("{name}");
    }

    fn output(&self, channel: Channel, at: u64, bytes: &[u8]) {
        self.written().show(channel, at, bytes);
    }

    fn progress(&self, text: &str) {
        if self.shown.json {
            output(format!("{text}\n").as_bytes());
        } else {
            progress_line(&harmless(text));
        }
    }

    fn end(&self) {
        errors(&std::mem::take(&mut self.written().begun));
        clear_line();
    }
}

impl Written {
    fn show(&mut self, channel: Channel, at: u64, bytes: &[u8]) {
        let had = match channel {
            Channel::Output => &mut self.bytes[0],
            _ => &mut self.bytes[1],
        };
        // Bytes that arrive twice are shown once.
        let known = had.saturating_sub(at);
        let known = usize::try_from(known).unwrap_or(usize::MAX);
        let Some(new) = bytes.get(known..) else {
            return;
        };
        *had = at + bytes.len() as u64;
        match channel {
            Channel::Output => output(new),
            _ => {
                self.begun.extend_from_slice(new);
                let whole = self.begun.iter().rposition(|byte| *byte == b'\n');
                let whole = match whole {
                    None if self.begun.len() > LONGEST_LINE => self.begun.len(),
                    whole => whole.map_or(0, |end| end + 1),
                };
                let lines: Vec<u8> = self.begun.drain(..whole).collect();
                errors(&lines);
            }
        }
    }
}

/// Makes SIGINT and SIGTERM end this command only. The job continues.
pub fn leave_at_signal(watched: &Watched) {
    let (name, host, job) = (watched.name.clone(), watched.host.clone(), watched.job());
    heed_signals(move || {
        say(&format!(
            "{name} continues at {host}: `longhaul attach {job}` shows it again, `longhaul cancel {job}` \
             ends it{}",
            same_options(&host)
        ));
        leave(Exit::Interrupted);
    });
}

/// Calls a function at every SIGINT and SIGTERM.
fn heed_signals(what: impl FnMut() + Send + 'static) {
    if let Err(error) = at_signal(what) {
        say(&format!(
            "an interrupt will end only this command, not the job: {error}"
        ));
    }
}

/// Writes to standard output: unchanged to a program, and without control characters to a terminal.
fn output(bytes: &[u8]) {
    let mut output = io::stdout().lock();
    // A closed reader is not a reason to stop.
    let _ = if output.is_terminal() {
        output.write_all(harmless(&String::from_utf8_lossy(bytes)).as_bytes())
    } else {
        output.write_all(bytes)
    };
    let _ = output.flush();
}

fn errors(bytes: &[u8]) {
    if !bytes.is_empty() {
        clear_line();
        write_error(&harmless(&String::from_utf8_lossy(bytes)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incomplete_line_is_held_back() {
        let mut written = Written::default();
        written.show(Channel::Errors, 0, b"one\ntw");
        assert_eq!(written.begun, b"tw");
        written.show(Channel::Errors, 4, b"two");
        assert_eq!(
            written.begun, b"two",
            "bytes that arrive twice are shown once"
        );
        written.show(Channel::Errors, 0, b"one");
        assert_eq!(
            (written.begun.as_slice(), written.bytes),
            (&b"two"[..], [0, 7])
        );
        written.show(Channel::Errors, 7, &[b' '; LONGEST_LINE]);
        assert_eq!(written.begun, b"", "an overlong line is not held back");
    }
}
