//! Tests with a change to a longer route during a transfer, and with conditions that look like one.

use longhaul_model::control::{Reason, Settings};
use longhaul_model::response::Congestion;

use super::path::{PAYLOAD, Trace, Transfer, World, run};

const SEEDS: std::ops::Range<u64> = 1..6;

const LAWS: [(Congestion, f64); 3] = [
    (Congestion::Cubic, 0.0),
    (Congestion::Cubic, 1e-4),
    (Congestion::Bbr, 1e-4),
];

fn governed(law: &Congestion, begins: f64) -> Transfer {
    let settings = Settings {
        congestion: law.clone(),
        ..Settings::default()
    };
    Transfer {
        begins,
        settings,
        ..Transfer::default()
    }
}

fn reroutes(trace: &Trace) -> usize {
    let is_reroute = |reason: &Reason| matches!(reason, Reason::Reroute { .. });
    let decisions = trace.decisions.iter();
    decisions.filter(|made| is_reroute(&made.1.reason)).count()
}

#[test]
fn a_longer_route_is_filled_again() {
    for (before, after) in [(20.0, 120.0), (30.0, 90.0), (10.0, 40.0), (100.0, 200.0)] {
        for (law, loss) in LAWS {
            for seed in SEEDS {
                let world = World {
                    seed,
                    rtt: before / 1e3,
                    reroute: Some((20.0, after / 1e3)),
                    loss,
                    law: law.clone(),
                    ..World::default()
                };
                let trace = run(&world, &[governed(&law, 0.0)], 60.0).remove(0);
                // A round-trip time that doubles is not longer than an earlier queue of one
                // bandwidth-delay product. On some longer routes, BBR's two products of the old
                // route and its probing are sufficient.
                let times = if law == Congestion::Bbr { 4.0 } else { 2.5 };
                let seen = after / before > times && loss > 0.0;
                let used = |from, to| trace.rate(from, to) / (world.rate * PAYLOAD);
                let (first, later) = (used(20.0, 40.0), used(35.0, 60.0));
                let what = format!(
                    "{law}, {loss:.0e} lost, {before} to {after} ms, seed {seed}: {first:.2}, \
                     {later:.2} of the path with {} streams",
                    trace.streams()
                );
                assert!(first >= 0.75 && later >= 0.85, "{what}");
                assert!(
                    !seen || reroutes(&trace) == 1,
                    "{what}: {}",
                    reroutes(&trace)
                );
                assert!(trace.streams() <= 80, "{what}");
            }
        }
    }
}

#[test]
fn a_queue_caused_by_others_is_not_a_longer_route() {
    for rtt in [5.0, 20.0, 100.0] {
        for buffer in [0.2, 1.0, 4.0] {
            for (law, loss) in LAWS {
                let world = World {
                    rtt: rtt / 1e3,
                    buffer,
                    loss,
                    law: law.clone(),
                    ..World::default()
                };
                let late = [governed(&law, 0.0), governed(&law, 30.0)];
                for trace in run(&world, &late, 90.0) {
                    let what = format!("{law}, {loss:.0e} lost, {rtt} ms, {buffer} products");
                    assert_eq!(reroutes(&trace), 0, "{what}");
                }
            }
        }
    }
}

/// Other streams whose windows are limited by their buffers cause a queue of constant length
/// without losses.
#[test]
fn a_queue_of_constant_length_costs_little() {
    for others in [4, 16, 64] {
        for (products, law) in [(0.5, 0), (1.0, 0), (1.0, 2), (3.0, 0), (3.0, 2)] {
            let (law, loss) = LAWS[law].clone();
            let world = World {
                rtt: 0.05,
                buffer: 4.0,
                others,
                others_come: 30.0,
                others_window: products * 1e9 / 8.0 * 0.05 / f64::from(others),
                // The disk limits the transfer, so that it has not filled the path itself.
                disk: 60e6,
                loss,
                law: law.clone(),
                ..World::default()
            };
            let trace = run(&world, &[governed(&law, 0.0)], 120.0).remove(0);
            let what = format!("{law}, {loss:.0e} lost, {others} others with {products}");
            assert!(reroutes(&trace) <= 1, "{what}: {}", reroutes(&trace));
            assert!(trace.streams() <= 9, "{what}: {} streams", trace.streams());
        }
    }
}

/// A queue of constant length may look like a longer route. This costs one trial.
#[test]
fn a_slower_path_costs_at_most_one_trial() {
    for rtt in [5.0, 20.0, 100.0] {
        for part in [0.3, 0.6] {
            for (law, loss) in LAWS {
                let world = World {
                    rtt: rtt / 1e3,
                    changes: vec![(30.0, part * 1e9)],
                    loss,
                    law: law.clone(),
                    ..World::default()
                };
                let trace = run(&world, &[governed(&law, 0.0)], 90.0).remove(0);
                let what = format!("{law}, {loss:.0e} lost, {rtt} ms, {part} of the rate");
                assert!(reroutes(&trace) <= 1, "{what}");
                let used = trace.rate(60.0, 90.0) / (part * world.rate * PAYLOAD);
                assert!(used >= 0.95, "{what}: {used}");
                let streams = trace.streams();
                assert!(streams <= 32, "{what}: {streams} streams");
            }
        }
    }
}
