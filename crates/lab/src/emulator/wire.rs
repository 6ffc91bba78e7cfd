//! One direction of a path: the link decides the fate of each segment, and arriving
//! segments wait here until they are due.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use longhaul_units::Moment;

use super::store::{Cursor, Place, Store};
use crate::link::{Arrival, Damage, Fate, Link};
use crate::packet::cut::{self, PieceHeader};
use crate::packet::damage::damage;
use crate::packet::{OFFLOAD_BYTES, Offload, Packet};

/// Maximum time span of segments that are delivered together as one super-packet. It
/// keeps a slow line slow. It is about a third of the shortest RTT in paper 001 (0.4 ms).
/// From 4.3 Gbit/s, a whole super-packet fits.
const LONGEST_BATCH: Duration = Duration::from_micros(125);

/// A packet or piece of a packet that waits until it is due.
pub struct Waiting {
    /// Time of arrival.
    pub due: Moment,
    /// Index of the receiving host.
    pub to: usize,
    /// Location in the store: the whole packet with its offload header, or the payload of
    /// a piece.
    pub place: Place,
    /// Length of the stored part in bytes.
    pub length: usize,
    /// Offload header and packet headers of a piece; `None` for a whole packet.
    pub header: Option<Box<PieceHeader>>,
}

/// A packet that was read from a host.
#[derive(Clone, Copy)]
pub struct Read {
    /// Location in the store, beginning with the offload header.
    pub place: Place,
    /// Offload header.
    pub offload: Offload,
    /// Parsed packet headers.
    pub packet: Packet,
    /// Index of the receiving host.
    pub to: usize,
}

impl Read {
    fn whole_bytes(&self) -> usize {
        OFFLOAD_BYTES + self.packet.length
    }
}

/// A waiting part ordered by due time, then by order of arrival.
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

/// One direction of a path and its waiting packets.
pub struct Wire {
    /// Link that decides the fate of each segment.
    pub link: Link,
    queue: VecDeque<Waiting>,
    /// Parts that later parts may overtake.
    held: BinaryHeap<Held>,
    held_ever: u64,
    /// Number of packets that the firewall of the receiving site blocked.
    pub blocked: u64,
    /// Number of reads that returned a super-packet.
    pub super_packets: u64,
}

/// Consecutive segments that are delivered together.
#[derive(Clone, Copy)]
struct Batch {
    first: usize,
    count: usize,
    begin: Moment,
    due: Moment,
}

impl Wire {
    /// Creates a direction without waiting packets.
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

    /// Returns the time at which the next part is due.
    pub fn next_due(&self) -> Option<Moment> {
        let first = self.queue.front().map(|waiting| waiting.due);
        let held = self.held.peek().map(|held| held.waiting.due);
        first.into_iter().chain(held).min()
    }

    /// Removes and returns the next part that is due at `now` or earlier.
    pub fn take_due(&mut self, now: Moment) -> Option<Waiting> {
        let due = self.next_due().filter(|due| *due <= now)?;
        if self.queue.front().is_some_and(|waiting| waiting.due == due) {
            return self.queue.pop_front();
        }
        self.held.pop().map(|held| held.waiting)
    }

    /// Sends a packet, segment by segment. `store` holds the packet once on entry; on
    /// return it has one holder per waiting part.
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

    /// Queues the segments of a batch as one part.
    fn finish(&mut self, batch: Option<Batch>, read: &Read, store: &mut Store) {
        let Some(batch) = batch else { return };
        let cut = self.part(batch.first, batch.count, batch.due, read, store);
        if let Some(waiting) = cut {
            store.hold(waiting.place);
            self.queue.push_back(waiting);
        }
    }

    /// Returns some or all segments of a packet as one part. Adds no holder to the store.
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

    /// Queues a segment that is damaged, duplicated or held back.
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

/// Damages one segment with its offload header. False if the segment could not be
/// damaged.
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
