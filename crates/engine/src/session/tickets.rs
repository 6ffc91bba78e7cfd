//! Tickets: secrets that the other end issues within TLS, each valid for one stream in clear.

use std::sync::PoisonError;
use std::time::Duration;

use longhaul_net::token::fill_random;
use longhaul_proto::handshake::Secret;
use longhaul_proto::message::Message;

use super::{Shared, Transfer};

/// Maximum number of unused tickets.
pub(super) const MAXIMUM_TICKETS: u32 = 512;

impl Transfer {
    /// Requests a ticket for a stream in clear from the other end, and waits for it.
    pub fn take_ticket(&self, patience: Duration) -> Option<Secret> {
        let until = self.now() + patience;
        let mut shared = self.lock();
        shared.say(&Message::WantTickets(1));
        shared.wake_writers();
        loop {
            if let Some(ticket) = shared.tickets.pop_front() {
                return Some(ticket);
            }
            let left = until - self.now();
            if left.is_zero() || shared.is_over() {
                return None;
            }
            let waited = self.living.wait_timeout(shared, left);
            shared = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Issues tickets, each valid for one stream in clear.
    pub(super) fn issue_tickets(&self, shared: &mut Shared, count: u32) {
        if !shared.control.has_room() {
            // The other end requests tickets but does not read the answers.
            return;
        }
        let mut tickets = Vec::new();
        for _ in 0..count.min(MAXIMUM_TICKETS) {
            let mut ticket = [0; 32];
            if self.is_clear() && fill_random(&mut ticket).is_ok() {
                // The oldest ticket is for a stream that was never opened.
                if shared.issued.len() >= MAXIMUM_TICKETS as usize {
                    shared.issued.pop_front();
                }
                let ticket = Secret(ticket);
                shared.issued.push_back(ticket);
                tickets.push(ticket);
            }
        }
        shared.say(&Message::Tickets(tickets));
        shared.wake_writers();
    }

    /// True if a stream in clear may join with this ticket; the ticket is then used up.
    pub fn redeem_ticket(&self, ticket: &Secret) -> bool {
        let issued = &mut self.lock().issued;
        let found = issued.iter().position(|issued| issued == ticket);
        found.and_then(|at| issued.remove(at)).is_some()
    }
}

impl Transfer {
    /// True if there is a stream for messages: one within TLS and, if blocks are sent in clear, one
    /// that is not stalled, because tickets arrive on it.
    pub fn has_message_stream(&self) -> bool {
        let shared = self.lock();
        self.messages_have_stream(&shared)
    }

    pub(super) fn messages_have_stream(&self, shared: &Shared) -> bool {
        let now = self.now();
        shared
            .life
            .streams()
            .filter_map(|id| shared.streams.get(&id))
            .any(|slot| !(slot.clear || self.is_clear() && slot.stands_still(now)))
    }
}
