//! Commands of users, which a shell runs: each in a process group of its own, for a bounded time,
//! and ended with the session that it is of. Names of files are arguments and variables of the
//! environment, never a part of the text that the shell reads.

use std::ffi::OsStr;
use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid,
};

/// How often a command that runs is looked after: whether it is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The same where the kernel does not tell that a process ended (before Linux 5.3).
const LOOK_OFTEN: Duration = Duration::from_millis(5);

/// Time between the two signals that end a command, the second of which kills it.
pub const GRACE: Duration = Duration::from_secs(2);

/// Bytes of what it said that are kept: the last ones.
const KEPT_BYTES: usize = 4096;

/// Bytes that are read at once.
const READ_BYTES: usize = 4096;

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
    /// The last bytes of what it said, [`KEPT_BYTES`] at most.
    pub said: Vec<u8>,
}

impl Ran {
    /// Why it did not succeed; `None` if it did.
    pub fn fault(&self) -> Option<String> {
        use std::os::unix::process::ExitStatusExt;
        let how = match self.ended {
            Ended::Itself(status) if status.success() => return None,
            Ended::Itself(status) => match (status.code(), status.signal()) {
                (Some(code), _) => format!("it ended with exit code {code}"),
                (None, signal) => format!("signal {} ended it", signal.unwrap_or_default()),
            },
            Ended::TooLong => "it took too long, and was ended".to_owned(),
            Ended::Unwanted => "it was ended with the copy".to_owned(),
        };
        Some(match last_line(&self.said) {
            Some(line) => format!("{how}: {line}"),
            None => how,
        })
    }
}

/// The last line that has anything in it.
fn last_line(said: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(said);
    let lines = text.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty())
        .next_back()
        .map(str::to_owned)
}

