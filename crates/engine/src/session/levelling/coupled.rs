//! Couples streams whose congestion control measures the path's rate.
//!
//! Each BBR stream uses the highest rate of its last ten round trips. Several streams on one path
//! have their highest rates at different times. Their sum exceeds the capacity and fills the queue
//! until their windows of two bandwidth-delay products limit them; if the queue is shorter than one
//! product, a tenth of the data overflows. Fast streams stay fast.
//!
//! The total rate is known better than the rate of one stream: [`Coupled::part`] returns the
//! fraction of it that all may send. Without a queue the fraction exceeds 1, so that a higher
//! capacity is found, and rises at once if there is one. It falls as a queue grows and, if the
//! queue is too short to be seen, as losses grow.
//!
//! Random losses are no sign of a queue. If many segments are lost, the streams sometimes send less
//! than the capacity: losses that remain are random and are compensated, and only losses beyond
//! them indicate an overflow.
//!
//! If a queue stays although less than the capacity is sent, the assumed capacity is too high. If
//! the queue stays even after a correction, other traffic causes it. Then there is no limit for a
//! while, and the congestion controls divide the path.

use std::time::Duration;

use longhaul_proto::session::StreamId;
use longhaul_units::Moment;

/// Minimum and maximum excess over the carried rate while no queue stands. The maximum applies at
/// the start, when the capacity is unknown, and when the path carries more than before.
const EXCESS: (f64, f64) = (0.05, 1.0);

/// If streams send at their limit, without loss or queue, but the path carries no more than before,
/// the host was busy in between. The excess then grows in steps of the first value, up to the
/// second, which is BBR's own probing gain.
const HELD: (f64, f64) = (0.05, 0.25);

/// Factor by which the rate exceeds the rate before to count as growth, and factor that makes a
/// restart worthwhile.
const CARRIED_MORE: f64 = 1.015;
const MUCH_MORE: f64 = 1.04;

/// A path is full if its rate has not grown by this factor in this many measurements.
const GROWS: f64 = 1.08;
const FLAT: u32 = 2;

/// Part of the queue (as a fraction of the round trip) that is subtracted from the sending rate,
/// and the minimum of the resulting factor. Acknowledgements show the queue one round trip late.
const BY_QUEUE: f64 = 0.3;
const LEAST: f64 = 0.75;

/// Factor by which losses reduce the sending rate, and the range of losses. Losses are counted
/// beyond random ones and beyond the first fraction; up to the second fraction their compensation
/// is never reduced.
const BY_LOSS: f64 = 4.0;
const LOSSES: (f64, f64) = (0.005, 0.02);

/// Measurement of random losses. `LESS` is the fraction of the capacity that is sent meanwhile. It
/// lasts `LESS_MEASUREMENTS`, of which the last counts, because losses are reported a round trip
/// late; the next follows after `TRIED_AFTER` measurements. If random losses exceed `CHANCE_MOST`,
/// there is no limit for a while: an overflow is then a small part, and streams with such losses
/// hardly regain the rate that a limit took from them.
const LESS: f64 = 0.93;
const LESS_MEASUREMENTS: u32 = 2;
const TRIED_AFTER: u32 = 24;
const CHANCE_MOST: f64 = 0.1;

/// The capacity is less than assumed if the arriving rate, as a fraction of the expected one, is
/// below this.
const BELIEVED: f64 = 0.97;

/// Number of consecutive observations after which a queue counts.
const STANDING: u32 = 2;

/// Minimum duration of a queue. A shorter one may be a busy host.
const SHORTEST: Duration = Duration::from_millis(3);

/// Minimum bytes and fraction of the data lost while starting that show a full path, with any
/// queue. Streams begin with more than twice the capacity, and many losses may be random.
const FLOODED: (f64, f64) = (65_536.0, 0.12);

