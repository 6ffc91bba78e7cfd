//! Simulates one stream by its rate: a window that grows and shrinks by the law of its congestion
//! control, once per step.
//!
//! Approximations: slow start doubles a window per round trip of acknowledged data, ends at
//! HyStart's delay threshold (an eighth of the round trip, from 4 to 16 ms), and has one loss event
//! for all lost segments of a round trip. CUBIC follows RFC 9438's curve and its Reno-friendly
//! region, with fast convergence. A BBR stream keeps the greatest delivery rate of ten round trips.
//! It starts with a gain of 2.89 until it has not grown by a quarter in three round trips. Then it
//! probes with 1.25 in one of eight round trips and drains in the next, with two bandwidth-delay
//! products of the least round trip of ten seconds in flight. Timeouts occur only after a silence.

use longhaul_model::response::{CUBIC_BETA, CUBIC_C, Congestion};

use super::random::Random;

/// Initial window of Linux in segments.
const INITIAL_WINDOW: f64 = 10.0;

#[derive(Clone, Debug)]
pub struct Stream {
    pub number: u32,
    pub owner: usize,
    pub law: Congestion,
    /// Time when it can send its first data.
    pub opens: f64,
    window: f64,
    threshold: f64,
    /// CUBIC: the window before the last loss, and the time of that loss.
    before_loss: f64,
    epoch: f64,
    /// Time before which the window is not reduced again.
    recovered: f64,
    model: RateModel,
    /// Number of segments.
    pub acknowledged: f64,
    pub retransmitted: f64,
    pub busy: f64,
    pub window_limited: f64,
    pub buffer_limited: f64,
    pub rtt: f64,
    pub least_rtt: f64,
    /// Time since when there were no acknowledgements.
    pub heard: f64,
    /// Maximum rate in bytes per second.
    pub pace: Option<f64>,
}

/// The path model of BBR.
#[derive(Clone, Debug)]
struct RateModel {
    /// Segments per second in each of the last ten round trips.
    rates: [f64; 10],
    round: usize,
    round_ends: f64,
    delivered: f64,
    round_began: f64,
    /// Least round trip of ten seconds, and the time when it was measured.
    least: (f64, f64),
    /// For the start: the number of rounds without growth, and the best rate so far.
    flat: u32,
    best: f64,
}

impl Stream {
    pub fn new(number: u32, owner: usize, law: Congestion, opens: f64, rtt: f64) -> Stream {
        Stream {
            number,
            owner,
            law,
            opens,
            window: INITIAL_WINDOW,
            threshold: f64::INFINITY,
            before_loss: 0.0,
            epoch: opens,
            recovered: opens,
            model: RateModel {
                rates: [0.0; 10],
                round: 0,
                round_ends: opens + rtt,
                delivered: 0.0,
                round_began: opens,
                least: (f64::INFINITY, opens),
                flat: 0,
                best: 0.0,
            },
            acknowledged: 0.0,
            retransmitted: 0.0,
            busy: 0.0,
            window_limited: 0.0,
            buffer_limited: 0.0,
            rtt,
            least_rtt: f64::INFINITY,
            heard: opens,
            pace: None,
        }
    }

    pub fn set_law(&mut self, law: &Congestion, now: f64) {
        if self.law != *law {
            self.law = law.clone();
            self.threshold = self.window;
            self.before_loss = self.window;
            self.epoch = now;
            self.model.flat = 0;
            self.model.best = 0.0;
        }
    }

    /// Returns the number of segments that the stream would have in flight.
    pub fn window(&self) -> f64 {
        match self.law {
            Congestion::Bbr if self.model.best > 0.0 => {
                let product = self.model.estimate() * self.model.least.0.min(self.rtt);
                (2.0 * product)
                    .max(self.window.min(4.0 * INITIAL_WINDOW))
                    .max(4.0)
            }
            _ => self.window,
        }
    }

    /// Returns the segments per second that the stream would send at a round-trip time of `rtt`.
    pub fn demand(&self, rtt: f64, now: f64) -> f64 {
        let by_window = self.window() / rtt;
        match self.law {
            Congestion::Bbr if self.model.best > 0.0 => {
                by_window.min(self.model.estimate() * self.model.gain(self.number, now))
            }
            _ => by_window,
        }
    }

