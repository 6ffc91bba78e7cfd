//! Tests of trials of another congestion control, whose start must not be mistaken for its rate.

use std::time::Duration;

use longhaul_model::control::{Controller, Reason, Sample, Settings, StreamSample};
use longhaul_model::response::Congestion;
use longhaul_units::Moment;

const RTT: Duration = Duration::from_millis(100);
const SEGMENT: u32 = 1448;

/// Returns the decisions and their times in tenths of a second. The path carried 110 MB/s with a
/// queue, then has losses and carries 92. After the switch it carries `after`, in MB/s by tenths of
/// a second since the switch.
fn decisions(after: impl Fn(u64) -> f64) -> Vec<(u64, Reason)> {
    let settings = Settings {
        alternative: Some(Congestion::Bbr),
        ..Settings::default()
    };
    let mut controller = Controller::new(settings, RTT, 16, Moment(0));
    let mut decided: Vec<(u64, Reason)> = Vec::new();
    let mut switched = None;
    let mut streams = vec![(0.0, 0u64); 16];
    let mut congestion = Congestion::Cubic;
    for tenths in 0..200 {
        let rate = match switched {
            Some(since) => after(tenths - since),
            None if tenths < 40 => 110.0,
            None => 92.0,
        };
        let lossy = tenths >= 40;
        for stream in &mut streams {
            stream.0 += rate * 1e5 / 16.0;
            stream.1 += u64::from(lossy);
        }
        let stream = |(number, (acknowledged, retransmitted)): (usize, &(f64, u64))| StreamSample {
            stream: number as u32,
            rtt: if lossy { RTT } else { RTT * 3 / 2 },
            minimum_rtt: RTT,
            segment: SEGMENT,
            congestion_window: 700_000,
            acknowledged: *acknowledged as u64,
            retransmitted: *retransmitted,
            busy: Duration::from_millis(100 * (tenths + 1)),
            ..StreamSample::default()
        };
        let sample = Sample {
            at: Moment((tenths + 1) * 100_000_000),
            streams: streams.iter().enumerate().map(stream).collect(),
            congestion: Some(congestion.clone()),
            ..Sample::default()
        };
        if let Some(decision) = controller.handle_sample(&sample) {
            if matches!(decision.reason, Reason::Switch { .. }) {
                switched = Some(tenths);
            }
            congestion = decision.congestion.clone().unwrap_or(congestion);
            decided.push((tenths, decision.reason));
        }
    }
    decided
}

fn back(decided: &[(u64, Reason)]) -> Option<u64> {
    let at = |wanted: fn(&Reason) -> bool| {
        let found = decided.iter().find(|(_, reason)| wanted(reason));
        found.map(|(tenths, _)| *tenths)
    };
    let switch = at(|reason| matches!(reason, Reason::Switch { .. }));
    assert!(switch.is_some(), "{decided:?}");
    let back = at(|reason| matches!(reason, Reason::SwitchBack { .. }));
    Some(back? - switch?)
}

#[test]
fn a_start_that_overruns_the_queue_does_not_count() {
    let decided = decisions(|tenths| if tenths < 20 { 40.0 } else { 98.0 });
    assert_eq!(back(&decided), None, "{decided:?}");
}

#[test]
fn a_slower_congestion_control_is_abandoned_within_five_seconds() {
    let decided = decisions(|_| 40.0);
    assert!(
        back(&decided).is_some_and(|tenths| tenths <= 50),
        "{decided:?}"
    );
}

