//! A process with a separate terminal, as for a user who reads and types.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process_group};

use super::process::limit;

/// The child leads a session with this terminal.
pub struct Terminal {
    child: Child,
    near: File,
    heard: Receiver<String>,
    /// Text that the process has shown so far.
    pub shown: String,
}

impl Terminal {
    /// Starts a command. Only its program, arguments and environment are used.
    pub fn start(command: &Command) -> Terminal {
        let (near, far) = pseudo_terminal();
        let end = || Stdio::from(far.try_clone().unwrap());
        let mut leader = Command::new("setsid");
        leader
            .args(["--ctty", "--wait"])
            .arg(command.get_program())
            .args(command.get_args());
        for (name, value) in command.get_envs() {
            leader.env(name, value.unwrap());
        }
        leader.stdin(end()).stdout(end()).stderr(end());
        let child = leader.spawn().unwrap();
        drop((leader, far));
        let near = File::from(near);
        let (sender, heard) = channel();
        let mut from = near.try_clone().unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // Reading ends with an error once the other end is closed.
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..count]).into_owned();
                if sender.send(text).is_err() {
                    return;
                }
            }
        });
        Terminal {
            child,
            near,
            heard,
            shown: String::new(),
        }
    }

    /// Waits until it has shown this.
    #[track_caller]
    pub fn await_words(&mut self, text: &str) {
        while !self.shown.contains(text) {
            assert!(
                self.hear(),
                "the terminal did not show {text:?}: {}",
                self.shown
            );
        }
    }

    /// Types a line.
    pub fn type_line(&mut self, line: &str) {
        self.near.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Waits for more output. Returns true if there was some.
    fn hear(&mut self) -> bool {
        match self.heard.recv_timeout(limit()) {
            Ok(text) => {
                self.shown.push_str(&text);
                true
            }
            Err(RecvTimeoutError::Disconnected) => false,
            Err(RecvTimeoutError::Timeout) => panic!("the process stalled: {}", self.shown),
        }
    }

    /// Waits for its end: its exit code, and all that it showed.
    pub fn wait(mut self) -> (Option<i32>, String) {
        while self.hear() {}
        let code = self.child.wait().unwrap().code();
        (code, std::mem::take(&mut self.shown))
    }
}

/// Both ends of a new one; no process that is started meanwhile inherits them.
#[allow(unsafe_code)] // No safe binding opens both ends.
fn pseudo_terminal() -> (OwnedFd, OwnedFd) {
    let (mut near, mut far) = (0, 0);
    let (none, default) = (std::ptr::null_mut(), std::ptr::null());
    // SAFETY: both numbers are valid for writing; the rest is left out.
    let opened = unsafe { libc::openpty(&mut near, &mut far, none, default, default.cast()) };
    assert_eq!(opened, 0);
    // SAFETY: this function just opened them and is their only owner.
    let ends = unsafe { (OwnedFd::from_raw_fd(near), OwnedFd::from_raw_fd(far)) };
    for end in [&ends.0, &ends.1] {
        fcntl_setfd(end, FdFlags::CLOEXEC).unwrap();
    }
    ends
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            let _ = self.child.wait();
        }
    }
}
