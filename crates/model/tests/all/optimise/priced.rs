//! Tests of prices and bottlenecks.

use longhaul_model::capacity::{Capacity, FlowCapacity};
use longhaul_model::graph::{Node, NodeKind};
use longhaul_model::optimise::prices::{Change, Constraint, binding, changed, changes, prices};
use longhaul_model::optimise::{Bound, best_rate, solve};

use super::brute;
use super::known::{chain, constant};
use super::random::{Chance, graph};

/// Number of graphs whose prices are checked by exhaustive search. `LONGHAUL_GRAPHS` can increase
/// it.
const PRICED: u64 = 60;

#[test]
fn prices_equal_the_differences_of_exhaustive_searches() {
    let mut gains = 0;
    for seed in 0..PRICED {
        let graph = graph(&mut Chance::new(seed + 1_000_000));
        let rate = brute::search(&graph).rate;
        if rate <= 0.0 {
            continue;
        }
        for price in prices(&graph, rate, Bound::DEFAULT).unwrap() {
            let with = brute::search(&changed(&graph, price.change)).rate;
            let gain = if with > rate * (1.0 + 1e-4) {
                with - rate
            } else {
                0.0
            };
            assert!(
                (gain - price.gain).abs() <= 1e-3 * rate,
                "seed {seed}: {:?} gives {} instead of {gain}\n{graph:#?}",
                price.change,
                price.gain
            );
            gains += u32::from(gain > 0.0);
        }
    }
    assert!(gains > 20, "{gains}");
}

/// More of any resource never lowers the optimum, because components may stay unused.
#[test]
fn more_of_any_resource_never_lowers_the_optimum() {
    for seed in 0..200 {
        let graph = graph(&mut Chance::new(seed + 2_000_000));
        if !graph.tied.is_empty() {
            continue;
        }
        let (rate, _) = best_rate(&graph, Bound::DEFAULT).unwrap();
        for change in changes(&graph) {
            let (with, _) = best_rate(&changed(&graph, change), Bound::DEFAULT).unwrap();
            assert!(
                with >= rate * (1.0 - 1e-5),
                "seed {seed}: {change:?} {with} {rate}"
            );
        }
    }
}

/// In Fig. 4 every disk has n_s flows. With a third disk, the channel has three flows instead of
/// two, and carries less.
#[test]
fn with_a_common_number_of_flows_a_further_disk_can_lower_the_rate() {
    let host = |disks: u32, all: bool| {
        let mut it = Node::new("disks", NodeKind::Disk, constant(500e6));
        (it.members, it.same_flows) = (disks, true);
        let mut channel = Node::new(
            "channel",
            NodeKind::Channel,
            Capacity::Flows(FlowCapacity::Falling {
                alpha: 3e9,
                gamma: 1.0,
            }),
        );
        channel.flows_of = vec![1];
        if all {
            // In Fig. 4 no disk stays unused: all have the common number of flows.
            let rate = Capacity::at(&channel.capacity, disks);
            channel.capacity = constant(rate);
        }
        chain(vec![it, channel])
    };
    let rate = |disks: u32, all: bool| best_rate(&host(disks, all), Bound::DEFAULT).unwrap().0;
    assert!(rate(3, true) < rate(2, true) * 0.99);
    assert!(rate(3, false) >= rate(2, false) * 0.9999);
}

#[test]
fn the_bottleneck_moves_when_the_slowest_component_becomes_faster() {
    let host = |disk: f64, nic: f64| {
        chain(vec![
            Node::new("disk", NodeKind::Disk, constant(disk)),
            Node::new("NIC", NodeKind::Nic, constant(nic)),
        ])
    };
    let named = |disk: f64, nic: f64| {
        let graph = host(disk, nic);
        let optimum = solve(&graph, Bound::DEFAULT).unwrap();
        binding(&graph, &optimum, Bound::DEFAULT).unwrap()
    };
    assert_eq!(named(100e6, 300e6), [vec![Constraint::Node(1)]]);
    assert_eq!(named(400e6, 300e6), [vec![Constraint::Node(2)]]);
    // Both limit together: more of only one would not help.
    assert_eq!(
        named(300e6, 300e6),
        [vec![Constraint::Node(1), Constraint::Node(2)]]
    );
}

#[test]
fn cores_have_a_price() {
    let mut work = Node::new("seal", NodeKind::Computation, constant(1e9));
    (work.cpu_per_byte, work.most_flows) = (10e-9, 8);
    let mut graph = chain(vec![work]);
    graph.hosts.push(longhaul_model::graph::Host {
        name: "sending".to_owned(),
        cores: 2.0,
        memory: f64::INFINITY,
    });
    graph.nodes[1].host = Some(0);
    let optimum = solve(&graph, Bound::DEFAULT).unwrap();
    assert!((optimum.rate / 200e6 - 1.0).abs() < 1e-4);
    assert_eq!(optimum.nodes[1].flows(), 2);
    let limits = binding(&graph, &optimum, Bound::DEFAULT).unwrap();
    assert_eq!(limits, [vec![Constraint::Cores(0)]]);
    let prices = prices(&graph, optimum.rate, Bound::DEFAULT).unwrap();
    assert_eq!(prices[0].change, Change::Core(0));
    assert!((prices[0].gain / 100e6 - 1.0).abs() < 1e-3);
    assert!(prices[1..].iter().all(|price| price.gain == 0.0));
}
