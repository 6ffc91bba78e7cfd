//! Emulator: applies the simulated links to real packets, in one thread between the
//! hosts' devices.
//!
//! - [`core`]: reads packets, asks the links, writes packets that are due
//! - [`wire`]: one direction of a path, and its waiting packets
//! - [`gate`]: firewalls and NAT
//! - [`store`]: the memory of waiting packets
//! - [`lateness`]: the delay that the emulator itself adds
//!
//! One thread serves all directions. Two threads used two cores and were no faster,
//! because bulk data flow in one direction. The thread sleeps until shortly before a
//! packet is due, and then polls the clock: a sleeping thread wakes up tens of
//! microseconds late.

pub mod core;
pub mod gate;
pub mod lateness;
pub mod store;
pub mod wire;

use std::collections::VecDeque;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use longhaul_units::Moment;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::time::{ClockId, clock_gettime};

use crate::link::{LinkCounters, LinkError, LinkSettings};
use core::{Core, Strays};
use lateness::Lateness;

/// Maximum time that the thread wakes up before a packet is due. A wake-up takes about
/// this long on a virtual machine with idle processors.
const LONGEST_LEAD: Duration = Duration::from_micros(60);

/// Length of the windows over which processor use is averaged.
const CPU_WINDOW: Duration = Duration::from_millis(500);

/// Counters of one direction of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireReport {
    /// Index of the sending site.
    pub from: usize,
    /// Index of the receiving site.
    pub to: usize,
    /// See [`LinkCounters`].
    pub counters: LinkCounters,
    /// Number of packets that a firewall blocked.
    pub blocked: u64,
    /// Number of reads that returned a super-packet (several segments in one read).
    pub super_packets: u64,
}

/// Counters and processor use of the emulator since its start.
#[derive(Clone, Debug, PartialEq)]
pub struct EmulatorReport {
    /// One report per direction.
    pub wires: Vec<WireReport>,
    /// See [`Strays`].
    pub strays: Strays,
    /// See [`Lateness`].
    pub lateness: Lateness,
    /// Time since the emulator started.
    pub wall: Duration,
    /// Processor time of the emulator's thread, including [`watching`](Self::watching).
    pub cpu: Duration,
    /// Part of `cpu` that the thread spent polling the clock.
    pub watching: Duration,
    /// Highest processor use in any window of half a second, without polling the clock. 0
    /// to 1.
    pub busiest: f64,
    /// True if the thread has real-time priority (SCHED_FIFO).
    pub realtime: bool,
}

/// A task that the thread performs between two packets.
type Order = Box<dyn FnOnce(&mut Running) + Send>;

#[derive(Default)]
struct Orders {
    waiting: Mutex<VecDeque<Order>>,
    /// True if tasks may be waiting. Checked in every turn instead of the lock.
    any: AtomicBool,
}

impl Orders {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Order>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running emulator. Dropping it stops the thread.
pub struct Emulator {
    orders: Arc<Orders>,
    bell: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// Error: the emulator's thread has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lab's emulator has stopped: start the lab again")]
pub struct Stopped;

/// Reasons why a link cannot be changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    /// See [`Stopped`].
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// The settings are invalid.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// No path leads from one of these sites to the other.
    #[error("the lab has no path between these sites")]
    NoPath,
}

impl Emulator {
    /// Starts the thread. If `prompt` is true, the thread asks for real-time priority and
    /// exact timers; the kernel may refuse the priority.
    ///
    /// # Errors
    ///
    /// Returns an error if a descriptor or a thread cannot be created.
    pub fn start(core: Core, prompt: bool) -> io::Result<Emulator> {
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let orders = Arc::new(Orders::default());
        let mut running = Running {
            core,
            orders: Arc::clone(&orders),
            bell: Arc::clone(&bell),
            stopping: false,
            watching: Duration::ZERO,
            lead: Lead(LONGEST_LEAD),
            usage: Usage::default(),
            realtime: false,
        };
        let thread = std::thread::Builder::new()
            .name("lab-emulator".to_owned())
            .spawn(move || running.run(prompt))?;
        Ok(Emulator {
            orders,
            bell,
            thread: Some(thread),
        })
    }

