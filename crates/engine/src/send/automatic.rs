//! Chooses codecs while the transfer runs: finds what kind of data a block has, has what was
//! chosen with tried and used, and shows what is seen of the transfer to who decides.
//!
//! A block that is sent as it is takes the ways that it takes without codecs: where its kind
//! passes, it is asked about before it is read, and goes from the page cache or late. Until a path
//! is known to be worth a codec nothing is sampled.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_proto::block::{Codec, Content, PieceName};
use longhaul_proto::coding::{CodecUse, Kind};
use longhaul_proto::message::Observation;
use longhaul_proto::session::StreamId;
use longhaul_proto::shuffle::{Arrangement, ElementSize, Shuffle};

use super::Sending;
use super::kinds::{elements_of, kind_of_pack};
use super::payload::Payload;
use super::read::ReadBlock;
use crate::codec::choice::{CANDIDATES, Choose, CodecLook, Coded, CoresSeen};
use crate::codec::coder::Coder;
use crate::codec::recognise::HEAD_BYTES;
use crate::codec::sample::SAMPLE_BYTES;
use crate::net::StreamHandle;
use crate::queue::lock;
use crate::session::Machine;
use crate::session::observe::thread_cpu_time;
use crate::storage::StoredFile;

/// Bytes of a sample of small files: they come with many blocks.
const PACK_SAMPLE_BYTES: usize = 8 << 10;

/// A path with a shorter round trip shows by its windows nothing of what it carries.
const LONG_MICROSECONDS: u128 = 2_000;

/// The choice of codecs at a sending end.
pub(crate) struct Automatic {
    chooser: Mutex<Box<dyn Choose>>,
    /// The other end takes any codec, and says what that costs it.
    agreed: AtomicBool,
    /// A codec may be worth something now.
    is_active: AtomicBool,
    carried: Mutex<Carried>,
}

/// Bytes that streams' peers acknowledged, those of streams that ended included.
#[derive(Default)]
struct Carried {
    streams: HashMap<StreamId, u64>,
    sum: u64,
}

impl Automatic {
    /// Nothing is chosen before the other end agrees.
    pub fn new(chooser: Box<dyn Choose>) -> Automatic {
        Automatic {
            chooser: Mutex::new(chooser),
            agreed: AtomicBool::new(false),
            is_active: AtomicBool::new(false),
            carried: Mutex::default(),
        }
    }

    /// The other end said whether it takes any codec.
    pub fn handle_agreed(&self, agreed: bool) {
        self.agreed.store(agreed, Ordering::Relaxed);
    }

    fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Relaxed)
    }

    fn passes_plain(&self, kind: Kind, bytes: u64) -> bool {
        lock(&self.chooser).passes_plain(kind, bytes)
    }
}

impl Carried {
    fn look(&mut self, handles: &[(StreamId, u64)]) -> u64 {
        for (stream, acknowledged) in handles {
            let before = self.streams.insert(*stream, *acknowledged);
            let more = acknowledged.saturating_sub(before.unwrap_or(0));
            self.sum = self.sum.saturating_add(more);
        }
        let lives = |id: &StreamId| handles.iter().any(|(stream, _)| stream == id);
        self.streams.retain(|id, _| lives(id));
        self.sum
    }
}

/// What goes before a codec: bytes before zstd, which finds what repeats by itself, and bits
/// before lz4, which only finds what repeats byte by byte.
fn shuffle_before(codec: Codec, element: ElementSize) -> Shuffle {
    Shuffle {
        arrangement: match codec {
            Codec::Lz4 => Arrangement::Bits,
            _ => Arrangement::Bytes,
        },
        element,
    }
}

/// The middle of some data, at a multiple of the largest element.
fn middle_of(length: usize, wanted: usize) -> std::ops::Range<usize> {
    let from = length.saturating_sub(wanted) / 2 / 8 * 8;
    from..length.min(from + wanted)
}

