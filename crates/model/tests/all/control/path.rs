//! Simulates a bottleneck with a queue, the streams of several transfers, and the hosts at the
//! ends, in virtual time.

use std::time::Duration;

use longhaul_model::control::start::initial_streams;
use longhaul_model::control::{Controller, Decision, Sample, Settings, StreamSample};
use longhaul_model::response::Congestion;
use longhaul_units::{ByteCount, Moment};

use super::random::Random;
use super::stream::Stream;

/// Size of a segment in bytes at an MTU of 1500 with timestamps, and share of the link's rate that
/// is payload.
pub const SEGMENT: f64 = 1448.0;
pub const PAYLOAD: f64 = 0.9415;

/// Interval between samples.
const SAMPLE_EVERY: f64 = 0.1;

/// The properties of the path and the hosts.
#[derive(Clone, Debug)]
pub struct World {
    pub seed: u64,
    /// Rate of the link in bit/s.
    pub rate: f64,
    /// Round-trip time without a queue, in seconds.
    pub rtt: f64,
    /// Probability that a segment is lost at random.
    pub loss: f64,
    /// Size of the queue as a multiple of the bandwidth-delay product.
    pub buffer: f64,
    /// Maximum bytes in flight of a stream.
    pub window: f64,
    /// Buffer that limits them: the receiver's or the sender's.
    pub window_is_receivers: bool,
    /// Rate of a host's cores in bytes per second, which each stream reduces by a share.
    pub processor: f64,
    pub processor_each: f64,
    /// Rate of the receiving disk in bytes per second.
    pub disk: f64,
    /// CUBIC streams of others: start time, end time, and maximum bytes in flight of each.
    pub others: u32,
    pub others_come: f64,
    pub others_leave: f64,
    pub others_window: f64,
    pub law: Congestion,
    /// New rates in bit/s from given times on. A rate of 0 is an interruption.
    pub changes: Vec<(f64, f64)>,
    /// New round-trip time from a given time on, both in seconds: packets take another route.
    pub reroute: Option<(f64, f64)>,
}

impl Default for World {
    fn default() -> World {
        World {
            seed: 1,
            rate: 1e9,
            rtt: 0.1,
            loss: 0.0,
            buffer: 1.0,
            window: 64e6,
            window_is_receivers: false,
            processor: f64::INFINITY,
            processor_each: 0.0,
            disk: f64::INFINITY,
            others: 0,
            others_come: 0.0,
            others_leave: f64::INFINITY,
            others_window: f64::INFINITY,
            law: Congestion::Cubic,
            changes: Vec::new(),
            reroute: None,
        }
    }
}

/// A transfer: its start time and its settings.
#[derive(Clone, Debug)]
pub struct Transfer {
    pub begins: f64,
    pub settings: Settings,
    pub bytes: Option<u64>,
}

impl Default for Transfer {
    fn default() -> Transfer {
        Transfer {
            begins: 0.0,
            settings: Settings::default(),
            bytes: None,
        }
    }
}

/// The history of one transfer, with a row for each sample.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Time in seconds, bytes acknowledged so far, and wanted number of streams.
    pub rows: Vec<(f64, f64, u32)>,
    pub decisions: Vec<(f64, Decision)>,
    pub bounds: Vec<(f64, longhaul_model::control::Bound)>,
}

impl Trace {
    /// Returns the mean goodput in bit/s between two times.
    pub fn rate(&self, from: f64, to: f64) -> f64 {
        let at = |time: f64| {
            let row = self.rows.iter().find(|row| row.0 >= time - 1e-9);
            row.or(self.rows.last()).copied().unwrap_or_default()
        };
        let (first, last) = (at(from), at(to));
        8.0 * (last.1 - first.1) / (last.0 - first.0).max(1e-9)
    }

    pub fn streams(&self) -> u32 {
        self.rows.last().map_or(0, |row| row.2)
    }

