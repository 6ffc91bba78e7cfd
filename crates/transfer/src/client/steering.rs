//! Steers a running copy. Observations of both ends go to the model's controller. Its decisions
//! become orders, and both are kept for the summary.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longhaul_engine::session::{LAYERS, Orders, Steer, View};
use longhaul_model::capacity::Window;
use longhaul_model::control::{Bound, Controller, Decision, Sample, Settings, StreamSample};
use longhaul_model::kernel::{BufferEnd, BufferLimits, WindowAdvice, window_between};
use longhaul_model::response::Congestion;
use longhaul_proto::message::{Flows, Observation, StreamObservation, Tuning};
use longhaul_units::{ByteCount, Moment};

use super::layering::{LayerSteering, Layering};

/// Maximum number of decisions kept for the summary. The first ones are the most informative.
const KEPT_DECISIONS: usize = 64;

/// Limits within which a copy is steered.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Fixed number of streams; `None` lets the controller choose.
    pub streams: Option<u32>,
    /// Initial number of streams.
    pub initial: u32,
    /// Maximum number of streams.
    pub maximum_streams: u32,
    /// Fixed congestion control; `None` lets the controller choose.
    pub congestion: Option<String>,
    /// If true, the copy yields to other traffic.
    pub nice: bool,
    /// Round trip of the first handshake.
    pub rtt: Duration,
    /// Rule by which the layers are steered.
    pub(super) layering: Layering,
}

/// Decisions and observations for the summary.
#[derive(Debug, Default)]
pub struct Steered {
    /// Decisions, with the time since the sending end started.
    pub decisions: Vec<(Duration, Decision)>,
    /// Changed numbers of threads of the layers, with the time since the sending end started.
    pub layers: Vec<(Duration, Flows)>,
    /// Most frequent limit of the recent periods.
    pub bound: Option<Bound>,
    /// Advice if windows reached a kernel's limit.
    pub advice: Option<WindowAdvice>,
    /// Requested congestion control and the one in use, if they differ.
    pub refused_congestion: Option<(String, String)>,
    /// Congestion control in use, as reported by the sending kernel.
    pub congestion: Option<String>,
    /// Maximum number of bytes in flight on one stream, by both kernels' limits.
    pub window: Option<Window>,
}

/// State shared with the report.
pub type Shared = Arc<Mutex<Steered>>;

/// Connects the controller to a running copy.
pub struct Steering {
    bounds: Bounds,
    controller: Option<Controller>,
    seen: Moment,
    processors: [Processor; 2],
    layers: Layers,
    layering: LayerSteering,
    ordered: Option<Orders>,
    steered: Shared,
}

/// Last CPU time of a host, for comparison with the next one.
#[derive(Clone, Copy, Debug, Default)]
struct Processor {
    at: u64,
    cpu: u64,
    /// Last computed share.
    share: Option<f64>,
}

impl Processor {
    /// Returns the share of its cores' time that the process used since the last observation. If
    /// there is no new observation, which happens mostly for the other end, returns the previous
    /// share. Returns `None` before the second observation.
    fn share(&mut self, observed: &Observation) -> Option<f64> {
        if let Some(span) = observed.at.checked_sub(self.at).filter(|span| *span > 0) {
            let worked = observed.cpu.saturating_sub(self.cpu) as f64;
            let cores = f64::from(observed.cores.max(1));
            let share = (self.at > 0).then(|| worked / (span as f64 * cores));
            (self.at, self.cpu, self.share) = (observed.at, observed.cpu, share);
        }
        self.share
    }
}

/// Recent use of the receiving end's layers. It is computed from differences, since an observation
/// contains averages over the whole session.
#[derive(Clone, Debug, Default)]
struct Layers {
    at: u64,
    /// Nanoseconds of work of all threads of a layer, by layer number.
    worked: BTreeMap<u8, f64>,
    busiest: Option<f64>,
}

/// Layer whose threads belong to the streams. If it is the limit, more streams help, so it is
/// ignored here. The number of free cores is checked separately.
const OF_STREAMS: &str = "open";

/// Minimum length of a period: this duration, and the elapsed time divided by this number. The
/// second bound is necessary because an observation gives shares with only seven digits.
const LAYERS_SPAN: (Duration, u64) = (Duration::from_secs(1), 100_000);

