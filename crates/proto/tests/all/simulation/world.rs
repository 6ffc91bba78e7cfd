//! Simulates two ends, a network between them, and a clock that jumps from event to event.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use longhaul_proto::control::ControlChannel;
use longhaul_proto::manifest::{Entry, EntryId};
use longhaul_proto::message::{Change, Message, Outcome};
use longhaul_proto::receiver::{Checkpoint, Compared, StorageJob};
use longhaul_proto::sender::ReadJob;
use longhaul_proto::session::{Life, Session};
use longhaul_units::Moment;

use super::checks::Checks;
use super::disk::Disk;
use super::network::{Conn, End, Frame};
use super::random::Random;
use super::receiving::{Receiving, WriteJob};
use super::scenario::{Fault, Scenario, Spans};
use super::sending::Sending;
use super::source::{NodeKind, Source};

/// State that both kinds of end have.
pub struct Side {
    pub control: ControlChannel,
    pub session: Session,
    wake: Option<Moment>,
}

/// An event at a moment.
pub enum Event {
    Walk,
    Read(ReadJob),
    Dial,
    Hello(usize),
    Arrive(usize, End, Frame),
    Left(usize, End, usize),
    Down(usize, End),
    Written(WriteJob),
    Stored(StorageJob),
    Reported(Report),
    Wake(End),
    Fault(Fault),
}

/// A report of the disk after data became durable.
pub enum Report {
    Compared(Vec<(Entry, Compared)>),
    Checkpointed(Vec<(Checkpoint, Option<longhaul_proto::message::Failure>)>),
    Committed(EntryId, u32, Result<(), longhaul_proto::message::Failure>),
    Directory(Entry, Result<(), longhaul_proto::message::Failure>),
    Planned(Entry, Option<Change>),
    Packed(Vec<(Entry, Outcome)>),
    ReadBack(EntryId, u32),
    Finished,
}

struct Due {
    at: Moment,
    order: u64,
    epoch: u64,
    event: Event,
}

impl PartialEq for Due {
    fn eq(&self, other: &Due) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Due) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// A simulated run.
pub struct World {
    pub scenario: Scenario,
    pub now: Moment,
    pub random: Random,
    pub source: Source,
    pub disk: Disk,
    pub conns: Vec<Conn>,
    pub epoch: u64,
    pub sides: [Side; 2],
    pub sending: Sending,
    pub receiving: Receiving,
    pub checks: Checks,
    /// Number of streams that should be up, and number being dialed.
    pub want: usize,
    pub dialing: usize,
    /// True if the dialer knows that its session was accepted.
    pub welcomed: bool,
    order: u64,
    due: BinaryHeap<Reverse<Due>>,
}

/// Maximum virtual time of a schedule.
const LONGEST: Moment = Moment(4_000_000_000_000);

impl World {
    pub fn new(scenario: Scenario) -> World {
        let mut random = Random::new(scenario.seed ^ 0xabcd);
        let mut disk = Disk::default();
        for node in &scenario.source.nodes {
            if random.chance(scenario.failing) {
                let file = matches!(node.kind, NodeKind::File { .. });
                let list = match random.below(3) {
                    0 if file => &mut disk.full,
                    1 => &mut disk.conflicts,
                    _ => &mut disk.refused,
                };
                list.insert(node.path.clone());
            }
        }
        let mut sender = scenario.sender;
        sender.epoch = 1;
        let mut world = World {
            now: Moment(0),
            random,
            source: scenario.source.clone(),
            disk,
            conns: Vec::new(),
            epoch: 0,
            sides: [
                Side::new(&scenario, Moment(0)),
                Side::new(&scenario, Moment(0)),
            ],
            sending: Sending::new(sender, scenario.receiver.integrity, &scenario.source),
            receiving: Receiving::new(scenario.receiver),
            checks: Checks::default(),
            want: scenario.links.len(),
            dialing: 0,
            welcomed: false,
            order: 0,
            due: BinaryHeap::new(),
            scenario,
        };
        world.start();
        for (at, fault) in world.scenario.faults.clone() {
            world.push_at(at, Event::Fault(fault));
        }
        world
    }