    /// Returns the number of decisions after `from` that changed the number of streams.
    pub fn stream_changes(&self, from: f64) -> usize {
        let counts: Vec<u32> = self
            .rows
            .iter()
            .filter(|row| row.0 >= from)
            .map(|row| row.2)
            .collect();
        counts.windows(2).filter(|pair| pair[0] != pair[1]).count()
    }
}

struct End {
    transfer: Transfer,
    controller: Option<Controller>,
    trace: Trace,
    /// Bytes of closed streams.
    closed: f64,
    /// Utilisation of the cores and of the disk in the last step.
    processor: f64,
    disk: f64,
}

struct Run {
    world: World,
    random: Random,
    ends: Vec<End>,
    streams: Vec<Stream>,
    queue: f64,
    /// Size of the queue in segments.
    room: f64,
    rate: f64,
    next: u32,
}

/// Runs transfers for a time in seconds.
pub fn run(world: &World, transfers: &[Transfer], seconds: f64) -> Vec<Trace> {
    let ends = transfers.iter().map(|transfer| End {
        transfer: transfer.clone(),
        controller: None,
        trace: Trace::default(),
        closed: 0.0,
        processor: 0.0,
        disk: 0.0,
    });
    let mut run = Run {
        random: Random::new(world.seed),
        ends: ends.collect(),
        streams: Vec::new(),
        queue: 0.0,
        room: world.buffer * world.rate * PAYLOAD / 8.0 / SEGMENT * world.rtt,
        rate: world.rate,
        next: 0,
        world: world.clone(),
    };
    let nobody = transfers.len();
    for _ in 0..world.others {
        run.open(nobody, Congestion::Cubic, world.others_come);
    }
    let step = (world.rtt / 10.0).clamp(0.000_5, 0.005);
    let (mut now, mut sample) = (0.0, 0.0);
    while now < seconds {
        run.step(now, step);
        now += step;
        if now >= sample {
            sample += SAMPLE_EVERY;
            for index in 0..run.ends.len() {
                run.look(index, now);
            }
        }
    }
    run.ends.into_iter().map(|end| end.trace).collect()
}

impl Run {
    fn open(&mut self, owner: usize, law: Congestion, opens: f64) {
        let stream = Stream::new(self.next, owner, law, opens, self.world.rtt);
        self.next += 1;
        self.streams.push(stream);
    }

    /// Applies the changes of the path at this time.
    fn change(&mut self, now: f64) {
        let changes = self.world.changes.iter();
        if let Some((_, rate)) = changes.rev().find(|change| change.0 <= now) {
            self.rate = *rate;
        }
        if let Some((_, rtt)) = self.world.reroute.filter(|(at, _)| *at <= now) {
            self.world.rtt = rtt;
        }
        if now >= self.world.others_leave {
            let nobody = self.ends.len();
            self.streams.retain(|stream| stream.owner != nobody);
        }
    }

    /// Advances the simulation by one step.
    fn step(&mut self, now: f64, step: f64) {
        self.change(now);
        if self.rate <= 0.0 {
            // An interruption loses the queue.
            self.queue = 0.0;
            return self.silence(step);
        }
        let capacity = self.rate * PAYLOAD / 8.0 / SEGMENT;
        let full = self.world.rate * PAYLOAD / 8.0 / SEGMENT;
        let rtt = self.world.rtt + self.queue / capacity.max(full / 100.0);
        let window = self.world.window / SEGMENT;
        let nobody = self.ends.len();
        let others_window = self.world.others_window / SEGMENT;
        let window_of = |stream: &Stream| {
            if stream.owner == nobody {
                window.min(others_window)
            } else {
                window
            }
        };
        let demands: Vec<f64> = self
            .streams
            .iter()
            .map(|stream| {
                if stream.opens > now {
                    return 0.0;
                }
                let pace = stream.pace.map_or(f64::INFINITY, |bytes| bytes / SEGMENT);
                stream
                    .demand(rtt, now)
                    .min(window_of(stream) / rtt)
                    .min(pace)
            })
            .collect();
        let supply = self.supply(&demands);
        let offered: f64 = demands
            .iter()
            .zip(&self.streams)
            .map(|(d, s)| d * supply[s.owner])
            .sum();
        let arrived = self.queue + offered * step;
        let leaving = (capacity * step).min(arrived);
        let overflow = (arrived - leaving - self.room).max(0.0);
        self.queue = arrived - leaving - overflow;
        let dropped = if offered > 0.0 {
            (overflow / (offered * step)).min(1.0)
        } else {
            0.0
        };
        let delivered = if offered > 0.0 {
            (leaving / (offered * step)).min(1.0)
        } else {
            0.0
        };
        for (index, demand) in demands.iter().enumerate() {
            let window = window_of(&self.streams[index]);
            let owner = self.streams[index].owner;
            let sent = demand * supply[owner] * step;
            self.advance(
                index,
                sent,
                (dropped, delivered),
                rtt,
                (now, step),
                supply[owner],
                window,
            );
        }
    }

