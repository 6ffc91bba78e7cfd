//! Frames a block. The result can only be sent: it cannot be compressed or get another checksum.

use std::io;

use longhaul_net::StreamWriter;
use longhaul_proto::block::{BlockHeader, Content, HeaderKey};
use longhaul_proto::frame::{self, FrameError, FrameKind};
use longhaul_proto::message::Message;
use twox_hash::XxHash3_64;

use super::compress::CodedBlock;
use super::payload::Payload;
use crate::session::stages::WireBlock;

/// A block in its wire format.
pub struct SealedBlock {
    frame: Vec<u8>,
    payload: Payload,
    hole_bytes: u64,
}

impl WireBlock for SealedBlock {
    fn frame_bytes(&self) -> usize {
        self.frame.len()
    }

    fn hole_bytes(&self) -> u64 {
        self.hole_bytes
    }

    fn payload_bytes(&self) -> usize {
        self.payload.wire_len()
    }

    fn late_bytes(&self) -> usize {
        self.payload.late_bytes()
    }

    fn send(
        &mut self,
        writer: &mut dyn StreamWriter,
        (start, length): (usize, usize),
        payload: (usize, usize),
        room: &mut Vec<u8>,
    ) -> io::Result<()> {
        let head = &self.frame[start..start + length];
        self.payload.send(writer, head, payload, room)
    }
}

/// Frames a block. For a stream in clear, the checksums are removed from the header and returned in
/// a message, which is sent within TLS; the remaining header is authenticated.
///
/// # Errors
///
/// [`FrameError::TooLong`] if the paths of a pack exceed all limits.
pub fn seal(
    block: CodedBlock,
    clear: Option<HeaderKey>,
) -> Result<(SealedBlock, Option<Message>), FrameError> {
    let CodedBlock {
        content,
        codec,
        shuffle,
        decoded,
        payload,
    } = block;
    // An uncompressed block has its own checksum, which is sent within TLS.
    let transit = match &payload {
        Payload::Buffer(buffer) if clear.is_some() && codec.compresses() => {
            Some(XxHash3_64::oneshot(buffer.filled()))
        }
        _ => None,
    };
    let mut header = BlockHeader {
        content,
        codec,
        decoded: decoded as u64,
        transit,
        proof: None,
        trailer: payload.trailer(),
        shuffle,
    };
    let message = clear.map(|key| {
        let message = take_checksums(&mut header);
        key.prove(&mut header);
        message
    });
    let hole_bytes = match &header.content {
        Content::Piece(piece) => piece.hole_bytes(),
        Content::Pack(_) => 0,
    };
    let frame = frame::encode(FrameKind::Block, &header, payload.wire_len())?;
    let sealed = SealedBlock {
        frame,
        payload,
        hole_bytes,
    };
    Ok((sealed, message))
}

fn take_checksums(header: &mut BlockHeader) -> Message {
    let checksums = match &mut header.content {
        Content::Piece(piece) => vec![piece.checksum.take()],
        Content::Pack(entries) => entries
            .iter_mut()
            .map(|packed| packed.checksum.take())
            .collect(),
    };
    Message::Checksums {
        content: header.name(),
        checksums,
    }
}
