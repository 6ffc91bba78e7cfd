//! A process of the user's own `ssh`. Its standard input and output are one end of a local socket
//! pair. Its standard error is passed on to the user unchanged.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use longhaul_net::sockets;

use super::greeting::{self, Line, MAXIMUM_LINE_BYTES};
use super::prompt;
use crate::console::pass_on;

/// Maximum number of bytes before the greeting, such as output of a shell's profile.
const MAXIMUM_NOISE_BYTES: usize = 64 << 10;

/// Number of bytes kept of unexpected output, to explain a missing greeting.
const KEPT_NOISE_BYTES: usize = 200;

/// Number of bytes kept of ssh's standard error, to explain a failure.
const KEPT_ERRORS_BYTES: usize = 16 << 10;

/// Maximum time for a process to end after its channel is closed.
const END_WITHIN: Duration = Duration::from_secs(3);

/// Maximum time to read the remaining output of an ended process.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Interval at which a thread that reads from a channel checks for open questions.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A check that is this late means that longhaul itself was suspended in between.
const PAUSED_FOR: Duration = Duration::from_secs(2);

/// Time allowed after a question, since the user may have to confirm the answer on another device.
/// It equals sshd's default limit for a login (LoginGraceTime).
const AFTER_A_QUESTION: Duration = Duration::from_secs(120);

/// Maximum output in bytes of a command that is run for its output.
const MAXIMUM_OUTPUT_BYTES: u64 = 1 << 20;

/// Kind of login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Login {
    /// ssh may ask the user for a password and reads the answer from the terminal.
    Asking,
    /// ssh may ask, and its last line is held back for the caller. If the login fails, that line is
    /// the reason.
    AskingAside,
    /// ssh never asks.
    Silent,
}

/// A running `ssh`.
pub struct SshProcess {
    child: Child,
    said: Arc<Mutex<Vec<u8>>>,
    /// Disconnects when standard error is closed.
    listener: Option<Receiver<()>>,
    /// If true, the drop does not wait for the process.
    left: bool,
    /// True once a question was detected.
    asked: AtomicBool,
}

/// Reasons for a missing greeting.
#[derive(Debug)]
pub enum Silence {
    /// The channel ended; holds the last output before its end.
    Ended(String),
    /// More than the allowed number of bytes arrived before a greeting.
    Noise,
    /// Reading failed.
    Io(io::Error),
}

impl SshProcess {
    /// Starts ssh. The stream is the channel to the remote command.
    ///
    /// # Errors
    ///
    /// The process cannot be started.
    pub fn start(arguments: &[OsString], login: Login) -> io::Result<(SshProcess, UnixStream)> {
        let (program, rest) = arguments.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let (near, far) = UnixStream::pair()?;
        let output = far.try_clone()?;
        let mut command = Command::new(program);
        command
            .args(rest)
            .stdin(Stdio::from(OwnedFd::from(far)))
            .stdout(Stdio::from(OwnedFd::from(output)))
            .stderr(Stdio::piped());
        match login {
            Login::Asking | Login::AskingAside => ignore_interrupts(&mut command),
            // A separate process group keeps the terminal's interrupt away.
            Login::Silent => {
                command.process_group(0);
            }
        }
        let mut child = command.spawn()?;
        // The command holds its ends of the pair open until it is dropped.
        drop(command);
        let said = Arc::new(Mutex::new(Vec::new()));
        let listener = child
            .stderr
            .take()
            .and_then(|errors| listen(errors, Arc::clone(&said), login).ok());
        Ok((
            SshProcess {
                child,
                said,
                listener,
                left: false,
                asked: AtomicBool::new(false),
            },
            near,
        ))
    }

    /// Returns the round trip to the other host as the kernel measures it. Returns `None` if a
    /// different process has the connection, as with `ProxyJump` and `ControlMaster`.
    pub fn round_trip(&self) -> Option<Duration> {
        sockets::round_trip_of(self.child.id())
    }

    /// Waits for the end of the process. True if its exit code is that of the remote command.
    pub fn ended_by_itself(&mut self) -> bool {
        let status = self.child.wait().ok();
        let code = status.and_then(|status| status.code());
        code.is_some_and(|code| code != super::remote_end::SSH_FAILED)
    }

