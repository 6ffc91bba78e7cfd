//! One direction of a path as a queue in virtual time, without I/O.
//!
//! A link decides the fate of each segment. Segments are offered in order of time.
//! [`Link::offer`] takes the moment and the segment's length, and returns its [`Fate`]. A
//! link holds no packets, reads no clock and has no threads. The same seed, settings and
//! offers give the same fates, both here and with real packets.
//!
//! Each segment passes these stages in order: a cut (the link is down), random loss, the
//! drop-tail queue, the line at its rate, and the delay with its jitter. Then it may be
//! held back, duplicated or damaged.
//!
//! # Rate
//!
//! The rate is that of Ethernet: a segment costs its IP length plus [`ETHERNET_OVERHEAD`]
//! bytes. A path carries 1448/1538 = 94.15 % of its rate as TCP payload, at an MTU of
//! 1500 with timestamps. A super-packet is offered segment by segment.
//!
//! # Accuracy
//!
//! The line's clock counts in units of 2^-32 ns, so rates do not drift: after a million
//! segments the error is below a nanosecond. An arrival is rounded up to a nanosecond.

mod jitter;
mod loss;

use std::time::Duration;

use longhaul_units::{BitRate, ByteCount, Moment, Random};

pub use loss::{GilbertElliott, Loss, ParseLossError};

use jitter::Jitter;
use loss::LossProcess;

/// Bytes that Ethernet adds to an IP packet on the wire: preamble and start (8), header
/// (14), checksum (4), gap (12).
pub const ETHERNET_OVERHEAD: u32 = 38;

/// Minimum size of the queue in bytes: one full Ethernet frame without jumbo (1500 + 38
/// bytes). A smaller queue would drop every full frame.
const SMALLEST_QUEUE: u64 = 1538;

/// The unit of the line's clock is 2^-32 ns.
const FRACTION_BITS: u32 = 32;

/// Settings of one direction of a path.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSettings {
    /// Bits per second on the wire. `None` means unlimited, without a queue.
    pub rate: Option<BitRate>,
    /// Delay from the end of the line to the receiver, 0 to an hour.
    pub delay: Duration,
    /// Maximum deviation of the delay in either direction, 0 to `delay`. The order of
    /// segments is kept.
    pub jitter: Duration,
    /// Random loss before the queue.
    pub loss: Loss,
    /// Size of the queue in bytes on the wire, including the segment being sent. Values
    /// below 1538 count as 1538.
    pub queue: ByteCount,
    /// If set, some segments are held back and may be overtaken.
    pub reorder: Option<Reorder>,
    /// Probability that a segment arrives twice, 0 to 1.
    pub duplicate: f64,
    /// Probability that a segment is damaged so that its checksum no longer matches, 0 to
    /// 1.
    pub corrupt: f64,
    /// Probability that a segment is damaged and its checksum corrected, so that only the
    /// application can notice, 0 to 1.
    pub corrupt_unseen: f64,
}

impl Default for LinkSettings {
    /// Returns a link without delay, loss or rate limit.
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

/// Settings of segments that are held back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reorder {
    /// Probability that a segment is held back, 0 to 1.
    pub probability: f64,
    /// Additional delay of a segment that is held back, 0 to an hour.
    pub by: Duration,
}

/// Reasons why settings are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The rate is not greater than 0.
    #[error("a link's rate must be more than 0: omit it for an unlimited rate")]
    Rate,
    /// A delay is longer than an hour.
    #[error("a link's delay is at most an hour, not {0:?}")]
    Delay(Duration),
    /// The jitter is greater than the delay, so that a segment could arrive before it
    /// left.
    #[error("a jitter of {jitter:?} is more than the one-way delay of {delay:?}")]
    Jitter {
        /// The given jitter.
        jitter: Duration,
        /// The given delay.
        delay: Duration,
    },
    /// A probability is not between 0 and 1.
    #[error("the probability of {what} is {value}: it must be 0 to 1")]
    Probability {
        /// Name of the setting.
        what: &'static str,
        /// The given value.
        value: String,
    },
}

impl LinkSettings {
    /// Checks that all settings are within their ranges.
    ///
    /// # Errors
    ///
    /// Returns an error for the first setting that is out of range.
    pub fn check(&self) -> Result<(), LinkError> {
        /// Longer than any real path. Keeps sums of times far from overflow.
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

/// Fate of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The segment does not arrive.
    Lost(Reason),
    /// The segment arrives.
    Arrives(Arrival),
}

/// Reasons why a segment does not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The link was cut.
    Cut,
    /// Random loss.
    Loss,
    /// The queue was full.
    Queue,
}

/// Arrival of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Time at which the last bit arrives.
    pub at: Moment,
    /// True if the segment was held back, so that later segments may arrive before it.
    pub held: bool,
    /// True if the segment arrives twice.
    pub doubled: bool,
    /// Damage to the segment, if any.
    pub damage: Option<Damage>,
}

impl Arrival {
    /// True if the segment was not held back, duplicated or damaged.
    pub fn is_plain(&self) -> bool {
        !self.held && !self.doubled && self.damage.is_none()
    }
}

/// Damage to a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Random number that selects the bit.
    pub place: u64,
    /// True if the transport's checksum is corrected, so that only the application can
    /// detect the damage.
    pub unseen: bool,
}

