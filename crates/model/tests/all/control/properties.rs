//! Properties that hold on any path.

use longhaul_model::control::{Controller, Reason};
use longhaul_model::control::{Sample, Settings, StreamSample};
use longhaul_model::response::Congestion;
use longhaul_units::Moment;
use proptest::prelude::*;
use std::time::Duration;

use super::path::{Transfer, World, run};

/// Returns the number of cases. `PROPTEST_CASES` can increase it.
fn cases(usual: u32) -> ProptestConfig {
    let default = ProptestConfig::default();
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => default,
        None => ProptestConfig {
            cases: usual,
            ..default
        },
    }
}

fn worlds() -> impl Strategy<Value = World> {
    let path = (
        any::<u64>(),
        prop::sample::select(vec![1e8, 1e9, 1e10]),
        0.001..0.4_f64,
        prop::sample::select(vec![0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2]),
        0.05..2.0_f64,
    );
    let hosts = (
        prop::sample::select(vec![0.3e6, 3e6, 64e6]),
        any::<bool>(),
        prop::sample::select(vec![2e7, f64::INFINITY]),
        prop::sample::select(vec![2e7, f64::INFINITY]),
        0..3_u32,
        prop::sample::select(vec![Congestion::Cubic, Congestion::Reno, Congestion::Bbr]),
    );
    (path, hosts).prop_map(|((seed, rate, rtt, loss, buffer), hosts)| {
        let (window, window_is_receivers, processor, disk, others, law) = hosts;
        World {
            seed,
            rate,
            rtt,
            loss,
            buffer,
            window,
            window_is_receivers,
            processor,
            disk,
            others,
            law,
            ..World::default()
        }
    })
}

/// Runs one transfer on a path for a minute. Checks that its number of streams stays within bounds
/// and becomes stable.
fn stays_and_settles(world: &World, most: u32) -> Result<(), TestCaseError> {
    let settings = Settings {
        maximum_streams: most,
        congestion: world.law.clone(),
        ..Settings::default()
    };
    let transfer = Transfer {
        settings,
        ..Transfer::default()
    };
    let trace = run(world, &[transfer], 60.0).remove(0);
    let mut last: Option<(f64, u32)> = None;
    for &(_, _, streams) in &trace.rows {
        prop_assert!((1..=most).contains(&streams));
    }
    for (at, decision) in &trace.decisions {
        prop_assert!(decision.streams <= most && !decision.reason.to_string().is_empty());
        // The unsent bytes in a stream's kernel buffer are limited on any path.
        let unsent = decision.unsent.0;
        prop_assert!((256 << 10..=4 << 20).contains(&unsent), "{unsent} unsent");
        if let Some((before, streams)) = last {
            // Changes must be at least as far apart as new streams need to grow, and at most by a
            // factor of two.
            let apart = (9.0 * world.rtt).clamp(0.3, 5.0);
            prop_assert!(at - before >= apart, "{before} {at}");
            prop_assert!(decision.streams <= streams.saturating_mul(2));
            prop_assert!(decision.streams >= streams / 2);
        }
        last = Some((*at, decision.streams));
    }
    // Without oscillation, there are at most a few changes in the second half minute.
    let changes = trace.stream_changes(30.0);
    prop_assert!(changes <= 8, "{changes} changes: {:?}", trace.decisions);
    Ok(())
}

/// Streams that the law of loss added filled the path, were removed, and were then added again at
/// once.
#[test]
fn removed_streams_are_not_added_again_at_once() {
    let world = World {
        seed: 4349552277186709843,
        rate: 1e8,
        rtt: 0.033332253737278675,
        loss: 1e-5,
        buffer: 0.0817756918559718,
        window: 3e5,
        processor: 2e7,
        disk: 2e7,
        others: 1,
        ..World::default()
    };
    stays_and_settles(&world, 30).unwrap();
}

proptest! {
    #![proptest_config(cases(48))]

    #[test]
    fn counts_stay_within_bounds_and_settle(world in worlds(), most in 1..300_u32) {
        stays_and_settles(&world, most)?;
    }

    #[test]
    fn any_sample_is_accepted(
        samples in prop::collection::vec(
            (0..5_u64, prop::collection::vec((0..4_u32, any::<[u32; 6]>()), 0..5)), 0..60),
        nice in any::<bool>(),
    ) {
        let settings = Settings { nice, ..Settings::default() };
        let mut controller =
            Controller::new(settings, Duration::from_secs(4000), 1000, Moment(0));
        let mut at = 0;
        for (seconds, streams) in samples {
            at += seconds * 1_000_000_000;
            let streams = streams.into_iter().map(|(stream, odd)| StreamSample {
                stream,
                path: odd[3] % 2,
                rtt: Duration::from_micros(odd[0].into()),
                minimum_rtt: Duration::from_micros(odd[1].into()),
                segment: odd[2] % 3,
                acknowledged: u64::from(odd[2]) << 20,
                retransmitted: odd[3].into(),
                busy: Duration::from_micros(odd[4].into()),
                window_limited: Duration::from_micros(odd[5].into()),
                ..StreamSample::default()
            });
            let sample = Sample { at: Moment(at), streams: streams.collect(), ..Sample::default() };
            if let Some(decision) = controller.handle_sample(&sample) {
                prop_assert!((1..=512).contains(&decision.streams));
                prop_assert!(decision.pace.is_none_or(|pace| pace.is_finite() && pace > 0.0));
                let start = matches!(decision.reason, Reason::Start { .. });
                prop_assert!(!start);
            }
        }
    }
}