    /// True if it was seen to ask a question.
    pub fn has_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Returns the last part of its standard error.
    pub fn said(&self) -> String {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&said).into_owned()
    }

    /// Returns a reader of its channel. A read fails after `bound` unless a question is open.
    pub fn hear<'a>(&'a self, channel: &'a UnixStream, bound: Duration) -> Hearing<'a> {
        let now = Instant::now();
        Hearing {
            channel,
            process: self,
            bound,
            since: now,
            looked: now,
        }
    }

    /// Lets the process run without waiting for it. It ends one round trip after the remote command
    /// and its channel.
    pub fn leave(mut self) {
        self.left = true;
    }

    /// Kills the process and its children, regardless of the data in transit. Requires a silent
    /// login, which has its own process group.
    pub fn kill(mut self) {
        use rustix::process::{Pid, Signal, kill_process_group};
        // Killing fails harmlessly if the process has just ended.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.kill();
    }

    /// Waits a few seconds for the process to end and then kills it.
    pub fn end(&mut self) -> Option<ExitStatus> {
        if !self.has_ended_within(END_WITHIN) {
            // Killing fails harmlessly if the process has just ended.
            let _ = self.child.kill();
        }
        let status = self.child.wait().ok();
        // A process that shares the connection (ControlMaster) may hold standard error open for
        // hours, so the wait is short.
        if let Some(listener) = self.listener.take() {
            let _ = listener.recv_timeout(LAST_WORDS);
        }
        status
    }

    /// True if the process has ended.
    pub fn has_ended(&self) -> bool {
        self.has_ended_within(Duration::ZERO)
    }

    fn has_ended_within(&self, patience: Duration) -> bool {
        use rustix::process::{Pid, PidfdFlags, pidfd_open};
        let process = Pid::from_child(&self.child);
        let Ok(descriptor) = pidfd_open(process, PidfdFlags::empty()) else {
            return false;
        };
        matches!(poll_within(&descriptor, patience), Ok(1..))
    }
}

/// Reader of a channel. A read fails once `bound` has passed since the start, the last question, or
/// the last call of [`Hearing::go_on`].
pub struct Hearing<'a> {
    channel: &'a UnixStream,
    process: &'a SshProcess,
    bound: Duration,
    since: Instant,
    looked: Instant,
}

impl Hearing<'_> {
    /// Restarts the time limit because the expected data arrived.
    pub fn go_on(&mut self) {
        self.since = Instant::now();
        // The time until now does not count as a suspension of longhaul.
        self.looked = self.since;
    }

    /// Checks the time limit and looks for an open question, while the expected data is missing.
    ///
    /// # Errors
    ///
    /// `TimedOut` if the limit has passed.
    pub fn look(&mut self) -> io::Result<()> {
        let now = Instant::now();
        let passed = now - self.looked;
        self.looked = now;
        if passed > PAUSED_FOR {
            self.since += passed;
        }
        if prompt::is_open(self.process.child.id()) {
            self.process.asked.store(true, Ordering::Relaxed);
            self.since = now;
            self.bound = self.bound.max(AFTER_A_QUESTION);
        }
        if now.saturating_duration_since(self.since) > self.bound {
            Err(io::ErrorKind::TimedOut.into())
        } else {
            Ok(())
        }
    }
}

impl Read for Hearing<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match poll_within(self.channel, LOOK_EVERY.min(self.bound)) {
                Ok(0) => self.look()?,
                Ok(_) => {
                    // Unexpected output must not extend the limit.
                    if self.looked.elapsed() >= LOOK_EVERY {
                        self.look()?;
                    }
                    return self.channel.read(buffer);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Runs a command and returns its standard output. Kills the command if it takes longer than
/// `patience`.
///
/// # Errors
///
/// The command cannot be started or takes too long.
pub fn output_within(command: &mut Command, patience: Duration) -> io::Result<Vec<u8>> {
    let until = Instant::now() + patience;
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let pipe = child.stdout.take();
    hear_until(child, pipe, until)
}

/// Runs a command and returns its standard error. Kills the command if it takes longer than
/// `patience`.
///
/// # Errors
///
/// The command cannot be started or takes too long.
pub fn errors_within(command: &mut Command, patience: Duration) -> io::Result<Vec<u8>> {
    let until = Instant::now() + patience;
    let mut child = command.stderr(Stdio::piped()).spawn()?;
    let pipe = child.stderr.take();
    hear_until(child, pipe, until)
}

/// Reads a pipe of a process until its end or `until`. The process has ended when this returns.
fn hear_until(
    mut child: Child,
    pipe: Option<impl Read + AsFd>,
    until: Instant,
) -> io::Result<Vec<u8>> {
    let mut said = Vec::new();
    let result = pipe.map_or(Ok(()), |pipe| read_until(pipe, until, &mut said));
    // The kill is harmless for an ended process. It also ends a process that has only closed its
    // output.
    let _ = child.kill();
    child.wait()?;
    result.map(|()| said)
}

fn read_until(pipe: impl Read + AsFd, until: Instant, output: &mut Vec<u8>) -> io::Result<()> {
    let mut pipe = pipe.take(MAXIMUM_OUTPUT_BYTES);
    let mut buffer = [0; 4096];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if poll_within(pipe.get_ref(), left) == Ok(0) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match pipe.read(&mut buffer)? {
            0 => return Ok(()),
            count => output.extend_from_slice(&buffer[..count]),
        }
    }
}

impl Drop for SshProcess {
    fn drop(&mut self) {
        if !self.left {
            self.end();
        }
    }
}

/// Makes ssh ignore interrupts. The terminal sends an interrupt to every process in the foreground,
/// but longhaul needs the channel to end the session cleanly.
#[allow(unsafe_code)] // Only between fork and exec can it be set.
fn ignore_interrupts(command: &mut Command) {
    // SAFETY: `signal` is async-signal-safe and touches no memory of ours.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_IGN);
            Ok(())
        });
    }
}

