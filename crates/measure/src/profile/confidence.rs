//! How sure a profile and its coefficients are.
//!
//! There are two answers. The bootstrap's is the one to work with: repetitions are drawn again at
//! each round-trip time, and every figure is computed from each draw. Hoeffding's is the one that
//! can be proved, as section 7 of paper 001 asks for. C_UC is linear in the points, so a bound
//! needs only that throughput lies between 0 and the capacity. The paper refers to its [13] for
//! the explicit form of its own bound, by covering numbers of a class of functions. That form is
//! not computed here, so nothing is claimed about which of the two is narrower. For a figure that
//! is linear in the points, Hoeffding's needs no class of functions at all.

use std::time::Duration;

use super::coefficients::{
    Coefficients, MeanRule, NormalisedProfile, Point, ProfileError, c_uc_weights, coefficients,
    mean_less_midpoint_weights, mean_weights,
};
use super::scheme::{SchemeError, scheme_profile};
use super::shape::{Bend, Shape, bends, shape_of_bends, transition_at, transition_index};
use crate::random::Random;
use crate::stats::{
    Aligned, Difference, Draws, Figure, HoeffdingBound, Interval, Resampling, Summary,
    acceleration_of_mean, bca_interval, bootstrap_means, bootstrap_paired_means, hoeffding, mean,
    mean_of_means, median_interval, pairs_of, percentile_interval, repetitions_to_halve, sorted,
    weighted_differences,
};

// tidy: long file because two answers to one question are compared in it.

/// The repetitions at one round-trip time.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The path's round-trip time.
    pub rtt: Duration,
    /// Throughput over capacity, one value a repetition, 0 to 1.
    pub shares: Vec<f64>,
    /// The round of an interleaved sweep that each belongs to, aligned with
    /// `shares`; empty where runs were not interleaved.
    pub rounds: Vec<u64>,
}

impl Cell {
    fn aligned(&self) -> Aligned<'_> {
        (&self.shares, &self.rounds)
    }
}

/// The repetitions of one method at several round-trip times.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileSample {
    cells: Vec<Cell>,
}

/// Repetitions that make no profile.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SampleError {
    /// A round-trip time without repetitions.
    #[error("no repetitions at {0:?}")]
    Empty(Duration),
    /// Rounds that do not belong to the repetitions.
    #[error("{rounds} rounds for {shares} repetitions at {rtt:?}")]
    Rounds {
        /// Where.
        rtt: Duration,
        /// How many rounds.
        rounds: usize,
        /// How many repetitions.
        shares: usize,
    },
    /// Two methods were measured at different round-trip times.
    #[error("only one of the two methods was measured at {0:?}: compare them at the same RTTs")]
    DifferentRtts(Duration),
    /// The means are no profile.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// No Θ_F can be made.
    #[error(transparent)]
    Scheme(#[from] SchemeError),
}

impl ProfileSample {
    /// Of cells in any order.
    ///
    /// # Errors
    ///
    /// Where a cell is empty, its rounds do not fit, two have one round-trip time,
    /// or a share is negative or not finite.
    pub fn new(mut cells: Vec<Cell>) -> Result<ProfileSample, SampleError> {
        cells.sort_by_key(|cell| cell.rtt);
        for cell in &cells {
            let (rtt, rounds, shares) = (cell.rtt, cell.rounds.len(), cell.shares.len());
            if shares == 0 {
                return Err(SampleError::Empty(rtt));
            }
            if rounds != 0 && rounds != shares {
                return Err(SampleError::Rounds {
                    rtt,
                    rounds,
                    shares,
                });
            }
            if let Some(&share) = cell.shares.iter().find(|s| !s.is_finite() || **s < 0.0) {
                return Err(ProfileError::NotAShare { rtt, share }.into());
            }
        }
        let sample = ProfileSample { cells };
        NormalisedProfile::new(sample.points())?;
        Ok(sample)
    }

