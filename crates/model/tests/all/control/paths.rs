//! Streams on paths of different length.

use std::time::Duration;

use longhaul_model::control::{Bound, Controller, Sample, Settings, StreamSample};
use longhaul_units::Moment;

/// Two streams on each of two paths, of 10 and of 100 ms; each path's queue, and
/// what each stream carries, in bytes per second.
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
fn a_longer_path_is_no_queue() {
    let mut controller = controller();
    run(&mut controller, [Duration::ZERO; 2]);
    assert_eq!(controller.bound(), Some(Bound::Window));
    // Both paths have to show what they do.
    assert_eq!(controller.least_rtt(), Duration::from_millis(100));
    assert!(controller.decision().streams > 4);
}

#[test]
fn both_paths_are_full_where_both_have_a_queue() {
    let queue = Duration::from_millis(50);
    for (queues, bound) in [
        ([queue, queue], Bound::Path),
        ([queue, Duration::ZERO], Bound::Window),
        ([Duration::ZERO, queue], Bound::Window),
    ] {
        let mut controller = controller();
        // Its least round trips were seen before queues stood.
        controller.handle_sample(&sample(0, [Duration::ZERO; 2], 0));
        run(&mut controller, queues);
        assert_eq!(controller.bound(), Some(bound), "{queues:?}");
    }
}

/// What a queue on one path overflows by is no chance, though the other has none.
#[test]
fn much_loss_beside_a_queue_on_one_path_is_no_chance() {
    let queue = Duration::from_millis(50);
    for (queue, bound) in [(Duration::ZERO, Bound::Loss), (queue, Bound::Path)] {
        let mut controller = controller();
        // Queues are seen here: one stood on both.
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
fn a_path_that_the_kernel_leaves_idle_is_not_counted() {
    let mut controller = controller();
    for tenths in 1..60 {
        let mut sample = sample(
            tenths,
            [Duration::from_millis(50), Duration::ZERO],
            5_000_000,
        );
        // Each stream has both paths, and only the first carries anything.
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
