//! Fits the parameters of a capacity to measurements, with residuals and intervals, and chooses
//! between forms.
//!
//! Each form is linear in its parameters after a transformation: for α/(L+γ), 1/T is a line in L;
//! for the universal scalability law, n/T is a parabola. So least squares of relative residuals
//! need at most three equations and no library. Outliers have less weight (Huber, 1964). Forms are
//! compared by the corrected Akaike information criterion (Hurvich and Tsai, 1989). Intervals come
//! from resampled residuals.
//!
//! A form is fitted only if there are more numbers of flows than parameters. Too little data raises
//! a doubt.
//!
//! - `forms`: the equations of the forms
//! - `squares`: weighted least squares

mod forms;
mod squares;

use std::fmt;

use longhaul_units::counted;

use longhaul_measure::random::Random;
use longhaul_measure::stats::{Interval, median, percentile_interval, robust_spread};

use crate::capacity::FlowCapacity;

use forms::{FORMS, Form};

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    /// Number of flows, at least 1.
    pub flows: u32,
    /// Rate of all flows together in bytes per second, greater than zero.
    pub rate: f64,
}

/// A fitted parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Name, as in [`FlowCapacity`].
    pub name: &'static str,
    /// Fitted value.
    pub value: f64,
    /// 95 % confidence interval. `None` if there are too few measurements.
    pub interval: Option<Interval>,
}

/// A form with fitted parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// Form with its parameters.
    pub capacity: FlowCapacity,
    /// Parameters with their intervals.
    pub parameters: Vec<Parameter>,
    /// Relative residual of each observation. Positive if the form is above the observation.
    pub residuals: Vec<f64>,
    /// Typical size of a residual, without the outliers.
    pub spread: f64,
    /// Corrected Akaike information criterion. Lower is better.
    pub aicc: f64,
    /// Half the width of the 95 % interval of a further measurement, as a share of the value.
    pub uncertainty: f64,
}

impl Fit {
    /// Returns the name of the form, as in a graph's file.
    pub fn form(&self) -> &'static str {
        forms::name(&self.capacity)
    }
}

/// The result of a fit.
#[derive(Clone, Debug, PartialEq)]
pub struct Fitted {
    /// Chosen form.
    pub best: Fit,
    /// Other forms, the best first.
    pub others: Vec<Fit>,
    /// Reasons to mistrust the fit.
    pub doubts: Vec<FitDoubt>,
}

/// Reasons to mistrust a fit.
#[derive(Clone, Debug, PartialEq)]
pub enum FitDoubt {
    /// Only one number of flows was measured.
    OneCount {
        /// The measured number of flows.
        flows: u32,
    },
    /// Only two numbers of flows were measured.
    TwoCounts,
    /// There are few observations.
    Few {
        /// Number of observations.
        observations: usize,
    },
    /// The rate was still rising at the largest number of flows. More flows may carry more.
    StillRising {
        /// The largest number of flows.
        most: u32,
    },
    /// Another form fits as well, and predicts a different rate for more flows.
    Undecided {
        /// Name of the other form.
        other: &'static str,
    },
    /// Some observations are outliers.
    Outliers {
        /// Number of outliers.
        count: usize,
        /// Largest relative residual.
        largest: f64,
    },
}

impl fmt::Display for FitDoubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FitDoubt::OneCount { flows } => write!(
                f,
                "it was measured only with {}: measure with 1, 2, 4 and 8 flows",
                counted(*flows, "flow")
            ),
            FitDoubt::TwoCounts => f.write_str(
                "two numbers of flows do not determine a curve: measure with 1, 2, 4 and 8",
            ),
            FitDoubt::Few { observations: 1 } => {
                f.write_str("one measurement is too few: repeat each three times")
            }
            FitDoubt::Few { observations } => write!(
                f,
                "{observations} measurements are few: repeat each three times"
            ),
            FitDoubt::StillRising { most } => write!(
                f,
                "it was still rising with {}: measure with more",
                counted(*most, "flow")
            ),
            FitDoubt::Undecided { other } => write!(
                f,
                "the form \"{other}\" fits as well: measure with more numbers of flows"
            ),
            FitDoubt::Outliers { count, largest } => write!(
                f,
                "outliers: {}, up to {:.0} %: check for other programs on the host",
                counted(*count, "measurement"),
                largest.abs() * 100.0
            ),
        }
    }
}

/// Reasons why a fit is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FitError {
    /// There are no observations.
    Nothing,
    /// An observation has no flows or no rate.
    NoRate,
}

impl fmt::Display for FitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FitError::Nothing => "there are no measurements to fit: measure first",
            FitError::NoRate => "a measurement has no flows or no rate: remove failed measurements",
        })
    }
}

impl std::error::Error for FitError {}

/// Number of observations below which a fit is doubted: three repetitions of two numbers of flows.
const FEW: usize = 6;

