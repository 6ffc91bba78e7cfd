//! Processes of a test. Each leads a process group, which ends with the test in all cases. Every
//! wait has a limit.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid,
};
use serde_json::Value;

use super::procfs::processor_time;
use super::stuck;

/// No process of a test may stand still for longer; far above what any needs.
/// `LONGHAUL_LIMIT_SECONDS` is another limit, for larger sizes.
pub fn limit() -> Duration {
    let set = std::env::var("LONGHAUL_LIMIT_SECONDS").ok();
    let seconds = set.map_or(120, |set| set.parse().expect("a number of seconds"));
    Duration::from_secs(seconds)
}

/// Limits after which a process that still works is given up.
const MOST_LIMITS: u32 = 10;

/// A process counts as stalled if it used less than this part of its limit. Such a process only
/// checks the clock.
const WORKING_PART: u32 = 100;

/// Returns the `longhaul` command without the user's configuration and without a history.
pub fn longhaul() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.env("LONGHAUL_CONFIG_DIR", "/nonexistent/longhaul");
    command.env("XDG_STATE_HOME", "/nonexistent/state");
    command
}

/// A process that runs.
pub struct Running {
    child: Child,
    lines: Receiver<String>,
    words: Receiver<String>,
    reader: Option<JoinHandle<Vec<u8>>>,
    errors: Option<JoinHandle<Vec<u8>>>,
    reaped: bool,
}

/// Exit code and output of an ended process.
#[derive(Debug)]
pub struct Finished {
    /// Exit code, or `None` after a signal.
    pub code: Option<i32>,
    /// Standard output.
    pub output: Vec<u8>,
    /// Standard error.
    pub errors: String,
}

impl Running {
    pub fn start(command: &mut Command) -> Running {
        use std::os::unix::process::CommandExt;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let (reader, lines) = read_lines(child.stdout.take().unwrap());
        let (errors, words) = read_lines(child.stderr.take().unwrap());
        Running {
            child,
            lines,
            words,
            reader: Some(reader),
            errors: Some(errors),
            reaped: false,
        }
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn signal(&self, signal: Signal) {
        assert!(!self.reaped);
        kill_process(self.pid(), signal).unwrap();
    }

    /// Returns the next line of standard output, or `None` at its end.
    pub fn line(&self) -> Option<String> {
        match self.await_from(&self.lines) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => {
                let said: Vec<String> = self.words.try_iter().collect();
                let waits = stuck::describe(self.pid());
                panic!("no line within {:?}; {said:?}\n{waits}", limit())
            }
        }
    }

    /// Waits until the text appears on standard error.
    #[track_caller]
    pub fn await_words(&self, text: &str) {
        while let Ok(line) = self.await_from(&self.words) {
            if line.contains(text) {
                return;
            }
        }
        panic!("standard error lacks {text:?}");
    }

    /// Waits for a value as long as the process works, so that the speed of the host does not
    /// matter.
    fn await_from<T>(&self, receiver: &Receiver<T>) -> Result<T, RecvTimeoutError> {
        let root = self.pid().as_raw_nonzero().get();
        let mut used = processor_time(root);
        for _ in 0..MOST_LIMITS {
            match receiver.recv_timeout(limit()) {
                Err(RecvTimeoutError::Timeout) => {}
                done => return done,
            }
            let before = std::mem::replace(&mut used, processor_time(root));
            if used.saturating_sub(before) < limit() / WORKING_PART {
                break;
            }
        }
        Err(RecvTimeoutError::Timeout)
    }

    /// Returns the next JSON event that fits, or `None` at the end of the output.
    pub fn event(&self, fits: impl Fn(&Value) -> bool) -> Option<Value> {
        loop {
            let line = self.line()?;
            let event: Value = serde_json::from_str(&line).unwrap();
            if fits(&event) {
                return Some(event);
            }
        }
    }

    /// Ends it at once, and what it started.
    pub fn kill(mut self) -> Finished {
        self.kill_group();
        self.conclude()
    }

    /// Waits for its end.
    pub fn wait(self) -> Finished {
        self.conclude()
    }

    fn kill_group(&mut self) {
        // The process may have ended already. It is not reaped, so its id still belongs to it.
        let _ = kill_process_group(self.pid(), Signal::KILL);
    }

    fn conclude(mut self) -> Finished {
        let in_time = self.await_exit();
        let mut waits = String::new();
        if !in_time {
            waits = stuck::describe(self.pid());
            self.kill_group();
        }
        let status = self.child.wait().unwrap();
        self.reaped = true;
        let output = self.reader.take().unwrap().join().unwrap();
        let errors = self.errors.take().unwrap().join().unwrap();
        let finished = Finished {
            code: status.code(),
            output,
            errors: String::from_utf8_lossy(&errors).into_owned(),
        };
        assert!(
            in_time,
            "not done within {:?}: {}\n{waits}",
            limit(),
            finished.shown()
        );
        finished
    }

    fn await_exit(&self) -> bool {
        let (done, ended) = channel();
        self.when_ended(move || {
            let _ = done.send(());
        });
        self.await_from(&ended).is_ok()
    }

