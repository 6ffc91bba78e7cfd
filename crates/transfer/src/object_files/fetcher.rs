//! Threads that fetch parts of objects, and the memory of these parts.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use longhaul_system::queue::lock;

/// Maximum number of concurrent requests for parts.
const CONNECTIONS: usize = 16;

/// Bytes of parts that were fetched ahead of their reads, above which no further ones are.
const AHEAD_BYTES: u64 = 96 << 20;

type Job = Box<dyn FnOnce() + Send>;

/// Runs jobs in a few threads, which start when they are needed.
#[derive(Default)]
pub struct Fetcher(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    held: Arc<AtomicU64>,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    is_closed: bool,
}

/// Bytes that a part may use. They count until this value is dropped.
pub struct Held {
    all: Arc<AtomicU64>,
    bytes: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        lock(&self.0.state).is_closed = true;
        self.0.changed.notify_all();
    }
}

impl Fetcher {
    /// Counts the bytes of a part.
    pub fn hold(&self, bytes: u64) -> Held {
        self.0.held.fetch_add(bytes, Ordering::Relaxed);
        let all = Arc::clone(&self.0.held);
        Held { all, bytes }
    }

    /// True if there is memory for further parts ahead of their reads.
    pub fn has_room(&self) -> bool {
        self.0.held.load(Ordering::Relaxed) < AHEAD_BYTES
    }

    /// Adds a job. A read waits for an urgent one.
    ///
    /// # Errors
    ///
    /// No thread runs, and none can be started.
    pub fn submit(&self, is_urgent: bool, job: Job) -> io::Result<()> {
        let mut state = lock(&self.0.state);
        if state.idle <= state.jobs.len() && state.threads < CONNECTIONS {
            let shared = Arc::clone(&self.0);
            let thread = std::thread::Builder::new().name("fetch".to_owned());
            match thread.spawn(move || shared.run()) {
                Ok(_) => state.threads += 1,
                Err(error) if state.threads == 0 => return Err(error),
                Err(_) => {}
            }
        }
        if is_urgent {
            state.jobs.push_front(job);
        } else {
            state.jobs.push_back(job);
        }
        drop(state);
        self.0.changed.notify_one();
        Ok(())
    }
}

impl Shared {
    fn run(&self) {
        let mut state = lock(&self.state);
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = lock(&self.state);
                continue;
            }
            if state.is_closed {
                return;
            }
            state.idle += 1;
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }
}
