//! Chooses the number of streams while a transfer runs, from samples of the streams.
//!
//! Streams are added only if they help. [`start`] chooses the initial number. Then
//! [`Controller::handle_sample`] takes samples of the sending kernel's state, at any interval. It
//! combines samples into spans ([`measure`]) of several round trips and determines the bottleneck
//! of each span. More streams help if windows are limited by a kernel's buffer, or if loss or slow
//! growth keeps them small on a path without a queue. In these cases the controller makes trials:
//! first of another congestion control, if loss is the limit and the choice is free, then of more
//! streams.
//!
//! - While the transfer is **young** (the path was never full and no trial has failed), it doubles
//!   the streams, waits until the new streams are open and have grown, measures, and keeps the
//!   streams that helped. If the gain is at least the square root of the ratio, it keeps all, so
//!   that two transfers on one path converge to equal numbers. For a smaller gain it keeps the
//!   number that carries the new rate at the old rate per stream; without a gain, none.
//! - If **loss** is the limit and enough losses were observed, the law of the congestion control
//!   ([`crate::response`]) gives the number of streams for the highest observed rate of the path.
//!   The controller approaches it in steps that double. Streams that this law added and that were
//!   removed are rarely added again (`by_law`).
//! - **Later** trials add a quarter. Rates before and after are means over ten seconds, because the
//!   variation of a window is larger than the expected gain. After a failed trial the controller
//!   pauses, twice as long each time, unless the rate changes by itself.
//! - If the path is **always full** with more streams than at the start, an eighth of the streams
//!   is removed at a time.
//! - If packets take a **longer route** ([`reroute`]), the controller starts again with twice the
//!   streams.
//! - On a **slow path**, whose bandwidth-delay product is only a few segments for each stream,
//!   there are fewer streams than at the start. Otherwise the queue of all windows would delay and
//!   lose data.
//!
//! No streams are added if the path is full, a host's cores are busy, or streams wait for data or
//! for the receiver.
//!
//! The driver must apply a [`Decision`] as a whole. There is at most one for each span. Times are
//! arguments; the controller has no clock.

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

/// Length of a span in round trips, and its bounds. CUBIC's window needs several round trips for a
/// meaningful rate, and a span of many seconds would delay decisions.
const SPAN_ROUND_TRIPS: u32 = 6;
const SPAN_BOUNDS: (Duration, Duration) = (Duration::from_millis(300), Duration::from_secs(3));

/// Round trips until new streams are open (three: TCP, TLS, joining) and have grown to a few
/// hundred segments, or until another congestion control has found its rate.
const SETTLE_ROUND_TRIPS: u32 = 9;
const SETTLE_BOUNDS: (Duration, Duration) = (Duration::from_millis(300), Duration::from_secs(5));

/// Maximum number of further spans in a trial while the rate still grows, and of spans before
/// another congestion control is abandoned.
const PATIENCE: u32 = 4;

/// Pause after a failed trial: the first and the longest.
const REST: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(160));

/// A change of the rate by a factor outside these bounds means that conditions have changed.
/// CUBIC's window alone varies between 0.7 and 1.
const CHANGED: (f64, f64) = (0.6, 1.5);

/// Number of consecutive spans with such a change before it counts.
const CHANGED_SPANS: u32 = 3;

/// Minimum gain of a later trial.
const HELPED: f64 = 1.03;

/// Time in seconds of a full path before streams are removed.
const FULL_SECONDS: f64 = 8.0;

/// Minimum number of losses for an estimate of the loss.
const SOME_LOSSES: f64 = 3.0;

/// Number of consecutive spans with loss and without a queue that show random loss. A queue that
/// overflows causes at most two such spans.
const CHANCE_SPANS: u32 = 3;

/// Number of streams with losses above which losses are not specific to one stream.
const SEVERAL_STREAMS: usize = 3;

/// A rate below this part of the path's highest rate has fallen.
const FALLEN: f64 = 0.9;

/// The law of loss adds streams only if the rate is below this part of the path's highest rate.
const LACKS: f64 = 0.98;

