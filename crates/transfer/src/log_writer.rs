//! Writes a log on a separate thread, so that other threads never wait for the reader of the log.
//!
//! A log is often a pipe. If its reader stops, a write to the pipe blocks forever. Lines are
//! therefore queued. If the queue is full, further lines are counted and dropped.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use longhaul_system::clock;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde_json::json;

use crate::console::escaped_json;

/// Maximum size of the queue in bytes, enough for several thousand lines.
const MOST_WAITING: usize = 512 << 10;

/// Formats the number of dropped lines as one complete line.
type Lost = fn(u64) -> String;

fn lost(count: u64) -> String {
    format!("{count} lines of this log were lost, because they could not be written")
}

/// Queue of lines for a descriptor.
pub struct LogWriter {
    waiting: Mutex<Waiting>,
    /// Signals that a line was added or written.
    changed: Condvar,
    lost: Lost,
    is_json: bool,
}

#[derive(Default)]
struct Waiting {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Number of dropped lines that are not yet reported.
    dropped: u64,
    /// True while a line is being written.
    writing: bool,
}

/// The writer of this process's log.
static INSTALLED: OnceLock<Arc<LogWriter>> = OnceLock::new();

impl LogWriter {
    /// Starts the log on standard error, in JSON or text. A process has one log.
    ///
    /// # Errors
    ///
    /// No thread can be started.
    pub fn install(is_json: bool) -> io::Result<Arc<LogWriter>> {
        let lost: Lost = if is_json {
            |count| {
                let (timestamp, message) = (clock::now(), lost(count));
                let event = json!({ "timestamp": timestamp, "level": "WARN", "message": message });
                format!("{event}\n")
            }
        } else {
            |count| format!("{} longhaul: {}\n", clock::now(), lost(count))
        };
        let writer = LogWriter::start(io::stderr(), (is_json, lost))?;
        let _ = INSTALLED.set(Arc::clone(&writer));
        Ok(writer)
    }

    fn start(
        to: impl AsFd + Send + 'static,
        (is_json, lost): (bool, Lost),
    ) -> io::Result<Arc<LogWriter>> {
        let writer = Arc::new(LogWriter {
            waiting: Mutex::default(),
            changed: Condvar::new(),
            lost,
            is_json,
        });
        let own = Arc::clone(&writer);
        let thread = std::thread::Builder::new().name("log".into());
        thread.spawn(move || own.run(to.as_fd()))?;
        Ok(writer)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a line, or drops it if the queue is full.
    pub fn push(&self, line: &[u8]) {
        let mut waiting = self.lock();
        if waiting.bytes + line.len() > MOST_WAITING {
            waiting.dropped += 1;
            return;
        }
        self.report_dropped(&mut waiting);
        waiting.bytes += line.len();
        waiting.lines.push_back(line.to_vec());
        self.changed.notify_all();
    }

    /// Queues a line that reports the dropped lines.
    fn report_dropped(&self, waiting: &mut Waiting) {
        if waiting.dropped > 0 {
            let line = (self.lost)(std::mem::take(&mut waiting.dropped)).into_bytes();
            waiting.bytes += line.len();
            waiting.lines.push_back(line);
        }
    }

    /// Waits up to `within` until all lines are written.
    pub fn flush(&self, within: Duration) {
        let until = Instant::now() + within;
        let mut waiting = self.lock();
        self.report_dropped(&mut waiting);
        self.changed.notify_all();
        while waiting.writing || !waiting.lines.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.changed.wait_timeout(waiting, left);
            waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn run(&self, to: BorrowedFd<'_>) {
        let mut is_broken_off = false;
        loop {
            let mut line = self.next();
            if is_broken_off {
                line.insert(0, b'\n');
            }
            let left = write_all(to, &line);
            is_broken_off = left > 0 && (left < line.len() || is_broken_off);
            let mut waiting = self.lock();
            waiting.writing = false;
            waiting.dropped += u64::from(left > 0);
            self.changed.notify_all();
        }
    }

    /// Waits for the next line and removes it from the queue.
    fn next(&self) -> Vec<u8> {
        let mut waiting = self.lock();
        loop {
            if let Some(line) = waiting.lines.pop_front() {
                waiting.bytes -= line.len();
                waiting.writing = true;
                return line;
            }
            let waited = self.changed.wait(waiting);
            waiting = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Waits up to `within` until the log of this process is written. Returns at once if there is no
/// log.
pub fn flush(within: Duration) {
    if let Some(writer) = INSTALLED.get() {
        writer.flush(within);
    }
}

impl Write for &LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.is_json {
            // The line may contain file names and text from other hosts.
            self.push(escaped_json(&String::from_utf8_lossy(line)).as_bytes());
        } else {
            self.push(line);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes all bytes. Returns the number of bytes that could not be written.
fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8]) -> usize {
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            // Another process has made the pipe non-blocking.
            Err(Errno::AGAIN) => {
                let mut ready = [PollFd::new(&to, PollFlags::OUT)];
                if poll(&mut ready, None).is_err_and(|error| error != Errno::INTR) {
                    break;
                }
            }
            Err(_) => break,
        }
    }
    bytes.len()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;

    fn lost_of_test(count: u64) -> String {
        format!("lost {count}\n")
    }

    #[test]
    fn a_stalled_reader_blocks_no_writer() {
        let (reader, pipe) = io::pipe().unwrap();
        let writer = LogWriter::start(pipe, (false, lost_of_test)).unwrap();
        let line = [&[b'x'; 1000][..], b"\n"].concat();
        let pushed = 2 * MOST_WAITING / line.len();
        for _ in 0..pushed {
            writer.push(&line);
        }
        let mut lines = BufReader::new(reader).lines();
        let mut written = 0;
        let dropped = loop {
            let line = lines.next().unwrap().unwrap();
            match line.strip_prefix("lost ") {
                Some(count) => break count.parse::<usize>().unwrap(),
                None => written += 1,
            }
            // Once there is room, the report precedes the next line.
            if writer.lock().lines.is_empty() {
                writer.push(b"last\n");
            }
        };
        assert!(dropped > 0);
        assert!(written + dropped >= pushed, "{written} + {dropped}");
    }

    #[test]
    fn unwritable_lines_are_not_a_failure() {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
        let writer = LogWriter::start(full.unwrap(), (false, lost_of_test)).unwrap();
        writer.push(b"a\n");
        writer.flush(Duration::from_secs(60));
        assert_eq!(writer.lock().dropped, 1);
        let (reader, pipe) = io::pipe().unwrap();
        drop(reader);
        let writer = LogWriter::start(pipe, (false, lost_of_test)).unwrap();
        writer.push(b"a\n");
        writer.flush(Duration::from_secs(60));
        assert_eq!(writer.lock().dropped, 1);
    }
}
