//! Chooses codecs during the transfer: finds the kind of data of a block, runs trials, applies the
//! chosen codec, and shows the state of the transfer to the chooser.
//!
//! A block without a codec takes the same ways as a transfer without codecs: the decision is made
//! before it is read, and it is sent from the page cache or read while it is sent. No data are
//! sampled until a path is known to be worth a codec.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use longhaul_proto::block::{Codec, Content, PieceName};
use longhaul_proto::coding::{CodecUse, Kind};
use longhaul_proto::shuffle::{Arrangement, ElementSize, Shuffle};
use longhaul_storage::StoredFile;
use longhaul_system::queue::lock;

use super::Sending;
use super::kinds::{elements_of, kind_of_pack, middle_of};
use super::payload::Payload;
use super::prepared::{Carried, Preparation};
use super::read::ReadBlock;
use super::wire_look::{WireLook, are_here, cores_of};
use crate::codec::choice::{CANDIDATES, Choose, CodecLook, Coded, CoresSeen, Deal};
use crate::codec::coder::Coder;
use crate::codec::recognise::HEAD_BYTES;
use crate::codec::sample::SAMPLE_BYTES;
use crate::session::observe::thread_cpu_time;

/// Decision for a block that is not sent as it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dealt {
    pub kind: Kind,
    /// Index of the codec; `None` if trials on the block decide.
    place: Option<usize>,
}

/// Choice of codecs at a sending end.
pub(crate) struct Automatic {
    chooser: Mutex<Box<dyn Choose>>,
    /// Held during trials: a thread with another block to try waits for their result. No other
    /// thread waits.
    trials: Mutex<()>,
    /// True if the other end has every codec and reports its costs.
    agreed: AtomicBool,
    /// True if a codec may be worthwhile now.
    is_active: AtomicBool,
    /// Number of blocks that are being encoded or tried.
    encoding: AtomicUsize,
    /// Number of times that the receiver had no room, as of the last observation.
    chokes: AtomicU64,
    wire: Mutex<WireLook>,
    carried: Mutex<Carried>,
}

impl Automatic {
    /// Creates a choice that is inactive until the other end agrees.
    pub fn new(chooser: Box<dyn Choose>) -> Automatic {
        Automatic {
            chooser: Mutex::new(chooser),
            trials: Mutex::new(()),
            agreed: AtomicBool::new(false),
            is_active: AtomicBool::new(false),
            encoding: AtomicUsize::new(0),
            chokes: AtomicU64::new(0),
            wire: Mutex::default(),
            carried: Mutex::default(),
        }
    }

    /// Records if the other end has every codec.
    pub fn handle_agreed(&self, agreed: bool) {
        self.agreed.store(agreed, Ordering::Relaxed);
    }

    fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Relaxed)
    }

    fn is_encoding(&self) -> bool {
        self.encoding.load(Ordering::Relaxed) > 0
    }
}

impl Automatic {
    /// Runs all trials that are due for a block of a kind. `run` takes the index of a codec and the
    /// number of bytes to try. The chooser is not locked meanwhile.
    fn try_due(&self, kind: Kind, bytes: u64, mut run: impl FnMut(usize, usize) -> Option<Coded>) {
        let _trying = lock(&self.trials);
        loop {
            let next = lock(&self.chooser).next_trial(kind, bytes);
            let Some((place, wanted)) = next else {
                return;
            };
            let Some(coded) = run(place, wanted) else {
                return;
            };
            lock(&self.chooser).handle_encoded(kind, place, coded);
        }
    }
}

