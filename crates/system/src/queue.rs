//! A queue between two layers. If its items have buffers, the number of buffers limits its length;
//! otherwise it has its own limit.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A first-in, first-out queue for any number of threads at both ends.
#[derive(Debug)]
pub struct Queue<T> {
    state: Mutex<State<T>>,
    /// Signals a new item, or that waiting threads must check again if they are wanted.
    filled: Condvar,
    /// Signals that there is room again.
    emptied: Condvar,
    /// Maximum number of items, if limited.
    most: Option<usize>,
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<T>,
    closed: bool,
}

/// Locks a mutex even if it is poisoned. A thread that panicked must not stop the others, and every
/// state in these mutexes is valid at each step.
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
    /// Creates a queue of at most `most` items, or one if `most` is 0.
    pub fn bounded(most: usize) -> Queue<T> {
        Queue {
            most: Some(most.max(1)),
            ..Queue::default()
        }
    }

    /// Adds an item, after waiting for room. Drops it if the queue is closed.
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

    /// Takes the next item, and waits for one while `wanted` returns true. `None` once the queue is
    /// closed, or `wanted` returns false.
    pub fn pop(&self, wanted: impl Fn() -> bool) -> Option<T> {
        let mut state = lock(&self.state);
        loop {
            if state.closed {
                return None;
            }
            if !wanted() {
                // This thread may have been woken for an item that another thread must take now.
                self.filled.notify_one();
                return None;
            }
            if let Some(item) = state.items.pop_front() {
                // Done only if needed: it is a system call even if no thread waits.
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

    /// True if the queue is empty now.
    pub fn is_empty(&self) -> bool {
        lock(&self.state).items.is_empty()
    }

    /// Wakes all threads that wait for an item, so that they call `wanted` again.
    pub fn wake(&self) {
        let _state = lock(&self.state);
        self.filled.notify_all();
    }

    /// Drops all items, and ends all waiting.
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

    /// Starts a thread that adds the numbers below `count`. It ends when all were added or dropped.
    fn adding(queue: &Arc<Queue<u32>>, count: u32) -> JoinHandle<()> {
        let queue = Arc::clone(queue);
        std::thread::spawn(move || (0..count).for_each(|number| queue.push(number)))
    }

    /// Waits until the queue has this many items.
    fn await_length(queue: &Queue<u32>, length: usize) {
        longhaul_testing::await_that(|| lock(&queue.state).items.len() >= length);
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
    fn threads_blocked_on_a_full_queue_return_when_it_closes() {
        let queue = Arc::new(Queue::bounded(0));
        let both = [adding(&queue, 9), adding(&queue, 9)];
        await_length(&queue, 1);
        queue.close();
        both.into_iter().for_each(|one| one.join().unwrap());
        assert_eq!(queue.pop(|| true), None);
        queue.push(9);
        assert!(queue.is_empty(), "nothing is kept in a closed one");
    }

    /// Each waiting thread finds room in time, regardless of which threads take items.
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
