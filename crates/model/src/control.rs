//! Decides while a transfer runs: observations in, stream counts out.
//!
//! Streams are added when they help and not before. [`start`] decides how many a transfer begins
//! with. From then on [`Controller::handle_sample`] takes what the sending end's kernel sees, many
//! times a round trip or few. It sums samples to spans ([`measure`]) of some round trips, and
//! determines what limited each span. More streams help if windows end at a kernel's buffer, or if
//! loss or slow growth keeps them small on a path without a queue. Then it tries: first another
//! congestion control, if loss is the limit and the choice is free, then more streams.
//!
//! - While the transfer is **young** (the path was never full and no try failed)
//!   it doubles, waits until new streams are open and have grown, measures, and
//!   keeps what helped. For a gain of the ratio's root it keeps all of them, so
//!   that two transfers on one path meet at equal numbers. For less it keeps as
//!   many as carry the new rate at the old rate per stream; for nothing, none.
//! - If **loss** is the limit and enough of it was seen, the law of the congestion
//!   control ([`crate::response`]) says how many streams carry what the path
//!   was seen to carry. It goes there in steps that double. What it added and was taken away
//!   comes back seldom (`by_law`).
//! - **Later** tries add a quarter. Both sides of them are means over ten
//!   seconds, since a window's ups and downs are larger than the expected gain.
//!   After a try that failed it rests, twice as long each time, unless the rate
//!   changes by itself.
//! - If the path is **always full** with more streams than at the start, an
//!   eighth is given back at a time.
//! - If packets take a **longer way** ([`reroute`]) it begins anew, with twice the streams.
//! - On a **slow path**, whose product is only a few segments for each stream, there are
//!   fewer than at the start: the queue of all those windows would delay and lose data.
//!
//! Nothing is added if the path is full, a host's cores are busy, streams wait for data, or the
//! receiver does.
//!
//! The driver applies a [`Decision`] as a whole; there is at most one for each span. Times are
//! arguments; there is no clock.

mod by_law;
pub mod decision;
pub mod layers;
pub mod least;
pub mod measure;
mod period;
pub mod reroute;
pub mod sample;
pub mod start;
pub mod yielding;

use std::collections::BTreeMap;
use std::time::Duration;

use longhaul_units::{ByteCount, Moment};

pub use decision::{Decision, Reason};
pub use measure::{Bound, Measure};
pub use sample::{Sample, StreamSample};

use crate::response::{self, Congestion};
use by_law::ByLaw;
use least::LeastRoundTrips;
use measure::Span;
use period::{LATER_SECONDS, Losses, Period};
use reroute::Reroutes;
use yielding::Yielding;

// tidy: long file because it is one controller, whose decisions share its state.

/// Round trips in a span, and how short and long it may be: cubic's window
/// takes several to say anything, and a span longer than seconds is too late.
const SPAN_ROUND_TRIPS: u32 = 6;
const SPAN_BOUNDS: (Duration, Duration) = (Duration::from_millis(300), Duration::from_secs(3));

/// Round trips after which new streams have opened (three: TCP, TLS, joining)
/// and grown to a few hundred segments, or another congestion control has
/// found its rate.
const SETTLE_ROUND_TRIPS: u32 = 9;
const SETTLE_BOUNDS: (Duration, Duration) = (Duration::from_millis(300), Duration::from_secs(5));

/// Spans that a growing rate is given before it is judged, and another congestion control
/// before it is given up.
const PATIENCE: u32 = 4;

/// How long it rests after a try that was not kept, at first and at most.
const REST: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(160));

/// A rate outside these parts of what it was means that something changed;
/// cubic's window alone goes between 0.7 and 1.
const CHANGED: (f64, f64) = (0.6, 1.5);

/// Spans in a row that must say so before it counts.
const CHANGED_SPANS: u32 = 3;

/// Later tries must carry so much more.
const HELPED: f64 = 1.03;

