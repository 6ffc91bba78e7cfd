//! The workers of a transfer: their states, and the choice of pairs.

use std::sync::mpsc::SyncSender;
use std::time::Duration;

use longhaul_transfer::stop::{Exit, Stop};
use serde::Serialize;

use super::copy::{ClusterCopy, Viewer};
use super::process::{Message, Process};
use crate::moment::Moment;
use crate::protocol::{Begin, Order, Peer, Serve, VERSION, line};
use crate::queue::WorkerNumber;
use crate::site::{SiteHost, SitePath};

/// Number of sessions of a source's worker at the same time, so that the start of one overlaps with
/// the data of another.
pub const SESSIONS: usize = 3;

/// Pause of a worker after a session with it failed.
const REST: Duration = Duration::from_secs(1);

/// Side of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Its sessions send.
    Source,
    /// Its daemon receives.
    Destination,
}

/// A worker.
struct Worker {
    side: Side,
    /// Site and host, for messages.
    name: String,
    host: SiteHost,
    /// `None` if the worker has ended.
    process: Option<Process>,
    /// True if sessions can run.
    ready: bool,
    /// Daemon of a destination.
    peer: Option<Peer>,
    /// Number of sessions.
    load: usize,
    /// Time of its last report.
    heard: Moment,
    /// No session starts before this time.
    rests_until: Moment,
    /// Number of sessions that failed since one succeeded.
    failures: u32,
}

/// All workers of a transfer.
pub struct Workers {
    all: Vec<Worker>,
    lease: Duration,
    begin: Vec<u8>,
    serve: Vec<Vec<u8>>,
    sites: [String; 2],
}

fn written(message: &impl Serialize) -> Result<Vec<u8>, Stop> {
    line(message).map_err(|error| Stop::because(Exit::Local, error))
}

impl Workers {
    /// Starts a worker on each host.
    ///
    /// # Errors
    ///
    /// No worker of a site could be started.
    pub fn start(
        copy: &ClusterCopy,
        (lease, messages): (Duration, &SyncSender<Message>),
        viewer: &dyn Viewer,
    ) -> Result<Workers, Stop> {
        let hosts = copy.hosts.chosen([&copy.from.site, &copy.to.site])?;
        let sessions = hosts[0].len() * SESSIONS;
        let begin = Order::Begin(Box::new(Begin {
            version: VERSION.to_owned(),
            spec: copy.spec.clone().into_spec(),
            output: copy.output,
            sessions: u32::try_from(sessions).unwrap_or(u32::MAX),
            alive_milliseconds: (lease / 4).as_millis() as u64,
        }));
        let mut workers = Workers {
            all: Vec::new(),
            lease,
            begin: written(&begin)?,
            serve: Vec::new(),
            sites: [copy.from.site.name.clone(), copy.to.site.name.clone()],
        };
        let sides = [(&copy.from, Side::Source), (&copy.to, Side::Destination)];
        for ((place, side), hosts) in sides.into_iter().zip(hosts) {
            for host in hosts {
                workers.add(place, (host, side), messages, viewer)?;
            }
        }
        workers.check_sites()?;
        Ok(workers)
    }

    fn add(
        &mut self,
        place: &SitePath,
        (host, side): (&SiteHost, Side),
        messages: &SyncSender<Message>,
        viewer: &dyn Viewer,
    ) -> Result<(), Stop> {
        let command = place.site.worker(host, &place.path);
        let name = format!("{}, {}", place.site.name, host.login);
        let process = Process::start(&command, self.all.len(), messages);
        let process = process.inspect_err(|error| {
            viewer.note(&format!("{name}: the worker cannot be started: {error}"));
        });
        self.serve.push(written(&Order::Serve(Serve {
            loopback: host.loopback(),
            ports: place.site.ports,
        }))?);
        self.all.push(Worker {
            side,
            name,
            host: host.clone(),
            process: process.ok(),
            ready: false,
            peer: None,
            load: 0,
            heard: Moment::now(),
            rests_until: Moment::default(),
            failures: 0,
        });
        Ok(())
    }

    /// Returns the site and the host of a worker.
    pub fn name(&self, number: WorkerNumber) -> &str {
        &self.all[number].name
    }

    /// Returns the numbers of ready source and destination workers.
    pub fn counts(&self) -> [usize; 2] {
        let ready = |side| {
            let of_side = self.all.iter().filter(|worker| worker.side == side);
            of_side.filter(|worker| worker.ready).count()
        };
        [ready(Side::Source), ready(Side::Destination)]
    }

    /// True if the worker has not ended.
    pub fn is_running(&self, number: WorkerNumber) -> bool {
        self.all[number].process.is_some()
    }

    /// True if any worker has not ended.
    pub fn are_running(&self) -> bool {
        self.all.iter().any(|worker| worker.process.is_some())
    }

    /// Records that a worker has ended.
    pub fn set_lost(&mut self, number: WorkerNumber) {
        let worker = &mut self.all[number];
        worker.ready = false;
        worker.process = None;
    }

    /// Records a report.
    pub fn hear(&mut self, number: WorkerNumber, now: Moment) {
        self.all[number].heard = now;
    }

