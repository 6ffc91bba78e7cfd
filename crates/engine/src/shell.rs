//! Runs commands of users in a shell: each in a process group of its own, for a limited time, and
//! ended with its session. File names are arguments and environment variables, never part of the
//! text that the shell parses.
//!
//! - [`run`] runs a command to its end, [`pipe`] runs a file through one
//! - [`end_all`] ends all running commands before this process exits
//! - [`Words`] limits the messages of commands that are shown

mod groups;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod words;

use std::ffi::OsStr;
use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, waitid};

use crate::flows::MAXIMUM_FLOWS;
use groups::{ALL, Group, Groups};
use longhaul_system::descriptors::{self, until_free};
use words::Said;

pub use words::Words;

/// Divisor for the share of descriptors that running commands may use. Each command needs a dozen:
/// its files, its pipes and those for its start.
const COMMANDS_PART: usize = 48;

/// Returns the number of commands that run at once if `jobs` are requested.
pub(crate) fn most_at_once(jobs: u32) -> usize {
    descriptors::share(COMMANDS_PART, (jobs as usize).clamp(1, MAXIMUM_FLOWS))
}

/// Interval of the check that a running command is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The same interval if the kernel does not report the end of a process (before Linux 5.3).
const LOOK_OFTEN: Duration = Duration::from_millis(5);

/// Time between the two signals that end a command; the second one kills it.
pub const GRACE: Duration = Duration::from_secs(2);

/// Bytes of output that are read at once: the capacity of a pipe.
const OUTPUT_BYTES: usize = 64 << 10;

/// Name of the shell in its messages.
const SHELL_NAME: &str = "longhaul";

/// Kind of a command's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It exited by itself.
    Itself(ExitStatus),
    /// Its time limit expired.
    TooLong,
    /// Its result is no longer wanted.
    Unwanted,
}

/// Result of a command.
#[derive(Debug)]
pub struct Ran {
    /// Kind of its end.
    pub ended: Ended,
    /// Last bytes of its messages.
    pub said: Vec<u8>,
    /// Number of bytes of its messages.
    pub wrote: u64,
}

impl Ran {
    fn new(ended: Ended, mut said: Said) -> Ran {
        said.read_rest();
        Ran {
            ended,
            said: said.last,
            wrote: said.count,
        }
    }

    /// Describes a failure; `None` if the command succeeded.
    fn how(&self) -> Option<String> {
        use std::os::unix::process::ExitStatusExt;
        Some(match self.ended {
            Ended::Itself(status) if status.success() => return None,
            Ended::Itself(status) => match (status.code(), status.signal()) {
                (Some(code), _) => format!("it ended with exit code {code}"),
                (None, signal) => format!("signal {} ended it", signal.unwrap_or_default()),
            },
            Ended::TooLong => "it took too long, and was ended".to_owned(),
            Ended::Unwanted => "it was ended with the copy".to_owned(),
        })
    }
}

/// Ends all commands of this process, and prevents new ones: SIGTERM, and SIGKILL after [`GRACE`].
/// For a process that is about to exit.
pub fn end_all() {
    ALL.end();
}

/// True if all commands are being ended.
pub fn is_ending() -> bool {
    ALL.are_ended()
}

/// Returns the command `sh -c TEXT` with arguments. It runs in `/`: many programs execute files of
/// their working directory, and others may write to a destination.
pub fn command(text: &[u8], arguments: &[&OsStr]) -> Command {
    let mut command = Command::new("/bin/sh");
    command
        .arg("-c")
        .arg(OsStr::from_bytes(text))
        .arg(SHELL_NAME)
        .args(arguments)
        .current_dir("/")
        .stdin(Stdio::null())
        .process_group(0);
    command
}