/// Returns the time of the switch to BBR in tenths of a second. 16 streams lose a tenth of their
/// data in the second after `lost`. Their round-trip times are long in the tenths of a second in
/// `queued`.
fn switched_after(lost: u64, queued: std::ops::Range<u64>) -> Option<u64> {
    let settings = Settings {
        alternative: Some(Congestion::Bbr),
        ..Settings::default()
    };
    let mut controller = Controller::new(settings, RTT, 16, Moment(0));
    let mut retransmitted = 0;
    (0..60).find(|tenths| {
        retransmitted += if (lost..lost + 10).contains(tenths) {
            20
        } else {
            0
        };
        let long = queued.contains(tenths);
        let stream = |number: u32| StreamSample {
            stream: number,
            rtt: if long { RTT * 3 / 2 } else { RTT },
            minimum_rtt: RTT,
            segment: SEGMENT,
            congestion_window: 200_000,
            acknowledged: (tenths + 1) * 250_000,
            retransmitted,
            busy: Duration::from_millis(100 * (tenths + 1)),
            ..StreamSample::default()
        };
        let sample = Sample {
            at: Moment((tenths + 1) * 100_000_000),
            streams: (0..16).map(stream).collect(),
            congestion: Some(Congestion::Cubic),
            ..Sample::default()
        };
        let decision = controller.handle_sample(&sample);
        decision.is_some_and(|decision| matches!(decision.reason, Reason::Switch { .. }))
    })
}

#[test]
fn overflow_of_an_invisible_queue_causes_a_switch_at_once() {
    let at = switched_after(6, 0..0);
    assert!(at.is_some_and(|tenths| tenths <= 30), "{at:?}");
    // A short pause of a host is not a queue.
    let at = switched_after(6, 3..4);
    assert!(at.is_some_and(|tenths| tenths <= 30), "{at:?}");
}

#[test]
fn overflow_of_a_visible_queue_is_not_random_loss() {
    assert_eq!(switched_after(6, 2..8), None);
}

/// Returns the time of the switch to BBR in tenths of a second. 16 streams fill a path of 250 ms
/// and 20 Mbit/s with a queue until `full`. Then they carry half of it, with windows of `window`
/// segments, losses of `lost` of 80 segments, and round-trip times 15 ms above the least.
fn switched_on_a_thin_path(full: u64, window: u64, lost: u64) -> Option<u64> {
    let rtt = RTT * 5 / 2;
    let settings = Settings {
        alternative: Some(Congestion::Bbr),
        ..Settings::default()
    };
    let mut controller = Controller::new(settings, rtt, 16, Moment(0));
    let mut acknowledged = 0;
    (0..150).find(|tenths| {
        let full = *tenths < full;
        acknowledged += if full { 14_700 } else { 7_400 };
        let stream = |number: u32| StreamSample {
            stream: number,
            rtt: rtt + if full { rtt / 2 } else { RTT * 15 / 100 },
            minimum_rtt: rtt,
            segment: SEGMENT,
            congestion_window: window * u64::from(SEGMENT),
            acknowledged,
            // The streams lose segments one after the other.
            retransmitted: (tenths * lost + 16 - u64::from(number)) / 16,
            busy: Duration::from_millis(100 * (tenths + 1)),
            ..StreamSample::default()
        };
        let sample = Sample {
            at: Moment((tenths + 1) * 100_000_000),
            streams: (0..16).map(stream).collect(),
            congestion: Some(Congestion::Cubic),
            ..Sample::default()
        };
        let decision = controller.handle_sample(&sample);
        decision.is_some_and(|decision| matches!(decision.reason, Reason::Switch { .. }))
    })
}

#[test]
fn bursts_of_all_streams_are_not_a_queue_on_a_slow_path() {
    let at = switched_on_a_thin_path(50, 13, 1);
    assert!(
        at.is_some_and(|tenths| (50..100).contains(&tenths)),
        "{at:?}"
    );
    // With larger windows, the streams would have sent as much within a millisecond.
    assert_eq!(switched_on_a_thin_path(50, 1300, 1), None);
}

#[test]
fn high_loss_without_a_queue_is_random_if_queues_are_visible() {
    // There were no measurements while the path was full.
    for lost in [1, 3, 8] {
        let at = switched_on_a_thin_path(12, 13, lost);
        assert!(at.is_some_and(|tenths| tenths < 100), "{lost}: {at:?}");
    }
}