/// A gain below this means that more streams had no effect, because rates vary by as much.
const NOTHING: f64 = 1.02;

/// Factor on the number of streams that is kept after a trial with a small gain, because windows
/// vary.
const SPARE: f64 = 1.15;

/// Minimum ratio of the rate with another congestion control to the rate before. Below 1 because
/// loss could not have sustained the rate before.
const WORSE: f64 = 0.9;

/// Number of spans within which a trial must pay off.
const PAYS_BACK_SPANS: u32 = 4;

/// If the loss rises by this factor after streams were added, the new streams caused it.
const LOSS_RISES: f64 = 1.5;

/// A path whose rate never exceeded this many bytes per second is slow. If each stream has fewer
/// segments per round trip than the first number, streams are removed until each has the second. If
/// each has more than the third, streams are added. On faster paths the cores and windows determine
/// the number.
const SLOW_PATH: f64 = 1e6;
const SEGMENTS_EACH: (f64, f64, f64) = (8.0, 32.0, 64.0);

/// `--nice` ignores round-trip times that are older than one to two times this. Otherwise, after a
/// change to a longer route, a queue would seem to persist forever. RFC 6817 also uses ten minutes
/// (BASE_HISTORY). Other transfers never discard a round-trip time, because they cause a queue
/// themselves.
const NICE_FORGETS: Duration = Duration::from_secs(600);

/// Limit on the unsent bytes in a stream's kernel buffer: the bytes of this time, within these
/// bounds. With less, the stream waits for this process; with more, its blocks wait in the buffer.
const UNSENT_SPAN: Duration = Duration::from_millis(40);
const UNSENT_BOUNDS: (u64, u64) = (256 << 10, 4 << 20);

/// The user's settings for the controller.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Fixed number of streams, if set.
    pub fixed_streams: Option<u32>,
    /// Maximum number of streams, at least 1.
    pub maximum_streams: u32,
    /// Congestion control at the start.
    pub congestion: Congestion,
    /// Another congestion control for a trial, if the choice is free and the sending host supports
    /// it.
    pub alternative: Option<Congestion>,
    /// True if the transfer yields to other traffic.
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

/// A trial in progress.
#[derive(Clone, Debug, PartialEq)]
struct Trial {
    /// Number of streams before the trial.
    streams: u32,
    /// Congestion control before the trial, if the trial changes it.
    congestion: Option<Congestion>,
    /// Rate before the trial in bytes per second.
    rate: f64,
    /// Number of additional spans because the rate was still growing.
    waited: u32,
    /// True if the transfer was young when the trial began.
    young: bool,
}

/// The controller of one transfer.
#[derive(Clone, Debug)]
pub struct Controller {
    settings: Settings,
    start_streams: u32,
    decision: Decision,
    congestion: Congestion,
    least: LeastRoundTrips,
    reroutes: Reroutes,
    /// Loss when streams were added; the least of all times.
    added_at_loss: Option<f64>,
    /// True if a queue was seen. If streams lose segments before a queue is seen, either the queue
    /// is too short to be seen, or the loss is random. Small windows then have no information about
    /// the path's rate.
    queued: bool,
    /// Time since when a queue has persisted without interruption. Distinguishes a queue from a
    /// short pause of a host.
    queue_since: Option<Moment>,
    /// Retransmissions of each stream on each path up to the last span that was not limited by
    /// windows or losses. They are excluded from later losses.
    forgiven: BTreeMap<(u32, u32), u64>,
    /// Time before which samples are ignored.
    settled: Moment,
    span: Option<Span>,
    trial: Option<Trial>,
    /// Rate after the last failed trial, and the end of the pause.
    rest: Option<(f64, Moment)>,
    next_rest: Duration,
    /// True while the path was never full and no trial has failed. Steps are then large.
    young: bool,
    period: Period,
    /// Number of streams in the next step by the law of loss.
    step: u32,
    by_law: ByLaw,
    /// Highest rate of the path in bytes per second.
    capacity: f64,
    /// Highest rate of any span in bytes per second. It shows that a path filled by others is not
    /// slow.
    fastest: f64,
    losses: Losses,
    /// Number of consecutive spans that were limited by loss and had no queue.
    by_chance: u32,
    /// True if a queue persisted through a span, so that the path's rate is known.
    filled: bool,
    /// Number of consecutive spans whose rate was far from the rate at the last failed trial.
    changed: u32,
    yielding: Yielding,
    /// Bottleneck of the last span, for reports.
    bound: Option<Bound>,
    measure: Option<Measure>,
}