/// Runs a command to its end, or until its time limit expires or it is no longer `wanted`. Then it
/// gets SIGTERM, and SIGKILL after [`GRACE`]. Other processes of its process group are killed with
/// it.
///
/// # Errors
///
/// Fails if it cannot be started.
pub fn run(command: Command, within: Duration, wanted: &dyn Fn() -> bool) -> io::Result<Ran> {
    run_in(&ALL, command, within, wanted)
}

fn run_in(
    groups: &Groups,
    mut command: Command,
    within: Duration,
    wanted: &dyn Fn() -> bool,
) -> io::Result<Ran> {
    let (reader, writer) = until_free(wanted, io::pipe)?;
    let output = until_free(wanted, || writer.try_clone())?;
    command.stdout(output).stderr(writer);
    let running = Running::start(groups, command, wanted)?;
    let mut said = Said::new(reader);
    let ended = running.finish(&mut said, within, wanted)?;
    Ok(Ran::new(ended, said))
}

/// Runs a command like [`run`], with standard input from `input` and the output passed to `take` in
/// parts. The command need not read all input.
///
/// # Errors
///
/// Errors of [`run`] and of `take`; after an error of `take` the command is killed.
pub fn pipe(
    mut command: Command,
    input: OwnedFd,
    take: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    within: Duration,
    wanted: &dyn Fn() -> bool,
) -> io::Result<Ran> {
    let (output, standard) = until_free(wanted, io::pipe)?;
    let (reader, errors) = until_free(wanted, io::pipe)?;
    command.stdin(input).stdout(standard).stderr(errors);
    let running = Running::start(&ALL, command, wanted)?;
    let mut piped = Piped {
        said: Said::new(reader),
        output: Some(output),
        take,
        room: vec![0; OUTPUT_BYTES],
    };
    let ended = running.finish(&mut piped, within, wanted)?;
    Ok(Ran::new(ended, piped.said))
}

/// A running command, which is killed when this is dropped.
struct Running<'a> {
    child: Child,
    groups: &'a Groups,
    /// Process group; `None` once the command was reaped.
    group: Option<Group<'a>>,
    /// Process descriptor that reports its end; `None` if the kernel has none.
    ending: Option<OwnedFd>,
}

impl Running<'_> {
    /// Starts a command. It consumes the command, so that only the child holds the other ends of
    /// its pipes.
    fn start<'a>(
        groups: &'a Groups,
        mut command: Command,
        wanted: &dyn Fn() -> bool,
    ) -> io::Result<Running<'a>> {
        let (child, group) = until_free(wanted, || groups.start(&mut command))?;
        let ending = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).ok();
        Ok(Running {
            child,
            groups,
            group: Some(group),
            ending,
        })
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = &self.group {
            group.signal(signal);
        }
    }

    /// Kills the rest of the process group, and reaps the command.
    fn reap(&mut self) -> io::Result<ExitStatus> {
        self.signal(Signal::KILL);
        // Remove the group before its number can be reused.
        self.group = None;
        self.child.wait()
    }

    /// Waits for its end, and ends the processes that it started.
    fn finish(
        mut self,
        heard: &mut dyn Hear,
        within: Duration,
        wanted: &dyn Fn() -> bool,
    ) -> io::Result<Ended> {
        let until = Instant::now() + within;
        let ended = self.watch(heard, within, wanted);
        let ended = ended.and_then(|ended| match ended {
            // Processes that it started may still write.
            None => heard.hear_rest(until, wanted).map(|()| None),
            ended => Ok(ended),
        });
        let is_ended = self.groups.are_ended();
        let status = self.reap()?;
        // Its exit status counts only if it was not ended by this process.
        let own = if is_ended {
            Ended::Unwanted
        } else {
            Ended::Itself(status)
        };
        Ok(ended?.unwrap_or(own))
    }

    /// Waits for its end; returns the reason if it was ended, `None` if it exited by itself.
    fn watch(
        &self,
        heard: &mut dyn Hear,
        within: Duration,
        wanted: &dyn Fn() -> bool,
    ) -> io::Result<Option<Ended>> {
        let began = Instant::now();
        let why = loop {
            let left = within.saturating_sub(began.elapsed());
            if self.await_end(heard, left.min(LOOK_EVERY))? {
                return Ok(None);
            }
            match (wanted(), left.is_zero()) {
                (false, _) => break Ended::Unwanted,
                (true, true) => break Ended::TooLong,
                (true, false) => {}
            }
        };
        self.signal(Signal::TERM);
        let told = Instant::now();
        while told.elapsed() < GRACE {
            if self.await_end(heard, LOOK_EVERY)? {
                break;
            }
        }
        Ok(Some(why))
    }

    /// Reads its output for at most `longest`; true if it has ended.
    fn await_end(&self, heard: &mut dyn Hear, longest: Duration) -> io::Result<bool> {
        let longest = match self.ending {
            Some(_) => longest,
            None => longest.min(LOOK_OFTEN),
        };
        let ending = self.ending.as_ref().map(AsFd::as_fd);
        heard.hear(ending, longest)?;
        Ok(self.has_ended())
    }

    fn has_ended(&self) -> bool {
        let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let ended = waitid(WaitId::Pid(Pid::from_child(&self.child)), how);
        !matches!(ended, Ok(None))
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if self.group.is_some() {
            // An earlier error was already reported.
            let _ = self.reap();
        }
    }
}

