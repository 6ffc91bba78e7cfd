//! The choice of codecs in simulation: blocks of parts with known ratios and costs pass a path and
//! cores, and what was carried is compared with the best fixed choice.

#![allow(clippy::unwrap_used)]

mod world;

use longhaul_model::compression::EXPLORATION_SHARE;
use longhaul_model::compression::plan::Resources;

use world::{BLOCK_BYTES, CANDIDATES, Data, World};

/// Paths: 100 Mbit/s, 1 and 5 Gbit/s, in bytes of payload per second.
const PATHS: [f64; 3] = [11.8e6, 117.7e6, 588e6];

fn resources(wire_rate: f64, cores: f64) -> Resources {
    Resources {
        wire_rate,
        supply_rate: f64::INFINITY,
        sender_cores: cores,
        receiver_cores: cores,
    }
}

#[test]
fn data_that_shrink_go_as_fast_as_with_the_best_codec() {
    for data in Data::SHRINKING {
        for path in PATHS {
            for cores in [0.5, 1.0, 2.0, 8.0] {
                let mut world = World::new(resources(path, cores), 1);
                let carried = world.run(&[(data, 1.0)], 2000);
                let best = world.best_fixed(data);
                let shown = format!("{data:?} at {path:.1e} B/s with {cores} cores");
                assert!(
                    carried >= 0.9 * best,
                    "{shown}: {carried:.3e} of {best:.3e}"
                );
            }
        }
    }
}

#[test]
fn data_that_do_not_shrink_cost_nothing() {
    for path in PATHS {
        for cores in [0.05, 1.0, 8.0] {
            let mut world = World::new(resources(path, cores), 2);
            let carried = world.run(&[(Data::Random, 1.0)], 4000);
            assert!(carried >= 0.98 * path, "{carried:.3e} of {path:.3e}");
            assert_eq!(world.encoded_blocks, 0);
        }
    }
}

#[test]
fn trials_take_the_share_of_time_that_they_may() {
    for data in Data::ALL {
        for path in PATHS {
            let mut world = World::new(resources(path, 2.0), 3);
            world.run(&[(data, 1.0)], 3000);
            let (trials, time) = (world.trial_seconds, world.seconds);
            assert!(
                trials <= 1.2 * EXPLORATION_SHARE * time,
                "{data:?} at {path:.1e}: {trials} s of {time} s",
            );
        }
    }
}

#[test]
fn a_mixture_is_no_slower_than_its_best_fixed_codec() {
    let mixture = [(Data::Random, 0.5), (Data::Text, 0.3), (Data::Field, 0.2)];
    for path in PATHS {
        for cores in [0.5, 2.0] {
            let mut world = World::new(resources(path, cores), 4);
            let carried = world.run(&mixture, 3000);
            let best = world.best_fixed_of(&mixture);
            // What decoding takes is told as the mean of all parts.
            assert!(carried >= 0.9 * best, "{carried:.3e} of {best:.3e}");
            assert!(carried >= 0.98 * path, "{carried:.3e} at {path:.1e}");
        }
    }
}

#[test]
fn a_source_slower_than_the_path_is_left_as_it_is() {
    let mut world = World::new(
        Resources {
            supply_rate: 50e6,
            ..resources(117.7e6, 4.0)
        },
        5,
    );
    let carried = world.run(&[(Data::Text, 1.0)], 1000);
    assert!(carried >= 0.99 * 50e6);
    assert_eq!(world.encoded_blocks, 0);
}

#[test]
fn a_slow_receiver_gets_what_it_can_open() {
    let slow = Resources {
        receiver_cores: 0.05,
        ..resources(117.7e6, 4.0)
    };
    let mut world = World::new(slow, 6);
    let carried = world.run(&[(Data::Text, 1.0)], 3000);
    let best = world.best_fixed(Data::Text);
    assert!(carried >= 0.95 * best.max(117.7e6), "{carried:.3e}");
}

#[test]
fn data_that_change_are_followed() {
    let mut world = World::new(resources(117.7e6, 1.0), 7);
    world.run(&[(Data::Text, 1.0)], 500);
    assert!(world.encoded_blocks > 400);
    // The same part, so that only what blocks become tells it.
    world.run_as(0, Data::Random, 300);
    world.encoded_blocks = 0;
    let carried = world.run_as(0, Data::Random, 1000);
    assert!(carried >= 0.98 * 117.7e6, "{carried:.3e}");
    assert_eq!(world.encoded_blocks, 0);
    world.run_as(0, Data::Text, 1500);
    let carried = world.run_as(0, Data::Text, 1000);
    let best = world.best_fixed(Data::Text);
    assert!(carried >= 0.9 * best, "{carried:.3e} of {best:.3e}");
}

#[test]
fn nonsense_breaks_nothing() {
    for odd in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
        let odd = Resources {
            wire_rate: odd,
            supply_rate: odd,
            sender_cores: odd,
            receiver_cores: odd,
        };
        let mut compression = World::new(odd, 8).compression;
        compression.handle_resources(odd);
        for block in 0..100 {
            compression.next_trial(block, BLOCK_BYTES);
            let chosen = compression.choose(block, BLOCK_BYTES);
            assert!(chosen.is_none_or(|codec| codec < CANDIDATES.len()));
        }
    }
}
