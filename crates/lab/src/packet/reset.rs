//! Builds the answer to a TCP segment for a closed port.

use super::{IpVersion, Offload, Packet, TCP, checksum, tcp_flag};

/// Returns a packet that resets the segment's connection (RFC 9293, 3.5.2), with a
/// complete checksum. Returns `None` if the segment is not TCP or is itself a reset.
pub fn answer(bytes: &[u8], packet: &Packet) -> Option<Vec<u8>> {
    if packet.protocol != TCP || packet.ports.is_none() || packet.tcp_flags & tcp_flag::RST != 0 {
        return None;
    }
    let header = &bytes[packet.transport..];
    let word = |at: usize| {
        u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    let counts = |flag| u32::from(packet.tcp_flags & flag != 0);
    let length =
        (packet.length - packet.payload) as u32 + counts(tcp_flag::SYN) + counts(tcp_flag::FIN);
    let (sequence, acknowledged, flags) = if packet.tcp_flags & tcp_flag::ACK != 0 {
        (word(8), 0, tcp_flag::RST)
    } else {
        (
            0,
            word(4).wrapping_add(length),
            tcp_flag::RST | tcp_flag::ACK,
        )
    };
    let mut answer = ip_header(bytes, packet);
    let transport = answer.len();
    answer.extend_from_slice(&header[2..4]);
    answer.extend_from_slice(&header[..2]);
    answer.extend_from_slice(&sequence.to_be_bytes());
    answer.extend_from_slice(&acknowledged.to_be_bytes());
    answer.extend_from_slice(&[0x50, flags, 0, 0, 0, 0, 0, 0]);
    finish(&mut answer, transport);
    Some(answer)
}

/// Returns an IP header from destination to source, for 20 bytes of TCP.
fn ip_header(bytes: &[u8], packet: &Packet) -> Vec<u8> {
    match packet.version {
        IpVersion::V4 => {
            // Version 4, 5 words, 40 bytes, do not fragment, 64 hops, TCP.
            let mut header = vec![0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, TCP, 0, 0];
            header.extend_from_slice(&bytes[16..20]);
            header.extend_from_slice(&bytes[12..16]);
            checksum::finish_ipv4_header(&mut header);
            header
        }
        IpVersion::V6 => {
            // Version 6, 20 bytes of payload, TCP, 64 hops.
            let mut header = vec![0x60, 0, 0, 0, 0, 20, TCP, 64];
            header.extend_from_slice(&bytes[24..40]);
            header.extend_from_slice(&bytes[8..24]);
            header
        }
    }
}

fn finish(answer: &mut [u8], transport: usize) {
    let Some(packet) = Packet::parse(answer, Offload::default()) else {
        return;
    };
    let begun = checksum::pseudo_header(answer, &packet, 20);
    let value = !checksum::add(begun, checksum::sum(&answer[transport..]));
    answer[transport + 16..transport + 18].copy_from_slice(&value.to_be_bytes());
}