impl Sending<'_> {
    /// Whether a piece in the page cache is sent as it is, so that it need not be read into a
    /// buffer. `room` is memory for a sample.
    pub(super) fn passes_in_cache(
        &self,
        file: &dyn StoredFile,
        piece: PieceName,
        room: &mut [u8],
    ) -> bool {
        let automatic = self.side.automatic.as_ref();
        let Some(automatic) = automatic.filter(|automatic| automatic.is_active()) else {
            return true;
        };
        let known = self.side.kinds.known(piece.file, piece.length);
        let kind = known.or_else(|| {
            let (head_room, room) = room.split_at_mut_checked(HEAD_BYTES)?;
            let at = middle_of(piece.length as usize, SAMPLE_BYTES.min(room.len()));
            let sample = &mut room[..at.len()];
            let read = file.read_cached_at(sample, piece.offset + at.start as u64);
            let head = match piece.offset {
                0 => file.read_cached_at(head_room, 0),
                _ => 0,
            };
            let head = Some(&head_room[..head]).filter(|head| !head.is_empty());
            let seen = (head, &sample[..read]);
            Some(
                self.side
                    .kinds
                    .handle_sample(piece.file, seen, self.side.elements),
            )
        });
        kind.is_some_and(|kind| self.passes(automatic, kind, piece.length))
    }

    fn passes(&self, automatic: &Automatic, kind: Kind, bytes: u64) -> bool {
        let passes = automatic.passes_plain(kind, bytes);
        if passes {
            self.note_plain(kind, bytes);
        }
        passes
    }

    fn note_plain(&self, kind: Kind, bytes: u64) {
        self.side.uses.add(CodecUse {
            kind: Some(kind),
            codec: Codec::Plain,
            shuffled: false,
            bytes,
            encoded: bytes,
            nanoseconds: 0,
        });
    }

    /// The kind of a block that was read, where a codec for it is to be thought about.
    pub(super) fn kind_to_code(&self, read: &ReadBlock) -> Option<Kind> {
        let automatic = self.side.automatic.as_ref()?;
        let Payload::Buffer(buffer) = &read.payload else {
            return None;
        };
        let data = buffer.filled();
        let flows = self.transfer.settings.flows.compressors;
        let can = || self.transfer.is_paired() || self.side.has_compressors(flows);
        if !automatic.is_active() || data.is_empty() || !can() {
            return None;
        }
        let kind = self.kind_of(&read.content, data);
        (!self.passes(automatic, kind, data.len() as u64)).then_some(kind)
    }

    /// The kind of a block's data.
    fn kind_of(&self, content: &Content, data: &[u8]) -> Kind {
        let Content::Piece(piece) = content else {
            // Files of many kinds.
            return kind_of_pack(&data[middle_of(data.len(), PACK_SAMPLE_BYTES)]);
        };
        let (kinds, file) = (&self.side.kinds, piece.entry.id);
        kinds.known(file, data.len() as u64).unwrap_or_else(|| {
            let is_front = piece.offset == 0 && piece.extents.is_none();
            let head = is_front.then(|| &data[..data.len().min(HEAD_BYTES)]);
            let sample = &data[middle_of(data.len(), SAMPLE_BYTES)];
            kinds.handle_sample(file, (head, sample), self.side.elements)
        })
    }

    /// What goes before the codec that the user named: for an array of numbers, where the other
    /// end can undo it.
    pub(super) fn shuffle_for(
        &self,
        codec: Codec,
        content: &Content,
        data: &[u8],
    ) -> Option<Shuffle> {
        let is_piece = matches!(content, Content::Piece(_));
        if !is_piece || !self.side.shuffles.load(Ordering::Relaxed) {
            return None;
        }
        self.shuffle_of(self.kind_of(content, data), codec)
    }

    /// The codec for a block of this kind, after trials on it where they are due; none if it is
    /// sent as it is.
    pub(super) fn choose_codec(
        &self,
        coder: &mut Coder,
        kind: Kind,
        data: &[u8],
    ) -> Option<(usize, Codec, Option<Shuffle>)> {
        let automatic = self.side.automatic.as_ref()?;
        let bytes = data.len() as u64;
        // Who comes meanwhile waits for what trials tell: they are short.
        let mut chooser = lock(&automatic.chooser);
        while let Some((place, wanted)) = chooser.next_trial(kind, bytes) {
            let codec = *CANDIDATES.get(place)?;
            let shuffle = self.shuffle_of(kind, codec);
            let sample = &data[middle_of(data.len(), wanted)];
            let began = thread_cpu_time();
            let encoded = coder.try_codec(codec, shuffle, sample);
            let nanoseconds = thread_cpu_time().saturating_sub(began);
            let coded = Coded {
                bytes: sample.len() as u64,
                encoded: encoded.unwrap_or(sample.len()) as u64,
                seconds: nanoseconds as f64 * 1e-9,
                was_trial: true,
            };
            chooser.handle_encoded(kind, place, coded);
            self.side.uses.add(CodecUse {
                kind: Some(kind),
                codec,
                shuffled: shuffle.is_some(),
                bytes: 0,
                encoded: 0,
                nanoseconds,
            });
        }
        let chosen = chooser.choose(kind, bytes);
        drop(chooser);
        let Some(place) = chosen.filter(|place| *place < CANDIDATES.len()) else {
            self.note_plain(kind, bytes);
            return None;
        };
        let codec = CANDIDATES[place];
        Some((place, codec, self.shuffle_of(kind, codec)))
    }

    fn shuffle_of(&self, kind: Kind, codec: Codec) -> Option<Shuffle> {
        let shuffles = self.side.shuffles.load(Ordering::Relaxed);
        let element = elements_of(kind).filter(|_| shuffles)?;
        Some(shuffle_before(codec, element))
    }

    /// Tells who chooses what became of a block.
    pub(super) fn note_encoded(&self, kind: Kind, place: usize, coded: Coded) {
        if let Some(automatic) = self.side.automatic.as_ref() {
            lock(&automatic.chooser).handle_encoded(kind, place, coded);
        }
    }

    /// Shows who chooses what is seen now.
    pub(super) fn look_for_codecs(&self) {
        let automatic = self.side.automatic.as_ref();
        let agreed = |automatic: &&Automatic| automatic.agreed.load(Ordering::Relaxed);
        let Some(automatic) = automatic.filter(agreed) else {
            return;
        };
        let look = self.codec_look(automatic);
        let is_active = lock(&automatic.chooser).handle_look(&look);
        automatic.is_active.store(is_active, Ordering::Relaxed);
    }

    fn codec_look(&self, automatic: &Automatic) -> CodecLook {
        let transfer = self.transfer;
        let handles = transfer.handles();
        let seen = see_streams(&handles);
        let shared = transfer.lock();
        let waits_prepared = !shared.has_nothing_prepared();
        let has_credit = match &shared.machine {
            Machine::Sending(sender) => handles.iter().any(|(id, _)| sender.has_ready_for(*id)),
            Machine::Receiving(_) => false,
        };
        let peer = shared.peer().clone();
        drop(shared);
        let carried = match seen.told {
            true => lock(&automatic.carried).look(&seen.acknowledged),
            false => transfer.counters.wire_bytes.load(Ordering::Relaxed),
        };
        let all = transfer.settings.cores as f64;
        // A bound of the rate is a path like others.
        let paced = transfer.paced();
        let bound = paced.map_or(f64::INFINITY, |(rate, _)| rate as f64);
        let waits_for_turn = paced.is_some_and(|(_, waits)| waits);
        let is_full = match seen.told {
            true => seen.is_full,
            false => waits_prepared && has_credit,
        };
        CodecLook {
            at: transfer.now().0 as f64 * 1e-9,
            carried,
            supplied: transfer.counters.read_bytes.load(Ordering::Relaxed),
            is_full: is_full || waits_for_turn,
            window_rate: match (seen.window_rate > 0.0, paced) {
                (false, Some(_)) => bound,
                _ => seen.window_rate.min(bound),
            },
            waits_for_codec: !self.side.coding.is_empty(),
            sender: CoresSeen {
                all,
                idle: transfer.idle_cores().map_or(all / 2.0, f64::from),
            },
            sender_uses: self.side.uses.list(),
            receiver: cores_of(&peer),
            receiver_uses: peer.codecs,
        }
    }
}