/// Passes ssh's standard error on to the user and keeps the last part of it.
fn listen(
    mut errors: ChildStderr,
    said: Arc<Mutex<Vec<u8>>>,
    login: Login,
) -> io::Result<Receiver<()>> {
    let (open, ended) = channel::<()>();
    std::thread::Builder::new()
        .name("ssh says".into())
        .spawn(move || {
            let _open = open;
            let (mut buffer, mut held) = ([0; 4096], Vec::new());
            loop {
                if !held.is_empty() && poll_within(&errors, LAST_WORDS) == Ok(0) {
                    // More time has passed, so ssh is still running and its last line may ask for
                    // an action.
                    pass_on(&std::mem::take(&mut held));
                }
                let Ok(count @ 1..) = errors.read(&mut buffer) else {
                    return;
                };
                let new = &buffer[..count];
                match login {
                    Login::Asking => pass_on(new),
                    Login::AskingAside => pass_on(&but_last_line(&mut held, new)),
                    Login::Silent => {}
                };
                let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
                said.extend_from_slice(&buffer[..count]);
                let surplus = said.len().saturating_sub(KEPT_ERRORS_BYTES);
                said.drain(..surplus);
            }
        })?;
    Ok(ended)
}

/// Waits up to `patience` for input or the end of the stream. Returns 1 if the descriptor is ready,
/// or else 0.
fn poll_within(descriptor: impl AsFd, patience: Duration) -> rustix::io::Result<usize> {
    use rustix::event::{PollFd, PollFlags, poll};
    let mut polled = [PollFd::new(&descriptor, PollFlags::IN)];
    let patience = rustix::time::Timespec {
        tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: patience.subsec_nanos().into(),
    };
    poll(&mut polled, Some(&patience))
}

/// Returns the output that may be passed on and holds back the last complete line. Output without a
/// final newline is a question and is passed on at once.
fn but_last_line(held: &mut Vec<u8>, new: &[u8]) -> Vec<u8> {
    held.extend_from_slice(new);
    let last = match held.strip_suffix(b"\n") {
        Some(rest) => rest.iter().rposition(|byte| *byte == b'\n'),
        None => return std::mem::take(held),
    };
    held.drain(..last.map_or(0, |end| end + 1)).collect()
}

