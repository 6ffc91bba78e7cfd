//! What a sample of some data says: that no codec makes it smaller, or that it is an array of
//! numbers, and of which size.

use longhaul_proto::shuffle::ElementSize;

/// Bytes of a sample: enough that each plane of 8-byte elements has 4096 bytes, whose entropy is
/// then known to some hundredths of a bit; looking at it takes some 0.1 ms.
pub const SAMPLE_BYTES: usize = 32 << 10;

/// Data are an array if their planes of bytes have less entropy than all bytes together, by at
/// least this many bits per byte. Text and programs differ by less, floats by more.
const ARRAY_GAIN_BITS: f64 = 0.4;

/// Where the elements are known, less of a gain is one that a shuffle brings: above this it is no
/// scatter of the estimate.
const KNOWN_GAIN_BITS: f64 = 0.1;

/// A larger element must lower the entropy by this many bits more. The estimate falls by itself:
/// by 255 / (2 n ln 2) bits if a plane has n bytes (Miller and Madow), which is 0.04 for 4096.
const LARGER_GAIN_BITS: f64 = 0.15;

/// Bits a byte from which order alone makes nothing smaller: a codec's gain would be within its
/// own headers. Compressed and encrypted data have 7.99 in a sample of this size.
const FULL_BITS: f64 = 7.9;

/// Bits a byte from which little is gained, so that a part of its own is worth it: text has some 5,
/// programs 6.
const DENSE_BITS: f64 = 7.0;

/// What a sample says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Nature {
    /// No codec makes it smaller. Only what repeats from afar could: a trial on a whole block
    /// tells.
    Full,
    /// An array of numbers.
    Numbers(ElementSize),
    /// Bytes that are used nearly evenly, in no order that shows.
    Dense,
    /// Anything else: text, records, programs.
    Other,
}

/// Looks at a sample that begins where an element does, of a multiple of 8 bytes; what is over is
/// not looked at. Less than 512 bytes say nothing.
pub fn nature_of(sample: &[u8]) -> Nature {
    let sample = &sample[..sample.len() / 8 * 8];
    if sample.len() < 512 {
        return Nature::Other;
    }
    let together = entropy(sample.iter().copied());
    let mut best: Option<(ElementSize, f64)> = None;
    for element in ElementSize::ALL {
        let apart = entropy_of_planes(sample, element.bytes());
        let (least, gain) = match best {
            Some((_, least)) => (least, LARGER_GAIN_BITS),
            None => (together, ARRAY_GAIN_BITS),
        };
        if apart + gain < least {
            best = Some((element, apart));
        }
    }
    match best {
        Some((element, _)) => Nature::Numbers(element),
        None if together > FULL_BITS => Nature::Full,
        None if together > DENSE_BITS => Nature::Dense,
        None => Nature::Other,
    }
}

/// Whether an array of such elements gets smaller by its planes of bytes: not if the numbers were
/// compressed, or are random in all their bytes.
pub fn is_array_of(sample: &[u8], element: ElementSize) -> bool {
    let sample = &sample[..sample.len() / 8 * 8];
    let together = entropy(sample.iter().copied());
    entropy_of_planes(sample, element.bytes()) + KNOWN_GAIN_BITS < together
}

/// The mean entropy of the planes of bytes, in bits per byte. An element has `element` bytes.
fn entropy_of_planes(sample: &[u8], element: usize) -> f64 {
    let planes =
        (0..element).map(|place| entropy(sample.iter().skip(place).step_by(element).copied()));
    planes.sum::<f64>() / element as f64
}

/// Shannon's entropy of bytes by themselves, in bits a byte.
fn entropy(bytes: impl Iterator<Item = u8>) -> f64 {
    let mut counts = [0_u32; 256];
    let mut all = 0_u32;
    for byte in bytes {
        counts[usize::from(byte)] += 1;
        all += 1;
    }
    let all = f64::from(all.max(1));
    let terms = counts.iter().filter(|count| **count > 0).map(|count| {
        let share = f64::from(*count) / all;
        -share * share.log2()
    });
    terms.sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_units::Random;

    fn noisy(random: &mut Random, at: usize) -> f64 {
        300.0 + 20.0 * (at as f64 / 700.0).sin() + random.fraction()
    }

    #[test]
    fn arrays_are_known_by_their_planes() {
        let mut random = Random::new(5);
        let doubles: Vec<u8> = (0..SAMPLE_BYTES / 8)
            .flat_map(|at| noisy(&mut random, at).to_le_bytes())
            .collect();
        assert_eq!(nature_of(&doubles), Nature::Numbers(ElementSize::Eight));
        let floats: Vec<u8> = (0..SAMPLE_BYTES / 4)
            .flat_map(|at| (noisy(&mut random, at) as f32).to_be_bytes())
            .collect();
        assert_eq!(nature_of(&floats), Nature::Numbers(ElementSize::Four));
        let shorts: Vec<u8> = (0..SAMPLE_BYTES / 2)
            .flat_map(|at| (noisy(&mut random, at) as i16 * 3).to_le_bytes())
            .collect();
        assert_eq!(nature_of(&shorts), Nature::Numbers(ElementSize::Two));
    }

    #[test]
    fn text_and_noise_are_none() {
        let mut random = Random::new(6);
        let noise = random.bytes(SAMPLE_BYTES);
        assert_eq!(nature_of(&noise), Nature::Full);
        let words = [
            "flow", "stream", "a", "block", "of", "the", "dataset", "and",
        ];
        let mut text = String::new();
        while text.len() < SAMPLE_BYTES {
            text.push_str(words[random.below(8) as usize]);
            text.push(if random.below(9) == 0 { '\n' } else { ' ' });
        }
        assert_eq!(nature_of(text.as_bytes()), Nature::Other);
        let bases: Vec<u8> = (0..SAMPLE_BYTES)
            .map(|_| b"ACGT"[random.below(4) as usize])
            .collect();
        assert_eq!(nature_of(&bases), Nature::Other);
        assert_eq!(nature_of(&vec![0; SAMPLE_BYTES]), Nature::Other);
        assert_eq!(nature_of(b""), Nature::Other);
        let packed = zstd::bulk::compress(&random.bytes(2 * SAMPLE_BYTES), 1).unwrap();
        assert_eq!(nature_of(&packed[..SAMPLE_BYTES]), Nature::Full);
    }
}
