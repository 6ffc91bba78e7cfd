//! How many strangers are let in at once.
//!
//! A connection holds a [`Ticket`] from being accepted until it has proved who
//! it is (or failed to). Together with the handshake's deadline this bounds
//! what strangers cost, in memory, threads and descriptors.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many unauthenticated connections there may be at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateLimits {
    /// From everybody, 1 or more.
    pub total: usize,
    /// From one IPv4 address or one IPv6 /64, 1 or more.
    pub per_address: usize,
}

impl Default for GateLimits {
    /// 256 in all cost some 10 MiB (a 32 KiB buffer each, and TLS's state);
    /// 128 from one place let a transfer open its streams all at once.
    fn default() -> Self {
        GateLimits {
            total: 256,
            per_address: 128,
        }
    }
}

/// A connection was not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateRefusal {
    /// Too many from everybody.
    #[error(
        "connection from {address} refused: {limit} others are still authenticating: raise the \
         limit on unauthenticated connections if they are wanted"
    )]
    Full {
        /// Who.
        address: IpAddr,
        /// The limit.
        limit: usize,
    },
    /// Too many from there.
    #[error(
        "connection from {address} refused: {limit} others from there are still authenticating: \
         raise the limit on unauthenticated connections per address if they are wanted"
    )]
    AddressFull {
        /// Who.
        address: IpAddr,
        /// The limit.
        limit: usize,
    },
}

/// Counts connections that have not yet proved who they are.
#[derive(Clone, Debug)]
pub struct Gate {
    limits: GateLimits,
    inside: Arc<Mutex<Inside>>,
}

/// Its memory is bounded by the total limit: no entry without a ticket.
#[derive(Debug, Default)]
struct Inside {
    total: usize,
    by_origin: HashMap<IpAddr, usize>,
}

impl Gate {
    /// An empty gate.
    pub fn new(limits: GateLimits) -> Gate {
        Gate {
            limits,
            inside: Arc::default(),
        }
    }

    /// Lets a connection in.
    ///
    /// # Errors
    ///
    /// Where a limit is reached: close the connection without a word.
    pub fn admit(&self, address: IpAddr) -> Result<Ticket, GateRefusal> {
        let origin = origin(address);
        let mut inside = lock(&self.inside);
        if inside.total >= self.limits.total {
            let limit = self.limits.total;
            return Err(GateRefusal::Full { address, limit });
        }
        let here = inside.by_origin.get(&origin).copied().unwrap_or(0);
        if here >= self.limits.per_address {
            let limit = self.limits.per_address;
            return Err(GateRefusal::AddressFull { address, limit });
        }
        inside.total += 1;
        inside.by_origin.insert(origin, here + 1);
        Ok(Ticket {
            origin,
            inside: Arc::clone(&self.inside),
        })
    }

    /// How many are inside now.
    pub fn occupied(&self) -> usize {
        lock(&self.inside).total
    }
}

/// A place inside; given back when dropped, which is to be done when the
/// connection is authenticated, or closed.
#[derive(Debug)]
pub struct Ticket {
    origin: IpAddr,
    inside: Arc<Mutex<Inside>>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut inside = lock(&self.inside);
        inside.total = inside.total.saturating_sub(1);
        if let Some(count) = inside.by_origin.get_mut(&self.origin) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                inside.by_origin.remove(&self.origin);
            }
        }
    }
}

/// Counts cannot be left half-changed, so a poisoned lock is as good as any.
fn lock(inside: &Mutex<Inside>) -> MutexGuard<'_, Inside> {
    inside.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What counts as one place: an IPv6 host has a whole /64 to draw addresses
/// from, and an IPv4 one may come as a mapped address.
fn origin(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(v4),
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(total: usize, per_address: usize) -> Gate {
        Gate::new(GateLimits { total, per_address })
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_place_is_given_back() {
        let gate = gate(1, 1);
        let ticket = gate.admit(ip("10.0.0.1")).unwrap();
        assert!(matches!(
            gate.admit(ip("10.0.0.2")),
            Err(GateRefusal::Full { limit: 1, .. })
        ));
        drop(ticket);
        assert_eq!(gate.occupied(), 0);
        assert!(lock(&gate.inside).by_origin.is_empty());
        assert!(gate.admit(ip("10.0.0.2")).is_ok());
    }

    #[test]
    fn one_address_cannot_take_all() {
        let gate = gate(10, 2);
        let _held = [
            gate.admit(ip("10.0.0.1")).unwrap(),
            gate.admit(ip("::ffff:10.0.0.1")).unwrap(),
        ];
        assert!(matches!(
            gate.admit(ip("10.0.0.1")),
            Err(GateRefusal::AddressFull { limit: 2, .. })
        ));
        assert!(gate.admit(ip("10.0.0.2")).is_ok());
    }

    #[test]
    fn an_ipv6_network_counts_as_one() {
        let gate = gate(10, 1);
        let _held = gate.admit(ip("2001:db8::1")).unwrap();
        assert!(gate.admit(ip("2001:db8::2:1")).is_err());
        assert!(gate.admit(ip("2001:db8:0:1::1")).is_ok());
    }
}
