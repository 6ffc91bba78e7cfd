//! The capacity of a class of components by the total flows of its members.
//!
//! If all commodities need time in the same proportions for every number of flows, their load is a
//! single number. A class of many members then has one best capacity for each number of flows: that
//! of the best split over its members, found by dynamic programming. If the proportions differ, a
//! single member is represented by a table. Several members need the program over all counts.

use crate::graph::{Commodity, Demand, Graph};

/// Difference below which proportions are equal.
const SAME: f64 = 1e-9;

/// Maximum number of steps of the dynamic program for one class.
const MOST_STEPS: u64 = 20_000_000;

/// Capacity that marks an impossible number of flows.
pub const IMPOSSIBLE: f64 = -1.0;

/// A node for the search. Rates are in units of a scale.
#[derive(Clone, Debug)]
pub struct Component {
    /// Index in [`Graph::nodes`].
    pub node: usize,
    /// Number of members.
    pub members: u32,
    /// Minimum number of flows of a used member.
    pub least: u32,
    /// Maximum number of flows of a member. Less than `least` if no member can be used.
    pub most: u32,
    /// True if all used members must have the same number of flows.
    pub same: bool,
    /// CPU time for each commodity.
    pub cpu: Vec<f64>,
    /// True for each commodity that bypasses the component without a flow.
    pub passes: Vec<bool>,
    /// Capacity of the component.
    pub carries: Carries,
}

/// The capacity of a member by its number of flows.
#[derive(Clone, Debug)]
pub enum Carries {
    /// A single load: Σ weight · rate ≤ capacity.
    Alike {
        /// Weights by commodity.
        weights: Vec<f64>,
        /// Capacity by number of flows, from zero. Infinite without a limit.
        capacity: Vec<f64>,
    },
    /// A table of seconds by number of flows (from zero) and commodity. For one member, whose flows
    /// are also limited by their cores.
    Mixed {
        /// Seconds by number of flows and commodity.
        seconds: Vec<Vec<f64>>,
    },
}

impl Component {
    /// Creates a component for a node. Returns `None` if its members must be distinguished.
    pub fn new(
        graph: &Graph,
        (node, compressed): (usize, bool),
        scale: f64,
        flows: (u32, u32),
    ) -> Option<Component> {
        let it = &graph.nodes[node];
        let commodities = graph.commodities();
        let passes: Vec<bool> = commodities
            .iter()
            .map(|commodity| it.is_passed_by_plain() && commodity.codec.is_none())
            .collect();
        let at = |flows: u32| -> Vec<Demand> {
            let scaled = |&commodity: &Commodity| {
                let demand = graph.demand(node, compressed, commodity, flows);
                Demand {
                    seconds: demand.seconds * scale,
                    cpu: demand.cpu * scale,
                }
            };
            commodities.iter().map(scaled).collect()
        };
        let (least, most) = flows;
        let cpu: Vec<f64> = at(1).iter().map(|demand| demand.cpu).collect();
        let mut seconds: Vec<Vec<f64>> = vec![vec![f64::INFINITY; commodities.len()]];
        for flows in 1..=most {
            let demands = at(flows);
            seconds.push(demands.iter().map(|demand| demand.seconds).collect());
        }
        let carries = match alike(&seconds, &cpu, &passes, least as usize) {
            Some(carries) => carries,
            None if it.members == 1 => Carries::Mixed { seconds },
            None => return None,
        };
        let component = Component {
            node,
            members: it.members,
            least,
            most,
            same: it.same_flows && it.members > 1,
            cpu,
            passes,
            carries,
        };
        Some(component)
    }

    /// Returns the maximum number of flows of all members together.
    pub fn flows_at_most(&self) -> u32 {
        if self.most >= self.least {
            self.members.saturating_mul(self.most)
        } else {
            0
        }
    }

    /// True if the table of capacities by flows is small enough.
    pub fn is_small(&self) -> bool {
        let steps = u64::from(self.flows_at_most());
        let each = u64::from(self.most) * u64::from(self.members);
        self.members == 1 || self.slope().is_some() || steps.saturating_mul(each) <= MOST_STEPS
    }

    /// Returns the maximum load of all members with any number of flows.
    pub fn most_load(&self) -> f64 {
        let Carries::Alike { capacity, .. } = &self.carries else {
            return f64::INFINITY;
        };
        let usable = capacity.iter().skip(self.least as usize);
        f64::from(self.members) * usable.fold(0.0, |most: f64, it| most.max(*it))
    }

