//! BBR streams as fluids on one path, with and without a leveller.

use std::collections::VecDeque;
use std::time::Duration;

use longhaul_proto::session::StreamId;
use longhaul_units::Moment;

use super::super::{Delivered, Flow, Governed, Leveller};
use super::{Carried, Coupled, EXCESS};

const RTT: Duration = Duration::from_millis(100);
const SEGMENT: f64 = 1448.0;

/// A stream that keeps the maximum rate of ten round trips and tries a quarter more in one of
/// eight, at a time of its own.
struct Stream {
    rates: [f64; 10],
    round: usize,
    delivered: f64,
    retransmitted: f64,
    paced: f64,
}

impl Stream {
    fn wants(&self) -> f64 {
        let estimate = self.rates.iter().copied().fold(1e6, f64::max);
        let gain = match self.round % 8 {
            _ if self.round < 10 => 2.89,
            0 => 1.25,
            1 => 0.75,
            _ => 1.0,
        };
        estimate * gain
    }
}

/// Results of a simulation over a time.
#[derive(Default)]
struct Outcome {
    delivered: Vec<f64>,
    lost: f64,
    bounds: VecDeque<Option<u64>>,
}

/// A path with a capacity in bytes per second and a queue of this many round trips.
struct Path {
    rtt: Duration,
    capacity: f64,
    room: f64,
    queue: f64,
    /// Queue that other traffic keeps, and queue that stands in one of 16 observations.
    others: Duration,
    wanders: Duration,
    /// Fraction of the time in which the sending host pauses, again and again.
    rests: f64,
    /// Fraction of the sent data that is lost at random.
    chance: f64,
    streams: Vec<Stream>,
    now: Duration,
}

impl Path {
    fn new(streams: usize, capacity: f64, room: f64) -> Path {
        let stream = |round| Stream {
            rates: [0.0; 10],
            round: round % 5,
            delivered: 0.0,
            retransmitted: 0.0,
            paced: 0.0,
        };
        Path {
            rtt: RTT,
            capacity,
            room,
            queue: 0.0,
            others: Duration::ZERO,
            wanders: Duration::ZERO,
            rests: 0.0,
            chance: 0.0,
            streams: (0..streams).map(stream).collect(),
            now: Duration::ZERO,
        }
    }

    /// Simulates this many round trips, with an observation every quarter of one.
    fn run(&mut self, leveller: Option<&mut Leveller>, round_trips: usize) -> Outcome {
        let mut leveller = leveller;
        let count = self.streams.len();
        let mut outcome = Outcome {
            delivered: vec![0.0; count],
            ..Outcome::default()
        };
        let step = self.rtt / 4;
        let seconds = step.as_secs_f64();
        let product = self.capacity * self.rtt.as_secs_f64();
        let mut round = vec![0.0; count];
        for look in 0..round_trips * 4 {
            self.now += step;
            let bound = |at: usize, leveller: &Option<&mut Leveller>| {
                let pace = leveller.as_ref()?.pace_of(StreamId(at as u32))?;
                Some(pace as f64)
            };
            let works = 1.0 - self.rests;
            let sent: Vec<f64> = (0..count)
                .map(|at| {
                    let wants = self.streams[at].wants();
                    let window = 2.0 * wants / (1.0 + self.queue / product);
                    let bound = bound(at, &leveller).unwrap_or(f64::INFINITY);
                    self.streams[at].paced = wants.min(bound);
                    wants.min(window).min(bound) * seconds * works
                })
                .collect();
            let all: f64 = sent.iter().sum();
            let carried = (all + self.queue).min(self.capacity * seconds);
            self.queue = (self.queue + all - carried).max(0.0);
            let over = (self.queue - self.room * product).max(0.0);
            self.queue -= over;
            for (at, stream) in self.streams.iter_mut().enumerate() {
                let part = sent[at] / all.max(1.0);
                let arrived = carried * part * (1.0 - self.chance);
                stream.delivered += arrived;
                stream.retransmitted += over * part + carried * part * self.chance;
                outcome.delivered[at] += arrived;
                round[at] += arrived;
                if look % 4 == 3 {
                    // A rate applies to the time between two pauses.
                    stream.rates[stream.round % 10] = round[at] / self.rtt.as_secs_f64() / works;
                    stream.round += 1;
                    round[at] = 0.0;
                }
            }
            outcome.lost += over;
            let wanders = if look % 16 == 0 {
                self.wanders
            } else {
                Duration::ZERO
            };
            let waits = self.rtt.mul_f64(self.queue / product) + self.others + wanders;
            if let Some(leveller) = leveller.as_mut() {
                let at = Moment(0) + self.now;
                leveller.handle_look(at, Governed::ByRate, self.flows(waits));
                outcome.bounds.push_back(leveller.pace_of(StreamId(0)));
            }
        }
        outcome
    }

