//! Limits of the memory for a session's state.

use longhaul_proto::receiver::{MAXIMUM_REMEMBERED_BYTES, Receiver};
use longhaul_system::seats::{LEAST_REMEMBERED, Seat};

use super::{SessionError, Shared};

/// Fails if the state of a session exceeds its share of the host's memory.
pub(super) fn check(receiver: &Receiver, seat: &Seat) -> Result<(), SessionError> {
    let bytes = receiver.load().bytes;
    // Most sessions need less than the minimum share, so the share need not be computed.
    if bytes <= LEAST_REMEMBERED {
        return Ok(());
    }
    if bytes <= seat.remembered_bytes(MAXIMUM_REMEMBERED_BYTES) {
        Ok(())
    } else {
        Err(SessionError::Memory { bytes })
    }
}

impl Shared {
    /// True if a session without connections needs more memory than our own sender causes. It must
    /// then end, because other sessions may need the memory before the client returns.
    pub(super) fn is_heavy(&self) -> bool {
        let Some(receiver) = self.machine.receiver() else {
            return false;
        };
        self.lifetime.is_alone() && !self.is_over() && receiver.load().bytes > LEAST_REMEMBERED
    }
}
