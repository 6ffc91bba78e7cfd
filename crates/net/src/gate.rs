//! Limits the number of unauthenticated connections.
//!
//! A connection holds a [`Ticket`] from its acceptance until its authentication succeeds or fails.
//! Together with the deadline of the handshake, this limits the memory, threads and descriptors
//! that unauthenticated clients can use.
//!
//! Connections are counted per network, because one host may have many addresses. If no place is
//! free, the network with the most connections loses its oldest one. Idle connections from a few
//! networks can therefore not exclude other clients.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use longhaul_system::descriptors;

/// Maximum numbers of simultaneous unauthenticated connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateLimits {
    /// Maximum in total, 1 or more.
    pub total: usize,
    /// Maximum from one network (see [`Gate`]), 1 or more.
    pub per_network: usize,
}

/// Maximum and minimum of the total limit, and the divisor of the process's open files that gives
/// it. Each connection uses two descriptors.
const MOST_STRANGERS: usize = 256;
const LEAST_STRANGERS: usize = 8;
const STRANGERS_PART: usize = 8;

impl Default for GateLimits {
    /// 256 connections in total need about 10 MiB (a 32 KiB buffer each, and the TLS state). 128
    /// from one network let a transfer open all its streams at once.
    fn default() -> Self {
        let total = descriptors::share(STRANGERS_PART, MOST_STRANGERS).max(LEAST_STRANGERS);
        GateLimits {
            total,
            per_network: total.div_ceil(2),
        }
    }
}

/// Pause after the system could not accept a connection, for example without a free file
/// descriptor. Without it, the next attempts would fail at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Returns an accepted connection. After an error it pauses and returns `None`; the caller accepts
/// again.
pub fn or_pause<T>(accepted: io::Result<T>) -> Option<T> {
    accepted.inspect_err(|_| pause()).ok()
}

/// Waits before the next attempt to accept a connection.
pub fn pause() {
    // tidy: reason: the kernel reports no event when a file descriptor is free again.
    std::thread::sleep(ACCEPT_PAUSE);
}

/// Time after which an unauthenticated connection is idle and may be closed for a newer one. A
/// handshake on the longest path takes less, unless packets are lost.
const IDLE: Duration = Duration::from_secs(2);

/// Reasons to reject a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateRefusal {
    /// The total limit is reached.
    #[error("connection from {address} refused: {limit} others are still authenticating")]
    Full {
        /// Address of the client.
        address: IpAddr,
        /// The limit.
        limit: usize,
    },
    /// The limit of the client's network is reached.
    #[error(
        "connection from {address} refused: {limit} others from its network are still \
         authenticating"
    )]
    NetworkFull {
        /// Address of the client.
        address: IpAddr,
        /// The limit.
        limit: usize,
    },
}

/// Counts unauthenticated connections, in total and from each network: an IPv4 /24 or an IPv6 /64.
#[derive(Clone, Debug)]
pub struct Gate {
    limits: GateLimits,
    inside: Arc<Mutex<Inside>>,
}

/// State of a gate. Its memory is limited, because each entry has a ticket.
#[derive(Debug, Default)]
struct Inside {
    next: u64,
    /// Unauthenticated connections by number, oldest first.
    strangers: BTreeMap<u64, Stranger>,
}

#[derive(Debug)]
struct Stranger {
    network: IpAddr,
    since: Instant,
    /// Another handle of the connection, for closing it; `None` if no descriptor was free.
    socket: Option<TcpStream>,
}

impl Gate {
    /// Creates an empty gate.
    pub fn new(limits: GateLimits) -> Gate {
        Gate {
            limits,
            inside: Arc::default(),
        }
    }

    /// Admits a connection. An older one may be closed for it.
    ///
    /// # Errors
    ///
    /// A limit is reached: close the connection without an answer.
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

    /// Returns the current number of unauthenticated connections.
    pub fn occupied(&self) -> usize {
        lock(&self.inside).strangers.len()
    }
}

/// The limit that is reached.
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

    /// Selects the connection to close for a new one from `network`: the oldest connection of that
    /// network if its limit is reached, else the oldest one of the network with the most
    /// connections. A connection that is not idle is only closed for a network that has fewer
    /// connections.
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

    /// Closes a connection. Its thread, which waits for data, then ends.
    fn turn_out(&mut self, number: u64) {
        let stranger = self.strangers.remove(&number);
        if let Some(socket) = stranger.and_then(|stranger| stranger.socket) {
            // The connection may have been closed already.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

/// A place inside the gate. Drop it when the connection is authenticated or closed.
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

/// Locks the state. A poisoned lock is usable, because no update can be left incomplete.
fn lock(inside: &Mutex<Inside>) -> MutexGuard<'_, Inside> {
    inside.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the network of an address. A client with one address of an IPv4 /24 or an IPv6 /64 often
/// has all of them. An IPv4 host may connect with a mapped address.
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

    /// Two networks hold all places, and renew their connections before they are idle.
    #[test]
    fn the_network_with_most_places_makes_room_for_others() {
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
    fn a_replaced_connection_is_closed() {
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
