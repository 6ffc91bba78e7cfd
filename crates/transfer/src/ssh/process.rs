//! One process of the user's own `ssh`: its standard input and output are one
//! end of a local pair, what it says on standard error goes to the user as it
//! is.

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

/// How much a shell's profile may print before the greeting.
const MAXIMUM_NOISE_BYTES: usize = 64 << 10;

/// How much of what came instead of a greeting is kept, to tell why none came.
const KEPT_NOISE_BYTES: usize = 200;

/// How much of what ssh said is kept, to tell why it failed.
const KEPT_ERRORS_BYTES: usize = 16 << 10;

/// How long a process whose channel is closed may take to end.
const END_WITHIN: Duration = Duration::from_secs(3);

/// How long an ended process's last words may take to be read.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// How often the waiting thread for a channel looks whether somebody is asked something.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A look that comes so late tells that this process was stopped meanwhile.
const PAUSED_FOR: Duration = Duration::from_secs(2);

/// Who answered a question may have to confirm it elsewhere: for so long sshd waits
/// for a login by default (its LoginGraceTime).
const AFTER_A_QUESTION: Duration = Duration::from_secs(120);

/// More than this no command says that is run for its answer.
const MAXIMUM_OUTPUT_BYTES: u64 = 1 << 20;

/// How a login is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Login {
    /// The user may be asked for a password; keys that the user presses are for that.
    Asking,
    /// The same, and the last line that ssh says is left to its client: where the login fails it
    /// is why.
    AskingAside,
    /// Nobody is asked.
    Silent,
}

/// A running `ssh`.
pub struct SshProcess {
    child: Child,
    said: Arc<Mutex<Vec<u8>>>,
    /// Its other end goes when nothing more can be said.
    listener: Option<Receiver<()>>,
    /// Nobody waits for its end.
    left: bool,
    /// A question was seen.
    asked: AtomicBool,
}

/// Why no greeting came.
#[derive(Debug)]
pub enum Silence {
    /// The channel ended; what came instead, the end of it.
    Ended(String),
    /// Too much else came.
    Noise,
    /// Reading failed.
    Io(io::Error),
}

impl SshProcess {
    /// Starts it; the stream is the channel to what runs on the far side.
    ///
    /// # Errors
    ///
    /// Where it cannot be started.
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
            // A group of its own: the terminal's interrupt is not for it.
            Login::Silent => {
                command.process_group(0);
            }
        }
        let mut child = command.spawn()?;
        // The command keeps its ends of the pair open as long as it lives.
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

    /// How far the other host is; `None` if another process has the connection to it, as with
    /// `ProxyJump` and `ControlMaster`.
    pub fn round_trip(&self) -> Option<Duration> {
        sockets::round_trip_of(self.child.id())
    }

    /// Whether it gave the exit code of what ran on the far side; it has ended.
    pub fn ended_by_itself(&mut self) -> bool {
        let status = self.child.wait().ok();
        let code = status.and_then(|status| status.code());
        code.is_some_and(|code| code != super::far::SSH_FAILED)
    }

    /// Whether it was seen to ask somebody something.
    pub fn has_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// What it said last.
    pub fn said(&self) -> String {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&said).into_owned()
    }

    /// Reads of its channel, none of which waits longer than `bound` without a
    /// question being open.
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

    /// Leaves it to itself: it ends with the far side and its channel, a round trip
    /// later.
    pub fn leave(mut self) {
        self.left = true;
    }

    /// Ends it now, whatever it carries, with what it started: one of a silent
    /// login.
    pub fn kill(mut self) {
        use rustix::process::{Pid, Signal, kill_process_group};
        // It may have ended just now: then there is nothing to kill.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.kill();
    }

    /// Waits for its end for a moment, then ends it.
    pub fn end(&mut self) -> Option<ExitStatus> {
        if !self.has_ended_within(END_WITHIN) {
            // It may end just now: then there is nothing to kill.
            let _ = self.child.kill();
        }
        let status = self.child.wait().ok();
        // Somebody who shares the connection (ControlMaster) may hold standard
        // error open for hours: what comes within a moment is enough.
        if let Some(listener) = self.listener.take() {
            let _ = listener.recv_timeout(LAST_WORDS);
        }
        status
    }

    /// Whether it has ended by itself.
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

/// What comes from a channel, as long as somebody is asked something or not too much
/// time has passed: since the start, the last question, or [`Hearing::go_on`].
pub struct Hearing<'a> {
    channel: &'a UnixStream,
    process: &'a SshProcess,
    bound: Duration,
    since: Instant,
    looked: Instant,
}

