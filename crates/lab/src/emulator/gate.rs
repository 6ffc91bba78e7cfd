//! Firewalls and NAT of the sites: blocked ports, and addresses behind NAT.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;

use crate::packet::rewrite::{self, End};
use crate::packet::{Offload, Packet, TCP, tcp_flag};

/// Treatment of a blocked packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The packet is dropped without an answer.
    Drop,
    /// The sender gets a TCP reset, as from a rejecting firewall. Packets of other
    /// protocols are dropped.
    Reset,
}

/// Packets that a firewall rule blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// TCP and UDP packets to these destination ports.
    Ports(RangeInclusive<u16>),
    /// TCP packets that open a connection (SYN without ACK).
    NewConnections,
}

/// A firewall rule of a site for packets from other sites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockRule {
    /// Index of the protected site.
    pub site: usize,
    /// Packets that the rule blocks.
    pub blocked: Blocked,
    /// Treatment of the blocked packets.
    pub refusal: Refusal,
}

impl BlockRule {
    fn meets(&self, packet: &Packet) -> bool {
        match &self.blocked {
            Blocked::Ports(ports) => packet.ports.is_some_and(|(_, to)| ports.contains(&to)),
            Blocked::NewConnections => {
                let kind = packet.tcp_flags & (tcp_flag::SYN | tcp_flag::ACK);
                packet.protocol == TCP && kind == tcp_flag::SYN
            }
        }
    }
}

/// Maximum number of NAT mappings per site: about the number of unprivileged ports.
const MOST_MAPPINGS: usize = 64_000;

/// Protocol, address, and port or echo identifier of one end of a connection.
type Place = (u8, Ipv4Addr, u16);

/// NAT of a site: one public IPv4 address for all hosts. Mappings do not expire.
#[derive(Clone, Debug)]
pub struct Nat {
    public: Ipv4Addr,
    outward: HashMap<Place, u16>,
    inward: HashMap<(u8, u16), (Ipv4Addr, u16)>,
    next: u16,
}

impl Nat {
    /// Creates a NAT without mappings.
    pub fn new(public: Ipv4Addr) -> Nat {
        Nat {
            public,
            outward: HashMap::new(),
            inward: HashMap::new(),
            next: 1024,
        }
    }

    /// Replaces the source of an outgoing packet by the public address. False if this is
    /// not possible: the packet is not TCP, UDP or ICMP echo over IPv4, or the table is
    /// full.
    pub fn leave(&mut self, bytes: &mut [u8], offload: Offload, packet: &Packet) -> bool {
        let (IpAddr::V4(inside), Some(number)) =
            (packet.source, rewrite::number(bytes, packet, End::Source))
        else {
            return false;
        };
        let Some(mapped) = self.map((packet.protocol, inside, number)) else {
            return false;
        };
        let end = (self.public, mapped);
        rewrite::rewrite(bytes, offload, packet, End::Source, end);
        true
    }

    /// Replaces the destination of an incoming packet by the inside host. False if no
    /// mapping exists.
    pub fn enter(&mut self, bytes: &mut [u8], offload: Offload, packet: &Packet) -> bool {
        let number = rewrite::number(bytes, packet, End::Destination);
        let inside = number.and_then(|number| self.inward.get(&(packet.protocol, number)));
        let Some(inside) = inside else {
            return false;
        };
        rewrite::rewrite(bytes, offload, packet, End::Destination, *inside);
        true
    }

    fn map(&mut self, place: Place) -> Option<u16> {
        if let Some(mapped) = self.outward.get(&place) {
            return Some(*mapped);
        }
        let (protocol, inside, number) = place;
        if self.outward.len() >= MOST_MAPPINGS {
            return None;
        }
        // Keeps the original port if it is free, as most NATs do.
        let mut mapped = number;
        while self.inward.contains_key(&(protocol, mapped)) {
            self.next = self.next.checked_add(1).unwrap_or(1024);
            mapped = self.next;
        }
        self.outward.insert(place, mapped);
        self.inward.insert((protocol, mapped), (inside, number));
        Some(mapped)
    }
}

/// Decision of a firewall on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet passes.
    Pass,
    /// The packet is dropped.
    Blocked,
    /// The packet is dropped and the sender gets a reset.
    Refused,
}

