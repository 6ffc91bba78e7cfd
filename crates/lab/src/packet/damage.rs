//! Bits that fall over on the way.

use super::{Offload, Packet, checksum};

/// Turns over one bit that `place` chooses, of a packet that is no super-packet.
///
/// Seen: anywhere behind the IP header, with a finished checksum that no longer
/// fits. Unseen: in the payload, with a checksum that fits, as when memory of a
/// router or a card fails; true where there was a payload to damage.
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
    // UDP's 0 means that there is none.
    if packet.protocol == super::UDP && bytes[at..at + 2] == [0, 0] {
        return;
    }
    checksum::mend(bytes, at, old, new);
}

/// The word of the checksum that a byte belongs to; after the end is 0.
fn word_at(bytes: &[u8], transport: usize, at: usize) -> u16 {
    let even = at - (at - transport) % 2;
    let low = bytes.get(even + 1).copied().unwrap_or_default();
    u16::from_be_bytes([bytes[even], low])
}
