//! A queue between two layers. Where what is in it has buffers, these bound it; else it has a bound
//! of its own.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// First in, first out, for any number of threads at either end.
#[derive(Debug)]
pub struct Queue<T> {
    state: Mutex<State<T>>,
    /// Something came, or threads that wait for it are to ask again whether they are wanted.
    filled: Condvar,
    /// There is room again.
    emptied: Condvar,
    /// Items that may wait, where their number is bounded.
    most: Option<usize>,
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<T>,
    closed: bool,
}

/// Locks whatever happened: a thread that panicked elsewhere must not take
/// the others with it, and every state here is valid at each step.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
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
            filled: Condvar::new(),
            emptied: Condvar::new(),
            most: None,
        }
    }
}

impl<T> Queue<T> {
    /// One in which at most this many items wait, or one if that is 0.
    pub fn bounded(most: usize) -> Queue<T> {
        Queue {
            most: Some(most.max(1)),
            ..Queue::default()
        }
    }

    /// Adds an item, after waiting while too many wait; dropped where the queue is closed.
    pub fn push(&self, item: T) {
        let full = |state: &mut State<T>| {
            let most = self.most.filter(|_| !state.closed);
            most.is_some_and(|most| state.items.len() >= most)
        };
        let waited = self.emptied.wait_while(lock(&self.state), full);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        if !state.closed {
            state.items.push_back(item);
            self.filled.notify_one();
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
                self.filled.notify_one();
                return None;
            }
            if let Some(item) = state.items.pop_front() {
                // A call to the kernel, even if nobody waits.
                if self.most.is_some() {
                    self.emptied.notify_one();
                }
                return Some(item);
            }
            state = self
                .filled
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether nothing is in it now.
    pub fn is_empty(&self) -> bool {
        lock(&self.state).items.is_empty()
    }

    /// Wakes all who wait for an item, so that they ask again whether they are wanted.
    pub fn wake(&self) {
        let _state = lock(&self.state);
        self.filled.notify_all();
    }

    /// Drops what is in it and lets nobody wait any more.
    pub fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        state.items.clear();
        self.filled.notify_all();
        self.emptied.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread::JoinHandle;

    /// A thread that adds the numbers below this one; it ends when all had room or were dropped.
    fn adding(queue: &Arc<Queue<u32>>, count: u32) -> JoinHandle<()> {
        let queue = Arc::clone(queue);
        std::thread::spawn(move || (0..count).for_each(|number| queue.push(number)))
    }

    /// Waits until that many are in it.
    fn await_length(queue: &Queue<u32>, length: usize) {
        while lock(&queue.state).items.len() < length {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_bounded_queue_never_has_more_and_all_come_in_order() {
        let queue = Arc::new(Queue::bounded(3));
        let adding = adding(&queue, 1000);
        for number in 0..1000 {
            await_length(&queue, 3.min(1000 - number as usize));
            assert!(lock(&queue.state).items.len() <= 3);
            assert_eq!(queue.pop(|| true), Some(number));
        }
        adding.join().unwrap();
        assert!(queue.is_empty());
    }

    #[test]
    fn who_adds_to_a_full_queue_is_let_go_when_it_closes() {
        let queue = Arc::new(Queue::bounded(0));
        let both = [adding(&queue, 9), adding(&queue, 9)];
        await_length(&queue, 1);
        queue.close();
        both.into_iter().for_each(|one| one.join().unwrap());
        assert_eq!(queue.pop(|| true), None);
        queue.push(9);
        assert!(queue.is_empty(), "nothing is kept in a closed one");
    }

    /// Each thread that waits finds room in time, whichever takes.
    #[test]
    fn many_add_and_many_take() {
        let queue = Arc::new(Queue::bounded(2));
        let adding: Vec<_> = (0..4).map(|_| adding(&queue, 500)).collect();
        let taking: Vec<_> = (0..4)
            .map(|_| {
                let queue = Arc::clone(&queue);
                let next = move || queue.pop(|| true).map(u64::from);
                std::thread::spawn(move || (0..500).filter_map(|_| next()).sum::<u64>())
            })
            .collect();
        adding.into_iter().for_each(|one| one.join().unwrap());
        let sums = taking.into_iter().map(|one| one.join().unwrap());
        assert_eq!(sums.sum::<u64>(), 4 * (0..500).sum::<u64>());
    }
}
