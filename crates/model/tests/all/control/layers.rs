//! Tests the controller of the layers with simulated layers: the rate that it reaches, its speed,
//! and its stability.

use std::time::Duration;

use longhaul_measure::random::Random;
use longhaul_model::capacity::FlowCapacity;
use longhaul_model::control::layers::{LayerSight, LayersControl, Sight};

const PERIOD: Duration = Duration::from_millis(200);

/// A chain of layers.
struct World {
    layers: Vec<FlowCapacity>,
    flows: Vec<u32>,
    /// Changes that are not yet effective.
    coming: Vec<(Duration, usize, u32)>,
    most: u32,
    rtt: Duration,
    /// Maximum relative deviation of a period's rate.
    noise: f64,
    random: Random,
    now: Duration,
    control: LayersControl,
    /// Times of the changes of flows.
    changes: Vec<Duration>,
}

impl World {
    fn new(layers: Vec<FlowCapacity>, rtt_ms: u64, noise: f64, seed: u64) -> World {
        World {
            flows: vec![1; layers.len()],
            control: LayersControl::new(layers.len()),
            layers,
            coming: Vec::new(),
            most: 64,
            rtt: Duration::from_millis(rtt_ms),
            noise,
            random: Random::new(seed),
            now: Duration::ZERO,
            changes: Vec::new(),
        }
    }

    /// Returns the rate of the flows without noise.
    fn rate(&self) -> f64 {
        let each = self.layers.iter().zip(&self.flows);
        each.map(|(layer, &flows)| layer.at(flows))
            .fold(f64::INFINITY, f64::min)
    }

    /// Returns the highest rate of any numbers of flows.
    fn best(&self) -> f64 {
        let best = |layer: &FlowCapacity| {
            (1..=self.most)
                .map(|flows| layer.at(flows))
                .fold(0.0, f64::max)
        };
        self.layers.iter().map(best).fold(f64::INFINITY, f64::min)
    }

    fn step(&mut self) {
        self.now += PERIOD;
        let now = self.now;
        for &(at, layer, flows) in &self.coming {
            if at <= now {
                self.flows[layer] = flows;
            }
        }
        self.coming.retain(|it| it.0 > now);
        let off = self.random.below(2001) as f64 / 1000.0 - 1.0;
        let rate = self.rate() * (1.0 + off * self.noise);
        let layers: Vec<LayerSight> = self
            .layers
            .iter()
            .zip(&self.flows)
            .map(|(layer, &flows)| LayerSight {
                least: 1,
                flows,
                // Another controller chooses the streams of a path.
                most: match layer {
                    FlowCapacity::Constant { .. } => 1,
                    _ => self.most,
                },
                busy: (self.rate() / layer.at(flows)).min(1.0),
            })
            .collect();
        let sight = Sight {
            rate,
            layers: &layers,
            rtt: self.rtt,
            free_cpu: 0.5,
        };
        for change in self.control.observe(now, &sight) {
            self.coming
                .push((now + self.rtt, change.layer, change.flows));
            self.changes.push(now);
        }
    }

    fn run(&mut self, seconds: f64) {
        let end = self.now + Duration::from_secs_f64(seconds);
        while self.now < end {
            self.step();
        }
    }

    /// Returns the seconds until the mean rate over a second is 0.95 of the best. Infinite if it
    /// never is.
    fn seconds_to_the_best(&mut self, within: f64) -> f64 {
        let begun = self.now;
        let mut recent: Vec<f64> = Vec::new();
        while (self.now - begun).as_secs_f64() < within {
            self.step();
            recent.push(self.rate());
            let last = &recent[recent.len().saturating_sub(5)..];
            if last.len() == 5 && last.iter().sum::<f64>() / 5.0 >= 0.95 * self.best() {
                return (self.now - begun).as_secs_f64();
            }
        }
        f64::INFINITY
    }
}

fn linear(rate: f64, most: u32) -> FlowCapacity {
    FlowCapacity::Linear {
        alpha: rate,
        gamma: 0.0,
        most,
    }
}

/// Returns a reader, a compressor, a path, a decompressor and a writer.
fn usual() -> Vec<FlowCapacity> {
    vec![
        FlowCapacity::Saturating {
            alpha: 2e9,
            gamma: 1.0,
        },
        linear(150e6, 12),
        FlowCapacity::Constant { rate: 1.1e9 },
        linear(500e6, 8),
        FlowCapacity::Saturating {
            alpha: 1.8e9,
            gamma: 0.5,
        },
    ]
}

/// Returns the maximum time in seconds to reach the best rate: 5 s and 20 round trips.
fn bound(rtt_ms: u64) -> f64 {
    5.0 + 20.0 * rtt_ms as f64 / 1000.0
}

#[test]
fn reaches_the_best_from_one_flow_each() {
    for rtt in [0, 10, 100, 300] {
        for seed in 0..40 {
            let mut world = World::new(usual(), rtt, 0.03, seed);
            // At the start, five layers have to grow one after the other.
            let seconds = world.seconds_to_the_best(60.0);
            assert!(
                seconds <= 3.0 * bound(rtt),
                "rtt {rtt} ms, seed {seed}: {seconds} s, {:?}",
                world.flows
            );
        }
    }
}