    /// Its cells, by ascending round-trip time.
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// The profile of the means, as in paper 001.
    ///
    /// # Errors
    ///
    /// None: what could fail was tested when it was made.
    pub fn profile(&self) -> Result<NormalisedProfile, ProfileError> {
        NormalisedProfile::new(self.points())
    }

    fn points(&self) -> impl Iterator<Item = Point> {
        self.cells.iter().map(|cell| Point {
            rtt: cell.rtt,
            share: mean(&cell.shares).unwrap_or(0.0),
        })
    }

    fn rtts(&self) -> Vec<Duration> {
        self.cells.iter().map(|cell| cell.rtt).collect()
    }
}

/// A point of a profile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PointFigure {
    /// The round-trip time.
    pub rtt: Duration,
    /// The mean share of the capacity.
    pub mean: Figure,
    /// The median share, with its exact bootstrap interval; none of Θ_F, which was not
    /// measured itself.
    pub median: Option<Figure>,
    /// All repetitions in a few figures, as shares of the capacity; of Θ_F all draws.
    pub summary: Summary,
}

/// The coefficients over [τ_L, τ].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoefficientFigures {
    /// The interval's upper end τ.
    pub upto: Duration,
    /// C_CC; none over two round-trip times, where the profile is the line between its ends.
    pub c_cc: Option<Figure>,
    /// C_U.
    pub c_u: Figure,
    /// C_UC.
    pub c_uc: Figure,
}

/// All figures of one method's profile.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileFigures {
    /// Θ̃(τ), by ascending round-trip time.
    pub points: Vec<PointFigure>,
    /// The coefficients over [τ_L, τ] for each τ but the first.
    pub coefficients: Vec<CoefficientFigures>,
    /// What can be proved of C_UC over the whole, at the same confidence; none
    /// for Θ_F, which is no mean of independent repetitions.
    pub c_uc_bound: Option<HoeffdingBound>,
    /// Convex and concave regions, as far as the intervals of the bends tell.
    pub shape: Shape,
    /// Between which points the draws turn from concave to convex, with the share
    /// of the draws, most frequent first; the ends as [`Shape::transition`] has
    /// them.
    pub transitions: Vec<((Duration, Duration), f64)>,
    /// The round-trip time that C_UC's uncertainty comes from most, with its
    /// share of the variance: more repetitions pay there.
    pub least_certain: Option<(Duration, f64)>,
    /// How many repetitions more at each round-trip time would halve the
    /// intervals: three times those at the one that has fewest.
    pub more_to_halve: usize,
}

impl ProfileFigures {
    /// Each point with the coefficients over [τ_L, τ] up to it; the first has none, and of
    /// very many some have.
    pub fn rows(&self) -> impl Iterator<Item = (&PointFigure, Option<&CoefficientFigures>)> {
        let mut coming = self.coefficients.iter().peekable();
        let rows = self.points.iter();
        rows.map(move |point| (point, coming.next_if(|own| own.upto == point.rtt)))
    }
}

/// The means of resamples, a column for each cell.
fn draw(sample: &ProfileSample, draws: usize, random: &mut Random) -> Vec<Draws> {
    let cells = sample.cells.iter();
    cells
        .map(|cell| bootstrap_means(&cell.shares, draws, random))
        .collect()
}

/// What one draw made of each cell.
fn row(columns: &[Draws], draw: usize) -> Vec<f64> {
    columns.iter().map(|column| column[draw]).collect()
}

fn weighted_sum(weights: &[f64], values: impl IntoIterator<Item = f64>) -> f64 {
    weights.iter().zip(values).map(|(w, v)| w * v).sum()
}