    /// Returns the capacity of each flow if it is the same for all numbers of flows.
    fn slope(&self) -> Option<f64> {
        let Carries::Alike { capacity, .. } = &self.carries else {
            return None;
        };
        let mut usable = capacity.iter().enumerate().skip(self.least.max(1) as usize);
        let (flows, first) = usable.next()?;
        let each = first / flows as f64;
        let same = |(flows, it): (usize, &f64)| {
            (it.is_infinite() && each.is_infinite())
                || (it / flows as f64 - each).abs() <= SAME * each
        };
        usable.all(same).then_some(each)
    }

    /// Returns the maximum load for each total number of flows.
    pub fn table(&self) -> Vec<f64> {
        let Carries::Alike { capacity, .. } = &self.carries else {
            return Vec::new();
        };
        if self.members == 1 {
            let possible = |(flows, load): (usize, &f64)| match flows {
                0 => 0.0,
                _ if flows < self.least as usize => IMPOSSIBLE,
                _ => *load,
            };
            return capacity.iter().enumerate().map(possible).collect();
        }
        if let Some(each) = self.slope().filter(|_| !self.same) {
            return self.even_table(each);
        }
        self.layers(capacity).pop().unwrap_or_default()
    }

    /// True if some number of members can have `flows` flows in total.
    fn can_have(&self, flows: u32) -> bool {
        let fewest = flows.div_ceil(self.most.max(1));
        flows == 0 || (fewest <= self.members && fewest.saturating_mul(self.least) <= flows)
    }

    fn even_table(&self, each: f64) -> Vec<f64> {
        let load = |flows: u32| match (flows, self.can_have(flows)) {
            (0, _) => 0.0,
            (_, true) => each * f64::from(flows),
            (_, false) => IMPOSSIBLE,
        };
        (0..=self.flows_at_most()).map(load).collect()
    }

    /// Returns the tables for at most 0, 1, 2, … members. If all must have the same number of
    /// flows, returns a single table.
    fn layers(&self, capacity: &[f64]) -> Vec<Vec<f64>> {
        let mut none = vec![IMPOSSIBLE; self.flows_at_most() as usize + 1];
        none[0] = 0.0;
        let (least, most) = (self.least.max(1) as usize, self.most as usize);
        let counts = least..=most;
        if self.same {
            for members in 1..=self.members as usize {
                for flows in counts.clone() {
                    let load = members as f64 * capacity[flows];
                    let best = &mut none[members * flows];
                    *best = best.max(load);
                }
            }
            return vec![none];
        }
        let mut layers = vec![none];
        for members in 1..=self.members as usize {
            let before = &layers[members - 1];
            let mut layer = before.clone();
            let reached = (members * most).min(layer.len() - 1);
            for (all, best) in layer.iter_mut().enumerate().take(reached + 1).skip(least) {
                for flows in counts.clone().take_while(|&flows| flows <= all) {
                    let rest = before[all - flows];
                    if rest > IMPOSSIBLE {
                        *best = best.max(rest + capacity[flows]);
                    }
                }
            }
            layers.push(layer);
        }
        layers
    }

    /// Returns the share of the load for each entry of a split, for all its members together.
    pub fn shares(&self, members: &[(u32, u32)]) -> Vec<f64> {
        let Carries::Alike { capacity, .. } = &self.carries else {
            return vec![1.0; members.len()];
        };
        let all_finite = members.iter().all(|it| capacity[it.0 as usize].is_finite());
        let carried = |&(flows, members): &(u32, u32)| {
            let each = if all_finite {
                capacity[flows as usize]
            } else {
                1.0
            };
            each * f64::from(members)
        };
        let all: f64 = members.iter().map(carried).sum();
        let share = |it| if all > 0.0 { carried(it) / all } else { 0.0 };
        members.iter().map(share).collect()
    }

