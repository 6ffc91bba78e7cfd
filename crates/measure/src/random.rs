//! Chance from a seed: xoshiro256++ (Blackman and Vigna, 2019), seeded through
//! SplitMix64 as its authors advise.

/// A stream of random numbers; the same seed gives the same stream, on every
/// host and in every version, so that an interval can be computed again.
///
/// Not for secrets.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// A stream, for any seed.
    pub fn new(seed: u64) -> Random {
        let mut seeds = longhaul_units::Random::new(seed);
        Random {
            state: std::array::from_fn(|_| seeds.bits()),
        }
    }

    /// The next 64 bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        let [first, second, third, fourth] = &mut self.state;
        let result = first
            .wrapping_add(*fourth)
            .rotate_left(23)
            .wrapping_add(*first);
        let shifted = *second << 17;
        *third ^= *first;
        *fourth ^= *second;
        *second ^= *third;
        *first ^= *fourth;
        *third ^= shifted;
        *fourth = fourth.rotate_left(45);
        result
    }

    /// A number from 0 to `bound` - 1, for a bound of at least 1.
    ///
    /// Multiplied and shifted (Lemire, 2019) without the rejection step: one number is more likely
    /// than another by at most `bound` / 2^64.
    #[inline]
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.bits()) * bound as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_published_generator() {
        // The reference implementation's first outputs from the state 1, 2, 3, 4.
        let mut random = Random {
            state: [1, 2, 3, 4],
        };
        let expected = [
            41_943_041,
            58_720_359,
            3_588_806_011_781_223,
            3_591_011_842_654_386,
        ];
        assert_eq!(expected.map(|_| random.bits()), expected);
    }

    #[test]
    fn draws_evenly() {
        let mut random = Random::new(1);
        let mut counts = [0_i32; 7];
        for _ in 0..70_000 {
            counts[random.below(7)] += 1;
        }
        // Each count has a standard deviation of 93; six of them either way.
        assert!(
            counts.iter().all(|c| (c - 10_000).abs() < 558),
            "{counts:?}"
        );
        assert_eq!(random.below(1), 0);
    }
}
