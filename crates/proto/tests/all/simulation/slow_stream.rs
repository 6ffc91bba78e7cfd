//! Tests that a transfer with one stalled or ten times slower stream ends in time: no later than
//! without that stream, plus one block at a fast stream's rate and one round trip.

use std::time::Duration;

use longhaul_units::Moment;

use super::network::{Conn, End, Link};
use super::scenario::{Scenario, milliseconds};
use super::source::Source;
use super::world::World;

/// Block size in bytes, large enough that messages are as small a part of the traffic as in
/// practice.
const BLOCK: u64 = 16 << 10;

/// Rate of a fast stream in bytes per second.
const RATE: f64 = 16e6;

struct Case {
    fast: usize,
    latency: Duration,
    blocks: u64,
    /// Number of blocks that a stream's buffer holds.
    buffer: u64,
    packs: bool,
}

fn link(case: &Case, rate: f64) -> Link {
    let buffer = (case.buffer * BLOCK) as usize;
    Link {
        rate,
        latency: case.latency,
        buffer,
        stalls: None,
    }
}

fn source(case: &Case) -> Source {
    let mut source = Source::default();
    if !case.packs {
        source.add_file(None, case.blocks * BLOCK);
    } else {
        (0..case.blocks * 2).for_each(|_| source.add_file(None, BLOCK / 2));
    }
    source
}

/// Runs over these streams. Returns the time of the end and the number of blocks sent twice.
fn finish(case: &Case, links: Vec<Link>) -> (Moment, u64) {
    finish_with(case, links, |_| {})
}

fn finish_with(case: &Case, links: Vec<Link>, change: impl FnOnce(&mut Scenario)) -> (Moment, u64) {
    let mut scenario = Scenario::plain(source(case), links, BLOCK);
    scenario.receiver.checkpoint_span = milliseconds(50);
    change(&mut scenario);
    let mut world = World::new(scenario);
    world.run();
    world.check();
    let twice = world.checks.bytes_sent - case.blocks * BLOCK;
    (world.now, twice.div_ceil(BLOCK))
}

/// Returns the milliseconds by which a transfer with a slow stream ends later than allowed;
/// negative if it ends sooner.
fn excess(case: &Case, slow: Link, at: usize) -> f64 {
    let mut links = vec![link(case, RATE); case.fast];
    let (without, _) = finish(case, links.clone());
    links.insert(at, slow);
    let (with, twice) = finish(case, links);
    // Headers, and the interval between searches for a slow stream, take a part of a block's time.
    let block = Duration::from_secs_f64(1.5 * BLOCK as f64 / RATE);
    let mut allowed = without + block + 2 * case.latency;
    if case.blocks == 1 {
        // Without any measured rate, a new stream may take this long.
        allowed = allowed + 16 * case.latency + milliseconds(20);
    }
    let excess = (with.0 as f64 - allowed.0 as f64) / 1e6;
    println!(
        "{} fast, {:?}, {} blocks, buffer {}, packs {}, slow {:?} at {at}: without {:?}, with \
         {:?}, excess {excess:.3} ms, twice {twice}",
        case.fast,
        case.latency,
        case.blocks,
        case.buffer,
        case.packs,
        slow.stalls,
        Duration::from_nanos(without.0),
        Duration::from_nanos(with.0),
    );
    excess
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for latency in [1, 10, 50, 200].map(|ms| Duration::from_micros(ms * 500)) {
        for fast in [1, 2, 7] {
            for (blocks, buffer) in [(1, 4), (3, 1), (40, 4), (200, 16), (200, 64), (400, 4)] {
                for packs in [false, true] {
                    cases.push(Case {
                        fast,
                        latency,
                        blocks,
                        buffer,
                        packs,
                    });
                }
            }
        }
    }
    cases
}

#[test]
fn a_slow_stream_does_not_delay_the_end() {
    let worst = cases()
        .into_iter()
        .flat_map(|case| [0, case.fast].map(|at| excess(&case, link(&case, RATE / 10.0), at)));
    let worst = worst.max_by(f64::total_cmp).unwrap();
    assert!(worst <= 0.0, "{worst} ms later than allowed");
}

#[test]
fn a_stalled_stream_does_not_delay_the_end() {
    let worst = cases().into_iter().map(|case| {
        let stalls = Some(Moment(0));
        excess(
            &case,
            Link {
                stalls,
                ..link(&case, RATE)
            },
            case.fast,
        )
    });
    let worst = worst.max_by(f64::total_cmp).unwrap();
    assert!(worst <= 0.0, "{worst} ms later than allowed");
}

/// Runs all cases with equal streams and asserts that few blocks are sent twice.
fn send_once(what: &str, change: impl Fn(&mut Scenario)) {
    let (mut blocks, mut all) = (0, 0);
    for case in cases() {
        let links = vec![link(&case, RATE); case.fast + 1];
        let (_, twice) = finish_with(&case, links, &change);
        assert!(
            twice <= case.fast as u64 + 1 + case.blocks / 10,
            "{what}, {} streams, {:?}, {} blocks, buffer {}: {twice} sent twice",
            case.fast + 1,
            case.latency,
            case.blocks,
            case.buffer
        );
        blocks += case.blocks;
        all += twice;
    }
    println!("{what}: {all} of {blocks} blocks were sent twice");
    assert!(all * 50 <= blocks, "{what}: {all} of {blocks} blocks");
}

#[test]
fn equal_streams_send_almost_no_data_twice() {
    send_once("no jitter", |_| {});
}

/// A free stream takes the next block. If the kernels hold few unsent bytes, no stream carries
/// twice as much as another, although the first begins before the others have joined.
#[test]
fn equal_streams_carry_equal_parts() {
    for latency in [milliseconds(1), milliseconds(25), milliseconds(100)] {
        for (streams, jitter) in [(2, 0.0), (8, 0.0), (8, 3.0)] {
            let case = Case {
                fast: streams,
                latency,
                blocks: 4000,
                buffer: 4,
                packs: false,
            };
            let links = vec![link(&case, RATE); streams];
            let mut scenario = Scenario::plain(source(&case), links, BLOCK);
            scenario.receiver.checkpoint_span = milliseconds(50);
            scenario.jitter = jitter;
            let mut world = World::new(scenario);
            world.run();
            world.check();
            let carried = |conn: &Conn| conn.written[End::Sender.index()];
            let parts: Vec<u64> = world.conns.iter().map(carried).collect();
            assert_eq!(parts.len(), streams);
            let (least, most) = (parts.iter().min().unwrap(), parts.iter().max().unwrap());
            assert!(
                *most <= 2 * least,
                "{latency:?}, jitter {jitter}: {parts:?}"
            );
        }
    }
}

#[test]
fn a_path_with_jitter_is_not_a_slow_stream() {
    for (seed, jitter) in [(1, 0.5), (2, 3.0), (3, 10.0)] {
        send_once(&format!("jitter {jitter}"), |scenario| {
            (scenario.seed, scenario.jitter) = (seed, jitter);
        });
    }
}

#[test]
fn a_receiver_that_reads_late_is_not_a_slow_stream() {
    // On a host with more threads than cores, a stream's reader can wait for the time of many
    // blocks while its kernel has them all.
    for (seed, longest) in [(1, 1), (2, 30)] {
        send_once(&format!("read within {longest} ms"), |scenario| {
            scenario.seed = seed;
            scenario.reading = (Duration::ZERO, milliseconds(longest));
        });
    }
}
