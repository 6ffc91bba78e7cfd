//! Commands of users, which a shell runs: each in a process group of its own, for a bounded time,
//! and ended with the session that it is of. Names of files are arguments and variables of the
//! environment, never a part of the text that the shell reads.
//!
//! - [`run`] runs one to its end, [`pipe`] has a file go through one
//! - [`end_all`] ends all that run, before the process ends at once
//! - [`Words`]: what is shown of what they say

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

/// The descriptors that this process may have are divided by this number for commands that run at a
/// time. Each takes a dozen: its files, its pipes and those with which it is started.
const COMMANDS_PART: usize = 48;

/// Commands that run at a time, if this number was asked for.
pub(crate) fn most_at_once(jobs: u32) -> usize {
    descriptors::share(COMMANDS_PART, (jobs as usize).clamp(1, MAXIMUM_FLOWS))
}

/// How often a command that runs is looked after: whether it is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The same where the kernel does not tell that a process ended (before Linux 5.3).
const LOOK_OFTEN: Duration = Duration::from_millis(5);

/// Time between the two signals that end a command, the second of which kills it.
pub const GRACE: Duration = Duration::from_secs(2);

/// Bytes of output that are read at once: what a pipe holds.
const OUTPUT_BYTES: usize = 64 << 10;

/// The shell's own name in its messages.
const SHELL_NAME: &str = "longhaul";

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By itself.
    Itself(ExitStatus),
    /// Its time was over.
    TooLong,
    /// Nobody waits for it any more.
    Unwanted,
}

/// What a command did.
#[derive(Debug)]
pub struct Ran {
    /// How it ended.
    pub ended: Ended,
    /// The last bytes of what it said.
    pub said: Vec<u8>,
    /// Bytes that it said.
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

    /// How it ended without success.
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

/// Ends all commands of this process, and lets no other one begin: SIGTERM, and SIGKILL after
/// [`GRACE`]. For a process that is about to end by itself.
pub fn end_all() {
    ALL.end();
}

/// Whether all are being ended, and this process with them.
pub fn is_ending() -> bool {
    ALL.are_ended()
}

/// `sh -c TEXT`, with its arguments. It runs in `/`: many programs run what they find in the
/// directory that they are started in, and others may write to a destination.
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

/// Runs a command to its end, or until its time is over or it is not `wanted` any more. Then it
/// gets SIGTERM, and SIGKILL after [`GRACE`]. What it leaves in its process group is killed with
/// it.
///
/// # Errors
///
/// Where it cannot be started.
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

/// The same of a command that reads `input`, and whose output goes to `take`, part by part. It
/// need not read all.
///
/// # Errors
///
/// As [`run`], and what `take` returns: the command is killed then.
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

/// A command that runs, and does not outlive this.
struct Running<'a> {
    child: Child,
    groups: &'a Groups,
    /// None once it was waited for.
    group: Option<Group<'a>>,
    /// Tells that it ended; `None` if the kernel has no such thing.
    ending: Option<OwnedFd>,
}

impl Running<'_> {
    /// The command has the other ends of its pipes, and is not needed any more.
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

    /// Kills what is left of it, and waits for it.
    fn reap(&mut self) -> io::Result<ExitStatus> {
        self.signal(Signal::KILL);
        // Before its number can be another one's.
        self.group = None;
        self.child.wait()
    }

    /// Waits for its end, and ends what it started.
    fn finish(
        mut self,
        heard: &mut dyn Hear,
        within: Duration,
        wanted: &dyn Fn() -> bool,
    ) -> io::Result<Ended> {
        let until = Instant::now() + within;
        let ended = self.watch(heard, within, wanted);
        let ended = ended.and_then(|ended| match ended {
            // What it started may still write.
            None => heard.hear_rest(until, wanted).map(|()| None),
            ended => Ok(ended),
        });
        let is_ended = self.groups.are_ended();
        let status = self.reap()?;
        // What it says of its success counts only if nobody asked it to end.
        let own = if is_ended {
            Ended::Unwanted
        } else {
            Ended::Itself(status)
        };
        Ok(ended?.unwrap_or(own))
    }

    /// Waits for its end; gives why it was ended, `None` if it ended by itself.
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

    /// Reads what it says for a while; whether it ended.
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
            // An error is told already.
            let _ = self.reap();
        }
    }
}

/// Takes what a command writes.
trait Hear {
    /// Waits for something to be written, or for the end of a process.
    fn hear(&mut self, ending: Option<BorrowedFd<'_>>, longest: Duration) -> io::Result<()>;

    /// The rest, of a command that ended by itself.
    fn hear_rest(&mut self, _until: Instant, _wanted: &dyn Fn() -> bool) -> io::Result<()> {
        Ok(())
    }
}

/// What a filter says, and its output.
struct Piped<'a> {
    said: Said,
    /// `None` once all came.
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
    /// Takes a part of the output; false if there is none.
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

/// Waits for one of these; whether it is the first one.
fn wait_for(descriptors: [Option<BorrowedFd<'_>>; 3], longest: Duration) -> bool {
    let is_first_there = descriptors[0].is_some();
    let mut waited: Vec<PollFd<'_>> = descriptors
        .into_iter()
        .flatten()
        .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
        .collect();
    let longest = Timespec::try_from(longest).ok();
    // A signal is no end: it is looked again.
    let _ = poll(&mut waited, longest.as_ref());
    is_first_there && waited.first().is_some_and(|it| !it.revents().is_empty())
}
