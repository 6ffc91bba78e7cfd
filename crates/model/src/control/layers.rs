//! Decides the numbers of flows of a transfer's layers while it runs: readers, compressors,
//! decompressors, writers, committers. It adds where the bottleneck is, takes away what does not
//! help, and leaves room for others.
//!
//! A state machine without a clock: [`LayersControl::observe`] takes what was seen in a period and
//! gives what to change. Each change is a trial: it stays only where the utility rises, the rate by
//! a penalty for each flow, as in Falcon. So two transfers that share a disk end with the same
//! number of flows, since the one with fewer gains more by a further one.
//!
//! A trial that failed is not repeated for a while, each time for twice as long, so that it does
//! not oscillate. It is tried again at once where the rate changed by itself.

use std::time::Duration;

/// What was seen of one layer in a period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerSight {
    /// Flows that it has.
    pub flows: u32,
    /// Flows of which none is taken away, 1 or more.
    pub least: u32,
    /// Flows that it may have, 1 or more.
    pub most: u32,
    /// The share of the period that its flows worked, 0 to 1; the rest they waited for data or for
    /// room.
    pub busy: f64,
}

/// What was seen of a transfer in a period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sight<'a> {
    /// Bytes of the source per second.
    pub rate: f64,
    /// The layers, always the same ones in the same order.
    pub layers: &'a [LayerSight],
    /// The round trip: what is changed here is seen there after it.
    pub rtt: Duration,
    /// The share of both hosts' processors that is free, 0 to 1, the least of the two.
    pub free_cpu: f64,
}

/// A layer gets another number of flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowChange {
    /// Its place among the layers.
    pub layer: usize,
    /// Flows from now on, 1 or more.
    pub flows: u32,
}

/// What a further flow must gain, as a factor. Falcon's 1.02 gives a disk that fills slowly a tenth
/// less than it could carry; with this it is a twentieth.
const FLOW_PENALTY: f64 = 1.004;

/// A layer that works for so much of its time is a bottleneck: what is left is noise.
const BOTTLENECK: f64 = 0.85;

/// One that was a bottleneck is one until it works for less than this.
const NO_BOTTLENECK: f64 = 0.75;

/// Flows are taken away until the layer works for so much of its time.
const ENOUGH: f64 = 0.75;

/// Below this share of free processors no flow is added: others need them.
const LEAST_FREE_CPU: f64 = 0.03;

/// Periods over which more flows are measured, and the rate before.
const PERIODS: usize = 3;

/// Periods over which fewer flows are measured: nothing waits for it.
const PERIODS_OF_FEWER: usize = 6;

/// A gain below this share, beyond the penalty, is noise.
const LEAST_GAIN: f64 = 0.01;

/// A loss below this share, beyond the penalty, is noise: it does not keep flows that do nothing.
const LEAST_LOSS: f64 = 0.005;

/// The first pause after a trial that failed, and the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(8);
const LONGEST_PAUSE: Duration = Duration::from_mins(10);

/// Where the mean of [`PERIODS`] is so far, relative, from what it was when something was last
/// kept, something else changed, and all may be tried again.
const CHANGED: f64 = 0.15;

/// What is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// More flows in one layer.
    More(usize),
    /// More in all layers that limit together.
    Together,
    /// Fewer in one layer.
    Fewer(usize),
}

/// When a trial may be repeated.
#[derive(Clone, Copy, Debug, Default)]
struct Pause {
    until: Duration,
    length: Duration,
}

impl Pause {
    fn longer(&mut self, now: Duration) {
        self.length = (self.length * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.until = now + self.length;
    }
}

/// What is under way.
#[derive(Clone, Debug)]
enum Phase {
    /// Nothing: the rate is measured.
    Steady,
    /// A change was taken back; what is seen until then belongs to it.
    Returning(Duration),
    /// A change is measured from then on.
    Trying(Duration, Trial),
}

#[derive(Clone, Debug)]
struct Trial {
    kind: Kind,
    /// What was before.
    back: Vec<FlowChange>,
    /// Flows that there are more than before.
    more: f64,
    /// The rate before.
    rate: f64,
    /// Rates since.
    seen: Vec<f64>,
}

/// The controller of all layers of a transfer.
#[derive(Clone, Debug)]
pub struct LayersControl {
    phase: Phase,
    /// Rates of the last steady periods, the newest last.
    recent: Vec<f64>,
    /// The rate when something was last kept.
    settled: f64,
    /// Which layers limit.
    limits: Vec<bool>,
    more: Vec<Pause>,
    fewer: Vec<Pause>,
    together: Pause,
}

impl LayersControl {
    /// For that many layers.
    pub fn new(layers: usize) -> LayersControl {
        LayersControl {
            phase: Phase::Steady,
            recent: Vec::new(),
            settled: 0.0,
            limits: vec![false; layers],
            more: vec![Pause::default(); layers],
            fewer: vec![Pause::default(); layers],
            together: Pause::default(),
        }
    }

