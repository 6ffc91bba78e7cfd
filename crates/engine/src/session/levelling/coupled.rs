//! Streams whose congestion control keeps to a rate that it finds, coupled to one.
//!
//! Each BBR stream believes the best rate of its last ten round trips. Of several on one path
//! each has had its best at another time: together they believe in more than the path
//! carries, fill its queue until their windows of two products bind, and where the queue is
//! shorter than a product a tenth of what they send overflows. Those that were fast stay fast.
//!
//! What all carry together is known better than what one does: [`Coupled::part`] says how
//! much of it they may send. Somewhat more while no queue stands, so that a path that carries
//! more is found out, and at once much more where that is so; the less the longer a queue is; and
//! where it is too short to be seen, the less the more is lost.
//!
//! A queue that stays although less is sent than the path carried means that it carries less
//! than was believed; and where it stays even then, that it is somebody else's. Then nothing is
//! bound for a while: their congestion controls divide the path.

use std::time::Duration;

use longhaul_proto::session::StreamId;
use longhaul_units::Moment;

/// What is sent beyond what the path carried while no queue stands, and at most: at first, as
/// long as nobody knows, and where it turns out to carry more.
const EXCESS: (f64, f64) = (0.05, 1.0);

/// Where streams send no more than they may, nothing of it is lost or waits, and yet the path
/// carries no more than before, their host was busy in between: so much more is sent then, and
/// once more, up to what BBR tries by itself.
const HELD: (f64, f64) = (0.05, 0.25);

/// It carried more, and so much more that it is worth to begin anew.
const CARRIED_MORE: f64 = 1.015;
const MUCH_MORE: f64 = 1.04;

/// A path is full where what it carries has not grown by so much in so many measurements.
const GROWS: f64 = 1.08;
const FLAT: u32 = 2;

/// Of a queue so much of its part of the round trip is taken from what is sent, and at most
/// so much: acknowledgements tell of it a round trip late.
const BY_QUEUE: f64 = 0.3;
const LEAST: f64 = 0.75;

/// Losses beyond the first part of what is sent take so many times of it, but never what makes
/// up for losses that are nobody's queue, up to the second.
const BY_LOSS: f64 = 4.0;
const LOSSES: (f64, f64) = (0.005, 0.02);

/// A shorter queue may as well be a host that is busy.
const SHORTEST: Duration = Duration::from_millis(3);

/// Where so much of what is sent is lost the path is full, whatever its queue.
const OVERFLOWS: f64 = 0.05;

/// A queue is somebody else's where it has not become half as long in so many round trips,
/// and so long, in which less was sent than the path carried.
const DRAINS_ROUND_TRIPS: u32 = 12;
const DRAINS: Duration = Duration::from_secs(1);
const DRAINED: f64 = 0.5;

/// For so long nothing is bound then: at first, and at most.
const APART: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(160));

/// A stream that sends so much less than it may has no more, or something else binds it: what
/// the others may send counts it with so many times of what it does.
const BELOW: f64 = 0.7;
const ROOM: f64 = 1.2;

/// How much all may send together, and each of it.
#[derive(Clone, Debug)]
pub(super) struct Coupled {
    excess: f64,
    /// Measurements in a row in which it carried no more.
    flat: u32,
    /// Part of what was sent that was lost in the last measurement.
    lost: f64,
    /// A queue stood since then.
    queued: bool,
    /// Since when less is sent than the path carried, and the longest queue since, as a part of
    /// the round trip.
    draining: Option<(Moment, f64)>,
    /// Bytes per second that all carried in the last measurement.
    carried: f64,
    /// Less is believed since a queue stayed.
    humble: bool,
    /// Nothing is bound until then.
    apart: Moment,
    next_apart: Duration,
    /// What each of the streams that something else binds is counted with, in bytes per second.
    elsewhere: Vec<(StreamId, f64)>,
}

