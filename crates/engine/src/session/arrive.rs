//! A block comes on a stream: its lengths are bounded before its bytes are read,
//! and these are hashed while they are hot in the cache.

use std::io;
use std::sync::Arc;

use longhaul_proto::block::{BlockHeader, Codec, TRAILER_BYTES, Trailer};
use longhaul_proto::frame::FrameError;
use longhaul_proto::handshake::Purport;
use longhaul_proto::session::StreamId;

use super::observe::thread_cpu_time;
use super::streams::{CHANGED_IN_CLEAR, Stop, read_exact};
use super::{Counters, Side, Transfer};
use crate::net::StreamReader;
use crate::net::stream::Closed;
use crate::pool::Buffer;
use crate::recv::verify::ArrivingHasher;
use crate::send::read::PART_BYTES;

/// What comes for a session that is over is read so much at a time.
const UNUSED_BYTES: usize = 64 << 10;

impl Transfer {
    pub(super) fn read_block(
        self: &Arc<Transfer>,
        id: StreamId,
        mut block: BlockHeader,
        payload: usize,
        reader: &mut dyn StreamReader,
    ) -> Result<(), Stop> {
        let Side::Receiving(side) = self.side() else {
            return Err(FrameError::Unexpected("a block came to a sender").into());
        };
        let due = match self.settings.purport {
            Purport::Copy => block.codec != Codec::Omitted,
            Purport::Verify => block.codec == Codec::Omitted,
            Purport::DryRun => false,
        };
        if !due {
            return Err(
                FrameError::Unexpected("data where only checksums are due, or none").into(),
            );
        }
        let data = block.data_on_wire(payload).unwrap_or(usize::MAX);
        if !block.is_valid(payload) || data > self.pool.buffer_bytes() {
            let error = FrameError::Unexpected("a block whose lengths contradict each other");
            // The frame's own length is nobody's word in clear: the header alone is proved.
            return Err(match self.is_clear() {
                true => Stop::Lost(Some(CHANGED_IN_CLEAR.to_owned())),
                false => error.into(),
            });
        }
        if block.trailer.is_some() && self.is_clear() {
            return Err(FrameError::Unexpected("a checksum in clear").into());
        }
        let Some(mut buffer) = self.buffer_for(id) else {
            return Err(Stop::Lost(None));
        };
        // A receiver that waits for the path is idle: only its work counts.
        let began = thread_cpu_time();
        let mut hasher = ArrivingHasher::new(self.settings.integrity, &block);
        reader.anticipate(payload);
        self.note_midway(id);
        read_parts(reader, &mut buffer[..data], |part| hasher.update(part))?;
        buffer.set_filled(data);
        let found = hasher.finish(&block, buffer.filled());
        if block.trailer.is_some() {
            let mut trailer = [0; TRAILER_BYTES];
            read_exact(reader, &mut trailer)?;
            block.put_checksum(Trailer::parse(&trailer)?);
        }
        let spent = thread_cpu_time() - began;
        Counters::add(&self.counters.wire_nanoseconds, spent);
        let now = self.now();
        let mut shared = self.lock();
        shared.heard = now;
        if let Some(slot) = shared.streams.get_mut(&id) {
            slot.midway = None;
        }
        drop(shared);
        side.handle_block(self, id, block, buffer, found)
            .map_err(Stop::Broken)
    }

    /// On a stream in clear the rest of a block is read from now on: it may never come.
    fn note_midway(&self, id: StreamId) {
        if self.is_clear()
            && let Some(slot) = self.lock().streams.get_mut(&id)
        {
            slot.midway = Some(self.now());
        }
    }

    /// A buffer for a block that comes; `None` if the session ends before one is free, or the
    /// stream. Meanwhile nothing is read, so that silence says nothing.
    fn buffer_for(&self, id: StreamId) -> Option<Buffer> {
        if let Some(buffer) = self.pool.try_take() {
            return Some(buffer);
        }
        let handle = self.lock().streams.get(&id)?.handle().clone();
        let mut closed = None;
        // What the other end sent before it closed the stream is good; where storage
        // stands still for long, it has sent that on another one by now.
        let is_needed = || match handle.is_closed() {
            Closed::Not => true,
            Closed::ByPeer => {
                let now = self.now();
                now - *closed.get_or_insert(now) < self.settings.silence
            }
            Closed::Both => false,
        };
        self.hold_stream(|| self.pool.take_while(is_needed))
    }

    /// Where the session is on the far side are no buffers for what still comes. It is read
    /// nevertheless, until the other end has heard why, or is cut off: with the stream closed
    /// before that, the other end would take the session for lost.
    pub(super) fn hear_out(&self, reader: &mut dyn StreamReader) {
        if !self.lock().is_over() {
            return;
        }
        let mut unused = vec![0; UNUSED_BYTES];
        while matches!(reader.read(&mut unused), Ok(1..)) {}
    }
}

/// Reads all of `buffer`, and shows each part while it is hot in the cache.
fn read_parts(
    reader: &mut dyn StreamReader,
    buffer: &mut [u8],
    mut show: impl FnMut(&[u8]),
) -> io::Result<()> {
    for part in buffer.chunks_mut(PART_BYTES) {
        read_exact(reader, part)?;
        show(part);
    }
    Ok(())
}
