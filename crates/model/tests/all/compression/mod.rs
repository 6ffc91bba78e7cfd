//! Simulates the choice of codecs: blocks of parts with known ratios and costs pass a path and
//! cores. The rate is compared with that of the best fixed choice.

#![allow(clippy::unwrap_used)]

mod copies;
mod flow;
mod world;

use longhaul_model::compression::EXPLORATION_SHARE;
use longhaul_model::compression::plan::Resources;

use world::{BLOCK_BYTES, CANDIDATES, Data, World};

/// Rates of the paths in bytes of payload per second: 100 Mbit/s, 1 Gbit/s and 5 Gbit/s.
const PATHS: [f64; 3] = [11.8e6, 117.7e6, 588e6];

fn resources(wire_rate: f64, cores: f64) -> Resources {
    Resources {
        wire_rate,
        supply_rate: f64::INFINITY,
        sender_cores: cores,
        receiver_cores: cores,
        is_unsteady: false,
    }
}

#[test]
fn compressible_data_are_as_fast_as_with_the_best_codec() {
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
fn incompressible_data_have_no_cost() {
    for path in PATHS {
        for cores in [0.05, 1.0, 8.0] {
            let mut world = World::new(resources(path, cores), 2);
            let carried = world.run(&[(Data::Random, 1.0)], 4000);
            assert!(carried >= 0.98 * path, "{carried:.3e} of {path:.3e}");
            assert_eq!(world.encoded_blocks, 0);
            // Only a few blocks are tried.
            assert!(world.untouched_blocks >= 3940, "{}", world.untouched_blocks);
        }
    }
}

#[test]
fn trials_take_at_most_their_share_of_the_time() {
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
            // The receiver reports only the mean time of decompression over all parts.
            assert!(carried >= 0.9 * best, "{carried:.3e} of {best:.3e}");
            assert!(carried >= 0.98 * path, "{carried:.3e} at {path:.1e}");
        }
    }
}

#[test]
fn data_of_a_source_slower_than_the_path_are_not_compressed() {
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
fn a_slow_receiver_gets_only_blocks_that_it_can_decompress() {
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
fn a_change_of_the_data_is_detected() {
    let mut world = World::new(resources(117.7e6, 1.0), 7);
    world.run(&[(Data::Text, 1.0)], 500);
    assert!(world.encoded_blocks > 400);
    // The part stays the same, so only the results of compression show the change.
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

/// lz4 cannot compress letters that represent random bytes, and zstd saves a quarter.
#[test]
fn a_single_useless_codec_does_not_make_a_part_rest() {
    let mut world = World::new(resources(11.8e6, 2.0), 9);
    world.run(&[(Data::Letters, 1.0)], 320);
    world.encoded_blocks = 0;
    let carried = world.run(&[(Data::Letters, 1.0)], 320);
    assert_eq!(world.encoded_blocks, 320);
    assert!(carried > 1.25 * 11.8e6, "{carried:.3e}");
}

/// A resting part is tried again after two blocks, then after increasing intervals. Its earlier
/// figures are used again when it becomes compressible.
#[test]
fn a_resting_part_is_tried_again_soon_and_then_rarely() {
    let mut world = World::new(resources(11.8e6, 2.0), 10);
    world.run_as(0, Data::Random, 32);
    world.run_as(0, Data::Text, 32);
    world.encoded_blocks = 0;
    world.run_as(0, Data::Text, 64);
    assert_eq!(world.encoded_blocks, 64, "text after some random bytes");
    world.run_as(0, Data::Random, 64);
    (world.untouched_blocks, world.trial_seconds) = (0, 0.0);
    world.run_as(0, Data::Random, 640);
    assert!(world.untouched_blocks > 630, "{}", world.untouched_blocks);
}

/// Blocks are assigned before they are read. Uncompressed blocks follow the same route as without
/// codecs.
#[test]
fn blocks_that_exceed_the_cores_are_sent_uncompressed() {
    let mut world = World::new(resources(588e6, 1.0), 11);
    world.run(&[(Data::Text, 1.0)], 640);
    (world.encoded_blocks, world.untouched_blocks) = (0, 0);
    world.run(&[(Data::Text, 1.0)], 640);
    let (encoded, untouched) = (world.encoded_blocks, world.untouched_blocks);
    assert!(encoded > 100 && untouched > 100, "{encoded}, {untouched}");
    assert!(encoded + untouched >= 638, "{encoded}, {untouched}");
}

/// A dataset of one part is followed by another dataset. On a slow path its first blocks take
/// seconds, after which the earlier data must not count any more.
#[test]
fn earlier_data_soon_count_no_more() {
    // The cores suffice for the best codec for one part, but not for both.
    let mut world = World::new(resources(11.8e6, 0.06), 12);
    world.run_as(1, Data::Text, 3200);
    world.run_as(2, Data::Text, 64);
    let mut fresh = World::new(resources(11.8e6, 0.06), 12);
    fresh.run_as(2, Data::Text, 96);
    let (now, alone) = (
        world.run_as(2, Data::Text, 96),
        fresh.run_as(2, Data::Text, 96),
    );
    assert!(now >= 0.97 * alone, "{now:.3e} of {alone:.3e}");
}

/// While windows grow, codecs that need long for a block are not used.
#[test]
fn expensive_codecs_wait_until_the_path_is_steady() {
    let mut world = World::new(resources(1e6, 8.0), 14);
    world.run(&[(Data::Text, 1.0)], 64);
    let dear = |world: &World| world.compression.share(0, 5);
    assert!(dear(&world) > 0.9);
    let unsteady = Resources {
        is_unsteady: true,
        ..resources(1e6, 8.0)
    };
    world.compression.handle_resources(world.seconds, unsteady);
    assert!(dear(&world) <= 0.0);
    // A block that waited since its assignment gets the codec that is now in use.
    let renewed = world.compression.renew(0, 5);
    assert!(renewed.is_some_and(|codec| codec < 5), "{renewed:?}");
    world
        .compression
        .handle_resources(world.seconds, resources(1e12, 8.0));
    assert_eq!(world.compression.renew(0, 5), None);
}

#[test]
fn invalid_figures_do_not_break_the_plan() {
    let odds = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 0.0];
    for odd in odds.into_iter().chain([1e300, 1e-300]) {
        let odd_ones = Resources {
            wire_rate: odd,
            supply_rate: odd,
            sender_cores: odd,
            receiver_cores: odd,
            is_unsteady: false,
        };
        let mut world = World::new(odd_ones, 8);
        for block in 0..100 {
            world.compression.handle_resources(odd, odd_ones);
            world.compression.next_trial(block, BLOCK_BYTES);
            let chosen = world.compression.choose(block, BLOCK_BYTES);
            assert!(chosen.is_none_or(|codec| codec < CANDIDATES.len()));
        }
        // Figures reported by a peer must not make the plan unusable for another path.
        let mut world = World::new(resources(117.7e6, 2.0), 8);
        world.run(&[(Data::Text, 1.0)], 320);
        (0..CANDIDATES.len()).for_each(|codec| world.compression.handle_decoded(codec, odd));
        let now = world.seconds;
        let expected = world
            .compression
            .handle_resources(now, resources(117.7e6, 2.0));
        let rate = expected.unwrap().rate;
        assert!(rate.is_finite() && rate >= 117e6, "{odd}: {rate}");
    }
}