    /// Takes what was seen in the period that ended at `now`, and says what to change, if anything.
    /// Periods are about as long as 0.2 s.
    pub fn observe(&mut self, now: Duration, sight: &Sight) -> Vec<FlowChange> {
        if sight.layers.len() != self.more.len() || !sight.rate.is_finite() {
            return Vec::new();
        }
        match std::mem::replace(&mut self.phase, Phase::Steady) {
            Phase::Returning(until) if now <= until => {
                self.phase = Phase::Returning(until);
                Vec::new()
            }
            Phase::Trying(from, trial) if now <= from => {
                self.phase = Phase::Trying(from, trial);
                Vec::new()
            }
            Phase::Trying(from, trial) => self.measure(now, sight, (from, trial)),
            Phase::Steady | Phase::Returning(_) => self.steady(now, sight),
        }
    }

    fn steady(&mut self, now: Duration, sight: &Sight) -> Vec<FlowChange> {
        self.recent.push(sight.rate);
        if self.recent.len() < PERIODS {
            return Vec::new();
        }
        let rate = mean(&self.recent);
        self.recent.remove(0);
        if (rate - self.settled).abs() > CHANGED * self.settled {
            self.try_all_again();
            self.settled = rate;
        }
        self.see_limits(sight);
        let Some((kind, changes)) = self.next(now, sight) else {
            return Vec::new();
        };
        let back = changes.iter().map(|change| FlowChange {
            layer: change.layer,
            flows: sight.layers[change.layer].flows,
        });
        let back: Vec<FlowChange> = back.collect();
        let all =
            |changes: &[FlowChange]| changes.iter().map(|it| f64::from(it.flows)).sum::<f64>();
        let trial = Trial {
            kind,
            more: all(&changes) - all(&back),
            back,
            rate,
            seen: Vec::new(),
        };
        self.recent.clear();
        self.phase = Phase::Trying(now + sight.rtt, trial);
        changes
    }

    fn try_all_again(&mut self) {
        self.more.fill(Pause::default());
        self.fewer.fill(Pause::default());
        self.together = Pause::default();
    }

    /// Where a layer limits or stops limiting, what did not help before may help now.
    fn see_limits(&mut self, sight: &Sight) {
        let mut differ = false;
        for (limits, it) in self.limits.iter_mut().zip(sight.layers) {
            let bound = if *limits { NO_BOTTLENECK } else { BOTTLENECK };
            differ |= *limits != (it.busy >= bound);
            *limits = it.busy >= bound;
        }
        if differ {
            self.more
                .iter_mut()
                .for_each(|pause| pause.until = Duration::ZERO);
            self.together.until = Duration::ZERO;
        }
    }

