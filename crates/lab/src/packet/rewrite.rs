//! Replaces addresses and ports in a packet, as NAT does.

use std::net::Ipv4Addr;

use super::{ICMP, IpVersion, Offload, Packet, UDP, checksum};

/// The end of a packet that is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The sender.
    Source,
    /// The receiver.
    Destination,
}

/// Returns the number that distinguishes connections of one address: a port, or the
/// identifier of an ICMP echo. Returns `None` if the packet has no such number or is not
/// IPv4.
pub fn number(bytes: &[u8], packet: &Packet, end: End) -> Option<u16> {
    if packet.version != IpVersion::V4 {
        return None;
    }
    match (packet.ports, end) {
        (Some((source, _)), End::Source) => Some(source),
        (Some((_, destination)), End::Destination) => Some(destination),
        (None, _) => {
            let at = echo_identifier(bytes, packet)?;
            Some(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
        }
    }
}

/// Replaces address and number of one end of an IPv4 packet and updates the checksums.
pub fn rewrite(
    bytes: &mut [u8],
    offload: Offload,
    packet: &Packet,
    end: End,
    (address, number): (Ipv4Addr, u16),
) {
    if packet.version != IpVersion::V4 || bytes.len() < packet.transport {
        return;
    }
    let at = match end {
        End::Source => 12,
        End::Destination => 16,
    };
    for (word, new) in address.octets().as_chunks::<2>().0.iter().enumerate() {
        let at = at + word * 2;
        let (old, new) = (
            u16::from_be_bytes([bytes[at], bytes[at + 1]]),
            u16::from_be_bytes(*new),
        );
        bytes[at..at + 2].copy_from_slice(&new.to_be_bytes());
        transport_checksum(bytes, offload, packet, old, new, true);
    }
    let header = usize::from(bytes[0] & 15) * 4;
    checksum::finish_ipv4_header(&mut bytes[..header]);
    let place = match (packet.ports, end) {
        (Some(_), End::Source) => Some(packet.transport),
        (Some(_), End::Destination) => Some(packet.transport + 2),
        (None, _) => echo_identifier(bytes, packet),
    };
    let Some(at) = place else { return };
    let old = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    bytes[at..at + 2].copy_from_slice(&number.to_be_bytes());
    transport_checksum(bytes, offload, packet, old, number, false);
}

/// Updates the transport's checksum. A partial checksum covers the addresses only, a
/// complete one addresses and ports, and that of ICMP no addresses.
fn transport_checksum(
    bytes: &mut [u8],
    offload: Offload,
    packet: &Packet,
    old: u16,
    new: u16,
    is_address: bool,
) {
    let Some(at) = checksum::place(packet) else {
        if !is_address && echo_identifier(bytes, packet).is_some() {
            checksum::mend(bytes, packet.transport + 2, old, new);
        }
        return;
    };
    if offload.checksum_is_begun() {
        if is_address {
            checksum::mend_begun(bytes, at, old, new);
        }
    } else if packet.protocol != UDP || bytes[at..at + 2] != [0, 0] {
        checksum::mend(bytes, at, old, new);
    }
}

/// Returns the offset of the identifier of an ICMP echo request or reply.
fn echo_identifier(bytes: &[u8], packet: &Packet) -> Option<usize> {
    let header = bytes.get(packet.transport..packet.transport + 8)?;
    let echo = packet.protocol == ICMP && matches!(header[0], 0 | 8);
    echo.then_some(packet.transport + 4)
}
