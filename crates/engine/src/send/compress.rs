//! The compression layer: encodes what was read where that is asked for and
//! makes it smaller, on flows of its own; else hands it on as it is.

use std::sync::atomic::Ordering;

use longhaul_proto::block::{Codec, Content};
use longhaul_proto::manifest::EntryId;
use longhaul_proto::sender::{BlockId, PackedRead, PieceRead};
use longhaul_proto::session::StreamId;
use longhaul_proto::shuffle::{Arrangement, ElementSize, Shuffle};

use super::Sending;
use super::payload::Payload;
use super::read::{ReadBlock, codec_for};
use super::seal::seal;
use crate::codec::coder::Coder;
use crate::codec::sample::Nature;
use crate::codec::{bound, compresses};
use crate::flows::Flow;
use crate::session::stages::WireBlock;
use crate::session::{Counters, Machine};

/// A block as the readers hand it on: how reading went, and what was read.
pub struct Uncoded {
    pub(crate) block: BlockId,
    pub(crate) verdict: Verdict,
    pub(crate) read: Option<ReadBlock>,
}

/// How reading went, for the state machine.
pub(crate) enum Verdict {
    Piece(PieceRead),
    Pack(Vec<(EntryId, PackedRead)>),
}

/// A block whose payload is encoded, or left as it is.
pub struct CodedBlock {
    pub(crate) content: Content,
    pub(crate) codec: Codec,
    /// What went before the codec.
    pub(crate) shuffle: Option<Shuffle>,
    /// Bytes before encoding.
    pub(crate) decoded: usize,
    pub(crate) payload: Payload,
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

impl Sending<'_> {
    /// What goes before the codec of a block: of a file's piece that is an array of numbers, where
    /// the other end can undo it. Packs have files of many kinds.
    fn shuffle_for(&self, coder: &mut Coder, read: &ReadBlock) -> Option<Shuffle> {
        if !self.side.shuffles.load(Ordering::Relaxed) {
            return None;
        }
        match (&read.content, &read.payload) {
            (Content::Piece(piece), Payload::Buffer(buffer)) => {
                match coder.nature_of(piece.entry.id, buffer.filled()) {
                    Nature::Numbers(element) => {
                        Some(shuffle_before(self.transfer.settings.codec, element))
                    }
                    Nature::Full | Nature::Other => None,
                }
            }
            _ => None,
        }
    }

    /// From a reader: to the compressors where there is something for them,
    /// else straight on.
    pub(crate) fn pass_to_coding(&self, uncoded: Uncoded) {
        let codec = codec_for(
            self.transfer.settings.operation,
            self.transfer.settings.codec,
        );
        let worth = uncoded
            .read
            .as_ref()
            .is_some_and(|read| read.payload.len() > 0);
        if worth && compresses(codec) {
            self.side.coding.push(uncoded);
            return;
        }
        let Uncoded {
            block,
            verdict,
            read,
        } = uncoded;
        let coded = read.map(|read| uncoded_block(read, codec));
        self.hand_to_wire(block, verdict, coded, None);
    }

    /// From the thread of a stream that read it: encoded there too, and given
    /// back to be sent, or what that stream has to send before.
    pub(crate) fn encode_for(
        &self,
        stream: StreamId,
        uncoded: Uncoded,
        coder: &mut Option<Coder>,
    ) -> Option<Box<dyn WireBlock>> {
        let codec = codec_for(
            self.transfer.settings.operation,
            self.transfer.settings.codec,
        );
        let Uncoded {
            block,
            verdict,
            read,
        } = uncoded;
        let worth = |read: &ReadBlock| compresses(codec) && read.payload.len() > 0;
        if read.as_ref().is_some_and(worth) && coder.is_none() {
            let Ok(new) = Coder::new() else {
                self.transfer
                    .fail_here("there is no memory for the compressor");
                return None;
            };
            *coder = Some(new);
        }
        let coded = read.map(|read| match coder {
            Some(coder) if worth(&read) => self.side.busy_encoding(|| self.encode(coder, read)),
            _ => uncoded_block(read, codec),
        });
        self.hand_to_wire(block, verdict, coded, Some(stream))
    }

    /// A compressor's thread.
    pub(crate) fn run_compressor(&self, flow: &Flow) {
        let Ok(mut coder) = Coder::new() else {
            self.transfer
                .fail_here("there is no memory for the compressor");
            return;
        };
        while let Some(uncoded) = self.side.coding.pop(|| flow.is_wanted()) {
            let Uncoded {
                block,
                verdict,
                read,
            } = uncoded;
            let coded = read.map(|read| flow.busy(|| self.encode(&mut coder, read)));
            self.hand_to_wire(block, verdict, coded, None);
        }
    }

    /// Encodes; what does not get smaller stays as it is.
    fn encode(&self, coder: &mut Coder, mut read: ReadBlock) -> CodedBlock {
        let codec = self.transfer.settings.codec;
        let shuffle = self.shuffle_for(coder, &read);
        // What is to be encoded was read into a buffer.
        let Payload::Buffer(buffer) = &mut read.payload else {
            return uncoded_block(read, Codec::Plain);
        };
        let length = buffer.filled().len();
        let Some(mut room) = self.transfer.coded.take() else {
            return uncoded_block(read, Codec::Plain);
        };
        let most = bound(codec, length).min(room.len());
        let room_for = &mut room[..most];
        let encoder = &mut coder.encoder;
        let encoded = match shuffle {
            Some(with) => encoder.encode_shuffled(codec, with, buffer.filled_mut(), room_for),
            None => encoder.encode(codec, buffer.filled(), room_for),
        };
        Counters::add(&self.transfer.counters.coded_from, length as u64);
        match encoded {
            Ok(size) if size < length => {
                room.set_filled(size);
                Counters::add(&self.transfer.counters.coded_to, size as u64);
                CodedBlock {
                    content: read.content,
                    codec,
                    shuffle,
                    decoded: length,
                    payload: Payload::Buffer(room),
                }
            }
            _ => {
                Counters::add(&self.transfer.counters.coded_to, length as u64);
                uncoded_block(read, Codec::Plain)
            }
        }
    }

    /// Tells the state machine that a block is ready, and keeps it for the
    /// stream that will take it. Where `stream` does at once, gives what it
    /// sends next.
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
        let Machine::Sending(sender) = &mut shared.machine else {
            return None;
        };
        let wanted = match verdict {
            Verdict::Piece(result) => sender.handle_piece_read(block, result),
            Verdict::Pack(results) => sender.handle_pack_read(block, results),
        };
        if let (true, Some(sealed)) = (wanted, sealed) {
            shared.prepared.insert(block, Box::new(sealed));
            if let Some(checksums) = checksums {
                shared.say(&checksums);
            }
        }
        let next = stream.and_then(|stream| self.transfer.next_own_block(&mut shared, stream));
        self.transfer.settle(shared);
        next
    }
}

/// A block left as it is, or without its payload.
fn uncoded_block(read: ReadBlock, codec: Codec) -> CodedBlock {
    let ReadBlock { content, payload } = read;
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
