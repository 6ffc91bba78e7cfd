//! Pieces of a super-packet: some of its segments, with the headers that a kernel would
//! have given them.

use super::{IpVersion, OFFLOAD_BYTES, Offload, Packet, checksum, tcp_flag};

/// Maximum length of a segment's headers in bytes: IPv4 and TCP with all options.
pub const LONGEST_HEADERS: usize = 60 + 60;

/// Offload header and packet headers of a piece. The payload stays in the whole packet.
#[derive(Clone, Debug)]
pub struct PieceHeader {
    bytes: [u8; OFFLOAD_BYTES + LONGEST_HEADERS],
    length: usize,
}

impl PieceHeader {
    /// Returns the [`Offload`] header and the IP and TCP headers.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Cuts `count` segments, starting at `first`, out of a super-packet. Returns the new
/// headers and the range of the payload in the whole packet. Returns `None` if there are
/// no such segments or the headers are too long.
pub fn piece(
    whole: &[u8],
    offload: Offload,
    packet: &Packet,
    first: usize,
    count: usize,
) -> Option<(PieceHeader, std::ops::Range<usize>)> {
    let segment = packet.segment?;
    let headers = packet.payload;
    if count == 0 || first + count > packet.segments() || headers > LONGEST_HEADERS {
        return None;
    }
    let begin = packet.payload + first * segment;
    let end = (begin + count * segment).min(packet.length);
    let mut piece = PieceHeader {
        bytes: [0; OFFLOAD_BYTES + LONGEST_HEADERS],
        length: OFFLOAD_BYTES + headers,
    };
    let (note, rest) = piece.bytes.split_at_mut(OFFLOAD_BYTES);
    let own = &mut rest[..headers];
    own.copy_from_slice(whole.get(..headers)?);
    set_ip(own, packet, first, end - begin);
    set_tcp(own, packet, first, count, end - begin);
    let several = end - begin > segment;
    let kept = Offload {
        kind: if several { offload.kind } else { 0 },
        segment: if several { offload.segment } else { 0 },
        header: headers as u16,
        checksum_start: packet.transport as u16,
        checksum_offset: 16,
        ..offload
    };
    note.copy_from_slice(&kept.to_bytes());
    Some((piece, begin..end))
}

/// Sets the length, and for IPv4 the identification, which counts segments.
fn set_ip(own: &mut [u8], packet: &Packet, first: usize, payload: usize) {
    let length = packet.payload + payload;
    match packet.version {
        IpVersion::V4 => {
            own[2..4].copy_from_slice(&(length as u16).to_be_bytes());
            let before = u16::from_be_bytes([own[4], own[5]]);
            own[4..6].copy_from_slice(&before.wrapping_add(first as u16).to_be_bytes());
            checksum::finish_ipv4_header(&mut own[..packet.transport]);
        }
        IpVersion::V6 => own[4..6].copy_from_slice(&((length - 40) as u16).to_be_bytes()),
    }
}

/// Sets the sequence number and the partial checksum, and clears flags that belong to the
/// first or last segment only.
fn set_tcp(own: &mut [u8], packet: &Packet, first: usize, count: usize, payload: usize) {
    let offset = first * packet.segment.unwrap_or_default();
    let at = packet.transport;
    let sequence = u32::from_be_bytes([own[at + 4], own[at + 5], own[at + 6], own[at + 7]]);
    let sequence = sequence.wrapping_add(offset as u32);
    own[at + 4..at + 8].copy_from_slice(&sequence.to_be_bytes());
    if first + count < packet.segments() {
        own[at + 13] &= !(tcp_flag::FIN | tcp_flag::PSH);
    }
    if first > 0 {
        own[at + 13] &= !tcp_flag::CWR;
    }
    let begun = checksum::pseudo_header(own, packet, packet.payload - at + payload);
    own[at + 16..at + 18].copy_from_slice(&begun.to_be_bytes());
}