impl Layers {
    /// Returns the largest share of time that any layer's threads worked in the last complete
    /// period, or `None` before the first one.
    fn busiest(&mut self, observed: &Observation) -> Option<f64> {
        let span = observed.at.saturating_sub(self.at);
        let (least, part) = LAYERS_SPAN;
        if u128::from(span) < least.as_nanos().max((observed.at / part).into()) {
            return self.busiest;
        }
        let mut now = BTreeMap::new();
        self.busiest = None;
        let is_of_streams = |layer: u8| LAYERS.get(usize::from(layer)) == Some(&OF_STREAMS);
        let counted = observed.layers.iter().filter(|one| !is_of_streams(one.0));
        for (layer, flows, part) in counted {
            // The other end may send any value.
            let part = if part.is_nan() {
                0.0
            } else {
                part.clamp(0.0, 1.0)
            };
            let flows = f64::from((*flows).max(1));
            let worked = f64::from(part) * observed.at as f64 * flows;
            let before = self.worked.get(layer).copied().unwrap_or_default();
            let share = ((worked - before) / (span as f64 * flows)).clamp(0.0, 1.0);
            self.busiest = Some(self.busiest.map_or(share, |busiest| busiest.max(share)));
            now.insert(*layer, worked);
        }
        (self.at, self.worked) = (observed.at, now);
        self.busiest
    }
}

impl Steering {
    /// Creates the steering and the state that it shares with the report.
    pub fn new(bounds: Bounds) -> (Steering, Shared) {
        let steered = Shared::default();
        let steering = Steering {
            layering: LayerSteering::new(bounds.layering, bounds.maximum_streams),
            bounds,
            controller: None,
            seen: Moment(0),
            processors: Default::default(),
            layers: Layers::default(),
            ordered: None,
            steered: Arc::clone(&steered),
        };
        (steering, steered)
    }

    /// Returns the user's settings as orders, with which the streams start.
    pub fn first_orders(&self) -> Orders {
        Orders {
            streams: self.bounds.initial as usize,
            tuning: Tuning {
                congestion: self.bounds.congestion.clone(),
                ..Tuning::default()
            },
            layers: Flows::default(),
        }
    }

    fn settings(&self, sender: &Observation) -> Settings {
        let bounds = &self.bounds;
        let own = Congestion::of_name(&sender.congestion);
        let names = sender.congestions.iter();
        let permitted: Vec<Congestion> = names.map(|name| Congestion::of_name(name)).collect();
        let free = bounds.congestion.is_none() && !bounds.nice;
        let other = permitted.contains(&Congestion::Bbr) && own != Congestion::Bbr;
        Settings {
            fixed_streams: bounds.streams,
            maximum_streams: bounds.maximum_streams,
            alternative: (free && other).then_some(Congestion::Bbr),
            congestion: own,
            nice: bounds.nice,
        }
    }

    fn orders(&self, decision: &Decision) -> Orders {
        let chosen = decision
            .congestion
            .as_ref()
            .map(|name| name.name().to_owned());
        Orders {
            streams: decision.streams as usize,
            tuning: Tuning {
                congestion: self.bounds.congestion.clone().or(chosen),
                pace: decision.pace.map(|pace| pace as u64),
                unsent: u32::try_from(decision.unsent.0).ok(),
                limit: None,
            },
            layers: Flows::default(),
        }
    }

    /// Records the decision and observations for the summary.
    fn note(&self, view: &View<'_>, decision: Option<Decision>, controller: &Controller) {
        let mut steered = self.steered.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(decision) = decision
            && steered.decisions.len() < KEPT_DECISIONS
        {
            let at = Duration::from_nanos(view.at.0);
            steered.decisions.push((at, decision));
        }
        steered.bound = controller.bound();
        let fixed = self.bounds.streams.is_some();
        if let Some(advice) = advice(view, controller, fixed) {
            steered.advice = Some(advice);
        }
        // At the end, a sender may have no connection left to report on.
        let used = Some(&view.sender.congestion).filter(|used| !used.is_empty());
        if let (Some(asked), Some(used)) = (&self.bounds.congestion, used) {
            let refused = (asked != used).then(|| (asked.clone(), used.clone()));
            steered.refused_congestion = refused;
        }
        if let Some(used) = used.filter(|used| steered.congestion.as_ref() != Some(*used)) {
            steered.congestion = Some(used.clone());
        }
        let limits = |seen: &Observation| BufferLimits {
            tcp_send: seen.send_buffer,
            tcp_receive: seen.receive_buffer,
            ..BufferLimits::default()
        };
        steered.window = window_between(&limits(view.sender), &limits(view.receiver));
    }
}

