//! `--nice` where the way of the packets changes.

use std::time::Duration;

use longhaul_model::control::{Controller, Sample, Settings, StreamSample};
use longhaul_units::Moment;

/// Bytes per second that the path carries.
const CAPACITY: f64 = 50e6;

/// The kernel remembers the least round trip for five minutes (`net.ipv4.tcp_min_rtt_wlen`).
const KERNEL_SECONDS: u64 = 300;

/// The rate of the minute before `ends`, as a part of what the path carries, for one stream whose
/// round trip is of 50 ms and from 60 s on of 80 ms. Beyond the path's rate a queue stands.
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
fn who_is_nice_comes_back_after_the_way_has_become_longer() {
    assert!(used_before(60) >= 0.7);
    // The longer way looks like a queue that others keep.
    assert!(used_before(300) <= 0.1);
    assert!(used_before(1800) >= 0.7);
}
