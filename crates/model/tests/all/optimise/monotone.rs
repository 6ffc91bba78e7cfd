//! Tests that more of any resource never lowers the optimum, if components may stay unused and each
//! has its own number of flows.

use longhaul_model::optimise::prices::{changed, changes};
use longhaul_model::optimise::{Bound, best_rate};

use super::random::{Chance, graph};

#[test]
fn more_never_lowers_the_optimum() {
    let mut looked_at = 0;
    for seed in 0..400 {
        let mut graph = graph(&mut Chance::new(seed));
        graph.tied.clear();
        let Ok((rate, _)) = best_rate(&graph, Bound::DEFAULT) else {
            continue;
        };
        for change in changes(&graph) {
            let Ok((more, _)) = best_rate(&changed(&graph, change), Bound::DEFAULT) else {
                continue;
            };
            looked_at += 1;
            assert!(
                more >= rate * (1.0 - 1e-5),
                "seed {seed}: {change:?} lowers {rate} to {more}"
            );
        }
    }
    assert!(looked_at > 1000, "{looked_at}");
}
