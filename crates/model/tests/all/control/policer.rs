//! Tests with losses that the number of streams causes.

use std::time::Duration;

use longhaul_model::control::{Controller, Sample, Settings, StreamSample};
use longhaul_units::Moment;

const RTT: Duration = Duration::from_millis(20);

/// Returns the maximum number of streams within five minutes. In each second a share of the data is
/// lost, which `loss` returns for the number of streams. At first the path carried a fifth more,
/// with a queue.
fn most_streams(loss: impl Fn(u32) -> f64) -> u32 {
    let mut controller = Controller::new(Settings::default(), RTT, 16, Moment(0));
    let (mut acknowledged, mut retransmitted, mut most) = (0.0, 0.0, 16);
    for tenths in 0..3000_u64 {
        let streams = controller.decision().streams;
        most = most.max(streams);
        let early = tenths < 20;
        let segments = if early { 9000.0 } else { 7500.0 } / f64::from(streams);
        acknowledged += segments * 1448.0;
        retransmitted += if early { 0.0 } else { segments * loss(streams) };
        let stream = |number| StreamSample {
            stream: number,
            rtt: if early { RTT * 2 } else { RTT },
            minimum_rtt: RTT,
            segment: 1448,
            congestion_window: 150_000,
            acknowledged: acknowledged as u64,
            retransmitted: retransmitted as u64,
            busy: Duration::from_millis(100 * (tenths + 1)),
            ..StreamSample::default()
        };
        controller.handle_sample(&Sample {
            at: Moment((tenths + 1) * 100_000_000),
            streams: (0..streams).map(stream).collect(),
            ..Sample::default()
        });
    }
    most
}

#[test]
fn streams_are_not_added_for_losses_that_they_cause() {
    let policed = most_streams(|streams| 0.012 * f64::from(streams) / 16.0);
    assert!(policed <= 64, "{policed}");
    let by_chance = most_streams(|_| 0.03);
    assert!(by_chance >= 128, "{by_chance}");
}
