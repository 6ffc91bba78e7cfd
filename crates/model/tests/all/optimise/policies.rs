//! Compares published rules with the model.

use longhaul_model::optimise::Bound;
use longhaul_model::policy::{Policy, outcome};

use super::random::{Chance, graph};

#[test]
fn no_policy_beats_the_model() {
    for seed in 0..200 {
        let graph = graph(&mut Chance::new(seed));
        let Ok(best) = outcome(Policy::Model, &graph, Bound::DEFAULT) else {
            continue;
        };
        for policy in Policy::ALL {
            let found = outcome(policy, &graph, Bound::DEFAULT);
            let rate = found.map_or(0.0, |found| found.rate);
            assert!(
                rate <= best.rate * (1.0 + 1e-4),
                "seed {seed}: {policy} {rate} beats {}",
                best.rate
            );
        }
    }
}

#[test]
fn names_are_read_back() {
    for policy in Policy::ALL {
        assert_eq!(policy.name().parse(), Ok(policy));
    }
    assert!("best".parse::<Policy>().unwrap_err().contains("gradient"));
}