/// A linear figure, constant + Σ weight · mean, with its BCa interval.
fn linear_figure(
    sample: &ProfileSample,
    columns: &[Draws],
    constant: f64,
    weights: &[f64],
    resampling: &Resampling,
) -> Figure {
    let means = sample.points().map(|point| point.share);
    let estimate = constant + weighted_sum(weights, means);
    let mut draws: Vec<f64> = (0..resampling.draws)
        .map(|draw| {
            let drawn = columns.iter().map(|column| column[draw]);
            constant + weighted_sum(weights, drawn)
        })
        .collect();
    let values = sample.cells.iter().map(|cell| cell.shares.as_slice());
    let acceleration = acceleration_of_mean(weights.iter().copied().zip(values));
    let interval = bca_interval(&mut draws, estimate, acceleration, resampling.level);
    Figure {
        estimate,
        interval: interval.unwrap_or(Interval {
            low: estimate,
            high: estimate,
        }),
    }
}

/// All that repetitions say of a profile.
///
/// Intervals are BCa, drawn at each round-trip time on its own.
///
/// # Errors
///
/// None beside those of [`ProfileSample::new`].
pub fn profile_figures(
    sample: &ProfileSample,
    resampling: &Resampling,
) -> Result<ProfileFigures, SampleError> {
    let profile = sample.profile()?;
    let mut random = Random::new(resampling.seed);
    let columns = draw(sample, resampling.draws, &mut random);
    let rtts = sample.rtts();
    let weights = c_uc_weights(&rtts);
    let counts = sample.cells.iter().map(|cell| cell.shares.len());
    let bound_terms: Vec<(f64, usize)> = weights.iter().copied().zip(counts.clone()).collect();
    Ok(ProfileFigures {
        points: point_figures(sample, &columns, resampling),
        coefficients: coefficient_figures(sample, &columns, resampling),
        c_uc_bound: (!weights.is_empty()).then(|| hoeffding(&bound_terms, resampling.level)),
        shape: told_shape(&profile, &columns, resampling),
        transitions: transition_shares(&profile, &columns, resampling.draws),
        least_certain: least_certain(sample, &weights),
        more_to_halve: repetitions_to_halve(counts.min().unwrap_or(0)),
    })
}

fn point_figures(
    sample: &ProfileSample,
    columns: &[Draws],
    resampling: &Resampling,
) -> Vec<PointFigure> {
    let cells = sample.cells.iter().zip(columns);
    cells
        .filter_map(|(cell, column)| {
            let summary = Summary::of(&cell.shares)?;
            let acceleration = acceleration_of_mean([(1.0, cell.shares.as_slice())]);
            let mut draws = column.clone();
            let interval = bca_interval(&mut draws, summary.mean, acceleration, resampling.level)?;
            Some(PointFigure {
                rtt: cell.rtt,
                mean: Figure {
                    estimate: summary.mean,
                    interval,
                },
                median: Some(Figure {
                    estimate: summary.median,
                    interval: median_interval(&sorted(&cell.shares), resampling.level)?,
                }),
                summary,
            })
        })
        .collect()
}

/// Coefficients are drawn over at most this many ranges of round-trip times. Each costs as much as
/// all of these, and a path that is probed for days has thousands.
const MOST_RANGES: usize = 64;

/// How many of this number of round-trip times are in each range; the last has all of them.
fn rows_of(rtts: usize) -> impl Iterator<Item = usize> {
    let most = rtts.saturating_sub(1);
    let rows = most.min(MOST_RANGES);
    (1..=rows).map(move |row| 1 + row * most / rows)
}

fn coefficient_figures(
    sample: &ProfileSample,
    columns: &[Draws],
    resampling: &Resampling,
) -> Vec<CoefficientFigures> {
    let rtts = sample.rtts();
    let figure =
        |constant, weights: &[f64]| linear_figure(sample, columns, constant, weights, resampling);
    rows_of(rtts.len())
        .map(|count| {
            let upto = &rtts[..count];
            let unused: Vec<f64> = mean_weights(upto).iter().map(|w| -w).collect();
            CoefficientFigures {
                upto: rtts[count - 1],
                c_cc: (count > 2).then(|| figure(0.0, &mean_less_midpoint_weights(upto, 1.0))),
                c_u: figure(1.0, &unused),
                c_uc: figure(super::C_UC_CONSTANT, &c_uc_weights(upto)),
            }
        })
        .collect()
}