/// Firewalls and NAT of all sites.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    /// Firewall rules of all sites.
    pub rules: Vec<BlockRule>,
    /// Sites behind NAT, by index, at most one NAT per site.
    pub nat: Vec<(usize, Nat)>,
}

impl Gate {
    /// Applies the firewall of the destination site `to`.
    pub fn firewall(&self, packet: &Packet, to: usize) -> Verdict {
        let rule = self
            .rules
            .iter()
            .find(|rule| rule.site == to && rule.meets(packet));
        match rule.map(|rule| rule.refusal) {
            None => Verdict::Pass,
            Some(Refusal::Drop) => Verdict::Blocked,
            Some(Refusal::Reset) => Verdict::Refused,
        }
    }

    /// Returns the site that has this public address, and its NAT.
    pub fn behind(&mut self, address: IpAddr) -> Option<(usize, &mut Nat)> {
        self.nat
            .iter_mut()
            .find(|(_, nat)| IpAddr::V4(nat.public) == address)
            .map(|(site, nat)| (*site, nat))
    }

    /// Returns the NAT of a site, if it has one.
    pub fn of_site(&mut self, site: usize) -> Option<&mut Nat> {
        let found = self.nat.iter_mut().find(|(own, _)| *own == site);
        found.map(|(_, nat)| nat)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::samples::tcp;
    use crate::packet::{IpVersion, reset};

    fn syn() -> (Vec<u8>, Offload, Packet) {
        let (bytes, offload) = tcp(IpVersion::V4, b"", 0, tcp_flag::SYN);
        let packet = Packet::parse(&bytes, offload).unwrap();
        (bytes, offload, packet)
    }

    #[test]
    fn rules_protect_their_site_only() {
        let (_, _, packet) = syn();
        let rule = |site, blocked, refusal| BlockRule {
            site,
            blocked,
            refusal,
        };
        let gate = |rule| Gate {
            rules: vec![rule],
            nat: Vec::new(),
        };
        let ports = gate(rule(1, Blocked::Ports(5200..=5201), Refusal::Reset));
        assert_eq!(ports.firewall(&packet, 1), Verdict::Refused);
        assert_eq!(ports.firewall(&packet, 0), Verdict::Pass);
        let other = gate(rule(1, Blocked::Ports(5202..=6000), Refusal::Drop));
        assert_eq!(other.firewall(&packet, 1), Verdict::Pass);
        let new = gate(rule(1, Blocked::NewConnections, Refusal::Drop));
        assert_eq!(new.firewall(&packet, 1), Verdict::Blocked);
        let (data, offload) = tcp(IpVersion::V4, b"x", 0, tcp_flag::ACK);
        let packet = Packet::parse(&data, offload).unwrap();
        assert_eq!(new.firewall(&packet, 1), Verdict::Pass);
    }

    #[test]
    fn nat_translates_an_answer_back_to_the_inside_host() {
        let public = Ipv4Addr::new(198, 18, 1, 254);
        let mut nat = Nat::new(public);
        let (mut bytes, offload, packet) = syn();
        assert!(nat.leave(&mut bytes, offload, &packet));
        let outside = Packet::parse(&bytes, offload).unwrap();
        assert_eq!(outside.source, IpAddr::V4(public));
        let mut answer = reset::answer(&bytes, &outside).unwrap();
        let none = Offload::default();
        let back = Packet::parse(&answer, none).unwrap();
        assert!(nat.enter(&mut answer, none, &back));
        let inside = Packet::parse(&answer, none).unwrap();
        assert_eq!(inside.destination, packet.source);
        assert_eq!(inside.ports.unwrap().1, packet.ports.unwrap().0);
        // No inside host opened this connection.
        let mut stranger = Nat::new(public);
        assert!(!stranger.enter(&mut answer, none, &back));
    }

    #[test]
    fn two_hosts_with_the_same_port_get_different_mappings() {
        let mut nat = Nat::new(Ipv4Addr::new(198, 18, 1, 254));
        let one = nat.map((TCP, Ipv4Addr::new(10, 0, 0, 1), 4000)).unwrap();
        let other = nat.map((TCP, Ipv4Addr::new(10, 0, 0, 2), 4000)).unwrap();
        assert_eq!(one, 4000);
        assert_ne!(one, other);
        assert_eq!(
            nat.map((TCP, Ipv4Addr::new(10, 0, 0, 2), 4000)),
            Some(other)
        );
    }
}