    fn flows(&self, waits: Duration) -> Vec<Flow> {
        let flow = |(at, stream): (usize, &Stream)| Flow {
            stream: StreamId(at as u32),
            delivered: Delivered::Segments((stream.delivered / SEGMENT) as u32, SEGMENT as u64),
            rtt: self.rtt + waits,
            minimum_rtt: self.rtt,
            lost: stream.retransmitted > 0.0,
            retransmitted: ((stream.retransmitted / SEGMENT) as u32, SEGMENT as u64),
            waits: true,
            in_slow_start: true,
            first_slow_start: true,
            pacing: Some(stream.paced),
        };
        self.streams.iter().enumerate().map(flow).collect()
    }
}

impl Outcome {
    fn carried(&self) -> f64 {
        self.delivered.iter().sum()
    }

    fn lost_part(&self) -> f64 {
        self.lost / (self.lost + self.carried())
    }

    fn unevenness(&self) -> f64 {
        let most = self.delivered.iter().copied().fold(0.0, f64::max);
        most / self.delivered.iter().copied().fold(f64::INFINITY, f64::min)
    }
}

#[test]
fn coupled_streams_fill_the_path_with_few_losses() {
    for streams in [2, 4, 16] {
        for room in [0.03, 0.1, 0.5] {
            let mut alone = Path::new(streams, 100e6, room);
            alone.run(None, 50);
            let alone = alone.run(None, 200);
            let mut path = Path::new(streams, 100e6, room);
            let mut leveller = Leveller::default();
            path.run(Some(&mut leveller), 50);
            let coupled = path.run(Some(&mut leveller), 200);
            let what = format!("{streams} streams, a queue of {room} products");
            let used = coupled.carried() / (100e6 * 20.0);
            assert!(used >= 0.97, "{what}: {used}");
            let (before, after) = (alone.lost_part(), coupled.lost_part());
            let less = after <= 0.03 && before >= 0.1;
            assert!(less, "{what}: {after}, {before} without");
            let uneven = coupled.unevenness();
            assert!(uneven <= 1.5, "{what}: {uneven}");
        }
    }
}

#[test]
fn a_higher_rate_of_the_path_is_detected() {
    // The host is busy with other work at times, or many segments are lost.
    let wanders = RTT * 15 / 100;
    for (rests, chance, wanders) in [
        (0.0, 0.0, Duration::ZERO),
        (0.06, 0.0, Duration::ZERO),
        (0.12, 0.0, Duration::ZERO),
        (0.0, 0.012, Duration::ZERO),
        (0.0, 0.02, Duration::ZERO),
        (0.06, 0.02, Duration::ZERO),
        (0.0, 0.05, Duration::ZERO),
        (0.0, 0.1, Duration::ZERO),
        (0.06, 0.1, Duration::ZERO),
        (0.0, 0.0, wanders),
        (0.06, 0.0, wanders),
        (0.0, 0.03, wanders),
    ] {
        let mut path = Path::new(4, 25e6, 0.1);
        (path.rests, path.chance, path.wanders) = (rests, chance, wanders);
        let mut leveller = Leveller::default();
        path.run(Some(&mut leveller), 100);
        path.capacity = 100e6;
        path.run(Some(&mut leveller), 200);
        let after = path.run(Some(&mut leveller), 200);
        let used = after.carried() / (100e6 * 20.0 * (1.0 - chance));
        assert!(used >= 0.93, "{used} with {rests}, {chance}, {wanders:?}");
    }
}

