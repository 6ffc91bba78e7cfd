//! One direction of a path as a pure queue in virtual time.
//!
//! A link decides the fate of each segment, in the order of time. [`Link::offer`] takes the moment
//! and the segment's length, and returns its [`Fate`]. A link holds no packets, reads no clock and
//! has no threads. The same seed, settings and offers give the same fates, here and over real
//! packets.
//!
//! A segment passes, in this order: a cut (the link is down), loss on the way in, the drop-tail
//! queue, the line at its rate, and the delay with its jitter. Then it may be held back,
//! duplicated or damaged.
//!
//! # Rate
//!
//! The rate is that of Ethernet: a segment costs its IP length and [`ETHERNET_OVERHEAD`] bytes. So
//! a path carries 1448/1538 = 94.15 % of its rate as TCP payload, at an MTU of 1500 with
//! timestamps. A super-packet is offered segment by segment.
//!
//! # Accuracy
//!
//! The line's clock counts in 2^-32 ns, so that no rate drifts: a million
//! segments are off by less than a nanosecond. An arrival is rounded up to a
//! nanosecond.

mod jitter;
mod loss;

use std::time::Duration;

use longhaul_units::{BitRate, ByteCount, Moment, Random};

pub use loss::{GilbertElliott, Loss, ParseLossError};

use jitter::Jitter;
use loss::LossProcess;

/// What Ethernet adds to an IP packet on the wire: preamble and start (8
/// bytes), header (14), checksum (4), gap (12).
pub const ETHERNET_OVERHEAD: u32 = 38;

/// The queue holds at least one of the largest Ethernet frames without jumbo
/// (1500 + 38 bytes), or nothing would ever pass.
const SMALLEST_QUEUE: u64 = 1538;

/// The line's clock: its unit is 2^-32 ns.
const FRACTION_BITS: u32 = 32;

/// What one direction of a path does.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSettings {
    /// Bits per second on the wire; none: no line and no queue.
    pub rate: Option<BitRate>,
    /// From the end of the line to the far side, 0 to an hour.
    pub delay: Duration,
    /// The delay wanders by as much to either side, at most itself; the order
    /// of segments stays.
    pub jitter: Duration,
    /// What is lost before the queue.
    pub loss: Loss,
    /// Bytes on the wire that may wait, what is just being sent among them;
    /// less than 1538 counts as 1538.
    pub queue: ByteCount,
    /// Some segments arrive later than those that followed.
    pub reorder: Option<Reorder>,
    /// How likely a segment arrives twice, 0 to 1.
    pub duplicate: f64,
    /// How likely a segment is damaged so that its checksum tells, 0 to 1.
    pub corrupt: f64,
    /// Probability that a segment is damaged and its checksum corrected, so that only the
    /// application can notice, 0 to 1.
    pub corrupt_unseen: f64,
}

impl Default for LinkSettings {
    /// A link that does nothing.
    fn default() -> LinkSettings {
        LinkSettings {
            rate: None,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            loss: Loss::None,
            queue: ByteCount(u64::MAX),
            reorder: None,
            duplicate: 0.0,
            corrupt: 0.0,
            corrupt_unseen: 0.0,
        }
    }
}

/// Segments that are overtaken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reorder {
    /// How likely, 0 to 1.
    pub probability: f64,
    /// How much later they arrive.
    pub by: Duration,
}

/// Settings that make no link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// No segment would ever leave.
    #[error("a link's rate must be more than 0: leave it out for a link without a line")]
    Rate,
    /// Longer than any path on earth.
    #[error("a link's delay is at most an hour, this one is {0:?}")]
    Delay(Duration),
    /// A segment would arrive before it left.
    #[error("a jitter of {jitter:?} is more than the delay of {delay:?} that it changes")]
    Jitter {
        /// The jitter.
        jitter: Duration,
        /// The delay.
        delay: Duration,
    },
    /// No probability.
    #[error("{what} has the probability {value}: it must be 0 to 1")]
    Probability {
        /// Of what.
        what: &'static str,
        /// As it was given.
        value: String,
    },
}

