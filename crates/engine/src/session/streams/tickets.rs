//! Tickets: secrets that the other end issues within TLS, each valid for one stream in clear.

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::time::Duration;

use longhaul_net::token::fill_random;
use longhaul_proto::handshake::Secret;
use longhaul_proto::message::Message;

use super::{StreamThread, Streams};
use crate::session::Shared;

/// Maximum number of unused tickets.
pub(super) const MAXIMUM_TICKETS: u32 = 512;

/// Unused tickets.
#[derive(Default)]
pub(super) struct Tickets {
    /// Tickets that the other end gave to this end.
    received: VecDeque<Secret>,
    /// Tickets that this end gave to the other end.
    issued: VecDeque<Secret>,
}

impl Tickets {
    /// Adds tickets of the other end; more than the maximum are ignored.
    pub fn handle_tickets(&mut self, tickets: Vec<Secret>) {
        let room = (MAXIMUM_TICKETS as usize).saturating_sub(self.received.len());
        self.received.extend(tickets.into_iter().take(room));
    }

    /// Returns a new ticket for the other end; `None` if the system gives no random bytes.
    fn issue(&mut self) -> Option<Secret> {
        let mut ticket = [0; 32];
        fill_random(&mut ticket).ok()?;
        // The oldest ticket is for a stream that was never opened.
        if self.issued.len() >= MAXIMUM_TICKETS as usize {
            self.issued.pop_front();
        }
        self.issued.push_back(Secret(ticket));
        Some(Secret(ticket))
    }

    /// True if this end issued the ticket and it is unused. It is then used up.
    fn redeem(&mut self, ticket: &Secret) -> bool {
        let found = self.issued.iter().position(|issued| issued == ticket);
        found.and_then(|at| self.issued.remove(at)).is_some()
    }
}

impl Streams<'_> {
    /// Requests a ticket for a stream in clear from the other end, and waits for it.
    pub fn take_ticket(&self, patience: Duration) -> Option<Secret> {
        let until = self.transfer.now() + patience;
        let mut shared = self.transfer.lock();
        shared.say(&Message::WantTickets(1));
        shared.wake_writers();
        loop {
            if let Some(ticket) = shared.streams.tickets.received.pop_front() {
                return Some(ticket);
            }
            let left = until - self.transfer.now();
            if left.is_zero() || shared.is_over() {
                return None;
            }
            let waited = self.transfer.signals.living.wait_timeout(shared, left);
            shared = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl StreamThread<'_> {
    /// Issues tickets, each valid for one stream in clear.
    pub(super) fn issue_tickets(&self, shared: &mut Shared, count: u32) {
        if !shared.control.has_room() {
            // The other end requests tickets but does not read the answers.
            return;
        }
        let count = if self.transfer.settings.is_clear() {
            count.min(MAXIMUM_TICKETS)
        } else {
            0
        };
        let own = &mut shared.streams.tickets;
        let tickets = (0..count).filter_map(|_| own.issue()).collect();
        shared.say(&Message::Tickets(tickets));
        shared.wake_writers();
    }
}

impl Streams<'_> {
    /// True if a stream in clear may join with this ticket; the ticket is then used up.
    pub fn redeem_ticket(&self, ticket: &Secret) -> bool {
        self.transfer.lock().streams.tickets.redeem(ticket)
    }
}

impl Streams<'_> {
    /// True if there is a stream for messages: one within TLS and, if blocks are sent in clear, one
    /// that is not stalled, because tickets arrive on it.
    pub fn has_message_stream(&self) -> bool {
        let shared = self.transfer.lock();
        self.messages_have_stream(&shared)
    }

    pub(super) fn messages_have_stream(&self, shared: &Shared) -> bool {
        let now = self.transfer.now();
        shared
            .lifetime
            .streams()
            .filter_map(|id| shared.streams.slots.get(&id))
            .any(|slot| {
                !(slot.clear || self.transfer.settings.is_clear() && slot.stands_still(now))
            })
    }
}
