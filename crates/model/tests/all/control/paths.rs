//! Tests with streams on paths of different lengths.

use std::time::Duration;

use longhaul_model::control::{Bound, Controller, Sample, Settings, StreamSample};
use longhaul_units::Moment;

/// Returns a sample of two streams on each of two paths with 10 ms and 100 ms. The arguments are
/// the queue of each path and the rate of each stream in bytes per second.
fn sample(tenths: u64, queues: [Duration; 2], rate: u64) -> Sample {
    let least = [Duration::from_millis(10), Duration::from_millis(100)];
    let at = Duration::from_millis(100 * tenths);
    let stream = |stream: u32| {
        let path = (stream % 2) as usize;
        StreamSample {
            stream,
            path: path as u32,
            rtt: least[path] + queues[path],
            minimum_rtt: least[path],
            segment: 1448,
            acknowledged: rate * tenths / 10,
            busy: at,
            ..StreamSample::default()
        }
    };
    Sample {
        at: Moment(0) + at,
        streams: (0..4).map(stream).collect(),
        ..Sample::default()
    }
}

fn controller() -> Controller {
    Controller::new(Settings::default(), Duration::from_millis(10), 4, Moment(0))
}

fn run(controller: &mut Controller, queues: [Duration; 2]) {
    for tenths in 1..100 {
        controller.handle_sample(&sample(tenths, queues, 5_000_000));
        if controller.bound().is_some() {
            return;
        }
    }
}

#[test]
fn a_longer_path_is_not_a_queue() {
    let mut controller = controller();
    run(&mut controller, [Duration::ZERO; 2]);
    assert_eq!(controller.bound(), Some(Bound::Window));
    // Both paths must have shown their state.
    assert_eq!(controller.least_rtt(), Duration::from_millis(100));
    assert!(controller.decision().streams > 4);
}

#[test]
fn both_paths_are_full_if_both_have_a_queue() {
    let queue = Duration::from_millis(50);
    for (queues, bound) in [
        ([queue, queue], Bound::Path),
        ([queue, Duration::ZERO], Bound::Window),
        ([Duration::ZERO, queue], Bound::Window),
    ] {
        let mut controller = controller();
        // The least round-trip times were seen before there were queues.
        controller.handle_sample(&sample(0, [Duration::ZERO; 2], 0));
        run(&mut controller, queues);
        assert_eq!(controller.bound(), Some(bound), "{queues:?}");
    }
}

/// Losses from a full queue on one path are not random, even if the other path has no queue.
#[test]
fn high_loss_with_a_queue_on_one_path_is_not_random() {
    let queue = Duration::from_millis(50);
    for (queue, bound) in [(Duration::ZERO, Bound::Loss), (queue, Bound::Path)] {
        let mut controller = controller();
        // Queues are visible here: both paths had one.
        for tenths in 1..10 {
            let queues = [Duration::from_millis(20); 2].map(|queue| queue * (tenths as u32 % 9));
            controller.handle_sample(&sample(tenths, queues, 5_000_000));
        }
        for tenths in 10..100 {
            let mut sample = sample(tenths, [queue, Duration::ZERO], 5_000_000);
            for stream in &mut sample.streams {
                stream.retransmitted = 12 * (tenths - 10);
            }
            controller.handle_sample(&sample);
        }
        assert_eq!(controller.bound(), Some(bound), "{queue:?}");
    }
}

#[test]
fn paths_that_the_kernel_leaves_idle_are_ignored() {
    let mut controller = controller();
    for tenths in 1..60 {
        let mut sample = sample(
            tenths,
            [Duration::from_millis(50), Duration::ZERO],
            5_000_000,
        );
        // Each stream has both paths, and only the first one carries data.
        for stream in &mut sample.streams {
            stream.stream /= 2;
            if stream.path == 1 {
                (stream.acknowledged, stream.busy) = (0, Duration::ZERO);
            }
        }
        controller.handle_sample(&sample);
    }
    assert_eq!(controller.bound(), Some(Bound::Path));
    let busy = controller.measured().map(|measure| measure.busy);
    assert!(busy.is_some_and(|busy| busy > 0.99), "{busy:?}");
}