impl LinkSettings {
    /// Whether this makes a link.
    ///
    /// # Errors
    ///
    /// The first field that is out of its range.
    pub fn check(&self) -> Result<(), LinkError> {
        /// No path is longer; keeps sums of times far from their limits.
        const LONGEST_DELAY: Duration = Duration::from_secs(3600);
        let (delay, jitter) = (self.delay, self.jitter);
        if self.rate.is_some_and(|rate| rate.bits_per_second() <= 0.0) {
            return Err(LinkError::Rate);
        }
        let held = self.reorder.map_or(Duration::ZERO, |reorder| reorder.by);
        if let Some(long) = [delay, held].into_iter().find(|d| *d > LONGEST_DELAY) {
            return Err(LinkError::Delay(long));
        }
        if jitter > delay {
            return Err(LinkError::Jitter { jitter, delay });
        }
        let reorder = self.reorder.map_or(0.0, |reorder| reorder.probability);
        let own = [
            ("reordering", reorder),
            ("duplication", self.duplicate),
            ("corruption", self.corrupt),
            ("unseen corruption", self.corrupt_unseen),
        ];
        for (what, value) in own.into_iter().chain(self.loss.probabilities()) {
            if !(0.0..=1.0).contains(&value) {
                let value = value.to_string();
                return Err(LinkError::Probability { what, value });
            }
        }
        Ok(())
    }
}

/// What becomes of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It does not arrive.
    Lost(Reason),
    /// It arrives.
    Arrives(Arrival),
}

/// Why a segment does not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The link was cut.
    Cut,
    /// The loss process took it.
    Loss,
    /// The queue was full.
    Queue,
}

/// How a segment arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When its last bit is there.
    pub at: Moment,
    /// It was held back: later segments may arrive before it.
    pub held: bool,
    /// It arrives twice.
    pub doubled: bool,
    /// What happened to its bits.
    pub damage: Option<Damage>,
}

impl Arrival {
    /// Nothing happened to it on the way.
    pub fn is_plain(&self) -> bool {
        !self.held && !self.doubled && self.damage.is_none()
    }
}

/// What happened to a segment's bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// A number that chooses the bit.
    pub place: u64,
    /// The transport's checksum was corrected: only the application can tell.
    pub unseen: bool,
}

/// What a link did, in segments, and in bytes on the wire.
///
/// `offered = delivered + cut + lost + queue_drops`; what is doubled counts
/// once as delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Segments that were offered.
    pub offered: u64,
    /// Their bytes on the wire.
    pub offered_bytes: u64,
    /// Segments that arrive.
    pub delivered: u64,
    /// Their bytes on the wire.
    pub delivered_bytes: u64,
    /// Lost while the link was cut.
    pub cut: u64,
    /// Taken by the loss process.
    pub lost: u64,
    /// Found the queue full.
    pub queue_drops: u64,
    /// Held back.
    pub held: u64,
    /// Arrive twice.
    pub doubled: u64,
    /// Damaged so that the checksum tells.
    pub corrupted: u64,
    /// Damaged with the checksum corrected.
    pub corrupted_unseen: u64,
    /// Most bytes that ever waited.
    pub highest_queue: u64,
}

/// One direction of a path.
#[derive(Clone, Debug)]
pub struct Link {
    settings: LinkSettings,
    /// How long a byte takes on the line; 0 without a line.
    ticks_a_byte: f64,
    /// When the line has sent all it accepted, in ticks.
    free_at: u128,
    /// No segment that keeps its order arrives before this.
    last_arrival: Moment,
    /// When it was last asked.
    now: Moment,
    cut_until: Moment,
    loss: LossProcess,
    jitter: Jitter,
    accidents: Random,
    counters: LinkCounters,
    seed: u64,
}

/// What a link draws random numbers for.
mod purpose {
    pub const LOSS: u64 = 1;
    pub const JITTER: u64 = 2;
    pub const ACCIDENTS: u64 = 3;
}

impl Link {
    /// A link that nothing has passed yet.
    ///
    /// # Errors
    ///
    /// See [`LinkSettings::check`].
    pub fn new(settings: LinkSettings, seed: u64) -> Result<Link, LinkError> {
        settings.check()?;
        Ok(Link {
            ticks_a_byte: ticks_a_byte(settings.rate),
            free_at: 0,
            last_arrival: Moment(0),
            now: Moment(0),
            cut_until: Moment(0),
            loss: LossProcess::new(settings.loss, Random::for_purpose(seed, purpose::LOSS)),
            jitter: Jitter::new(
                settings.jitter,
                Random::for_purpose(seed, purpose::JITTER).bits(),
            ),
            accidents: Random::for_purpose(seed, purpose::ACCIDENTS),
            counters: LinkCounters::default(),
            settings,
            seed,
        })
    }

    /// What it does now.
    pub fn settings(&self) -> &LinkSettings {
        &self.settings
    }

    /// What it did so far.
    pub fn counters(&self) -> LinkCounters {
        self.counters
    }

    /// A segment was damaged: the caller knows whether there was anything to damage.
    pub fn note_damage(&mut self, damage: &Damage) {
        self.counters.corrupted += u64::from(!damage.unseen);
        self.counters.corrupted_unseen += u64::from(damage.unseen);
    }

