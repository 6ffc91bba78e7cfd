//! Tests of `--nice` with a change of the route.

use std::time::Duration;

use longhaul_model::control::{Controller, Sample, Settings, StreamSample};
use longhaul_units::Moment;

/// Rate of the path in bytes per second.
const CAPACITY: f64 = 50e6;

/// Time for which the kernel keeps the least round-trip time: five minutes
/// (`net.ipv4.tcp_min_rtt_wlen`).
const KERNEL_SECONDS: u64 = 300;

/// Returns the mean rate of one stream in the minute before `ends`, as a share of the path's rate.
/// The round-trip time is 50 ms, and 80 ms from 60 s on. If the stream exceeds the path's rate,
/// there is a queue.
fn used_before(ends: u64) -> f64 {
    let settings = Settings {
        nice: true,
        ..Settings::default()
    };
    let rtt = |tenths: u64| Duration::from_millis(if tenths < 600 { 50 } else { 80 });
    let mut controller = Controller::new(settings, rtt(0), 1, Moment(0));
    let (mut acknowledged, mut used) = (0.0, 0.0);
    for tenths in 0..ends * 10 {
        let wanted = controller.decision().pace.unwrap_or(f64::INFINITY);
        let rate = wanted.min(CAPACITY);
        acknowledged += rate / 10.0;
        if tenths >= (ends - 60) * 10 {
            used += rate / 10.0 / 60.0 / CAPACITY;
        }
        let queue = Duration::from_millis(if wanted > CAPACITY { 40 } else { 0 });
        let stream = StreamSample {
            rtt: rtt(tenths) + queue,
            minimum_rtt: rtt(tenths.saturating_sub(KERNEL_SECONDS * 10)),
            segment: 1448,
            congestion_window: 10_000_000,
            acknowledged: acknowledged as u64,
            busy: Duration::from_millis(100 * (tenths + 1)),
            ..StreamSample::default()
        };
        let sample = Sample {
            at: Moment((tenths + 1) * 100_000_000),
            streams: vec![stream],
            ..Sample::default()
        };
        controller.handle_sample(&sample);
    }
    used
}

#[test]
fn nice_recovers_after_a_change_to_a_longer_route() {
    assert!(used_before(60) >= 0.7);
    // The longer route looks like a queue caused by others.
    assert!(used_before(300) <= 0.1);
    assert!(used_before(1800) >= 0.7);
}
