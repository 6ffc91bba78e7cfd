//! Parameters of a simulated run, and a generator of random ones.

use std::time::Duration;

use longhaul_proto::digest::Integrity;
use longhaul_proto::receiver::ReceiverSettings;
use longhaul_proto::sender::SenderSettings;
use longhaul_units::Moment;

use super::network::{End, Link};
use super::random::Random;
use super::source::Source;

/// Minimum and maximum of a random span.
pub type Spans = (Duration, Duration);

/// An external event during a run.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// Kills the n-th live stream.
    Kill(u64),
    /// Kills all streams.
    Cut,
    /// Kills both processes and starts them again.
    Restart,
    /// Changes the n-th node.
    Change(u64),
    /// Removes the n-th node.
    Vanish(u64),
    /// Sets the numbers of readers, streams and writers from the steering end.
    SetFlows(u32, u32, u32),
}

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub seed: u64,
    pub source: Source,
    pub sender: SenderSettings,
    pub receiver: ReceiverSettings,
    /// Properties of the first streams. Later ones have those of the last.
    pub links: Vec<Link>,
    pub dialer: End,
    pub steerer: End,
    pub readers: usize,
    pub writers: usize,
    /// Maximum number of blocks that are read and not taken by a stream.
    pub pool: usize,
    pub walk: Spans,
    pub read: Spans,
    pub write: Spans,
    pub store: Spans,
    pub redial: Spans,
    /// Maximum additional time of a frame, as a factor on its link's time.
    pub jitter: f64,
    /// Delay until the other end's process reads data from its kernel.
    pub reading: Spans,
    /// Maximum difference of the times at which the ends notice a stream's death.
    pub notice: Spans,
    pub linger: Duration,
    pub faults: Vec<(Moment, Fault)>,
    /// Number of corrupt blocks per thousand.
    pub corrupt: u64,
    /// Number of nodes per thousand that fail at the destination.
    pub failing: u64,
    /// True if streams exist from the start, without a handshake.
    pub warm: bool,
}

pub const fn milliseconds(n: u64) -> Duration {
    Duration::from_millis(n)
}

const NONE: Spans = (Duration::ZERO, Duration::ZERO);

impl Scenario {
    /// Makes a plain run, in which only the network takes time.
    pub fn plain(source: Source, links: Vec<Link>, block: u64) -> Scenario {
        Scenario {
            seed: 1,
            source,
            sender: SenderSettings {
                block_bytes: block,
                ..SenderSettings::default()
            },
            receiver: ReceiverSettings::default(),
            links,
            dialer: End::Sender,
            steerer: End::Sender,
            readers: 4,
            writers: 4,
            pool: 16,
            walk: NONE,
            read: NONE,
            write: NONE,
            store: NONE,
            redial: (milliseconds(10), milliseconds(10)),
            jitter: 0.0,
            reading: NONE,
            notice: NONE,
            linger: Duration::from_secs(60),
            faults: Vec::new(),
            corrupt: 0,
            failing: 0,
            warm: true,
        }
    }

    /// Makes the random run of a seed.
    pub fn random(seed: u64) -> Scenario {
        let mut random = Random::new(seed);
        let block = random.pick(&[1024, 1024, 2048, 4096]);
        let nodes = random.pick(&[3, 10, 30, 60]);
        let source = Source::random(&mut random, nodes, block);
        let mut scenario = Scenario::plain(source, random_links(&mut random), block);
        scenario.seed = seed;
        random_settings(&mut scenario, &mut random);
        random_times(&mut scenario, &mut random);
        scenario.dialer = random.pick(&[End::Sender, End::Receiver]);
        scenario.steerer = random.pick(&[End::Sender, End::Receiver]);
        scenario.readers = random.between(1, 8) as usize;
        scenario.writers = random.between(1, 8) as usize;
        scenario.pool = random.between(1, 16) as usize;
        scenario.jitter = random.pick(&[0.0, 0.5, 5.0]);
        scenario.corrupt = random.pick(&[0, 0, 20, 100]);
        scenario.failing = random.pick(&[0, 0, 50]);
        scenario.warm = false;
        random_faults(&mut scenario, &mut random);
        scenario
    }
}

fn random_links(random: &mut Random) -> Vec<Link> {
    let latency = random.between(100, 200_000);
    (0..random.between(1, 6))
        .map(|_| Link {
            rate: random.pick(&[1e5, 1e6, 1e6, 1e7]),
            latency: Duration::from_micros(latency + random.below(latency / 2 + 1)),
            buffer: random.between(1, 40_000) as usize,
            stalls: None,
        })
        .collect()
}

fn random_settings(scenario: &mut Scenario, random: &mut Random) {
    let integrity = random.pick(&[Integrity::Digest, Integrity::Checksum]);
    let sender = &mut scenario.sender;
    sender.pack_entries = random.between(1, 20) as usize;
    // The window must hold the open directories of the deepest path and one more entry.
    sender.window_entries = random.between(8, 40) as usize;
    sender.unacknowledged_entries = random.between(1, 40) as usize;
    sender.unacknowledged_blocks = random.between(1, 60) as usize;
    sender.large_files = random.pick(&[1, 2, 5, 4096]);
    sender.asks = random.chance(500);
    let receiver = &mut scenario.receiver;
    receiver.integrity = integrity;
    receiver.checkpoint_bytes = random.pick(&[1, 5000, 50_000, 1 << 28]);
    receiver.checkpoint_span = milliseconds(random.pick(&[1, 50, 1000]));
    receiver.digests = random.chance(500);
}

fn random_times(scenario: &mut Scenario, random: &mut Random) {
    let mut spans = |longest: u64| {
        let most = random.below(longest * 1000) + 1;
        (Duration::ZERO, Duration::from_micros(most))
    };
    scenario.walk = spans(2);
    scenario.read = spans(20);
    scenario.write = spans(20);
    scenario.store = spans(100);
    scenario.redial = spans(300);
    scenario.reading = spans(5);
    scenario.notice = spans(500);
    scenario.linger = milliseconds(random.pick(&[50, 1000, 60_000]));
}

fn random_faults(scenario: &mut Scenario, random: &mut Random) {
    let span = random.pick(&[300_000, 3_000_000]);
    let kinds = random.next();
    for _ in 0..random.below(12) {
        let n = random.next();
        let flows = |random: &mut Random, now: usize| {
            if random.chance(500) {
                now as u32 * 2
            } else {
                (now as u32 / 2).max(1)
            }
        };
        let kind = random.below(9);
        if kinds >> kind & 1 == 0 {
            continue;
        }
        let fault = match kind {
            0..=2 => Fault::Kill(n),
            3 => Fault::Cut,
            4 => Fault::Restart,
            5 | 6 => Fault::Change(n),
            7 => Fault::Vanish(n),
            _ => Fault::SetFlows(
                flows(random, scenario.readers),
                flows(random, scenario.links.len()),
                flows(random, scenario.writers),
            ),
        };
        let at = Moment(random.below(span) * 1000);
        scenario.faults.push((at, fault));
    }
}