impl Default for Coupled {
    fn default() -> Coupled {
        Coupled {
            excess: EXCESS.1,
            flat: 0,
            lost: 0.0,
            queued: false,
            draining: None,
            carried: 0.0,
            humble: false,
            apart: Moment(0),
            next_apart: APART.0,
            elsewhere: Vec::new(),
        }
    }
}

/// What the path and its streams showed in a time.
pub(super) struct Carried {
    /// Bytes per second that each stream carried.
    pub rates: Vec<(StreamId, f64)>,
    /// The most that all carried before.
    pub before: f64,
    /// Part of what was sent that was lost.
    pub lost: f64,
    /// There was more to send.
    pub supplied: bool,
    /// What each might send at most, in bytes per second.
    pub bound: Option<f64>,
    /// That is what most of them keep to.
    pub held: bool,
}

/// What that says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// It is full, by what it carries alone.
    pub full: bool,
    /// It carries more than it ever did. Streams may begin anew for it: by themselves they try
    /// to be faster in one of eight round trips.
    pub more: bool,
}

impl Coupled {
    /// Takes what was seen in a time.
    pub fn handle_measure(&mut self, carried: &Carried) -> Found {
        let total: f64 = carried.rates.iter().map(|(_, rate)| rate).sum();
        let queued = std::mem::take(&mut self.queued);
        let held = carried.held && carried.supplied && carried.lost <= LOSSES.0 && !queued;
        self.excess = match total >= carried.before * CARRIED_MORE {
            true => (self.excess * 2.0).min(EXCESS.1),
            false if held => (self.excess + HELD.0).min(HELD.1),
            false => EXCESS.0,
        };
        self.carried = total;
        self.lost = carried.lost;
        self.flat = match carried.supplied && total < carried.before * GROWS {
            true => self.flat + 1,
            false => 0,
        };
        let below =
            |(_, rate): &&(StreamId, f64)| carried.bound.is_some_and(|bound| *rate < bound * BELOW);
        let elsewhere = carried.rates.iter().filter(below);
        self.elsewhere = elsewhere
            .map(|(stream, rate)| (*stream, rate * ROOM))
            .collect();
        Found {
            full: self.flat >= FLAT,
            more: total >= carried.before * MUCH_MORE,
        }
    }

    /// Whether the path is full by this part of what is sent being lost.
    pub fn overflows(lost: f64) -> bool {
        lost >= OVERFLOWS
    }

    /// What all may send of `peak`, what the path is believed to carry, 0.75 to 2 of it, where
    /// segments wait in its `queue`, beyond the round trip `rtt`; none without bound. Less is
    /// believed where the queue says so.
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
        let queue = match queue >= SHORTEST {
            true => queue.as_secs_f64() / rtt.as_secs_f64(),
            false => 0.0,
        };
        if queue > 0.0 {
            self.excess = EXCESS.0;
            self.queued = true;
        }
        let by_loss = BY_LOSS * (self.lost - LOSSES.0).max(0.0);
        let least = 1.0 + self.lost.min(LOSSES.1);
        let part = (1.0 + self.excess - by_loss).max(least) - BY_QUEUE * queue;
        if self.stays(at, rtt, queue, part) {
            if self.humble {
                self.humble = false;
                self.apart = at + self.next_apart;
                self.next_apart = (self.next_apart * 2).min(APART.1);
                return None;
            }
            self.humble = true;
            *peak = peak.min(self.carried);
        }
        Some(part.max(LEAST))
    }

    /// Whether a queue stays that less was sent for.
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

    /// What each of these streams may send for all to send so much, in bytes per second.
    pub fn share(&self, together: f64, streams: &[StreamId]) -> f64 {
        let here = |(stream, _): &&(StreamId, f64)| streams.contains(stream);
        let elsewhere: Vec<f64> = self
            .elsewhere
            .iter()
            .filter(here)
            .map(|known| known.1)
            .collect();
        let left = together - elsewhere.iter().sum::<f64>();
        let others = streams.len().saturating_sub(elsewhere.len()).max(1);
        (left / others as f64).max(together / streams.len().max(1) as f64)
    }
}

#[cfg(test)]
mod tests;