/// If at least this fraction is lost in this many measurements, the capacity is the arriving rate.
/// If a lower capacity did not reduce losses to `FEWER` of the earlier ones, the capacity is not
/// the cause.
const OVERFLOWS: f64 = 0.05;
const OVERFLOWING: u32 = 2;
const FEWER: f64 = 0.75;

/// Other traffic causes a queue if it has not fallen to the fraction `DRAINED` in this number of
/// round trips and this time, while less than the capacity was sent.
const DRAINS_ROUND_TRIPS: u32 = 12;
const DRAINS: Duration = Duration::from_secs(1);
const DRAINED: f64 = 0.5;

/// Initial and maximum time without limits after that.
const APART: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(160));

/// A stream whose rate is below `BELOW` times its limit has no more data, or another limit. The
/// shares of the others count it with `ROOM` times its rate.
const BELOW: f64 = 0.7;
const ROOM: f64 = 1.2;

/// State of the coupled streams of one path.
#[derive(Clone, Debug)]
pub(super) struct Coupled {
    excess: f64,
    /// Number of consecutive measurements in which the rate did not grow.
    flat: u32,
    /// Lost fraction of the data in the last measurement, beyond random losses.
    lost: f64,
    /// Fraction that is lost at random.
    chance: f64,
    /// Number of measurements until random losses are measured again, and the current trial.
    until_tried: u32,
    trial: Option<Trial>,
    /// Number of consecutive measurements with many losses, and the losses when the assumed
    /// capacity was last reduced because of them.
    overflowing: u32,
    lowered: Option<f64>,
    /// Number of observations since the last measurement, and number of those with a queue.
    looks: (u32, u32),
    /// Number of consecutive observations with a queue.
    standing: u32,
    /// Time since when less than the capacity is sent, and the longest queue since then as a
    /// fraction of the round trip.
    draining: Option<(Moment, f64)>,
    /// Total rate in the last measurement in bytes per second; `None` if the streams had no more
    /// data.
    carried: Option<f64>,
    /// Total rate in the last measurement, even if the streams had no more data.
    total: f64,
    /// True if the assumed capacity was reduced because a queue stayed.
    humble: bool,
    /// Time until which there is no limit.
    apart: Moment,
    next_apart: Duration,
    /// Rates, in bytes per second, with which the shares count streams that have another limit.
    elsewhere: Vec<(StreamId, f64)>,
}

/// A measurement of random losses at a reduced rate.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// Reduced rate in bytes per second.
    rate: f64,
    /// Number of measurements until it ends.
    left: u32,
}

impl Default for Coupled {
    fn default() -> Coupled {
        Coupled {
            excess: EXCESS.1,
            flat: 0,
            lost: 0.0,
            chance: 0.0,
            until_tried: 0,
            trial: None,
            overflowing: 0,
            lowered: None,
            looks: (0, 0),
            standing: 0,
            draining: None,
            carried: None,
            total: 0.0,
            humble: false,
            apart: Moment(0),
            next_apart: APART.0,
            elsewhere: Vec::new(),
        }
    }
}

/// Measured data of a path and its streams.
pub(super) struct Carried {
    /// Rate of each stream in bytes per second.
    pub rates: Vec<(StreamId, f64)>,
    /// Maximum total rate before, in bytes per second.
    pub before: f64,
    /// Lost fraction of the sent data.
    pub lost: f64,
    /// True if there was more to send.
    pub supplied: bool,
    /// Limit of each stream in bytes per second.
    pub bound: Option<f64>,
    /// True if most streams send at their limit.
    pub held: bool,
}

/// Conclusions from a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// True if the path is full, judged by its rate alone.
    pub full: bool,
    /// True if the path carries more than ever. Streams may restart for it: by themselves they
    /// probe for a higher rate only in one of eight round trips.
    pub more: bool,
    /// True if the capacity is the arriving rate, though no queue was seen.
    pub overflows: bool,
}

