//! A queue in the memory of the coordinator: a state machine without a clock of its own.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::interface::{Delivery, Ended, Queue, WorkerNumber};
use crate::moment::Moment;
use crate::task::{Task, TaskName};

/// Maximum number of attempts of a task.
pub const MOST_ATTEMPTS: u32 = 5;

/// The queue.
#[derive(Debug)]
pub struct Here {
    lease: Duration,
    most_waiting: usize,
    /// Waiting tasks, with the number of attempts so far.
    waiting: VecDeque<(Arc<Task>, u32)>,
    leased: BTreeMap<TaskName, Leased>,
}

/// A task that workers have.
#[derive(Debug)]
struct Leased {
    task: Arc<Task>,
    attempts: u32,
    leases: Vec<Lease>,
}

#[derive(Debug)]
struct Lease {
    attempt: u32,
    worker: WorkerNumber,
    since: Moment,
    until: Moment,
}

impl Here {
    /// Creates a queue in which at most `most_waiting` tasks wait.
    pub fn new(lease: Duration, most_waiting: usize) -> Here {
        Here {
            lease,
            most_waiting,
            waiting: VecDeque::new(),
            leased: BTreeMap::new(),
        }
    }

    fn lease(&mut self, task: Arc<Task>, (worker, now): (WorkerNumber, Moment)) -> Delivery {
        let until = now.after(self.lease);
        let leased = self.leased.get_mut(&task.name);
        let attempt = leased.map_or(1, |leased| {
            leased.attempts += 1;
            leased.leases.push(Lease {
                attempt: leased.attempts,
                worker,
                since: now,
                until,
            });
            leased.attempts
        });
        Delivery { task, attempt }
    }

    /// Removes the leases of a task that `ends` selects. A task without a lease waits again.
    fn end_leases(&mut self, name: &TaskName, ends: impl Fn(&Lease) -> bool) -> Vec<Ended> {
        let Some(leased) = self.leased.get_mut(name) else {
            return Vec::new();
        };
        let ended: Vec<Lease> = leased.leases.extract_if(.., |lease| ends(lease)).collect();
        let is_free = leased.leases.is_empty();
        let given_up = is_free && leased.attempts >= MOST_ATTEMPTS;
        let free = is_free.then(|| self.leased.remove(name)).flatten();
        if let Some(leased) = free.filter(|_| !given_up) {
            // Tasks that were begun come first, because they are the last to end.
            self.waiting.push_front((leased.task, leased.attempts));
        }
        let ended = ended.into_iter().map(|lease| Ended {
            name: name.clone(),
            attempt: lease.attempt,
            given_up,
        });
        ended.collect()
    }
}

impl Queue for Here {
    fn publish(&mut self, task: Task) -> Result<(), Task> {
        if !self.has_room() {
            return Err(task);
        }
        self.waiting.push_back((Arc::new(task), 0));
        Ok(())
    }

    fn has_room(&self) -> bool {
        self.waiting.len() < self.most_waiting
    }

    fn next(&mut self, worker: WorkerNumber, now: Moment) -> Option<Delivery> {
        let (task, attempts) = self.waiting.pop_front()?;
        self.leased.insert(
            task.name.clone(),
            Leased {
                task: Arc::clone(&task),
                attempts,
                leases: Vec::new(),
            },
        );
        Some(self.lease(task, (worker, now)))
    }

    fn last(
        &mut self,
        worker: WorkerNumber,
        now: Moment,
        patience: &dyn Fn(&Task) -> Duration,
    ) -> Option<Delivery> {
        if !self.waiting.is_empty() {
            return None;
        }
        let slow = self.leased.values().filter(|leased| {
            let patience = patience(&leased.task);
            let is_late =
                |lease: &Lease| lease.worker != worker && now.since(lease.since) >= patience;
            leased.leases.len() == 1
                && leased.attempts < MOST_ATTEMPTS
                && leased.leases.iter().all(is_late)
        });
        let first = slow.min_by_key(|leased| leased.leases.first().map(|lease| lease.since));
        let task = Arc::clone(&first?.task);
        Some(self.lease(task, (worker, now)))
    }

    fn extend(&mut self, worker: WorkerNumber, now: Moment) {
        let until = now.after(self.lease);
        for lease in self
            .leased
            .values_mut()
            .flat_map(|leased| &mut leased.leases)
        {
            if lease.worker == worker {
                lease.until = lease.until.max(until);
            }
        }
    }

    fn acknowledge(&mut self, name: &TaskName) -> bool {
        let waiting = self.waiting.len();
        self.waiting.retain(|(task, _)| task.name != *name);
        self.leased.remove(name).is_some() || self.waiting.len() < waiting
    }

    fn give_back(&mut self, name: &TaskName, attempt: u32) -> Option<Ended> {
        self.end_leases(name, |lease| lease.attempt == attempt)
            .pop()
    }

