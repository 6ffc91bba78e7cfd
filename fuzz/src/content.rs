//! Payloads of blocks: codecs, shuffles of arrays, and the recognition of content.

use longhaul_engine::codec::recognise::recognise;
use longhaul_engine::codec::sample::nature_of;
use longhaul_engine::codec::shuffle::{Room, apply, undo};
use longhaul_engine::codec::{Decoder, Encoder, bound};
use longhaul_proto::block::Codec;
use longhaul_proto::shuffle::{Arrangement, CHUNK_BYTES, ElementSize, Shuffle};

use super::choices::Choices;

/// Longest payload that is tried, before and after.
const PAYLOAD_BYTES: u64 = 256 << 10;

/// A payload that is decoded into a room of the announced size, which it never
/// leaves.
pub fn codec(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let codec = match choices.below(3) {
        0 => Codec::Lz4,
        _ => Codec::Zstd { level: 1 },
    };
    let announced = (choices.number() % PAYLOAD_BYTES) as usize;
    let payload = choices.rest();
    let Ok(mut decoder) = Decoder::new() else {
        return;
    };
    // The bytes after the announced length must not change.
    let mut room = vec![0xa5; announced + 64];
    let decoded = decoder.decode(codec, payload, &mut room[..announced]);
    assert!(room[announced..].iter().all(|&byte| byte == 0xa5));
    if decoded.is_ok() {
        let Ok(mut encoder) = Encoder::new() else {
            return;
        };
        let mut packed = vec![0; bound(codec, announced)];
        let length = encoder
            .encode(codec, &room[..announced], &mut packed)
            .expect("there is room");
        let mut back = vec![0; announced];
        let again = decoder.decode(codec, &packed[..length], &mut back);
        assert!(again.is_ok() && back == room[..announced]);
    }
}

/// Checks that a shuffle and its inverse cancel each other, in either order, at any length.
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
