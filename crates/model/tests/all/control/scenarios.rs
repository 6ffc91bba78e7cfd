//! Tests of the rates that the controller reaches and of its numbers of streams.

use longhaul_model::control::{Bound, Decision, Settings};
use longhaul_model::response::Congestion;

use super::path::{PAYLOAD, Trace, Transfer, World, run};

/// Seeds of each scenario with random loss.
const SEEDS: std::ops::Range<u64> = 1..6;

fn alone(world: &World, seconds: f64) -> Trace {
    transfer(world, Transfer::default(), seconds)
}

fn transfer(world: &World, mut transfer: Transfer, seconds: f64) -> Trace {
    transfer.settings.congestion = world.law.clone();
    run(world, &[transfer], seconds).remove(0)
}

/// Returns the share of the capacity that was used between two times.
fn part(trace: &Trace, world: &World, from: f64, to: f64) -> f64 {
    trace.rate(from, to) / (world.rate * PAYLOAD)
}

#[test]
fn a_clean_path_is_filled_with_few_streams() {
    for gigabits in [1.0, 2.5, 10.0] {
        for milliseconds in [0.4, 11.8, 22.6, 45.6, 91.6, 183.0, 366.0] {
            let (rate, rtt) = (gigabits * 1e9, milliseconds / 1e3);
            let world = World {
                rate,
                rtt,
                ..World::default()
            };
            let trace = alone(&world, 30.0);
            let used = part(&trace, &world, 5.0, 30.0);
            let what = format!("{gigabits} Gbit/s, {milliseconds} ms: {used}");
            assert!(used >= 0.97, "{what}");
            assert!(trace.streams() <= 16, "{what}, {} streams", trace.streams());
            assert_eq!(trace.stream_changes(0.0), 0, "{what}");
        }
    }
}

#[test]
fn a_path_with_a_short_queue_is_filled() {
    for milliseconds in [11.8, 22.6, 45.6, 91.6, 183.0, 366.0] {
        let world = World {
            rtt: milliseconds / 1e3,
            buffer: 0.1,
            ..World::default()
        };
        let trace = alone(&world, 60.0);
        let used = part(&trace, &world, 20.0, 60.0);
        assert!(used >= 0.95, "{milliseconds} ms: {used}");
        assert!(trace.streams() <= 48 && trace.stream_changes(0.0) <= 10);
    }
}

#[test]
fn random_loss_gets_the_number_of_streams_of_its_law() {
    let cases = [
        (Congestion::Cubic, 1e-5, 8..=32),
        (Congestion::Cubic, 1e-4, 27..=64),
        (Congestion::Reno, 1e-5, 16..=40),
        (Congestion::Reno, 1e-4, 40..=96),
    ];
    for (law, loss, streams) in cases {
        for seed in SEEDS {
            let world = World {
                seed,
                loss,
                law: law.clone(),
                ..World::default()
            };
            let trace = alone(&world, 35.0);
            let what = format!("{law}, loss {loss}, seed {seed}");
            let (early, used) = (
                part(&trace, &world, 0.0, 30.0),
                part(&trace, &world, 5.0, 35.0),
            );
            assert!(used >= 0.90, "{what}: {used} after 5 s");
            assert!(early >= 0.80, "{what}: {early} of the first 30 s");
            let count = trace.streams();
            assert!(streams.contains(&count), "{what}: {count} streams");
        }
    }
}

#[test]
fn loss_on_the_longest_path_gets_more_streams() {
    for seed in SEEDS {
        let world = World {
            seed,
            loss: 1e-4,
            rtt: 0.366,
            ..World::default()
        };
        let trace = alone(&world, 60.0);
        let used = part(&trace, &world, 10.0, 60.0);
        assert!(used >= 0.85, "seed {seed}: {used}");
    }
}

#[test]
fn loss_switches_the_congestion_control_if_the_choice_is_free() {
    for seed in SEEDS {
        let world = World {
            seed,
            loss: 1e-4,
            ..World::default()
        };
        let settings = Settings {
            alternative: Some(Congestion::Bbr),
            ..Settings::default()
        };
        let free = Transfer {
            settings,
            ..Transfer::default()
        };
        let trace = transfer(&world, free, 35.0);
        let used = part(&trace, &world, 5.0, 35.0);
        assert!(used >= 0.97, "seed {seed}: {used}");
        assert!(trace.streams() <= 32, "seed {seed}: {}", trace.streams());
        assert!(
            trace
                .decisions
                .iter()
                .any(|(_, d)| d.congestion == Some(Congestion::Bbr)),
            "seed {seed}"
        );
    }
}