impl Coupled {
    /// Processes a measurement.
    pub fn handle_measure(&mut self, carried: &Carried) -> Found {
        let total: f64 = carried.rates.iter().map(|(_, rate)| rate).sum();
        let (looks, standing) = std::mem::take(&mut self.looks);
        let queued = standing > 0 && standing * 2 >= looks;
        let (tried, kept) = (self.trial.is_some(), self.kept());
        // While starting, and after an outage, the rate grows by itself.
        let grows = total >= self.total * GROWS;
        if carried.supplied {
            self.learn_chance(carried, total, queued, grows);
        }
        self.lost = (carried.lost - self.chance).max(0.0);
        let held = carried.held && carried.supplied && self.lost <= LOSSES.0 && !queued;
        self.excess = if total >= carried.before * CARRIED_MORE {
            (self.excess * 2.0).min(EXCESS.1)
        } else if tried {
            self.excess
        } else if held {
            (self.excess + HELD.0).min(HELD.1)
        } else {
            EXCESS.0
        };
        self.carried = carried.supplied.then_some(total);
        self.flat = if carried.supplied && total < carried.before * GROWS {
            self.flat + 1
        } else {
            0
        };
        let overflows = !tried && self.overflows(carried, grows);
        self.total = total;
        // Retransmissions of randomly lost data are lost at random, too.
        let least = carried.bound.map(|bound| bound * kept.powi(2) * BELOW);
        let below = |(_, rate): &&(StreamId, f64)| least.is_some_and(|least| *rate < least);
        let elsewhere = carried
            .rates
            .iter()
            .filter(|_| carried.supplied)
            .filter(below);
        self.elsewhere = elsewhere
            .map(|(stream, rate)| (*stream, rate * ROOM))
            .collect();
        Found {
            full: self.flat >= FLAT,
            more: total >= carried.before * MUCH_MORE,
            overflows,
        }
    }

    /// True if the path carries no more than the arriving rate.
    fn overflows(&mut self, carried: &Carried, grows: bool) -> bool {
        if self.lost < OVERFLOWS / 2.0 {
            self.lowered = None;
        }
        let bound = carried.supplied && carried.bound.is_some() && self.draining.is_none();
        if self.lost < OVERFLOWS || grows || !bound {
            self.overflowing = 0;
            return false;
        }
        self.overflowing += 1;
        if self.overflowing < OVERFLOWING {
            return false;
        }
        self.overflowing = 0;
        let helped = self.lowered.is_none_or(|lost| self.lost <= lost * FEWER);
        if helped {
            self.lowered = Some(self.lost);
        } else {
            // The loss may then be random.
            self.until_tried = 0;
        }
        helped
    }

    /// Measures the losses that remain at a reduced rate. If a queue stood nevertheless, these are
    /// overflows and not random.
    fn learn_chance(&mut self, carried: &Carried, total: f64, queued: bool, grows: bool) {
        self.until_tried = self.until_tried.saturating_sub(1);
        if carried.bound.is_none() {
            self.trial = None;
        } else if let Some(trial) = &mut self.trial {
            trial.left -= 1;
            if trial.left == 0 {
                self.chance = if queued { 0.0 } else { carried.lost };
                (self.trial, self.lowered) = (None, None);
            }
        } else if carried.lost <= LOSSES.0 {
            self.chance = 0.0;
        } else if self.until_tried == 0
            && !grows
            && (!queued || self.chance > 0.0 || self.lowered.is_some())
        {
            self.until_tried = TRIED_AFTER;
            // Take the trial's rate from the assumed capacity, if the path still carries it.
            let usual = carried.before * (1.0 - carried.lost) * BELIEVED;
            let most = if total >= usual {
                carried.before
            } else {
                total
            };
            self.trial = Some(Trial {
                rate: most * LESS,
                left: LESS_MEASUREMENTS,
            });
        }
    }

    /// Returns the arriving fraction of the data, which is the fraction of its limit that a stream
    /// sends if only the limit applies.
    pub fn kept(&self) -> f64 {
        1.0 - self.chance
    }