/// Streams are given back where the path was full for so long.
const FULL_SECONDS: f64 = 8.0;

/// With fewer losses their rate is a guess.
const SOME_LOSSES: f64 = 3.0;

/// Spans in a row in which something was lost and no queue stood say that it is by chance: a
/// queue that overflowed is two of them at most.
const CHANCE_SPANS: u32 = 3;

/// If this many streams lost something, it is not an accident of one.
const SEVERAL_STREAMS: usize = 3;

/// A rate below this part of what the path carried has fallen.
const FALLEN: f64 = 0.9;

/// The law of loss adds streams where this part of what the path carried is not reached.
const LACKS: f64 = 0.98;

/// With less than this part more, more streams did nothing: rates differ as
/// much by themselves.
const NOTHING: f64 = 1.02;

/// What is kept more than the rate asks for, of streams that helped less than
/// they are: windows go up and down.
const SPARE: f64 = 1.15;

/// Another congestion control stays unless it carries less than this part: the
/// rate before may have been one that loss would not have left.
const WORSE: f64 = 0.9;

/// A try must pay back within this many spans.
const PAYS_BACK_SPANS: u32 = 4;

/// Loss of this many times what was lost before streams were added is caused by them.
const LOSS_RISES: f64 = 1.5;

/// A path that never carried more bytes a second than this, and for each stream fewer segments in a
/// round trip than the first of these, gets so few that each has the second; and more again
/// where each has the third. On faster paths there are as many as cores and windows ask for.
const SLOW_PATH: f64 = 1e6;
const SEGMENTS_EACH: (f64, f64, f64) = (8.0, 32.0, 64.0);

/// `--nice` counts no round trip that was seen longer ago than once to twice this: after the
/// way of the packets has become longer, a queue would seem to stand for ever. RFC 6817 has ten
/// minutes as well (BASE_HISTORY). For others what was seen counts: they keep a queue themselves.
const NICE_FORGETS: Duration = Duration::from_secs(600);

/// A stream's kernel holds unsent what it sends in this time, between these:
/// less and it waits for this process, more and its blocks wait for it.
const UNSENT_SPAN: Duration = Duration::from_millis(40);
const UNSENT_BOUNDS: (u64, u64) = (256 << 10, 4 << 20);

/// How the user bound the controller.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Streams are as many as this, or free.
    pub fixed_streams: Option<u32>,
    /// Most streams, 1 or more.
    pub maximum_streams: u32,
    /// What governs streams at the start.
    pub congestion: Congestion,
    /// Another congestion control that may be tried, if the choice is free and the sending host
    /// supports it.
    pub alternative: Option<Congestion>,
    /// Yield to others.
    pub nice: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            fixed_streams: None,
            maximum_streams: 512,
            congestion: Congestion::Cubic,
            alternative: None,
            nice: false,
        }
    }
}

/// What is being tried.
#[derive(Clone, Debug, PartialEq)]
struct Trial {
    /// Streams before.
    streams: u32,
    /// Congestion control before, where that is what is tried.
    congestion: Option<Congestion>,
    /// Rate before in bytes per second.
    rate: f64,
    /// Spans that it was given longer because the rate still grew.
    waited: u32,
    /// Steps were large when it began.
    young: bool,
}

