//! Chooses the hosts for a transfer between clusters, and the pairs of hosts that communicate:
//! paper 004, section 5.
//!
//! - [`algorithm_1`]: the paper's algorithm as published, with its defects
//! - [`exact`]: the maximum rate with the fewest hosts, also for hosts that differ
//!
//! The rate of one host comes from its graph ([`crate::optimise`]).

/// The input of Algorithm 1 of paper 004, with its names. Rates are bytes per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EqualHosts {
    /// N_src: number of hosts at the source. The algorithm ignores it.
    pub sources: u32,
    /// N_dst: number of hosts at the destination.
    pub destinations: u32,
    /// Thr_src_single: rate at which one source host sends, in source bytes.
    pub source_rate: f64,
    /// Thr_dst_single: rate at which one destination host receives, in source bytes.
    pub destination_rate: f64,
    /// ThrN_src_single: rate of one source host on the network, after compression.
    pub network_rate: f64,
    /// BW: rate of the network between the clusters.
    pub bandwidth: f64,
}

/// The numbers of hosts that Algorithm 1 returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostCounts {
    /// n_src.
    pub sources: u32,
    /// n_dst.
    pub destinations: u32,
}

/// Runs Algorithm 1 of paper 004 as published. Tests show its defects:
///
/// - It ignores N_src, so the result can have more source hosts than exist.
/// - It increments n_dst before it checks the bandwidth, so the result can have a destination host
///   without work.
/// - It charges a source host its full network rate even if its destination is slower.
/// - It rounds the quotient of rates down, so the rest of a destination's rate and of the bandwidth
///   is unused.
pub fn algorithm_1(input: &EqualHosts) -> HostCounts {
    let mut counts = HostCounts::default();
    let mut bandwidth = input.bandwidth;
    while counts.destinations < input.destinations {
        counts.destinations += 1;
        let quotient = (input.destination_rate / input.source_rate).floor();
        // Line 4 checks if the destination is slower. In this case one source is added.
        let more = if input.destination_rate < input.source_rate {
            1.0
        } else {
            quotient
        };
        let mut added = 0.0;
        while added < more {
            if bandwidth - input.network_rate < 0.0 {
                return counts;
            }
            counts.sources += 1;
            bandwidth -= input.network_rate;
            added += 1.0;
        }
    }
    counts
}

/// The rate of one host of a cluster, in source bytes per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostRate(pub f64);

/// The hosts that take part, and the rates between them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterPlan {
    /// Total rate of all pairs, in source bytes per second.
    pub rate: f64,
    /// Indices of the source hosts that take part.
    pub sources: Vec<usize>,
    /// Indices of the destination hosts that take part.
    pub destinations: Vec<usize>,
    /// `(source, destination, rate)`: indices of the hosts, and the rate in source bytes per
    /// second. There are fewer pairs than hosts.
    pub pairs: Vec<(usize, usize, f64)>,
}

/// Finds the maximum rate between two clusters, with the fewest hosts at each end.
///
/// `bandwidth` is the rate of the path in compressed bytes per second. `ratio` is the compression
/// ratio, 1 without compression. A host may communicate with several hosts. So the rate is the
/// least of the total rates of sources, destinations and path, and the fastest hosts of each end
/// reach it with the fewest hosts. Hosts with a rate of zero or less are not used.
pub fn exact(
    sources: &[HostRate],
    destinations: &[HostRate],
    bandwidth: f64,
    ratio: f64,
) -> ClusterPlan {
    let all = |hosts: &[HostRate]| hosts.iter().map(|host| host.0.max(0.0)).sum::<f64>();
    let rate = all(sources)
        .min(all(destinations))
        .min(bandwidth * ratio)
        .max(0.0);
    let mut plan = ClusterPlan {
        rate,
        sources: fewest(sources, rate),
        destinations: fewest(destinations, rate),
        pairs: Vec::new(),
    };
    plan.pairs = pairs(&plan, sources, destinations);
    plan
}

/// Share of a rate that may remain because of rounding.
const ROUNDING: f64 = 1e-9;

/// Returns the fewest hosts that together reach a rate: the fastest.
fn fewest(hosts: &[HostRate], rate: f64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..hosts.len()).collect();
    order.sort_by(|&a, &b| hosts[b].0.total_cmp(&hosts[a].0).then(a.cmp(&b)));
    let mut carried = 0.0;
    let needed = order.into_iter().take_while(|&host| {
        let wanted = carried < rate * (1.0 - ROUNDING) && hosts[host].0 > 0.0;
        carried += hosts[host].0;
        wanted
    });
    needed.collect()
}