#[test]
fn the_rate_of_a_slow_host_is_not_taken_for_that_of_the_path() {
    let mut path = Path::new(4, 100e6, 0.5);
    let mut leveller = Leveller::default();
    path.run(Some(&mut leveller), 100);
    // Other traffic keeps a short queue for minutes.
    (path.others, path.rests) = (RTT * 14 / 100, 0.06);
    path.run(Some(&mut leveller), 2000);
    let after = path.run(Some(&mut leveller), 100);
    let used = after.carried() / (100e6 * 10.0);
    assert!(used >= 0.88, "{used}");
}

#[test]
fn random_loss_does_not_end_the_start() {
    for chance in [0.0, 0.05, 0.1] {
        let mut path = Path::new(4, 100e6, 0.5);
        path.chance = chance;
        let mut leveller = Leveller::default();
        path.run(Some(&mut leveller), 15);
        let after = path.run(Some(&mut leveller), 10);
        let used = after.carried() / (100e6 * (1.0 - chance));
        assert!(used >= 0.8, "{used} with {chance}");
    }
}

#[test]
fn a_slower_path_without_a_queue_gets_a_lower_bound() {
    for capacity in [20e6, 60e6] {
        for (before, room) in [(100, 0.02), (400, 0.02), (400, 0.1), (420, 0.05)] {
            let mut path = Path::new(4, 100e6, room);
            let mut leveller = Leveller::default();
            path.run(Some(&mut leveller), before);
            path.capacity = capacity;
            path.run(Some(&mut leveller), 100);
            let after = path.run(Some(&mut leveller), 200);
            let (used, lost) = (after.carried() / (capacity * 20.0), after.lost_part());
            let what = format!("{capacity}, {room} after {before}");
            assert!(used >= 0.95 && lost <= 0.03, "{used}, {lost} with {what}");
        }
    }
}

/// The queue is long enough to be seen and too short to be drained.
#[test]
fn a_much_slower_long_path_gets_a_lower_bound() {
    let mut path = Path::new(4, 100e6, 0.05);
    path.rtt = RTT * 6;
    let mut leveller = Leveller::default();
    path.run(Some(&mut leveller), 100);
    path.capacity = 10e6;
    path.run(Some(&mut leveller), 60);
    let after = path.run(Some(&mut leveller), 100);
    let (used, lost) = (after.carried() / (10e6 * 60.0), after.lost_part());
    assert!(used >= 0.95 && lost <= 0.03, "{used}, {lost}");
}

/// Random losses change: sending less does not help, and is not repeated again and again.
#[test]
fn growing_random_loss_is_not_an_overflow() {
    for (first, then) in [
        (0.01, 0.08),
        (0.0, 0.08),
        (0.05, 0.15),
        (0.01, 0.18),
        (0.1, 0.1),
    ] {
        for before in [100, 105, 110, 200] {
            let mut path = Path::new(4, 100e6, 0.5);
            path.chance = first;
            let mut leveller = Leveller::default();
            path.run(Some(&mut leveller), before);
            path.chance = then;
            let soon = path.run(Some(&mut leveller), 150);
            let later = path.run(Some(&mut leveller), 400);
            let part = |outcome: &Outcome, round_trips: f64| {
                outcome.carried() / (100e6 * RTT.as_secs_f64() * round_trips * (1.0 - then))
            };
            let (soon, later) = (part(&soon, 150.0), part(&later, 400.0));
            let what = format!("{first}, {then}: {soon}, {later}");
            // Beyond a tenth of losses, streams regain a lost rate slowly.
            let least = if then > 0.1 { 0.5 } else { 0.85 };
            assert!(soon >= least && later >= 0.85, "{what}");
        }
    }
}