/// Decides for one transfer.
#[derive(Clone, Debug)]
pub struct Controller {
    settings: Settings,
    start_streams: u32,
    decision: Decision,
    congestion: Congestion,
    least: LeastRoundTrips,
    reroutes: Reroutes,
    /// Part of the segments that was lost when streams were added, the least.
    added_at_loss: Option<f64>,
    /// A queue was seen to stand. Where streams lost something before one was, it is too short
    /// to be seen, or they lose by chance: small windows say nothing of what the path carries.
    queued: bool,
    /// Since when one stands without a break: a host that rests for a moment is none.
    queue_since: Option<Moment>,
    /// What each stream, on each path, had sent again when neither windows nor losses bound
    /// last: what was lost then says nothing of later.
    forgiven: BTreeMap<(u32, u32), u64>,
    /// Nothing is measured before this.
    settled: Moment,
    span: Option<Span>,
    trial: Option<Trial>,
    /// The rate when a try was last not kept, and until when it rests.
    rest: Option<(f64, Moment)>,
    next_rest: Duration,
    /// The path was not full yet and no try failed: steps are large.
    young: bool,
    period: Period,
    /// Streams that the next step adds where the law of loss asks for more.
    step: u32,
    by_law: ByLaw,
    /// The most that the path carried, in bytes per second.
    capacity: f64,
    /// The highest rate of any span, in bytes per second: a path that others fill is not slow.
    fastest: f64,
    losses: Losses,
    /// Spans in a row in which loss bound, and no queue stood.
    by_chance: u32,
    /// A queue stood through a span: what the path carries is known.
    filled: bool,
    /// Spans in a row whose rate was far from the one it rests at.
    changed: u32,
    yielding: Yielding,
    /// What limited the last span, for reports.
    bound: Option<Bound>,
    measure: Option<Measure>,
}

impl Controller {
    /// Begins, `rtt` being the handshake's round trip and `streams` what the
    /// transfer began with ([`start::initial_streams`]).
    pub fn new(settings: Settings, rtt: Duration, streams: u32, now: Moment) -> Controller {
        let free = if settings.nice { 1 } else { streams };
        let lasts = settings.nice.then_some(NICE_FORGETS);
        let streams = settings.fixed_streams.unwrap_or(free);
        let streams = streams.clamp(1, settings.maximum_streams.max(1));
        let decision = Decision {
            streams,
            congestion: None,
            pace: None,
            unsent: ByteCount(UNSENT_BOUNDS.1),
            reason: Reason::Start { rtt },
        };
        Controller {
            congestion: settings.congestion.clone(),
            settings,
            start_streams: streams,
            decision,
            least: LeastRoundTrips::new(rtt, lasts),
            reroutes: Reroutes::default(),
            added_at_loss: None,
            queued: false,
            queue_since: None,
            forgiven: BTreeMap::new(),
            settled: now + settle_time(rtt),
            span: None,
            trial: None,
            rest: None,
            next_rest: REST.0,
            young: true,
            period: Period::default(),
            step: first_step(streams),
            by_law: ByLaw::default(),
            capacity: 0.0,
            fastest: 0.0,
            losses: Losses::default(),
            by_chance: 0,
            filled: false,
            changed: 0,
            yielding: Yielding::default(),
            bound: None,
            measure: None,
        }
    }

    /// What was decided last.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// What bound the last span; none before the first.
    pub fn bound(&self) -> Option<Bound> {
        self.bound
    }

    /// What the last span showed; none before the first.
    pub fn measured(&self) -> Option<&Measure> {
        self.measure.as_ref()
    }

    /// The least round trip seen, of several paths the longest one's.
    pub fn least_rtt(&self) -> Duration {
        self.least.longest()
    }

    /// Takes a sample; returns a decision if something should change.
    pub fn handle_sample(&mut self, sample: &Sample) -> Option<Decision> {
        self.learn_paths(sample);
        if sample.at < self.settled {
            return None;
        }
        let span = self.span.get_or_insert_with(|| Span::new(sample));
        span.add(sample, &self.least);
        if span.length() < span_time(self.least.longest()) {
            return None;
        }
        // What was asked for may have been refused.
        if let Some(seen) = &sample.congestion {
            self.congestion = seen.clone();
        }
        let measure = span.measure();
        self.span = Some(Span::new(sample));
        let measure = measure?;
        let reason = self.judge(&measure, sample)?;
        self.decision.reason = reason;
        Some(self.decision.clone())
    }

