//! Packets for tests, built independently of the code under test.

use super::{IpVersion, Offload};

/// Returns a TCP packet with a partial checksum. If `segment` is not 0, it is a
/// super-packet with segments of that many bytes.
pub fn tcp(version: IpVersion, payload: &[u8], segment: u16, flags: u8) -> (Vec<u8>, Offload) {
    let tcp_bytes = 32 + payload.len();
    let mut packet = Vec::new();
    match version {
        IpVersion::V4 => {
            packet.extend_from_slice(&[0x45, 0]);
            packet.extend_from_slice(&((20 + tcp_bytes) as u16).to_be_bytes());
            packet.extend_from_slice(&[0xff, 0xfe, 0x40, 0, 64, 6, 0, 0]);
            packet.extend_from_slice(&[198, 18, 1, 1, 198, 18, 2, 1]);
            let sum = !slow_sum(&packet);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        IpVersion::V6 => {
            packet.extend_from_slice(&[0x60, 0, 0, 0]);
            packet.extend_from_slice(&(tcp_bytes as u16).to_be_bytes());
            packet.extend_from_slice(&[6, 64]);
            packet.extend((1..=32).collect::<Vec<u8>>());
        }
    }
    let ip_bytes = packet.len();
    packet.extend_from_slice(&40_000_u16.to_be_bytes());
    packet.extend_from_slice(&5201_u16.to_be_bytes());
    packet.extend_from_slice(&0xffff_ff00_u32.to_be_bytes());
    packet.extend_from_slice(&77_u32.to_be_bytes());
    packet.extend_from_slice(&[0x80, flags, 1, 0, 0, 0, 0, 0]);
    packet.extend_from_slice(&[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
    let begun = slow_pseudo(&packet, ip_bytes, tcp_bytes);
    packet[ip_bytes + 16..ip_bytes + 18].copy_from_slice(&begun.to_be_bytes());
    packet.extend_from_slice(payload);
    let offload = Offload::of_tcp(version, ip_bytes as u16, ip_bytes as u16 + 32, segment);
    (packet, offload)
}

/// Returns the checksum computed word by word, as in RFC 1071.
pub fn slow_sum(bytes: &[u8]) -> u16 {
    let mut total = 0_u32;
    for pair in bytes.chunks(2) {
        let low = pair.get(1).copied().unwrap_or_default();
        total += u32::from(u16::from_be_bytes([pair[0], low]));
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

fn slow_pseudo(packet: &[u8], ip_bytes: usize, transport_bytes: usize) -> u16 {
    let mut pseudo = match ip_bytes {
        20 => packet[12..20].to_vec(),
        _ => packet[8..40].to_vec(),
    };
    pseudo.extend_from_slice(&(transport_bytes as u32).to_be_bytes());
    pseudo.extend_from_slice(&[0, 0, 0, 6]);
    slow_sum(&pseudo)
}

/// True if the complete checksum of a TCP packet is correct.
pub fn tcp_is_sound(packet: &[u8]) -> bool {
    let ip_bytes = if packet[0] >> 4 == 4 { 20 } else { 40 };
    let transport = &packet[ip_bytes..];
    let pseudo = slow_pseudo(packet, ip_bytes, transport.len());
    let total = u32::from(pseudo) + u32::from(slow_sum(transport));
    let header_is_sound = ip_bytes == 40 || slow_sum(&packet[..20]) == 0xffff;
    header_is_sound && (total & 0xffff) + (total >> 16) == 0xffff
}