impl Steering {
    /// Records the layers' numbers of threads if they have changed.
    fn note_layers(&self, at: Moment, flows: Flows) {
        let mut steered = self.steered.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = steered.layers.last().is_none_or(|(_, last)| *last != flows);
        if is_new && steered.layers.len() < KEPT_DECISIONS {
            steered.layers.push((Duration::from_nanos(at.0), flows));
        }
    }
}

impl Steer for Steering {
    fn look(&mut self, view: &View<'_>) -> Option<Orders> {
        let news = view.at > self.seen && !view.sender.streams.is_empty();
        if !news {
            return None;
        }
        self.seen = view.at;
        let sample = self.sample(view);
        let mut controller = self.controller.take().unwrap_or_else(|| {
            let Bounds { rtt, initial, .. } = self.bounds;
            Controller::new(self.settings(view.sender), rtt, initial, view.at)
        });
        let decision = controller.handle_sample(&sample);
        if decision.is_some() {
            self.layering
                .handle_streams(view.at.0, controller.least_rtt());
        }
        self.note(view, decision, &controller);
        let mut orders = self.orders(controller.decision());
        let free = free_cores(view).unwrap_or(1.0 - sample.processor.unwrap_or(0.0));
        let layers = self.layering.look(view, controller.least_rtt(), free);
        if self.layering.climbs() {
            // The climber also sets the number of streams.
            let streams = layers.and_then(|(_, streams)| streams);
            let before = self.ordered.as_ref().map(|ordered| ordered.streams);
            let streams = streams.map(|streams| streams as usize);
            orders.streams = streams.or(before).unwrap_or(self.bounds.initial as usize);
        }
        self.controller = Some(controller);
        if let Some((flows, streams)) = layers {
            self.note_layers(view.at, Flows { streams, ..flows });
        }
        let changed = self.ordered.as_ref() != Some(&orders);
        (changed || layers.is_some()).then(|| {
            self.ordered = Some(orders.clone());
            orders.layers = layers.map(|(flows, _)| flows).unwrap_or_default();
            orders
        })
    }
}

impl Steering {
    fn sample(&mut self, view: &View<'_>) -> Sample {
        let [sender, receiver] = &mut self.processors;
        let shares = [sender.share(view.sender), receiver.share(view.receiver)];
        Sample {
            at: view.at,
            streams: view.sender.streams.iter().map(stream_sample).collect(),
            congestion: Some(Congestion::of_name(&view.sender.congestion)),
            remaining: view.sender.remaining.map(ByteCount),
            processor: shares.into_iter().flatten().max_by(f64::total_cmp),
            receiver: self.layers.busiest(view.receiver),
        }
    }
}

/// Returns the recently unused share of the busier host's cores, counting all its processes. `None`
/// if neither end reports it.
fn free_cores(view: &View<'_>) -> Option<f64> {
    let share = |seen: &Observation| {
        let idle = f64::from(seen.idle?);
        let share = idle / f64::from(seen.cores.max(1));
        // The other end may send any value.
        share.is_finite().then(|| share.clamp(0.0, 1.0))
    };
    let ends = [view.sender, view.receiver];
    ends.into_iter().filter_map(share).min_by(f64::total_cmp)
}

fn stream_sample(stream: &StreamObservation) -> StreamSample {
    let micros = |count: u64| Duration::from_micros(count);
    StreamSample {
        stream: stream.stream,
        path: stream.path,
        rtt: micros(stream.rtt.into()),
        minimum_rtt: micros(stream.minimum_rtt.into()),
        segment: stream.segment,
        congestion_window: stream.window,
        send_window: Some(stream.send_window),
        acknowledged: stream.acknowledged,
        retransmitted: stream.retransmitted,
        busy: micros(stream.busy),
        window_limited: micros(stream.window_limited),
        buffer_limited: micros(stream.buffer_limited),
    }
}