    /// Each path's least round trip, and whether a queue stands.
    fn learn_paths(&mut self, sample: &Sample) {
        let now = measure::round_trips(&sample.streams);
        self.least.learn(&now, sample.at);
        self.reroutes.look(&now, &self.least, sample.at);
        let mut queue = None;
        for (path, trips) in &now {
            let known = self.least.get(*path).unwrap_or(trips.least);
            if trips.is_queued(known) {
                queue = queue.max(Some(known));
            }
        }
        self.queue_since = queue.and(self.queue_since).or(queue.map(|_| sample.at));
        let stood = self.queue_since.map(|since| sample.at - since);
        self.queued |= stood
            .zip(queue)
            .is_some_and(|(stood, rtt)| stood >= rtt * 2 && !stood.is_zero());
    }

    /// Looks at a whole span.
    fn judge(&mut self, measure: &Measure, sample: &Sample) -> Option<Reason> {
        // What is lost by chance does not rise with their number.
        let rises = |before: f64| measure.loss > before * LOSS_RISES;
        let by_chance = self.queued && !self.added_at_loss.is_some_and(rises);
        let bound = measure.bound(&self.congestion, by_chance);
        self.bound = Some(bound);
        self.measure = Some(*measure);
        if !self.says_of_loss(bound, measure) {
            let lost = |stream: &StreamSample| ((stream.stream, stream.path), stream.retransmitted);
            self.forgiven = sample.streams.iter().map(lost).collect();
        }
        if bound == Bound::Silence {
            // A cut says nothing about streams: what follows begins anew.
            self.settle(sample.at);
            return None;
        }
        self.learn(bound, measure);
        if self.settings.nice {
            return self.pace(measure);
        }
        if let Some(reason) = self.fit(bound, measure, sample.at) {
            return Some(reason);
        }
        self.reroutes.carry(measure);
        let tries_another = |trial: &Trial| trial.congestion.is_some();
        if bound == Bound::Path && !self.trial.as_ref().is_some_and(tries_another) {
            let longer = self.reroutes.find(measure, &self.least, sample.at);
            if !longer.is_empty() {
                return self.begin_anew(&longer, measure, sample);
            }
        }
        if let Some(trial) = self.trial.take() {
            return self.judge_trial(trial, bound, measure.bytes_per_second, sample.at);
        }
        self.attempt(bound, measure, sample)
    }

    /// Whether what was lost in a span that was bound so says something of the path: windows
    /// were, or too much was lost for a queue that nobody saw.
    fn says_of_loss(&self, bound: Bound, measure: &Measure) -> bool {
        match bound {
            Bound::Loss | Bound::Window | Bound::Growth => true,
            Bound::Path => self.congestion.takes_loss_for_congestion() && !measure.is_queued(),
            _ => false,
        }
    }

    /// What a span says beyond itself.
    fn learn(&mut self, bound: Bound, measure: &Measure) {
        let rate = measure.bytes_per_second;
        self.fastest = self.fastest.max(rate);
        self.decision.unsent = unsent_bound(rate, self.decision.streams);
        self.period.add(bound, measure);
        if bound == Bound::Path {
            self.young = false;
            self.capacity = rate;
        } else {
            self.capacity = self.capacity.max(rate);
        }
        if bound == Bound::Loss || bound == Bound::Window {
            self.losses.add(measure);
        }
        self.filled |= measure.is_queued();
        self.by_chance = if bound == Bound::Loss && measure.has_no_queue() {
            self.by_chance + 1
        } else {
            0
        };
        self.notice_change(rate);
    }