    /// Runs a task in the emulator's thread and returns its result.
    fn ask<T: Send + 'static>(
        &self,
        order: impl FnOnce(&mut Running) -> T + Send + 'static,
    ) -> Result<T, Stopped> {
        let (reply, answer) = mpsc::channel();
        self.order(move |running| {
            // The caller may have given up waiting.
            let _ = reply.send(order(running));
        });
        answer.recv().map_err(|_| Stopped)
    }

    fn order(&self, order: impl FnOnce(&mut Running) + Send + 'static) {
        self.orders.lock().push_back(Box::new(order));
        self.orders.any.store(true, Ordering::Release);
        // An error means that the counter is full: the thread is already notified.
        let _ = rustix::io::write(&*self.bell, &1_u64.to_ne_bytes());
    }

    /// Returns counters and processor use since the start.
    ///
    /// # Errors
    ///
    /// Returns [`Stopped`] if the emulator's thread has ended.
    pub fn report(&self) -> Result<EmulatorReport, Stopped> {
        self.ask(|running| running.report())
    }

    /// Changes the settings of one direction.
    ///
    /// # Errors
    ///
    /// Returns an error if the direction does not exist, the settings are invalid, or the
    /// thread has ended.
    pub fn set(&self, from: usize, to: usize, settings: LinkSettings) -> Result<(), SetError> {
        self.ask(move |running| {
            let wire = running.core.wire(from, to).ok_or(SetError::NoPath)?;
            wire.link.set(settings).map_err(SetError::Link)
        })?
    }

    /// Drops all packets that enter a direction within this time from now.
    ///
    /// # Errors
    ///
    /// Returns an error if the direction does not exist or the thread has ended.
    pub fn cut(&self, from: usize, to: usize, time: Duration) -> Result<(), SetError> {
        self.ask(move |running| {
            let until = running.core.now() + time;
            let wire = running.core.wire(from, to).ok_or(SetError::NoPath)?;
            wire.link.cut_until(until);
            Ok(())
        })?
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.order(|running| running.stopping = true);
        if let Some(thread) = self.thread.take() {
            // The result is not needed: the thread has ended, even if it panicked.
            let _ = thread.join();
        }
    }
}

/// Processor use by windows.
#[derive(Default)]
struct Usage {
    window_began: Moment,
    worked: Duration,
    busiest: f64,
}

/// State of the emulator's thread.
struct Running {
    core: Core,
    orders: Arc<Orders>,
    bell: Arc<OwnedFd>,
    stopping: bool,
    watching: Duration,
    lead: Lead,
    usage: Usage,
    realtime: bool,
}

/// Time that the thread wakes up before a packet is due. It polls the clock for this
/// time, which other processes cannot use. Follows the delay of recent wake-ups: a few
/// microseconds on a processor that does not sleep.
struct Lead(Duration);

impl Lead {
    /// Added to the slowest recent wake-up.
    const MARGIN: Duration = Duration::from_micros(4);

    /// A faster wake-up reduces the lead by this fraction of the difference, so that a
    /// slow one is forgotten after some hundred wake-ups.
    const FORGET: u32 = 128;

    /// Records how late a wake-up was.
    fn learn(&mut self, took: Duration) {
        let wanted = (took + Lead::MARGIN).min(LONGEST_LEAD);
        self.0 = if wanted > self.0 {
            wanted
        } else {
            self.0 - (self.0 - wanted) / Lead::FORGET
        };
    }
}

impl Running {
    fn run(&mut self, prompt: bool) {
        self.realtime = prompt && become_prompt();
        while !self.stopping {
            if self.orders.any.swap(false, Ordering::Acquire) {
                self.follow_orders();
                // The task may have set `stopping`: check the condition again.
                continue;
            }
            let began = self.core.now();
            let found = self.core.turn();
            self.account(began);
            if !found {
                self.wait();
            }
        }
    }

