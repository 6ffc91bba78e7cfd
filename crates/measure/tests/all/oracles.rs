//! Compares the statistics with scipy's results. `oracles/make.py` computes them.

#![allow(clippy::unwrap_used)]

use longhaul_measure::random::Random;
use longhaul_measure::stats::{
    Repetitions, Resampling, Summary, acceleration_of_mean, bca_interval, bootstrap,
    bootstrap_means, bootstrap_paired_means, mean, median, median_interval, normal_below,
    normal_quantile, percentile_interval, quantile, sorted, standard_error,
};
use serde_json::Value;

fn oracle() -> Value {
    serde_json::from_str(include_str!("../oracles/statistics.json")).unwrap()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(number).collect()
}

#[track_caller]
fn assert_near(found: f64, expected: f64, tolerance: f64) {
    assert!(
        (found - expected).abs() <= tolerance,
        "{found} is not {expected} within {tolerance}"
    );
}

/// Rounding error of values around 1.
const ROUNDING: f64 = 1e-13;

#[test]
fn summaries_equal_those_of_scipy() {
    let oracle = oracle();
    let probabilities = numbers(&oracle["probabilities"]);
    for expected in oracle["summaries"].as_array().unwrap() {
        let values = numbers(&expected["values"]);
        let summary = Summary::of(&values).unwrap();
        assert_eq!(summary.count, values.len());
        assert_near(summary.mean, number(&expected["mean"]), ROUNDING);
        assert_near(summary.median, number(&expected["median"]), ROUNDING);
        assert_near(
            summary.robust_spread,
            number(&expected["spread"]),
            ROUNDING * 10.0,
        );
        match summary.standard_error {
            Some(error) => assert_near(error, number(&expected["standard_error"]), ROUNDING),
            None => assert!(expected["standard_error"].is_null()),
        }
        let ascending = sorted(&values);
        for (probability, expected) in probabilities.iter().zip(numbers(&expected["quantiles"])) {
            assert_near(
                quantile(&ascending, *probability).unwrap(),
                expected,
                ROUNDING,
            );
        }
    }
}

#[test]
fn the_normal_distribution_equals_that_of_scipy() {
    let oracle = oracle();
    for row in oracle["normal"].as_array().unwrap() {
        let (x, expected) = (number(&row[0]), number(&row[1]));
        assert_near(normal_below(x), expected, 3e-15);
    }
    for row in oracle["normal_inverse"].as_array().unwrap() {
        let (p, expected) = (number(&row[0]), number(&row[1]));
        // In the tails, a rounding error of Φ changes x by the error divided by the density.
        let density = (-expected * expected / 2.0).exp() / 2.506_628_274_631;
        assert_near(
            normal_quantile(p),
            expected,
            ROUNDING + 1e-15 * 4.0 / density,
        );
    }
}

/// Returns the exact bootstrap distribution: every resample of five values.
fn all_resamples(values: &[f64]) -> Vec<Vec<f64>> {
    let count = values.len();
    (0..count.pow(count as u32))
        .map(|mut code| {
            (0..count)
                .map(|_| {
                    let value = values[code % count];
                    code /= count;
                    value
                })
                .collect()
        })
        .collect()
}

fn statistic(name: &str) -> fn(&[f64]) -> Option<f64> {
    match name {
        "mean" => mean,
        _ => median,
    }
}

#[test]
fn intervals_of_the_exact_distribution_equal_those_of_scipy() {
    let oracle = oracle();
    let values = numbers(&oracle["bootstrap_values"]);
    let level = number(&oracle["bootstrap_level"]);
    for name in ["mean", "median"] {
        let expected = &oracle["bootstrap"][name];
        let statistic = statistic(name);
        let mut draws: Vec<f64> = all_resamples(&values)
            .iter()
            .map(|resample| statistic(resample).unwrap())
            .collect();
        let percentile = percentile_interval(&mut draws, level).unwrap();
        assert_near(percentile.low, number(&expected["percentile"][0]), 1e-12);
        assert_near(percentile.high, number(&expected["percentile"][1]), 1e-12);
        let acceleration = number(&expected["acceleration"]);
        if name == "mean" {
            let ours = acceleration_of_mean([(1.0, values.as_slice())]);
            assert_near(ours, acceleration, 1e-12);
        }
        let bca = bca_interval(&mut draws, statistic(&values).unwrap(), acceleration, level);
        // Equal means are computed from different sums, so rounding breaks some ties, here and in
        // numpy. This shifts the bias by as many of the 3125 draws.
        let bca = bca.unwrap();
        assert_near(bca.low, number(&expected["interval"][0]), 2e-3);
        assert_near(bca.high, number(&expected["interval"][1]), 2e-3);
    }
}