impl Controller {
    /// Starts with the handshake's round-trip time and the initial number of streams
    /// ([`start::initial_streams`]).
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

    /// Returns the last decision.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Returns the bottleneck of the last span, or `None` before the first.
    pub fn bound(&self) -> Option<Bound> {
        self.bound
    }

    /// Returns the measurement of the last span, or `None` before the first.
    pub fn measured(&self) -> Option<&Measure> {
        self.measure.as_ref()
    }

    /// Returns the least round-trip time seen; with several paths, that of the longest.
    pub fn least_rtt(&self) -> Duration {
        self.least.longest()
    }

    /// Adds a sample. Returns a decision if a setting should change.
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
        // The kernel may have rejected the requested congestion control.
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

    /// Updates the least round-trip time of each path and the state of the queue.
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

    /// Evaluates a whole span.
    fn judge(&mut self, measure: &Measure, sample: &Sample) -> Option<Reason> {
        // Random loss does not rise with the number of streams.
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
            // An interruption has no information about streams. The next span starts anew.
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

    /// True if the losses of a span with this bottleneck have information about the path: windows
    /// were the limit, or the loss is too high for an unseen queue.
    fn says_of_loss(&self, bound: Bound, measure: &Measure) -> bool {
        match bound {
            Bound::Loss | Bound::Window | Bound::Growth => true,
            Bound::Path => self.congestion.takes_loss_for_congestion() && !measure.is_queued(),
            _ => false,
        }
    }

    /// Updates the state that spans longer than one depend on.
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

    /// Starts a trial if it could raise the rate.
    fn attempt(&mut self, bound: Bound, measure: &Measure, sample: &Sample) -> Option<Reason> {
        let rate = measure.bytes_per_second;
        let unseen = !self.queued && self.streams_that_lost(sample) >= SEVERAL_STREAMS;
        let overloaded = bound == Bound::Path && unseen && self.says_of_loss(bound, measure);
        let asks = bound.may_need_streams() || overloaded;
        if !asks || !self.pays(rate, sample) {
            return self.give_back(sample.at);
        }
        // Loss in a queue that is too short to be seen rises with the number of streams.
        let lacks = rate < self.capacity * LACKS;
        let known = self.asked_by_law(measure, sample.at).filter(|_| lacks);
        let lossy = bound == Bound::Loss && known.is_some();
        let by_loss = bound == Bound::Loss || bound == Bound::Window && unseen || overloaded;
        if by_loss && self.settings.alternative.is_some() {
            // Another congestion control may need no more streams. Other trials wait until the kind
            // of loss is known.
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
        // Later trials begin when the rate is low. Compared with that rate, it would rise by
        // itself, so the mean is used.
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

    /// Starts again after a change to a longer route. Windows that fitted the old route are too
    /// small for the new one, and grow slowly. BBR's windows even shrink for ten seconds, because
    /// it measured its product on the old route. New streams are in slow start, which is fast.
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

    /// Adapts the number of streams, up to the initial number, to the segments of a slow path. Each
    /// stream keeps a window of several segments. All segments beyond the path's bandwidth-delay
    /// product wait in its queue for seconds, or are lost there.
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

    /// Starts a trial of the other congestion control, which stays unless it carries less. BBR
    /// needs at most the initial number of streams. Other congestion controls keep the current
    /// number.
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

    /// Removes streams if the path is always full, because others may need its rate. Removed
    /// streams are added again in steps that do not depend on their number. As with TCP's windows,
    /// two transfers thus converge to equal numbers (Chiu and Jain 1989).
    fn give_back(&mut self, now: Moment) -> Option<Reason> {
        let streams = self.decision.streams;
        let full =
            self.period.seconds >= FULL_SECONDS && self.period.full >= self.period.seconds * 0.9;
        if full {
            // If the slow start of added streams fills the path only briefly, the law still
            // requires the rest of its number.
            self.step = first_step(self.start_streams);
        }
        let is_fixed = self.settings.fixed_streams.is_some();
        if !full || streams <= self.start_streams || is_fixed || !self.by_law.may_give_back(now) {
            return None;
        }
        let fewer = (streams - streams.div_ceil(8)).max(self.start_streams);
        // Later losses may be random.
        self.added_at_loss = self.added_at_loss.filter(|_| fewer > self.start_streams);
        let bytes_per_second = self.period.rate();
        self.by_law.give_back(now);
        self.set_streams(fewer, bytes_per_second);
        self.settle(now);
        Some(Reason::GiveBack { bytes_per_second })
    }

    /// Returns the number of streams that reach the path's highest rate, by the law of the
    /// congestion control and the observed loss. Returns `None` if the loss is unknown.
    fn streams_for_loss(&self, measure: &Measure) -> Option<u32> {
        let loss = self.losses.probability()?;
        let segments = self.capacity / measure.segment_bytes();
        let streams =
            response::streams_for_loss(&self.congestion, loss, self.least_rtt(), segments);
        Some((f64::from(streams) * SPARE).ceil() as u32)
    }

    /// Returns the number that the law requires if it exceeds the current number by at least two
    /// and by a sixteenth, or by one after a pause. The loss varies, and rises with streams that
    /// fill an unseen queue. So smaller differences would cause constant changes.
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

    /// Returns the number of streams for the next trial, or `None` for no trial.
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

    /// Ends a trial and keeps the streams that helped.
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
            // Streams that the law requires are not a gamble, so there is no need to wait.
            return None;
        }
        if grows || early {
            trial.waited += 1;
            self.trial = Some(trial);
            return None;
        }
        if trial.congestion.is_some() && matches!(bound, Bound::Supply | Bound::Receiver) {
            // If a disk is the limit, the rate has no information about the congestion control.
            self.trial = Some(trial);
            return None;
        }
        // The start of a congestion control is not part of its rate.
        let rate = if trial.young || trial.congestion.is_some() {
            rate
        } else {
            self.period.rate()
        };
        let gain = rate / trial.rate.max(1.0);
        if trial.congestion.is_some() && gain < WORSE && trial.waited < PATIENCE {
            // A start that overran the queue is not representative of its rate.
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

    /// Keeps as many of a trial's streams as helped.
    fn keep(&mut self, trial: &Trial, gain: f64, rate: f64, now: Moment) -> Option<Reason> {
        let ratio = f64::from(self.decision.streams) / f64::from(trial.streams);
        if gain >= if trial.young { ratio.sqrt() } else { HELPED } {
            // A further trial may follow at once.
            return None;
        }
        self.young = false;
        self.begin_rest(rate, now);
        let queued = |measure: &Measure| measure.is_queued() && self.reroutes.has_fallen(measure);
        if trial.young && self.measure.as_ref().is_some_and(queued) {
            // More streams only increased the round-trip time. So the cause is a queue, not a
            // longer route. Later trials have no information about a route that was full before.
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

    /// True if the law of loss requires more streams than there are.
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

    /// Discards earlier results if the rate changed by itself and stays changed.
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

    /// True if the remaining data justify a change: they need enough time, or the difference to the
    /// path's highest rate takes longer than a change.
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

    /// Limits the rate if others use the path.
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

    /// Returns the number of streams with losses that are not excluded.
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

/// Returns the first step of the law of loss, by the initial number of streams.
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

/// Returns the limit on the unsent bytes in one stream's kernel buffer, a power of two.
fn unsent_bound(rate: f64, streams: u32) -> ByteCount {
    let bytes = rate / f64::from(streams.max(1)) * UNSENT_SPAN.as_secs_f64();
    let bytes = (bytes as u64).clamp(UNSENT_BOUNDS.0, UNSENT_BOUNDS.1);
    ByteCount(bytes.next_power_of_two())
}
