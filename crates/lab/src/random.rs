//! Random numbers that a seed repeats (SplitMix64: one addition and three
//! multiplications a number, since a link draws some for every segment).

/// A sequence of numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

/// Weyl's increment of SplitMix64: odd, its bits as irregular as the golden
/// ratio's.
const INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// The sequence of a seed; `purpose` keeps what several processes draw from
    /// one seed apart, so that to switch one on changes none of the others.
    pub fn new(seed: u64, purpose: u64) -> Random {
        Random(scramble(seed ^ scramble(purpose)))
    }

    /// The next number, 0 to 2^64 - 1.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(INCREMENT);
        scramble(self.0)
    }

    /// At least 0 and less than 1, a multiple of 2^-53.
    pub fn fraction(&mut self) -> f64 {
        fraction(self.draw())
    }

    /// True with this probability; draws no number where it is 0 or less.
    pub fn happens(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.fraction() < probability
    }
}

/// The number that a seed has at a place, without those before it.
pub fn number_at(seed: u64, place: u64) -> u64 {
    scramble(seed.wrapping_add(place.wrapping_mul(INCREMENT)))
}

/// A number's upper 53 bits as a fraction, at least 0 and less than 1.
pub fn fraction(number: u64) -> f64 {
    // 2^-53: every multiple of it below 1 is a float.
    (number >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
}

/// SplitMix64's output function.
fn scramble(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_even() {
        let mut random = Random::new(1, 2);
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
        let first = |seed, purpose| Random::new(seed, purpose).draw();
        assert_eq!(first(1, 2), first(1, 2));
        assert_ne!(first(1, 2), first(1, 3));
        assert_ne!(first(1, 2), first(2, 2));
        assert_ne!(first(1, 2), first(2, 1));
    }
}
