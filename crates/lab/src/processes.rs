//! Processes of a lab, and the events that the lab's first process waits for.

use std::io;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

use crate::isolate::exit_code;
use crate::lab::{Host, Lab};
use crate::netns::Namespace;

/// An event in a lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A process ended, with an exit code as in shells.
    Ended(Pid, u8),
    /// A signal arrived.
    Signal(i32),
    /// A client requested the end of the lab.
    Down,
}

/// Processor time of an ended process and of those of its children that it waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spent {
    /// Process id.
    pub pid: Pid,
    /// Time in user mode.
    pub user: Duration,
    /// Time in the kernel.
    pub system: Duration,
}

/// Waits for children, signals and requests. A process has at most one.
pub struct Processes {
    events: Receiver<Event>,
    sender: Sender<Event>,
    /// Ended processes that have not been reported yet.
    ended: Vec<(Pid, u8)>,
    /// Processor times of ended processes, until they are taken.
    spent: Vec<Spent>,
}

impl Processes {
    /// Starts to watch for signals.
    ///
    /// # Errors
    ///
    /// Returns an error if signals cannot be caught or the thread cannot be started.
    pub fn watch() -> io::Result<Processes> {
        let wanted = [SIGCHLD, SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2];
        let mut signals = signal_hook::iterator::Signals::new(wanted)?;
        let (sender, events) = channel();
        let signal_sender = sender.clone();
        std::thread::Builder::new()
            .name("lab-signals".to_owned())
            .spawn(move || {
                for signal in signals.forever() {
                    if signal_sender.send(Event::Signal(signal)).is_err() {
                        return;
                    }
                }
            })?;
        Ok(Processes {
            events,
            sender,
            ended: Vec::new(),
            spent: Vec::new(),
        })
    }

    /// Returns the processor time of all processes that ended since the last call.
    pub fn take_spent(&mut self) -> Vec<Spent> {
        self.reap();
        std::mem::take(&mut self.spent)
    }

    /// Returns a sender for events of other threads.
    pub fn sender(&self) -> Sender<Event> {
        self.sender.clone()
    }

    /// Starts a command on a host and returns its process id.
    ///
    /// # Errors
    ///
    /// Returns an error if the command cannot be started.
    pub fn start(&self, lab: &Lab, host: &Host, command: &mut Command) -> io::Result<Pid> {
        lab.place(host, command)?;
        let child = command.spawn()?;
        Ok(Pid::from_child(&child))
    }

    /// Returns the next event other than SIGCHLD, or `None` after the time `within`.
    pub fn next(&mut self, within: Option<Duration>) -> Option<Event> {
        let began = Instant::now();
        loop {
            self.reap();
            if let Some((pid, code)) = self.ended.pop() {
                return Some(Event::Ended(pid, code));
            }
            let event = match within {
                None => self.events.recv().ok(),
                Some(within) => {
                    let left = within.saturating_sub(began.elapsed());
                    self.events.recv_timeout(left).ok()
                }
            }?;
            if event != Event::Signal(SIGCHLD) {
                return Some(event);
            }
        }
    }

    /// Collects ended processes, including orphans, which become children of the first
    /// process.
    fn reap(&mut self) {
        while let Some((spent, status)) = wait_for_any() {
            self.ended.push((spent.pid, exit_code(status)));
            self.spent.push(spent);
        }
    }

    /// Sends SIGTERM to a process group, waits for its leader, and kills the leader after
    /// `patience`.
    pub fn end_group(&mut self, leader: Pid, patience: Duration) {
        // An error means that the group has ended.
        if kill_process_group(leader, Signal::TERM).is_err() {
            return;
        }
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.next(Some(left)) {
                Some(Event::Ended(pid, _)) if pid == leader => return,
                Some(_) => {}
                None => break,
            }
        }
        let _ = kill_process(leader, Signal::KILL);
    }
}

/// Returns an ended child with its processor time and raw status; `None` if no child has
/// ended.
#[allow(unsafe_code)] // No safe binding returns a child's processor time.
fn wait_for_any() -> Option<(Spent, i32)> {
    let mut status = 0;
    // SAFETY: the structure has only integers, for which zero is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: status and usage outlive the call.
    let pid = unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG, &raw mut usage) };
    let time = |time: libc::timeval| {
        let micros = u64::try_from(time.tv_usec).unwrap_or_default();
        Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or_default())
            + Duration::from_micros(micros)
    };
    let pid = Pid::from_raw(pid.max(0))?;
    let (user, system) = (time(usage.ru_utime), time(usage.ru_stime));
    Some((Spent { pid, user, system }, status))
}

/// True if a TCP socket listens on the port of a host, or on any port if `port` is
/// `None`.
///
/// # Errors
///
/// Returns an error if the host's socket table cannot be read.
pub fn listens(host: &Host, port: Option<u16>) -> io::Result<bool> {
    listens_in(host.namespace(), port)
}

/// True if a TCP socket listens on the port in a network namespace, or on any port if
/// `port` is `None`.
///
/// # Errors
///
/// Returns an error if the socket table cannot be read.
pub fn listens_in(namespace: &Namespace, port: Option<u16>) -> io::Result<bool> {
    let tables = namespace.within(tables).map_err(io::Error::other)??;
    Ok(listening_ports(&tables).any(|own| port.is_none_or(|port| port == own)))
}

/// True if a TCP socket listens on the port in this thread's network namespace.
///
/// # Errors
///
/// Returns an error if the socket table cannot be read.
pub fn listens_here(port: u16) -> io::Result<bool> {
    Ok(listening_ports(&tables()?).any(|own| own == port))
}

/// Returns the TCP socket tables of this thread's network namespace.
fn tables() -> io::Result<String> {
    let mut tables = std::fs::read_to_string("/proc/thread-self/net/tcp")?;
    // The file is missing without IPv6.
    tables += &std::fs::read_to_string("/proc/thread-self/net/tcp6").unwrap_or_default();
    Ok(tables)
}

/// Returns the ports in the state "listen" (0A) of `/proc/net/tcp`.
fn listening_ports(tables: &str) -> impl Iterator<Item = u16> {
    tables.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (local, _, state) = (words.next()?, words.next()?, words.next()?);
        let (_, port) = local.rsplit_once(':')?;
        (state == "0A").then_some(u16::from_str_radix(port, 16).ok()?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_listening_ports_in_the_socket_table() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n   \
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000\n   \
            1: 0100007F:1F91 00000000:0000 01 00000000:00000000\n";
        assert_eq!(listening_ports(table).collect::<Vec<_>>(), [8080]);
    }
}
