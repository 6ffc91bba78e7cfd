//! What share of each part's blocks gets which codec, so that the transfer takes the least time.
//!
//! Let x(p, k) be the share of all bytes that are of part p and get codec k, r its ratio, c and d
//! the seconds of a core that a byte takes at both ends. A byte of the source takes
//!
//! t = max( Σ x / (r W), Σ x c / C, Σ x d / D, 1 / S )
//!
//! where W is the path's rate, C and D the cores that codecs can have at both ends, and S the rate
//! of the source. That is paper 004's model (section 4: capacities of layers over the ratio, the
//! processor as a budget over layers), with the flows relaxed to shares. The plan makes
//! t + e (Σ x c / C + Σ x d / D) least: the second term keeps codecs from work that gains nothing.

use microlp::{ComparisonOp, OptimizationDirection, Problem, Variable};

use super::figures::Figures;

/// What a gain must be worth: a codec that takes all cores all the time is used only where it
/// makes the transfer shorter by this share.
const EFFORT: f64 = 0.03;

/// A choice for so much of a part is one for all of it: the few blocks of another kind would come
/// in lumps that gain less than they disturb.
const NEARLY_ALL: f64 = 0.95;

/// A share that is sent as it is, and is less than this, is compressed too where it would take more
/// of the path than all the rest: each such block holds up many that are compressed.
const LEAST_PLAIN: f64 = 0.15;

/// Cores that are there at least: a busy host still runs what it must.
const LEAST_CORES: f64 = 0.02;

/// And at most.
const MOST_CORES: f64 = 1e5;

/// Times are computed in nanoseconds, so that the solver's numbers are near 1.
const NANOSECONDS: f64 = 1e9;

/// Seconds of a core for a byte that codecs take at most while the path's rate changes: 50 ms for a
/// block of 4 MiB, a round trip of a long path.
const QUICK: f64 = 1.2e-8;

/// Rates in bytes per second are taken for this at least and at most: anything else is no
/// measurement, and would leave the solver no digits.
const SLOWEST: f64 = 1e3;
const FASTEST: f64 = 1e13;

/// What a transfer has, of which codecs take their part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resources {
    /// Bytes per second that the path carries, after compression; 0 where it is not known yet.
    pub wire_rate: f64,
    /// Bytes per second that the source supplies at most; infinite where the path is slower, so
    /// that it was never seen.
    pub supply_rate: f64,
    /// Cores at the sender that codecs have or could have: those they use, and those that idle.
    pub sender_cores: f64,
    /// The same at the receiver.
    pub receiver_cores: f64,
    /// The path's rate changes, as in its beginning: a block that takes long may be too late.
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
    /// Without what makes no sense.
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

    /// Whether a codec that takes `seconds` per byte could gain anything: the path is slower
    /// than the source, and the cores carry it for a twentieth of the blocks at least.
    pub(super) fn may_use(&self, seconds: f64) -> bool {
        let carried = self.sender_cores / seconds.max(1e-12);
        self.wire_rate > 0.0
            && self.wire_rate * (1.0 - EFFORT) < self.supply_rate
            && carried > self.wire_rate / 20.0
    }
}

/// A plan as it is made.
pub(super) struct Plan<'a> {
    resources: Resources,
    /// Of each candidate, whether it is quick by what was thought of it: its first trials are cold,
    /// and tell too much.
    quick: Vec<bool>,
    /// Share of all bytes, and figures by candidate.
    parts: Vec<(f64, &'a [Option<Figures>])>,
}

/// What came of it.
pub(super) struct Solved {
    /// Bytes of the source per second.
    pub rate: f64,
    /// Of each part, the share of its blocks that gets each candidate.
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

    /// What the transfer carries without codecs.
    pub fn plain_rate(&self) -> f64 {
        self.resources.wire_rate.min(self.resources.supply_rate)
    }

    /// None if the solver fails. No plan is known to make it fail. The last plan then holds.
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

/// Makes nearly all of a part all of it.
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
    fn few_plain_blocks_do_not_hold_up_many_small_ones() {
        assert_eq!(rounded([0.5, 0.4], [50.0, 80.0]), [0.5 / 0.9, 0.4 / 0.9]);
        // They have the smaller part of the path.
        assert_eq!(rounded([0.5, 0.4], [3.0, 3.0]), [0.5, 0.4]);
        // They are many.
        assert_eq!(rounded([0.5, 0.3], [50.0, 80.0]), [0.5, 0.3]);
        assert_eq!(rounded([0.01, 0.0], [50.0, 80.0]), [0.0, 0.0]);
        assert_eq!(rounded([0.0, 0.96], [3.0, 3.0]), [0.0, 1.0]);
    }
}
