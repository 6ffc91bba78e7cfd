//! One direction of a path: the link says what becomes of each segment, and
//! what arrives waits here for its moment.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use longhaul_units::Moment;

use super::store::{Cursor, Place, Store};
use crate::link::{Arrival, Damage, Fate, Link};
use crate::packet::cut::{self, PieceHeader};
use crate::packet::damage::damage;
use crate::packet::{OFFLOAD_BYTES, Offload, Packet};

/// Segments of a super-packet arrive together when the last one does, but never more of them than
/// the line sends in this time, so that a slow line stays slow. It is about a third of the
/// shortest RTT in paper 001 (0.4 ms), and a whole super-packet from 4.3 Gbit/s.
const LONGEST_BATCH: Duration = Duration::from_micros(125);

/// Something that waits for its moment.
pub struct Waiting {
    /// When it arrives.
    pub due: Moment,
    /// At which host.
    pub to: usize,
    /// Where it lies: whole with its note, or the payload of a piece.
    pub place: Place,
    /// A number of bytes.
    pub length: usize,
    /// Note and headers of a piece.
    pub header: Option<Box<PieceHeader>>,
}

/// A packet that was read.
#[derive(Clone, Copy)]
pub struct Read {
    /// Where it lies, with its note.
    pub place: Place,
    /// Its note.
    pub offload: Offload,
    /// What its headers say.
    pub packet: Packet,
    /// Where it goes.
    pub to: usize,
}

impl Read {
    fn whole_bytes(&self) -> usize {
        OFFLOAD_BYTES + self.packet.length
    }
}

/// By moment, then by the order in which they came.
struct Held {
    key: Reverse<(Moment, u64)>,
    waiting: Waiting,
}

impl PartialEq for Held {
    fn eq(&self, other: &Held) -> bool {
        self.key == other.key
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Held) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    fn cmp(&self, other: &Held) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

/// One direction of a path.
pub struct Wire {
    /// What it does to segments.
    pub link: Link,
    queue: VecDeque<Waiting>,
    /// What others may overtake.
    held: BinaryHeap<Held>,
    held_ever: u64,
    /// Packets that the far site's firewall did not let in.
    pub blocked: u64,
    /// Reads that were super-packets.
    pub super_packets: u64,
}

/// Plain segments that follow each other.
#[derive(Clone, Copy)]
struct Batch {
    first: usize,
    count: usize,
    begin: Moment,
    due: Moment,
}

impl Wire {
    /// Nothing is on it.
    pub fn new(link: Link) -> Wire {
        Wire {
            link,
            queue: VecDeque::new(),
            held: BinaryHeap::new(),
            held_ever: 0,
            blocked: 0,
            super_packets: 0,
        }
    }

    /// When the next thing arrives.
    pub fn next_due(&self) -> Option<Moment> {
        let first = self.queue.front().map(|waiting| waiting.due);
        let held = self.held.peek().map(|held| held.waiting.due);
        first.into_iter().chain(held).min()
    }

    /// The next thing that has arrived by now.
    pub fn take_due(&mut self, now: Moment) -> Option<Waiting> {
        let due = self.next_due().filter(|due| *due <= now)?;
        if self.queue.front().is_some_and(|waiting| waiting.due == due) {
            return self.queue.pop_front();
        }
        self.held.pop().map(|held| held.waiting)
    }

    /// Sends a packet, segment by segment. `store` holds it once; when this
    /// returns it is held as often as parts of it wait.
    pub fn send(&mut self, now: Moment, read: &Read, store: &mut Store, cursor: &mut Cursor) {
        let segments = read.packet.segments();
        self.super_packets += u64::from(segments > 1);
        let mut batch: Option<Batch> = None;
        for index in 0..segments {
            match self.link.offer(now, read.packet.segment_bytes(index)) {
                Fate::Lost(_) => self.finish(batch.take(), read, store),
                Fate::Arrives(arrival) if arrival.is_plain() => match &mut batch {
                    Some(open) if arrival.at - open.begin <= LONGEST_BATCH => {
                        open.count += 1;
                        open.due = arrival.at;
                    }
                    _ => {
                        let next = Batch {
                            first: index,
                            count: 1,
                            begin: arrival.at,
                            due: arrival.at,
                        };
                        self.finish(batch.replace(next), read, store);
                    }
                },
                Fate::Arrives(arrival) => {
                    self.finish(batch.take(), read, store);
                    self.single(index, &arrival, read, store, cursor);
                }
            }
        }
        self.finish(batch, read, store);
        store.release(read.place);
    }

