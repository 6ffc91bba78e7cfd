//! Computes for each part the share of blocks for each codec that minimises the transfer time.
//!
//! Let x(p, k) be the share of all bytes that belong to part p and get codec k, r its ratio, and c
//! and d the CPU seconds per byte at the two ends. The time per source byte is
//!
//! t = max( Σ x / (r W), Σ x c / C, Σ x d / D, 1 / S )
//!
//! where W is the rate of the path, C and D the cores available to codecs at the two ends, and S
//! the rate of the source. This is paper 004's model (section 4: capacities of layers divided by
//! the ratio, and the processor as a budget over layers), with flows relaxed to shares. The plan
//! minimises t + e (Σ x c / C + Σ x d / D). The second term prevents codecs from work without a
//! gain.

use microlp::{ComparisonOp, OptimizationDirection, Problem, Variable};

use super::figures::Figures;

/// Minimum gain for full use of the cores: a codec that uses all cores all the time must shorten
/// the transfer by this share.
const EFFORT: f64 = 0.03;

/// A share above this is rounded up to the whole part. The few other blocks would come in bursts,
/// which disturb more than they gain.
const NEARLY_ALL: f64 = 0.95;

/// An uncompressed share below this is also compressed if it would use more of the path than all
/// compressed blocks. Each such block delays many compressed ones.
const LEAST_PLAIN: f64 = 0.15;

/// Minimum number of cores assumed. Even a busy host runs necessary work.
const LEAST_CORES: f64 = 0.02;

/// Maximum number of cores assumed.
const MOST_CORES: f64 = 1e5;

/// Conversion to nanoseconds, so that the solver's numbers are near 1.
const NANOSECONDS: f64 = 1e9;

/// Maximum CPU seconds per byte of a codec while the path's rate is unsteady: 50 ms for a block of
/// 4 MiB, about a round trip of a long path.
const QUICK: f64 = 1.2e-8;

/// Bounds of rates in bytes per second. Values outside are not valid measurements, and would exceed
/// the solver's precision.
const SLOWEST: f64 = 1e3;
const FASTEST: f64 = 1e13;

/// The resources of a transfer that codecs can use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resources {
    /// Rate of the path in compressed bytes per second. 0 if unknown.
    pub wire_rate: f64,
    /// Maximum rate of the source in bytes per second. Infinite if it was never observed, because
    /// the path is slower.
    pub supply_rate: f64,
    /// Cores at the sender that codecs use or could use: those in use and those that are idle.
    pub sender_cores: f64,
    /// Cores at the receiver that codecs use or could use.
    pub receiver_cores: f64,
    /// True if the rate of the path is changing, as at the start. A block that takes long to
    /// compress could then be too late.
    pub is_unsteady: bool,
}

impl Default for Resources {
    fn default() -> Resources {
        Resources {
            wire_rate: 0.0,
            supply_rate: f64::INFINITY,
            sender_cores: LEAST_CORES,
            receiver_cores: LEAST_CORES,
            is_unsteady: false,
        }
    }
}

impl Resources {
    /// Replaces invalid values.
    pub(super) fn bounded(self) -> Resources {
        let usual = Resources::default();
        let or = |value: f64, other: f64| if value.is_nan() { other } else { value };
        Resources {
            wire_rate: if or(self.wire_rate, 0.0) > 0.0 {
                self.wire_rate.clamp(SLOWEST, FASTEST)
            } else {
                0.0
            },
            supply_rate: or(self.supply_rate, usual.supply_rate).max(SLOWEST),
            sender_cores: or(self.sender_cores, 0.0).clamp(LEAST_CORES, MOST_CORES),
            receiver_cores: or(self.receiver_cores, 0.0).clamp(LEAST_CORES, MOST_CORES),
            is_unsteady: self.is_unsteady,
        }
    }

    /// True if a codec that needs `seconds` per byte can be useful: the path is slower than the
    /// source, and the cores suffice for at least a twentieth of the blocks.
    pub(super) fn may_use(&self, seconds: f64) -> bool {
        let carried = self.sender_cores / seconds.max(1e-12);
        self.wire_rate > 0.0
            && self.wire_rate * (1.0 - EFFORT) < self.supply_rate
            && carried > self.wire_rate / 20.0
    }
}

/// A plan under construction.
pub(super) struct Plan<'a> {
    resources: Resources,
    /// For each candidate, true if it is fast according to its estimate. First trials run with cold
    /// caches and overestimate the time.
    quick: Vec<bool>,
    /// Share of all bytes, and figures by candidate, for each part.
    parts: Vec<(f64, &'a [Option<Figures>])>,
}

/// The solution of a plan.
pub(super) struct Solved {
    /// Rate in source bytes per second.
    pub rate: f64,
    /// For each part, the share of its blocks for each candidate.
    pub shares: Vec<Vec<f64>>,
}

