//! Chooses the numbers of flows of a transfer's layers while it runs: readers, compressors,
//! decompressors, writers, committers. Adds flows at the bottleneck, removes flows that do not
//! help, and leaves room for other transfers.
//!
//! A state machine without a clock: [`LayersControl::observe`] takes the observations of a period
//! and returns changes. Each change is a trial, which is kept only if the utility rises. As in
//! Falcon, the utility is the rate with a penalty for each flow. So two transfers that share a disk
//! converge to the same number of flows, because the one with fewer gains more from a further flow.
//!
//! A failed trial is repeated only after a pause, which doubles each time, to avoid oscillation. If
//! the rate changes by itself, it is repeated at once.

use std::time::Duration;

/// Observations of one layer in a period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerSight {
    /// Current number of flows.
    pub flows: u32,
    /// Minimum number of flows, at least 1.
    pub least: u32,
    /// Maximum number of flows, at least 1.
    pub most: u32,
    /// Share of the period in which the flows worked, 0 to 1. In the rest they waited for data or
    /// for room.
    pub busy: f64,
}

/// Observations of a transfer in a period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sight<'a> {
    /// Rate in source bytes per second.
    pub rate: f64,
    /// Layers, always the same in the same order.
    pub layers: &'a [LayerSight],
    /// Round-trip time. The effect of a change is visible after it.
    pub rtt: Duration,
    /// Share of free processor time, 0 to 1, the smaller of the two hosts' values.
    pub free_cpu: f64,
}

/// A new number of flows for a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowChange {
    /// Index of the layer.
    pub layer: usize,
    /// New number of flows, at least 1.
    pub flows: u32,
}

/// Minimum gain of a further flow, as a factor. With Falcon's 1.02, a disk that saturates slowly
/// loses a tenth of its rate; with this value, a twentieth.
const FLOW_PENALTY: f64 = 1.004;

/// Utilisation above which a layer is a bottleneck. The rest is noise.
const BOTTLENECK: f64 = 0.85;

/// Utilisation below which a layer is no longer a bottleneck.
const NO_BOTTLENECK: f64 = 0.75;

/// Target utilisation when flows are removed.
const ENOUGH: f64 = 0.75;

/// Share of free processor time below which no flow is added, because others need the processor.
const LEAST_FREE_CPU: f64 = 0.03;

/// Number of periods in a trial with more flows, and in the measurement before.
const PERIODS: usize = 3;

/// Number of periods in a trial with fewer flows, which is not urgent.
const PERIODS_OF_FEWER: usize = 6;

/// Gains below this share, after the penalty, are noise.
const LEAST_GAIN: f64 = 0.01;

/// Losses below this share, after the penalty, are noise and do not justify more flows.
const LEAST_LOSS: f64 = 0.005;

/// Pause after a failed trial: the first and the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(8);
const LONGEST_PAUSE: Duration = Duration::from_mins(10);

/// Relative difference between the mean of [`PERIODS`] and the rate at the last kept change that
/// shows a change of conditions. All trials may then be repeated.
const CHANGED: f64 = 0.15;

/// The kinds of trials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// More flows in one layer.
    More(usize),
    /// More flows in all layers that are bottlenecks together.
    Together,
    /// Fewer flows in one layer.
    Fewer(usize),
}

/// The time until a trial may be repeated.
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

/// The state of the controller.
#[derive(Clone, Debug)]
enum Phase {
    /// The rate is measured, and no trial is in progress.
    Steady,
    /// A change was reverted. Observations until this time still include its effect.
    Returning(Duration),
    /// A trial is measured from this time on.
    Trying(Duration, Trial),
}

#[derive(Clone, Debug)]
struct Trial {
    kind: Kind,
    /// Numbers of flows before the trial.
    back: Vec<FlowChange>,
    /// Number of additional flows; negative for fewer.
    more: f64,
    /// Rate before the trial.
    rate: f64,
    /// Rates during the trial.
    seen: Vec<f64>,
}

/// The controller of all layers of a transfer.
#[derive(Clone, Debug)]
pub struct LayersControl {
    phase: Phase,
    /// Rates of the last steady periods, the newest last.
    recent: Vec<f64>,
    /// Rate at the last kept change.
    settled: f64,
    /// True for each layer that is a bottleneck.
    limits: Vec<bool>,
    more: Vec<Pause>,
    fewer: Vec<Pause>,
    together: Pause,
}

impl LayersControl {
    /// Creates a controller for this number of layers.
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

    /// Takes the observations of the period that ended at `now`, and returns changes. A period
    /// should be about 0.2 s.
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

    /// Updates the bottlenecks. If they change, trials that did not help before may help now.
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

    /// Returns the next trial. In this order: more flows in the busiest bottleneck, more in all
    /// bottlenecks together, fewer in a bottleneck (more flows may slow it down), fewer in the
    /// other layers.
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
        // Reduces the flows according to the utilisation: at most by a quarter, or by half if the
        // layer is mostly idle.
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
        // A much lower rate ends the trial early.
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

    /// Keeps a trial. The opposite trial is paused. Otherwise, if neither fewer nor more flows make
    /// a difference, noise would cause endless changes.
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

/// Returns the number of flows with which a layer would match the next bottleneck, whose
/// utilisation is `next`: at least one more, at most twice as many.
fn wanted(layer: LayerSight, next: f64) -> u32 {
    let wanted = f64::from(layer.flows) / next.clamp(0.5, 1.0);
    // Numbers of flows are small, so the conversion is lossless.
    (wanted.ceil() as u32).max(layer.flows + 1).min(layer.most)
}
