//! Random schedules: lost streams, reordering between streams, duplicate, late and corrupt blocks,
//! changing sources, full disks, kills.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::scenario::Scenario;
use super::world::World;

/// Counts of the events that the schedules must cover.
#[derive(Debug, Default)]
struct Met {
    restarts: u64,
    skipped: u64,
    failed: u64,
    corrupt: u64,
    duplicate: u64,
    streams_lost: u64,
}

fn run(seed: u64, met: &mut Met) {
    let mut world = World::new(Scenario::random(seed));
    world.run();
    world.check();
    let totals = world.receiving.receiver.totals();
    met.restarts += u64::from(world.checks.restarts);
    met.skipped += totals.skipped;
    met.failed += totals.failed;
    met.corrupt += totals.corrupt_blocks;
    met.duplicate += totals.duplicate_blocks;
    met.streams_lost += world.conns.iter().filter(|conn| conn.dead).count() as u64;
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

/// Runs the schedules of one of four tests. The split uses two cores.
fn run_quarter(quarter: u64) {
    if let Some(seed) = number("LONGHAUL_SEED") {
        if seed % 4 == quarter {
            run(seed, &mut Met::default());
        }
        return;
    }
    let schedules = number("LONGHAUL_SCHEDULES").unwrap_or(2_000);
    let mut met = Met::default();
    for seed in (quarter..schedules).step_by(4) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed, &mut met))) {
            eprintln!("schedule failed: LONGHAUL_SEED={seed}");
            resume_unwind(panic);
        }
    }
    println!("{met:?}");
    let least = [
        met.restarts,
        met.skipped,
        met.failed,
        met.corrupt,
        met.duplicate,
    ];
    let rare = schedules / 4 / 20;
    assert!(
        least
            .into_iter()
            .chain([met.streams_lost])
            .all(|n| n >= rare),
        "{met:?}"
    );
}

// Promise 14.
#[test]
fn random_schedules_first_quarter() {
    run_quarter(0);
}

#[test]
fn random_schedules_second_quarter() {
    run_quarter(1);
}

#[test]
fn random_schedules_third_quarter() {
    run_quarter(2);
}

#[test]
fn random_schedules_fourth_quarter() {
    run_quarter(3);
}

/// Seeds of rare failures, which a normal number of schedules would not find.
#[test]
fn schedules_that_once_failed() {
    // A file became small. The pack with its new state was corrupt, and a late piece of the old
    // state began the file again while its checkpoint was under way.
    run(79_377, &mut Met::default());
}
