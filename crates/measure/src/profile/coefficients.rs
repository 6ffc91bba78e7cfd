//! The coefficients C_CC, C_U and C_UC (paper 001, section 3.1).

use std::time::Duration;

/// A point of a profile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Round-trip time τ of the path.
    pub rtt: Duration,
    /// Throughput divided by capacity, Θ̃(τ). From 0 to 1; can exceed 1 in a quotient of two
    /// profiles.
    pub share: f64,
}

/// A profile of throughputs divided by the capacity: Θ̃.
#[derive(Clone, Debug, PartialEq)]
pub struct NormalisedProfile {
    points: Vec<Point>,
}

/// Reasons why points do not form a profile.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProfileError {
    /// Two points have the same round-trip time.
    #[error("two points at {0:?}: reduce the repetitions at a round-trip time to one figure first")]
    SameRtt(Duration),
    /// A share is negative or not finite.
    #[error("{share} at {rtt:?} is not a share of the capacity")]
    NotAShare {
        /// Round-trip time of the point.
        rtt: Duration,
        /// The invalid share.
        share: f64,
    },
}

impl NormalisedProfile {
    /// Creates a profile from points in any order.
    ///
    /// # Errors
    ///
    /// If two points have the same round-trip time, or a share is negative or not finite.
    pub fn new(points: impl IntoIterator<Item = Point>) -> Result<NormalisedProfile, ProfileError> {
        let mut points: Vec<Point> = points.into_iter().collect();
        points.sort_by_key(|point| point.rtt);
        for pair in points.windows(2) {
            if pair[0].rtt == pair[1].rtt {
                return Err(ProfileError::SameRtt(pair[0].rtt));
            }
        }
        match points
            .iter()
            .find(|p| !p.share.is_finite() || p.share < 0.0)
        {
            Some(&Point { rtt, share }) => Err(ProfileError::NotAShare { rtt, share }),
            None => Ok(NormalisedProfile { points }),
        }
    }

    /// Returns the points in ascending order of round-trip time.
    pub fn points(&self) -> &[Point] {
        &self.points
    }
}

/// Methods to compute the mean of a profile over an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MeanRule {
    /// The trapezoidal rule: the exact mean if the profile is straight between its points.
    #[default]
    Trapezoid,
    /// The trapezoidal mean × (1 − 0.1 ms/(τ − τ_L)), as if one sample of a 0.1 ms grid were
    /// missing. This rule reproduces every coefficient in Tables 1 and 2 of paper 001. The paper
    /// does not state it: it is inferred from the tables, and is used only to compare with them.
    PaperGrid,
}

/// Step of the grid from which Tables 1 and 2 of paper 001 seem to be computed.
const PAPER_GRID_STEP: Duration = Duration::from_micros(100);

impl MeanRule {
    /// Returns the factor of the trapezoidal mean for an interval of this length, which must not be
    /// zero.
    fn factor(self, length_seconds: f64) -> f64 {
        match self {
            MeanRule::Trapezoid => 1.0,
            MeanRule::PaperGrid => 1.0 - PAPER_GRID_STEP.as_secs_f64() / length_seconds,
        }
    }
}

/// The coefficients of a profile over [τ_L, τ].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coefficients {
    /// Upper end τ of the interval.
    pub upto: Duration,
    /// Mean of Θ̃ over the interval.
    pub mean: f64,
    /// Mean of Θ̃ at the two ends of the interval, Θ̃_M.
    pub midpoint: f64,
    /// Convex-concave coefficient: mean − midpoint, from −½ to ½. Positive if the mean of the
    /// profile is above the line between its ends.
    pub c_cc: f64,
    /// Under-utilization coefficient: 1 − mean, from 0 to 1.
    pub c_u: f64,
    /// Utilization-concavity coefficient: ½([1 − C_U] + [½ + C_CC]), from 0 to 1.
    pub c_uc: f64,
}

impl Coefficients {
    fn new(upto: Duration, mean: f64, midpoint: f64) -> Coefficients {
        let (c_cc, c_u) = (mean - midpoint, 1.0 - mean);
        Coefficients {
            upto,
            mean,
            midpoint,
            c_cc,
            c_u,
            c_uc: f64::midpoint(1.0 - c_u, 0.5 + c_cc),
        }
    }
}

/// Returns the coefficients over [τ_L, τ] for each τ of a profile except the first, like the
/// columns of Tables 1 and 2 of paper 001.
///
/// The first is omitted because an interval of zero length has no mean. (The paper prints C_UC =
/// 0.7500 there for any throughput. This is the value for a profile that is 1 everywhere.)
pub fn coefficients(profile: &NormalisedProfile, rule: MeanRule) -> Vec<Coefficients> {
    let Some(first) = profile.points.first() else {
        return Vec::new();
    };
    let mut area = 0.0;
    profile
        .points
        .windows(2)
        .map(|pair| {
            let step = (pair[1].rtt - pair[0].rtt).as_secs_f64();
            area += f64::midpoint(pair[0].share, pair[1].share) * step;
            let length = (pair[1].rtt - first.rtt).as_secs_f64();
            let mean = area / length * rule.factor(length);
            let midpoint = f64::midpoint(first.share, pair[1].share);
            Coefficients::new(pair[1].rtt, mean, midpoint)
        })
        .collect()
}

/// Returns the coefficients over the whole profile. Returns `None` for fewer than two points.
pub fn coefficients_up_to(profile: &NormalisedProfile, rule: MeanRule) -> Option<Coefficients> {
    coefficients(profile, rule).pop()
}

/// Constant term of C_UC = ¼ + Σ w Θ̃.
pub const C_UC_CONSTANT: f64 = 0.25;

/// Returns the weights of the points in the trapezoidal mean over these ascending round-trip times.
/// Their sum is 1. Empty for fewer than two round-trip times.
pub(super) fn mean_weights(rtts: &[Duration]) -> Vec<f64> {
    let (Some(first), Some(last)) = (rtts.first(), rtts.last()) else {
        return Vec::new();
    };
    let length = last.saturating_sub(*first).as_secs_f64();
    if length == 0.0 {
        return Vec::new();
    }
    let mut weights = vec![0.0; rtts.len()];
    for (index, pair) in rtts.windows(2).enumerate() {
        let half = (pair[1].saturating_sub(pair[0])).as_secs_f64() / 2.0 / length;
        weights[index] += half;
        weights[index + 1] += half;
    }
    weights
}

/// Returns the weights of mean − `share` × midpoint.
pub(super) fn mean_less_midpoint_weights(rtts: &[Duration], share: f64) -> Vec<f64> {
    let mut weights = mean_weights(rtts);
    if let [first, .., last] = weights.as_mut_slice() {
        *first -= share / 2.0;
        *last -= share / 2.0;
    }
    weights
}

/// Returns the weights w of the points in C_UC = ¼ + Σ w Θ̃ over these ascending round-trip times,
/// with the trapezoidal mean. Derived from paper 001, section 3.1: C_UC = mean − midpoint/2 + ¼.
/// Empty for fewer than two round-trip times.
pub fn c_uc_weights(rtts: &[Duration]) -> Vec<f64> {
    mean_less_midpoint_weights(rtts, 0.5)
}