/// The shape, with a bend only where its percentile interval leaves out zero.
fn told_shape(profile: &NormalisedProfile, columns: &[Draws], resampling: &Resampling) -> Shape {
    let mut points = profile.points().to_vec();
    let certain = bends(&points);
    let mut drawn: Vec<Draws> = vec![Draws::new(); certain.len()];
    for draw in 0..resampling.draws {
        for (point, share) in points.iter_mut().zip(row(columns, draw)) {
            point.share = share;
        }
        for (column, bend) in drawn.iter_mut().zip(bends(&points)) {
            column.push(bend);
        }
    }
    let told = drawn.iter_mut().map(
        |column| match percentile_interval(column, resampling.level) {
            Some(interval) if interval.low > 0.0 => Bend::Concave,
            Some(interval) if interval.high < 0.0 => Bend::Convex,
            _ => Bend::Straight,
        },
    );
    let told: Vec<Bend> = told.collect();
    shape_of_bends(profile.points(), &certain, &told)
}

fn transition_shares(
    profile: &NormalisedProfile,
    columns: &[Draws],
    draws: usize,
) -> Vec<((Duration, Duration), f64)> {
    let mut points = profile.points().to_vec();
    let mut counts = vec![0_usize; points.len()];
    for draw in 0..draws {
        for (point, share) in points.iter_mut().zip(row(columns, draw)) {
            point.share = share;
        }
        if let Some(split) = transition_index(&bends(&points)) {
            counts[split] += 1;
        }
    }
    let mut shares: Vec<_> = counts
        .iter()
        .enumerate()
        .filter(|(_, count)| **count > 0)
        .map(|(split, count)| {
            let share = *count as f64 / draws as f64;
            (transition_at(profile.points(), split), share)
        })
        .collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    shares
}

fn least_certain(sample: &ProfileSample, weights: &[f64]) -> Option<(Duration, f64)> {
    let variances: Vec<(Duration, f64)> = sample
        .cells
        .iter()
        .zip(weights)
        .filter_map(|(cell, weight)| {
            let error = weight * crate::stats::standard_error(&cell.shares)?;
            Some((cell.rtt, error * error))
        })
        .collect();
    let whole: f64 = variances.iter().map(|(_, variance)| variance).sum();
    if whole == 0.0 {
        return None;
    }
    let greatest = variances.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
    greatest.map(|(rtt, variance)| (rtt, variance / whole))
}

/// Two methods compared.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileDifference {
    /// Of the shares of the capacity at each round-trip time.
    pub points: Vec<(Duration, Difference)>,
    /// Of C_UC over all of them; none of fewer than two.
    pub c_uc: Option<Difference>,
}

/// The pairs of two cells, if each repetition of either has one partner in the
/// same round.
fn pairs(first: &Cell, second: &Cell) -> Option<Vec<(f64, f64)>> {
    pairs_of(first.aligned(), second.aligned())
}

/// Means of resamples of two methods, a pair of columns for each cell, and
/// whether all were drawn as pairs.
fn draw_both(
    first: &ProfileSample,
    second: &ProfileSample,
    resampling: &Resampling,
) -> Result<(Vec<Draws>, Vec<Draws>, bool), SampleError> {
    for (one, other) in [(first, second), (second, first)] {
        let rtts = other.rtts();
        if let Some(lone) = one.cells.iter().find(|cell| !rtts.contains(&cell.rtt)) {
            return Err(SampleError::DifferentRtts(lone.rtt));
        }
    }
    let mut random = Random::new(resampling.seed);
    let draws = resampling.draws;
    let mut all_paired = true;
    let both = first.cells.iter().zip(&second.cells).map(|(one, other)| {
        if let Some(pairs) = pairs(one, other) {
            return bootstrap_paired_means(&pairs, draws, &mut random);
        }
        all_paired = false;
        (
            bootstrap_means(&one.shares, draws, &mut random),
            bootstrap_means(&other.shares, draws, &mut random),
        )
    });
    let (left, right) = both.unzip();
    Ok((left, right, all_paired))
}

