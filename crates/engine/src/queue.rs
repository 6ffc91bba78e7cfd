//! A queue between two layers. It is bounded by the buffers of the blocks in
//! it, not by itself.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// First in, first out, for any number of threads at either end.
#[derive(Debug)]
pub struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<T>,
    closed: bool,
}

/// Locks whatever happened: a thread that panicked elsewhere must not take
/// the others with it, and every state here is valid at each step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        let state = State {
            items: VecDeque::new(),
            closed: false,
        };
        Queue {
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }
}

impl<T> Queue<T> {
    /// Adds an item; dropped where the queue is closed.
    pub fn push(&self, item: T) {
        let mut state = lock(&self.state);
        if !state.closed {
            state.items.push_back(item);
            self.changed.notify_one();
        }
    }

    /// The next item, waiting for one while `wanted` says so; none once the
    /// queue is closed, or the caller is not wanted any more.
    pub fn pop(&self, wanted: impl Fn() -> bool) -> Option<T> {
        let mut state = lock(&self.state);
        loop {
            if state.closed {
                return None;
            }
            if !wanted() {
                // Perhaps it was this one that was woken for what is there.
                self.changed.notify_one();
                return None;
            }
            if let Some(item) = state.items.pop_front() {
                return Some(item);
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether nothing is in it now.
    pub fn is_empty(&self) -> bool {
        lock(&self.state).items.is_empty()
    }

    /// Wakes all who wait, so that they ask again whether they are wanted.
    pub fn wake(&self) {
        let _state = lock(&self.state);
        self.changed.notify_all();
    }

    /// Drops what is in it and lets nobody wait any more.
    pub fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        state.items.clear();
        self.changed.notify_all();
    }
}