    fn silence(&mut self, step: f64) {
        for stream in &mut self.streams {
            stream.busy += step;
        }
    }

    /// Returns for each owner the share of its streams' demand that its hosts satisfy.
    fn supply(&mut self, demands: &[f64]) -> Vec<f64> {
        let mut supply = vec![1.0; self.ends.len() + 1];
        for (owner, end) in self.ends.iter_mut().enumerate() {
            let own = demands
                .iter()
                .zip(&self.streams)
                .filter(|(_, s)| s.owner == owner);
            let (wanted, count) =
                own.fold((0.0, 0.0), |(sum, n), (d, _)| (sum + d * SEGMENT, n + 1.0));
            let cores = self.world.processor / (1.0 + self.world.processor_each * count);
            if wanted > 0.0 {
                supply[owner] = (cores.min(self.world.disk) / wanted).min(1.0);
                let carried = wanted * supply[owner];
                end.processor = carried / cores;
                end.disk = carried / self.world.disk;
            }
        }
        supply
    }

    #[allow(clippy::too_many_arguments)]
    fn advance(
        &mut self,
        index: usize,
        sent: f64,
        (dropped, delivered): (f64, f64),
        rtt: f64,
        (now, step): (f64, f64),
        supply: f64,
        window: f64,
    ) {
        let stream = &mut self.streams[index];
        if stream.opens > now {
            return;
        }
        if now - stream.heard > 1.0 {
            stream.time_out();
        }
        let random = Stream::draws_loss(&mut self.random, sent, self.world.loss);
        let overflows = Stream::draws_loss(&mut self.random, sent, dropped);
        let lost = sent * dropped + f64::from(u8::from(random));
        if random || overflows {
            stream.lose(lost.max(1.0), rtt, now);
        }
        let at_limit = stream.window() >= window;
        let disk_bound = self.world.disk < self.world.processor;
        // If the disk is the limit, the receiver's window closes. If the cores are, streams wait
        // for data.
        let waits = if supply < 1.0 { 1.0 - supply } else { 0.0 };
        if disk_bound {
            stream.busy += step;
            stream.window_limited += step * waits;
        } else {
            stream.busy += step * (1.0 - waits);
        }
        if at_limit && supply >= 1.0 {
            if self.world.window_is_receivers {
                stream.window_limited += step;
            } else {
                stream.buffer_limited += step;
            }
        }
        // A window that pacing does not use does not grow.
        let unused = |pace: f64| stream.window() / rtt >= pace / SEGMENT;
        let limited = at_limit || supply < 1.0 || stream.pace.is_some_and(unused);
        let acknowledged = (sent * delivered - f64::from(u8::from(random))).max(0.0);
        stream.advance(acknowledged, rtt, now, limited);
    }

