//! Steers the layers of a running copy at both ends: readers, compressors, decompressors, writers
//! and committers. Observations of both ends go to the model's controller ([`LayersControl`]).
//! Alternatively they go to a climber with one number for all layers except committers (Falcon).
//! The decisions become orders. The number of committers never falls below the initial one.
//! Committers wait for disks, and one of them is reserved for small files.

use std::collections::BTreeMap;
use std::time::Duration;

use longhaul_engine::session::{FlowCounts, LAYERS, View};
use longhaul_model::control::layers::{FlowChange, LayerSight, LayersControl, Sight};
use longhaul_model::policy::gradient::Climber;
use longhaul_proto::message::{Flows, Observation};

use crate::spec::FixedFlows;

/// Names in [`LAYERS`] of the steered layers: two of the sending end, then three of the receiving
/// end.
const STEERED: [&str; 5] = ["read", "compress", "decompress", "write", "commit"];

/// Number of these layers at the sending end.
const OF_SENDER: usize = 2;

/// Minimum length of a period. The other end reports its state every 250 ms.
const PERIOD: Duration = Duration::from_millis(200);

/// Time before the first decision. Meanwhile streams start, windows grow, and the sending end
/// adjusts its readers without orders.
const BEGINS: Duration = Duration::from_secs(3);

/// Pause after a change of streams, plus [`ROUND_TRIPS`] round trips. Measurements in it reflect
/// that change.
const AFTER_STREAMS: Duration = Duration::from_secs(1);
const ROUND_TRIPS: u32 = 5;

/// Maximum number of threads per layer that wait for storage. Parallel file systems serve about as
/// many from one client.
const MOST_WAITING: u32 = 64;

/// Rule by which the layers are steered.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Layering {
    /// The layers keep their initial numbers of threads.
    #[default]
    Still,
    /// The controller steers all layers that are not fixed.
    Controlled(FixedFlows),
    /// A climber searches for one number for all layers and streams.
    Climbing,
}

/// Last observation of one end.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// Time on that end's clock in nanoseconds.
    at: u64,
    /// Nanoseconds of work of each layer's threads, by layer number.
    worked: BTreeMap<u8, u64>,
}

/// State of the steering of layers.
pub(super) struct LayerSteering {
    layering: Layering,
    control: LayersControl,
    climber: Climber,
    ends: [Seen; 2],
    /// Acknowledged bytes by stream and path.
    carried: BTreeMap<(u32, u32), u64>,
    /// Number of retransmitted segments at that time.
    repeated: u64,
    quiet_until: u64,
}

/// Measurements of one period.
struct Shown {
    layers: [LayerSight; STEERED.len()],
    /// Acknowledged bytes per second.
    rate: f64,
    /// Share of retransmitted segments.
    repeated: f64,
}

impl LayerSteering {
    /// Creates the state, with at most `most_streams` streams.
    pub(super) fn new(layering: Layering, most_streams: u32) -> LayerSteering {
        LayerSteering {
            layering,
            control: LayersControl::new(STEERED.len()),
            climber: Climber::new(2, most_streams.min(MOST_WAITING)),
            ends: Default::default(),
            carried: BTreeMap::new(),
            repeated: 0,
            quiet_until: 0,
        }
    }

    /// True if the climber steers streams as well.
    pub(super) fn climbs(&self) -> bool {
        self.layering == Layering::Climbing
    }

    /// Suspends decisions after a change of streams, which affects the measurements for some time.
    pub(super) fn handle_streams(&mut self, at: u64, rtt: Duration) {
        let span = AFTER_STREAMS + rtt * ROUND_TRIPS;
        self.quiet_until = at.saturating_add(nanoseconds(span));
    }

    /// Evaluates the observations. Returns the numbers of threads to change, and the number of
    /// streams if a climber is used. `free_cpu` is the unused share of the busier host's cores.
    pub(super) fn look(
        &mut self,
        view: &View<'_>,
        rtt: Duration,
        free_cpu: f64,
    ) -> Option<(Flows, Option<u32>)> {
        let period = match self.layering {
            Layering::Still => return None,
            Layering::Controlled(_) => PERIOD,
            // Falcon uses samples of 3 to 5 s.
            Layering::Climbing => Duration::from_secs(3) + rtt * ROUND_TRIPS,
        };
        let ends = [view.sender, view.receiver];
        let is_over = |(seen, end): (&Seen, &&Observation)| {
            end.at.saturating_sub(seen.at) >= nanoseconds(period)
        };
        if !self.ends.iter().zip(&ends).all(is_over) {
            return None;
        }
        let first = self.ends.iter().any(|seen| seen.at == 0);
        let shown = self.show(ends);
        let at = view.sender.at;
        if first || at < nanoseconds(BEGINS) || at < self.quiet_until {
            return None;
        }
        if self.climbs() {
            self.climber.measured(shown.rate, shown.repeated);
            let flows = self.climber.flows();
            let all = Flows {
                readers: Some(flows),
                compressors: Some(flows),
                streams: None,
                decompressors: Some(flows),
                writers: Some(flows),
                committers: None,
            };
            return Some((all, Some(flows)));
        }
        let sight = Sight {
            rate: shown.rate,
            layers: &shown.layers,
            rtt,
            free_cpu,
        };
        let changes = self.control.observe(Duration::from_nanos(at), &sight);
        (!changes.is_empty()).then(|| (flows_of(&changes), None))
    }