    /// Advances by a step in which `segments` were acknowledged. `limited` is true if something
    /// other than this window limited the stream.
    pub fn advance(&mut self, segments: f64, rtt: f64, now: f64, limited: bool) {
        self.acknowledged += segments;
        self.rtt = rtt;
        // The least round-trip time is the stream's own: a stream that starts late never sees the
        // path without a queue.
        self.least_rtt = self.least_rtt.min(rtt);
        let least = self.least_rtt;
        if segments > 0.0 {
            self.heard = now;
        }
        self.model.add(segments, rtt, now, limited);
        if limited || self.law == Congestion::Bbr {
            return;
        }
        if self.window < self.threshold {
            self.window += segments;
            let tolerated = (least / 8.0).clamp(0.004, 0.016);
            if rtt > least + tolerated && self.window > 16.0 {
                self.threshold = self.window;
                self.before_loss = self.window;
                self.epoch = now;
            }
        } else if self.law == Congestion::Cubic {
            let age = now - self.epoch;
            let start = self.before_loss * CUBIC_BETA;
            let start = start.min(self.before_loss);
            let knee = ((self.before_loss - start).max(0.0) / CUBIC_C).cbrt();
            let curve = CUBIC_C * (age - knee).powi(3) + self.before_loss;
            let reno = start + 3.0 * (1.0 - CUBIC_BETA) / (1.0 + CUBIC_BETA) * age / rtt;
            // Grows by at most a half per round trip (RFC 9438, section 4.4).
            let most = self.window * (1.0 + 0.5 * segments / self.window.max(1.0));
            self.window = curve.max(reno).clamp(self.window, most.max(self.window));
        } else {
            self.window += segments / self.window;
        }
    }

    /// Handles the loss of segments.
    pub fn lose(&mut self, segments: f64, rtt: f64, now: f64) {
        self.retransmitted += segments;
        if now < self.recovered || self.law == Congestion::Bbr {
            return;
        }
        self.recovered = now + rtt;
        self.epoch = now;
        let kept = match self.law {
            Congestion::Cubic => CUBIC_BETA,
            _ => 0.5,
        };
        // Fast convergence (RFC 9438, section 4.7).
        self.before_loss = if self.window < self.before_loss {
            self.window * (1.0 + CUBIC_BETA) / 2.0
        } else {
            self.window
        };
        self.window = (self.window * kept).max(2.0);
        self.threshold = self.window;
    }

    /// Handles the end of a silence: starts again with one segment.
    pub fn time_out(&mut self) {
        self.threshold = (self.window / 2.0).max(2.0);
        self.window = 1.0;
    }

    pub fn draws_loss(random: &mut Random, segments: f64, loss: f64) -> bool {
        loss > 0.0 && segments > 0.0 && random.unit() < 1.0 - (1.0 - loss).powf(segments)
    }
}

impl RateModel {
    fn estimate(&self) -> f64 {
        self.rates.iter().copied().fold(0.0, f64::max)
    }

    fn gain(&self, number: u32, _now: f64) -> f64 {
        if self.flat < 3 {
            return 2.89;
        }
        match (self.round + number as usize) % 8 {
            0 => 1.25,
            1 => 0.75,
            _ => 1.0,
        }
    }

    fn add(&mut self, segments: f64, rtt: f64, now: f64, limited: bool) {
        self.delivered += segments;
        if rtt <= self.least.0 || now - self.least.1 > 10.0 {
            self.least = (rtt, now);
        }
        if now < self.round_ends {
            return;
        }
        let span = now - self.round_began;
        if span > 0.0 && self.delivered > 0.0 {
            let rate = self.delivered / span;
            if !limited || rate > self.estimate() {
                self.rates[self.round % 10] = rate;
                self.round += 1;
            }
            if rate > self.best * 1.25 {
                self.best = rate;
                self.flat = 0;
            } else {
                self.flat += 1;
            }
        }
        self.delivered = 0.0;
        self.round_began = now;
        self.round_ends = now + rtt;
    }
}
