//! From measurements to the parameters of a capacity, with residuals, intervals, and the choice
//! between forms.
//!
//! Every form here is linear in parameters once its equation is turned: α/(L+γ) is a line in L for
//! 1/T, the universal scalability law a parabola for n/T. So least squares of relative residuals
//! need three equations at most, and no library. Outliers have less weight (Huber, 1964); forms are
//! compared by the corrected criterion of Akaike (Hurvich and Tsai, 1989); intervals come from
//! resampled residuals.
//!
//! Too little data is a doubt, not a guess: a form is tried only where there are more numbers of
//! flows than it has parameters.
//!
//! - `forms`: the equations
//! - `squares`: weighted least squares

mod forms;
mod squares;

use std::fmt;

use longhaul_units::counted;

use longhaul_measure::random::Random;
use longhaul_measure::stats::{Interval, median, percentile_interval, robust_spread};

use crate::capacity::FlowCapacity;

use forms::{FORMS, Form};

/// What was measured once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    /// Flows, 1 or more.
    pub flows: u32,
    /// Bytes per second of all of them, greater than zero.
    pub rate: f64,
}

/// A parameter of a form.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Its name, as in [`FlowCapacity`].
    pub name: &'static str,
    /// Its value.
    pub value: f64,
    /// Where it lies with 95 % confidence; `None` if there is too little to say.
    pub interval: Option<Interval>,
}

/// One form with the parameters that suit the observations.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// The form.
    pub capacity: FlowCapacity,
    /// Its parameters.
    pub parameters: Vec<Parameter>,
    /// For each observation by how much, relative to it, the form is above it.
    pub residuals: Vec<f64>,
    /// The typical size of a residual, without the outliers.
    pub spread: f64,
    /// The corrected criterion of Akaike: the least one is the best.
    pub aicc: f64,
    /// Half the width of the 95 % interval of a further measurement, as a share of it.
    pub uncertainty: f64,
}

impl Fit {
    /// The form's name, as in a graph's file.
    pub fn form(&self) -> &'static str {
        forms::name(&self.capacity)
    }
}

/// The form that was chosen, and what it was chosen from.
#[derive(Clone, Debug, PartialEq)]
pub struct Fitted {
    /// The chosen one.
    pub best: Fit,
    /// The others, the best first.
    pub others: Vec<Fit>,
    /// What to mistrust.
    pub doubts: Vec<FitDoubt>,
}

/// What to mistrust in a fit.
#[derive(Clone, Debug, PartialEq)]
pub enum FitDoubt {
    /// One number of flows alone was measured.
    OneCount {
        /// Flows.
        flows: u32,
    },
    /// Two numbers of flows alone were measured.
    TwoCounts,
    /// There are few observations.
    Few {
        /// How many.
        observations: usize,
    },
    /// The best rate was that of the most flows: more may carry more.
    StillRising {
        /// Flows.
        most: u32,
    },
    /// Another form suits as well, and says something else of more flows.
    Undecided {
        /// The other form's name.
        other: &'static str,
    },
    /// Some observations are far from the rest.
    Outliers {
        /// How many.
        count: usize,
        /// The largest residual, relative.
        largest: f64,
    },
}

impl fmt::Display for FitDoubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FitDoubt::OneCount { flows } => write!(
                f,
                "it was measured with {} alone: measure with 1, 2, 4 and 8",
                counted(*flows, "flow")
            ),
            FitDoubt::TwoCounts => {
                f.write_str("two numbers of flows do not tell a curve: measure with 1, 2, 4 and 8")
            }
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
                "the form \"{other}\" suits as well: measure with more different numbers of flows"
            ),
            FitDoubt::Outliers { count, largest } => write!(
                f,
                "far from the rest: {}, up to {:.0} %: look for what else ran",
                counted(*count, "measurement"),
                largest.abs() * 100.0
            ),
        }
    }
}

/// Why nothing can be fitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FitError {
    /// There is no observation.
    Nothing,
    /// An observation has no flows or no rate.
    NoRate,
}

impl fmt::Display for FitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FitError::Nothing => "there is nothing to fit: measure first",
            FitError::NoRate => "a measurement has no flows or no rate: leave out what failed",
        })
    }
}

impl std::error::Error for FitError {}

/// Observations below which a fit is doubted: three repetitions of two numbers of flows.
const FEW: usize = 6;

/// Criteria that differ by less do not tell two forms apart (Burnham and Anderson, 2002, section
/// 2.6): then the one with fewer parameters is taken.
const SAME_CRITERION: f64 = 2.0;

/// Residuals beyond this multiple of the typical one are outliers.
const FAR: f64 = 5.0;

/// Forms that differ by more than this share at twice the most flows say something else.
const SAYS_OTHERWISE: f64 = 0.25;

/// Sets of residuals that are drawn for intervals.
const DRAWS: usize = 300;

/// The least spread, relative: below it measurements are not that exact.
const LEAST_SPREAD: f64 = 1e-4;

/// Chance has one seed, so that the same measurements give the same fit.
const SEED: u64 = 4;

/// Finds the form and its parameters.
///
/// # Errors
///
/// Where there is nothing, or something that is no measurement.
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

/// Seconds that a flow spends on each file beside its bytes, and the rate for endless files, from
/// runs with one number of flows and files of several sizes: 1/T = 1/R + s/(n·bytes). Each entry is
/// bytes of a file and the measured rate of all flows, in bytes per second. `None` if the sizes do
/// not differ by a factor of two, or where small files are no slower.
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

/// How far repetitions of the same are from each other, relative; `None` if nothing was repeated.
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

/// Numbers of flows that were measured, ascending.
fn counts(observations: &[Observation]) -> Vec<u32> {
    let mut counts: Vec<u32> = observations.iter().map(|it| it.flows).collect();
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// One form; `None` if the measurements do not allow it.
fn one(form: Form, observations: &[Observation], spread: Option<f64>) -> Option<Fit> {
    let parameters = form.parameters();
    // One number of flows more than parameters: else it goes through all points and says nothing.
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
    // The spread is a parameter as well.
    let k = (parameters + 1) as f64;
    let correction = if count > k + 1.0 {
        2.0 * k * (k + 1.0) / (count - k - 1.0)
    } else {
        // Too few outcomes for the correction: the form with the fewest parameters is taken.
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
        // The median of |residual| of a normal distribution is 0.6745 of its deviation.
        spread: (typical.unwrap_or(0.0) / 0.6745).max(LEAST_SPREAD),
        aicc: count * size.ln() + 2.0 * k + correction,
        uncertainty: 0.0,
    })
}

/// Intervals of the parameters and of the curve, from fits to rates with residuals drawn anew.
fn intervals(form: Form, fit: &mut Fit, observations: &[Observation], spread: Option<f64>) {
    let free = observations.len().saturating_sub(form.parameters());
    if free == 0 {
        // Nothing is left over to tell how sure it is; one measurement may be off by a half.
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
    // A further measurement scatters as the ones before: 1.96 deviations to each side.
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
        // Half of what twice the flows could add.
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