/// Assigns sources to destinations one after the other (the northwest corner rule of transport
/// problems), so that there are fewer pairs than hosts.
fn pairs(
    plan: &ClusterPlan,
    sources: &[HostRate],
    destinations: &[HostRate],
) -> Vec<(usize, usize, f64)> {
    let mut pairs = Vec::new();
    let mut takes = plan.destinations.iter().map(|&at| (at, destinations[at].0));
    let Some((mut to, mut room)) = takes.next() else {
        return pairs;
    };
    let mut left = plan.rate;
    for &from in &plan.sources {
        let mut sends = sources[from].0.min(left);
        while sends > plan.rate * ROUNDING {
            let moved = sends.min(room);
            if moved > 0.0 {
                pairs.push((from, to, moved));
            }
            (sends, room, left) = (sends - moved, room - moved, left - moved);
            if room <= plan.rate * ROUNDING {
                match takes.next() {
                    Some(next) => (to, room) = next,
                    None => return pairs,
                }
            }
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an input with twelve source hosts and four destination hosts. One destination
    /// receives the rate of three sources.
    fn input() -> EqualHosts {
        EqualHosts {
            sources: 12,
            destinations: 4,
            source_rate: 100e6,
            destination_rate: 350e6,
            network_rate: 50e6,
            bandwidth: 1200e6,
        }
    }

    fn counts(sources: u32, destinations: u32) -> HostCounts {
        HostCounts {
            sources,
            destinations,
        }
    }

    #[test]
    fn matches_hosts_as_published() {
        assert_eq!(algorithm_1(&input()), counts(12, 4));
        // A destination that is slower than a source gets one source.
        let slow = EqualHosts {
            destination_rate: 80e6,
            ..input()
        };
        assert_eq!(algorithm_1(&slow), counts(4, 4));
    }

    #[test]
    fn the_result_may_have_more_sources_than_available() {
        let few = EqualHosts {
            sources: 5,
            ..input()
        };
        assert_eq!(algorithm_1(&few), counts(12, 4));
        let plan = exact(&[HostRate(100e6); 5], &[HostRate(350e6); 4], 1200e6, 2.0);
        assert_eq!((plan.sources.len(), plan.destinations.len()), (5, 2));
    }

    #[test]
    fn returns_a_destination_without_work() {
        let narrow = EqualHosts {
            bandwidth: 150e6,
            ..input()
        };
        assert_eq!(algorithm_1(&narrow), counts(3, 2));
        let plan = exact(&[HostRate(100e6); 12], &[HostRate(350e6); 4], 150e6, 2.0);
        assert_eq!((plan.sources.len(), plan.destinations.len()), (3, 1));
    }

    #[test]
    fn charges_a_source_for_more_than_its_destination_takes() {
        let slow = EqualHosts {
            destination_rate: 50e6,
            bandwidth: 100e6,
            ..input()
        };
        // Each pair moves 50 MB/s, 25 on the network, and is charged 50. So the path could carry
        // four pairs.
        assert_eq!(algorithm_1(&slow), counts(2, 3));
        let plan = exact(&[HostRate(100e6); 12], &[HostRate(50e6); 4], 100e6, 2.0);
        assert_eq!((plan.sources.len(), plan.destinations.len()), (2, 4));
        assert_eq!(plan.rate, 200e6);
    }

    #[test]
    fn does_not_use_fractions_of_a_host() {
        // A destination receives the rate of three and a half sources, but only three are assigned.
        let rate = 12.0 * 100e6;
        let plan = exact(&[HostRate(100e6); 14], &[HostRate(350e6); 4], 1200e6, 2.0);
        assert!(plan.rate > rate, "{}", plan.rate);
        assert_eq!((plan.sources.len(), plan.destinations.len()), (14, 4));
    }

    #[test]
    fn pairs_reach_the_rate_within_the_rate_of_each_host() {
        let sources = [50e6, 200e6, 0.0, 120e6].map(HostRate);
        let destinations = [90e6, 300e6].map(HostRate);
        let plan = exact(&sources, &destinations, 1e9, 1.0);
        assert_eq!(plan.rate, 370e6);
        assert_eq!(plan.sources, [1, 3, 0]);
        let moved: f64 = plan.pairs.iter().map(|pair| pair.2).sum();
        assert!((moved / plan.rate - 1.0).abs() < 1e-9);
        for (at, host) in sources.iter().enumerate() {
            let sent: f64 = plan
                .pairs
                .iter()
                .filter(|pair| pair.0 == at)
                .map(|pair| pair.2)
                .sum();
            assert!(sent <= host.0 * (1.0 + 1e-9));
        }
        for (at, host) in destinations.iter().enumerate() {
            let taken: f64 = plan
                .pairs
                .iter()
                .filter(|pair| pair.1 == at)
                .map(|pair| pair.2)
                .sum();
            assert!(taken <= host.0 * (1.0 + 1e-9));
        }
        assert!(plan.pairs.len() < plan.sources.len() + plan.destinations.len());
    }

    #[test]
    fn without_hosts_the_rate_is_zero() {
        assert_eq!(
            exact(&[], &[HostRate(1e6)], 1e6, 1.0),
            ClusterPlan::default()
        );
        assert_eq!(
            exact(&[HostRate(1e6)], &[], 1e6, 1.0),
            ClusterPlan::default()
        );
    }
}
