//! Numbers that a seed repeats: for schedules, simulations and test data, never for secrets.

/// A sequence of pseudo-random numbers: SplitMix64 (Steele, Lea and Flood, "Fast splittable
/// pseudorandom number generators", OOPSLA 2014). A number costs one addition and two
/// multiplications, since the lab's links draw some for every segment.
///
/// A seed gives the same sequence on every host and in every version: tests print their seeds.
#[derive(Clone, Debug)]
pub struct Random(u64);

/// Weyl's increment of SplitMix64: odd, and its bits are as irregular as the golden ratio's.
const INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// The sequence of a seed. Seeds that follow one another give unrelated sequences. Seeds that
    /// differ by a multiple of the increment give the same one, shifted.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The sequence of a seed for one `purpose`. To draw for one purpose changes nothing that is
    /// drawn for another from the same seed.
    pub fn for_purpose(seed: u64, purpose: u64) -> Random {
        Random(scramble(seed ^ scramble(purpose)))
    }

    /// The next 64 bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(INCREMENT);
        scramble(self.0)
    }

    /// 0 to `bound` - 1; 0 where the bound is 0 or 1. One number is more likely than another by
    /// at most `bound` / 2^64.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        self.bits() % bound.max(1)
    }

    /// `low` to `high`, both included; `low` where `high` is less. Not for the range of all 64
    /// bits.
    #[inline]
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// At least 0 and less than 1, a multiple of 2^-53.
    #[inline]
    pub fn fraction(&mut self) -> f64 {
        fraction_of(self.bits())
    }

    /// True with this probability; draws no number where it is 0 or less.
    #[inline]
    pub fn happens(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.fraction() < probability
    }

    /// Fills a buffer with bytes that do not compress.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        for word in buffer.chunks_mut(8) {
            let bits = self.bits().to_le_bytes();
            word.copy_from_slice(&bits[..word.len()]);
        }
    }

    /// `count` bytes that do not compress.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.fill(&mut bytes);
        bytes
    }

    /// Puts a list in a random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            list.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

/// The number that the sequence of a seed has at a place, from 0, without those before it.
#[inline]
pub fn number_at(seed: u64, place: u64) -> u64 {
    scramble(seed.wrapping_add(place.wrapping_mul(INCREMENT)))
}

/// A number's upper 53 bits as a fraction, at least 0 and less than 1.
#[inline]
pub fn fraction_of(number: u64) -> f64 {
    // 2^-53: every multiple of it below 1 is a float.
    (number >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
}

/// The output function of SplitMix64, a bijection.
#[inline]
fn scramble(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_published_generator() {
        // What Vigna's splitmix64.c gives for the seeds 1234567 and 0.
        let mut random = Random::new(1_234_567);
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973];
        assert_eq!(expected.map(|_| random.bits()), expected);
        let mut random = Random::new(0);
        let first: Vec<u64> = (0..3).map(|_| random.bits()).collect();
        let published = [
            0xe220_a839_7b1d_cdaf,
            0x6e78_9e6a_a1b9_65f4,
            0x06c4_5d18_8009_454f,
        ];
        assert_eq!(first, published);
        assert_eq!(number_at(0, 2), published[1]);
    }

    #[test]
    fn fractions_are_even() {
        let mut random = Random::for_purpose(1, 2);
        let mut tenths = [0_u32; 10];
        for _ in 0..100_000 {
            tenths[(random.fraction() * 10.0) as usize] += 1;
        }
        // 10,000 ± 5 deviations of the binomial, of 95 each.
        assert!(
            tenths.iter().all(|count| count.abs_diff(10_000) < 475),
            "{tenths:?}"
        );
    }

    #[test]
    fn purposes_differ_and_seeds_repeat() {
        let first = |seed, purpose| Random::for_purpose(seed, purpose).bits();
        assert_eq!(first(1, 2), first(1, 2));
        assert_ne!(first(1, 2), first(1, 3));
        assert_ne!(first(1, 2), first(2, 2));
        assert_ne!(first(1, 2), first(2, 1));
    }

    #[test]
    fn bounds_hold_and_orders_keep_their_elements() {
        let mut random = Random::new(7);
        assert_eq!(random.below(0), 0);
        assert_eq!(random.between(5, 5), 5);
        assert!((0..1000).all(|_| (3..=9).contains(&random.between(3, 9))));
        assert_eq!(random.bytes(13).len(), 13);
        let mut list: Vec<u32> = (0..100).collect();
        random.shuffle(&mut list);
        assert_ne!(list, (0..100).collect::<Vec<_>>());
        list.sort_unstable();
        assert_eq!(list, (0..100).collect::<Vec<_>>());
    }
}
