//! Conditions that hold in every run.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_proto::account::Account;
use longhaul_proto::block::{BlockHeader, Content};
use longhaul_proto::ledger::RangeSet;
use longhaul_proto::manifest::{Entry, EntryId, EntryKind};
use longhaul_proto::message::{FailureKind, Message, Outcome, Totals};
use longhaul_proto::receiver::ReceivedEvent;
use longhaul_proto::sender::{Ending, EntryEvent, ReadData, ReadJob};
use longhaul_units::Moment;

use super::disk::Disk;
use super::network::End;
use super::receiving::Receiving;
use super::sending::Sending;
use super::source::{self, Node, NodeKind};
use super::world::World;

/// Observations of a run.
#[derive(Default)]
pub struct Checks {
    /// Durable ranges that the sender learned of, by node and version.
    durable: BTreeMap<(usize, u32), RangeSet>,
    /// Nodes that the sender learned were committed, with the committed kind, over all sessions.
    committed: BTreeMap<usize, EntryKind>,
    /// Entries that are done in this session.
    done: BTreeSet<EntryId>,
    versions: BTreeMap<(EntryId, u32), u32>,
    endings: BTreeMap<EntryId, Ending>,
    outcomes: BTreeMap<EntryId, (Option<Entry>, Option<Outcome>)>,
    stale: Vec<Message>,
    /// Number of sessions after the first one.
    pub restarts: u32,
    pub blocks_sent: u64,
    pub bytes_sent: u64,
    /// Bytes that the sender wrote, with headers and messages, by time.
    pub wire: Vec<(Moment, u64)>,
    pub first_sent: Option<Moment>,
    pub last_sent: Moment,
    pub last_arrival: Moment,
}

impl Checks {
    /// Begins a new session. Returns messages of the old one that could arrive late.
    pub fn begin_session(&mut self) -> Vec<Message> {
        self.restarts += 1;
        self.done.clear();
        self.versions.clear();
        self.endings.clear();
        self.outcomes.clear();
        std::mem::take(&mut self.stale)
    }

    /// Observes a message that an end sends.
    pub fn say(&mut self, message: &Message) {
        let late = matches!(message, Message::Durable { .. } | Message::Done { .. });
        if late && self.stale.len() < 20 {
            self.stale.push(message.clone());
        }
    }

    /// Checks a message that an end receives.
    pub fn hear(&mut self, end: End, message: &Message, sending: &Sending, disk: &Disk) {
        match message {
            Message::Durable { pieces, .. } if end == End::Sender => {
                for piece in pieces {
                    let Some(version) = self.versions.get(&(piece.file, piece.generation)) else {
                        continue;
                    };
                    let known = self.durable.entry((sending.nodes[&piece.file], *version));
                    known
                        .or_default()
                        .insert(piece.offset, piece.offset + piece.length);
                }
            }
            Message::Done { entries, .. } if end == End::Sender => {
                for (id, outcome) in entries {
                    assert!(self.done.insert(*id), "{id:?} is done twice");
                    if matches!(outcome, Outcome::Committed { .. }) {
                        let node = sending.nodes[id];
                        let named = disk.named.get(&sending.paths[&node]);
                        let kind = named.map(|named| named.entry.kind.clone());
                        self.committed.extend(kind.map(|kind| (node, kind)));
                    }
                }
            }
            _ => {}
        }
    }

    /// Checks that the sender reads no data that it knows to be at the destination.
    pub fn read(&mut self, job: &ReadJob, sending: &Sending) {
        match &job.data {
            ReadData::Piece { entry, piece } | ReadData::Front { entry, piece, .. } => {
                let version = source::version_of(entry);
                self.versions.insert((entry.id, piece.generation), version);
                self.assert_not_there(entry, sending);
                self.assert_not_durable(entry, piece.offset, piece.length, sending);
            }
            ReadData::Pack(jobs) => {
                for job in jobs {
                    self.assert_not_there(&job.entry, sending);
                }
            }
        }
    }

    fn assert_not_there(&self, entry: &Entry, sending: &Sending) {
        assert!(
            !self.done.contains(&entry.id),
            "{entry:?} is done and read again"
        );
        let heard = self.committed.get(&sending.nodes[&entry.id]);
        assert_ne!(
            heard,
            Some(&entry.kind),
            "{entry:?} was reported durable and is read again"
        );
    }

    fn assert_not_durable(&self, entry: &Entry, offset: u64, length: u64, sending: &Sending) {
        let key = (sending.nodes[&entry.id], source::version_of(entry));
        let known = self.durable.get(&key);
        assert!(
            known.is_none_or(|ranges| !ranges.overlaps(offset, offset + length)),
            "{entry:?} {offset}+{length} was reported durable and goes again"
        );
    }

    /// Observes a block that leaves the sender.
    pub fn send(&mut self, header: &BlockHeader, now: Moment, sending: &Sending) {
        self.blocks_sent += 1;
        self.bytes_sent += header.decoded;
        self.first_sent.get_or_insert(now);
        self.last_sent = now;
        match &header.content {
            Content::Piece(piece) => {
                self.assert_not_there(&piece.entry, sending);
                self.assert_not_durable(&piece.entry, piece.offset, piece.length, sending);
            }
            Content::Pack(pack) => {
                assert!(
                    pack.iter()
                        .any(|packed| !self.done.contains(&packed.entry.id))
                );
            }
        }
    }