fn difference(
    estimate: f64,
    mut draws: Draws,
    (is_paired, repetitions): (bool, usize),
    level: f64,
) -> Difference {
    let interval = percentile_interval(&mut draws, level).unwrap_or(Interval {
        low: estimate,
        high: estimate,
    });
    Difference {
        estimate,
        interval,
        is_paired,
        repetitions,
    }
}

/// How two methods differ, first less second. If each repetition of one has its partner in the
/// same round of an interleaved sweep, pairs are drawn. Effects of a round on both then cancel
/// out.
///
/// # Errors
///
/// Where they were not measured at the same round-trip times.
pub fn compare(
    first: &ProfileSample,
    second: &ProfileSample,
    resampling: &Resampling,
) -> Result<ProfileDifference, SampleError> {
    let (left, right, all_paired) = draw_both(first, second, resampling)?;
    let level = resampling.level;
    let estimates: Vec<(Duration, f64)> = first
        .points()
        .zip(second.points())
        .map(|(one, other)| (one.rtt, one.share - other.share))
        .collect();
    let apart: Vec<Draws> = left
        .iter()
        .zip(&right)
        .map(|(one, other)| one.iter().zip(other).map(|(a, b)| a - b).collect())
        .collect();
    let cells = first.cells.iter().zip(&second.cells);
    let counts = cells
        .clone()
        .map(|(one, other)| one.shares.len().min(other.shares.len()));
    let fewest = counts.min().unwrap_or_default();
    let weights = c_uc_weights(&first.rtts());
    let c_uc = (!weights.is_empty()).then(|| {
        let estimate = weighted_sum(&weights, estimates.iter().map(|(_, estimate)| *estimate));
        let draws = (0..resampling.draws).map(|draw| weighted_sum(&weights, row(&apart, draw)));
        difference(estimate, draws.collect(), (all_paired, fewest), level)
    });
    let points = estimates
        .iter()
        .zip(apart)
        .zip(cells)
        .map(|(((rtt, estimate), draws), (one, other))| {
            let is_paired = pairs(one, other).is_some();
            let repetitions = one.shares.len().min(other.shares.len());
            let how = (is_paired, repetitions);
            (*rtt, difference(*estimate, draws, how, level))
        })
        .collect();
    Ok(ProfileDifference { points, c_uc })
}

/// C_UC over all round-trip times by itself, with its BCa interval; none of fewer than two.
pub fn c_uc_figure(sample: &ProfileSample, resampling: &Resampling) -> Option<Figure> {
    let weights = c_uc_weights(&sample.rtts());
    let cells = weights.iter().zip(&sample.cells);
    let terms: Vec<(f64, &[f64])> = cells
        .map(|(weight, cell)| (*weight, cell.shares.as_slice()))
        .collect();
    let sum = mean_of_means(&terms, resampling)?;
    Some(Figure {
        estimate: sum.estimate + super::C_UC_CONSTANT,
        interval: Interval {
            low: sum.interval.low + super::C_UC_CONSTANT,
            high: sum.interval.high + super::C_UC_CONSTANT,
        },
    })
}

