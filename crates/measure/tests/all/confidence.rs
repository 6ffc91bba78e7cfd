//! Tests of the confidence intervals of profiles: with known distributions, intervals contain the
//! true value as often as their level says.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use longhaul_measure::profile::{
    Cell, ProfileSample, SampleError, compare, profile_figures, scheme_figures,
};
use longhaul_measure::random::Random;
use longhaul_measure::stats::Resampling;

const RTTS_MICROSECONDS: [u64; 7] = [400, 11_800, 22_600, 45_600, 91_600, 183_000, 366_000];
const TRUTH: [f64; 7] = [0.95, 0.94, 0.93, 0.9, 0.8, 0.55, 0.3];
/// C_UC of `TRUTH`: the trapezoidal mean is 0.603080 and the midpoint 0.625. The value is mean -
/// midpoint/2 + ¼.
const TRUE_C_UC: f64 = 0.540_580;

/// Returns repetitions whose mean is `TRUTH` and whose deviation is at most 0.05.
fn sample(repetitions: u64, random: &mut Random, offset: f64) -> ProfileSample {
    let mut cell = |(rtt, truth): (&u64, &f64)| Cell {
        rtt: Duration::from_micros(*rtt),
        shares: (0..repetitions)
            .map(|_| truth + offset + (random.below(1001) as f64 - 500.0) / 10_000.0)
            .collect(),
        rounds: (0..repetitions).collect(),
    };
    let cells = RTTS_MICROSECONDS.iter().zip(&TRUTH).map(&mut cell);
    ProfileSample::new(cells.collect()).unwrap()
}

fn quick() -> Resampling {
    Resampling {
        draws: 400,
        ..Resampling::default()
    }
}

#[test]
fn intervals_contain_the_true_value_with_the_frequency_of_their_level() {
    let mut random = Random::new(1);
    let (mut c_uc_held, mut points_held) = (0, 0);
    for _ in 0..200 {
        let figures = profile_figures(&sample(30, &mut random, 0.0), &quick()).unwrap();
        let whole = figures.coefficients.last().unwrap();
        c_uc_held += i32::from(whole.c_uc.interval.contains(TRUE_C_UC));
        for (point, truth) in figures.points.iter().zip(TRUTH) {
            points_held += i32::from(point.mean.interval.contains(truth));
        }
    }
    // 95 % of 200 is 190. The tolerance is three standard deviations of 3.1. The bootstrap of
    // thirty values is known to contain the true value about one percent less often.
    assert!((178..=199).contains(&c_uc_held), "{c_uc_held}");
    // 95 % of 1400 is 1330. The tolerance is 24, and again one percent less.
    assert!((1292..=1354).contains(&points_held), "{points_held}");
}

#[test]
fn hoeffdings_bound_is_wide_and_shrinks_with_repetitions() {
    let mut random = Random::new(2);
    let bound = |repetitions, random: &mut Random| {
        let figures = profile_figures(&sample(repetitions, random, 0.0), &quick()).unwrap();
        figures.c_uc_bound.unwrap()
    };
    // With five repetitions the bound is ±0.3.
    let five = bound(5, &mut random);
    assert!((five.half_width - 0.3).abs() < 0.005, "{five:?}");
    assert!(!five.is_vacuous());
    assert!(bound(1, &mut random).is_vacuous());
    // A bound of ±0.01 needs thousands of repetitions.
    assert!(bound(4_000, &mut random).half_width > 0.01);
    assert!(bound(5_000, &mut random).half_width < 0.01);
}

#[test]
fn the_same_seed_gives_the_same_figures() {
    let sample = sample(5, &mut Random::new(3), 0.0);
    let once = profile_figures(&sample, &quick()).unwrap();
    assert_eq!(once, profile_figures(&sample, &quick()).unwrap());
    let other_seed = Resampling { seed: 2, ..quick() };
    assert_ne!(once, profile_figures(&sample, &other_seed).unwrap());
}

#[test]
fn three_times_as_many_more_halve_the_interval() {
    let mut random = Random::new(4);
    let width = |repetitions, random: &mut Random| {
        let figures = profile_figures(&sample(repetitions, random, 0.0), &quick()).unwrap();
        let c_uc = figures.coefficients.last().unwrap().c_uc;
        (c_uc.interval.width(), figures.more_to_halve as u64)
    };
    let (wide, more) = width(100, &mut random);
    let (narrow, _) = width(100 + more, &mut random);
    assert!((0.4..0.6).contains(&(narrow / wide)), "{}", narrow / wide);
}

#[test]
fn the_least_certain_rtt_has_the_greatest_weight_and_spread() {
    let figures = profile_figures(&sample(50, &mut Random::new(5), 0.0), &quick()).unwrap();
    let (rtt, share) = figures.least_certain.unwrap();
    // All points have the same spread, and 183 ms has the greatest weight: 0.38² of 0.24.
    assert_eq!(rtt, Duration::from_millis(183));
    assert!((0.4..0.75).contains(&share), "{share}");
}

#[test]
fn the_transition_is_found_in_most_resamples() {
    // The decisive bend, 0.017 at 91.6 ms, is then six standard errors.
    let figures = profile_figures(&sample(100, &mut Random::new(6), 0.0), &quick()).unwrap();
    let (turn, share) = figures.transitions[0];
    assert_eq!(Some(turn), figures.shape.transition);
    assert!(share > 0.99, "{:?}", figures.transitions);
    let all: f64 = figures.transitions.iter().map(|(_, share)| share).sum();
    assert!((all - 1.0).abs() < 1e-9);
}