    /// Returns the workers with sessions that gave no sign of life for the lease.
    pub fn silent(&self, now: Moment) -> Vec<WorkerNumber> {
        let numbers = 0..self.all.len();
        let silent = numbers.filter(|&number| {
            let worker = &self.all[number];
            worker.ready && worker.load > 0 && now.since(worker.heard) >= self.lease
        });
        silent.collect()
    }

    /// Returns an error if all workers of a site have ended.
    pub fn check_sites(&self) -> Result<(), Stop> {
        for (side, site) in [Side::Source, Side::Destination].iter().zip(&self.sites) {
            let mut of_side = self.all.iter().filter(|worker| worker.side == *side);
            if !of_side.any(|worker| worker.process.is_some()) {
                let text = format!(
                    "no worker of site {site} is left: check its hosts, ssh and longhaul there; \
                     the same command resumes the copy"
                );
                return Err(Stop::new(Exit::Connection, text));
            }
        }
        Ok(())
    }

    /// Sends the transfer to a worker that has started.
    ///
    /// # Errors
    ///
    /// The worker is another release.
    pub fn begin(&mut self, number: WorkerNumber, version: &str) -> Result<(), Stop> {
        let worker = &mut self.all[number];
        if version != VERSION {
            let text = format!(
                "{}: longhaul there is release {version}, and here {VERSION}: install the same",
                worker.name
            );
            return Err(Stop::new(Exit::Usage, text));
        }
        worker.ready = worker.side == Side::Source;
        if let Some(process) = &worker.process {
            process.send(self.begin.clone());
            if worker.side == Side::Destination {
                process.send(self.serve[number].clone());
            }
        }
        Ok(())
    }

    /// Records the daemon of a destination's worker.
    ///
    /// # Errors
    ///
    /// The report is invalid.
    pub fn serve(
        &mut self,
        number: WorkerNumber,
        port: u16,
        [fingerprint, principal, token]: [String; 3],
    ) -> Result<(), Stop> {
        let worker = &mut self.all[number];
        let peer = Peer {
            address: worker.host.address.clone(),
            port,
            fingerprint,
            principal,
            token,
        };
        if worker.side == Side::Source || !peer.is_valid() {
            let text = format!("{}: the worker reports an invalid daemon", worker.name);
            return Err(Stop::new(Exit::Connection, text));
        }
        worker.peer = Some(peer);
        worker.ready = true;
        Ok(())
    }

    fn is_free(&self, worker: &Worker, now: Moment) -> bool {
        worker.ready
            && worker.process.is_some()
            && now.since(worker.heard) < self.lease
            && now >= worker.rests_until
    }

    /// Returns the source workers that can run another session, the least loaded first.
    pub fn free_sources(&self, now: Moment) -> Vec<WorkerNumber> {
        let numbers = 0..self.all.len();
        let mut free: Vec<WorkerNumber> = numbers
            .filter(|&number| {
                let worker = &self.all[number];
                let is_source = worker.side == Side::Source && worker.load < SESSIONS;
                is_source && self.is_free(worker, now)
            })
            .collect();
        free.sort_by_key(|&number| self.all[number].load);
        free
    }

    /// Returns the destination for a source's next session: the least loaded one; among equals, the
    /// one with the source's number in turn.
    pub fn destination(&self, source: WorkerNumber, now: Moment) -> Option<WorkerNumber> {
        let count = self.all.len().max(1);
        let numbers = (0..self.all.len()).filter(|&number| {
            let worker = &self.all[number];
            worker.side == Side::Destination && self.is_free(worker, now)
        });
        let numbers: Vec<WorkerNumber> = numbers.collect();
        let preferred = source % numbers.len().max(1);
        let distance = |index: usize| (index + count - preferred) % numbers.len().max(1);
        let ranked = numbers.iter().enumerate();
        let best = ranked.min_by_key(|(index, number)| (self.all[**number].load, distance(*index)));
        best.map(|(_, number)| *number)
    }

    /// Returns the daemon of a destination.
    pub fn peer(&self, number: WorkerNumber) -> Option<&Peer> {
        self.all[number].peer.as_ref()
    }

    /// Sends an order to a worker.
    ///
    /// # Errors
    ///
    /// The order cannot be written.
    pub fn order(&self, number: WorkerNumber, order: &Order) -> Result<(), Stop> {
        if let Some(process) = &self.all[number].process {
            process.send(written(order)?);
        }
        Ok(())
    }

    /// Counts a session that begins between two workers.
    pub fn join(&mut self, pair: [WorkerNumber; 2]) {
        for number in pair {
            self.all[number].load += 1;
        }
    }

    /// Counts a session that ended between two workers. After a failure, both pause.
    pub fn part(&mut self, pair: [WorkerNumber; 2], failed: bool, now: Moment) {
        for number in pair {
            let worker = &mut self.all[number];
            worker.load = worker.load.saturating_sub(1);
            worker.failures = if failed { worker.failures + 1 } else { 0 };
            if failed {
                worker.rests_until = now.after(REST * worker.failures.min(10));
            }
        }
    }

    /// Asks all workers to end.
    pub fn close(&mut self) {
        for process in self
            .all
            .iter_mut()
            .filter_map(|worker| worker.process.as_mut())
        {
            process.close();
        }
    }
}