    /// True if the lost and arriving bytes of one or two round trips of a start show that the path
    /// is full.
    pub fn is_flooded(lost: f64, arrived: f64) -> bool {
        lost >= FLOODED.0 && lost >= (lost + arrived) * FLOODED.1
    }

    /// Returns the fraction of `peak`, the assumed capacity, that all may send; `None` if
    /// unlimited. `queue` is the waiting time beyond the round trip `rtt`. Reduces `peak` if the
    /// queue shows that it is too high.
    pub fn part(
        &mut self,
        at: Moment,
        rtt: Duration,
        queue: Duration,
        peak: &mut f64,
    ) -> Option<f64> {
        if at < self.apart {
            return None;
        }
        if self.chance > CHANCE_MOST {
            self.chance = 0.0;
            self.next_apart = APART.1;
            return self.part_for_a_while(at);
        }
        let queue = if queue >= SHORTEST {
            queue.as_secs_f64() / rtt.as_secs_f64()
        } else {
            0.0
        };
        self.looks.0 += 1;
        self.looks.1 += u32::from(queue > 0.0);
        // A queue in a single observation comes from a busy host or from other traffic.
        self.standing = if queue > 0.0 { self.standing + 1 } else { 0 };
        if self.standing >= STANDING {
            self.excess = EXCESS.0;
        }
        let by_loss = BY_LOSS * (self.lost - LOSSES.0).max(0.0);
        let least = 1.0 + self.lost.min(LOSSES.1);
        let arrives = (1.0 + self.excess - by_loss).max(least);
        // A stream measures the arriving part of its limit. It sends at that rate, of which again
        // only a part arrives.
        let part = arrives / self.kept().powi(2) - BY_QUEUE * queue;
        if self.stays(at, rtt, queue, part) {
            if self.humble {
                self.humble = false;
                return self.part_for_a_while(at);
            }
            self.humble = true;
            *peak = self.carried.map_or(*peak, |carried| peak.min(carried));
        }
        let part = part.max(LEAST);
        let tried = self.trial.map(|trial| trial.rate / peak.max(trial.rate));
        Some(tried.map_or(part, |tried| part.min(tried)))
    }

    /// Removes the limit for a while.
    fn part_for_a_while(&mut self, at: Moment) -> Option<f64> {
        self.apart = at + self.next_apart;
        self.next_apart = (self.next_apart * 2).min(APART.1);
        None
    }

    /// True if a queue stays although less is sent because of it.
    fn stays(&mut self, at: Moment, rtt: Duration, queue: f64, part: f64) -> bool {
        if part >= 1.0 || queue == 0.0 {
            (self.draining, self.humble) = (None, false);
            return false;
        }
        let (since, most) = *self.draining.get_or_insert((at, queue));
        if queue > most {
            self.draining = Some((at, queue));
        } else if queue < most * DRAINED {
            self.draining = Some((at, queue));
            self.next_apart = APART.0;
            self.humble = false;
        } else if at - since >= rtt.saturating_mul(DRAINS_ROUND_TRIPS).max(DRAINS) {
            self.draining = None;
            return true;
        }
        false
    }

    /// Returns the rate of each of these streams with which all send `together` bytes per second.
    pub fn share(&self, together: f64, streams: &[StreamId]) -> f64 {
        let here = |(stream, _): &&(StreamId, f64)| streams.contains(stream);
        let elsewhere: Vec<f64> = self
            .elsewhere
            .iter()
            .filter(here)
            .map(|known| known.1)
            .collect();
        let left = together - elsewhere.iter().sum::<f64>();
        let equal = together / streams.len().max(1) as f64;
        match streams.len().saturating_sub(elsewhere.len()) {
            // The source was slow for a moment.
            0 => equal,
            others => (left / others as f64).max(equal),
        }
    }
}

#[cfg(test)]
mod tests;