#[test]
fn a_clean_path_keeps_its_congestion_control() {
    for seed in SEEDS {
        for (rate, rtt, buffer) in [
            (1e9, 0.1, 1.0),
            (1e9, 0.366, 1.0),
            (2e7, 0.25, 1.0),
            (1e8, 0.05, 0.5),
            (3e8, 0.3, 0.25),
        ] {
            let world = World {
                seed,
                rate,
                rtt,
                buffer,
                ..World::default()
            };
            let settings = Settings {
                alternative: Some(Congestion::Bbr),
                ..Settings::default()
            };
            let free = Transfer {
                settings,
                ..Transfer::default()
            };
            let trace = transfer(&world, free, 60.0);
            let changed = trace.decisions.iter().find(|(_, d)| d.congestion.is_some());
            assert!(
                changed.is_none(),
                "seed {seed}, {rate} at {rtt}: {changed:?}"
            );
        }
    }
}

#[test]
fn an_invisibly_short_queue_switches_the_congestion_control_at_once() {
    for seed in SEEDS {
        let world = World {
            seed,
            rate: 5e8,
            rtt: 0.2,
            buffer: 0.02,
            ..World::default()
        };
        let settings = Settings {
            alternative: Some(Congestion::Bbr),
            ..Settings::default()
        };
        let free = Transfer {
            settings,
            ..Transfer::default()
        };
        let trace = transfer(&world, free, 30.0);
        let switched = |(_, decision): &&(f64, Decision)| decision.congestion.is_some();
        let at = trace.decisions.iter().find(switched).map(|(at, _)| *at);
        assert!(at.is_some_and(|at| at < 5.0), "seed {seed}: {at:?}");
        let used = part(&trace, &world, 10.0, 30.0);
        assert!(used >= 0.9, "seed {seed}: {used}");
    }
}

#[test]
fn streams_compensate_for_windows_limited_by_a_buffer() {
    for (rtt, window, receivers, streams) in [
        (0.1, 0.7e6, true, 17..=20),
        (0.1, 0.7e6, false, 17..=20),
        (0.366, 2.9e6, true, 15..=20),
        (0.366, 0.5e6, false, 86..=110),
    ] {
        let world = World {
            rtt,
            window,
            window_is_receivers: receivers,
            ..World::default()
        };
        let trace = alone(&world, 60.0);
        let used = part(&trace, &world, 20.0, 60.0);
        let count = trace.streams();
        assert!(used >= 0.95, "{rtt} s, {window}: {used} with {count}");
        assert!(streams.contains(&count), "{rtt} s, {window}: {count}");
    }
}

#[test]
fn a_busy_host_or_disk_gets_no_more_streams() {
    let cores = World {
        processor: 50e6,
        processor_each: 0.01,
        ..World::default()
    };
    let trace = alone(&cores, 60.0);
    assert_eq!((trace.streams(), trace.stream_changes(0.0)), (16, 0));
    assert_eq!(
        trace.bounds.last().map(|seen| seen.1),
        Some(Bound::Processor)
    );
    let disk = World {
        disk: 30e6,
        ..World::default()
    };
    let trace = alone(&disk, 60.0);
    assert_eq!((trace.streams(), trace.stream_changes(0.0)), (16, 0));
    assert_eq!(
        trace.bounds.last().map(|seen| seen.1),
        Some(Bound::Receiver)
    );
    assert!(trace.rate(10.0, 60.0) >= 0.97 * 30e6 * 8.0);
}

#[test]
fn two_transfers_share_a_path() {
    for (law, rtt) in [
        (Congestion::Cubic, 0.1),
        (Congestion::Cubic, 0.0456),
        (Congestion::Bbr, 0.1),
    ] {
        let world = World {
            law: law.clone(),
            rtt,
            ..World::default()
        };
        let settings = Settings {
            congestion: law.clone(),
            ..Settings::default()
        };
        let one = Transfer {
            settings,
            ..Transfer::default()
        };
        let traces = run(&world, &[one.clone(), one], 45.0);
        let rates = [traces[0].rate(15.0, 45.0), traces[1].rate(15.0, 45.0)];
        let share = rates[0] / (rates[0] + rates[1]);
        assert!((0.45..=0.55).contains(&share), "{law}, {rtt} s: {share}");
        assert!((rates[0] + rates[1]) / (world.rate * PAYLOAD) >= 0.97);
    }
}

#[test]
fn a_later_transfer_gets_a_share_and_does_not_take_over() {
    // The transfers do not communicate, and the later one never sees the path without the other's
    // queue. So the guaranteed share is smaller than for two transfers that start together.
    for rtt in [0.1, 0.0456] {
        let world = World {
            rtt,
            ..World::default()
        };
        let late = Transfer {
            begins: 10.0,
            ..Transfer::default()
        };
        let traces = run(&world, &[Transfer::default(), late], 120.0);
        let rates = [traces[0].rate(60.0, 120.0), traces[1].rate(60.0, 120.0)];
        let share = rates[1] / (rates[0] + rates[1]);
        assert!((0.3..=0.7).contains(&share), "{rtt} s: {share}");
        assert!(traces[1].streams() <= 32, "{}", traces[1].streams());
    }
}