/// Difference of the criterion below which two forms are not distinguished (Burnham and Anderson,
/// 2002, section 2.6). The form with fewer parameters is then chosen.
const SAME_CRITERION: f64 = 2.0;

/// Ratio of a residual to the typical one above which it is an outlier.
const FAR: f64 = 5.0;

/// Relative difference at twice the largest number of flows above which two forms predict different
/// rates.
const SAYS_OTHERWISE: f64 = 0.25;

/// Number of resamples of the residuals for intervals.
const DRAWS: usize = 300;

/// Minimum relative spread. Measurements are not more precise.
const LEAST_SPREAD: f64 = 1e-4;

/// Fixed seed of the random numbers, so that the same measurements give the same fit.
const SEED: u64 = 4;

/// Chooses a form and fits its parameters.
///
/// # Errors
///
/// If there are no observations, or one of them is invalid.
pub fn fit(observations: &[Observation]) -> Result<Fitted, FitError> {
    if observations.is_empty() {
        return Err(FitError::Nothing);
    }
    let valid = |it: &Observation| it.flows > 0 && it.rate.is_finite() && it.rate > 0.0;
    if !observations.iter().all(valid) {
        return Err(FitError::NoRate);
    }
    let spread = own_spread(observations);
    let mut fits: Vec<(Form, Fit)> = FORMS
        .into_iter()
        .filter_map(|form| Some((form, one(form, observations, spread)?)))
        .collect();
    if fits.is_empty() {
        return Err(FitError::NoRate);
    }
    fits.sort_by(|a, b| a.1.aicc.total_cmp(&b.1.aicc));
    let least = fits[0].1.aicc;
    let simplest = fits
        .iter()
        .enumerate()
        .filter(|(_, (_, fit))| fit.aicc <= least + SAME_CRITERION)
        .min_by_key(|(_, (form, _))| form.parameters())
        .map_or(0, |(at, _)| at);
    let (form, mut best) = fits.remove(simplest);
    intervals(form, &mut best, observations, spread);
    let doubts = doubts(&best, &fits, observations);
    Ok(Fitted {
        best,
        others: fits.into_iter().map(|it| it.1).collect(),
        doubts,
    })
}

/// Fits the cost of a file: the seconds that a flow spends on each file beside its bytes, and the
/// rate for endless files. The runs must have the same number of flows and files of several sizes:
/// 1/T = 1/R + s/(n·bytes). Each entry is the size of a file in bytes and the measured rate of all
/// flows in bytes per second. Returns `None` if the sizes do not differ by a factor of two, or if
/// small files are not slower.
pub fn cost_per_file(flows: u32, runs: &[(f64, f64)]) -> Option<(f64, f64)> {
    let valid = |run: &&(f64, f64)| run.0 > 0.0 && run.1 > 0.0 && run.1.is_finite();
    let runs: Vec<&(f64, f64)> = runs.iter().filter(valid).collect();
    let sizes = || runs.iter().map(|run| run.0);
    let (least, most) = (
        sizes().fold(f64::INFINITY, f64::min),
        sizes().fold(0.0, f64::max),
    );
    if flows == 0 || most < 2.0 * least {
        return None;
    }
    let rows: Vec<squares::Row> = runs
        .iter()
        .map(|&&(bytes, rate)| squares::Row {
            terms: [rate, rate / (f64::from(flows) * bytes), 0.0],
            right: 1.0,
        })
        .collect();
    let (found, _) = squares::robust(&rows, 2, None)?;
    let [per_byte, per_file, _] = found;
    (per_byte > 0.0 && per_file > 0.0).then(|| (per_file, 1.0 / per_byte))
}

/// Returns the relative spread of repeated measurements, or `None` if no measurement was repeated
/// often enough.
fn own_spread(observations: &[Observation]) -> Option<f64> {
    let mut apart = Vec::new();
    for flows in counts(observations) {
        let same: Vec<f64> = observations
            .iter()
            .filter(|it| it.flows == flows)
            .map(|it| it.rate)
            .collect();
        if let Some(middle) = median(&same).filter(|_| same.len() > 2) {
            apart.extend(same.iter().map(|rate| rate / middle - 1.0));
        }
    }
    robust_spread(&apart).map(|spread| spread.max(LEAST_SPREAD))
}

