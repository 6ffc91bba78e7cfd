//! How many strangers are let in at once.
//!
//! A connection holds a [`Ticket`] from being accepted until it has proved who
//! it is (or failed to). Together with the handshake's deadline this bounds
//! what strangers cost, in memory, threads and descriptors.
//!
//! Places are counted per network, because one host has many addresses. Where
//! none is free, the network that holds most of them loses its oldest one: idle
//! connections from a few networks keep nobody else out.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use longhaul_system::descriptors;

/// How many unauthenticated connections there may be at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateLimits {
    /// From everybody, 1 or more.
    pub total: usize,
    /// From one network (see [`Gate`]), 1 or more.
    pub per_network: usize,
}

/// Strangers at most and at least, and their part of the files that the process may have open:
/// each has two.
const MOST_STRANGERS: usize = 256;
const LEAST_STRANGERS: usize = 8;
const STRANGERS_PART: usize = 8;

impl Default for GateLimits {
    /// 256 in all cost some 10 MiB (a 32 KiB buffer each, and TLS's state);
    /// 128 from one place let a transfer open its streams all at once.
    fn default() -> Self {
        let total = descriptors::share(STRANGERS_PART, MOST_STRANGERS).max(LEAST_STRANGERS);
        GateLimits {
            total,
            per_network: total.div_ceil(2),
        }
    }
}

/// A connection that has not proved itself for this long is idle: a handshake on the longest
/// path takes less, unless packets are lost. It makes room for a newer one.
const IDLE: Duration = Duration::from_secs(2);

/// A connection was not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateRefusal {
    /// Too many from everybody.
    #[error("connection from {address} refused: {limit} others are still authenticating")]
    Full {
        /// Who.
        address: IpAddr,
        /// The limit.
        limit: usize,
    },
    /// Too many from there.
    #[error(
        "connection from {address} refused: {limit} others from its network are still \
         authenticating"
    )]
    NetworkFull {
        /// Who.
        address: IpAddr,
        /// The limit.
        limit: usize,
    },
}

/// Counts connections that have not yet proved who they are, in all and from each network:
/// an IPv4 /24 or an IPv6 /64.
#[derive(Clone, Debug)]
pub struct Gate {
    limits: GateLimits,
    inside: Arc<Mutex<Inside>>,
}

/// Its memory is bounded by the total limit: no entry without a ticket.
#[derive(Debug, Default)]
struct Inside {
    next: u64,
    /// Those inside by number, oldest first.
    strangers: BTreeMap<u64, Stranger>,
}

#[derive(Debug)]
struct Stranger {
    network: IpAddr,
    since: Instant,
    /// Another handle of its connection, to end it with; `None` if there was none to spare.
    socket: Option<TcpStream>,
}

impl Gate {
    /// An empty gate.
    pub fn new(limits: GateLimits) -> Gate {
        Gate {
            limits,
            inside: Arc::default(),
        }
    }

    /// Lets a connection in; an older one may be ended for it.
    ///
    /// # Errors
    ///
    /// Where a limit is reached: close the connection without a word.
    pub fn admit(&self, address: IpAddr, socket: &TcpStream) -> Result<Ticket, GateRefusal> {
        self.admit_at(address, socket.try_clone().ok(), Instant::now())
    }

    fn admit_at(
        &self,
        address: IpAddr,
        socket: Option<TcpStream>,
        now: Instant,
    ) -> Result<Ticket, GateRefusal> {
        let network = network(address);
        let mut inside = lock(&self.inside);
        if let Some(crowded) = inside.crowded(network, self.limits) {
            let Some(number) = inside.oldest_to_leave(network, crowded, now) else {
                return Err(match crowded {
                    Crowded::Everywhere => GateRefusal::Full {
                        address,
                        limit: self.limits.total,
                    },
                    Crowded::Network => GateRefusal::NetworkFull {
                        address,
                        limit: self.limits.per_network,
                    },
                });
            };
            inside.turn_out(number);
        }
        let number = inside.next;
        inside.next += 1;
        let since = now;
        inside.strangers.insert(
            number,
            Stranger {
                network,
                since,
                socket,
            },
        );
        Ok(Ticket {
            number,
            inside: Arc::clone(&self.inside),
        })
    }

    /// How many are inside now.
    pub fn occupied(&self) -> usize {
        lock(&self.inside).strangers.len()
    }
}

/// Which limit is reached.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Crowded {
    Everywhere,
    Network,
}

impl Inside {
    fn crowded(&self, network: IpAddr, limits: GateLimits) -> Option<Crowded> {
        let own = |stranger: &&Stranger| stranger.network == network;
        if self.strangers.values().filter(own).count() >= limits.per_network {
            return Some(Crowded::Network);
        }
        (self.strangers.len() >= limits.total).then_some(Crowded::Everywhere)
    }