/// Receives the output of a command.
trait Hear {
    /// Waits for output, or for the end of the process.
    fn hear(&mut self, ending: Option<BorrowedFd<'_>>, longest: Duration) -> io::Result<()>;

    /// Reads the remaining output of a command that exited by itself.
    fn hear_rest(&mut self, _until: Instant, _wanted: &dyn Fn() -> bool) -> io::Result<()> {
        Ok(())
    }
}

/// Messages and output of a filter.
struct Piped<'a> {
    said: Said,
    /// Pipe of the output; `None` at its end.
    output: Option<PipeReader>,
    take: &'a mut dyn FnMut(&[u8]) -> io::Result<()>,
    room: Vec<u8>,
}

impl Hear for Piped<'_> {
    fn hear(&mut self, ending: Option<BorrowedFd<'_>>, longest: Duration) -> io::Result<()> {
        let spoken = self.said.reader.as_ref().map(AsFd::as_fd);
        let written = self.output.as_ref().map(AsFd::as_fd);
        wait_for([written, spoken, ending], longest);
        self.said.read_once(None, Duration::ZERO);
        self.read_output(Duration::ZERO).map(drop)
    }

    fn hear_rest(&mut self, until: Instant, wanted: &dyn Fn() -> bool) -> io::Result<()> {
        while self.output.is_some() {
            self.read_output(LOOK_EVERY)?;
            if self.output.is_some() && (!wanted() || Instant::now() > until) {
                let text = "the command ended, and what it started holds its output open";
                return Err(io::Error::other(text));
            }
        }
        Ok(())
    }
}

impl Piped<'_> {
    /// Reads a part of the output; false without one.
    fn read_output(&mut self, longest: Duration) -> io::Result<bool> {
        let Some(output) = &mut self.output else {
            return Ok(false);
        };
        if !wait_for([Some(output.as_fd()), None, None], longest) {
            return Ok(false);
        }
        match output.read(&mut self.room) {
            Ok(0) => self.output = None,
            Ok(count) => (self.take)(&self.room[..count])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(true)
    }
}

/// Waits until one of these is ready; true if the first one is.
fn wait_for(descriptors: [Option<BorrowedFd<'_>>; 3], longest: Duration) -> bool {
    let is_first_there = descriptors[0].is_some();
    let mut waited: Vec<PollFd<'_>> = descriptors
        .into_iter()
        .flatten()
        .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
        .collect();
    let longest = Timespec::try_from(longest).ok();
    // After a signal the caller checks again.
    let _ = poll(&mut waited, longest.as_ref());
    is_first_there && waited.first().is_some_and(|it| !it.revents().is_empty())
}