impl<'a> Plan<'a> {
    pub fn new(resources: Resources, encode_seconds: impl Iterator<Item = f64>) -> Plan<'a> {
        Plan {
            resources,
            quick: encode_seconds.map(|seconds| seconds <= QUICK).collect(),
            parts: Vec::new(),
        }
    }

    pub fn add_part(&mut self, share: f64, figures: &'a [Option<Figures>]) {
        self.parts.push((share, figures));
    }

    /// Returns the rate without codecs.
    pub fn plain_rate(&self) -> f64 {
        self.resources.wire_rate.min(self.resources.supply_rate)
    }

    /// Returns `None` if the solver fails; the last plan then remains in use. No input is known to
    /// cause this.
    pub fn solve(&self) -> Option<Solved> {
        let Resources {
            wire_rate,
            supply_rate,
            sender_cores,
            receiver_cores,
            is_unsteady,
        } = self.resources;
        let wire = NANOSECONDS / wire_rate;
        let (sender, receiver) = (NANOSECONDS / sender_cores, NANOSECONDS / receiver_cores);
        let mut problem = Problem::new(OptimizationDirection::Minimize);
        let time = problem.add_var(1.0, (NANOSECONDS / supply_rate, f64::INFINITY));
        let mut loads = [vec![(time, -1.0)], vec![(time, -1.0)], vec![(time, -1.0)]];
        let mut columns: Vec<(usize, usize, Variable)> = Vec::new();
        for (number, (share, figures)) in self.parts.iter().enumerate() {
            let plain = problem.add_var(0.0, (0.0, *share));
            loads[0].push((plain, wire));
            let mut whole = vec![(plain, 1.0)];
            let known = figures.iter().enumerate();
            let known = known.filter_map(|(at, figures)| Some((at, figures.as_ref()?)));
            let may = |(at, of): &(usize, &Figures)| {
                !of.is_empty() && (!is_unsteady || self.quick.get(*at) == Some(&true))
            };
            for (at, figures) in known.filter(may) {
                let encode = figures.encode_seconds * sender;
                let decode = figures.decode_seconds * receiver;
                let column = problem.add_var(EFFORT * (encode + decode), (0.0, *share));
                let costs = [wire / figures.ratio(), encode, decode];
                for (load, cost) in loads.iter_mut().zip(costs) {
                    load.push((column, cost));
                }
                whole.push((column, 1.0));
                columns.push((number, at, column));
            }
            problem.add_constraint(&whole[..], ComparisonOp::Eq, *share);
        }
        for load in &loads {
            problem.add_constraint(&load[..], ComparisonOp::Le, 0.0);
        }
        let solution = problem.solve().ok()?.into_solution().ok()?;
        let mut shares = vec![vec![0.0; self.quick.len()]; self.parts.len()];
        for (number, at, column) in columns {
            let of = self.parts[number].0;
            if of > 0.0 {
                shares[number][at] = (solution.var_value(column) / of).clamp(0.0, 1.0);
            }
        }
        for ((_, figures), shares) in self.parts.iter().zip(&mut shares) {
            round(shares, figures);
        }
        Some(Solved {
            rate: NANOSECONDS / solution.var_value(time),
            shares,
        })
    }
}

/// Rounds shares that are nearly the whole part.
fn round(shares: &mut [f64], figures: &[Option<Figures>]) {
    let coded: f64 = shares.iter().sum();
    let plain = 1.0 - coded;
    let on_the_wire = |(share, of): (&f64, &Option<Figures>)| Some(share / of.as_ref()?.ratio());
    let coded_wire: f64 = shares.iter().zip(figures).filter_map(on_the_wire).sum();
    if plain < LEAST_PLAIN && plain > coded_wire {
        shares.iter_mut().for_each(|share| *share /= coded);
    }
    let plain = 1.0 - shares.iter().sum::<f64>();
    let most = shares.iter().position(|share| *share >= NEARLY_ALL);
    if most.is_some() || plain >= NEARLY_ALL {
        shares.fill(0.0);
    }
    if let Some(most) = most {
        shares[most] = 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_ratio(ratio: f64) -> Option<Figures> {
        let mut figures = Figures::new(1e-9);
        figures.add_encoded(super::super::figures::Observed {
            bytes: 1 << 20,
            encoded: ((1 << 20) as f64 / ratio) as u64,
            seconds: 1e-3,
        });
        Some(figures)
    }

    fn rounded(shares: [f64; 2], ratios: [f64; 2]) -> [f64; 2] {
        let mut rounded = shares;
        round(&mut rounded, &ratios.map(with_ratio));
        rounded
    }

    #[test]
    fn few_plain_blocks_do_not_delay_many_small_ones() {
        assert_eq!(rounded([0.5, 0.4], [50.0, 80.0]), [0.5 / 0.9, 0.4 / 0.9]);
        // The plain blocks use the smaller part of the path.
        assert_eq!(rounded([0.5, 0.4], [3.0, 3.0]), [0.5, 0.4]);
        // The plain blocks are too many to round.
        assert_eq!(rounded([0.5, 0.3], [50.0, 80.0]), [0.5, 0.3]);
        assert_eq!(rounded([0.01, 0.0], [50.0, 80.0]), [0.0, 0.0]);
        assert_eq!(rounded([0.0, 0.96], [3.0, 3.0]), [0.0, 1.0]);
    }
}
