//! The operations of every queue of tasks.

use std::sync::Arc;
use std::time::Duration;

use crate::moment::Moment;
use crate::task::{Task, TaskName};

/// Number of a worker.
pub type WorkerNumber = usize;

/// A task that a worker received, with the number of the attempt, from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The task.
    pub task: Arc<Task>,
    /// Number of the attempt. It is higher than that of every earlier delivery of this task.
    pub attempt: u32,
}

/// A task whose lease ended without an acknowledgement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Name of the task.
    pub name: TaskName,
    /// Number of the attempt.
    pub attempt: u32,
    /// True if no further attempt follows.
    pub given_up: bool,
}

/// A queue of tasks with leases.
pub trait Queue {
    /// Adds a task. Returns it if the queue is full; the caller adds it later.
    ///
    /// # Errors
    ///
    /// The task, if the queue is full.
    fn publish(&mut self, task: Task) -> Result<(), Task>;

    /// True if [`Queue::publish`] would accept a task.
    fn has_room(&self) -> bool;

    /// Leases the next task to a worker. `now` is read before the task is sent.
    fn next(&mut self, worker: WorkerNumber, now: Moment) -> Option<Delivery>;

    /// Leases a task that another worker has had for at least its `patience`, if no task waits. The
    /// later attempt takes over from the earlier one.
    fn last(
        &mut self,
        worker: WorkerNumber,
        now: Moment,
        patience: &dyn Fn(&Task) -> Duration,
    ) -> Option<Delivery>;

    /// Extends all leases of a worker.
    fn extend(&mut self, worker: WorkerNumber, now: Moment);

    /// Removes a task that is durable. Returns false if it is not leased or waiting.
    fn acknowledge(&mut self, name: &TaskName) -> bool;

    /// Ends a lease whose attempt failed. Returns `None` if there is no such lease.
    fn give_back(&mut self, name: &TaskName, attempt: u32) -> Option<Ended>;

    /// Ends the leases that were not extended in time.
    fn expire(&mut self, now: Moment) -> Vec<Ended>;

    /// True if no task waits or is leased.
    fn is_empty(&self) -> bool;
}
