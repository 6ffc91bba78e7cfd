//! Work of the emulator's thread: reads packets from hosts, asks the links for their
//! fate, and writes packets that are due.

use std::collections::HashMap;
use std::io::IoSlice;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use longhaul_units::Moment;

use super::gate::{Gate, Verdict};
use super::lateness::Lateness;
use super::store::{Cursor, Store};
use super::wire::{Read, Waiting, Wire};
use crate::packet::{OFFLOAD_BYTES, Offload, Packet, reset};

/// Maximum number of packets read from one host before due packets are written. 16
/// super-packets take about a millisecond. A read that finds no packet costs less than a
/// microsecond.
const READS_A_TURN: usize = 16;

/// Maximum number of packets written per direction before hosts are read again, for the
/// same reason.
const WRITES_A_TURN: usize = 32;

/// Network device of a host.
pub struct Port {
    /// TUN device in non-blocking mode.
    pub tun: OwnedFd,
    /// Index of the host's site.
    pub site: usize,
    /// Addresses of the host.
    pub addresses: Vec<IpAddr>,
}

/// Number of packets that did not pass a link, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Strays {
    /// Packets without a known destination, or not IP: mostly multicasts of the kernel.
    pub unroutable: u64,
    /// Packets between hosts of the same site.
    pub local: u64,
    /// Packets dropped because the store was full.
    pub no_memory: u64,
    /// Packets that could not be written to the receiving device.
    pub refused: u64,
}

/// All state of the emulator's thread.
pub struct Core {
    ports: Vec<Port>,
    /// Index of the host that has each address.
    hosts: HashMap<IpAddr, usize>,
    sites: usize,
    /// Directions by site, row by row. `None` from a site to itself.
    wires: Vec<Option<Wire>>,
    /// Firewalls and NAT.
    pub gate: Gate,
    store: Store,
    cursors: Vec<Cursor>,
    origin: Instant,
    /// See [`Strays`].
    pub strays: Strays,
    /// See [`Lateness`].
    pub lateness: Lateness,
}

impl Core {
    /// Creates the emulator's state. `wires` has one entry per ordered pair of sites, row
    /// by row.
    pub fn new(
        ports: Vec<Port>,
        sites: usize,
        wires: Vec<Option<Wire>>,
        gate: Gate,
        store: Store,
    ) -> Core {
        let hosts = ports
            .iter()
            .enumerate()
            .flat_map(|(host, port)| port.addresses.iter().map(move |address| (*address, host)))
            .collect();
        Core {
            cursors: ports.iter().map(|_| Cursor::default()).collect(),
            ports,
            hosts,
            sites,
            wires,
            gate,
            store,
            origin: Instant::now(),
            strays: Strays::default(),
            lateness: Lateness::default(),
        }
    }