    /// What to try next: more flows in the busiest layer; more in all that limit together; fewer in
    /// a layer that limits, since it may be one that more flows slow down; fewer in the others.
    fn next(&self, now: Duration, sight: &Sight) -> Option<(Kind, Vec<FlowChange>)> {
        let mut order: Vec<usize> = (0..sight.layers.len()).collect();
        order.sort_by(|&a, &b| sight.layers[b].busy.total_cmp(&sight.layers[a].busy));
        let limiting = order
            .iter()
            .filter(|&&at| sight.layers[at].busy >= BOTTLENECK);
        let limiting = limiting.count();
        let (limits, others) = order.split_at(limiting);
        let has_room = |layer: usize| sight.layers[layer].flows < sight.layers[layer].most;
        let change = |layer: usize, flows: u32| vec![FlowChange { layer, flows }];
        if sight.free_cpu >= LEAST_FREE_CPU {
            let next = others.first().map_or(0.5, |&next| sight.layers[next].busy);
            if let Some(&layer) = limits.first().filter(|_| limits.len() == 1)
                && has_room(layer)
                && self.more[layer].until <= now
            {
                return Some((
                    Kind::More(layer),
                    change(layer, wanted(sight.layers[layer], next)),
                ));
            }
            let widened = limits.iter().filter(|&&layer| has_room(layer));
            let all: Vec<FlowChange> = widened
                .map(|&layer| FlowChange {
                    layer,
                    flows: wanted(sight.layers[layer], next),
                })
                .collect();
            if all.len() > 1 && self.together.until <= now {
                return Some((Kind::Together, all));
            }
            let one = limits
                .iter()
                .find(|&&layer| has_room(layer) && self.more[layer].until <= now);
            if let Some(&layer) = one {
                return Some((
                    Kind::More(layer),
                    change(layer, wanted(sight.layers[layer], next)),
                ));
            }
        }
        let may_less = |layer: &&usize| {
            let it = sight.layers[**layer];
            it.flows > it.least.max(1) && self.fewer[**layer].until <= now
        };
        let fewer = limits.iter().find(may_less);
        let fewer = fewer.or_else(|| others.iter().rev().find(may_less));
        let &layer = fewer?;
        let it = sight.layers[layer];
        // By what it works, a quarter at most, but half where it mostly waits.
        let enough = (f64::from(it.flows) * it.busy / ENOUGH).ceil() as u32;
        let least = if it.busy < 0.5 {
            it.flows.div_ceil(2)
        } else {
            it.flows - it.flows.div_ceil(4)
        };
        let flows = enough.clamp(least.max(1), it.flows - 1);
        let flows = if it.busy >= ENOUGH {
            least.max(1)
        } else {
            flows
        };
        let flows = flows.max(it.least);
        Some((Kind::Fewer(layer), change(layer, flows)))
    }

    fn measure(
        &mut self,
        now: Duration,
        sight: &Sight,
        (from, mut trial): (Duration, Trial),
    ) -> Vec<FlowChange> {
        trial.seen.push(sight.rate);
        let enough = match trial.kind {
            Kind::Fewer(_) => PERIODS_OF_FEWER,
            _ => PERIODS,
        };
        let rate = mean(&trial.seen);
        // What is much slower need not be looked at for longer.
        let is_slow = trial.seen.len() >= 2 && rate < trial.rate * (1.0 - CHANGED);
        if trial.seen.len() < enough && !is_slow {
            self.phase = Phase::Trying(from, trial);
            return Vec::new();
        }
        self.recent.clear();
        let gain = rate / trial.rate.max(f64::MIN_POSITIVE) / FLOW_PENALTY.powf(trial.more);
        let least = if trial.more > 0.0 {
            1.0 + LEAST_GAIN
        } else {
            1.0 - LEAST_LOSS
        };
        if gain > least {
            self.keep(now, &trial);
            self.settled = rate;
            self.recent = vec![rate; PERIODS - 1];
            return Vec::new();
        }
        self.pause(trial.kind).longer(now);
        self.phase = Phase::Returning(now + sight.rtt);
        trial.back
    }

    /// A trial is kept. What it undid is not tried at once again: where nothing is missed with
    /// fewer flows, and nothing gained with more, noise decides, and would forever.
    fn keep(&mut self, now: Duration, trial: &Trial) {
        *self.pause(trial.kind) = Pause::default();
        for change in &trial.back {
            let opposite = match trial.kind {
                Kind::Fewer(_) => &mut self.more,
                Kind::More(_) | Kind::Together => &mut self.fewer,
            };
            opposite[change.layer].longer(now);
        }
    }

    fn pause(&mut self, kind: Kind) -> &mut Pause {
        match kind {
            Kind::More(layer) => &mut self.more[layer],
            Kind::Together => &mut self.together,
            Kind::Fewer(layer) => &mut self.fewer[layer],
        }
    }
}

fn mean(rates: &[f64]) -> f64 {
    rates.iter().sum::<f64>() / rates.len().max(1) as f64
}

/// Flows with which a layer would carry what the next bottleneck does, whose share of work is
/// `next`: at least one more, at most twice as many.
fn wanted(layer: LayerSight, next: f64) -> u32 {
    let wanted = f64::from(layer.flows) / next.clamp(0.5, 1.0);
    // A small count: flows are bounded.
    (wanted.ceil() as u32).max(layer.flows + 1).min(layer.most)
}
