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
//! What is lost by chance is no queue. Where much is, less than the path carries is sent now and
//! then: what is lost even then is made up for, and only what is lost beyond says that a queue
//! overflows.
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

/// A path is full where what it carries has not grown by so much in this many measurements.
const GROWS: f64 = 1.08;
const FLAT: u32 = 2;

/// How much of a queue's part of the round trip is subtracted from what is sent, and the most that
/// is: acknowledgements show the queue a round trip late.
const BY_QUEUE: f64 = 0.3;
const LEAST: f64 = 0.75;

/// Losses beyond those by chance and the first part of what is sent take this many times of it,
/// but never what makes up for them, up to the second.
const BY_LOSS: f64 = 4.0;
const LOSSES: (f64, f64) = (0.005, 0.02);

/// So much of what the path carries is sent to see what is lost by chance: for this many
/// measurements, of which the last counts, as what was lost is heard of a round trip late; again
/// after this many. Where it is more than the part after them, nothing is bound for a while: what
/// overflows besides is little of it, and streams that lose so much hardly get back what they were
/// bound from.
const LESS: f64 = 0.93;
const LESS_MEASUREMENTS: u32 = 2;
const TRIED_AFTER: u32 = 24;
const CHANCE_MOST: f64 = 0.1;

/// It carries less than was believed where less than this part arrives of what is not lost.
const BELIEVED: f64 = 0.97;

/// Looks in a row after which a queue is one.
const STANDING: u32 = 2;

/// A shorter queue may as well be a host that is busy.
const SHORTEST: Duration = Duration::from_millis(3);

/// This many bytes and so much of what is sent being lost in a start, the path is full, whatever
/// its queue: streams begin with twice what it carries and more, and much may be lost by chance.
const FLOODED: (f64, f64) = (65_536.0, 0.12);

/// Where so much of what is sent is lost, in this many measurements, a path carries no more than
/// what arrives. Where that is believed already and hardly less is lost, it is not the reason.
const OVERFLOWS: f64 = 0.05;
const OVERFLOWING: u32 = 2;
const FEWER: f64 = 0.75;

/// A queue is somebody else's where it has not become half as long in this many round trips, and
/// so long, in which less was sent than the path carried.
const DRAINS_ROUND_TRIPS: u32 = 12;
const DRAINS: Duration = Duration::from_secs(1);
const DRAINED: f64 = 0.5;

/// For so long nothing is bound then: at first, and at most.
const APART: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(160));

/// A stream that sends so much less than it may has no more, or something else binds it: what the
/// others may send counts it with this many times of what it does.
const BELOW: f64 = 0.7;
const ROOM: f64 = 1.2;

/// How much all may send together, and each of it.
#[derive(Clone, Debug)]
pub(super) struct Coupled {
    excess: f64,
    /// Measurements in a row in which it carried no more.
    flat: u32,
    /// Part of what was sent that was lost in the last measurement, beyond chance.
    lost: f64,
    /// Part of it that is lost by chance.
    chance: f64,
    /// Measurements until that is looked at again, and how it is now.
    until_tried: u32,
    trial: Option<Trial>,
    /// Measurements in a row in which much was lost, and how much it was when less was believed
    /// for it.
    overflowing: u32,
    lowered: Option<f64>,
    /// Looks since the last measurement, and those in which a queue stood.
    looks: (u32, u32),
    /// Looks in a row in which one stood.
    standing: u32,
    /// Since when less is sent than the path carried, and the longest queue since, as a part of
    /// the round trip.
    draining: Option<(Moment, f64)>,
    /// Bytes per second that all carried in the last measurement; `None` if they had no more.
    carried: Option<f64>,
    /// The same, whatever they had.
    total: f64,
    /// Less is believed since a queue stayed.
    humble: bool,
    /// Nothing is bound until then.
    apart: Moment,
    next_apart: Duration,
    /// What each of the streams that something else binds is counted with, in bytes per second.
    elsewhere: Vec<(StreamId, f64)>,
}

/// Less is sent, to see what is lost even then.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// Bytes per second.
    rate: f64,
    /// Measurements until it ends.
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
    /// It carries no more than what arrived, though no queue was seen.
    pub overflows: bool,
}

impl Coupled {
    /// Takes what was seen in a time.
    pub fn handle_measure(&mut self, carried: &Carried) -> Found {
        let total: f64 = carried.rates.iter().map(|(_, rate)| rate).sum();
        let (looks, standing) = std::mem::take(&mut self.looks);
        let queued = standing > 0 && standing * 2 >= looks;
        let (tried, kept) = (self.trial.is_some(), self.kept());
        // In a start, and after a cut, all grows by itself.
        let grows = total >= self.total * GROWS;
        if carried.supplied {
            self.learn_chance(carried, total, queued, grows);
        }
        self.lost = (carried.lost - self.chance).max(0.0);
        let held = carried.held && carried.supplied && self.lost <= LOSSES.0 && !queued;
        self.excess = match total >= carried.before * CARRIED_MORE {
            true => (self.excess * 2.0).min(EXCESS.1),
            false if tried => self.excess,
            false if held => (self.excess + HELD.0).min(HELD.1),
            false => EXCESS.0,
        };
        self.carried = carried.supplied.then_some(total);
        self.flat = if carried.supplied && total < carried.before * GROWS {
            self.flat + 1
        } else {
            0
        };
        let overflows = !tried && self.overflows(carried, grows);
        self.total = total;
        // What is sent again for what is lost by chance is lost by chance, too.
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

    /// Whether it carries no more than what arrived.
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

    /// What is lost even where less is sent than the path carries; where a queue stood
    /// nevertheless, that is what overflowed.
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
            // Of what it is believed to carry, where that is still so.
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

    /// The part of what it may send that a stream sends where nothing else binds it: what
    /// arrives of that.
    pub fn kept(&self) -> f64 {
        1.0 - self.chance
    }

    /// Whether the path is full by these bytes being lost, and those arriving, in a round trip
    /// or two of a start.
    pub fn is_flooded(lost: f64, arrived: f64) -> bool {
        lost >= FLOODED.0 && lost >= (lost + arrived) * FLOODED.1
    }

    /// What all may send of `peak`, what the path is believed to carry, where segments wait in
    /// its `queue`, beyond the round trip `rtt`; none without bound. Less is believed where the
    /// queue says so.
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
        // One that stands for a look is a busy host, or somebody else's.
        self.standing = if queue > 0.0 { self.standing + 1 } else { 0 };
        if self.standing >= STANDING {
            self.excess = EXCESS.0;
        }
        let by_loss = BY_LOSS * (self.lost - LOSSES.0).max(0.0);
        let least = 1.0 + self.lost.min(LOSSES.1);
        let arrives = (1.0 + self.excess - by_loss).max(least);
        // A stream believes in what arrives of the most that it may send, and of what it sends
        // for that as much less arrives once more.
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

    /// Binds nothing for a while.
    fn part_for_a_while(&mut self, at: Moment) -> Option<f64> {
        self.apart = at + self.next_apart;
        self.next_apart = (self.next_apart * 2).min(APART.1);
        None
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
        let equal = together / streams.len().max(1) as f64;
        match streams.len().saturating_sub(elsewhere.len()) {
            // The source was slow for a moment, and will not be.
            0 => equal,
            others => (left / others as f64).max(equal),
        }
    }
}

#[cfg(test)]
mod tests;