    fn follow_orders(&mut self) {
        let mut count = [0; 8];
        // An error means that an earlier turn has read the counter.
        let _ = rustix::io::read(&*self.bell, &mut count);
        let orders = std::mem::take(&mut *self.orders.lock());
        for order in orders {
            order(self);
        }
    }

    /// Sleeps until a host sends, a task arrives, or a packet is almost due. If a packet
    /// is almost due, spins once instead.
    fn wait(&mut self) {
        let until = self.core.until_due();
        let sleep = until.map(|until| until.saturating_sub(self.lead.0));
        if sleep.is_some_and(|sleep| sleep.is_zero()) {
            let began = self.core.now();
            std::hint::spin_loop();
            self.watching += self.core.now() - began;
            return;
        }
        let timeout = sleep.map(|sleep| Timespec {
            tv_sec: sleep.as_secs() as i64,
            tv_nsec: i64::from(sleep.subsec_nanos()),
        });
        let mut watched: Vec<PollFd<'_>> = self
            .core
            .ports()
            .iter()
            .map(|port| PollFd::new(&port.tun, PollFlags::IN))
            .collect();
        watched.push(PollFd::new(&*self.bell, PollFlags::IN));
        let began = self.core.now();
        // After an interruption the main loop starts again.
        let woken = poll(&mut watched, timeout.as_ref());
        if let (Ok(0), Some(sleep)) = (woken, sleep) {
            let slept = self.core.now() - began;
            self.lead.learn(slept.saturating_sub(sleep));
        }
    }

    /// Adds the time of one turn to the processor use.
    fn account(&mut self, began: Moment) {
        let now = self.core.now();
        self.usage.worked += now - began;
        let window = now - self.usage.window_began;
        if window >= CPU_WINDOW {
            let share = self.usage.worked.as_secs_f64() / window.as_secs_f64();
            self.usage.busiest = self.usage.busiest.max(share);
            self.usage.worked = Duration::ZERO;
            self.usage.window_began = now;
        }
    }

    fn report(&self) -> EmulatorReport {
        let used = clock_gettime(ClockId::ThreadCPUTime);
        let wires = self.core.wires().map(|(from, to, wire)| WireReport {
            from,
            to,
            counters: wire.link.counters(),
            blocked: wire.blocked,
            super_packets: wire.super_packets,
        });
        EmulatorReport {
            wires: wires.collect(),
            strays: self.core.strays,
            lateness: self.core.lateness.clone(),
            wall: self.core.now() - Moment(0),
            cpu: Duration::new(used.tv_sec as u64, used.tv_nsec as u32),
            watching: self.watching,
            busiest: self.usage.busiest,
            realtime: self.realtime,
        }
    }
}

/// Requests exact timers and real-time priority. True if the kernel granted the priority.
#[allow(unsafe_code)] // No safe binding sets a scheduling policy.
fn become_prompt() -> bool {
    // One nanosecond. With the default timer slack, sleeps last 50 us longer.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    // Calls the kernel directly: musl's sched_setscheduler does nothing. The parameter
    // structure consists of this number.
    let priority: libc::c_int = 1;
    // SAFETY: the number outlives the call, and 0 is the calling thread.
    unsafe {
        libc::syscall(
            libc::SYS_sched_setscheduler,
            0,
            libc::SCHED_FIFO,
            &raw const priority,
        ) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lead_follows_the_slowest_wake_ups() {
        let micros = Duration::from_micros;
        let mut lead = Lead(LONGEST_LEAD);
        for _ in 0..1000 {
            lead.learn(micros(3));
        }
        assert!(lead.0 < micros(8), "{:?}", lead.0);
        lead.learn(micros(30));
        assert_eq!(lead.0, micros(34));
        lead.learn(micros(5));
        assert!(lead.0 > micros(33));
        lead.learn(Duration::from_millis(5));
        assert_eq!(lead.0, LONGEST_LEAD);
    }
}