    /// Starts a new session of the transfer.
    fn start(&mut self) {
        self.epoch += 1;
        let mut sender = self.scenario.sender;
        self.welcomed = self.scenario.warm || self.scenario.dialer == End::Receiver;
        if self.welcomed {
            (sender.asks, sender.epoch) = (self.asks(), self.epoch);
        } else {
            (sender.asks, sender.epoch) = (true, 0);
        }
        let mut receiver = self.scenario.receiver;
        (receiver.compares, receiver.epoch) = (self.asks(), self.epoch);
        self.sides = [
            Side::new(&self.scenario, self.now),
            Side::new(&self.scenario, self.now),
        ];
        self.sending = Sending::new(sender, self.scenario.receiver.integrity, &self.source);
        self.receiving = Receiving::new(receiver);
        self.want = self.scenario.links.len();
        self.dialing = 0;
        if self.scenario.warm {
            self.join_all();
        }
        self.top_up();
        self.push(Duration::ZERO, Event::Walk);
    }

    /// True if the destination may have entries.
    pub fn asks(&self) -> bool {
        self.scenario.sender.asks || self.epoch > 1
    }

    /// Kills both processes and runs the same command again.
    pub fn restart(&mut self) {
        self.checks
            .drain_events(&mut self.sending, &mut self.receiving);
        let stale = self.checks.begin_session();
        self.disk.lose_volatile();
        for conn in &mut self.conns {
            conn.dead = true;
        }
        self.start();
        for message in stale {
            self.hear_stale(message);
        }
    }

    /// Delivers a message of an older session, which must have no effect on this one.
    fn hear_stale(&mut self, message: Message) {
        let now = self.now;
        self.sending.sender.handle_message(message, now).unwrap();
        assert!(self.sending.sender.poll_event().is_none());
    }

    pub fn push(&mut self, after: Duration, event: Event) {
        self.push_at(self.now + after, event);
    }

    pub fn push_at(&mut self, at: Moment, event: Event) {
        self.order += 1;
        let epoch = self.epoch;
        self.due.push(Reverse(Due {
            at,
            order: self.order,
            epoch,
            event,
        }));
    }

    /// Schedules an event after a random span.
    pub fn push_within(&mut self, spans: Spans, event: Event) {
        let after = self.random.span(spans);
        self.push(after, event);
    }

    /// Runs to the end of the transfer.
    pub fn run(&mut self) {
        self.pump();
        while self.sending.sender.finished().is_none() {
            let Some(Reverse(due)) = self.due.pop() else {
                panic!(
                    "nothing is left to happen and it has not ended: {}",
                    self.state()
                );
            };
            assert!(
                due.at < LONGEST && self.order < 3_000_000,
                "no end: {}",
                self.state()
            );
            self.now = due.at;
            let old = due.epoch != self.epoch;
            match due.event {
                Event::Fault(fault) => self.happen(fault),
                _ if old => continue,
                event => self.handle(event),
            }
            self.pump();
            self.end_if_over();
        }
        self.checks
            .drain_events(&mut self.sending, &mut self.receiving);
    }

