//! The compression layer: encodes blocks on flows of its own if a codec is requested and makes them
//! smaller; passes other blocks on unchanged.

use std::time::Duration;

use longhaul_proto::block::{Codec, Content};
use longhaul_proto::coding::{CodecUse, Kind};
use longhaul_proto::manifest::EntryId;
use longhaul_proto::sender::{BlockId, PackedRead, PieceRead};
use longhaul_proto::session::StreamId;
use longhaul_proto::shuffle::Shuffle;
use longhaul_units::Moment;

use super::Sending;
use super::automatic::Dealt;
use super::payload::Payload;
use super::read::{ReadBlock, codec_for};
use super::seal::seal;
use crate::codec::bound;
use crate::codec::choice::Coded;
use crate::codec::coder::Coder;
use crate::flows::Flow;
use crate::pool::Buffer;
use crate::session::Counters;
use crate::session::observe::thread_cpu_time;
use crate::session::stages::WireBlock;

/// A block from a reader: the result of the read, and the data.
pub struct Uncoded {
    pub(crate) block: BlockId,
    pub(crate) verdict: Verdict,
    pub(crate) read: Option<ReadBlock>,
}

/// Result of a read, for the state machine.
pub(crate) enum Verdict {
    Piece(PieceRead),
    Pack(Vec<(EntryId, PackedRead)>),
}

/// A block whose payload is encoded, or unchanged.
pub struct CodedBlock {
    pub(crate) content: Content,
    pub(crate) codec: Codec,
    /// Shuffle before the codec.
    pub(crate) shuffle: Option<Shuffle>,
    /// Number of bytes before encoding.
    pub(crate) decoded: usize,
    pub(crate) payload: Payload,
}

/// Codec that a block should have.
#[derive(Clone, Copy)]
enum Wish {
    /// The codec that the user named.
    Named(Codec),
    /// The codec that is chosen for it.
    Chosen(Dealt),
}

/// A block that waits for a compressor.
pub(crate) struct Queued {
    block: BlockId,
    verdict: Verdict,
    read: ReadBlock,
    wish: Wish,
    since: Moment,
}

/// Minimum waiting time for a compressor after which a block may be sent without a codec, if
/// streams have no data to send and the user did not name the codec.
const LATE: Duration = Duration::from_millis(20);

/// A codec for a block, and the receiver of its result.
struct Use {
    codec: Codec,
    shuffle: Option<Shuffle>,
    /// For a chosen codec, the kind of data and its index among the candidates.
    chosen: Option<(Kind, usize)>,
}

