//! Measures the time to solve graphs and compares it with the target times: run by `cargo xtask
//! bench plan`, in release mode.

use std::time::Instant;

use longhaul_model::graph::Graph;
use longhaul_model::optimise::prices::{binding, prices};
use longhaul_model::optimise::{Bound, best_rate, solve};

/// Number of measured repetitions, after one warm-up.
const REPETITIONS: usize = 7;

/// Returns the median time of some work in milliseconds.
fn timed(work: impl Fn()) -> f64 {
    work();
    let mut times: Vec<f64> = (0..REPETITIONS)
        .map(|_| {
            let begun = Instant::now();
            work();
            begun.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[REPETITIONS / 2]
}

/// Prints a line for each graph, to find slow ones.
fn print_each(graphs: &[(String, Graph)], bound: Bound) {
    for (name, graph) in graphs {
        let rate = timed(|| {
            best_rate(graph, bound).unwrap();
        });
        let whole = timed(|| {
            solve(graph, bound).unwrap();
        });
        let found = solve(graph, bound).unwrap();
        let limits = timed(|| {
            binding(graph, &found, bound).unwrap();
        });
        let priced = timed(|| {
            prices(graph, found.rate, bound).unwrap();
        });
        println!(
            "{name}: rate {rate:.2} ms, solve {whole:.2} ms, what binds {limits:.2} ms, \
             prices {priced:.2} ms, gap {:.1e}",
            found.gap
        );
    }
}

/// Prints a line for each target time, with the slowest graph.
fn print(what: &str, bar: f64, graphs: &[(String, Graph)], work: impl Fn(&Graph)) {
    let times = graphs
        .iter()
        .map(|(name, graph)| (timed(|| work(graph)), name));
    let (slowest, name) = times.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
    let verdict = if slowest < bar { "met" } else { "missed" };
    println!("{what}: {slowest:.2} ms ({name}); the bar of {bar:.0} ms is {verdict}");
}

#[test]
#[ignore = "measures: cargo xtask bench plan"]
fn speed() {
    let bound = Bound::DEFAULT;
    let mut graphs = super::paper::graphs();
    graphs.push(("documented".to_owned(), super::explained::documented()));
    let large = [("100 disks, 16 NICs".to_owned(), super::large::large())];
    print_each(&graphs, bound);
    print_each(&large, bound);
    let optimum = |graph: &Graph| {
        solve(graph, bound).unwrap();
    };
    print("paper-sized graphs", 10.0, &graphs, optimum);
    print("paper-sized graphs with prices", 50.0, &graphs, |graph| {
        let found = solve(graph, bound).unwrap();
        binding(graph, &found, bound).unwrap();
        prices(graph, found.rate, bound).unwrap();
    });
    print("six layers and three parts", 2000.0, &large, optimum);
}
