//! Chooses codecs while the transfer runs: finds what kind of data a block has, has what was
//! chosen with tried and used, and shows what is seen of the transfer to who decides.
//!
//! A block that is sent as it is takes the ways that it takes without codecs: what it gets is dealt
//! before it is read, and it goes from the page cache or late. Until a path is known to be worth a
//! codec nothing is sampled.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_proto::block::{Codec, Content, PieceName};
use longhaul_proto::coding::{CodecUse, Kind};
use longhaul_proto::shuffle::{Arrangement, ElementSize, Shuffle};

use super::Sending;
use super::kinds::{elements_of, kind_of_pack, middle_of};
use super::payload::Payload;
use super::read::ReadBlock;
use super::wire_look::{WireLook, cores_of};
use crate::codec::choice::{CANDIDATES, Choose, CodecLook, Coded, CoresSeen, Deal};
use crate::codec::coder::Coder;
use crate::codec::recognise::HEAD_BYTES;
use crate::codec::sample::SAMPLE_BYTES;
use crate::queue::lock;
use crate::session::Machine;
use crate::session::observe::thread_cpu_time;
use crate::storage::StoredFile;

/// What a block gets that is not sent as it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dealt {
    pub kind: Kind,
    /// The codec's place; none if trials on the block tell.
    place: Option<usize>,
}

/// The choice of codecs at a sending end.
pub(crate) struct Automatic {
    chooser: Mutex<Box<dyn Choose>>,
    /// The other end takes any codec, and says what that costs it.
    agreed: AtomicBool,
    /// A codec may be worth something now.
    is_active: AtomicBool,
    wire: Mutex<WireLook>,
}

impl Automatic {
    /// Nothing is chosen before the other end agrees.
    pub fn new(chooser: Box<dyn Choose>) -> Automatic {
        Automatic {
            chooser: Mutex::new(chooser),
            agreed: AtomicBool::new(false),
            is_active: AtomicBool::new(false),
            wire: Mutex::default(),
        }
    }

    /// The other end said whether it takes any codec.
    pub fn handle_agreed(&self, agreed: bool) {
        self.agreed.store(agreed, Ordering::Relaxed);
    }

    fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Relaxed)
    }
}

/// What goes before a codec: bytes before zstd, which finds what repeats by itself, and bits
/// before lz4, which only finds what repeats byte by byte.
pub(crate) fn shuffle_before(codec: Codec, element: ElementSize) -> Shuffle {
    Shuffle {
        arrangement: match codec {
            Codec::Lz4 => Arrangement::Bits,
            _ => Arrangement::Bytes,
        },
        element,
    }
}

impl Sending<'_> {
    /// What a piece in the page cache gets, before it is read into a buffer; none if it is sent as
    /// it is. `room` is memory for a sample.
    pub(super) fn deal_in_cache(
        &self,
        file: &dyn StoredFile,
        piece: PieceName,
        room: &mut [u8],
    ) -> Option<Dealt> {
        let automatic = self.side.automatic.as_ref()?;
        if !automatic.is_active() {
            return None;
        }
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
            let (kinds, elements) = (&self.side.kinds, self.side.elements);
            Some(kinds.handle_sample(piece.file, seen, elements))
        });
        self.deal(automatic, kind?, piece.length)
    }

    /// What a block of this kind gets; none if it is sent as it is.
    fn deal(&self, automatic: &Automatic, kind: Kind, bytes: u64) -> Option<Dealt> {
        let dealt = lock(&automatic.chooser).deal(kind, bytes);
        let place = match dealt {
            Deal::Plain => {
                self.note_plain(kind, bytes);
                return None;
            }
            Deal::Coded(place) => Some(place),
            Deal::Try => None,
        };
        Some(Dealt { kind, place })
    }

    pub(super) fn note_plain(&self, kind: Kind, bytes: u64) {
        self.side.uses.add(CodecUse {
            kind: Some(kind),
            codec: Codec::Plain,
            shuffled: false,
            bytes,
            encoded: bytes,
            nanoseconds: 0,
        });
    }

    /// What a block gets that was read into a buffer; none if it is sent as it is.
    pub(super) fn deal_read(&self, read: &ReadBlock) -> Option<Dealt> {
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
        read.dealt.or_else(|| {
            let kind = self.kind_of(&read.content, data);
            self.deal(automatic, kind, data.len() as u64)
        })
    }

    /// The kind of a block's data.
    fn kind_of(&self, content: &Content, data: &[u8]) -> Kind {
        let Content::Piece(piece) = content else {
            // Files of many kinds, or of one.
            return kind_of_pack(data);
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
        if !self.side.shuffles.load(Ordering::Relaxed) {
            return None;
        }
        self.shuffle_of(self.kind_of(content, data), codec)
    }

    /// The codec for a block, after trials on it where they are due; none if it is sent as it is.
    pub(super) fn choose_codec(
        &self,
        coder: &mut Coder,
        dealt: Dealt,
        data: &[u8],
    ) -> Option<(usize, Codec, Option<Shuffle>)> {
        let automatic = self.side.automatic.as_ref()?;
        let kind = dealt.kind;
        let with = |place: usize| {
            let codec = *CANDIDATES.get(place)?;
            Some((place, codec, self.shuffle_of(kind, codec)))
        };
        if let Some(place) = dealt.place {
            return with(place);
        }
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
        if chosen.is_none() {
            self.note_plain(kind, bytes);
        }
        chosen.and_then(with)
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
        let infos: Vec<_> = handles
            .iter()
            .filter_map(|(id, handle)| Some((*id, handle.tcp_info()?)))
            .collect();
        let shared = transfer.lock();
        let waits_prepared = !shared.has_nothing_prepared();
        let has_credit = match &shared.machine {
            Machine::Sending(sender) => handles.iter().any(|(id, _)| sender.has_ready_for(*id)),
            Machine::Receiving(_) => false,
        };
        let peer = shared.peer().clone();
        drop(shared);
        let seen = lock(&automatic.wire).handle_look(&infos, &peer);
        let wire_bytes = || transfer.counters.wire_bytes.load(Ordering::Relaxed);
        // A bound of the rate is a path like others.
        let paced = transfer.paced();
        let bound = paced.map_or(f64::INFINITY, |(rate, _)| rate as f64);
        let waits_for_turn = paced.is_some_and(|(_, waits)| waits);
        let is_full = match seen.carried {
            Some(_) => seen.is_full,
            None => waits_prepared && has_credit && !seen.is_stored_slowly,
        };
        let (at, all) = (
            transfer.now().0 as f64 * 1e-9,
            transfer.settings.cores as f64,
        );
        CodecLook {
            at,
            carried: seen.carried.unwrap_or_else(wire_bytes),
            supplied: transfer.counters.read_bytes.load(Ordering::Relaxed),
            is_full: is_full || waits_for_turn,
            window_rate: match (seen.window_rate > 0.0, paced) {
                (false, Some(_)) => bound,
                _ => seen.window_rate.min(bound),
            },
            waits_for_codec: !self.side.coding.is_empty(),
            sender: CoresSeen {
                at,
                all,
                idle: transfer.idle_cores().map_or(all / 2.0, f64::from),
            },
            sender_uses: self.side.uses.list(),
            receiver: cores_of(&peer),
            receiver_uses: peer.codecs,
        }
    }
}
