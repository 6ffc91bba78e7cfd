//! Process groups of commands, so that no command outlives this process.

use std::io;
use std::process::{Child, Command};
use std::sync::{Condvar, Mutex, PoisonError};

use longhaul_system::queue::lock;
use rustix::process::{Pid, Signal, kill_process_group};

use super::GRACE;

/// Groups of this process.
pub(super) static ALL: Groups = Groups::new();

/// A set of running groups.
pub(super) struct Groups {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    running: Vec<Pid>,
    /// Number of commands that are starting and have no group yet.
    starting: usize,
    /// If true, no new command may start.
    ended: bool,
}

/// Process group of a command. It is valid until the command is reaped; then its number may be
/// reused.
pub(super) struct Group<'a> {
    groups: &'a Groups,
    number: Pid,
}

impl Groups {
    /// Creates an empty set.
    pub const fn new() -> Groups {
        Groups {
            state: Mutex::new(State {
                running: Vec::new(),
                starting: 0,
                ended: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// Starts a command in a group of its own.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be started, or if all are being ended.
    pub fn start(&self, command: &mut Command) -> io::Result<(Child, Group<'_>)> {
        {
            let mut state = lock(&self.state);
            if state.ended {
                return Err(io::Error::other("this process ends"));
            }
            state.starting += 1;
        }
        // Not under the lock, because it reads the program from a file system.
        let started = command.spawn();
        let mut state = lock(&self.state);
        state.starting -= 1;
        self.changed.notify_all();
        let child = started?;
        let number = Pid::from_child(&child);
        state.running.push(number);
        let group = Group {
            groups: self,
            number,
        };
        if state.ended {
            group.signal(Signal::KILL);
        }
        Ok((child, group))
    }

    /// True if all are being ended.
    pub fn are_ended(&self) -> bool {
        lock(&self.state).ended
    }

    /// Ends all groups: SIGTERM, and SIGKILL after [`GRACE`]. No new one may start.
    pub fn end(&self) {
        let mut state = lock(&self.state);
        state.ended = true;
        state.signal(Signal::TERM);
        let busy = |state: &mut State| state.starting > 0 || !state.running.is_empty();
        let waited = self.changed.wait_timeout_while(state, GRACE, busy);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.signal(Signal::KILL);
    }
}

impl State {
    fn signal(&self, signal: Signal) {
        for number in &self.running {
            // An error is ignored: it may have ended.
            let _ = kill_process_group(*number, signal);
        }
    }
}

impl Group<'_> {
    /// Signals the command and its descendants, unless they left the group.
    pub fn signal(&self, signal: Signal) {
        // An error is ignored: it may have ended.
        let _ = kill_process_group(self.number, signal);
    }
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        let running = &mut lock(&self.groups.state).running;
        running.retain(|number| *number != self.number);
        self.groups.changed.notify_all();
    }
}