    /// Returns the nanoseconds since the creation of this value.
    pub fn now(&self) -> Moment {
        Moment(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Returns the direction from one site to another, if it exists.
    pub fn wire(&mut self, from: usize, to: usize) -> Option<&mut Wire> {
        let index = from * self.sites + to;
        self.wires.get_mut(index).and_then(Option::as_mut)
    }

    /// Returns all directions with the indices of both sites.
    pub fn wires(&self) -> impl Iterator<Item = (usize, usize, &Wire)> {
        let sites = self.sites;
        self.wires
            .iter()
            .enumerate()
            .filter_map(move |(index, wire)| {
                let wire = wire.as_ref()?;
                Some((index / sites, index % sites, wire))
            })
    }

    /// Returns the devices of the hosts.
    pub fn ports(&self) -> &[Port] {
        &self.ports
    }

    /// Touches the memory needed for this many bytes in flight.
    pub fn warm(&mut self, bytes: u64) {
        self.store.warm(bytes);
    }

    /// Returns the time at which the next packet is due.
    pub fn next_due(&self) -> Option<Moment> {
        self.wires.iter().flatten().filter_map(Wire::next_due).min()
    }

    /// Writes due packets and reads from all hosts. False if no packet was read.
    pub fn turn(&mut self) -> bool {
        self.write_due();
        let mut found = false;
        for host in 0..self.ports.len() {
            for _ in 0..READS_A_TURN {
                if !self.read(host) {
                    break;
                }
                found = true;
            }
            self.write_due();
        }
        found
    }

    /// Writes the packets that are due.
    pub fn write_due(&mut self) {
        for index in 0..self.wires.len() {
            for _ in 0..WRITES_A_TURN {
                let now = self.now();
                let wire = self.wires[index].as_mut();
                let Some(waiting) = wire.and_then(|wire| wire.take_due(now)) else {
                    break;
                };
                self.lateness.add(now - waiting.due);
                self.write(&waiting);
            }
        }
    }

    fn write(&mut self, waiting: &Waiting) {
        let bytes = self.store.bytes(waiting.place, waiting.length);
        let tun = &self.ports[waiting.to].tun;
        let written = match &waiting.header {
            None => rustix::io::write(tun, bytes),
            Some(header) => {
                let parts = [IoSlice::new(header.as_bytes()), IoSlice::new(bytes)];
                rustix::io::writev(tun, &parts)
            }
        };
        self.strays.refused += u64::from(written.is_err());
        self.store.release(waiting.place);
    }

    /// Reads a packet from a host and forwards it. False if the host has sent no packet.
    fn read(&mut self, host: usize) -> bool {
        let Some(room) = self.store.room(&mut self.cursors[host]) else {
            return self.read_nowhere(host);
        };
        let Ok(length) = rustix::io::read(&self.ports[host].tun, room) else {
            return false;
        };
        if self.forward(host, length).is_none() {
            self.strays.unroutable += 1;
        }
        true
    }

    /// Reads and drops a packet because the store is full, like a router without memory.
    fn read_nowhere(&mut self, host: usize) -> bool {
        let mut nowhere = [0; 2048];
        let found = rustix::io::read(&self.ports[host].tun, &mut nowhere).is_ok();
        self.strays.no_memory += u64::from(found);
        found
    }

    /// Forwards the packet that the host's cursor holds. Returns `None` if the packet has
    /// no route.
    fn forward(&mut self, host: usize, length: usize) -> Option<()> {
        let from = self.ports[host].site;
        let room = self.store.room(&mut self.cursors[host])?;
        let (note, bytes) = room[..length].split_first_chunk_mut::<OFFLOAD_BYTES>()?;
        let offload = Offload::from_bytes(*note);
        let mut packet = Packet::parse(bytes, offload)?;
        let mut to = self.hosts.get(&packet.destination).copied();
        if let Some((site, nat)) = self.gate.behind(packet.destination) {
            if site == from || !nat.enter(bytes, offload, &packet) {
                return None;
            }
            packet = Packet::parse(bytes, offload)?;
            to = self.hosts.get(&packet.destination).copied();
        } else if let Some(to) = to {
            let site = self.ports[to].site;
            // Hosts behind NAT are not reachable by their private address.
            if site != from && self.gate.of_site(site).is_some() {
                return None;
            }
        }
        let to = to?;
        let site = self.ports[to].site;
        if site == from {
            self.strays.local += 1;
            let whole = self.store.room(&mut self.cursors[host])?;
            let written = rustix::io::write(&self.ports[to].tun, &whole[..length]);
            self.strays.refused += u64::from(written.is_err());
            return Some(());
        }
        match self.gate.firewall(&packet, site) {
            Verdict::Pass => {}
            verdict => {
                self.refuse(host, site, length, &packet, verdict);
                return Some(());
            }
        }
        if let Some(nat) = self.gate.of_site(from) {
            let room = self.store.room(&mut self.cursors[host])?;
            let bytes = &mut room[OFFLOAD_BYTES..length];
            if !nat.leave(bytes, offload, &packet) {
                return None;
            }
            packet = Packet::parse(bytes, offload)?;
        }
        self.send(host, (from, site), to, length, offload, packet)
    }

    fn send(
        &mut self,
        host: usize,
        (from, site): (usize, usize),
        to: usize,
        length: usize,
        offload: Offload,
        packet: Packet,
    ) -> Option<()> {
        let now = self.now();
        let cursor = &mut self.cursors[host];
        let wire = self.wires.get_mut(from * self.sites + site)?.as_mut()?;
        let place = self.store.keep(cursor, length)?;
        let read = Read {
            place,
            offload,
            packet,
            to,
        };
        wire.send(now, &read, &mut self.store, cursor);
        Some(())
    }

    fn refuse(
        &mut self,
        host: usize,
        site: usize,
        length: usize,
        packet: &Packet,
        verdict: Verdict,
    ) {
        let from = self.ports[host].site;
        if let Some(wire) = self.wire(from, site) {
            wire.blocked += 1;
        }
        if verdict != Verdict::Refused {
            return;
        }
        let Some(room) = self.store.room(&mut self.cursors[host]) else {
            return;
        };
        if let Some(answer) = reset::answer(&room[OFFLOAD_BYTES..length], packet) {
            let note = Offload::default().to_bytes();
            let parts = [IoSlice::new(&note), IoSlice::new(&answer)];
            let written = rustix::io::writev(&self.ports[host].tun, &parts);
            self.strays.refused += u64::from(written.is_err());
        }
    }

    /// Returns the time until the next packet is due; zero if one is already due.
    pub fn until_due(&self) -> Option<Duration> {
        let due = self.next_due()?;
        Some(due.since(self.now()))
    }
}