    /// Tries what may carry more.
    fn attempt(&mut self, bound: Bound, measure: &Measure, sample: &Sample) -> Option<Reason> {
        let rate = measure.bytes_per_second;
        let unseen = !self.queued && self.streams_that_lost(sample) >= SEVERAL_STREAMS;
        let overloaded = bound == Bound::Path && unseen && self.says_of_loss(bound, measure);
        let asks = bound.may_need_streams() || overloaded;
        if !asks || !self.pays(rate, sample) {
            return self.give_back(sample.at);
        }
        // What is lost in a queue that is too short to be seen rises with their number.
        let lacks = rate < self.capacity * LACKS;
        let known = self.asked_by_law(measure, sample.at).filter(|_| lacks);
        let lossy = bound == Bound::Loss && known.is_some();
        let by_loss = bound == Bound::Loss || bound == Bound::Window && unseen || overloaded;
        if by_loss && self.settings.alternative.is_some() {
            // Another congestion control may do without more streams: nothing
            // else is tried until it is known what loss this is.
            let falls = self.losses.events >= SOME_LOSSES && rate < self.capacity * FALLEN;
            let chance = self.by_chance >= CHANCE_SPANS && self.losses.probability().is_some();
            let never_full = chance && !self.filled;
            if !lossy && !falls && !unseen && !never_full {
                return None;
            }
            return self.switch(measure, sample.at);
        }
        if overloaded {
            return self.give_back(sample.at);
        }
        let more = self.more_streams(known.filter(|_| lossy), sample.at)?;
        // Later tries begin where a rate is low: it would rise by itself.
        let before = if self.young { rate } else { self.period.rate() };
        self.begin_trial(before, None, sample.at);
        self.set_streams(more, rate);
        if lossy {
            self.by_law.add(sample.at);
        }
        let least = self.added_at_loss.unwrap_or(measure.loss);
        self.added_at_loss = Some(measure.loss.min(least));
        Some(Reason::Try {
            bound,
            bytes_per_second: rate,
            loss: measure.loss,
        })
    }

    /// Packets take a longer way. Windows that fitted the way before are too small for this one,
    /// and take long to grow; BBR's, whose product was measured on it, even shrink for ten
    /// seconds. New streams start slowly, that is fast.
    fn begin_anew(
        &mut self,
        longer: &[(u32, Duration)],
        measure: &Measure,
        sample: &Sample,
    ) -> Option<Reason> {
        for (path, rtt) in longer {
            self.least.reroute(*path, *rtt, sample.at);
            self.reroutes.forget(*path);
        }
        let (rtt, rate) = (self.least_rtt(), measure.bytes_per_second);
        self.capacity = self.reroutes.carried();
        (self.queued, self.queue_since, self.filled) = (false, None, false);
        (self.rest, self.next_rest, self.young) = (None, REST.0, true);
        (self.losses, self.by_chance, self.trial) = (Losses::default(), 0, None);
        self.by_law = ByLaw::default();
        self.step = first_step(self.decision.streams);
        self.settle(sample.at);
        if !self.pays(rate, sample) {
            return None;
        }
        let more = self.more_streams(None, sample.at)?;
        self.begin_trial(rate, None, sample.at);
        self.set_streams(more, rate);
        self.added_at_loss = Some(measure.loss);
        let bytes_per_second = rate;
        Some(Reason::Reroute {
            rtt,
            bytes_per_second,
        })
    }

    /// Has as many streams, up to those at the start, as a slow path has segments for: each
    /// keeps a window of some, and what all of them keep beyond the path's product waits in its
    /// queue, for seconds, or is lost there.
    fn fit(&mut self, bound: Bound, measure: &Measure, now: Moment) -> Option<Reason> {
        let (rate, streams) = (measure.bytes_per_second, self.decision.streams);
        let segments = rate * self.least_rtt().as_secs_f64() / measure.segment_bytes();
        let wanted = (segments / SEGMENTS_EACH.1).ceil() as u32;
        let wanted = wanted.clamp(1, self.start_streams);
        let each = segments / f64::from(streams);
        let full = bound == Bound::Path && measure.is_queued() && self.fastest < SLOW_PATH;
        let fewer = full && each < SEGMENTS_EACH.0 && wanted < streams;
        let more = streams < self.start_streams && each > SEGMENTS_EACH.2 && wanted > streams;
        if !(fewer || more) || self.settings.fixed_streams.is_some() {
            return None;
        }
        if self.trial.take().is_some() {
            self.begin_rest(rate, now);
        }
        self.set_streams(wanted, rate);
        self.settle(now);
        Some(Reason::Fit {
            bytes_per_second: rate,
        })
    }