/// Returns the shuffle before a codec: of bytes before zstd, which finds repeated sequences by
/// itself, and of bits before lz4, which finds only repeated bytes.
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
    /// Decides about a piece in the page cache before it is read into a buffer; `None` if it is
    /// sent as it is. `room` is a buffer for a sample.
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

    /// Decides about a block of this kind; `None` if it is sent as it is.
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

    /// Decides about a block in a buffer; `None` if it is sent as it is.
    pub(super) fn deal_read(&self, read: &ReadBlock) -> Option<Dealt> {
        let automatic = self.side.automatic.as_ref()?;
        let Payload::Buffer(buffer) = &read.payload else {
            return None;
        };
        let data = buffer.filled();
        if !automatic.is_active() || data.is_empty() {
            return None;
        }
        let dealt = read.dealt.or_else(|| {
            let kind = self.kind_of(&read.content, data);
            self.deal(automatic, kind, data.len() as u64)
        })?;
        // Compressors run from the first block that needs one.
        let flows = self.transfer.settings.flows.compressors;
        if self.transfer.settings.is_paired() || self.side.has_compressors(flows) {
            return Some(dealt);
        }
        self.note_plain(dealt.kind, data.len() as u64);
        None
    }

    /// Returns the kind of a block's data.
    fn kind_of(&self, content: &Content, data: &[u8]) -> Kind {
        let Content::Piece(piece) = content else {
            // A pack may hold files of several kinds.
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

    /// Returns the shuffle before the codec that the user named, for an array of numbers.
    pub(super) fn shuffle_for(
        &self,
        codec: Codec,
        content: &Content,
        data: &[u8],
    ) -> Option<Shuffle> {
        self.shuffle_of(self.kind_of(content, data), codec)
    }

    /// Runs an encoding and counts it while it runs.
    pub(super) fn noted_encoding<T>(&self, run: impl FnOnce() -> T) -> T {
        let Some(automatic) = self.side.automatic.as_ref() else {
            return run();
        };
        automatic.encoding.fetch_add(1, Ordering::Relaxed);
        let done = run();
        automatic.encoding.fetch_sub(1, Ordering::Relaxed);
        done
    }

    /// True if a block could have been sent without a codec in the time that it waited.
    pub(super) fn is_late(&self, bytes: u64, waited: Duration) -> bool {
        let automatic = self.side.automatic.as_ref();
        automatic.is_some_and(|of| lock(&of.chooser).is_late(bytes, waited.as_secs_f64()))
    }

    /// Returns the codec for a block, after due trials on it; `None` if it is sent as it is.
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
            // The decision may be old.
            let renewed = lock(&automatic.chooser).renew(kind, place);
            if renewed.is_none() {
                self.note_plain(kind, data.len() as u64);
            }
            return renewed.and_then(with);
        }
        let bytes = data.len() as u64;
        automatic.try_due(kind, bytes, |place, wanted| {
            let codec = *CANDIDATES.get(place)?;
            let shuffle = self.shuffle_of(kind, codec);
            let sample = &data[middle_of(data.len(), wanted)];
            let began = thread_cpu_time();
            let encoded = coder.try_codec(codec, shuffle, sample);
            let nanoseconds = thread_cpu_time().saturating_sub(began);
            self.side.uses.add(CodecUse {
                kind: Some(kind),
                codec,
                shuffled: shuffle.is_some(),
                bytes: 0,
                encoded: 0,
                nanoseconds,
            });
            Some(Coded {
                bytes: sample.len() as u64,
                encoded: encoded.unwrap_or(sample.len()) as u64,
                seconds: nanoseconds as f64 * 1e-9,
                was_trial: true,
            })
        });
        let chosen = lock(&automatic.chooser).choose(kind, bytes);
        if chosen.is_none() {
            self.note_plain(kind, bytes);
        }
        chosen.and_then(with)
    }

    fn shuffle_of(&self, kind: Kind, codec: Codec) -> Option<Shuffle> {
        Some(shuffle_before(codec, elements_of(kind)?))
    }

    /// Reports the result of an encoding to the chooser.
    pub(super) fn note_encoded(&self, kind: Kind, place: usize, coded: Coded) {
        if let Some(automatic) = self.side.automatic.as_ref() {
            lock(&automatic.chooser).handle_encoded(kind, place, coded);
        }
    }

    /// Shows the state of the transfer to the chooser.
    pub(super) fn look_for_codecs(&self) {
        let automatic = self.side.automatic.as_ref();
        let agreed = |automatic: &&Automatic| automatic.agreed.load(Ordering::Relaxed);
        let Some(automatic) = automatic.filter(agreed) else {
            return;
        };
        let look = self.codec_look(automatic);
        let is_active = lock(&automatic.chooser).handle_look(&look);
        automatic.is_active.store(is_active, Ordering::Relaxed);
        let prepared = self.preparation(automatic, &look);
        let mut shared = self.transfer.lock();
        if let Some(sender) = shared.machine.sender_mut() {
            sender.bound_blocks(prepared.block_bytes);
        }
        if shared.ready.bound(prepared.waiting_bytes) {
            self.transfer.signals.reading.notify_all();
        }
    }

    /// Returns the limits of prepared data for the current path.
    fn preparation(&self, automatic: &Automatic, look: &CodecLook) -> Preparation {
        let transfer = self.transfer;
        let carried = lock(&automatic.carried).handle_look(transfer.now(), look.carried);
        if !look.has_path {
            return Preparation::UNBOUND;
        }
        let counted = |counter: &AtomicU64| counter.load(Ordering::Relaxed).max(1) as f64;
        let counters = &transfer.counters;
        let ratio = counted(&counters.coded_from) / counted(&counters.coded_to);
        let rate = carried.max(look.window_rate);
        let streams = transfer.lock().stream_count();
        let most = transfer.settings.block_bytes as u64;
        Preparation::for_path(rate, ratio, streams, most)
    }

    /// Returns the number of cores that codecs can use at once here: one for each flow, but no more
    /// than the buffers for the output of codecs.
    fn usable_cores(&self, streams: usize) -> f64 {
        let flows = if self.transfer.settings.is_paired() {
            streams
        } else {
            self.transfer.settings.flows.compressors
        };
        let pool = &self.transfer.pool;
        let half = pool.all_buffers() / 2;
        flows.min(half).max(1) as f64
    }

    fn codec_look(&self, automatic: &Automatic) -> CodecLook {
        let transfer = self.transfer;
        let handles = transfer.measurements().handles();
        let infos: Vec<_> = handles
            .iter()
            .filter_map(|(id, handle)| Some((*id, handle.tcp_info()?)))
            .collect();
        let shared = transfer.lock();
        let waits_prepared = !shared.ready.is_empty();
        let ((has_room, chokes), is_ready) = match shared.machine.sender() {
            Some(sender) => {
                let is_ready = handles.iter().any(|(id, _)| sender.has_ready_for(*id));
                (sender.streams().room(), is_ready)
            }
            None => ((false, 0), false),
        };
        let chokes_before = automatic.chokes.swap(chokes, Ordering::Relaxed);
        let peer = shared.steering.peer().clone();
        drop(shared);
        let seen = lock(&automatic.wire).handle_look(&infos);
        let wire_bytes = || transfer.counters.wire_bytes.load(Ordering::Relaxed);
        // A rate limit counts as a path, also within a host.
        let paced = transfer.measurements().paced();
        let bound = paced.map_or(f64::INFINITY, |(rate, _)| rate as f64);
        let waits_for_turn = paced.is_some_and(|(_, waits)| waits);
        let ends = handles.iter().map(|(_, handle)| handle.addresses());
        let is_here = paced.is_none() && are_here(ends);
        let is_full = match seen.carried {
            Some(_) => seen.is_full,
            None => waits_prepared && is_ready,
        };
        let (at, all) = (
            transfer.now().0 as f64 * 1e-9,
            transfer.settings.cores as f64,
        );
        CodecLook {
            at,
            carried: seen.carried.unwrap_or_else(wire_bytes),
            supplied: transfer.counters.read_bytes.load(Ordering::Relaxed),
            is_full: (is_full || waits_for_turn) && !is_here,
            had_room: has_room && chokes == chokes_before,
            window_rate: match (seen.window_rate > 0.0, paced) {
                _ if is_here => 0.0,
                (false, Some(_)) => bound,
                _ => seen.window_rate.min(bound),
            },
            most_rate: bound,
            has_path: !is_here,
            waits_for_codec: !self.side.coding.is_empty() || automatic.is_encoding(),
            sender: CoresSeen {
                at,
                all,
                idle: transfer
                    .measurements()
                    .idle_cores()
                    .map_or(all / 2.0, f64::from),
                usable: self.usable_cores(handles.len()),
            },
            sender_uses: self.side.uses.list(),
            receiver: cores_of(&peer),
            receiver_uses: peer.codecs,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wants each candidate tried once.
    struct InTurn(usize);

    impl Choose for InTurn {
        fn handle_look(&mut self, _: &CodecLook) -> bool {
            true
        }

        fn deal(&mut self, _: Kind, _: u64) -> Deal {
            Deal::Plain
        }

        fn renew(&mut self, _: Kind, candidate: usize) -> Option<usize> {
            Some(candidate)
        }

        fn is_late(&self, _: u64, _: f64) -> bool {
            false
        }

        fn next_trial(&mut self, _: Kind, bytes: u64) -> Option<(usize, usize)> {
            (self.0 < CANDIDATES.len()).then_some((self.0, bytes as usize))
        }

        fn choose(&mut self, _: Kind, _: u64) -> Option<usize> {
            None
        }

        fn handle_encoded(&mut self, _: Kind, candidate: usize, coded: Coded) {
            assert!(coded.was_trial && candidate == self.0);
            self.0 += 1;
        }
    }

    /// A trial of a slow codec takes milliseconds. Readers, other compressors and the timer use the
    /// chooser meanwhile.
    #[test]
    fn trials_do_not_block_other_threads() {
        let automatic = Automatic::new(Box::new(InTurn(0)));
        let mut tried = 0;
        automatic.try_due(Kind::Text, 1000, |place, bytes| {
            let asked = automatic.chooser.try_lock();
            assert_eq!(asked.unwrap().deal(Kind::Text, 1), Deal::Plain);
            assert!(automatic.trials.try_lock().is_err(), "one at a time");
            tried += 1;
            assert_eq!(place + 1, tried);
            Some(Coded {
                bytes: bytes as u64,
                encoded: 1,
                seconds: 0.0,
                was_trial: true,
            })
        });
        assert_eq!(tried, CANDIDATES.len());
    }
}
