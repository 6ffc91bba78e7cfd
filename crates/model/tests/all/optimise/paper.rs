//! Compares the optimiser with paper 004's published results, with one set of parameters for hosts
//! and path, and named parameters for each file size and dataset. If a value is only shown in a
//! figure, the comment of its constant states the assumption. `docs/model.md` has the same as a
//! page.

use longhaul_model::capacity::{Capacity, FlowCapacity};
use longhaul_model::cluster::{EqualHosts, HostCounts, algorithm_1};
use longhaul_model::graph::{Graph, Node, NodeKind, PartCodec};
use longhaul_model::optimise::{Bound, Optimum, solve};

use super::known::{chain, constant};
use super::random::Chance;

// Section 6.1.1: each RAID set reads about 500 MB/s with one stream. The decrease is only shown in
// Fig. 11. `HOST` assumes a third less with four streams. Fig. 12: four sets together carry less
// than four times the rate of one, and less with more streams. `HOST` assumes 1 GB/s with two
// streams and 0.73 with eight.

/// Fig. 13: the rate of one stream of GridFTP for an endless file.
const STREAM: f64 = 640e6;

/// Parameters of a host: the disks' α and γ, the channel's α and γ, the rate of one stream of
/// GridFTP, and the rate of a NIC.
type HostParameters = [f64; 6];

/// The parameters that the tests assume.
const HOST: HostParameters = [3.5e9, 6.0, 16e9, 14.0, STREAM, 1.17e9];

/// Returns a host with four disks behind one channel, GridFTP, and two NICs of 10 Gbit/s.
fn host(file_bytes: f64, seconds_per_file: f64) -> Graph {
    host_with(HOST, file_bytes, seconds_per_file)
}

fn host_with(parameters: HostParameters, file_bytes: f64, seconds_per_file: f64) -> Graph {
    let [
        disk_alpha,
        disk_gamma,
        channel_alpha,
        channel_gamma,
        stream,
        nic,
    ] = parameters;
    let falling = |alpha: f64, gamma: f64| Capacity::Flows(FlowCapacity::Falling { alpha, gamma });
    let mut disks = Node::new("disks", NodeKind::Disk, falling(disk_alpha, disk_gamma));
    (disks.members, disks.most_flows) = (4, 4);
    let mut channel = Node::new(
        "channel",
        NodeKind::Channel,
        falling(channel_alpha, channel_gamma),
    );
    channel.flows_of = vec![1];
    let gridftp = FlowCapacity::Linear {
        alpha: stream,
        gamma: 0.0,
        most: 16,
    };
    let mut transfer = Node::new("GridFTP", NodeKind::Computation, Capacity::Flows(gridftp));
    transfer.most_flows = 16;
    transfer.seconds_per_file = seconds_per_file;
    transfer.flows_of = vec![1];
    let mut nics = Node::new("NICs", NodeKind::Nic, constant(nic));
    nics.members = 2;
    let mut graph = chain(vec![disks, channel, transfer, nics]);
    graph.parts[0].bytes = 10e9;
    graph.parts[0].files = 10e9 / file_bytes;
    graph
}

/// Returns all graphs of the paper with their names.
pub fn graphs() -> Vec<(String, Graph)> {
    let sizes = COSTS.map(|(bytes, cost, _)| (format!("files of {bytes:.0e}"), host(bytes, cost)));
    let datasets =
        FLASH.map(|(name, ratio, thread, _)| (name.to_owned(), flash(name, ratio, thread)));
    sizes.into_iter().chain(datasets).collect()
}

fn disk_flows(optimum: &Optimum) -> u32 {
    optimum.nodes[1].flows()
}

/// Section 6.1.2: "8, 6, 3, 2 in the case of 1 MB, 10 MB, 100 MB, 1 GB files". In Table 1, n_s is
/// for each disk. But 6 and 3 are not multiples of four disks, so the numbers are interpreted as
/// total flows of all disks. The figures do not show the cost of a file, so it is assumed, one
/// value for each size.
const COSTS: [(f64, f64, u32); 4] = [
    (1e6, 0.0095, 8),
    (10e6, 0.06, 6),
    (100e6, 0.156, 3),
    (1000e6, 0.104, 2),
];

#[test]
fn flows_equal_the_published_ones_for_each_file_size() {
    for (bytes, cost, flows) in COSTS {
        let found = solve(&host(bytes, cost), Bound::DEFAULT).unwrap();
        assert_eq!(disk_flows(&found), flows, "{bytes}: {found:?}");
    }
}

/// The published results must hold in a region, not only at a point: each cost may differ by 3 %.
#[test]
fn flows_are_the_same_for_slightly_different_costs() {
    for (bytes, cost, flows) in COSTS {
        for factor in [0.97, 1.03] {
            let found = solve(&host(bytes, cost * factor), Bound::DEFAULT).unwrap();
            assert_eq!(disk_flows(&found), flows, "{bytes} × {factor}");
        }
    }
}

/// Returns true if a host has the published numbers of flows for all sizes.
fn has_published_flows(parameters: HostParameters, costs: [f64; 4]) -> bool {
    let mut sizes = COSTS.iter().zip(costs);
    sizes.all(|(&(bytes, _, flows), cost)| {
        let graph = host_with(parameters, bytes, cost);
        solve(&graph, Bound::DEFAULT).is_ok_and(|found| disk_flows(&found) == flows)
    })
}

