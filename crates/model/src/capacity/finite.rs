//! Duration of a finite transfer on a path with random loss.
//!
//! The laws of loss give the mean window in the long run. But slow start opens the window until the
//! first loss, and each loss reduces it only partly. So a transfer of a few hundred megabytes is
//! faster than the law, by a factor of up to four in the lab.

use crate::response::{CUBIC_BETA, CUBIC_C, Congestion};

/// Maximum number of round trips that are simulated. After them, a stream has the rate of the law.
const MOST_ROUND_TRIPS: u32 = 20_000;

/// Minimum window in segments.
const LEAST_WINDOW: f64 = 2.0;

/// Factor by which Reno reduces its window after a loss (RFC 5681, equation 4).
const RENO_BETA: f64 = 0.5;

/// The parameters of one stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stream {
    /// Round-trip time in seconds, greater than zero.
    pub rtt: f64,
    /// Share of segments lost at random, greater than zero.
    pub loss: f64,
    /// Size of the first window in segments.
    pub first_window: f64,
    /// Maximum number of segments in flight, by the kernel's limit and the stream's share of the
    /// path.
    pub most: f64,
    /// Rate in segments per second in the long run, by the law of loss.
    pub law: f64,
    /// True if the window grows according to RFC 9438, false for RFC 5681.
    pub is_cubic: bool,
}

/// True if the window of this congestion control can be simulated.
pub(super) fn is_known(congestion: &Congestion) -> bool {
    matches!(congestion, Congestion::Cubic | Congestion::Reno)
}

/// Returns the time in seconds that a stream needs for a number of segments. A loss occurs every
/// 1/p segments, as in the derivation of the laws (RFC 9438, section 5).
pub(super) fn seconds_for(stream: &Stream, segments: f64) -> f64 {
    let beta = if stream.is_cubic {
        CUBIC_BETA
    } else {
        RENO_BETA
    };
    // Increase of the window per round trip that equals Reno's rate with this factor: RFC 9438,
    // section 4.3.
    let added = 3.0 * (1.0 - beta) / (1.0 + beta);
    let (mut left, mut spent) = (segments, 0.0);
    let mut until_loss = 1.0 / stream.loss;
    let mut window = stream.first_window.max(LEAST_WINDOW);
    // Window before the last loss in segments, and seconds since the loss.
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
            // Fast convergence (RFC 9438, section 4.7).
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

/// Returns the window a time `since` in seconds after a loss from a window of `before` segments:
/// RFC 9438, equation 1.
fn cubic_window(before: f64, beta: f64, since: f64) -> f64 {
    let plateau = (before * (1.0 - beta) / CUBIC_C).cbrt();
    CUBIC_C * (since - plateau).powi(3) + before
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a CUBIC stream at 120 ms and a loss of 1e-4, with a quarter of 1 Gbit/s.
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
    fn a_short_transfer_is_faster_than_the_law_and_a_long_one_equally_fast() {
        // Each stream moves 118 MB. In measurements, each of four such streams reached 6.5 to 10
        // MB/s, and the law gives 2.6 (bench/runs, model-check-paths).
        let segments = 118e6 / 1448.0;
        let rate = 118.0 / seconds_for(&stream(), segments);
        assert!((6.5..10.0).contains(&rate), "{rate}");
        // For 100 times as many segments, the rate must be that of the law, within the law's
        // approximation.
        let rate = 100.0 * segments / seconds_for(&stream(), 100.0 * segments);
        let of_law = rate / stream().law;
        assert!((0.8..1.3).contains(&of_law), "{of_law}");
    }

    #[test]
    fn more_loss_is_slower_and_the_path_limits_the_rate() {
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
        // Mathis: the mean window is √(1.5 / p) segments, about 122.
        let segments = 5e6;
        let window = segments / seconds_for(&reno, segments) * 0.12;
        assert!((110.0..135.0).contains(&window), "{window}");
    }
}