/// Returns the same repetitions, each reduced by `loss` and a small individual amount.
fn shadow(of: &ProfileSample, loss: f64) -> ProfileSample {
    let cells = of.cells().iter().map(|cell| Cell {
        shares: cell
            .shares
            .iter()
            .enumerate()
            .map(|(index, share)| share - loss - 0.0001 * (index % 3) as f64)
            .collect(),
        ..cell.clone()
    });
    ProfileSample::new(cells.collect()).unwrap()
}

#[test]
fn interleaved_runs_distinguish_methods_that_other_runs_cannot() {
    let first = sample(6, &mut Random::new(7), 0.0);
    let second = shadow(&first, 0.002);
    let paired = compare(&first, &second, &quick()).unwrap();
    let difference = paired.points[3].1;
    assert!(difference.is_paired && difference.is_told_apart());
    assert!((difference.estimate - 0.0021).abs() < 1e-9);
    assert!(paired.c_uc.unwrap().is_told_apart());

    let apart: Vec<Cell> = second
        .cells()
        .iter()
        .map(|cell| Cell {
            rounds: Vec::new(),
            ..cell.clone()
        })
        .collect();
    let apart = ProfileSample::new(apart).unwrap();
    let unpaired = compare(&first, &apart, &quick()).unwrap();
    let difference = unpaired.points[3].1;
    assert!(!difference.is_paired && !difference.is_told_apart());
    assert!(!unpaired.c_uc.unwrap().is_told_apart());
}

#[test]
fn equal_methods_are_not_distinguished() {
    let mut random = Random::new(8);
    let mut told = 0;
    for _ in 0..100 {
        let (first, second) = (sample(20, &mut random, 0.0), sample(20, &mut random, 0.0));
        let difference = compare(&first, &second, &quick()).unwrap();
        told += i32::from(difference.c_uc.unwrap().is_told_apart());
    }
    // By chance, 5 of 100 are distinguished. The tolerance is three standard deviations of 2.2, and
    // one or two for the error of the bootstrap.
    assert!(told <= 13, "{told}");
}

#[test]
fn the_scheme_is_compared_with_tcp_in_the_same_round() {
    let tcp = sample(8, &mut Random::new(9), 0.0);
    let halves = tcp.cells().iter().map(|cell| Cell {
        shares: cell.shares.iter().map(|share| share / 2.0).collect(),
        ..cell.clone()
    });
    let end_to_end = ProfileSample::new(halves.collect()).unwrap();
    let figures = scheme_figures(&end_to_end, &tcp, None, &quick()).unwrap();
    for point in &figures.points {
        // Every pair has the same quotient, and so has every resample of pairs.
        assert!((point.mean.estimate - 0.5).abs() < 1e-12);
        assert!(point.mean.interval.width() < 1e-12);
    }
    // For a profile of ½ everywhere, mean - midpoint/2 + ¼ = ½.
    let whole = figures.coefficients.last().unwrap();
    assert!((whole.c_uc.estimate - 0.5).abs() < 1e-12);
    assert_eq!(figures.c_uc_bound, None);
}

#[test]
fn invalid_samples_are_rejected() {
    let cell = |rtt, shares: &[f64], rounds: &[u64]| Cell {
        rtt: Duration::from_millis(rtt),
        shares: shares.to_vec(),
        rounds: rounds.to_vec(),
    };
    for cells in [
        vec![cell(1, &[], &[])],
        vec![cell(1, &[0.5], &[1, 2])],
        vec![cell(1, &[f64::NAN], &[])],
        vec![cell(1, &[-0.1], &[])],
        vec![cell(1, &[0.5], &[]), cell(1, &[0.5], &[])],
    ] {
        assert!(ProfileSample::new(cells.clone()).is_err(), "{cells:?}");
    }
    let one = ProfileSample::new(vec![cell(1, &[0.5], &[]), cell(2, &[0.5], &[])]).unwrap();
    let other = ProfileSample::new(vec![cell(1, &[0.5], &[]), cell(3, &[0.5], &[])]).unwrap();
    assert_eq!(
        compare(&one, &other, &quick()),
        Err(SampleError::DifferentRtts(Duration::from_millis(2)))
    );
}

#[test]
fn one_point_has_no_coefficients() {
    let cells = vec![Cell {
        rtt: Duration::from_millis(1),
        shares: vec![0.5, 0.6],
        rounds: Vec::new(),
    }];
    let figures = profile_figures(&ProfileSample::new(cells).unwrap(), &quick()).unwrap();
    assert_eq!(figures.points.len(), 1);
    assert!(figures.coefficients.is_empty() && figures.c_uc_bound.is_none());
    assert!(figures.transitions.is_empty() && figures.shape.transition.is_none());
}

/// A path that is probed for days has a different round-trip time for each probe.
#[test]
fn with_very_many_round_trip_times_only_some_have_coefficients() {
    let mut random = Random::new(5);
    for rtts in [2_u64, 7, 64, 65, 66, 500] {
        let cell = |rtt| Cell {
            rtt: Duration::from_micros(rtt),
            shares: vec![0.5 + random.below(100) as f64 / 1000.0],
            rounds: vec![0],
        };
        let sample = ProfileSample::new((1..=rtts).map(cell).collect()).unwrap();
        let resampling = Resampling {
            draws: 2,
            ..Resampling::default()
        };
        let figures = profile_figures(&sample, &resampling).unwrap();
        assert_eq!(figures.coefficients.len() as u64, (rtts - 1).min(64));
        let rows: Vec<_> = figures.rows().collect();
        assert!(rows[0].1.is_none() && rows.last().unwrap().1.is_some());
        let with = rows.iter().filter_map(|row| Some((row.0.rtt, row.1?.upto)));
        let with: Vec<_> = with.collect();
        assert_eq!(with.len(), figures.coefficients.len());
        assert!(with.iter().all(|(own, upto)| own == upto));
    }
}