    /// Runs the action once the process has ended. The process is not reaped yet, so its id is not
    /// reused.
    pub fn when_ended(&self, action: impl FnOnce() + Send + 'static) {
        let pid = self.pid();
        std::thread::spawn(move || {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            let _ = waitid(WaitId::Pid(pid), options);
            action();
        });
    }
}

/// Reads a stream to its end, and sends each line to the receiver.
fn read_lines(stream: impl Read + Send + 'static) -> (JoinHandle<Vec<u8>>, Receiver<String>) {
    let (sender, lines) = channel();
    let reader = std::thread::spawn(move || {
        let mut whole = Vec::new();
        let mut stream = BufReader::new(stream);
        loop {
            let start = whole.len();
            if stream.read_until(b'\n', &mut whole).unwrap_or(0) == 0 {
                return whole;
            }
            let line = String::from_utf8_lossy(&whole[start..]);
            // The receiver may have been dropped.
            let _ = sender.send(line.trim_end().to_owned());
        }
    });
    (reader, lines)
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.reaped {
            self.kill_group();
            let _ = self.child.wait();
        }
    }
}

impl Finished {
    /// Fails unless it ended with this code.
    #[track_caller]
    pub fn expect(self, code: i32) -> Finished {
        assert_eq!(self.code, Some(code), "{}", self.shown());
        self
    }

    /// Fails unless standard error has all of these.
    #[track_caller]
    pub fn says(self, texts: &[&str]) -> Finished {
        for text in texts {
            assert!(
                self.errors.contains(text),
                "{text:?} is missing:\n{}",
                self.shown()
            );
        }
        self
    }

    fn shown(&self) -> String {
        let output = String::from_utf8_lossy(&self.output);
        let start = output
            .char_indices()
            .rev()
            .nth(2000)
            .map_or(0, |(at, _)| at);
        format!("{}\n{}", &output[start..], self.errors)
    }

    /// The JSON events; a killed process may leave half a line at the end.
    pub fn events(&self) -> Vec<Value> {
        let whole = self.code.is_some();
        let text = std::str::from_utf8(&self.output).unwrap();
        let parsed = text.lines().map(serde_json::from_str);
        if whole {
            parsed.map(Result::unwrap).collect()
        } else {
            parsed.filter_map(Result::ok).collect()
        }
    }

    /// The summary event.
    #[track_caller]
    pub fn summary(&self) -> Value {
        let last = self.events().pop().expect("a summary");
        assert_eq!(last["event"], "summary", "{}", self.shown());
        last
    }
}

/// Runs a command to its end.
pub fn run(command: &mut Command) -> Finished {
    Running::start(command).wait()
}

/// `longhaul` with these arguments.
pub fn longhaul_with<A: AsRef<std::ffi::OsStr>>(arguments: &[A]) -> Command {
    let mut command = longhaul();
    command.args(arguments);
    command
}

/// The binary where everybody may run it: where it is built may be closed to others.
/// Another process writes it: a child that a thread of this one starts meanwhile would
/// have it open for writing, and it could not be run (`ETXTBSY`).
pub fn binary_in(directory: &Path) -> PathBuf {
    let binary = directory.join("longhaul");
    let mut copy = Command::new("cp");
    copy.arg(env!("CARGO_BIN_EXE_longhaul")).arg(&binary);
    assert!(copy.status().unwrap().success());
    binary
}

/// Writes a script that can be run at once, and returns its path. Another process writes it, for
/// the reason that [`binary_in`] gives.
pub fn script(path: PathBuf, text: &str) -> PathBuf {
    let mut write = Command::new("sh");
    write.args(["-c", "printf %s \"$1\" >\"$0\" && chmod 755 \"$0\""]);
    write.arg(&path).arg(text);
    assert!(write.status().unwrap().success(), "{}", path.display());
    path
}

/// Returns the same command with a limit on open files. A child that starts while another test
/// opens descriptors may inherit these: the shell closes them first.
pub fn with_open_files(limit: u32, command: &Command) -> Command {
    let script = "for fd in /proc/$$/fd/*\ndo [ ${fd##*/} -le 2 ] || eval \"exec ${fd##*/}>&-\"\ndone\n\
                  ulimit -n $1\nshift\nexec \"$@\"";
    let mut shell = Command::new("bash");
    shell
        .args(["-c", script, "bash", &limit.to_string()])
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        shell.env(name, value.unwrap());
    }
    shell
}

/// Makes a FIFO.
pub fn make_fifo(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success(), "{}", path.display());
}

/// `longhaul cp` from one local path to another.
pub fn local_copy(source: &Path, destination: &Path) -> Command {
    let mut command = longhaul();
    command.args(["cp", "-r"]).arg(source).arg(destination);
    command
}

/// Waits until a command has written its process number and a newline into this file.
#[track_caller]
pub fn await_process(file: &Path) -> Pid {
    let number = || {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        text.strip_suffix('\n')
            .map(|number| number.parse().unwrap())
    };
    longhaul_testing::await_that(|| number().is_some());
    number().and_then(Pid::from_raw).unwrap()
}
