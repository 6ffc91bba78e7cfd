//! Functions of the session for a stream's reader while a block arrives (`recv/open.rs`).

use longhaul_net::StreamReader;
use longhaul_net::stream::Closed;

use super::StreamThread;
use crate::pool::Buffer;

/// Buffer size for data that arrive for a session that is over.
const UNUSED_BYTES: usize = 64 << 10;

impl StreamThread<'_> {
    /// Records, on a stream in clear, that the rest of a block is read from now on. It may never
    /// arrive.
    pub(crate) fn note_midway(&self) {
        if self.transfer.settings.is_clear()
            && let Some(slot) = self.transfer.lock().streams.slots.get_mut(&self.id)
        {
            slot.midway = Some(self.transfer.now());
        }
    }

    /// Records that a block has arrived completely.
    pub(crate) fn note_block_came(&self) {
        let now = self.transfer.now();
        let mut shared = self.transfer.lock();
        shared.lifetime.note_heard(now);
        if let Some(slot) = shared.streams.slots.get_mut(&self.id) {
            slot.midway = None;
        }
    }

    /// Waits for a buffer for an arriving block; `None` if the session or the stream ends first.
    /// Meanwhile the stream is not read, so silence is no evidence.
    pub(crate) fn buffer_for(&self) -> Option<Buffer> {
        if let Some(buffer) = self.transfer.pool.try_take() {
            return Some(buffer);
        }
        let handle = self
            .transfer
            .lock()
            .streams
            .slots
            .get(&self.id)?
            .handle()
            .clone();
        let mut closed = None;
        // Data that were sent before the stream was closed are valid. If storage is blocked for
        // long, the other end has sent them again on another stream by now.
        let is_needed = || match handle.is_closed() {
            Closed::Not => true,
            Closed::ByPeer => {
                let now = self.transfer.now();
                now - *closed.get_or_insert(now) < self.transfer.settings.silence
            }
            Closed::Both => false,
        };
        self.transfer
            .hold_stream(|| self.transfer.pool.take_while(is_needed))
    }

    /// Reads and discards data once the session is over at this end, until the other end has
    /// received the reason or is cut off. If the stream were closed earlier, the other end would
    /// assume that the session is only interrupted.
    pub(super) fn hear_out(&self, reader: &mut dyn StreamReader) {
        if !self.transfer.lock().is_over() {
            return;
        }
        let mut unused = vec![0; UNUSED_BYTES];
        while matches!(reader.read(&mut unused), Ok(1..)) {}
    }
}