/// The four costs are a fit, and they are not monotone in the size. All parameters may differ
/// together by 2 %: nearly all draws keep the four answers. With 10 %, about half of them do.
/// `docs/model.md` has these figures.
#[test]
fn the_published_flows_hold_in_a_small_region() {
    let draws = 400;
    for (share, least, most) in [(0.02, 0.97, 1.0), (0.05, 0.6, 0.8), (0.10, 0.35, 0.55)] {
        let mut chance = Chance::new(14);
        let kept = (0..draws).filter(|_| {
            let mut near = |value: f64| value * chance.between(1.0 - share, 1.0 + share);
            let parameters = HOST.map(&mut near);
            has_published_flows(parameters, COSTS.map(|it| near(it.1)))
        });
        let kept = kept.count() as f64 / f64::from(draws);
        println!("{share}: {kept}");
        assert!((least..=most).contains(&kept), "{share}: {kept}");
    }
}

/// With one cost for files of all sizes, no host has the published numbers of flows.
#[test]
fn no_host_with_one_cost_for_all_sizes_has_the_published_flows() {
    let mut chance = Chance::new(15);
    for draw in 0..2000 {
        let mut within = |low: f64, high: f64| low * (high / low).powf(chance.between(0.0, 1.0));
        let parameters = [
            within(0.5e9, 20e9),
            within(0.5, 30.0),
            within(2e9, 100e9),
            within(0.5, 60.0),
            within(50e6, 3e9),
            within(0.1e9, 5e9),
        ];
        let cost = within(0.1e-3, 1.0);
        assert!(
            !has_published_flows(parameters, [cost; 4]),
            "draw {draw}: {parameters:?} {cost}"
        );
    }
}

/// Datasets of FLASH: name, Blosc's ratio (section 6.2.1), rate of one thread in bytes per second,
/// and the published number of threads (section 6.2.2). The numbers of threads are not monotone in
/// the ratio, so the rates must differ. Rates are only shown in Fig. 20, for random data, so these
/// are assumptions.
pub const FLASH: [(&str, f64, f64, u32); 3] = [
    ("temp", 69.89, 140e6, 8),
    ("pres", 4.49, 140e6, 4),
    ("velx", 2.46, 50e6, 6),
];

/// Maximum number of useful Blosc threads on the source's hosts (section 6.2.1).
pub const MOST_THREADS: u32 = 8;

/// Returns a host at Tukey and the path to NERSC: a NIC of 1 Gbit/s carries about 120 MB/s (section
/// 6.2.2), and the parallel file system has 1.2 GB/s for one host (Fig. 18).
pub fn flash(name: &str, ratio: f64, thread: f64) -> Graph {
    let compute = |rate: f64| {
        Capacity::Flows(FlowCapacity::Linear {
            alpha: rate,
            gamma: 0.0,
            most: MOST_THREADS,
        })
    };
    let disk = Node::new("file system", NodeKind::Disk, constant(1.2e9));
    let mut compress = Node::new("compress", NodeKind::Compress, constant(1.0));
    compress.most_flows = MOST_THREADS;
    let nic = Node::new("NIC", NodeKind::Nic, constant(120e6));
    let mut decompress = Node::new("decompress", NodeKind::Decompress, constant(1.0));
    decompress.most_flows = MOST_THREADS;
    let mut graph = chain(vec![disk, compress, nic, decompress]);
    graph.parts[0].name = name.to_owned();
    graph.parts[0].codecs = vec![PartCodec {
        name: "blosc".to_owned(),
        ratio,
        compress: compute(thread),
        compress_cpu: 0.0,
        decompress: compute(1e9),
        decompress_cpu: 0.0,
    }];
    graph
}

#[test]
fn threads_equal_the_published_ones_for_each_dataset() {
    for (name, ratio, thread, threads) in FLASH {
        let found = solve(&flash(name, ratio, thread), Bound::DEFAULT).unwrap();
        assert_eq!(found.nodes[2].flows(), threads, "{name}: {found:?}");
    }
}

/// Section 6.2.2: hosts at NERSC and Tukey (4, 12), (4, 12), (3, 10). The paper does not state the
/// measured bandwidth of the path. 1.3 GB/s of velx at a ratio of 2.46 are 0.53 GB/s on the wire.
#[test]
fn hosts_equal_the_published_ones_for_two_clusters() {
    let cluster = |destination_rate: f64, source_rate: f64, ratio: f64, bandwidth: f64| {
        algorithm_1(&EqualHosts {
            sources: 96,
            destinations: 4,
            source_rate,
            destination_rate,
            network_rate: source_rate / ratio,
            bandwidth,
        })
    };
    let counts = |destinations: u32, sources: u32| HostCounts {
        sources,
        destinations,
    };
    // A destination receives the rate of three sources, and there are only four destinations.
    for quotient in [3.0, 3.9] {
        assert_eq!(
            cluster(quotient * 1.12e9, 1.12e9, 69.89, 0.55e9),
            counts(4, 12)
        );
        assert_eq!(cluster(quotient * 0.4e9, 0.4e9, 4.49, 1.2e9), counts(4, 12));
    }
    // Ten sources of 0.13 GB/s fill the path, and a destination receives the rate of four. A
    // quotient of five gives the same result; then the third destination has no work.
    for quotient in [4.0, 4.9, 5.0] {
        for bandwidth in [0.53e9, 0.58e9] {
            let found = cluster(quotient * 0.13e9, 0.13e9, 2.46, bandwidth);
            assert_eq!(found, counts(3, 10), "{quotient} {bandwidth}");
        }
    }
}