    /// Returns the best split of a number of flows over the members: `(flows, members)`, the fewest
    /// flows first.
    pub fn split(&self, flows: u32) -> Vec<(u32, u32)> {
        let mut left = flows as usize;
        if left == 0 {
            return Vec::new();
        }
        let (least, most) = (self.least.max(1) as usize, self.most as usize);
        let Carries::Alike { capacity, .. } = &self.carries else {
            return vec![(flows, 1)];
        };
        if self.members == 1 {
            return vec![(flows, 1)];
        }
        if self.same {
            let fits =
                |&each: &usize| left.is_multiple_of(each) && left / each <= self.members as usize;
            let load = |each: usize| capacity[each] * (left / each) as f64;
            let best = (least..=most).filter(fits);
            let best = best.max_by(|&a, &b| load(a).total_cmp(&load(b)));
            return best.map_or_else(Vec::new, |each| vec![(each as u32, (left / each) as u32)]);
        }
        if self.slope().is_some() {
            // All splits are equal, so the flows are spread evenly over as few members as possible.
            let members = flows.div_ceil(self.most.max(1));
            let (each, more) = (flows / members, flows % members);
            let both = [(each, members - more), (each + 1, more)];
            return both.into_iter().filter(|it| it.1 > 0).collect();
        }
        let layers = self.layers(capacity);
        let mut counts = vec![0_u32; most + 1];
        for members in (1..layers.len()).rev() {
            let (here, before) = (layers[members][left], &layers[members - 1]);
            if before[left] >= here {
                continue;
            }
            let fits = |&flows: &usize| {
                let rest = before[left - flows];
                rest > IMPOSSIBLE && rest + capacity[flows] >= here
            };
            if let Some(flows) = (least..=most.min(left)).find(fits) {
                counts[flows] += 1;
                left -= flows;
            }
        }
        let used = counts
            .iter()
            .enumerate()
            .filter(|(_, members)| **members > 0);
        used.map(|(flows, &members)| (flows as u32, members))
            .collect()
    }
}

/// Returns a single load for all commodities if the proportions of time are the same for every
/// number of flows, and the cores of the flows have the same proportions or are never the limit.
fn alike(seconds: &[Vec<f64>], cpu: &[f64], passes: &[bool], least: usize) -> Option<Carries> {
    let asking: Vec<usize> = (0..cpu.len()).filter(|&at| !passes[at]).collect();
    let rows = || seconds.iter().enumerate().skip(least.max(1));
    let by_time = rows().find_map(|(flows, row)| {
        let most = asking
            .iter()
            .copied()
            .max_by(|&a, &b| row[a].total_cmp(&row[b]))?;
        let is_scale = row[most] > 0.0 && asking.iter().all(|&at| row[at].is_finite());
        is_scale.then_some((flows, most))
    });
    let of = |at: usize, values: &dyn Fn(usize) -> f64| {
        if passes[at] { 0.0 } else { values(at) }
    };
    let Some((scale, first)) = by_time else {
        // No commodity needs time, or none can be carried. Only cores may be a limit.
        let mut capacity = vec![0.0];
        for (flows, row) in seconds.iter().enumerate().skip(1) {
            let all = asking.iter().all(|&at| row[at] <= 0.0);
            let none = asking.iter().all(|&at| row[at].is_infinite());
            capacity.push(match (all, none) {
                (true, _) if cpu.iter().all(|&it| it <= 0.0) => f64::INFINITY,
                (true, _) => flows as f64,
                (_, true) => 0.0,
                (false, false) => return None,
            });
        }
        let some = capacity.iter().any(|&it| it > 0.0);
        let weight = |at: usize| if some { cpu[at] } else { 1.0 };
        let weights = (0..cpu.len()).map(|at| of(at, &weight)).collect();
        return Some(Carries::Alike { weights, capacity });
    };
    let weight = |at: usize| seconds[scale][at] / seconds[scale][first];
    let weights: Vec<f64> = (0..cpu.len()).map(|at| of(at, &weight)).collect();
    let proportional = rows().all(|(_, row)| {
        let base = row[first];
        asking.iter().all(|&at| {
            (row[at].is_infinite() && base.is_infinite())
                || (row[at] - base * weights[at]).abs() <= SAME * base
        })
    });
    if !proportional {
        return None;
    }
    let each = cpu[first];
    let cores_alike = asking
        .iter()
        .all(|&at| (cpu[at] - each * weights[at]).abs() <= SAME * each);
    let never =
        rows().all(|(flows, row)| asking.iter().all(|&at| cpu[at] <= row[at] * flows as f64));
    if !cores_alike && !never {
        return None;
    }
    let mut capacity = vec![0.0];
    for (flows, row) in seconds.iter().enumerate().skip(1) {
        let by_time = 1.0 / row[first];
        let by_cores = flows as f64 / each;
        let bound = cores_alike && each > 0.0;
        capacity.push(if bound {
            by_time.min(by_cores)
        } else {
            by_time
        });
    }
    Some(Carries::Alike { weights, capacity })
}
