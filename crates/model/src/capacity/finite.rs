//! A finite transfer on a path that loses segments: how long a stream takes for its segments.
//!
//! The laws of loss say what window a stream has in the long run. A stream begins elsewhere: slow
//! start widens its window until the first loss, and each loss takes only a part of it away. So a
//! transfer of some hundred megabytes is faster than its law, by up to four times in the lab.

use crate::response::{CUBIC_BETA, CUBIC_C, Congestion};

/// Round trips that are followed; after them a stream has what the law says.
const MOST_ROUND_TRIPS: u32 = 20_000;

/// Windows never get smaller than this, in segments.
const LEAST_WINDOW: f64 = 2.0;

/// What Reno keeps of its window at a loss (RFC 5681, equation 4).
const RENO_BETA: f64 = 0.5;

/// One stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stream {
    /// The round trip in seconds, greater than zero.
    pub rtt: f64,
    /// The share of segments that is lost at random, greater than zero.
    pub loss: f64,
    /// Segments of its first window.
    pub first_window: f64,
    /// Segments in flight at most, by kernels and by its part of the path.
    pub most: f64,
    /// Segments per second in the long run, by the law of loss.
    pub law: f64,
    /// Whether the window grows by RFC 9438, else by RFC 5681.
    pub is_cubic: bool,
}

/// Whether the windows of this congestion control are known round trip by round trip.
pub(super) fn is_known(congestion: &Congestion) -> bool {
    matches!(congestion, Congestion::Cubic | Congestion::Reno)
}

/// Seconds that a stream takes for a number of segments. A loss comes every 1/p segments, as in the
/// derivation of the laws (RFC 9438, section 5).
pub(super) fn seconds_for(stream: &Stream, segments: f64) -> f64 {
    let beta = if stream.is_cubic {
        CUBIC_BETA
    } else {
        RENO_BETA
    };
    // What Reno adds each round trip at this factor: RFC 9438, section 4.3.
    let added = 3.0 * (1.0 - beta) / (1.0 + beta);
    let (mut left, mut spent) = (segments, 0.0);
    let mut until_loss = 1.0 / stream.loss;
    let mut window = stream.first_window.max(LEAST_WINDOW);
    // After a loss: the window before it, and seconds since then.
    let mut last: Option<(f64, f64)> = None;
    let mut as_reno = window;
    for _ in 0..MOST_ROUND_TRIPS {
        window = window.min(stream.most).max(LEAST_WINDOW);
        let sent = window.min(left);
        spent += stream.rtt * sent / window;
        left -= sent;
        if left <= 0.0 {
            return spent;
        }
        until_loss -= sent;
        if until_loss <= 0.0 {
            until_loss += 1.0 / stream.loss;
            // Fast convergence: RFC 9438, section 4.7.
            let before = match last {
                Some((before, _)) if window < before => window * f64::midpoint(1.0, beta),
                _ => window,
            };
            last = Some((before, 0.0));
            window *= beta;
            as_reno = window;
            continue;
        }
        window = match &mut last {
            // Slow start.
            None => window * 2.0,
            Some((before, since)) => {
                *since += stream.rtt;
                as_reno += added;
                let cubic = cubic_window(*before, beta, *since);
                if stream.is_cubic {
                    cubic.min(1.5 * window).max(as_reno)
                } else {
                    as_reno
                }
            }
        };
    }
    spent + left / stream.law
}

/// RFC 9438, equation 1: the window some seconds after a loss from `before` segments.
fn cubic_window(before: f64, beta: f64, since: f64) -> f64 {
    let plateau = (before * (1.0 - beta) / CUBIC_C).cbrt();
    CUBIC_C * (since - plateau).powi(3) + before
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream of CUBIC at 120 ms and a loss of 1e-4, alone with a quarter of 1 Gbit/s.
    fn stream() -> Stream {
        Stream {
            rtt: 0.12,
            loss: 1e-4,
            first_window: 10.0,
            most: 117.7e6 / 4.0 * 0.12 / 1448.0,
            law: 215.0 / 0.12,
            is_cubic: true,
        }
    }

    #[test]
    fn a_short_transfer_is_faster_than_the_law_and_a_long_one_as_fast() {
        // 118 MB of a stream: measured were 6.5 to 10 MB/s of each of four such streams, where the
        // law has 2.6 (bench/runs, model-check-paths).
        let segments = 118e6 / 1448.0;
        let rate = 118.0 / seconds_for(&stream(), segments);
        assert!((6.5..10.0).contains(&rate), "{rate}");
        // 100 times as much: what the law says, within what its mean leaves open.
        let rate = 100.0 * segments / seconds_for(&stream(), 100.0 * segments);
        let of_law = rate / stream().law;
        assert!((0.8..1.3).contains(&of_law), "{of_law}");
    }

    #[test]
    fn more_loss_is_slower_and_a_narrow_path_carries_what_it_can() {
        let mut before = 0.0;
        for loss in [1e-5, 1e-4, 1e-3, 1e-2] {
            let it = Stream { loss, ..stream() };
            let seconds = seconds_for(&it, 50_000.0);
            assert!(seconds > before, "{loss}: {seconds}");
            before = seconds;
        }
        let narrow = Stream {
            most: 20.0,
            ..stream()
        };
        let rate = 50_000.0 / seconds_for(&narrow, 50_000.0);
        assert!((0.9..=1.0).contains(&(rate * 0.12 / 20.0)), "{rate}");
    }

    #[test]
    fn reno_halves_and_grows_by_one() {
        let reno = Stream {
            is_cubic: false,
            law: (1.5e4_f64).sqrt() / 0.12,
            ..stream()
        };
        // Mathis: √(1.5 / p) segments, about 122.
        let segments = 5e6;
        let window = segments / seconds_for(&reno, segments) * 0.12;
        assert!((110.0..135.0).contains(&window), "{window}");
    }
}