impl Sending<'_> {
    /// Returns the codec for a block; `None` if it is sent as it is.
    fn wish_for(&self, codec: Codec, read: &ReadBlock) -> Option<Wish> {
        if read.payload.len() == 0 {
            return None;
        }
        match codec {
            Codec::Plain => self.deal_read(read).map(Wish::Chosen),
            Codec::Omitted => None,
            codec => Some(Wish::Named(codec)),
        }
    }

    /// Returns the codec that the user named.
    fn named_codec(&self) -> Codec {
        let settings = &self.transfer.settings;
        codec_for(settings.operation, settings.codec)
    }

    /// Passes a block from a reader to the compressors if it gets a codec, otherwise to the wire.
    pub(crate) fn pass_to_coding(&self, uncoded: Uncoded) {
        let Uncoded {
            block,
            verdict,
            read,
        } = uncoded;
        let codec = self.named_codec();
        let wish = read.as_ref().and_then(|read| self.wish_for(codec, read));
        match (wish, read) {
            (Some(wish), Some(read)) => self.side.coding.push(Queued {
                block,
                verdict,
                read,
                wish,
                since: self.transfer.now(),
            }),
            (_, read) => {
                let coded = read.map(|read| uncoded_block(read, codec));
                self.hand_to_wire(block, verdict, coded, None);
            }
        }
    }

    /// Encodes a block on the thread of a stream that read it; returns the block that the stream
    /// sends next.
    pub(crate) fn encode_for(
        &self,
        stream: StreamId,
        uncoded: Uncoded,
        coder: &mut Option<Coder>,
    ) -> Option<Box<dyn WireBlock>> {
        let Uncoded {
            block,
            verdict,
            read,
        } = uncoded;
        let codec = self.named_codec();
        let wish = read.as_ref().and_then(|read| self.wish_for(codec, read));
        let coded = match (wish, read) {
            (Some(wish), Some(read)) => {
                let coder = self.coder(coder)?;
                let encode = || self.encode(coder, wish, read);
                Some(self.side.busy_encoding(|| self.noted_encoding(encode)))
            }
            (_, read) => read.map(|read| uncoded_block(read, codec)),
        };
        self.hand_to_wire(block, verdict, coded, Some(stream))
    }

    /// Returns a flow's compressor, which is created for its first block.
    fn coder<'c>(&self, coder: &'c mut Option<Coder>) -> Option<&'c mut Coder> {
        if coder.is_none() {
            let Ok(new) = Coder::new() else {
                let text = "there is no memory for the compressor";
                self.transfer.fail_here(text);
                return None;
            };
            *coder = Some(new);
        }
        coder.as_mut()
    }

    /// Runs a compressor's thread.
    pub(crate) fn run_compressor(&self, flow: &Flow) {
        let mut coder = None;
        while let Some(queued) = self.side.coding.pop(|| flow.is_wanted()) {
            let Queued {
                block,
                verdict,
                read,
                wish,
                since,
            } = queued;
            if let Some(kind) = self.comes_late(wish, since, read.payload.len()) {
                self.note_plain(kind, read.payload.len() as u64);
                let coded = uncoded_block(read, Codec::Plain);
                self.hand_to_wire(block, verdict, Some(coded), None);
                continue;
            }
            let Some(coder) = self.coder(&mut coder) else {
                return;
            };
            let coded = flow.busy(|| self.noted_encoding(|| self.encode(coder, wish, read)));
            self.hand_to_wire(block, verdict, Some(coded), None);
        }
    }

    /// Returns the kind of a block that should be sent without its codec: streams have no data to
    /// send, and it has waited longer than the path would need for it.
    fn comes_late(&self, wish: Wish, since: Moment, bytes: usize) -> Option<Kind> {
        let Wish::Chosen(dealt) = wish else {
            return None;
        };
        let waited = self.transfer.now() - since;
        let is_late = waited > LATE && self.is_late(bytes as u64, waited);
        (is_late && self.transfer.lock().starves()).then_some(dealt.kind)
    }

    /// Encodes a block if requested and worthwhile; a block that does not get smaller stays as it
    /// is.
    fn encode(&self, coder: &mut Coder, wish: Wish, mut read: ReadBlock) -> CodedBlock {
        // Blocks to encode were read into a buffer.
        let Payload::Buffer(buffer) = &mut read.payload else {
            return uncoded_block(read, Codec::Plain);
        };
        let used = match wish {
            Wish::Named(codec) => Some(Use {
                codec,
                shuffle: self.shuffle_for(codec, &read.content, buffer.filled()),
                chosen: None,
            }),
            Wish::Chosen(dealt) => {
                let chosen = self.choose_codec(coder, dealt, buffer.filled());
                chosen.map(|(place, codec, shuffle)| Use {
                    codec,
                    shuffle,
                    chosen: Some((dealt.kind, place)),
                })
            }
        };
        let room = used.as_ref().and_then(|_| match wish {
            Wish::Named(_) => self.transfer.coded.take(),
            // When encoding begins, blocks without a codec may hold all memory.
            Wish::Chosen(_) => self.transfer.coded.take_or_pass(),
        });
        match (used, room) {
            (Some(used), Some(mut room)) => match self.encode_into(coder, &used, buffer, &mut room)
            {
                Some(decoded) => CodedBlock {
                    content: read.content,
                    codec: used.codec,
                    shuffle: used.shuffle,
                    decoded,
                    payload: Payload::Buffer(room),
                },
                None => uncoded_block(read, Codec::Plain),
            },
            _ => uncoded_block(read, Codec::Plain),
        }
    }

    /// Encodes one buffer into another and records the costs; returns the bytes before encoding if
    /// they got fewer.
    fn encode_into(
        &self,
        coder: &mut Coder,
        used: &Use,
        buffer: &mut Buffer,
        room: &mut Buffer,
    ) -> Option<usize> {
        let (codec, length) = (used.codec, buffer.filled().len());
        let most = bound(codec, length).min(room.len());
        let began = thread_cpu_time();
        let (encoder, room_for) = (&mut coder.encoder, &mut room[..most]);
        let encoded = match used.shuffle {
            Some(with) => encoder.encode_shuffled(codec, with, buffer.filled_mut(), room_for),
            None => encoder.encode(codec, buffer.filled(), room_for),
        };
        let nanoseconds = thread_cpu_time().saturating_sub(began);
        let size = encoded.ok().filter(|size| *size < length);
        let counters = &self.transfer.counters;
        Counters::add(&counters.coded_from, length as u64);
        Counters::add(&counters.coded_to, size.unwrap_or(length) as u64);
        let coded = Coded {
            bytes: length as u64,
            encoded: size.unwrap_or(length) as u64,
            seconds: nanoseconds as f64 * 1e-9,
            was_trial: false,
        };
        self.side.uses.add(CodecUse {
            kind: used.chosen.map(|(kind, _)| kind),
            codec,
            shuffled: used.shuffle.is_some(),
            bytes: coded.bytes,
            encoded: coded.encoded,
            nanoseconds,
        });
        if let Some((kind, place)) = used.chosen {
            self.note_encoded(kind, place, coded);
        }
        room.set_filled(size?);
        Some(length)
    }

    /// Reports a ready block to the state machine, and keeps it until a stream takes it. With
    /// `stream`, returns the block that this stream sends next.
    fn hand_to_wire(
        &self,
        block: BlockId,
        verdict: Verdict,
        coded: Option<CodedBlock>,
        stream: Option<StreamId>,
    ) -> Option<Box<dyn WireBlock>> {
        let sealed = coded.map(|coded| seal(coded, self.transfer.settings.clear));
        let (sealed, checksums) = match sealed {
            Some(Ok((sealed, checksums))) => (Some(sealed), checksums),
            Some(Err(error)) => {
                self.transfer.break_off(&error);
                return None;
            }
            None => (None, None),
        };
        let mut shared = self.transfer.lock();
        let sender = shared.machine.sender_mut()?;
        let wanted = match verdict {
            Verdict::Piece(result) => sender.handle_piece_read(block, result),
            Verdict::Pack(results) => sender.handle_pack_read(block, results),
        };
        if let (true, Some(sealed)) = (wanted, sealed) {
            shared.ready.insert(block, Box::new(sealed));
            if let Some(checksums) = checksums {
                shared.say(&checksums);
            }
        }
        let next =
            stream.and_then(|stream| self.transfer.stream(stream).next_own_block(&mut shared));
        self.transfer.settle(shared);
        next
    }
}

/// Makes a block of unencoded data, or without its payload.
fn uncoded_block(read: ReadBlock, codec: Codec) -> CodedBlock {
    let ReadBlock {
        content, payload, ..
    } = read;
    match payload {
        Payload::Buffer(mut buffer) if codec == Codec::Omitted => {
            buffer.set_filled(0);
            CodedBlock {
                content,
                codec,
                shuffle: None,
                decoded: 0,
                payload: Payload::Buffer(buffer),
            }
        }
        payload => CodedBlock {
            content,
            codec: Codec::Plain,
            shuffle: None,
            decoded: payload.len(),
            payload,
        },
    }
}