    /// Changes what it does with what comes from now on. What is in the queue
    /// or on its way keeps its time, and nothing overtakes it.
    ///
    /// # Errors
    ///
    /// See [`LinkSettings::check`]; then nothing changes.
    pub fn set(&mut self, settings: LinkSettings) -> Result<(), LinkError> {
        settings.check()?;
        self.ticks_a_byte = ticks_a_byte(settings.rate);
        if settings.loss != self.settings.loss {
            self.loss.set(settings.loss);
        }
        let seed = Random::for_purpose(self.seed, purpose::JITTER).bits();
        self.jitter = Jitter::new(settings.jitter, seed);
        self.settings = settings;
        Ok(())
    }

    /// Loses everything that is offered before this moment. What is on its way
    /// still arrives.
    pub fn cut_until(&mut self, until: Moment) {
        self.cut_until = until;
    }

    /// Bytes on the wire that wait or are being sent.
    pub fn backlog(&self, now: Moment) -> ByteCount {
        let ticks = self.free_at.saturating_sub(to_ticks(now));
        if ticks == 0 {
            return ByteCount(0);
        }
        ByteCount((ticks as f64 / self.ticks_a_byte).round() as u64)
    }

    /// What becomes of a segment that comes now; a moment before that of the
    /// last offer counts as that one. `ip_bytes` is its IP packet's length.
    pub fn offer(&mut self, now: Moment, ip_bytes: u32) -> Fate {
        self.now = self.now.max(now);
        let wire = u64::from(ip_bytes) + u64::from(ETHERNET_OVERHEAD);
        self.counters.offered += 1;
        self.counters.offered_bytes += wire;
        if self.now < self.cut_until {
            self.counters.cut += 1;
            return Fate::Lost(Reason::Cut);
        }
        if self.loss.takes() {
            self.counters.lost += 1;
            return Fate::Lost(Reason::Loss);
        }
        let Some(left) = self.queue(wire) else {
            self.counters.queue_drops += 1;
            return Fate::Lost(Reason::Queue);
        };
        self.counters.delivered += 1;
        self.counters.delivered_bytes += wire;
        Fate::Arrives(self.accidents(left))
    }

    /// Sends it after all that waits; gives when it has left the line, or
    /// nothing where the queue is full.
    fn queue(&mut self, wire: u64) -> Option<Moment> {
        if self.settings.rate.is_none() {
            return Some(self.now);
        }
        let waiting = self.backlog(self.now).0.saturating_add(wire);
        if waiting > self.settings.queue.0.max(SMALLEST_QUEUE.max(wire)) {
            return None;
        }
        self.counters.highest_queue = self.counters.highest_queue.max(waiting);
        let ticks = (wire as f64 * self.ticks_a_byte).round() as u128;
        self.free_at = self.free_at.max(to_ticks(self.now)).saturating_add(ticks);
        Some(from_ticks(self.free_at))
    }

    /// When it arrives, and what happened to it on the way.
    fn accidents(&mut self, left: Moment) -> Arrival {
        let travelled = self.jitter.apply(left, self.settings.delay);
        let in_order = travelled.max(self.last_arrival);
        let settings = &self.settings;
        let reorder = settings.reorder;
        let held = reorder.is_some_and(|r| self.accidents.happens(r.probability));
        let doubled = self.accidents.happens(settings.duplicate);
        let unseen = self.accidents.happens(settings.corrupt_unseen);
        let damaged = self.accidents.happens(settings.corrupt) || unseen;
        let damage = damaged.then(|| Damage {
            place: self.accidents.bits(),
            unseen,
        });
        self.counters.held += u64::from(held);
        self.counters.doubled += u64::from(doubled);
        let at = match reorder.filter(|_| held) {
            Some(reorder) => in_order + reorder.by,
            None => {
                self.last_arrival = in_order;
                in_order
            }
        };
        Arrival {
            at,
            held,
            doubled,
            damage,
        }
    }
}

fn ticks_a_byte(rate: Option<BitRate>) -> f64 {
    let unit = (1_u64 << FRACTION_BITS) as f64;
    rate.map_or(0.0, |rate| 8e9 / rate.bits_per_second() * unit)
}

fn to_ticks(moment: Moment) -> u128 {
    u128::from(moment.0) << FRACTION_BITS
}

/// Rounded up: a segment has left when its last bit has.
fn from_ticks(ticks: u128) -> Moment {
    let up = ticks.saturating_add((1 << FRACTION_BITS) - 1) >> FRACTION_BITS;
    Moment(u64::try_from(up).unwrap_or(u64::MAX))
}