#[test]
fn resampled_intervals_approach_the_exact_ones() {
    let oracle = oracle();
    let values = numbers(&oracle["bootstrap_values"]);
    let mut random = Random::new(11);
    let mut means = bootstrap_means(&values, 200_000, &mut random);
    let mut alike = bootstrap(&values, 200_000, &mut random, |resample| {
        mean(resample).unwrap()
    });
    for draws in [&mut means, &mut alike] {
        let interval = percentile_interval(draws, 0.95).unwrap();
        let expected = &oracle["bootstrap"]["mean"]["percentile"];
        // With 200,000 draws, the error of a probability of 0.025 is 0.0004, which is 0.001 in the
        // value here.
        assert_near(interval.low, number(&expected[0]), 2e-3);
        assert_near(interval.high, number(&expected[1]), 2e-3);
    }
}

#[test]
fn a_mean_and_a_median_have_the_exact_intervals() {
    let oracle = oracle();
    let values = numbers(&oracle["bootstrap_values"]);
    // The interval of the mean is resampled and that of the median is computed. Both are compared
    // with the exact values.
    let resampling = Resampling {
        draws: 200_000,
        ..Resampling::default()
    };
    let found = Repetitions::alone(values.clone())
        .mean(&resampling)
        .unwrap();
    let expected = &oracle["bootstrap"]["mean"]["interval"];
    assert_near(found.estimate, mean(&values).unwrap(), ROUNDING);
    assert_near(found.interval.low, number(&expected[0]), 2e-3);
    assert_near(found.interval.high, number(&expected[1]), 2e-3);
    let found = median_interval(&sorted(&values), 0.95).unwrap();
    let expected = &oracle["bootstrap"]["median"]["percentile"];
    assert_near(found.low, number(&expected[0]), ROUNDING);
    assert_near(found.high, number(&expected[1]), ROUNDING);
}

#[test]
fn effects_of_a_round_cancel_out_in_pairs() {
    let oracle = oracle();
    let paired = &oracle["paired"];
    let (first, second) = (numbers(&paired["first"]), numbers(&paired["second"]));
    let pairs: Vec<(f64, f64)> = first.iter().copied().zip(second.iter().copied()).collect();
    let differences: Vec<f64> = pairs.iter().map(|(a, b)| a - b).collect();
    assert_near(
        mean(&differences).unwrap(),
        number(&paired["mean"]),
        ROUNDING,
    );
    assert_near(
        standard_error(&differences).unwrap(),
        number(&paired["standard_error"]),
        ROUNDING,
    );
    let mut random = Random::new(5);
    let (left, right) = bootstrap_paired_means(&pairs, 200_000, &mut random);
    let mut apart: Vec<f64> = left.iter().zip(&right).map(|(a, b)| a - b).collect();
    let interval = percentile_interval(&mut apart, 0.95).unwrap();
    let expected = &paired["bootstrap"]["percentile"];
    assert_near(interval.low, number(&expected[0]), 3e-4);
    assert_near(interval.high, number(&expected[1]), 3e-4);
    // Without pairs, the one slow round hides the difference.
    let mut left = bootstrap_means(&first, 20_000, &mut random);
    let right = bootstrap_means(&second, 20_000, &mut random);
    left.iter_mut().zip(&right).for_each(|(a, b)| *a -= b);
    let unpaired = percentile_interval(&mut left, 0.95).unwrap();
    assert!(unpaired.contains(0.0) && !interval.contains(0.0));
}
