//! What the emulator's thread does: it reads what hosts send, asks the links,
//! and writes what has arrived.

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

/// Packets read from one host before what is due is looked at again: 16
/// super-packets are a millisecond of work, and a read that finds nothing costs
/// less than a microsecond.
const READS_A_TURN: usize = 16;

/// Packets written before hosts are read again, for the same reason.
const WRITES_A_TURN: usize = 32;

/// A host's device.
pub struct Port {
    /// Its TUN device, not blocking.
    pub tun: OwnedFd,
    /// Where it is.
    pub site: usize,
    /// What is sent to it.
    pub addresses: Vec<IpAddr>,
}

/// What passed outside the links, in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Strays {
    /// For no host, or not IP: the kernel's own multicasts, mostly.
    pub unroutable: u64,
    /// From host to host of one site.
    pub local: u64,
    /// There was no memory to let them wait.
    pub no_memory: u64,
    /// The receiving kernel did not take them.
    pub refused: u64,
}

/// Everything that the thread owns.
pub struct Core {
    ports: Vec<Port>,
    /// The host of each address.
    hosts: HashMap<IpAddr, usize>,
    sites: usize,
    /// From site to site; none from a site to itself.
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
    /// `wires` are from site to site, row by row.
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

    /// Nanoseconds since this was made.
    pub fn now(&self) -> Moment {
        Moment(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// A direction, from site to site.
    pub fn wire(&mut self, from: usize, to: usize) -> Option<&mut Wire> {
        let index = from * self.sites + to;
        self.wires.get_mut(index).and_then(Option::as_mut)
    }

    /// All directions with their sites.
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

    /// The devices.
    pub fn ports(&self) -> &[Port] {
        &self.ports
    }

    /// Touches the memory that this many bytes in flight need.
    pub fn warm(&mut self, bytes: u64) {
        self.store.warm(bytes);
    }

    /// When something is due next.
    pub fn next_due(&self) -> Option<Moment> {
        self.wires.iter().flatten().filter_map(Wire::next_due).min()
    }

    /// Writes what is due and reads what is there; false where nothing was
    /// read.
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

    /// Writes what is due.
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

    /// Reads a packet of a host and sends it on its way; false where there is
    /// none.
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

    /// There is no room: what comes is lost, as a router without memory does.
    fn read_nowhere(&mut self, host: usize) -> bool {
        let mut nowhere = [0; 2048];
        let found = rustix::io::read(&self.ports[host].tun, &mut nowhere).is_ok();
        self.strays.no_memory += u64::from(found);
        found
    }

    /// The packet lies in the room of its host's cursor. `None` if it leads nowhere.
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
            // What is behind NAT has no address outside.
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

    /// How long until something is due; zero where it is now.
    pub fn until_due(&self) -> Option<Duration> {
        let due = self.next_due()?;
        Some(due.since(self.now()))
    }
}
