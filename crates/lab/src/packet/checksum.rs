//! Internet checksum (RFC 1071): computing, finishing and updating.

use super::{IpVersion, Offload, Packet, TCP, UDP};

/// Returns the ones' complement sum of 16-bit words, not complemented.
pub fn sum(bytes: &[u8]) -> u16 {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut total: u64 = words
        .iter()
        .map(|word| u64::from(u32::from_be_bytes(*word)))
        .sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    total += u64::from(u32::from_be_bytes(last));
    fold(total)
}

/// Adds two ones' complement sums.
pub fn add(one: u16, other: u16) -> u16 {
    fold(u64::from(one) + u64::from(other))
}

fn fold(mut total: u64) -> u16 {
    while total >> 16 != 0 {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

/// Returns the sum of the pseudo-header of TCP and UDP: addresses, protocol and transport
/// length.
pub fn pseudo_header(bytes: &[u8], packet: &Packet, transport_bytes: usize) -> u16 {
    let addresses = match packet.version {
        IpVersion::V4 => &bytes[12..20],
        IpVersion::V6 => &bytes[8..40],
    };
    let tail = u64::from(packet.protocol) + transport_bytes as u64;
    fold(u64::from(sum(addresses)) + (tail & 0xffff) + (tail >> 16))
}

/// Returns the offset of the transport's checksum; `None` for unknown transports.
pub fn place(packet: &Packet) -> Option<usize> {
    packet.ports?;
    match packet.protocol {
        TCP => Some(packet.transport + 16),
        UDP => Some(packet.transport + 6),
        _ => None,
    }
}

/// Completes a partial checksum, so that the receiver can verify it. Super-packets are
/// left unchanged.
pub fn finish(bytes: &mut [u8], offload: &mut Offload) {
    if !offload.checksum_is_begun() || offload.segment != 0 {
        return;
    }
    let start = usize::from(offload.checksum_start);
    let at = start + usize::from(offload.checksum_offset);
    if at + 2 > bytes.len() {
        return;
    }
    let value = match !sum(&bytes[start..]) {
        // In UDP, 0 means "no checksum". 0xffff is the other representation of zero.
        0 => 0xffff,
        value => value,
    };
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
    *offload = Offload::default();
}

/// Computes the checksum of an IPv4 header.
pub fn finish_ipv4_header(header: &mut [u8]) {
    header[10..12].fill(0);
    let value = !sum(header);
    header[10..12].copy_from_slice(&value.to_be_bytes());
}

/// Updates a complete checksum at `at` after a word changed (RFC 1624, Eq. 3).
pub fn mend(bytes: &mut [u8], at: usize, old: u16, new: u16) {
    let before = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let after = !add(add(!before, !old), new);
    bytes[at..at + 2].copy_from_slice(&after.to_be_bytes());
}

/// Updates a partial checksum, which is not complemented.
pub fn mend_begun(bytes: &mut [u8], at: usize, old: u16, new: u16) {
    let before = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let after = add(add(before, !old), new);
    bytes[at..at + 2].copy_from_slice(&after.to_be_bytes());
}