/// C_UC of the first less that of the second over all round-trip times, as in [`compare`], but
/// with a BCa interval. `None` for fewer than two, or if they were not measured at the same ones.
pub fn c_uc_difference(
    first: &ProfileSample,
    second: &ProfileSample,
    resampling: &Resampling,
) -> Option<Difference> {
    let weights = c_uc_weights(&first.rtts());
    if weights.is_empty() || first.rtts() != second.rtts() {
        return None;
    }
    let cells = weights.iter().zip(first.cells.iter().zip(&second.cells));
    let terms: Vec<_> = cells
        .map(|(weight, (one, other))| (*weight, one.aligned(), other.aligned()))
        .collect();
    weighted_differences(&terms, resampling)
}

/// Θ_F with its intervals ([`scheme_profile`]): percentile intervals, since it is
/// a quotient; repetitions of Θ_E and Θ_T that share rounds are drawn as pairs.
///
/// # Errors
///
/// Where no Θ_F can be made of the two.
pub fn scheme_figures(
    end_to_end: &ProfileSample,
    tcp: &ProfileSample,
    slower_host: Option<f64>,
    resampling: &Resampling,
) -> Result<ProfileFigures, SampleError> {
    let (above, below, _) = draw_both(end_to_end, tcp, resampling)?;
    let profile = scheme_profile(&end_to_end.profile()?, &tcp.profile()?, slower_host)?;
    let rtts = end_to_end.rtts();
    let drawn_profile = |columns: &[Draws], draw: usize| {
        let shares = rtts.iter().zip(row(columns, draw));
        NormalisedProfile::new(shares.map(|(rtt, share)| Point { rtt: *rtt, share }))
    };
    let mut columns = vec![Draws::with_capacity(resampling.draws); rtts.len()];
    let mut drawn_coefficients = Vec::with_capacity(resampling.draws);
    for draw in 0..resampling.draws {
        let (end_to_end, tcp) = (drawn_profile(&above, draw)?, drawn_profile(&below, draw)?);
        let scheme = scheme_profile(&end_to_end, &tcp, slower_host)?;
        for (column, point) in columns.iter_mut().zip(scheme.points()) {
            column.push(point.share);
        }
        drawn_coefficients.push(coefficients(&scheme, MeanRule::Trapezoid));
    }
    let level = resampling.level;
    let points = profile.points().iter().zip(&columns);
    let counts = end_to_end.cells.iter().chain(&tcp.cells);
    Ok(ProfileFigures {
        points: points
            .filter_map(|(point, column)| {
                Some(PointFigure {
                    rtt: point.rtt,
                    mean: percentile_figure(point.share, column.clone(), level),
                    median: None,
                    summary: Summary::of(column)?,
                })
            })
            .collect(),
        coefficients: scheme_coefficients(&profile, &drawn_coefficients, level),
        c_uc_bound: None,
        shape: told_shape(&profile, &columns, resampling),
        transitions: transition_shares(&profile, &columns, resampling.draws),
        least_certain: None,
        more_to_halve: repetitions_to_halve(counts.map(|c| c.shares.len()).min().unwrap_or(0)),
    })
}

fn percentile_figure(estimate: f64, mut draws: Draws, level: f64) -> Figure {
    let interval = percentile_interval(&mut draws, level).unwrap_or(Interval {
        low: estimate,
        high: estimate,
    });
    Figure { estimate, interval }
}

fn scheme_coefficients(
    profile: &NormalisedProfile,
    drawn: &[Vec<Coefficients>],
    level: f64,
) -> Vec<CoefficientFigures> {
    let estimates = coefficients(profile, MeanRule::Trapezoid);
    estimates
        .iter()
        .enumerate()
        .map(|(index, estimate)| {
            let figure = |of: fn(&Coefficients) -> f64| {
                let draws = drawn.iter().map(|row| of(&row[index])).collect();
                percentile_figure(of(estimate), draws, level)
            };
            CoefficientFigures {
                upto: estimate.upto,
                // The first is over two round-trip times.
                c_cc: (index > 0).then(|| figure(|c| c.c_cc)),
                c_u: figure(|c| c.c_u),
                c_uc: figure(|c| c.c_uc),
            }
        })
        .collect()
}