    /// Tries the other congestion control; it stays unless it carries less. BBR needs no more
    /// streams than there were at the start; the others continue with what they have.
    fn switch(&mut self, measure: &Measure, now: Moment) -> Option<Reason> {
        let to = self.settings.alternative.take()?;
        let rate = measure.bytes_per_second;
        self.begin_trial(rate, Some(self.congestion.clone()), now);
        self.set_congestion(to.clone());
        if to == Congestion::Bbr && self.settings.fixed_streams.is_none() {
            self.set_streams(self.decision.streams.min(self.start_streams), rate);
        }
        let loss = measure.loss;
        Some(Reason::Switch { to, loss })
    }

    /// Where the path is always full there may be more streams than it takes;
    /// others may want it. What is given back comes again in steps that do not
    /// depend on how many there are: as with TCP's own windows, that leads two
    /// transfers to equal numbers (Chiu and Jain 1989).
    fn give_back(&mut self, now: Moment) -> Option<Reason> {
        let streams = self.decision.streams;
        let full =
            self.period.seconds >= FULL_SECONDS && self.period.full >= self.period.seconds * 0.9;
        if full {
            // Where it fills for a moment, by the slow start of those that were added, the
            // law still asks for the rest of its number.
            self.step = first_step(self.start_streams);
        }
        let is_fixed = self.settings.fixed_streams.is_some();
        if !full || streams <= self.start_streams || is_fixed || !self.by_law.may_give_back(now) {
            return None;
        }
        let fewer = (streams - streams.div_ceil(8)).max(self.start_streams);
        // What is lost then may be by chance after all.
        self.added_at_loss = self.added_at_loss.filter(|_| fewer > self.start_streams);
        let bytes_per_second = self.period.rate();
        self.by_law.give_back(now);
        self.set_streams(fewer, bytes_per_second);
        self.settle(now);
        Some(Reason::GiveBack { bytes_per_second })
    }

    /// Streams that carry what the path was seen to carry, by the law of the congestion control
    /// under the loss that was seen; `None` if it is not known.
    fn streams_for_loss(&self, measure: &Measure) -> Option<u32> {
        let loss = self.losses.probability()?;
        let segments = self.capacity / measure.segment_bytes();
        let streams =
            response::streams_for_loss(&self.congestion, loss, self.least_rtt(), segments);
        Some((f64::from(streams) * SPARE).ceil() as u32)
    }

    /// The same, where it is more than there are by two and a sixteenth, or by less after a pause:
    /// what is lost goes up and down, and rises with streams that fill a queue nobody sees. Each
    /// further stream would be a change.
    fn asked_by_law(&self, measure: &Measure, now: Moment) -> Option<u32> {
        let streams = self.decision.streams;
        let known = self.streams_for_loss(measure)?;
        let more = if self.by_law.has_paused(now) {
            1
        } else {
            streams.div_ceil(16).max(2)
        };
        (known >= streams.saturating_add(more)).then_some(known)
    }

    /// How many streams to try now; `None` for no try.
    fn more_streams(&mut self, known: Option<u32>, now: Moment) -> Option<u32> {
        let streams = self.decision.streams;
        let most = self.settings.maximum_streams;
        if self.settings.fixed_streams.is_some() || streams >= most {
            return None;
        }
        let twice = streams.saturating_mul(2);
        let wanted = match known {
            _ if self.young => twice,
            Some(_) if !self.by_law.may_add(now) => return None,
            Some(known) if self.by_law.adds_at_once() => known,
            Some(known) => {
                let step = self.step;
                self.step = step.saturating_mul(2);
                known.min(streams.saturating_add(step))
            }
            _ if self.is_resting(now) || !self.period.is_wanting() => return None,
            _ => streams + streams.div_ceil(4),
        };
        Some(wanted.min(twice).min(most))
    }

