//! IP packets as a TUN device delivers them. The kernel's offload header precedes each
//! packet, so that a super-packet of many TCP segments stays in one piece.
//!
//! - [`Offload`]: the offload header, `struct virtio_net_hdr`
//! - [`Packet`]: parsed packet headers with checked bounds
//! - [`cut`]: cuts super-packets into pieces
//! - [`damage`]: flips bits, with or without a matching checksum
//! - [`rewrite`]: replaces addresses and ports
//! - [`reset`]: builds the answer of a closed port
//!
//! Commands in the lab may send any bytes, for example through raw sockets. Everything is
//! checked before it is used.

pub mod checksum;
pub mod cut;
pub mod damage;
pub mod reset;
pub mod rewrite;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Length of the [`Offload`] header before each packet, in bytes.
pub const OFFLOAD_BYTES: usize = 10;

/// Maximum length of a packet in bytes: an IPv6 header and 65,535 bytes.
pub const LONGEST_PACKET: usize = 40 + 65_535;

/// IANA protocol number of TCP.
pub const TCP: u8 = 6;
/// IANA protocol number of UDP.
pub const UDP: u8 = 17;
/// IANA protocol number of ICMP.
pub const ICMP: u8 = 1;

/// Flag: the checksum field contains only the sum of the pseudo-header.
const NEEDS_CHECKSUM: u8 = 1;
/// Bit of the super-packet kind: ECN is in use.
const ECN: u8 = 0x80;
/// Super-packet kind: TCP over IPv4.
const TCP4: u8 = 1;
/// Super-packet kind: TCP over IPv6.
const TCP6: u8 = 4;

/// Work that the kernel left to the hardware (`struct virtio_net_hdr` in host byte order,
/// as TUN devices use it).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    flags: u8,
    kind: u8,
    header: u16,
    /// Payload length of each segment but the last; 0 for a single packet.
    segment: u16,
    checksum_start: u16,
    checksum_offset: u16,
}

impl Offload {
    /// Decodes the header. Any bytes are valid.
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

    /// Encodes the header.
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

    /// Returns the header of a TCP packet with a partial checksum, as a kernel sends it;
    /// for tests. `segment` is 0 for a single packet.
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

/// IP versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpVersion {
    /// 32-bit addresses.
    V4,
    /// 128-bit addresses.
    V6,
}

/// Parsed headers of a packet. Offsets are relative to the IP packet and within its
/// length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// IP version.
    pub version: IpVersion,
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Protocol number of the transport.
    pub protocol: u8,
    /// Offset of the transport header. Equal to the packet's length without it (a
    /// later fragment).
    pub transport: usize,
    /// Offset of the payload. Equal to `transport` for unknown transports.
    pub payload: usize,
    /// Length of the whole packet or super-packet in bytes.
    pub length: usize,
    /// Source and destination port, for TCP and UDP with a complete header.
    pub ports: Option<(u16, u16)>,
    /// TCP flags; 0 for other protocols.
    pub tcp_flags: u8,
    /// For a super-packet, payload length of each segment but the last.
    segment: Option<usize>,
}

/// TCP flags.
pub mod tcp_flag {
    /// The sender has no more data.
    pub const FIN: u8 = 1;
    /// Opens a connection.
    pub const SYN: u8 = 2;
    /// Resets the connection.
    pub const RST: u8 = 4;
    /// Data are to be delivered to the application at once.
    pub const PSH: u8 = 8;
    /// The acknowledgement number is valid.
    pub const ACK: u8 = 16;
    /// The sender has reduced its congestion window.
    pub const CWR: u8 = 128;
}

impl Packet {
    /// Parses the headers. Returns `None` if the bytes are not an IP packet, or the
    /// length field does not match.
    pub fn parse(bytes: &[u8], offload: Offload) -> Option<Packet> {
        let mut packet = match bytes.first()? >> 4 {
            4 => parse_v4(bytes)?,
            6 => parse_v6(bytes)?,
            _ => return None,
        };
        packet.parse_transport(bytes)?;
        // Known ports mean that the TCP header is complete.
        let is_tcp = packet.protocol == TCP && packet.ports.is_some();
        if offload.is_tcp_super_packet() && is_tcp && offload.checksum_is_begun() {
            let segment = usize::from(offload.segment);
            packet.segment = Some(segment).filter(|s| packet.length - packet.payload > *s);
        }
        Some(packet)
    }

    /// Returns the number of segments on the wire, at least 1.
    pub fn segments(&self) -> usize {
        match self.segment {
            Some(segment) => (self.length - self.payload).div_ceil(segment),
            None => 1,
        }
    }

    /// Returns the IP length of a segment in bytes, below 65,576.
    pub fn segment_bytes(&self, index: usize) -> u32 {
        let length = match self.segment {
            Some(segment) => {
                let before = self.payload + index * segment;
                self.payload + segment.min(self.length.saturating_sub(before))
            }
            None => self.length,
        };
        // The packet's length is below 2^17.
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
    // A later fragment has no transport header.
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

/// Parses an IPv6 header. Extension headers are not parsed: packets with them pass as an
/// unknown transport. Traffic measured in a lab has none.
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