    /// Passes a sample to a transfer's controller and applies its decision.
    fn look(&mut self, index: usize, now: f64) {
        let begins = self.ends[index].transfer.begins;
        if now < begins {
            return;
        }
        let full = self.world.rate * PAYLOAD / 8.0 / SEGMENT;
        let rtt = Duration::from_secs_f64(self.world.rtt + self.queue / full);
        let at = Moment((now * 1e9) as u64);
        if self.ends[index].controller.is_none() {
            let end = &mut self.ends[index];
            let bytes = end.transfer.bytes.map(ByteCount);
            let settings = end.transfer.settings.clone();
            let streams = initial_streams(rtt, bytes, Some(&settings.congestion));
            let controller = Controller::new(settings, rtt, streams, at);
            let decision = controller.decision().clone();
            end.controller = Some(controller);
            // The first stream opens before the others.
            self.open(index, self.world.law.clone(), now);
            self.apply(index, decision, now);
        }
        let sample = self.sample(index, at);
        let end = &mut self.ends[index];
        let moved: f64 = end.closed
            + self
                .streams
                .iter()
                .filter(|stream| stream.owner == index)
                .map(|stream| stream.acknowledged * SEGMENT)
                .sum::<f64>();
        let Some(controller) = end.controller.as_mut() else {
            return;
        };
        let decision = controller.handle_sample(&sample);
        let wanted = controller.decision().streams;
        end.trace.rows.push((now, moved, wanted));
        if let Some(bound) = controller.bound() {
            end.trace.bounds.push((now, bound));
        }
        if let Some(decision) = decision {
            end.trace.decisions.push((now, decision.clone()));
            self.apply(index, decision, now);
        }
    }

    fn sample(&self, index: usize, at: Moment) -> Sample {
        let span = Duration::from_secs_f64;
        let own = self.streams.iter().filter(|stream| stream.owner == index);
        let open = own.filter(|stream| stream.opens <= at.0 as f64 / 1e9);
        let end = &self.ends[index];
        let moved: f64 = end.closed + open.clone().map(|s| s.acknowledged * SEGMENT).sum::<f64>();
        Sample {
            at,
            streams: open
                .map(|stream| StreamSample {
                    stream: stream.number,
                    path: 0,
                    rtt: span(stream.rtt),
                    minimum_rtt: span(stream.least_rtt.min(stream.rtt)),
                    segment: SEGMENT as u32,
                    congestion_window: (stream.window() * SEGMENT) as u64,
                    send_window: None,
                    acknowledged: (stream.acknowledged * SEGMENT) as u64,
                    retransmitted: stream.retransmitted as u64,
                    busy: span(stream.busy),
                    window_limited: span(stream.window_limited),
                    buffer_limited: span(stream.buffer_limited),
                })
                .collect(),
            congestion: self
                .streams
                .iter()
                .find(|stream| stream.owner == index)
                .map(|stream| stream.law.clone()),
            remaining: end
                .transfer
                .bytes
                .map(|bytes| ByteCount(bytes.saturating_sub(moved as u64))),
            processor: Some(end.processor),
            receiver: Some(end.disk),
        }
    }

    fn apply(&mut self, index: usize, decision: Decision, now: f64) {
        let wanted = decision.streams as usize;
        let own = |stream: &Stream| stream.owner == index;
        let mut live = self.streams.iter().filter(|s| own(s)).count();
        let law = decision
            .congestion
            .clone()
            .unwrap_or(self.world.law.clone());
        while live < wanted {
            // Opening takes three round trips: TCP, TLS and joining.
            self.open(index, law.clone(), now + 3.0 * self.world.rtt);
            live += 1;
        }
        while live > wanted {
            if let Some(last) = self.streams.iter().rposition(own) {
                let gone = self.streams.remove(last);
                self.ends[index].closed += gone.acknowledged * SEGMENT;
            }
            live -= 1;
        }
        for stream in self.streams.iter_mut().filter(|s| own(s)) {
            stream.set_law(&law, now);
            stream.pace = decision.pace;
        }
    }
}
