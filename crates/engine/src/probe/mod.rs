//! What a host can do alone: its storage, its codecs, its TLS.
//!
//! - [`disk`]: one large file, block by block
//! - [`small`]: many small files
//! - [`codec`]: the user's own data through each codec
//! - [`kinds`]: samples of the user's data through the codecs that a copy chooses among
//! - [`tls`]: streams to itself
//! - [`this_host`]: what this host is, as records tell it
//! - [`interfaces`]: network interfaces, and what they do for the kernel
//!
//! Each call measures once; who calls repeats, interleaves and throws the first
//! away. What it needs of memory is touched before the clock starts.

pub mod codec;
pub mod disk;
pub mod interfaces;
pub mod kinds;
pub mod small;
pub mod this_host;
pub mod tls;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use longhaul_system::allowance::thread_refusal;
use rustix::time::{ClockId, clock_gettime};

/// One repetition.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Bytes moved.
    pub bytes: u64,
    /// Files, where it is about files; else 0.
    pub files: u64,
    /// Seconds by the clock.
    pub wall: f64,
    /// CPU seconds of this process, user and system; the kernel's own threads
    /// that write back are not in it.
    pub cpu: f64,
}

/// Times work that says how many bytes and files it moved.
///
/// # Errors
///
/// The work's.
pub fn timed(work: impl FnOnce() -> io::Result<(u64, u64)>) -> io::Result<Sample> {
    let (began, before) = (Instant::now(), cpu_seconds());
    let (bytes, files) = work()?;
    Ok(Sample {
        bytes,
        files,
        wall: began.elapsed().as_secs_f64(),
        cpu: cpu_seconds() - before,
    })
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// How long a measurement may continue: until a signal comes, and no longer than its budget.
#[derive(Clone, Copy, Debug)]
pub struct Limit<'a> {
    stop: &'a AtomicBool,
    until: Instant,
}

impl Limit<'_> {
    /// A limit. A signal's handler sets `stop`.
    pub fn new(stop: &AtomicBool, until: Instant) -> Limit<'_> {
        Limit { stop, until }
    }

    /// How much time is left.
    pub fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// An error once it is over, between two pieces of work: who measures then cleans up.
    fn go_on(&self) -> io::Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            // Not `Interrupted`: that would be tried again.
            return Err(io::Error::other("interrupted"));
        }
        if self.left().is_zero() {
            Err(io::ErrorKind::TimedOut.into())
        } else {
            Ok(())
        }
    }
}

/// Starts a thread; where it is refused, the error names the limit.
fn start<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    let thread = std::thread::Builder::new().name("probe".into());
    let started = thread.spawn_scoped(scope, work);
    started.map_err(|error| io::Error::other(thread_refusal(&error)))
}

/// Runs the same work in this many threads; the first error of them.
fn in_threads(count: usize, work: impl Fn(usize) -> io::Result<()> + Sync) -> io::Result<()> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..count)
            .map(|number| start(scope, move || work(number)))
            .collect();
        let mut result = Ok(());
        for thread in threads {
            let thread = match thread {
                Ok(thread) => thread,
                Err(error) => {
                    result = result.and(Err(error));
                    continue;
                }
            };
            let done = thread.join();
            result =
                result.and(done.unwrap_or_else(|_| Err(io::Error::other("a thread panicked"))));
        }
        result
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A limit that only a signal ends.
    pub(super) fn endless(stop: &AtomicBool) -> Limit<'_> {
        Limit::new(stop, Instant::now() + Duration::from_secs(1 << 20))
    }

    /// A limit whose time is over.
    pub(super) fn over(stop: &AtomicBool) -> Limit<'_> {
        Limit::new(stop, Instant::now())
    }
}
