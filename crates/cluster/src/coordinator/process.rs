//! Processes of workers. Threads write their orders and read their reports, so that the coordinator
//! never waits for a worker.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};

use crate::protocol::{MAXIMUM_REPORT_BYTES, Report, read};
use crate::queue::WorkerNumber;

/// Maximum number of bytes before the first report, such as output of a shell's profile.
const MAXIMUM_NOISE_BYTES: u64 = 64 << 10;

/// Maximum length of a line of a worker's standard error.
const MAXIMUM_NOTE_BYTES: u64 = 4 << 10;

/// Message to the coordinator's only thread.
pub enum Message {
    /// A worker reported.
    Report(WorkerNumber, Report),
    /// A line of a worker's standard error.
    Said(WorkerNumber, String),
    /// A worker ended, with the reason if it is known.
    Lost(WorkerNumber, Option<String>),
    /// The user interrupts the command.
    Interrupted,
}

/// The process of a worker, or of the command that starts one on another host.
pub struct Process {
    orders: Option<Sender<Vec<u8>>>,
    child: Child,
}

impl Process {
    /// Starts a worker.
    ///
    /// # Errors
    ///
    /// The command or a thread cannot be started.
    pub fn start(
        command: &[OsString],
        number: WorkerNumber,
        messages: &SyncSender<Message>,
    ) -> io::Result<Process> {
        let (program, arguments) = command
            .split_first()
            .ok_or_else(|| io::Error::other("the command is empty"))?;
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // An interrupt of the terminal must not end workers before the coordinator ends them.
            .process_group(0)
            .spawn()?;
        let (orders, written) = channel();
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let process = Process {
            orders: Some(orders),
            child,
        };
        let (Some(input), Some(output), Some(errors)) = pipes else {
            return Err(io::Error::other("a pipe is missing"));
        };
        let (reports, notes) = (messages.clone(), messages.clone());
        let thread = |name: &str| std::thread::Builder::new().name(name.into());
        thread("orders").spawn(move || write_orders(input, &written))?;
        thread("notes").spawn(move || pass_on(errors, number, &notes))?;
        thread("reports").spawn(move || read_reports(output, number, &reports))?;
        Ok(process)
    }

    /// Sends a line to the worker. A worker that is gone is reported as lost.
    pub fn send(&self, line: Vec<u8>) {
        if let Some(orders) = &self.orders {
            // The thread ends if the worker no longer reads.
            let _ = orders.send(line);
        }
    }

    /// Closes the worker's input, so that it ends.
    pub fn close(&mut self) {
        self.orders = None;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.close();
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn write_orders(mut input: ChildStdin, orders: &Receiver<Vec<u8>>) {
    for line in orders {
        if input.write_all(&line).is_err() {
            return;
        }
    }
}

/// Passes on the lines of standard error.
fn pass_on(errors: ChildStderr, number: WorkerNumber, messages: &SyncSender<Message>) {
    let mut errors = BufReader::new(errors);
    let mut line = Vec::new();
    while matches!(
        errors
            .by_ref()
            .take(MAXIMUM_NOTE_BYTES)
            .read_until(b'\n', &mut line),
        Ok(1..)
    ) {
        let text = String::from_utf8_lossy(line.trim_ascii()).into_owned();
        if messages.send(Message::Said(number, text)).is_err() {
            return;
        }
        line.clear();
    }
}

fn read_reports(output: ChildStdout, number: WorkerNumber, messages: &SyncSender<Message>) {
    let mut output = BufReader::new(output);
    let result = first_report(&mut output).and_then(|first| {
        let mut next = first;
        while let Some(report) = next {
            if messages.send(Message::Report(number, report)).is_err() {
                return Ok(());
            }
            next = read(&mut output, MAXIMUM_REPORT_BYTES)?;
        }
        Ok(())
    });
    let reason = result.err().map(|error| error.to_string());
    // The coordinator may have ended.
    let _ = messages.send(Message::Lost(number, reason));
}

/// Reads the first report. Other lines before it are output of a shell.
fn first_report(output: &mut impl BufRead) -> io::Result<Option<Report>> {
    let mut left = MAXIMUM_NOISE_BYTES;
    let mut line = Vec::new();
    while left > 0 {
        let count = output.by_ref().take(left).read_until(b'\n', &mut line)?;
        if count == 0 {
            return Ok(None);
        }
        if let Ok(report @ Report::Ready { .. }) = serde_json::from_slice(&line) {
            return Ok(Some(report));
        }
        left = left.saturating_sub(count as u64);
        line.clear();
    }
    Err(io::Error::other("its output is no worker's"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_a_shell_comes_before_the_first_report() {
        let text = b"Welcome!\n\n{\"report\":\"ready\",\"version\":\"1\"}\nrest";
        let found = first_report(&mut &text[..]).unwrap();
        let version = "1".to_owned();
        assert_eq!(found, Some(Report::Ready { version }));
        assert_eq!(first_report(&mut &b"no such command\n"[..]).unwrap(), None);
        let endless = vec![b'a'; 1 << 20];
        assert!(first_report(&mut &*endless).is_err());
    }
}