#[test]
fn follows_sudden_changes_within_the_maximum_time() {
    for rtt in [0, 10, 100, 300] {
        for seed in 0..40 {
            let mut world = World::new(usual(), rtt, 0.03, seed);
            world.run(120.0);
            for (layer, becomes) in [
                (2, FlowCapacity::Constant { rate: 0.55e9 }),
                (2, FlowCapacity::Constant { rate: 1.1e9 }),
                // A disk becomes slower and needs more flows.
                (
                    4,
                    FlowCapacity::Saturating {
                        alpha: 1.8e9,
                        gamma: 3.0,
                    },
                ),
            ] {
                world.layers[layer] = becomes;
                let seconds = world.seconds_to_the_best(60.0);
                assert!(
                    seconds <= bound(rtt),
                    "rtt {rtt} ms, seed {seed}: {seconds} s after {layer}, {:?} {} of {}",
                    world.flows,
                    world.rate(),
                    world.best()
                );
                world.run(120.0);
            }
        }
    }
}

#[test]
fn a_disk_whose_rate_falls_with_flows_gets_one_flow() {
    for seed in 0..40 {
        let mut layers = usual();
        layers[0] = FlowCapacity::Falling {
            alpha: 3e9,
            gamma: 3.0,
        };
        let mut world = World::new(layers, 20, 0.02, seed);
        world.flows[0] = 8;
        world.run(180.0);
        assert!(
            world.rate() >= 0.95 * world.best(),
            "seed {seed}: {:?}",
            world.flows
        );
        assert!(world.flows[0] <= 2, "seed {seed}: {:?}", world.flows);
    }
}

#[test]
fn is_stable_under_constant_conditions() {
    for noise in [0.0, 0.03, 0.06] {
        for seed in 0..20 {
            let mut world = World::new(usual(), 50, noise, seed);
            world.run(600.0);
            let before = world.changes.len();
            world.run(1200.0);
            let a_minute = (world.changes.len() - before) as f64 / 20.0;
            assert!(
                a_minute <= 6.0,
                "noise {noise}, seed {seed}: {a_minute} a minute"
            );
            assert!(world.rate() >= 0.9 * world.best(), "{:?}", world.flows);
        }
    }
}

#[test]
fn follows_a_drift() {
    let mut world = World::new(usual(), 50, 0.03, 1);
    world.run(60.0);
    let (mut sum, mut best) = (0.0, 0.0);
    for step in 0..600 {
        let phase = f64::from(step) / 600.0 * std::f64::consts::TAU;
        world.layers[1] = linear(150e6 * (1.0 + 0.5 * phase.sin()), 40);
        world.run(1.0);
        sum += world.rate();
        best += world.best();
    }
    assert!(sum >= 0.93 * best, "{}", sum / best);
}

#[test]
fn removes_flows_that_do_not_help() {
    let mut world = World::new(usual(), 20, 0.02, 3);
    world.flows = vec![60; 5];
    world.run(300.0);
    assert!(world.rate() >= 0.95 * world.best(), "{:?}", world.flows);
    assert!(world.flows.iter().sum::<u32>() < 60, "{:?}", world.flows);
}

#[test]
fn no_flow_is_added_without_a_free_processor() {
    let layers = [LayerSight {
        least: 1,
        flows: 1,
        most: 8,
        busy: 1.0,
    }];
    let mut control = LayersControl::new(1);
    for period in 1..100_u32 {
        let sight = Sight {
            rate: 1e8,
            layers: &layers,
            rtt: Duration::ZERO,
            free_cpu: 0.0,
        };
        assert_eq!(control.observe(PERIOD * period, &sight), []);
    }
}

/// Two transfers read from one disk, which divides its rate by the numbers of flows.
#[test]
fn two_transfers_share() {
    for seed in 0..20 {
        let disk = FlowCapacity::Saturating {
            alpha: 2e9,
            gamma: 2.0,
        };
        let mut random = Random::new(seed);
        let mut flows = [1_u32, 24];
        let mut controls = [LayersControl::new(1), LayersControl::new(1)];
        let mut carried = [0.0; 2];
        let periods = 6000_u32;
        for period in 1..=periods {
            let now = PERIOD * period;
            let all: u32 = flows.iter().sum();
            for one in 0..2 {
                let off = random.below(2001) as f64 / 1000.0 - 1.0;
                let share = f64::from(flows[one]) / f64::from(all);
                let rate = disk.at(all) * share;
                if period > periods / 2 {
                    carried[one] += rate;
                }
                let layers = [LayerSight {
                    least: 1,
                    flows: flows[one],
                    most: 64,
                    busy: 1.0,
                }];
                let sight = Sight {
                    rate: rate * (1.0 + 0.02 * off),
                    layers: &layers,
                    rtt: Duration::ZERO,
                    free_cpu: 0.5,
                };
                for change in controls[one].observe(now, &sight) {
                    flows[one] = change.flows;
                }
            }
        }
        let share = carried[0] / (carried[0] + carried[1]);
        assert!(
            (0.45..=0.55).contains(&share),
            "seed {seed}: {share} {flows:?}"
        );
    }
}