/// Counters of a link, in segments and in bytes on the wire.
///
/// `offered = delivered + cut + lost + queue_drops`. A duplicated segment counts once as
/// delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Segments offered.
    pub offered: u64,
    /// Bytes on the wire of the offered segments.
    pub offered_bytes: u64,
    /// Segments that arrive.
    pub delivered: u64,
    /// Bytes on the wire of the segments that arrive.
    pub delivered_bytes: u64,
    /// Segments lost while the link was cut.
    pub cut: u64,
    /// Segments lost at random.
    pub lost: u64,
    /// Segments dropped because the queue was full.
    pub queue_drops: u64,
    /// Segments held back.
    pub held: u64,
    /// Segments that arrive twice.
    pub doubled: u64,
    /// Segments damaged with a checksum that no longer matches.
    pub corrupted: u64,
    /// Segments damaged with a corrected checksum.
    pub corrupted_unseen: u64,
    /// Maximum number of bytes in the queue at any time.
    pub highest_queue: u64,
}

/// One direction of a path.
#[derive(Clone, Debug)]
pub struct Link {
    settings: LinkSettings,
    /// Time that a byte takes on the line in ticks of 2^-32 ns; 0 without a rate.
    ticks_a_byte: f64,
    /// Time at which the line has sent all accepted segments, in ticks.
    free_at: u128,
    /// Rates of the past whose segments may still be in the queue, oldest first: `free_at` and
    /// `ticks_a_byte` when the rate changed.
    earlier_rates: Vec<(u128, f64)>,
    /// Segments that keep their order arrive no earlier than this.
    last_arrival: Moment,
    /// Time of the latest offer.
    now: Moment,
    cut_until: Moment,
    loss: LossProcess,
    jitter: Jitter,
    accidents: Random,
    counters: LinkCounters,
    seed: u64,
}

/// Identifiers of the random number streams of a link.
mod purpose {
    pub const LOSS: u64 = 1;
    pub const JITTER: u64 = 2;
    pub const ACCIDENTS: u64 = 3;
}

impl Link {
    /// Creates a link that has carried no segment.
    ///
    /// # Errors
    ///
    /// See [`LinkSettings::check`].
    pub fn new(settings: LinkSettings, seed: u64) -> Result<Link, LinkError> {
        settings.check()?;
        Ok(Link {
            ticks_a_byte: ticks_a_byte(settings.rate),
            free_at: 0,
            earlier_rates: Vec::new(),
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

    /// Returns the current settings.
    pub fn settings(&self) -> &LinkSettings {
        &self.settings
    }

    /// Returns the counters since the creation.
    pub fn counters(&self) -> LinkCounters {
        self.counters
    }

    /// Counts a damaged segment. The caller applies the damage, which may be impossible.
    pub fn note_damage(&mut self, damage: &Damage) {
        self.counters.corrupted += u64::from(!damage.unseen);
        self.counters.corrupted_unseen += u64::from(damage.unseen);
    }

    /// Changes the settings for segments offered from now on. Segments in the queue or in
    /// flight keep their arrival times and are not overtaken.
    ///
    /// # Errors
    ///
    /// Returns the error of [`LinkSettings::check`]; the settings are then unchanged.
    pub fn set(&mut self, settings: LinkSettings) -> Result<(), LinkError> {
        settings.check()?;
        let now = to_ticks(self.now);
        self.earlier_rates.retain(|&(until, _)| until > now);
        let until_last = self.earlier_rates.last().map_or(now, |&(until, _)| until);
        if self.free_at > until_last {
            self.earlier_rates.push((self.free_at, self.ticks_a_byte));
        }
        self.ticks_a_byte = ticks_a_byte(settings.rate);
        if settings.loss != self.settings.loss {
            self.loss.set(settings.loss);
        }
        let seed = Random::for_purpose(self.seed, purpose::JITTER).bits();
        self.jitter = Jitter::new(settings.jitter, seed);
        self.settings = settings;
        Ok(())
    }

    /// Loses all segments that are offered before this moment. Segments in flight still
    /// arrive.
    pub fn cut_until(&mut self, until: Moment) {
        self.cut_until = until;
    }

    /// Returns the bytes on the wire that are in the queue or being sent.
    pub fn backlog(&self, now: Moment) -> ByteCount {
        let current = (self.free_at, self.ticks_a_byte);
        let rates = self.earlier_rates.iter().copied().chain([current]);
        let (mut from, mut bytes) = (to_ticks(now), 0.0);
        for (until, ticks_a_byte) in rates {
            if until > from {
                bytes += (until - from) as f64 / ticks_a_byte;
                from = until;
            }
        }
        ByteCount(bytes.round() as u64)
    }

    /// Decides the fate of a segment. `ip_bytes` is the length of its IP packet. If `now`
    /// is earlier than the latest offer, the time of the latest offer is used.
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

    /// Queues a segment of `wire` bytes. Returns the time at which it has left the line,
    /// or `None` if the queue is full.
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

    /// Applies delay, jitter, reordering, duplication and damage to a segment that left
    /// the line at `left`.
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

/// Converts ticks to a moment, rounded up: a segment has left when its last bit has left.
fn from_ticks(ticks: u128) -> Moment {
    let up = ticks.saturating_add((1 << FRACTION_BITS) - 1) >> FRACTION_BITS;
    Moment(u64::try_from(up).unwrap_or(u64::MAX))
}
