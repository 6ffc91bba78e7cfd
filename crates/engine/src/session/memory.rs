//! What a session may remember of what is under way.

use longhaul_proto::receiver::{MAXIMUM_REMEMBERED_BYTES, Receiver};
use longhaul_system::shares::LEAST_REMEMBERED;

use super::{Machine, SessionError, Shared, Transfer};

impl Transfer {
    /// A session may remember as much as its share of what the host has.
    pub(super) fn check_memory(&self, receiver: &Receiver) -> Result<(), SessionError> {
        let bytes = receiver.remembered_bytes();
        // Most have less than the least share, and none is asked for.
        if bytes <= LEAST_REMEMBERED {
            return Ok(());
        }
        if bytes <= self.seat().remembered_bytes(MAXIMUM_REMEMBERED_BYTES) {
            Ok(())
        } else {
            Err(SessionError::Memory { bytes })
        }
    }

    /// A session whose connections are gone keeps what it remembers for a client that returns, but
    /// no more than our own sender needs: others may need the room meanwhile.
    pub(super) fn end_if_heavy(&self, shared: &Shared) -> bool {
        let Machine::Receiving(receiver) = &shared.machine else {
            return false;
        };
        shared.life.streams().next().is_none()
            && !shared.is_over()
            && receiver.remembered_bytes() > LEAST_REMEMBERED
    }
}
