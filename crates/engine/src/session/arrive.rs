//! What a stream's reader needs of the session while a block comes (`recv/open.rs`).

use longhaul_net::StreamReader;
use longhaul_net::stream::Closed;
use longhaul_proto::session::StreamId;

use super::Transfer;
use crate::pool::Buffer;

/// What comes for a session that is over is read so much at a time.
const UNUSED_BYTES: usize = 64 << 10;

impl Transfer {
    /// On a stream in clear the rest of a block is read from now on: it may never come.
    pub(crate) fn note_midway(&self, id: StreamId) {
        if self.is_clear()
            && let Some(slot) = self.lock().streams.get_mut(&id)
        {
            slot.midway = Some(self.now());
        }
    }

    /// All of a block came.
    pub(crate) fn note_block_came(&self, id: StreamId) {
        let now = self.now();
        let mut shared = self.lock();
        shared.note_heard(now);
        if let Some(slot) = shared.streams.get_mut(&id) {
            slot.midway = None;
        }
    }

    /// A buffer for a block that comes; `None` if the session ends before one is free, or the
    /// stream. Meanwhile nothing is read, so that silence says nothing.
    pub(crate) fn buffer_for(&self, id: StreamId) -> Option<Buffer> {
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