    /// Returns the state of both ends, for a failed run.
    pub fn state(&self) -> String {
        format!(
            "at {:?}, epoch {}, {} streams wanted, {} dialing\nsender: {:?}\nreceiver: {:?}",
            self.now,
            self.epoch,
            self.want,
            self.dialing,
            self.sending.sender,
            self.receiving.receiver
        )
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Walk => self.handle_walk(),
            Event::Read(job) => self.handle_read(job),
            Event::Dial => self.handle_dial(),
            Event::Hello(conn) => self.handle_hello(conn),
            Event::Arrive(conn, to, frame) => self.handle_arrive(conn, to, frame),
            Event::Left(conn, from, bytes) => self.conns[conn].left(from, bytes),
            Event::Down(conn, end) => self.handle_down(conn, end),
            Event::Written(job) => self.handle_written(job),
            Event::Stored(job) => self.handle_stored(job),
            Event::Reported(report) => self.handle_report(report),
            Event::Wake(end) => {
                self.sides[end.index()].wake = None;
                let now = self.now;
                self.sides[end.index()].session.handle_timeout(now);
            }
            Event::Fault(_) => {}
        }
    }

    fn happen(&mut self, fault: Fault) {
        match fault {
            Fault::Kill(n) => {
                let live = self.live();
                if !live.is_empty() {
                    self.kill(live[(n % live.len() as u64) as usize]);
                }
            }
            Fault::Cut => self.live().into_iter().for_each(|conn| self.kill(conn)),
            Fault::Restart => self.restart(),
            Fault::Change(n) => self.touch(n, |node| node.version += 1),
            Fault::Vanish(n) => self.touch(n, |node| node.vanished = true),
            Fault::SetFlows(readers, streams, writers) => {
                let flows = longhaul_proto::message::Flows {
                    readers: Some(readers),
                    streams: Some(streams),
                    writers: Some(writers),
                    ..Default::default()
                };
                self.steer(&Message::SetFlows(flows));
            }
        }
    }

    fn touch(&mut self, n: u64, change: impl Fn(&mut super::source::Node)) {
        let count = self.source.nodes.len() as u64;
        if count > 0 {
            let node = &mut self.source.nodes[(n % count) as usize];
            if matches!(node.kind, NodeKind::File { .. }) {
                node.touched = true;
                change(node);
            }
        }
    }

    /// Sends a steering message to the other end and obeys it at this end.
    fn steer(&mut self, message: &Message) {
        let steerer = self.scenario.steerer;
        self.sides[steerer.index()].control.push(message).unwrap();
        self.obey(steerer, message);
    }

    /// Applies a steering message at an end.
    pub fn obey(&mut self, end: End, message: &Message) {
        if let Message::SetFlows(flows) = message {
            if end == End::Sender {
                self.sending.readers = flows.readers.map(|n| n as usize);
            } else {
                self.receiving.writers = flows.writers.map(|n| n as usize);
            }
            if end == self.scenario.dialer
                && let Some(streams) = flows.streams
            {
                self.want = streams as usize;
                self.top_up();
            }
        }
    }

    /// Handles all pending work of both ends.
    fn pump(&mut self) {
        self.pump_sender();
        self.pump_receiver();
        for end in [End::Sender, End::Receiver] {
            self.pump_control(end);
            self.set_alarm(end);
        }
    }

    fn set_alarm(&mut self, end: End) {
        let own = match end {
            End::Sender => self.sending.sender.poll_timeout(self.now),
            End::Receiver => self.receiving.receiver.files().durability().poll_timeout(),
        };
        let side = &mut self.sides[end.index()];
        let next = own.into_iter().chain(side.session.poll_timeout()).min();
        if let Some(next) = next
            && side.wake.is_none_or(|wake| next < wake)
        {
            side.wake = Some(next);
            let at = next.max(self.now);
            self.push_at(at, Event::Wake(end));
        }
    }

    fn end_if_over(&mut self) {
        let over = |side: &Side| matches!(side.session.life(), Life::Over(_));
        if self.sides.iter().any(over) {
            self.restart();
            self.pump();
        }
    }
}

impl Side {
    fn new(scenario: &Scenario, now: Moment) -> Side {
        Side {
            control: ControlChannel::default(),
            session: Session::new(scenario.linger.max(scenario.first_linger()), now),
            wake: None,
        }
    }
}

impl Scenario {
    /// Returns a linger time in which a session's first stream can join.
    fn first_linger(&self) -> Duration {
        let slowest = self.links.iter().map(|link| link.latency).max();
        slowest.unwrap_or_default() * 6 + self.redial.1 + Duration::from_millis(100)
    }
}
