//! Flips bits of packets.

use super::{Offload, Packet, checksum};

/// Flips one bit of a single packet; `place` selects the bit.
///
/// If `unseen` is false, the bit is anywhere after the IP header, and the complete
/// checksum no longer matches. If `unseen` is true, the bit is in the payload and the
/// checksum matches, as after a memory fault in a router or network card. Returns false
/// if there was no byte to damage.
pub fn damage(
    bytes: &mut [u8],
    offload: &mut Offload,
    packet: &Packet,
    place: u64,
    unseen: bool,
) -> bool {
    let from = if unseen {
        packet.payload
    } else {
        packet.transport
    };
    let room = bytes.len().saturating_sub(from);
    if room == 0 || unseen && packet.ports.is_none() {
        return false;
    }
    if !unseen {
        checksum::finish(bytes, offload);
    }
    let at = from + (place >> 3) as usize % room;
    let word = word_at(bytes, packet.transport, at);
    bytes[at] ^= 1 << (place & 7);
    if unseen && !offload.checksum_is_begun() {
        mend(bytes, packet, word, word_at(bytes, packet.transport, at));
    }
    true
}

fn mend(bytes: &mut [u8], packet: &Packet, old: u16, new: u16) {
    let Some(at) = checksum::place(packet) else {
        return;
    };
    // In UDP, 0 means "no checksum".
    if packet.protocol == super::UDP && bytes[at..at + 2] == [0, 0] {
        return;
    }
    checksum::mend(bytes, at, old, new);
}

/// Returns the checksum word that contains the byte at `at`. A byte after the end counts
/// as 0.
fn word_at(bytes: &[u8], transport: usize, at: usize) -> u16 {
    let even = at - (at - transport) % 2;
    let low = bytes.get(even + 1).copied().unwrap_or_default();
    u16::from_be_bytes([bytes[even], low])
}
