//! C_CC, C_U and C_UC (paper 001, section 3.1).

use std::time::Duration;

/// One point of a profile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The path's round-trip time τ.
    pub rtt: Duration,
    /// Throughput over capacity, Θ̃(τ); 0 to 1, or above where a quotient of two
    /// profiles is.
    pub share: f64,
}

/// A profile whose throughputs are shares of the capacity: Θ̃.
#[derive(Clone, Debug, PartialEq)]
pub struct NormalisedProfile {
    points: Vec<Point>,
}

/// Points that make no profile.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProfileError {
    /// Two points have one round-trip time.
    #[error("two points at {0:?}: reduce the repetitions at a round-trip time to one figure first")]
    SameRtt(Duration),
    /// A share is negative or not finite.
    #[error("{share} at {rtt:?} is no share of a capacity")]
    NotAShare {
        /// Where.
        rtt: Duration,
        /// What stands there.
        share: f64,
    },
}

impl NormalisedProfile {
    /// A profile of points in any order.
    ///
    /// # Errors
    ///
    /// Where two points have one round-trip time, or a share is negative or not
    /// finite.
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

    /// Its points, by ascending round-trip time.
    pub fn points(&self) -> &[Point] {
        &self.points
    }
}

/// How the mean of a profile over an interval is taken from its points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MeanRule {
    /// The trapezoids between the points over the interval's length: the mean of
    /// the profile if it is straight between its points.
    #[default]
    Trapezoid,
    /// The trapezoid's mean × (1 − 0.1 ms/(τ − τ_L)), as if one sample of a
    /// 0.1 ms grid were missing. With it every coefficient that paper 001 prints
    /// comes out (its Tables 1 and 2). That this is how they were made is
    /// inferred: the paper does not say, and nothing else is computed with it.
    PaperGrid,
}

/// The step of the grid that Tables 1 and 2 of paper 001 seem to be made with.
const PAPER_GRID_STEP: Duration = Duration::from_micros(100);

impl MeanRule {
    /// The factor on the trapezoid's mean over an interval of this length, which
    /// is not zero.
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
    /// The interval's upper end τ.
    pub upto: Duration,
    /// The mean of Θ̃ over the interval.
    pub mean: f64,
    /// The mean of Θ̃ at the interval's two ends, Θ̃_M.
    pub midpoint: f64,
    /// The convex-concave coefficient: mean − midpoint, −½ to ½; positive where
    /// the profile lies above the line between its ends.
    pub c_cc: f64,
    /// The under-utilization coefficient: 1 − mean, 0 to 1.
    pub c_u: f64,
    /// The utilization-concavity coefficient: ½([1 − C_U] + [½ + C_CC]), 0 to 1.
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

/// The coefficients over [τ_L, τ] for each τ of a profile but the first, as the
/// columns of Tables 1 and 2 of paper 001.
///
/// The first is left out: an interval of no length has no mean. (The paper prints
/// C_UC = 0.7500 there whatever the throughput is; that is its value for a
/// profile that is 1 everywhere.)
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

/// The coefficients over the whole of a profile; `None` of fewer than two points.
pub fn coefficients_up_to(profile: &NormalisedProfile, rule: MeanRule) -> Option<Coefficients> {
    coefficients(profile, rule).pop()
}

/// What C_UC adds to the weighted points: it is ¼ + Σ w Θ̃.
pub const C_UC_CONSTANT: f64 = 0.25;

/// The weights of the points in the mean over all of these ascending round-trip
/// times, by trapezoids; their sum is 1. Empty of fewer than two.
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

/// The weights of the mean less `share` of the midpoint.
pub(super) fn mean_less_midpoint_weights(rtts: &[Duration], share: f64) -> Vec<f64> {
    let mut weights = mean_weights(rtts);
    if let [first, .., last] = weights.as_mut_slice() {
        *first -= share / 2.0;
        *last -= share / 2.0;
    }
    weights
}

/// The weights of the points in C_UC over all of these ascending round-trip
/// times, with the trapezoid's mean: C_UC = ¼ + Σ w Θ̃ (paper 001, section 3.1,
/// written out: C_UC = mean − midpoint/2 + ¼). Empty of fewer than two.
pub fn c_uc_weights(rtts: &[Duration]) -> Vec<f64> {
    mean_less_midpoint_weights(rtts, 0.5)
}