/// `sh -c TEXT`, with its arguments, in a directory.
pub fn command(text: &[u8], arguments: &[&OsStr], directory: &Path) -> Command {
    let mut command = Command::new("/bin/sh");
    command
        .arg("-c")
        .arg(OsStr::from_bytes(text))
        .arg(SHELL_NAME)
        .args(arguments)
        .current_dir(directory)
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
pub fn run(mut command: Command, within: Duration, wanted: &dyn Fn() -> bool) -> io::Result<Ran> {
    let (reader, writer) = io::pipe()?;
    command.stdout(writer.try_clone()?).stderr(writer);
    let child = command.spawn()?;
    // It has the other end of the pipe too.
    drop(command);
    let mut running = Running::new(child);
    let mut said = Said::new(reader);
    let ended = running.watch(&mut said, within, wanted);
    // Nothing else has its number yet: it was not waited for.
    running.signal(Signal::KILL);
    let status = running.child.wait()?;
    running.reaped = true;
    said.read_rest();
    Ok(Ran {
        ended: ended.unwrap_or(Ended::Itself(status)),
        said: said.last,
    })
}

/// A command that runs, and does not outlive this.
struct Running {
    child: Child,
    /// Tells that it ended; `None` if the kernel has no such thing.
    ending: Option<OwnedFd>,
    reaped: bool,
}

impl Running {
    fn new(child: Child) -> Running {
        let ending = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).ok();
        Running {
            child,
            ending,
            reaped: false,
        }
    }

    /// To it and all that it started, unless they left its process group.
    fn signal(&self, signal: Signal) {
        // It may have ended.
        let _ = kill_process_group(Pid::from_child(&self.child), signal);
    }

    /// Waits for its end; gives why it was ended, `None` if it ended by itself.
    fn watch(&self, said: &mut Said, within: Duration, wanted: &dyn Fn() -> bool) -> Option<Ended> {
        let began = Instant::now();
        let why = loop {
            let left = within.saturating_sub(began.elapsed());
            if self.await_end(said, left.min(LOOK_EVERY)) {
                return None;
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
            if self.await_end(said, LOOK_EVERY) {
                break;
            }
        }
        Some(why)
    }

    /// Reads what it says for a while; whether it ended.
    fn await_end(&self, said: &mut Said, longest: Duration) -> bool {
        let longest = match self.ending {
            Some(_) => longest,
            None => longest.min(LOOK_OFTEN),
        };
        let ending = self.ending.as_ref().map(AsFd::as_fd);
        said.read_once(ending, longest);
        self.has_ended()
    }

    fn has_ended(&self) -> bool {
        let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let ended = waitid(WaitId::Pid(Pid::from_child(&self.child)), how);
        !matches!(ended, Ok(None))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.reaped {
            self.signal(Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// What a command says.
struct Said {
    /// None once nobody can say anything any more.
    reader: Option<PipeReader>,
    last: Vec<u8>,
}

impl Said {
    fn new(reader: PipeReader) -> Said {
        Said {
            reader: Some(reader),
            last: Vec::new(),
        }
    }

    /// Waits for something to be said, or for the end of a process; false where nothing was said.
    fn read_once(
        &mut self,
        ending: Option<std::os::fd::BorrowedFd<'_>>,
        longest: Duration,
    ) -> bool {
        let spoken = self.reader.as_ref().map(AsFd::as_fd);
        let mut waited: Vec<PollFd<'_>> = [spoken, ending]
            .into_iter()
            .flatten()
            .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
            .collect();
        let longest = Timespec::try_from(longest).ok();
        // A signal is no end: it is looked again.
        let _ = poll(&mut waited, longest.as_ref());
        let is_said = spoken.is_some() && waited.first().is_some_and(|it| !it.revents().is_empty());
        is_said && self.read()
    }

    /// Reads what there is; false at the end.
    fn read(&mut self) -> bool {
        let mut room = [0; READ_BYTES];
        let read = self.reader.as_mut().map(|reader| reader.read(&mut room));
        match read {
            Some(Ok(count)) if count > 0 => {
                self.last.extend_from_slice(&room[..count]);
                let beyond = self.last.len().saturating_sub(KEPT_BYTES);
                self.last.drain(..beyond);
                true
            }
            Some(Err(error)) if error.kind() == io::ErrorKind::Interrupted => true,
            _ => {
                self.reader = None;
                false
            }
        }
    }

    /// What was said before the end: no more than a pipe holds. A process that left the group may
    /// write on.
    fn read_rest(&mut self) {
        for _ in 0..(64 << 10) / READ_BYTES {
            if !self.read_once(None, Duration::ZERO) {
                break;
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    fn sh(text: &str, arguments: &[&str]) -> Command {
        let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
        command(text.as_bytes(), &arguments, Path::new("/"))
    }

    fn ran(text: &str, arguments: &[&str]) -> Ran {
        run(sh(text, arguments), LONG, &|| true).unwrap()
    }

    #[test]
    fn a_name_is_an_argument_and_no_text_of_the_shell() {
        let name = "$(echo no); `no` \"' \n x";
        let ran = ran("printf '%s' \"$1\"", &[name]);
        assert_eq!(ran.ended, Ended::Itself(ExitStatus::from_raw(0)));
        assert_eq!(ran.said, name.as_bytes());
        assert_eq!(ran.fault(), None);
    }

    #[test]
    fn why_a_command_did_not_succeed_is_told_with_its_last_words() {
        let fault = |text| ran(text, &[]).fault().unwrap();
        assert_eq!(fault("exit 3"), "it ended with exit code 3");
        let words = fault("echo first; echo last words >&2; echo; exit 4");
        assert_eq!(words, "it ended with exit code 4: last words");
        assert_eq!(fault("kill -9 $$"), "signal 9 ended it");
        assert!(fault("no-such-command").contains("exit code 127"));
    }

    #[test]
    fn of_what_is_said_the_last_is_kept() {
        let ran = ran(
            "i=0; while [ $i -lt 20000 ]; do echo $i; i=$((i+1)); done",
            &[],
        );
        assert_eq!(ran.said.len(), KEPT_BYTES);
        assert!(ran.said.ends_with(b"\n19999\n"));
    }

    /// Also what it started: were it still there, the pipe would be open and nobody would read.
    #[test]
    fn a_command_whose_time_is_over_is_ended_with_all_that_it_started() {
        let within = Duration::from_millis(50);
        let mut text = sh("sleep 3600 & echo $!; trap '' TERM; wait; sleep 3600", &[]);
        text.stdin(Stdio::null());
        let ran = run(text, within, &|| true).unwrap();
        assert_eq!(ran.ended, Ended::TooLong);
        let sleeper = String::from_utf8(ran.said.clone()).unwrap();
        assert!(is_gone(sleeper.lines().next().unwrap()));
        assert!(ran.fault().unwrap().starts_with("it took too long"));
    }

    #[test]
    fn what_a_command_leaves_behind_is_ended_with_it() {
        let ran = ran("sleep 3600 & echo $!", &[]);
        let sleeper = String::from_utf8(ran.said).unwrap();
        assert!(is_gone(sleeper.trim()));
    }

    #[test]
    fn a_command_that_nobody_waits_for_ends() {
        let asked = AtomicBool::new(false);
        let wanted = || !asked.swap(true, Ordering::Relaxed);
        let ran = run(sh("sleep 3600", &[]), LONG, &wanted).unwrap();
        assert_eq!(ran.ended, Ended::Unwanted);
    }

    /// Killed, even if nobody has waited for it yet. It takes the kernel a moment.
    fn is_gone(process: &str) -> bool {
        let state = || {
            let text = std::fs::read_to_string(format!("/proc/{process}/stat"));
            let text = text.unwrap_or_default();
            let rest = text
                .rsplit(')')
                .next()
                .unwrap_or_default()
                .trim()
                .to_owned();
            rest.is_empty() || rest.starts_with(['Z', 'X'])
        };
        (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            state()
        })
    }
}