    /// Returns the measurements of the period since the last evaluation.
    fn show(&mut self, ends: [&Observation; 2]) -> Shown {
        let mut layers = [UNSTEERED; STEERED.len()];
        for (place, sight) in layers.iter_mut().enumerate() {
            let side = usize::from(place >= OF_SENDER);
            let seen = sight_of(place, ends[side], &self.ends[side]);
            *sight = if self.is_fixed(place) {
                UNSTEERED
            } else {
                seen.unwrap_or(UNSTEERED)
            };
        }
        let span = ends[0].at.saturating_sub(self.ends[0].at) as f64 / 1e9;
        let bytes = self.carry(ends[0]) as f64;
        let repeated = ends[0]
            .streams
            .iter()
            .map(|it| it.retransmitted)
            .sum::<u64>();
        let segment = ends[0].streams.first().map_or(1448, |it| it.segment.max(1));
        let segments = bytes / f64::from(segment);
        let share = repeated.saturating_sub(self.repeated) as f64 / segments.max(1.0);
        self.repeated = repeated;
        for (seen, end) in self.ends.iter_mut().zip(ends) {
            let numbered = end.layers.iter().zip(&end.worked);
            seen.worked = numbered.map(|(layer, worked)| (layer.0, *worked)).collect();
            seen.at = end.at;
        }
        Shown {
            layers,
            rate: bytes / span.max(1e-9),
            repeated: share.min(1.0),
        }
    }

    /// Returns the number of bytes acknowledged since the last evaluation.
    fn carry(&mut self, sender: &Observation) -> u64 {
        let mut now = BTreeMap::new();
        let mut more = 0_u64;
        for stream in &sender.streams {
            let key = (stream.stream, stream.path);
            let before = self.carried.get(&key).copied().unwrap_or(0);
            more = more.saturating_add(stream.acknowledged.saturating_sub(before));
            now.insert(key, stream.acknowledged);
        }
        self.carried = now;
        more
    }

    fn is_fixed(&self, place: usize) -> bool {
        let Layering::Controlled(fixed) = self.layering else {
            return false;
        };
        let counts = [
            fixed.readers,
            fixed.compressors,
            fixed.decompressors,
            fixed.writers,
            None,
        ];
        counts[place].is_some()
    }
}

/// Stands for a layer that cannot be changed: it is absent, reports no work, or is fixed.
const UNSTEERED: LayerSight = LayerSight {
    flows: 1,
    least: 1,
    most: 1,
    busy: 0.0,
};

/// Returns the measurements of one layer since the last observation; `None` if the end does not
/// report them.
fn sight_of(place: usize, end: &Observation, before: &Seen) -> Option<LayerSight> {
    let is_it = |number: u8| LAYERS.get(usize::from(number)) == Some(&STEERED[place]);
    let mut numbered = end.layers.iter().zip(&end.worked);
    let (&(number, flows, _), &worked) = numbered.find(|(layer, _)| is_it(layer.0))?;
    let flows = flows.max(1);
    let span = end.at.saturating_sub(before.at) as f64 * f64::from(flows);
    let worked = worked.saturating_sub(*before.worked.get(&number)?) as f64;
    let most = match STEERED[place] {
        // These layers use the CPU, so more threads than cores do not help.
        "compress" | "decompress" => end.cores.clamp(1, MOST_WAITING),
        _ => MOST_WAITING,
    };
    let least = match STEERED[place] {
        "commit" => u32::try_from(FlowCounts::default().committers).unwrap_or(1),
        _ => 1,
    };
    Some(LayerSight {
        flows,
        least: least.min(flows),
        most: most.max(flows),
        busy: (worked / span.max(1.0)).clamp(0.0, 1.0),
    })
}

