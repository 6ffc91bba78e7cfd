//! Reports to the sender about arrivals, durable pieces and room.

use std::collections::{BTreeMap, BTreeSet};

use super::load::{Load, NUMBER_BYTES};
use super::outcomes::take_chunks;
use crate::block::PieceName;
use crate::message::Message;
use crate::session::StreamId;

/// Maximum number of pieces in one [`Message::Durable`].
const MAXIMUM_DURABLE: usize = 4096;

/// Maximum number of unsent durable pieces per entry under way. It bounds the memory for a sender
/// that does not read.
const UNSENT_PER_ENTRY: usize = 4;

/// Arrivals, durable pieces and room that the sender must learn of.
#[derive(Debug)]
pub struct Acks {
    durable: Vec<PieceName>,
    /// Number of blocks that arrived on each stream.
    arrived: BTreeMap<u32, u64>,
    /// Streams with arrivals that were not yet reported.
    unreported: BTreeSet<u32>,
    has_room: bool,
    reported_room: bool,
}

impl Acks {
    pub(super) fn new() -> Acks {
        Acks {
            durable: Vec::new(),
            arrived: BTreeMap::new(),
            unreported: BTreeSet::new(),
            has_room: true,
            reported_room: true,
        }
    }

    /// Counts a block that arrived on a stream, also if it is dropped.
    pub fn handle_arrival(&mut self, stream: StreamId) {
        *self.arrived.entry(stream.0).or_default() += 1;
        self.unreported.insert(stream.0);
    }

    /// Handles the loss of a stream. Its arrivals are no longer reported.
    pub fn handle_stream_down(&mut self, stream: StreamId) {
        self.arrived.remove(&stream.0);
        self.unreported.remove(&stream.0);
    }

    /// Handles a change of the room for blocks at this end.
    pub fn handle_room(&mut self, room: bool) {
        self.has_room = room;
    }

    /// True if the sender may send more: the last value given to [`Acks::handle_room`].
    pub fn has_room(&self) -> bool {
        self.has_room
    }

    /// Adds pieces that are durable.
    pub(super) fn push_durable(&mut self, pieces: impl Iterator<Item = PieceName>) {
        self.durable.extend(pieces);
    }

    fn has_arrivals(&self) -> bool {
        !self.unreported.is_empty() || self.has_room != self.reported_room
    }

    pub(super) fn has_message(&self) -> bool {
        self.has_arrivals() || !self.durable.is_empty()
    }

    /// Takes the messages about everything that was not yet reported.
    pub(super) fn take_messages(&mut self, epoch: u64) -> Vec<Message> {
        let mut messages = Vec::new();
        if self.has_arrivals() {
            self.reported_room = self.has_room;
            let unreported = std::mem::take(&mut self.unreported).into_iter();
            let counts = unreported.filter_map(|stream| {
                let blocks = self.arrived.get(&stream)?;
                Some((stream, *blocks))
            });
            messages.push(Message::Arrived {
                streams: counts.collect(),
                room: self.has_room,
            });
        }
        let chunks = take_chunks(&mut self.durable, MAXIMUM_DURABLE).into_iter();
        messages.extend(chunks.map(|pieces| Message::Durable { epoch, pieces }));
        messages
    }

    pub(super) fn load(&self) -> Load {
        Load::of(self.durable.len(), NUMBER_BYTES).per_entry(UNSENT_PER_ENTRY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_and_room_are_reported_once() {
        let mut acks = Acks::new();
        assert!(!acks.has_message() && acks.take_messages(1).is_empty());
        for stream in [3, 3, 4] {
            acks.handle_arrival(StreamId(stream));
        }
        acks.handle_stream_down(StreamId(4));
        acks.handle_room(false);
        let arrived = |streams, room| vec![Message::Arrived { streams, room }];
        assert_eq!(acks.take_messages(1), arrived(vec![(3, 2)], false));
        assert!(!acks.has_message() && !acks.has_room());
        acks.handle_room(true);
        assert_eq!(acks.take_messages(1), arrived(Vec::new(), true));
    }
}