/// Returns the measured numbers of flows in ascending order.
fn counts(observations: &[Observation]) -> Vec<u32> {
    let mut counts: Vec<u32> = observations.iter().map(|it| it.flows).collect();
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// Fits one form. Returns `None` if the measurements do not suffice.
fn one(form: Form, observations: &[Observation], spread: Option<f64>) -> Option<Fit> {
    let parameters = form.parameters();
    // Requires one more number of flows than parameters. Otherwise the form fits all points
    // exactly.
    if counts(observations).len() < parameters + usize::from(parameters > 1) {
        return None;
    }
    let (capacity, cost) = form.solve(observations, spread)?;
    let residuals: Vec<f64> = observations
        .iter()
        .map(|it| capacity.at(it.flows) / it.rate - 1.0)
        .collect();
    if residuals.iter().any(|residual| !residual.is_finite()) {
        return None;
    }
    let count = observations.len() as f64;
    // The spread counts as a parameter.
    let k = (parameters + 1) as f64;
    let correction = if count > k + 1.0 {
        2.0 * k * (k + 1.0) / (count - k - 1.0)
    } else {
        // There are too few observations for the correction, so the form with the fewest parameters
        // is preferred.
        1e6 * k
    };
    let size = (cost / count).max(LEAST_SPREAD.powi(2));
    let typical = median(&residuals.iter().map(|it| it.abs()).collect::<Vec<_>>());
    Some(Fit {
        parameters: forms::named(&capacity)
            .into_iter()
            .map(|(name, value)| Parameter {
                name,
                value,
                interval: None,
            })
            .collect(),
        capacity,
        residuals,
        // The median of |residual| of a normal distribution is 0.6745 standard deviations.
        spread: (typical.unwrap_or(0.0) / 0.6745).max(LEAST_SPREAD),
        aicc: count * size.ln() + 2.0 * k + correction,
        uncertainty: 0.0,
    })
}

/// Computes the intervals of the parameters and of the curve by fitting to rates with resampled
/// residuals.
fn intervals(form: Form, fit: &mut Fit, observations: &[Observation], spread: Option<f64>) {
    let free = observations.len().saturating_sub(form.parameters());
    if free == 0 {
        // Without degrees of freedom the uncertainty is unknown. A single measurement may be wrong
        // by a half.
        fit.uncertainty = 0.5;
        return;
    }
    let widen = (observations.len() as f64 / free as f64).sqrt();
    let mut random = Random::new(SEED);
    let mut drawn: Vec<Vec<f64>> = vec![Vec::new(); fit.parameters.len()];
    let mut curve: Vec<f64> = Vec::new();
    let widest = observations.iter().max_by(|a, b| a.rate.total_cmp(&b.rate));
    let flows = widest.map_or(1, |it| it.flows);
    for _ in 0..DRAWS {
        let again: Vec<Observation> = observations
            .iter()
            .map(|it| {
                let residual = fit.residuals[random.below(fit.residuals.len())] * widen;
                Observation {
                    flows: it.flows,
                    rate: fit.capacity.at(it.flows) * (1.0 + residual).max(0.05),
                }
            })
            .collect();
        if let Some((capacity, _)) = form.solve(&again, spread) {
            for (values, (_, value)) in drawn.iter_mut().zip(forms::named(&capacity)) {
                values.push(value);
            }
            curve.push(capacity.at(flows) / fit.capacity.at(flows));
        }
    }
    for (parameter, mut values) in fit.parameters.iter_mut().zip(drawn) {
        parameter.interval = percentile_interval(&mut values, 0.95);
    }
    let half = percentile_interval(&mut curve, 0.95).map_or(0.5, |it| it.width() / 2.0);
    // A further measurement varies like the previous ones: 1.96 standard deviations to each side.
    fit.uncertainty = half.hypot(1.96 * fit.spread).min(0.95);
}

fn doubts(best: &Fit, others: &[(Form, Fit)], observations: &[Observation]) -> Vec<FitDoubt> {
    let mut doubts = Vec::new();
    let counts = counts(observations);
    match counts[..] {
        [flows] => doubts.push(FitDoubt::OneCount { flows }),
        [_, _] => doubts.push(FitDoubt::TwoCounts),
        _ => {}
    }
    if observations.len() < FEW {
        doubts.push(FitDoubt::Few {
            observations: observations.len(),
        });
    }
    let most = counts.last().copied().unwrap_or(1);
    let before = counts.iter().rev().nth(1).copied();
    let rising = before.is_some_and(|before| {
        // Half of the possible gain by the additional flows.
        let possible = f64::from(most) / f64::from(before) - 1.0;
        best.capacity.at(most) / best.capacity.at(before) - 1.0 > possible / 2.0
    });
    if rising {
        doubts.push(FitDoubt::StillRising { most });
    }
    let undecided = others.iter().find(|(_, other)| {
        let more = most.saturating_mul(2);
        let otherwise = other.capacity.at(more) / best.capacity.at(more) - 1.0;
        other.aicc <= best.aicc + SAME_CRITERION && otherwise.abs() > SAYS_OTHERWISE
    });
    if let Some((_, other)) = undecided {
        doubts.push(FitDoubt::Undecided {
            other: other.form(),
        });
    }
    let is_far = |residual: &&f64| residual.abs() > (FAR * best.spread).max(0.05);
    let far: Vec<f64> = best.residuals.iter().filter(is_far).copied().collect();
    if let Some(largest) = far
        .iter()
        .copied()
        .max_by(|a, b| a.abs().total_cmp(&b.abs()))
    {
        doubts.push(FitDoubt::Outliers {
            count: far.len(),
            largest,
        });
    }
    doubts
}