impl Hearing<'_> {
    /// What was waited for came; the next thing may take as long.
    pub fn go_on(&mut self) {
        self.since = Instant::now();
        // What went on meanwhile was no pause of this process.
        self.looked = self.since;
    }

    /// What is waited for has not come since the last look.
    ///
    /// # Errors
    ///
    /// Where that is so for too long.
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
                    // Whoever goes on saying what nobody waits for is bounded, too.
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

/// What a command says on standard output; ended where that takes too long.
///
/// # Errors
///
/// Where it cannot be started, or takes longer.
pub fn output_within(command: &mut Command, patience: Duration) -> io::Result<Vec<u8>> {
    let until = Instant::now() + patience;
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let pipe = child.stdout.take();
    hear_until(child, pipe, until)
}

/// What a command says on standard error; ended where that takes too long.
///
/// # Errors
///
/// Where it cannot be started, or takes longer.
pub fn errors_within(command: &mut Command, patience: Duration) -> io::Result<Vec<u8>> {
    let until = Instant::now() + patience;
    let mut child = command.stderr(Stdio::piped()).spawn()?;
    let pipe = child.stderr.take();
    hear_until(child, pipe, until)
}

/// What a process says by one of its pipes; it has ended afterwards.
fn hear_until(
    mut child: Child,
    pipe: Option<impl Read + AsFd>,
    until: Instant,
) -> io::Result<Vec<u8>> {
    let mut said = Vec::new();
    let result = pipe.map_or(Ok(()), |pipe| read_until(pipe, until, &mut said));
    // One that has ended is not hurt by it, and one that only closed its output is
    // not waited for.
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

/// An interrupt from the terminal reaches every process in the foreground: it
/// is longhaul's to end the session in order, over the channel that lives.
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

/// Passes on what ssh says, and keeps the end of it.
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
                    // It goes on: what it said last may be what to do.
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

/// Waits this long for something to read, or for the end: how many are ready, of one.
fn poll_within(descriptor: impl AsFd, patience: Duration) -> rustix::io::Result<usize> {
    use rustix::event::{PollFd, PollFlags, poll};
    let mut polled = [PollFd::new(&descriptor, PollFlags::IN)];
    let patience = rustix::time::Timespec {
        tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: patience.subsec_nanos().into(),
    };
    poll(&mut polled, Some(&patience))
}

/// What may be passed on, where the last whole line is held back; one without
/// its end is a question.
fn but_last_line(held: &mut Vec<u8>, new: &[u8]) -> Vec<u8> {
    held.extend_from_slice(new);
    let last = match held.strip_suffix(b"\n") {
        Some(rest) => rest.iter().rposition(|byte| *byte == b'\n'),
        None => return std::mem::take(held),
    };
    held.drain(..last.map_or(0, |end| end + 1)).collect()
}

/// Reads from a channel until the other end's greeting, and not a byte more.
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
            // A longer line is no greeting; its end is enough.
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
    fn a_greeting_is_found_after_what_a_profile_prints() {
        let text = format!("Welcome!\n\x07no end\n{}rest", greeting().line(REMOTE));
        let mut channel = text.as_bytes();
        let found = await_greeting(&mut channel, REMOTE).unwrap();
        assert_eq!(found, Line::Greeting(greeting()));
        assert_eq!(channel, b"rest");
    }

    #[test]
    fn the_last_line_is_held_back_and_no_question() {
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
    fn who_says_nothing_is_not_waited_for_without_end() {
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
    fn who_goes_on_saying_something_else_is_bounded() {
        // Never as long without a word as the bound: that alone would end it.
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
    fn what_comes_is_heard() {
        let line = greeting().line(REMOTE);
        let (process, channel) = started(&format!("echo noise; printf '{line}'"));
        let hearing = process.hear(&channel, Duration::from_secs(60));
        let found = await_greeting(hearing, REMOTE).unwrap();
        assert_eq!(found, Line::Greeting(greeting()));
    }

    #[test]
    fn who_is_asked_something_is_waited_for() {
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
        // SAFETY: they were just opened, and belong to nobody else.
        unsafe { (OwnedFd::from_raw_fd(near), OwnedFd::from_raw_fd(far)) }
    }

    #[test]
    fn a_command_that_says_nothing_is_ended() {
        let mut command = Command::new("sleep");
        let slow = output_within(command.arg("300"), Duration::from_millis(20));
        assert_eq!(slow.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let mut command = Command::new("echo");
        let said = output_within(command.arg("a"), Duration::from_secs(60));
        assert_eq!(said.unwrap(), b"a\n");
    }

    #[test]
    fn endless_noise_and_silence_end() {
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
