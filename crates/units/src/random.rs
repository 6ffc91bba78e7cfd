//! Reproducible pseudo-random numbers for schedules, simulations and test data. Not for secrets.

/// A sequence of pseudo-random numbers: SplitMix64 (Steele, Lea and Flood, "Fast splittable
/// pseudorandom number generators", OOPSLA 2014). A number costs one addition and two
/// multiplications. This matters because the lab's links draw several numbers for each segment.
///
/// A seed gives the same sequence on every host and in every version. Tests print their seeds.
#[derive(Clone, Debug)]
pub struct Random(u64);

/// Weyl increment of SplitMix64: an odd number whose bits are those of the golden ratio.
const INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// Starts the sequence of a seed. Consecutive seeds give unrelated sequences. Seeds that differ
    /// by a multiple of the increment give the same sequence at different positions.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Starts the sequence of a seed for one `purpose`. Sequences for different purposes are
    /// independent, even with the same seed.
    pub fn for_purpose(seed: u64, purpose: u64) -> Random {
        Random(scramble(seed ^ scramble(purpose)))
    }

    /// Returns the next 64 bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(INCREMENT);
        scramble(self.0)
    }

    /// Returns a number from 0 to `bound` - 1, or 0 if the bound is 0. Some numbers are more likely
    /// than others, by at most `bound` / 2^64.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        self.bits() % bound.max(1)
    }

    /// Returns a number from `low` to `high`, both included, or `low` if `high` is less. Does not
    /// support the full range of 64 bits.
    #[inline]
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// Returns a multiple of 2^-53 that is at least 0 and less than 1.
    #[inline]
    pub fn fraction(&mut self) -> f64 {
        fraction_of(self.bits())
    }

    /// Returns true with this probability. Draws no number if the probability is 0 or less.
    #[inline]
    pub fn happens(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.fraction() < probability
    }

    /// Fills a buffer with random bytes, which do not compress.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        for word in buffer.chunks_mut(8) {
            let bits = self.bits().to_le_bytes();
            word.copy_from_slice(&bits[..word.len()]);
        }
    }

    /// Returns `count` random bytes, which do not compress.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.fill(&mut bytes);
        bytes
    }

    /// Shuffles a list (Fisher and Yates).
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            list.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

/// Returns the number at a position of a seed's sequence, counted from 0, without drawing the
/// numbers before it.
#[inline]
pub fn number_at(seed: u64, place: u64) -> u64 {
    scramble(seed.wrapping_add(place.wrapping_mul(INCREMENT)))
}

/// Converts the upper 53 bits of a number to a fraction that is at least 0 and less than 1.
#[inline]
pub fn fraction_of(number: u64) -> f64 {
    // Every multiple of 2^-53 below 1 is exactly representable.
    (number >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
}

/// Output function of SplitMix64, a bijection.
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
    fn numbers_equal_those_of_the_reference_implementation() {
        // Expected numbers are the output of Vigna's splitmix64.c for the seeds 1234567 and 0.
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
    fn fractions_are_uniform() {
        let mut random = Random::for_purpose(1, 2);
        let mut tenths = [0_u32; 10];
        for _ in 0..100_000 {
            tenths[(random.fraction() * 10.0) as usize] += 1;
        }
        // 10,000 ± 5 standard deviations of the binomial distribution, 95 each.
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