    /// Observes a block that arrives.
    pub fn arrive(&mut self, now: Moment) {
        self.last_arrival = now;
    }

    /// Takes the events of both ends.
    pub fn drain_events(&mut self, sending: &mut Sending, receiving: &mut Receiving) {
        while let Some(event) = sending.sender.poll_event() {
            if let EntryEvent::Ended { entry, ending } = event {
                let earlier = self.endings.insert(entry.id, ending);
                assert!(earlier.is_none(), "{entry:?} ended twice");
            }
        }
        while let Some(event) = receiving.receiver.poll_event() {
            if let ReceivedEvent::Ended {
                entry, id, outcome, ..
            } = event
            {
                let earlier = self.outcomes.insert(id, (entry, outcome));
                assert!(earlier.is_none(), "{id:?} ended twice");
            }
        }
    }

    fn assert_ends_agree(&self, totals: Totals) {
        let mut counted = Totals {
            corrupt_blocks: totals.corrupt_blocks,
            duplicate_blocks: totals.duplicate_blocks,
            ..Totals::default()
        };
        for (id, (entry, outcome)) in &self.outcomes {
            match (outcome, &self.endings[id]) {
                (Some(Outcome::Committed { digest }), Ending::Committed(known)) => {
                    assert_eq!(digest, known);
                    counted.committed += 1;
                    counted.bytes += entry.as_ref().map_or(0, Entry::size);
                }
                (Some(Outcome::Failed(failure)), Ending::Failed(known)) => {
                    assert_eq!(failure, known);
                    counted.failed += 1;
                }
                (None, Ending::Skipped(_)) => counted.skipped += 1,
                (outcome, ending) => panic!("{id:?}: {outcome:?} here, {ending:?} there"),
            }
        }
        assert_eq!(
            self.outcomes.len(),
            self.endings.len(),
            "an end knows of fewer entries"
        );
        assert_eq!(totals, counted);
    }
}

impl World {
    /// Checks the final state after the end.
    pub fn check(&self) {
        let (sender, receiver) = (&self.sending.sender, &self.receiving.receiver);
        assert_eq!(
            (sender.work().tracked(), sender.blocks_under_way()),
            (0, 0),
            "{}",
            self.state()
        );
        assert_eq!(
            (receiver.files().under_way(), receiver.tracked()),
            (0, 0),
            "{}",
            self.state()
        );
        // Unnecessary blocks may arrive after the message that reports the end.
        let said = sender.finished().unwrap();
        let late = Totals {
            corrupt_blocks: said.corrupt_blocks,
            duplicate_blocks: said.duplicate_blocks,
            ..receiver.totals()
        };
        assert_eq!(said, late);
        self.checks.assert_ends_agree(receiver.totals());
        self.check_accounts();
        assert_eq!(self.checks.endings.len() as u64, self.sending.walked());
        for (index, node) in self.source.nodes.iter().enumerate() {
            self.check_node(index, node);
        }
    }

    /// Checks that every committed byte of this session is counted once.
    fn check_accounts(&self) {
        let totals = self.receiving.receiver.totals();
        let here = self.receiving.receiver.files().account();
        let there = self.sending.sender.account();
        let once = |account: Account| account.moved_bytes - account.moved_again_bytes;
        assert!(here.durable_bytes + here.resumed_bytes >= totals.bytes);
        assert!(once(here) + here.resumed_bytes >= totals.bytes, "{here:?}");
        let changed = |node: &Node| node.touched || node.version > 0;
        if totals.failed > 0 || self.source.nodes.iter().any(changed) {
            return;
        }
        for account in [here, there] {
            assert_eq!(account.durable_bytes + account.resumed_bytes, totals.bytes);
            assert_eq!(once(account) + account.resumed_bytes, totals.bytes);
        }
    }

    fn check_node(&self, index: usize, node: &Node) {
        let path = &node.path;
        if matches!(node.kind, NodeKind::Directory) {
            assert!(self.disk.finished_directories.contains(path) || node.unreadable);
            return;
        }
        let Some(named) = self.disk.named.get(path) else {
            let disk = &self.disk;
            let excused = [&disk.full, &disk.refused, &disk.conflicts];
            let excused = node.unreadable
                || node.vanished
                || node.version > 4
                || self.is_given_up(index)
                || excused.iter().any(|list| list.contains(path));
            assert!(excused, "{path} is missing: {node:?}");
            return;
        };
        if matches!(node.kind, NodeKind::Symlink) {
            assert!(named.data.is_empty());
            return;
        }
        let version = source::version_of(&named.entry);
        assert!(version <= node.version && (node.touched || version == node.version));
        assert_eq!(named.entry.size(), self.source.size(index, version));
        assert!(
            named.data == self.source.whole(index, version),
            "{path} is mixed"
        );
    }

    /// True if an entry of the node arrived corrupt too often and was given up.
    fn is_given_up(&self, index: usize) -> bool {
        let corrupt = |ending: &Ending| matches!(ending, Ending::Failed(failure) if failure.kind == FailureKind::Corrupt);
        self.checks.endings.iter().any(|(id, ending)| {
            self.sending.nodes[id] == index && self.scenario.corrupt > 0 && corrupt(ending)
        })
    }
}
