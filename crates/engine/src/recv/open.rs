//! Reads a block from a stream. Its lengths are checked before its bytes are read, and the bytes
//! are hashed while they are in the cache.

use std::io;

use longhaul_net::StreamReader;
use longhaul_proto::block::{BlockHeader, Codec, TRAILER_BYTES, Trailer};
use longhaul_proto::frame::FrameError;
use longhaul_proto::handshake::Operation;
use longhaul_proto::session::StreamId;
use longhaul_storage::file_data::PART_BYTES;

use super::Receiving;
use super::verify::ArrivingHasher;
use crate::session::Counters;
use crate::session::observe::thread_cpu_time;
use crate::session::streams::reading::{CHANGED_IN_CLEAR, Stop, read_exact};

impl Receiving<'_> {
    /// Reads the payload of a block whose header has arrived; `payload` is its length in bytes.
    pub(super) fn open_block(
        &self,
        id: StreamId,
        (mut block, payload): (BlockHeader, usize),
        reader: &mut dyn StreamReader,
    ) -> Result<(), Stop> {
        let due = match self.transfer.settings.operation {
            Operation::Copy => block.codec != Codec::Omitted,
            Operation::Verify => block.codec == Codec::Omitted,
            Operation::DryRun => false,
        };
        if !due {
            return Err(
                FrameError::Unexpected("data where only checksums are due, or none").into(),
            );
        }
        let data = block.data_on_wire(payload).unwrap_or(usize::MAX);
        if !block.is_valid(payload) || data > self.transfer.pool.buffer_bytes() {
            let error = FrameError::Unexpected("a block whose lengths contradict each other");
            // On a clear connection the length of the frame is not authenticated; only the header
            // is.
            return Err(if self.transfer.settings.is_clear() {
                Stop::Lost(Some(CHANGED_IN_CLEAR.to_owned()))
            } else {
                error.into()
            });
        }
        if block.trailer.is_some() && self.transfer.settings.is_clear() {
            return Err(FrameError::Unexpected("a checksum in clear").into());
        }
        // From now on, half of the memory is for the output of codecs.
        let need = block.codec.compresses().then(|| self.transfer.coded.need());
        let Some(mut buffer) = self.transfer.stream(id).buffer_for() else {
            return Err(Stop::Lost(None));
        };
        if let Some(need) = need {
            buffer.keep(need);
        }
        // Waiting for the network is idle time, so only CPU time counts.
        let began = thread_cpu_time();
        let mut hasher = ArrivingHasher::new(self.transfer.settings.integrity, &block);
        reader.anticipate(payload);
        self.transfer.stream(id).note_midway();
        read_parts(reader, &mut buffer[..data], |part| hasher.update(part))?;
        buffer.set_filled(data);
        let found = hasher.finish(&block, buffer.filled());
        if block.trailer.is_some() {
            let mut trailer = [0; TRAILER_BYTES];
            read_exact(reader, &mut trailer)?;
            block.put_checksum(Trailer::parse(&trailer)?);
        }
        let spent = thread_cpu_time() - began;
        Counters::add(&self.transfer.counters.wire_nanoseconds, spent);
        self.transfer.stream(id).note_block_came();
        self.handle_block(id, block, buffer, found)
            .map_err(Stop::Broken)
    }
}

/// Fills `buffer`, and passes each part to `show` while it is in the cache.
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
