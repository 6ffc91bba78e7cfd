//! IP packets as a TUN device gives them: with the kernel's note on what was
//! left to the hardware, so that a super-packet of many TCP segments stays one.
//!
//! - [`Offload`]: that note, `struct virtio_net_hdr`
//! - [`Packet`]: what a packet's bytes say, bounds checked
//! - [`cut`]: pieces of super-packets
//! - [`damage`]: bits that fall over, with a checksum that tells or not
//! - [`rewrite`]: other addresses and ports
//! - [`reset`]: the answer of a port that is closed
//!
//! The bytes may be anything that a command in the lab sends, also through raw sockets. Everything
//! is checked before it is used.

pub mod checksum;
pub mod cut;
pub mod damage;
pub mod reset;
pub mod rewrite;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes of [`Offload`] before every packet.
pub const OFFLOAD_BYTES: usize = 10;

/// An IPv6 header and 65,535 bytes: the longest packet there is.
pub const LONGEST_PACKET: usize = 40 + 65_535;

/// Protocol numbers of IANA.
pub const TCP: u8 = 6;
/// See [`TCP`].
pub const UDP: u8 = 17;
/// See [`TCP`].
pub const ICMP: u8 = 1;
/// See [`TCP`].
pub const ICMPV6: u8 = 58;

/// The checksum is only begun: the pseudo-header's sum stands in its place.
const NEEDS_CHECKSUM: u8 = 1;
/// Low bits of the kind of super-packet; the high one says that ECN is in use.
const ECN: u8 = 0x80;
/// TCP over IPv4.
const TCP4: u8 = 1;
/// TCP over IPv6.
const TCP6: u8 = 4;

/// What the kernel left to the hardware (`struct virtio_net_hdr` in the host's byte order, as in
/// TUN devices).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    flags: u8,
    kind: u8,
    header: u16,
    /// Payload of each segment but the last; 0 where it is one packet.
    segment: u16,
    checksum_start: u16,
    checksum_offset: u16,
}

impl Offload {
    /// Reads it; any bytes are one.
    pub fn from_bytes(bytes: [u8; OFFLOAD_BYTES]) -> Offload {
        let word = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        Offload {
            flags: bytes[0],
            kind: bytes[1],
            header: word(2),
            segment: word(4),
            checksum_start: word(6),
            checksum_offset: word(8),
        }
    }

    /// As it stands before a packet.
    pub fn to_bytes(self) -> [u8; OFFLOAD_BYTES] {
        let mut bytes = [0; OFFLOAD_BYTES];
        bytes[0] = self.flags;
        bytes[1] = self.kind;
        bytes[2..4].copy_from_slice(&self.header.to_ne_bytes());
        bytes[4..6].copy_from_slice(&self.segment.to_ne_bytes());
        bytes[6..8].copy_from_slice(&self.checksum_start.to_ne_bytes());
        bytes[8..10].copy_from_slice(&self.checksum_offset.to_ne_bytes());
        bytes
    }

    /// A TCP packet of one segment or several whose checksum is only begun, as
    /// a kernel gives it; for tests.
    pub fn of_tcp(version: IpVersion, ip_header: u16, header: u16, segment: u16) -> Offload {
        let kind = match (segment, version) {
            (0, _) => 0,
            (_, IpVersion::V4) => TCP4,
            (_, IpVersion::V6) => TCP6,
        };
        Offload {
            flags: NEEDS_CHECKSUM,
            kind,
            header,
            segment,
            checksum_start: ip_header,
            checksum_offset: 16,
        }
    }

    fn checksum_is_begun(self) -> bool {
        self.flags & NEEDS_CHECKSUM != 0
    }

    fn is_tcp_super_packet(self) -> bool {
        matches!(self.kind & !ECN, TCP4 | TCP6) && self.segment > 0
    }
}

/// The two of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpVersion {
    /// 32-bit addresses.
    V4,
    /// 128-bit addresses.
    V6,
}

/// What a packet's headers say. Offsets are within the IP packet and were
/// checked against its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// IP version.
    pub version: IpVersion,
    /// From.
    pub source: IpAddr,
    /// To.
    pub destination: IpAddr,
    /// The transport's protocol number.
    pub protocol: u8,
    /// Where the transport's header begins; the packet's length where it has
    /// none (a later fragment).
    pub transport: usize,
    /// Where the payload begins; for unknown transports as `transport`.
    pub payload: usize,
    /// Length of the whole, super-packet or not.
    pub length: usize,
    /// Source and destination port, where there are such.
    pub ports: Option<(u16, u16)>,
    /// Flags of TCP, 0 elsewhere.
    pub tcp_flags: u8,
    /// Payload of each segment but the last, where it is a super-packet.
    segment: Option<usize>,
}

