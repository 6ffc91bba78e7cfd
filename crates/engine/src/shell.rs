//! Commands of users, which a shell runs: each in a process group of its own, for a bounded time,
//! and ended with the session that it is of. Names of files are arguments and variables of the
//! environment, never a part of the text that the shell reads.

use std::ffi::OsStr;
use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
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
    let mut lines = text.lines().map(str::trim);
    lines.rfind(|line| !line.is_empty()).map(str::to_owned)
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
pub fn run(mut command: Command, within: Duration, wanted: &dyn Fn() -> bool) -> io::Result<Ran> {
    let (reader, writer) = io::pipe()?;
    command.stdout(writer.try_clone()?).stderr(writer);
    let child = command.spawn()?;
    // It has the other end of the pipe too.
    drop(command);
    let mut said = Said::new(reader);
    let ended = Running::new(child).finish(&mut said, within, wanted)?;
    said.read_rest();
    let said = said.last;
    Ok(Ran { ended, said })
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
    let (output, standard) = io::pipe()?;
    let (reader, errors) = io::pipe()?;
    command.stdin(input).stdout(standard).stderr(errors);
    let child = command.spawn()?;
    // It has the other ends of the pipes too.
    drop(command);
    let mut piped = Piped {
        said: Said::new(reader),
        output: Some(output),
        take,
        room: vec![0; OUTPUT_BYTES],
    };
    let ended = Running::new(child).finish(&mut piped, within, wanted)?;
    piped.said.read_rest();
    let said = piped.said.last;
    Ok(Ran { ended, said })
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
        // Nothing else has its number yet: it was not waited for.
        self.signal(Signal::KILL);
        let status = self.child.wait()?;
        self.reaped = true;
        Ok(ended?.unwrap_or(Ended::Itself(status)))
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

impl Drop for Running {
    fn drop(&mut self) {
        if !self.reaped {
            self.signal(Signal::KILL);
            let _ = self.child.wait();
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

impl Hear for Said {
    fn hear(&mut self, ending: Option<BorrowedFd<'_>>, longest: Duration) -> io::Result<()> {
        self.read_once(ending, longest);
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
    fn read_once(&mut self, ending: Option<BorrowedFd<'_>>, longest: Duration) -> bool {
        let spoken = self.reader.as_ref().map(AsFd::as_fd);
        wait_for([spoken, ending, None], longest) && self.read()
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
        command(text.as_bytes(), &arguments)
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

    fn piped(text: &str, input: &[u8]) -> (Ran, Vec<u8>) {
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, input).unwrap();
        io::Seek::rewind(&mut file).unwrap();
        let mut output = Vec::new();
        let mut take = |part: &[u8]| {
            output.extend_from_slice(part);
            Ok(())
        };
        let ran = pipe(sh(text, &[]), file.into(), &mut take, LONG, &|| true).unwrap();
        (ran, output)
    }

    #[test]
    fn a_filter_need_not_read_all_and_its_output_comes_whole() {
        let input = vec![b'x'; 3 << 20];
        let (ran, output) = piped("echo words >&2; tr x y", &input);
        assert_eq!(ran.fault(), None);
        assert_eq!(output, vec![b'y'; 3 << 20]);
        assert_eq!(ran.said, b"words\n");
        let (ran, output) = piped("head -c 3", &input);
        assert_eq!((ran.fault(), &output[..]), (None, &b"xxx"[..]));
        let (ran, output) = piped("true", b"");
        assert_eq!((ran.fault(), &output[..]), (None, &b""[..]));
        // The shell ends before what it started.
        let (ran, output) = piped("{ sleep 0.3; echo late; } & exit 0", b"");
        assert_eq!((ran.fault(), &output[..]), (None, &b"late\n"[..]));
        let (ran, _) = piped("head -c 3; echo no >&2; exit 7", &input);
        assert_eq!(ran.fault().unwrap(), "it ended with exit code 7: no");
    }

    #[test]
    fn a_filter_whose_output_cannot_be_taken_is_ended() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let mut take = |_: &[u8]| Err(io::ErrorKind::StorageFull.into());
        let text = sh("yes", &[]);
        let error = pipe(text, file.into(), &mut take, LONG, &|| true).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
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