/// Reads exactly up to the end of the other end's greeting.
///
/// # Errors
///
/// [`Silence`].
pub fn await_greeting(mut channel: impl Read, begins: &str) -> Result<Line, Silence> {
    let (mut line, mut noise) = (Vec::new(), 0);
    let mut heard = VecDeque::new();
    loop {
        let mut byte = [0];
        match channel.read(&mut byte) {
            Ok(0) => {
                let heard: Vec<u8> = heard.into();
                return Err(Silence::Ended(String::from_utf8_lossy(&heard).into_owned()));
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Silence::Io(error)),
        }
        noise += 1;
        if noise > MAXIMUM_NOISE_BYTES {
            return Err(Silence::Noise);
        }
        if heard.len() == KEPT_NOISE_BYTES {
            heard.pop_front();
        }
        heard.push_back(byte[0]);
        if byte != [b'\n'] {
            // A longer line is not a greeting, so the rest of it is ignored.
            if line.len() <= MAXIMUM_LINE_BYTES {
                line.push(byte[0]);
            }
            continue;
        }
        if let Some(line) = greeting::parse(&line, begins) {
            return Ok(line);
        }
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ssh::greeting::{Greeting, REMOTE};

    fn greeting() -> Greeting {
        Greeting {
            software: "1".into(),
            key: "k".into(),
            ..Greeting::default()
        }
    }

    #[test]
    fn a_greeting_is_found_after_the_output_of_a_profile() {
        let text = format!("Welcome!\n\x07no end\n{}rest", greeting().line(REMOTE));
        let mut channel = text.as_bytes();
        let found = await_greeting(&mut channel, REMOTE).unwrap();
        assert_eq!(found, Line::Greeting(greeting()));
        assert_eq!(channel, b"rest");
    }

    #[test]
    fn an_incomplete_last_line_is_held_back_unless_it_is_a_question() {
        let mut held = Vec::new();
        assert_eq!(but_last_line(&mut held, b"one\ntwo\n"), b"one\n");
        assert_eq!(but_last_line(&mut held, b"three\n"), b"two\n");
        assert_eq!(but_last_line(&mut held, b"sure? "), b"three\nsure? ");
        assert_eq!(but_last_line(&mut held, b"yes\n"), b"");
        assert_eq!(held, b"yes\n");
    }

    fn started(script: &str) -> (SshProcess, UnixStream) {
        let line = ["sh", "-c", script].map(OsString::from);
        SshProcess::start(&line, Login::Silent).unwrap()
    }

    #[test]
    fn silence_is_given_up_after_the_timeout() {
        let (process, channel) = started("read x; exec sleep 300");
        let hearing = process.hear(&channel, Duration::from_millis(20));
        let found = await_greeting(hearing, REMOTE);
        let timed_out = |error: &io::Error| error.kind() == io::ErrorKind::TimedOut;
        assert!(
            matches!(&found, Err(Silence::Io(error)) if timed_out(error)),
            "{found:?}"
        );
        process.kill();
    }

    #[test]
    fn endless_other_output_is_bounded() {
        // Each pause is shorter than the bound, which alone would end the read.
        let (process, channel) = started("for i in $(seq 100); do echo x; sleep 0.05; done");
        let hearing = process.hear(&channel, LOOK_EVERY);
        let found = await_greeting(hearing, REMOTE);
        let timed_out = |error: &io::Error| error.kind() == io::ErrorKind::TimedOut;
        assert!(
            matches!(&found, Err(Silence::Io(error)) if timed_out(error)),
            "{found:?}"
        );
        process.kill();
    }

    #[test]
    fn a_greeting_after_other_output_is_received() {
        let line = greeting().line(REMOTE);
        let (process, channel) = started(&format!("echo noise; printf '{line}'"));
        let hearing = process.hear(&channel, Duration::from_secs(60));
        let found = await_greeting(hearing, REMOTE).unwrap();
        assert_eq!(found, Line::Greeting(greeting()));
    }

    #[test]
    fn a_process_with_an_open_question_is_waited_for() {
        let process = started("exec sleep 300 </dev/null 3</dev/null").0;
        let channel = UnixStream::pair().unwrap().0;
        let mut hearing = process.hear(&channel, Duration::ZERO);
        assert!(hearing.look().is_err());
        let (_held, terminal) = pseudo_terminal();
        let asking = Command::new("sleep")
            .arg("300")
            .stdin(Stdio::from(terminal))
            .spawn()
            .unwrap();
        let asking = SshProcess {
            child: asking,
            said: Arc::default(),
            listener: None,
            left: false,
            asked: AtomicBool::new(false),
        };
        let mut hearing = asking.hear(&channel, Duration::ZERO);
        assert!(hearing.look().is_ok());
        assert_eq!(hearing.bound, AFTER_A_QUESTION);
        process.kill();
        asking.kill();
    }

    #[allow(unsafe_code)] // No safe binding opens both ends.
    fn pseudo_terminal() -> (OwnedFd, OwnedFd) {
        use std::os::fd::FromRawFd;
        let (mut near, mut far) = (0, 0);
        let (none, default) = (std::ptr::null_mut(), std::ptr::null());
        // SAFETY: both numbers are valid for writing; the rest is left out.
        let opened = unsafe { libc::openpty(&mut near, &mut far, none, default, default.cast()) };
        assert_eq!(opened, 0);
        // SAFETY: this function just opened them and is their only owner.
        unsafe { (OwnedFd::from_raw_fd(near), OwnedFd::from_raw_fd(far)) }
    }

    #[test]
    fn a_silent_command_is_ended() {
        let mut command = Command::new("sleep");
        let slow = output_within(command.arg("300"), Duration::from_millis(20));
        assert_eq!(slow.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let mut command = Command::new("echo");
        let said = output_within(command.arg("a"), Duration::from_secs(60));
        assert_eq!(said.unwrap(), b"a\n");
    }

    #[test]
    fn endless_output_and_silence_are_given_up() {
        let noise = vec![b'x'; MAXIMUM_NOISE_BYTES + 1];
        let found = await_greeting(&noise[..], REMOTE);
        assert!(matches!(found, Err(Silence::Noise)), "{found:?}");
        let found = await_greeting(&b"no\n"[..], REMOTE);
        assert!(
            matches!(&found, Err(Silence::Ended(heard)) if heard == "no\n"),
            "{found:?}"
        );
    }
}
