//! What files hold: shuffles of arrays, and what their first bytes and samples say.

use longhaul_engine::codec::recognise::recognise;
use longhaul_engine::codec::sample::nature_of;
use longhaul_engine::codec::shuffle::{Room, apply, undo};
use longhaul_proto::shuffle::{Arrangement, CHUNK_BYTES, ElementSize, Shuffle};

use crate::choices::Choices;

/// A shuffle and its inverse change nothing together, in either order, at any length.
pub fn shuffle(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let shuffle = Shuffle {
        arrangement: match choices.below(2) {
            0 => Arrangement::Bytes,
            _ => Arrangement::Bits,
        },
        element: ElementSize::ALL[choices.below(3)],
    };
    // Inputs are shorter than a chunk: repeated, they reach over its end.
    let is_long = choices.flag();
    let rest = choices.rest();
    let times = if !is_long {
        1
    } else {
        3 * CHUNK_BYTES / 2 / rest.len().max(1) + 1
    };
    let block = rest.repeat(times);
    let mut room = Room::default();
    let mut changed = block.clone();
    apply(shuffle, &mut changed, &mut room);
    undo(shuffle, &mut changed, &mut room);
    assert!(changed == block, "{shuffle:?}");
    undo(shuffle, &mut changed, &mut room);
    apply(shuffle, &mut changed, &mut room);
    assert!(changed == block, "{shuffle:?}");
}

/// The beginning of a file, as a format and as a sample.
pub fn recognised(bytes: &[u8]) {
    let _ = recognise(bytes);
    let _ = nature_of(bytes);
}
