//! Tests of fits to known curves, with noise from a seed.

use longhaul_measure::random::Random;
use longhaul_model::capacity::FlowCapacity;
use longhaul_model::fit::{FitDoubt, FitError, Observation, cost_per_file, fit};

/// Returns three measurements for each number of flows, with uniform relative noise of at most
/// `noise`.
fn measured(form: &FlowCapacity, counts: &[u32], noise: f64, seed: u64) -> Vec<Observation> {
    let mut random = Random::new(seed);
    let mut each = |flows: u32| {
        let share = random.below(2001) as f64 / 1000.0 - 1.0;
        Observation {
            flows,
            rate: form.at(flows) * (1.0 + noise * share),
        }
    };
    let thrice = counts.iter().flat_map(|&flows| [flows; 3]);
    thrice.map(&mut each).collect()
}

const COUNTS: [u32; 6] = [1, 2, 4, 8, 12, 16];

fn forms() -> Vec<FlowCapacity> {
    vec![
        FlowCapacity::Constant { rate: 480e6 },
        FlowCapacity::Falling {
            alpha: 3.5e9,
            gamma: 6.0,
        },
        FlowCapacity::Saturating {
            alpha: 2.4e9,
            gamma: 3.0,
        },
        FlowCapacity::Linear {
            alpha: 150e6,
            gamma: 0.0,
            most: 8,
        },
        FlowCapacity::Scalability {
            lambda: 200e6,
            sigma: 0.05,
            kappa: 0.02,
        },
        FlowCapacity::Quadratic {
            a: 100e6,
            b: 150e6,
            c: -6e6,
        },
    ]
}

#[test]
fn the_form_of_the_measurements_is_found() {
    for form in forms() {
        for seed in 0..20 {
            let found = fit(&measured(&form, &COUNTS, 0.03, seed)).unwrap();
            for flows in 1..=16 {
                let off = found.best.capacity.at(flows) / form.at(flows) - 1.0;
                assert!(
                    off.abs() < 0.06,
                    "seed {seed}: {off} at {flows} of {form:?}\n{found:#?}"
                );
            }
            assert!(found.best.uncertainty < 0.15, "seed {seed}: {found:#?}");
            let off = std::mem::discriminant(&found.best.capacity) != std::mem::discriminant(&form);
            // A parabola and the scalability law are similar over a factor of sixteen.
            let alike = matches!(
                form,
                FlowCapacity::Quadratic { .. } | FlowCapacity::Scalability { .. }
            );
            assert!(!off || alike || seed > 0, "{form:?}: {found:#?}");
        }
    }
}

#[test]
fn intervals_contain_the_true_values() {
    let form = &forms()[1];
    let mut held = 0;
    for seed in 0..100 {
        let found = fit(&measured(form, &COUNTS, 0.05, seed)).unwrap();
        let gamma = found.best.parameters.iter().find(|it| it.name == "gamma");
        let interval = gamma.and_then(|it| it.interval);
        held += u32::from(interval.is_some_and(|it| it.contains(6.0)));
    }
    assert!((85..=100).contains(&held), "{held} of 100");
}

#[test]
fn an_outlier_changes_little_and_raises_a_doubt() {
    let form = FlowCapacity::Saturating {
        alpha: 2.4e9,
        gamma: 3.0,
    };
    let mut runs = measured(&form, &COUNTS, 0.02, 1);
    runs[7].rate /= 4.0;
    let found = fit(&runs).unwrap();
    let off = found.best.capacity.at(4) / form.at(4) - 1.0;
    assert!(off.abs() < 0.06, "{off}");
    let told = |doubt: &FitDoubt| matches!(doubt, FitDoubt::Outliers { count: 1, .. });
    assert!(found.doubts.iter().any(told), "{:?}", found.doubts);
}

#[test]
fn too_few_measurements_are_a_doubt_and_zero_an_error() {
    assert_eq!(fit(&[]).unwrap_err(), FitError::Nothing);
    let one = |flows, rate| Observation { flows, rate };
    assert_eq!(fit(&[one(1, 0.0)]).unwrap_err(), FitError::NoRate);
    let found = fit(&[one(4, 1e8)]).unwrap();
    assert_eq!(found.best.capacity, FlowCapacity::Constant { rate: 1e8 });
    assert!(found.doubts.contains(&FitDoubt::OneCount { flows: 4 }));
    assert!(found.best.uncertainty >= 0.5);
    // Two numbers of flows do not distinguish a curve from a line.
    let found = fit(&[one(1, 1e8), one(2, 1.9e8)]).unwrap();
    assert!(
        found
            .doubts
            .iter()
            .any(|it| matches!(it, FitDoubt::Few { .. }))
    );
    let rising = measured(&forms()[2], &[1, 2], 0.01, 1);
    let found = fit(&rising).unwrap();
    assert!(!found.doubts.is_empty(), "{found:?}");
}

#[test]
fn the_cost_of_a_file_is_fitted_to_files_of_several_sizes() {
    let rate = |bytes: f64| 1.0 / (1.0 / 800e6 + 0.004 / (4.0 * bytes));
    let runs: Vec<(f64, f64)> = [1e5, 1e6, 1e7, 1e9]
        .map(|bytes| (bytes, rate(bytes)))
        .into();
    let (seconds, endless) = cost_per_file(4, &runs).unwrap();
    assert!((seconds / 0.004 - 1.0).abs() < 1e-3 && (endless / 800e6 - 1.0).abs() < 1e-3);
    assert_eq!(cost_per_file(4, &runs[..1]), None);
}