/// Flags of TCP.
pub mod tcp_flag {
    /// No more data.
    pub const FIN: u8 = 1;
    /// A connection begins.
    pub const SYN: u8 = 2;
    /// There is no such connection.
    pub const RST: u8 = 4;
    /// Give it to the application.
    pub const PSH: u8 = 8;
    /// The acknowledgement counts.
    pub const ACK: u8 = 16;
    /// The sender slowed down.
    pub const CWR: u8 = 128;
}

impl Packet {
    /// Reads the headers; `None` if it is not an IP packet, or claims to be longer than it is.
    pub fn parse(bytes: &[u8], offload: Offload) -> Option<Packet> {
        let mut packet = match bytes.first()? >> 4 {
            4 => parse_v4(bytes)?,
            6 => parse_v6(bytes)?,
            _ => return None,
        };
        packet.parse_transport(bytes)?;
        // Ports: it has a whole TCP header.
        let is_tcp = packet.protocol == TCP && packet.ports.is_some();
        if offload.is_tcp_super_packet() && is_tcp && offload.checksum_is_begun() {
            let segment = usize::from(offload.segment);
            packet.segment = Some(segment).filter(|s| packet.length - packet.payload > *s);
        }
        Some(packet)
    }

    /// How many segments are on the wire, at least 1.
    pub fn segments(&self) -> usize {
        match self.segment {
            Some(segment) => (self.length - self.payload).div_ceil(segment),
            None => 1,
        }
    }

    /// A segment's IP length, below 65,576.
    pub fn segment_bytes(&self, index: usize) -> u32 {
        let length = match self.segment {
            Some(segment) => {
                let before = self.payload + index * segment;
                self.payload + segment.min(self.length.saturating_sub(before))
            }
            None => self.length,
        };
        // A packet's length was checked to be below 2^17.
        length as u32
    }

    fn parse_transport(&mut self, bytes: &[u8]) -> Option<()> {
        let header = bytes.get(self.transport..)?;
        match self.protocol {
            TCP if header.len() >= 20 => {
                let length = usize::from(header[12] >> 4) * 4;
                if length < 20 || length > header.len() {
                    return None;
                }
                self.payload = self.transport + length;
                self.tcp_flags = header[13];
                self.ports = Some(ports(header));
            }
            UDP if header.len() >= 8 => {
                self.payload = self.transport + 8;
                self.ports = Some(ports(header));
            }
            _ => {}
        }
        Some(())
    }
}

fn ports(header: &[u8]) -> (u16, u16) {
    let port = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    (port(0), port(2))
}

fn parse_v4(bytes: &[u8]) -> Option<Packet> {
    let fixed: &[u8; 20] = bytes.first_chunk()?;
    let header = usize::from(fixed[0] & 15) * 4;
    let length = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
    if header < 20 || length < header || length != bytes.len() {
        return None;
    }
    let address = |at: usize| -> IpAddr {
        Ipv4Addr::new(fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]).into()
    };
    // What is not the first fragment has no transport header.
    let later_fragment = u16::from_be_bytes([fixed[6], fixed[7]]) & 0x1fff != 0;
    let transport = if later_fragment { length } else { header };
    Some(Packet {
        version: IpVersion::V4,
        source: address(12),
        destination: address(16),
        protocol: fixed[9],
        transport,
        payload: transport,
        length,
        ports: None,
        tcp_flags: 0,
        segment: None,
    })
}

/// Extension headers are not followed: nothing that a lab measures has them,
/// and such a packet passes as one of an unknown transport.
fn parse_v6(bytes: &[u8]) -> Option<Packet> {
    let fixed: &[u8; 40] = bytes.first_chunk()?;
    let length = 40 + usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
    if length != bytes.len() {
        return None;
    }
    let address = |at: usize| -> Option<IpAddr> {
        let octets: [u8; 16] = fixed[at..at + 16].try_into().ok()?;
        Some(Ipv6Addr::from(octets).into())
    };
    Some(Packet {
        version: IpVersion::V6,
        source: address(8)?,
        destination: address(24)?,
        protocol: fixed[6],
        transport: 40,
        payload: 40,
        length,
        ports: None,
        tcp_flags: 0,
        segment: None,
    })
}

#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod tests;
