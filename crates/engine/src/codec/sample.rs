//! Classifies data by a sample: incompressible data, or an array of numbers of some size.

use longhaul_proto::shuffle::ElementSize;

/// Bytes of a sample. Each plane of 8-byte elements then has 4096 bytes, enough for its entropy to
/// a few hundredths of a bit. The analysis takes about 0.1 ms.
pub const SAMPLE_BYTES: usize = 32 << 10;

/// Minimum gain for an array, in bits per byte: the entropy of its byte planes is lower than that
/// of all bytes together by this. Text and programs have less gain, floats more.
const ARRAY_GAIN_BITS: f64 = 0.4;

/// Minimum gain if the element size is known, in bits per byte. It exceeds the scatter of the
/// estimate.
const KNOWN_GAIN_BITS: f64 = 0.1;

/// Additional gain that a larger element must have, in bits. The estimate falls by itself: by 255 /
/// (2 n ln 2) bits if a plane has n bytes (Miller and Madow), which is 0.04 for 4096.
const LARGER_GAIN_BITS: f64 = 0.15;

/// Entropy in bits per byte above which data are incompressible by byte frequencies: the gain is
/// within a codec's headers. Compressed and encrypted data have 7.99 in a sample of this size.
const FULL_BITS: f64 = 7.9;

/// Entropy in bits per byte above which little is gained, so that such data are a kind of their
/// own. Text has about 5, programs 6.
const DENSE_BITS: f64 = 7.0;

/// Class of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Nature {
    /// Incompressible. Only distant repetitions could be compressed: a trial on a whole block
    /// decides.
    Full,
    /// An array of numbers.
    Numbers(ElementSize),
    /// Bytes with nearly equal frequencies and no visible pattern.
    Dense,
    /// All other data: text, records, programs.
    Other,
}

/// Classifies a sample that begins at an element. Bytes after the last multiple of 8 are ignored. A
/// sample of less than 512 bytes counts as [`Nature::Other`].
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

/// True if the byte planes of an array of such elements are compressible: not if the numbers were
/// compressed, or are random in all their bytes.
pub fn is_array_of(sample: &[u8], element: ElementSize) -> bool {
    let sample = &sample[..sample.len() / 8 * 8];
    let together = entropy(sample.iter().copied());
    entropy_of_planes(sample, element.bytes()) + KNOWN_GAIN_BITS < together
}

/// Returns the mean entropy of the byte planes, in bits per byte. An element has `element` bytes.
fn entropy_of_planes(sample: &[u8], element: usize) -> f64 {
    let planes =
        (0..element).map(|place| entropy(sample.iter().skip(place).step_by(element).copied()));
    planes.sum::<f64>() / element as f64
}

/// Returns Shannon's entropy of independent bytes, in bits per byte.
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
    fn text_and_noise_are_not_arrays() {
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