    fn begin_trial(&mut self, rate: f64, congestion: Option<Congestion>, now: Moment) {
        self.trial = Some(Trial {
            streams: self.decision.streams,
            congestion,
            rate,
            waited: 0,
            young: self.young,
        });
        self.settle(now);
    }

    /// Keeps what helped.
    fn judge_trial(
        &mut self,
        mut trial: Trial,
        bound: Bound,
        rate: f64,
        now: Moment,
    ) -> Option<Reason> {
        let grows = bound == Bound::Growth && trial.waited < PATIENCE;
        let streams = trial.congestion.is_none();
        let early = streams && !trial.young && self.period.seconds < LATER_SECONDS;
        if early && bound.may_need_streams() && self.lacks_by_law(now) {
            // What loss asks for is no gamble: no need to wait.
            return None;
        }
        if grows || early {
            trial.waited += 1;
            self.trial = Some(trial);
            return None;
        }
        if trial.congestion.is_some() && matches!(bound, Bound::Supply | Bound::Receiver) {
            // What a disk gives or takes says nothing of it.
            self.trial = Some(trial);
            return None;
        }
        // A congestion control's start is no part of what it carries.
        let rate = if trial.young || trial.congestion.is_some() {
            rate
        } else {
            self.period.rate()
        };
        let gain = rate / trial.rate.max(1.0);
        if trial.congestion.is_some() && gain < WORSE && trial.waited < PATIENCE {
            // A start that overran the queue is not what it carries.
            trial.waited += 1;
            self.trial = Some(trial);
            return None;
        }
        if let Some(congestion) = trial.congestion.take() {
            if gain >= WORSE {
                return None;
            }
            self.set_congestion(congestion.clone());
            self.set_streams(trial.streams, rate);
            self.settle(now);
            return Some(Reason::SwitchBack { to: congestion });
        }
        self.keep(&trial, gain, rate, now)
    }

    /// Keeps as many of a try's streams as helped.
    fn keep(&mut self, trial: &Trial, gain: f64, rate: f64, now: Moment) -> Option<Reason> {
        let ratio = f64::from(self.decision.streams) / f64::from(trial.streams);
        if gain >= if trial.young { ratio.sqrt() } else { HELPED } {
            // It may be worth more still, at once.
            return None;
        }
        self.young = false;
        self.begin_rest(rate, now);
        let queued = |measure: &Measure| measure.is_queued() && self.reroutes.has_fallen(measure);
        if trial.young && self.measure.as_ref().is_some_and(queued) {
            // More streams only made it longer: no way that has become longer, but a queue. What
            // later tries find says nothing of a way that was filled before.
            self.least.undo_reroutes(now);
        }
        let enough = if gain >= NOTHING && trial.young {
            (f64::from(trial.streams) * gain * SPARE).ceil() as u32
        } else {
            trial.streams
        };
        let known = self
            .measure
            .and_then(|measure| self.streams_for_loss(&measure));
        let enough = enough.max(known.unwrap_or(1)).max(trial.streams);
        if enough >= self.decision.streams {
            return None;
        }
        self.by_law.undo(now);
        self.set_streams(enough, rate);
        self.settle(now);
        let (before, after) = (trial.rate, rate);
        Some(Reason::Settle { before, after })
    }

    /// Whether the law of loss asks for more streams than there are.
    fn lacks_by_law(&self, now: Moment) -> bool {
        let measure = self.measure.filter(|_| self.bound == Some(Bound::Loss));
        measure.is_some_and(|measure| self.asked_by_law(&measure, now).is_some())
    }

    fn begin_rest(&mut self, rate: f64, now: Moment) {
        self.rest = Some((rate, now + self.next_rest));
        self.next_rest = (self.next_rest * 2).min(REST.1);
    }