/// In a trickle one lost segment in eight is soon reached, and is no evidence about the path.
#[test]
fn losses_of_a_trickle_are_no_evidence_about_the_path() {
    for supplied in [true, false] {
        let mut coupled = Coupled::default();
        (coupled.chance, coupled.until_tried) = (0.03, 20);
        let mut overflows = false;
        for _ in 0..3 {
            let found = coupled.handle_measure(&Carried {
                rates: vec![(StreamId(0), 20e3)],
                before: 100e6,
                lost: 0.12,
                supplied,
                bound: Some(100e6),
                held: false,
            });
            overflows |= found.overflows;
        }
        assert_eq!(overflows, supplied);
        coupled.until_tried = 1;
        let measure = Carried {
            rates: vec![(StreamId(0), 20e3)],
            before: 100e6,
            lost: 0.0,
            supplied,
            bound: Some(100e6),
            held: false,
        };
        coupled.handle_measure(&measure);
        assert_eq!(coupled.chance > 0.0, !supplied);
    }
}

#[test]
fn a_slower_path_gets_a_lower_bound() {
    for room in [0.15, 0.25, 0.5, 1.0] {
        let mut path = Path::new(4, 100e6, room);
        let mut leveller = Leveller::default();
        path.run(Some(&mut leveller), 100);
        path.capacity = 60e6;
        path.run(Some(&mut leveller), 100);
        let after = path.run(Some(&mut leveller), 100);
        let used = after.carried() / (60e6 * 10.0);
        assert!(used >= 0.95, "{used} with {room}");
        let lost = after.lost_part();
        assert!(lost <= 0.03, "{lost} with {room}");
    }
}

#[test]
fn a_queue_of_other_traffic_lifts_the_bound_for_a_while() {
    let mut path = Path::new(4, 100e6, 0.5);
    let mut leveller = Leveller::default();
    let before = path.run(Some(&mut leveller), 100);
    assert!(before.bounds.back().is_some_and(Option::is_some));
    path.others = RTT;
    let after = path.run(Some(&mut leveller), 40);
    assert_eq!(after.bounds.back(), Some(&None));
    // The value stays until the next measurement.
    path.others = Duration::ZERO;
    let later = path.run(Some(&mut leveller), 120);
    assert!(later.bounds.back().is_some_and(Option::is_some));
}

#[test]
fn the_unused_share_of_a_stream_goes_to_the_others() {
    let mut coupled = Coupled::default();
    let streams: Vec<StreamId> = (0..4).map(StreamId).collect();
    assert_eq!(coupled.share(100.0, &streams), 25.0);
    let rates = [30.0, 30.0, 10.0, 10.0];
    let found = coupled.handle_measure(&Carried {
        rates: streams.iter().copied().zip(rates).collect(),
        before: 75.0,
        lost: 0.0,
        supplied: true,
        bound: Some(25.0),
        held: false,
    });
    assert!(found.more && !found.full);
    assert_eq!(coupled.share(100.0, &streams), 38.0);
    // The streams are gone, and so are their rates.
    assert_eq!(coupled.share(100.0, &streams[..2]), 50.0);
    // Random losses are no other limit: 16 of 25 arrive.
    coupled.chance = 0.2;
    let rates = [16.0, 16.0, 16.0, 5.0];
    coupled.handle_measure(&Carried {
        rates: streams.iter().copied().zip(rates).collect(),
        before: 75.0,
        lost: 0.2,
        supplied: true,
        bound: Some(25.0),
        held: false,
    });
    assert_eq!(coupled.share(100.0, &streams), 94.0 / 3.0);
    // If all streams are slow, the source is the cause.
    assert_eq!(coupled.share(12.0, &streams[3..]), 12.0);
}

#[test]
fn random_losses_are_compensated_and_overflows_lower_the_bound() {
    let part = |lost: f64| {
        let mut coupled = Coupled::default();
        coupled.handle_measure(&Carried {
            rates: vec![(StreamId(0), 100.0)],
            before: 100.0,
            lost,
            supplied: true,
            bound: None,
            held: false,
        });
        coupled.part(Moment(0), RTT, Duration::ZERO, &mut 100.0)
    };
    assert_eq!(part(0.0), Some(1.0 + EXCESS.0));
    assert_eq!(part(0.004), Some(1.0 + EXCESS.0));
    assert!(part(0.01).is_some_and(|part| part < 1.0 + EXCESS.0 && part > 1.01));
    assert_eq!(part(0.1), Some(1.02));
}