    /// Segments that arrive together wait as one.
    fn finish(&mut self, batch: Option<Batch>, read: &Read, store: &mut Store) {
        let Some(batch) = batch else { return };
        let cut = self.part(batch.first, batch.count, batch.due, read, store);
        if let Some(waiting) = cut {
            store.hold(waiting.place);
            self.queue.push_back(waiting);
        }
    }

    /// Some segments of a packet, or all; not held yet.
    fn part(
        &self,
        first: usize,
        count: usize,
        due: Moment,
        read: &Read,
        store: &Store,
    ) -> Option<Waiting> {
        let (to, place) = (read.to, read.place);
        if count == read.packet.segments() {
            return Some(Waiting {
                due,
                to,
                place,
                length: read.whole_bytes(),
                header: None,
            });
        }
        let whole = &store.bytes(place, read.whole_bytes())[OFFLOAD_BYTES..];
        let (header, payload) = cut::piece(whole, read.offload, &read.packet, first, count)?;
        Some(Waiting {
            due,
            to,
            place: place.plus(OFFLOAD_BYTES + payload.start),
            length: payload.len(),
            header: Some(Box::new(header)),
        })
    }

    /// A segment to which something happens.
    fn single(
        &mut self,
        index: usize,
        arrival: &Arrival,
        read: &Read,
        store: &mut Store,
        cursor: &mut Cursor,
    ) {
        let Some(part) = self.part(index, 1, arrival.at, read, store) else {
            return;
        };
        let waiting = match arrival.damage {
            None => {
                store.hold(part.place);
                part
            }
            Some(harm) => {
                let mut bytes = part
                    .header
                    .as_ref()
                    .map_or(Vec::new(), |h| h.as_bytes().to_vec());
                bytes.extend_from_slice(store.bytes(part.place, part.length));
                if corrupt(&mut bytes, &harm) {
                    self.link.note_damage(&harm);
                }
                let Some(room) = store.room(cursor) else {
                    return;
                };
                room[..bytes.len()].copy_from_slice(&bytes);
                let Some(place) = store.keep(cursor, bytes.len()) else {
                    return;
                };
                Waiting {
                    place,
                    length: bytes.len(),
                    header: None,
                    ..part
                }
            }
        };
        if arrival.doubled {
            store.hold(waiting.place);
            let twin = Waiting {
                header: waiting.header.clone(),
                ..waiting
            };
            self.put(twin, arrival.held);
        }
        self.put(waiting, arrival.held);
    }

    fn put(&mut self, waiting: Waiting, held: bool) {
        if !held {
            self.queue.push_back(waiting);
            return;
        }
        self.held_ever += 1;
        let key = Reverse((waiting.due, self.held_ever));
        self.held.push(Held { key, waiting });
    }
}

/// Damages one segment, note and packet; false where nothing of it could be.
fn corrupt(bytes: &mut [u8], harm: &Damage) -> bool {
    let Some((note, packet_bytes)) = bytes.split_first_chunk_mut::<OFFLOAD_BYTES>() else {
        return false;
    };
    let mut offload = Offload::from_bytes(*note);
    let Some(packet) = Packet::parse(packet_bytes, offload) else {
        return false;
    };
    let damaged = damage(packet_bytes, &mut offload, &packet, harm.place, harm.unseen);
    *note = offload.to_bytes();
    damaged
}
