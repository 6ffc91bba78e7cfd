//! Measures the parts of a single host: its storage, its codecs, its TLS.
//!
//! - [`disk`]: one large file, block by block
//! - [`small`]: many small files
//! - [`codec`]: the user's own data with each codec
//! - [`kinds`]: samples of the user's data with the codecs that a copy chooses from
//! - [`tls`]: streams from the host to itself
//! - [`this_host`]: description of this host for records
//! - [`interfaces`]: network interfaces and their offloads
//!
//! Each call measures once. The caller repeats, interleaves and discards the first result. Memory
//! is touched before the clock starts.

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

use longhaul_system::limits::thread_refusal;
use rustix::time::{ClockId, clock_gettime};

/// Result of one repetition.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Number of bytes moved.
    pub bytes: u64,
    /// Number of files; 0 if not applicable.
    pub files: u64,
    /// Elapsed time in seconds.
    pub wall: f64,
    /// CPU time of this process in seconds, user and system, without the kernel's writeback
    /// threads.
    pub cpu: f64,
}

/// Measures the time of `work`, which returns the number of bytes and files that it moved.
///
/// # Errors
///
/// Errors of `work`.
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

/// Limit of a measurement: a signal, or the end of its time.
#[derive(Clone, Copy, Debug)]
pub struct Limit<'a> {
    stop: &'a AtomicBool,
    until: Instant,
}

impl Limit<'_> {
    /// Creates a limit. A signal handler sets `stop`.
    pub fn new(stop: &AtomicBool, until: Instant) -> Limit<'_> {
        Limit { stop, until }
    }

    /// Returns the remaining time.
    pub fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Fails once the limit is reached. Called between pieces of work, so that the caller can clean
    /// up.
    fn go_on(&self) -> io::Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            // Not `Interrupted`, which would be retried.
            return Err(io::Error::other("interrupted"));
        }
        if self.left().is_zero() {
            Err(io::ErrorKind::TimedOut.into())
        } else {
            Ok(())
        }
    }
}

/// Starts a thread; if it is refused, the error names the limit.
fn start<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    let thread = std::thread::Builder::new().name("probe".into());
    let started = thread.spawn_scoped(scope, work);
    started.map_err(|error| io::Error::other(thread_refusal(&error)))
}

/// Runs the same work in this many threads; returns their first error.
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

    /// Returns a limit that only a signal ends.
    pub(super) fn endless(stop: &AtomicBool) -> Limit<'_> {
        Limit::new(stop, Instant::now() + Duration::from_secs(1 << 20))
    }

    /// Returns a limit whose time is over.
    pub(super) fn over(stop: &AtomicBool) -> Limit<'_> {
        Limit::new(stop, Instant::now())
    }
}