    fn expire(&mut self, now: Moment) -> Vec<Ended> {
        let names: Vec<TaskName> = self.leased.keys().cloned().collect();
        let expired = names
            .iter()
            .flat_map(|name| self.end_leases(name, |lease| lease.until <= now));
        expired.collect()
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.leased.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use longhaul_units::Random;

    use super::*;
    use crate::ledger::Ledger;

    const LEASE: Duration = Duration::from_secs(2);

    fn task(number: usize) -> Task {
        Task {
            name: TaskName(format!("{number}")),
            files: Vec::new(),
            bytes: 1,
            replaces: false,
            again: false,
            assembly: None,
        }
    }

    fn at(seconds: u64) -> Moment {
        Moment(Duration::from_secs(seconds))
    }

    #[test]
    fn a_full_queue_returns_the_task() {
        let mut queue = Here::new(LEASE, 1);
        queue.publish(task(1)).unwrap();
        assert_eq!(queue.publish(task(2)).unwrap_err(), task(2));
        assert_eq!(queue.next(0, at(0)).unwrap().attempt, 1);
        queue.publish(task(2)).unwrap();
    }

    #[test]
    fn an_expired_task_is_delivered_again_with_a_higher_attempt() {
        let mut queue = Here::new(LEASE, 9);
        queue.publish(task(1)).unwrap();
        queue.next(0, at(0)).unwrap();
        queue.extend(0, at(1));
        assert_eq!(queue.expire(at(2)), []);
        let name = TaskName("1".into());
        assert_eq!(queue.expire(at(3))[0].attempt, 1);
        let second = queue.next(1, at(3)).unwrap();
        assert_eq!(second.attempt, 2);
        // The first worker runs again: its failure does not end the second lease.
        assert_eq!(queue.give_back(&name, 1), None);
        assert!(queue.acknowledge(&name));
        assert!(!queue.acknowledge(&name));
        assert!(queue.is_empty());
    }

    #[test]
    fn an_idle_worker_takes_over_a_late_task_once() {
        let mut queue = Here::new(LEASE, 9);
        queue.publish(task(1)).unwrap();
        queue.next(0, at(0)).unwrap();
        assert_eq!(queue.last(0, at(9), &|_| LEASE), None, "its own task");
        assert_eq!(queue.last(1, at(1), &|_| LEASE), None, "too early");
        assert_eq!(queue.last(1, at(2), &|_| LEASE).unwrap().attempt, 2);
        assert_eq!(
            queue.last(2, at(9), &|_| LEASE),
            None,
            "two workers have it"
        );
        let name = TaskName("1".into());
        assert!(!queue.give_back(&name, 1).unwrap().given_up);
        assert_eq!(queue.next(0, at(9)), None, "the second attempt runs");
        assert!(queue.acknowledge(&name));
        assert!(queue.is_empty());
    }

    #[test]
    fn a_task_that_always_fails_is_given_up() {
        let mut queue = Here::new(LEASE, 9);
        queue.publish(task(1)).unwrap();
        for attempt in 1..=MOST_ATTEMPTS {
            let delivery = queue.next(0, at(0)).unwrap();
            assert_eq!(delivery.attempt, attempt);
            let ended = queue.give_back(&delivery.task.name, attempt).unwrap();
            assert_eq!(ended.given_up, attempt == MOST_ATTEMPTS);
        }
        assert!(queue.is_empty());
    }

    /// Workers that fail, stop past their leases and answer late.
    fn run_with_seed(seed: u64) {
        let mut random = Random::new(seed);
        let mut queue = Here::new(LEASE, 8);
        let mut ledger = Ledger::default();
        let mut unpublished: Vec<usize> = (0..40).collect();
        let mut held: Vec<(WorkerNumber, Delivery)> = Vec::new();
        let mut seen = BTreeSet::new();
        let mut now = 0;
        let mut steps = 0;
        while !(unpublished.is_empty() && queue.is_empty() && held.is_empty()) {
            steps += 1;
            assert!(steps < 100_000, "seed {seed} does not end");
            now += random.below(2);
            let worker = random.below(4) as usize;
            match random.below(8) {
                0 | 1 => {
                    while let Some(number) = unpublished.pop() {
                        if queue.publish(task(number)).is_err() {
                            unpublished.push(number);
                            break;
                        }
                        ledger.open(&TaskName(format!("{number}")));
                    }
                }
                2 | 3 => {
                    let delivery = queue.next(worker, at(now));
                    let delivery = delivery.or_else(|| queue.last(worker, at(now), &|_| LEASE));
                    if let Some(delivery) = delivery {
                        let key = (delivery.task.name.clone(), delivery.attempt);
                        assert!(seen.insert(key), "seed {seed}: an attempt was repeated");
                        assert!(delivery.attempt <= MOST_ATTEMPTS);
                        held.push((worker, delivery));
                    }
                }
                4 => queue.extend(worker, at(now)),
                5 => {
                    for ended in queue.expire(at(now)) {
                        if ended.given_up {
                            ledger.give_up(&ended.name);
                        }
                    }
                }
                _ if held.is_empty() => {}
                end => {
                    let (_, delivery) = held.swap_remove(random.below(held.len() as u64) as usize);
                    let name = &delivery.task.name;
                    if end == 6 {
                        queue.acknowledge(name);
                        ledger.complete(name, delivery.attempt);
                    } else if let Some(ended) = queue.give_back(name, delivery.attempt)
                        && ended.given_up
                    {
                        ledger.give_up(name);
                    }
                }
            }
        }
        assert!(ledger.is_settled(), "seed {seed}: a task was lost");
        let (complete, all, failed) = ledger.counts();
        assert_eq!((complete + failed, all), (40, 40), "seed {seed}");
    }

    #[test]
    fn no_task_is_lost_whichever_workers_fail() {
        for seed in 0..300 {
            run_with_seed(seed);
        }
    }
}
