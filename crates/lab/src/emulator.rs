//! The same links over real packets: one thread between the hosts' devices.
//!
//! - [`core`]: reads, asks the links, writes what has arrived
//! - [`wire`]: one direction of a path and what waits on it
//! - [`gate`]: firewalls and NAT
//! - [`store`]: the memory in which packets wait
//! - [`lateness`]: what the emulator itself adds
//!
//! One thread serves all directions. Two threads used two cores and were no faster, since bulk
//! data go one way. The thread sleeps until shortly before something is due and then watches the
//! clock, because a sleeper wakes tens of microseconds late.

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

/// How long before something is due the thread stops sleeping at most: what a
/// wake-up takes on a virtual machine whose processors sleep.
const LONGEST_LEAD: Duration = Duration::from_micros(60);

/// Its share of a processor is taken over such windows.
const CPU_WINDOW: Duration = Duration::from_millis(500);

/// What one direction did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireReport {
    /// From this site.
    pub from: usize,
    /// To this site.
    pub to: usize,
    /// See [`LinkCounters`].
    pub counters: LinkCounters,
    /// Packets that a firewall did not let in.
    pub blocked: u64,
    /// Packets that came as super-packets.
    pub super_packets: u64,
}

/// What the emulator did so far.
#[derive(Clone, Debug, PartialEq)]
pub struct EmulatorReport {
    /// Each direction.
    pub wires: Vec<WireReport>,
    /// See [`Strays`].
    pub strays: Strays,
    /// See [`Lateness`].
    pub lateness: Lateness,
    /// Time since its start.
    pub wall: Duration,
    /// Processor time of its thread, what it waited for the clock among it.
    pub cpu: Duration,
    /// Of that, what it waited for the clock.
    pub watching: Duration,
    /// The greatest share of a processor that it worked for half a second, 0
    /// to 1.
    pub busiest: f64,
    /// It runs before other processes (SCHED_FIFO).
    pub realtime: bool,
}

/// Something to be done between two packets.
type Order = Box<dyn FnOnce(&mut Running) + Send>;

#[derive(Default)]
struct Orders {
    waiting: Mutex<VecDeque<Order>>,
    /// Looked at in every turn; the lock is not.
    any: AtomicBool,
}

impl Orders {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Order>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running emulator; it stops when this is dropped.
pub struct Emulator {
    orders: Arc<Orders>,
    bell: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// The emulator's thread is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lab's emulator has stopped: start the lab again")]
pub struct Stopped;

/// Why a link cannot be changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    /// See [`Stopped`].
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// The settings make no link.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// There is no such direction.
    #[error("the lab has no path between these sites")]
    NoPath,
}

impl Emulator {
    /// Starts the thread. A prompt one runs before what it measures, where the
    /// kernel grants it; one that has no links needs no more than its share.
    ///
    /// # Errors
    ///
    /// Where there is no descriptor or no thread to be had.
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

    /// Does something in the thread, and gives what comes of it.
    fn ask<T: Send + 'static>(
        &self,
        order: impl FnOnce(&mut Running) -> T + Send + 'static,
    ) -> Result<T, Stopped> {
        let (reply, answer) = mpsc::channel();
        self.order(move |running| {
            // Whoever asked may be gone.
            let _ = reply.send(order(running));
        });
        answer.recv().map_err(|_| Stopped)
    }

    fn order(&self, order: impl FnOnce(&mut Running) + Send + 'static) {
        self.orders.lock().push_back(Box::new(order));
        self.orders.any.store(true, Ordering::Release);
        // Full, it rings already.
        let _ = rustix::io::write(&*self.bell, &1_u64.to_ne_bytes());
    }

    /// What it did so far.
    ///
    /// # Errors
    ///
    /// [`Stopped`].
    pub fn report(&self) -> Result<EmulatorReport, Stopped> {
        self.ask(|running| running.report())
    }

    /// Changes one direction from now on.
    ///
    /// # Errors
    ///
    /// Where there is no such direction, or the settings make no link.
    pub fn set(&self, from: usize, to: usize, settings: LinkSettings) -> Result<(), SetError> {
        self.ask(move |running| {
            let wire = running.core.wire(from, to).ok_or(SetError::NoPath)?;
            wire.link.set(settings).map_err(SetError::Link)
        })?
    }

    /// Loses everything that comes to a direction within this time from now.
    ///
    /// # Errors
    ///
    /// Where there is no such direction.
    pub fn cut(&self, from: usize, to: usize, time: Duration) -> Result<(), SetError> {
        self.ask(move |running| {
            let until = running.core.now() + time;
            let wire = running.core.wire(from, to).ok_or(SetError::NoPath)?;
            wire.link.cut_until(until);
            Ok(())
        })?
    }

    /// Other firewalls from now on.
    ///
    /// # Errors
    ///
    /// [`Stopped`].
    pub fn set_rules(&self, rules: Vec<gate::BlockRule>) -> Result<(), Stopped> {
        self.ask(move |running| running.core.gate.rules = rules)
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.order(|running| running.stopping = true);
        if let Some(thread) = self.thread.take() {
            // Whatever ended it, it has ended.
            let _ = thread.join();
        }
    }
}

/// Processor time by windows.
#[derive(Default)]
struct Usage {
    window_began: Moment,
    worked: Duration,
    busiest: f64,
}

/// The thread's own state.
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

/// How long before something is due the thread stops sleeping: the time it is
/// then awake is lost to others. As long as wake-ups took lately: on a processor
/// that does not sleep, few microseconds.
struct Lead(Duration);

impl Lead {
    /// Beyond what the slowest of late took.
    const MARGIN: Duration = Duration::from_micros(4);

    /// A wake-up that was quicker makes it shorter by this part of the
    /// difference: some hundred of them forget one that was slow.
    const FORGET: u32 = 128;

    /// A wake-up came so long after it was asked for.
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
                // Whoever rang to end this does not ring twice.
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
        // Nothing there: another turn took it.
        let _ = rustix::io::read(&*self.bell, &mut count);
        let orders = std::mem::take(&mut *self.orders.lock());
        for order in orders {
            order(self);
        }
    }

    /// Sleeps until a host sends, somebody rings, or something is almost due;
    /// then watches the clock.
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
        // Interrupted, the loop begins anew.
        let woken = poll(&mut watched, timeout.as_ref());
        if let (Ok(0), Some(sleep)) = (woken, sleep) {
            let slept = self.core.now() - began;
            self.lead.learn(slept.saturating_sub(sleep));
        }
    }

    /// Adds a turn to the processor time it worked.
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

/// Asks the kernel for exact timers, and to run before what it measures; true
/// where the latter was granted.
#[allow(unsafe_code)] // No safe binding sets a scheduling policy.
fn become_prompt() -> bool {
    // One nanosecond: the default lets a sleeper lie 50 us longer.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    // The kernel's own call, whose parameter is this number alone: musl's of the
    // same name does nothing, as it would have to change all threads.
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