/// Returns advice if the windows reached a kernel's buffer limit. `fixed` is true if the user set
/// the number of streams.
fn advice(view: &View<'_>, controller: &Controller, fixed: bool) -> Option<WindowAdvice> {
    let (end, limit) = match controller.bound()? {
        Bound::SendBuffer => (BufferEnd::Sender, view.sender.send_buffer),
        Bound::ReceiveBuffer => (BufferEnd::Receiver, view.receiver.receive_buffer),
        _ => return None,
    };
    let (rate, rtt) = (
        controller.measured()?.bytes_per_second,
        controller.least_rtt(),
    );
    let streams = f64::from(controller.decision().streams);
    Some(WindowAdvice {
        end,
        window: ByteCount((rate * rtt.as_secs_f64() / streams) as u64),
        bytes_per_second: rate,
        rtt,
        limit,
        fixed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observation(seconds: u64, acknowledged: u64) -> Observation {
        Observation {
            at: seconds * 1_000_000_000,
            streams: vec![StreamObservation {
                stream: 0,
                rtt: 100_000,
                minimum_rtt: 100_000,
                segment: 1448,
                acknowledged,
                busy: seconds * 1_000_000,
                buffer_limited: seconds * 1_000_000,
                ..StreamObservation::default()
            }],
            cores: 2,
            congestion: "cubic".into(),
            congestions: vec!["cubic".into(), "bbr".into()],
            send_buffer: Some(1 << 20),
            ..Observation::default()
        }
    }

    fn bounds() -> Bounds {
        Bounds {
            streams: None,
            initial: 16,
            maximum_streams: 64,
            congestion: None,
            nice: false,
            rtt: Duration::from_millis(100),
            layering: Layering::Still,
        }
    }

    fn look(steering: &mut Steering, seconds: u64) -> Option<Orders> {
        look_at(steering, &observation(seconds, seconds * 7_000_000))
    }

    fn look_at(steering: &mut Steering, sender: &Observation) -> Option<Orders> {
        steering.look(&View {
            at: Moment(sender.at),
            sender,
            receiver: &Observation::default(),
        })
    }

    #[test]
    fn windows_limited_by_the_buffer_add_streams_and_advice() {
        let (mut steering, steered) = Steering::new(bounds());
        let first = look(&mut steering, 1).unwrap();
        assert_eq!((first.streams, first.tuning.congestion), (16, None));
        assert_eq!(look(&mut steering, 1), None, "no news");
        let orders: Vec<Orders> = (2..8).filter_map(|at| look(&mut steering, at)).collect();
        assert!(
            orders.iter().any(|orders| orders.streams == 32),
            "{orders:?}"
        );
        let steered = steered.lock().unwrap();
        let advice = steered.advice.unwrap().to_string();
        assert!(
            advice.contains("net.ipv4.tcp_wmem is limited to 1048576"),
            "{advice}"
        );
        assert!(!steered.decisions.is_empty());
    }

    /// A disk that becomes slow after a fast start is not judged by its average.
    #[test]
    fn the_receivers_load_is_the_recent_one() {
        let mut layers = Layers::default();
        let mut load = |milliseconds: u64, flows: u32, parts: &[f32]| {
            let numbered = parts.iter().enumerate();
            layers.busiest(&Observation {
                at: milliseconds * 1_000_000,
                layers: numbered
                    .map(|(at, part)| (at as u8, flows, *part))
                    .collect(),
                ..Observation::default()
            })
        };
        let near = |share: Option<f64>, wanted: f64| (share.unwrap() - wanted).abs() < 1e-6;
        assert_eq!(load(0, 2, &[]), None);
        assert_eq!(load(900, 2, &[0.9, 0.1]), None, "too early");
        assert!(near(load(10_000, 2, &[0.2, 0.1]), 0.2));
        // The second layer worked during all of these ten seconds.
        assert!(near(load(20_000, 2, &[0.1, 0.55]), 1.0));
        assert!(near(load(20_500, 2, &[0.1, 0.1]), 1.0));
        // With twice as many threads, it did the work of two.
        assert!(near(load(40_000, 4, &[0.1, 0.3875]), 0.5));
        // The other end may send any value.
        assert_eq!(load(50_000, 4, &[f32::NAN, -1.0, 0.0]), Some(0.0));
    }

    #[test]
    fn the_users_choices_are_applied_and_a_refusal_is_reported() {
        let (mut steering, steered) = Steering::new(Bounds {
            congestion: Some("bbr".into()),
            streams: Some(3),
            ..bounds()
        });
        let first = steering.first_orders();
        assert_eq!(first.tuning.congestion.as_deref(), Some("bbr"));
        let orders = look(&mut steering, 1).unwrap();
        assert_eq!(orders.streams, 3);
        assert_eq!(orders.tuning.congestion.as_deref(), Some("bbr"));
        let refused = steered.lock().unwrap().refused_congestion.clone();
        assert_eq!(refused, Some(("bbr".into(), "cubic".into())));
    }
}