fn flows_of(changes: &[FlowChange]) -> Flows {
    let mut flows = Flows::default();
    for change in changes {
        let count = match change.layer {
            0 => &mut flows.readers,
            1 => &mut flows.compressors,
            2 => &mut flows.decompressors,
            3 => &mut flows.writers,
            _ => &mut flows.committers,
        };
        *count = Some(change.flows.max(1));
    }
    flows
}

fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use longhaul_proto::message::StreamObservation;
    use longhaul_units::Moment;

    use super::*;

    /// Simulated copy whose writers each have a fixed rate, up to the rate of the path.
    struct World {
        steering: LayerSteering,
        writers: u32,
        at: u64,
        carried: u64,
        worked: [u64; 2],
        /// Rate of one writer and of the path, in bytes per second.
        rates: (f64, f64),
        says_worked: bool,
        /// Number of the layer.
        layer: u8,
    }

    impl World {
        fn new(layering: Layering) -> World {
            World {
                steering: LayerSteering::new(layering, 64),
                writers: 1,
                at: 0,
                carried: 0,
                worked: [0; 2],
                rates: (50e6, 400e6),
                says_worked: true,
                layer: 6,
            }
        }

        fn run(&mut self, seconds: u64) {
            for _ in 0..seconds * 4 {
                self.step();
            }
        }

        fn step(&mut self) {
            let period = 250_000_000_u64;
            let can = self.rates.0 * f64::from(self.writers);
            let rate = can.min(self.rates.1);
            self.at += period;
            self.carried += (rate * 0.25) as u64;
            self.worked[0] += period / 10;
            self.worked[1] += (period as f64 * f64::from(self.writers) * rate / can) as u64;
            let of = |layer: u8, flows: u32, worked: u64| Observation {
                at: self.at,
                cores: 4,
                layers: vec![(layer, flows, 0.5)],
                worked: if self.says_worked {
                    vec![worked]
                } else {
                    Vec::new()
                },
                ..Observation::default()
            };
            let mut sender = of(1, 1, self.worked[0]);
            sender.streams = vec![StreamObservation {
                acknowledged: self.carried,
                segment: 1448,
                ..StreamObservation::default()
            }];
            let receiver = of(self.layer, self.writers, self.worked[1]);
            let view = View {
                at: Moment(self.at),
                sender: &sender,
                receiver: &receiver,
            };
            let looked = self.steering.look(&view, Duration::from_millis(10), 0.5);
            if let Some((flows, streams)) = looked {
                assert_eq!(streams.is_some(), self.steering.climbs());
                let changed = match self.layer {
                    6 => flows.writers,
                    _ => flows.committers,
                };
                self.writers = changed.unwrap_or(self.writers);
            }
        }
    }

    #[test]
    fn writers_are_added_until_the_path_is_full() {
        let mut world = World::new(Layering::Controlled(FixedFlows::default()));
        world.run(2);
        assert_eq!(world.writers, 1, "nothing is decided at the beginning");
        world.run(40);
        assert!((8..=16).contains(&world.writers), "{}", world.writers);
        world.rates.1 = 100e6;
        world.run(120);
        assert!(world.writers < 8, "{}", world.writers);
    }

    #[test]
    fn committers_are_added_and_never_fewer_than_at_the_beginning() {
        let mut world = World::new(Layering::Controlled(FixedFlows::default()));
        (world.layer, world.writers) = (7, 4);
        world.run(42);
        assert!((8..=16).contains(&world.writers), "{}", world.writers);
        world.rates.1 = 10e6;
        for _ in 0..600 {
            world.run(1);
            assert!(world.writers >= 4, "{}", world.writers);
        }
    }

    #[test]
    fn fixed_and_absent_numbers_of_flows_stay() {
        let fixed = FixedFlows {
            writers: Some(1),
            ..FixedFlows::default()
        };
        for (layering, says_worked) in [
            (Layering::Still, true),
            (Layering::Controlled(fixed), true),
            (Layering::Controlled(FixedFlows::default()), false),
        ] {
            let mut world = World::new(layering);
            world.says_worked = says_worked;
            world.run(60);
            assert_eq!(world.writers, 1, "{layering:?}");
        }
    }

    #[test]
    fn the_gradient_policy_uses_one_number_for_all_layers() {
        let mut world = World::new(Layering::Climbing);
        world.run(300);
        assert!((5..=12).contains(&world.writers), "{}", world.writers);
    }

    #[test]
    fn layers_do_not_change_right_after_the_streams() {
        let mut world = World::new(Layering::Controlled(FixedFlows::default()));
        for _ in 0..40 {
            world.steering.handle_streams(world.at, Duration::ZERO);
            world.step();
        }
        assert_eq!(world.writers, 1);
    }
}