    /// Who makes room for a newcomer from a network: the oldest idle one there, where that has
    /// its share; else the oldest one of the network that has most. One that is not idle only
    /// gives way to a network that has fewer.
    fn oldest_to_leave(&self, network: IpAddr, crowded: Crowded, now: Instant) -> Option<u64> {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for stranger in self.strangers.values() {
            *counts.entry(stranger.network).or_default() += 1;
        }
        let own = counts.get(&network).copied().unwrap_or_default();
        let (from, most) = match crowded {
            Crowded::Network => (network, own),
            Crowded::Everywhere => counts.into_iter().max_by_key(|(_, count)| *count)?,
        };
        let (number, oldest) = self
            .strangers
            .iter()
            .find(|(_, stranger)| stranger.network == from)?;
        let idle = now.saturating_duration_since(oldest.since) >= IDLE;
        (idle || most > own + 1).then_some(*number)
    }

    /// Ends a stranger's connection: its thread, which waits for what comes, ends with it.
    fn turn_out(&mut self, number: u64) {
        let stranger = self.strangers.remove(&number);
        if let Some(socket) = stranger.and_then(|stranger| stranger.socket) {
            // One that is closed already needs nothing.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

/// A place inside; given back when dropped, which is to be done when the
/// connection is authenticated, or closed.
#[derive(Debug)]
pub struct Ticket {
    number: u64,
    inside: Arc<Mutex<Inside>>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        lock(&self.inside).strangers.remove(&self.number);
    }
}

/// Counts cannot be left half-changed, so a poisoned lock is as good as any.
fn lock(inside: &Mutex<Inside>) -> MutexGuard<'_, Inside> {
    inside.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What counts as one network: a client with one address of an IPv4 /24 or an IPv6 /64 often has
/// all of them, and an IPv4 host may come as a mapped address.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & !0xff)),
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(total: usize, per_network: usize) -> Gate {
        Gate::new(GateLimits { total, per_network })
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn is_inside(ticket: &Ticket) -> bool {
        lock(&ticket.inside).strangers.contains_key(&ticket.number)
    }

    #[test]
    fn a_place_is_given_back() {
        let (gate, now) = (gate(1, 1), Instant::now());
        let admit = |text| gate.admit_at(ip(text), None, now);
        let ticket = admit("10.0.0.1").unwrap();
        assert!(matches!(
            admit("10.0.1.2"),
            Err(GateRefusal::Full { limit: 1, .. })
        ));
        drop(ticket);
        assert_eq!(gate.occupied(), 0);
        assert!(admit("10.0.1.2").is_ok());
        assert_eq!(gate.occupied(), 0);
    }

    #[test]
    fn one_network_cannot_take_all() {
        let (gate, now) = (gate(10, 2), Instant::now());
        let admit = |text| gate.admit_at(ip(text), None, now);
        let _held = [
            admit("10.0.0.1").unwrap(),
            admit("::ffff:10.0.0.2").unwrap(),
        ];
        assert!(matches!(
            admit("10.0.0.3"),
            Err(GateRefusal::NetworkFull { limit: 2, .. })
        ));
        assert!(admit("10.0.1.1").is_ok());
    }

    #[test]
    fn an_ipv6_network_counts_as_one() {
        let (gate, now) = (gate(10, 1), Instant::now());
        let admit = |text| gate.admit_at(ip(text), None, now);
        let _held = admit("2001:db8::1").unwrap();
        assert!(admit("2001:db8::2:1").is_err());
        assert!(admit("2001:db8:0:1::1").is_ok());
    }

    /// Two networks hold all places, with connections that are renewed before they are idle.
    #[test]
    fn whoever_holds_most_makes_room_for_others() {
        let (gate, now) = (gate(8, 4), Instant::now());
        let admit = |text: &str| gate.admit_at(ip(text), None, now);
        let held: Vec<Ticket> = (0..8)
            .map(|number| admit(&format!("10.0.{}.1", number % 2)).unwrap())
            .collect();
        let newcomer = admit("192.0.2.1").unwrap();
        assert_eq!(gate.occupied(), 8);
        let left: Vec<usize> = (0..8).filter(|at| !is_inside(&held[*at])).collect();
        assert!(
            left == [0] || left == [1],
            "the oldest of a network: {left:?}"
        );
        assert!(is_inside(&newcomer));
    }

    #[test]
    fn an_idle_stranger_makes_room_for_a_newer_one_of_its_network() {
        let (gate, began) = (gate(8, 2), Instant::now());
        let admit = |seconds| {
            let now = began + Duration::from_secs(seconds);
            gate.admit_at(ip("10.0.0.1"), None, now)
        };
        let (first, second) = (admit(0).unwrap(), admit(1).unwrap());
        assert!(
            admit(1).is_err(),
            "they may be in the middle of a handshake"
        );
        let third = admit(2).unwrap();
        assert!(!is_inside(&first));
        assert!(is_inside(&second) && is_inside(&third));
    }

    #[test]
    fn whoever_is_turned_out_finds_its_connection_closed() {
        use std::io::Read;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (ours, _) = listener.accept().unwrap();
        let gate = gate(1, 1);
        let _ticket = gate.admit(ip("10.0.0.1"), &ours).unwrap();
        let later = Instant::now() + IDLE;
        let _newer = gate.admit_at(ip("10.0.0.2"), None, later).unwrap();
        assert_eq!(theirs.read(&mut [0]).unwrap(), 0);
    }
}