#[test]
fn a_path_that_changes_is_filled_again() {
    let world = World {
        changes: vec![(15.0, 0.1e9), (30.0, 1e9)],
        ..World::default()
    };
    let trace = alone(&world, 60.0);
    assert!(trace.rate(20.0, 30.0) >= 0.97 * 0.1e9 * PAYLOAD);
    assert!(part(&trace, &world, 40.0, 60.0) >= 0.97);
    assert!(trace.streams() <= 32);
}

#[test]
fn an_interruption_does_not_mislead_the_controller() {
    let world = World {
        changes: vec![(15.0, 0.0), (20.0, 1e9)],
        ..World::default()
    };
    let trace = alone(&world, 50.0);
    assert!(part(&trace, &world, 30.0, 50.0) >= 0.97);
    assert_eq!(trace.streams(), 16);
}

#[test]
fn nice_yields_to_others_and_uses_the_remaining_capacity() {
    let nice = Transfer {
        begins: 5.0,
        settings: Settings {
            nice: true,
            ..Settings::default()
        },
        ..Transfer::default()
    };
    for others in [1, 8] {
        let world = World {
            others,
            ..World::default()
        };
        let trace = transfer(&world, nice.clone(), 60.0);
        let used = part(&trace, &world, 30.0, 60.0);
        assert!(used <= 0.1, "beside {others}: {used}");
        let usual = Transfer {
            begins: 5.0,
            ..Transfer::default()
        };
        let used = part(&transfer(&world, usual, 60.0), &world, 30.0, 60.0);
        assert!(used >= 0.4, "not nice, beside {others}: {used}");
    }
    let world = World::default();
    let used = part(&transfer(&world, nice, 60.0), &world, 15.0, 60.0);
    assert!(used >= 0.7, "alone: {used}");
}

#[test]
fn nice_soon_uses_freed_capacity() {
    for (rtt, others) in [(0.02, 1), (0.02, 8), (0.1, 1), (0.1, 8), (0.3, 4)] {
        for buffer in [0.3, 1.0] {
            let world = World {
                rtt,
                buffer,
                others,
                others_leave: 40.0,
                ..World::default()
            };
            let settings = Settings {
                nice: true,
                ..Settings::default()
            };
            let nice = Transfer {
                settings,
                ..Transfer::default()
            };
            let trace = transfer(&world, nice, 120.0);
            let full = (40..120).find(|second| {
                let from = f64::from(*second);
                part(&trace, &world, from, from + 1.0) >= 0.8
            });
            let what = format!("{rtt} s, {others} others, {buffer} products: {full:?}");
            // The limit grows once per six round trips, or 0.3 s.
            let soon = 40 + if rtt <= 0.1 { 15 } else { 40 };
            assert!(full.is_some_and(|full| full <= soon), "{what}");
        }
    }
}

#[test]
fn settings_fixed_by_the_user_are_kept() {
    let world = World {
        loss: 1e-4,
        ..World::default()
    };
    let settings = Settings {
        fixed_streams: Some(3),
        ..Settings::default()
    };
    let fixed = Transfer {
        settings,
        ..Transfer::default()
    };
    let trace = transfer(&world, fixed, 30.0);
    assert!(trace.rows.iter().all(|row| row.2 == 3));
    assert!(trace.decisions.is_empty());
}

#[test]
fn no_streams_are_added_for_little_remaining_data() {
    let world = World {
        window: 0.7e6,
        ..World::default()
    };
    // The remaining data take a second.
    let small = Transfer {
        bytes: Some(100_000_000),
        ..Transfer::default()
    };
    assert_eq!(transfer(&world, small, 10.0).stream_changes(0.0), 0);
}

#[test]
fn the_segments_of_a_slow_path_limit_its_streams() {
    for (rate, rtt, most) in [(3e5, 0.2, 1), (1e6, 0.1, 1), (1e6, 0.6, 2), (3e6, 0.3, 3)] {
        let world = World {
            rate,
            rtt,
            // The queue has 128 KiB, as in modems.
            buffer: 131_072.0 / (rate / 8.0 * rtt),
            ..World::default()
        };
        let trace = alone(&world, 60.0);
        let used = part(&trace, &world, 20.0, 60.0);
        let streams = trace.streams();
        assert!(used >= 0.95, "{rate} bit/s, {rtt} s: {used}");
        assert!(
            (1..=most).contains(&streams),
            "{rate} bit/s, {rtt} s: {streams}"
        );
        assert!(trace.stream_changes(20.0) <= 1, "{rate} bit/s, {rtt} s");
    }
}

#[test]
fn a_path_that_was_slow_gets_its_streams_back() {
    let world = World {
        rate: 1e9,
        rtt: 0.1,
        changes: vec![(0.0, 1e6), (30.0, 1e9)],
        ..World::default()
    };
    let trace = alone(&world, 90.0);
    let before = trace.rows.iter().find(|row| row.0 >= 29.0).map(|row| row.2);
    assert!(before.is_some_and(|streams| streams <= 2), "{before:?}");
    assert_eq!(trace.streams(), 16);
    let used = part(&trace, &world, 60.0, 90.0);
    assert!(used >= 0.95, "{used}");
}
