//! Tests that only the path limits a transfer over a long path, because every window holds more
//! than the path. If a promise sets a lower limit, that limit is reached.

use std::time::Duration;

use super::network::Link;
use super::scenario::{Scenario, milliseconds};
use super::source::{NodeKind, Source};
use super::world::World;

/// Latency of half a circuit of the world: a round trip of 366 ms.
const FAR: Duration = milliseconds(183);

fn run(scenario: Scenario) -> World {
    let mut world = World::new(scenario);
    world.run();
    world.check();
    world
}

/// The rate stands for 10 Gbit/s, with 64 real bytes per simulated byte. Blocks of 16 KiB are as
/// numerous as real blocks of 1 MiB, and as many of them are on their way.
#[test]
fn no_window_is_smaller_than_the_path() {
    const BLOCK: u64 = 16 << 10;
    let rate = 1.25e9 / 64.0;
    for streams in [1, 8] {
        let link = Link {
            rate: rate / f64::from(streams),
            latency: FAR,
            buffer: 4 << 20 >> 6,
            stalls: None,
        };
        let links = vec![link; streams as usize];
        // The blocks of twelve seconds. The path holds 436 blocks, and the checkpoints of each
        // second hold as many again.
        let blocks = 12 * rate as u64 / BLOCK;
        let mut source = Source::default();
        source.add_file(None, blocks * BLOCK);
        let mut scenario = Scenario::plain(source, links, BLOCK);
        // With `--memory 64MiB`, blocks are forgotten when the kernel has them.
        scenario.pool = 64;
        scenario.store = (milliseconds(50), milliseconds(50));
        scenario.receiver.checkpoint_bytes = (256 << 20) / 64;
        let world = run(scenario);
        let ideal = (blocks * BLOCK) as f64 / rate;
        // The transmission of the last byte, its checkpoint and commit, and the way back of the
        // result.
        let ends = 2.0 * FAR.as_secs_f64() + 0.2;
        let used = ideal / (world.now.0 as f64 / 1e9 - ends);
        println!("{streams} streams: {used:.3} of the path, {:?}", world.now);
        assert!(used > 0.99, "{streams} streams: {used} of the path");
        let twice = world.checks.bytes_sent - blocks * BLOCK;
        assert!(twice <= blocks * BLOCK / 50, "{twice} bytes twice");
    }
}

/// At most 5,000 small files may have to be sent again after a kill. No more may be on their way,
/// and only this limits the number of files per round trip.
#[test]
fn small_files_go_as_fast_as_the_promise_allows() {
    const FILES: u64 = 60_000;
    let storing = milliseconds(30);
    for latency in [milliseconds(50), FAR] {
        for asks in [false, true] {
            let mut source = Source::default();
            let directory = source.add(None, NodeKind::Directory);
            (0..FILES).for_each(|_| source.add_file(Some(directory), 100));
            let link = Link {
                rate: 1e9,
                latency,
                buffer: 1 << 20,
                stalls: None,
            };
            let mut scenario = Scenario::plain(source, vec![link; 4], 1 << 20);
            scenario.sender.asks = asks;
            scenario.store = (storing, storing);
            let window = scenario.sender.unacknowledged_entries;
            assert!((4000..=5000).contains(&window));
            let world = run(scenario);
            // A file is on its way until its name is durable and the sender knows it.
            let turn = (2 * latency + storing).as_secs_f64();
            let allowed = FILES as f64 / window as f64 * turn;
            // Time for the first questions, and for the directory after the last file.
            let ends = (4 * latency + 4 * storing).as_secs_f64();
            let used = allowed / (world.now.0 as f64 / 1e9 - ends);
            let rate = FILES as f64 / (world.now.0 as f64 / 1e9);
            println!("{latency:?}, asks {asks}: {rate:.0} files/s, {used:.3} of what is allowed");
            assert!(used > 0.9, "{latency:?}, asks {asks}: {used}");
        }
    }
}
