//! Pseudo-random numbers from a seed: xoshiro256++ (Blackman and Vigna, 2019), seeded with
//! SplitMix64 as its authors recommend.

/// A sequence of pseudo-random numbers. The same seed gives the same sequence on every host and in
/// every version, so that an interval can be reproduced.
///
/// Not for secrets.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// Starts the sequence of a seed. Any seed is valid.
    pub fn new(seed: u64) -> Random {
        let mut seeds = longhaul_units::Random::new(seed);
        Random {
            state: std::array::from_fn(|_| seeds.bits()),
        }
    }

    /// Returns the next 64 bits.
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

    /// Returns a number from 0 to `bound` - 1. `bound` must be at least 1.
    ///
    /// Uses multiplication and a shift (Lemire, 2019) without the rejection step. Some numbers are
    /// more likely than others, by at most `bound` / 2^64.
    #[inline]
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.bits()) * bound as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_equal_those_of_the_reference_implementation() {
        // Expected numbers are the first outputs of the reference implementation from the state 1,
        // 2, 3, 4.
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
    fn numbers_below_a_bound_are_uniform() {
        let mut random = Random::new(1);
        let mut counts = [0_i32; 7];
        for _ in 0..70_000 {
            counts[random.below(7)] += 1;
        }
        // Each count has a standard deviation of 93. The tolerance is six standard deviations.
        assert!(
            counts.iter().all(|c| (c - 10_000).abs() < 558),
            "{counts:?}"
        );
        assert_eq!(random.below(1), 0);
    }
}