/// The other end's cores, where it told.
fn cores_of(peer: &Observation) -> Option<CoresSeen> {
    let all = f64::from(peer.cores);
    let idle = f64::from(peer.idle?);
    Some(CoresSeen {
        all,
        idle: idle.clamp(0.0, all),
    })
}

/// What kernels report about the streams.
struct StreamsSeen {
    /// They tell at all.
    told: bool,
    acknowledged: Vec<(StreamId, u64)>,
    /// Half of them have more to send than windows allow.
    is_full: bool,
    window_rate: f64,
}

fn see_streams(handles: &[(StreamId, StreamHandle)]) -> StreamsSeen {
    let (mut acknowledged, mut full, mut window_rate) = (Vec::new(), 0, 0.0);
    for (id, handle) in handles {
        let Some(info) = handle.tcp_info() else {
            continue;
        };
        let (Some(bytes), Some(unsent)) = (info.acknowledged, info.unsent) else {
            continue;
        };
        acknowledged.push((*id, bytes.0));
        full += usize::from(unsent.0 > 0);
        let window = u64::from(info.congestion_window_segments) * info.send_segment.0;
        if info.rtt.as_micros() >= LONG_MICROSECONDS {
            window_rate += window as f64 / info.rtt.as_secs_f64();
        }
    }
    StreamsSeen {
        told: !acknowledged.is_empty(),
        is_full: 2 * full >= acknowledged.len().max(1),
        acknowledged,
        window_rate,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ended_streams_carried_counts_on() {
        let mut carried = Carried::default();
        let (one, two) = (StreamId(1), StreamId(2));
        assert_eq!(carried.look(&[(one, 100), (two, 50)]), 150);
        assert_eq!(carried.look(&[(two, 80)]), 180);
        assert_eq!(carried.look(&[(two, 80), (StreamId(3), 20)]), 200);
    }

    #[test]
    fn samples_lie_in_the_middle_at_whole_elements() {
        assert_eq!(middle_of(100, 8), 40..48);
        assert_eq!(middle_of(5, 8), 0..5);
        assert_eq!(middle_of(0, 8), 0..0);
    }
}