    fn is_resting(&self, now: Moment) -> bool {
        self.rest.is_some_and(|(_, until)| now < until)
    }

    /// A rate that changed by itself, and stays so, makes what was found out
    /// worthless.
    fn notice_change(&mut self, rate: f64) {
        let Some((known, _)) = self.rest else {
            return;
        };
        let part = rate / known.max(1.0);
        let outside = part < CHANGED.0 || part > CHANGED.1;
        self.changed = if outside { self.changed + 1 } else { 0 };
        if self.changed >= CHANGED_SPANS {
            self.changed = 0;
            self.rest = None;
            self.next_rest = REST.0;
            self.by_law = ByLaw::default();
            self.capacity = rate;
        }
    }

    /// Whether there is enough left to send for a change to be of use: a while of it, or so much
    /// that what the rate lacks of what the path was seen to carry takes longer than a change.
    fn pays(&self, rate: f64, sample: &Sample) -> bool {
        let Some(remaining) = sample.remaining else {
            return true;
        };
        let left = remaining.0 as f64 / rate.max(1.0);
        let settle_time = settle_time(self.least_rtt());
        let try_time = settle_time + span_time(self.least_rtt()) * PAYS_BACK_SPANS;
        let lacks = (1.0 - rate / self.capacity.max(1.0)).max(0.0);
        left > try_time.as_secs_f64() || left * lacks > settle_time.as_secs_f64()
    }

    /// Yields where others use the path.
    fn pace(&mut self, measure: &Measure) -> Option<Reason> {
        let before = self.yielding.bytes_per_second();
        let rate = measure.bytes_per_second;
        let bytes_per_second = self.yielding.handle(rate, measure.queued)?;
        self.decision.pace = Some(bytes_per_second / f64::from(self.decision.streams));
        Some(if before.is_some_and(|before| bytes_per_second > before) {
            Reason::Resume { bytes_per_second }
        } else {
            Reason::Yield { bytes_per_second }
        })
    }

    fn set_congestion(&mut self, congestion: Congestion) {
        self.decision.congestion = Some(congestion.clone());
        self.congestion = congestion;
    }

    fn set_streams(&mut self, streams: u32, rate: f64) {
        self.decision.streams = streams;
        self.decision.unsent = unsent_bound(rate, streams);
    }

    /// Streams that have lost something that is not forgiven.
    fn streams_that_lost(&self, sample: &Sample) -> usize {
        let lost = |stream: &&StreamSample| {
            let forgiven = self.forgiven.get(&(stream.stream, stream.path));
            stream.retransmitted > forgiven.copied().unwrap_or(0)
        };
        sample.streams.iter().filter(lost).count()
    }

    fn settle(&mut self, now: Moment) {
        self.settled = now + settle_time(self.least_rtt());
        self.span = None;
        self.period = Period::default();
    }
}

/// What the law of loss may add first, by the number at the start.
fn first_step(streams: u32) -> u32 {
    (streams / 2).max(2)
}

fn settle_time(rtt: Duration) -> Duration {
    rtt.saturating_mul(SETTLE_ROUND_TRIPS)
        .clamp(SETTLE_BOUNDS.0, SETTLE_BOUNDS.1)
}

fn span_time(rtt: Duration) -> Duration {
    rtt.saturating_mul(SPAN_ROUND_TRIPS)
        .clamp(SPAN_BOUNDS.0, SPAN_BOUNDS.1)
}

/// What one stream's kernel may hold unsent, a power of two of bytes.
fn unsent_bound(rate: f64, streams: u32) -> ByteCount {
    let bytes = rate / f64::from(streams.max(1)) * UNSENT_SPAN.as_secs_f64();
    let bytes = (bytes as u64).clamp(UNSENT_BOUNDS.0, UNSENT_BOUNDS.1);
    ByteCount(bytes.next_power_of_two())
}
