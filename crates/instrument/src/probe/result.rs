//! What a probe found, before it is printed.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use longhaul_engine::net::tcp_info::Agreed;
use longhaul_engine::probe::this_host;
use longhaul_measure::doubt::Doubt;
use longhaul_measure::host::HostDescription;
use longhaul_measure::sources::Direction;
use longhaul_measure::sources::ExternalRun;
use longhaul_measure::stats::{median, quantile, sorted};
use longhaul_model::advice::{Advice, PathFacts, advise};
use longhaul_model::kernel::BufferLimits;
use longhaul_model::response::Congestion;
use longhaul_system::clock;

use super::known::KnownPath;
use super::trial::{EndFacts, Trial};
use super::unqueued::Unqueued;

/// Rates this close to the greatest are as good: what repetitions differ by.
const AS_GOOD: f64 = 0.97;

/// Streams that carry less than this part of the best rate do not fill the path. One CUBIC stream
/// keeps more of a path's rate without any queue.
const FAR_LESS: f64 = 0.6;

/// Losses in fewer intervals of a trial of few streams may be one event.
const LEAST_OF_FEWEST: usize = 2;

/// Seconds until a thread runs and has said, or heard, what time it is.
const THREADS: f64 = 1e-3;

/// Everything.
pub struct Probe {
    /// What was probed.
    pub endpoint: Option<String>,
    /// The daemon's software.
    pub software: String,
    /// How data were protected.
    pub protection: &'static str,
    /// Unlike that of other probes: seconds since 1970 when it began.
    pub number: u64,
    /// When it began, in RFC 3339 format.
    pub started: String,
    /// Each path by itself.
    pub paths: Vec<PathResult>,
    /// What other instruments measured, and their files.
    pub external: Vec<(String, ExternalRun)>,
    /// This host.
    pub host: HostDescription,
    /// What is known of the path without measuring it.
    pub known: Option<KnownPath>,
}

impl Probe {
    /// A probe that begins now, on this host, and has measured nothing yet.
    pub fn begin(external: Vec<(String, ExternalRun)>) -> Probe {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Probe {
            endpoint: None,
            software: String::new(),
            protection: "",
            number: since.map_or(0, |since| since.as_secs()),
            started: clock::now(),
            paths: Vec::new(),
            external,
            host: this_host::describe(),
            known: None,
        }
    }
}

/// One path: from one local address to one of the daemon's.
pub struct PathResult {
    /// The daemon's address.
    pub address: SocketAddr,
    /// This host's, where it was named.
    pub local: Option<IpAddr>,
    /// Why nothing was measured.
    pub failure: Option<String>,
    /// Round trips of connections, in seconds, in the order they were made.
    pub round_trips: Vec<f64>,
    /// Bytes in a segment.
    pub segment: u64,
    /// The largest packet.
    pub path_mtu: u64,
    /// What both ends agreed on.
    pub options: Agreed,
    /// The daemon's clock, where it was said.
    pub clock: Option<Clock>,
    /// The daemon's host, where it tells.
    pub host: Option<HostDescription>,
    /// It is the one that a copy takes: the first of those to the address that answers
    /// first.
    pub is_usual: bool,
    /// Each direction.
    pub ways: Vec<Way>,
}

/// How far a clock is ahead.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clock {
    /// Seconds, negative where it is behind.
    pub ahead: f64,
    /// Seconds that this may be wrong by: half a round trip.
    pub uncertainty: f64,
}

impl Clock {
    /// From what was heard (see `Transfer::clock_lead`): a message takes about
    /// half a round trip, at least nothing and at most all of it; and the hosts'
    /// threads take their time.
    pub fn of(lead: i64, least_rtt: f64) -> Clock {
        Clock {
            ahead: lead as f64 / 1e9 + least_rtt / 2.0,
            uncertainty: least_rtt / 2.0 + THREADS,
        }
    }
}

/// One direction of a path.
pub struct Way {
    /// Which.
    pub direction: Direction,
    /// All repetitions, in their order.
    pub trials: Vec<Trial>,
    /// The end that sends.
    pub sender: EndFacts,
    /// The end that receives.
    pub receiver: EndFacts,
}

/// Quantiles of round trips, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoundTrips {
    /// The least.
    pub least: f64,
    /// The middle.
    pub median: f64,
    /// At 95 of 100.
    pub high: f64,
    /// The greatest.
    pub greatest: f64,
}

impl PathResult {
    /// The distribution of round trips; `None` if none was made.
    pub fn distribution(&self) -> Option<RoundTrips> {
        let ascending = sorted(&self.round_trips);
        Some(RoundTrips {
            least: *ascending.first()?,
            median: quantile(&ascending, 0.5)?,
            high: quantile(&ascending, 0.95)?,
            greatest: *ascending.last()?,
        })
    }

    /// The least round trip.
    pub fn least(&self) -> Duration {
        let least = self.distribution().map_or(0.0, |found| found.least);
        Duration::try_from_secs_f64(least).unwrap_or_default()
    }

    /// What to tell about a direction.
    pub fn advice(&self, way: &Way) -> Vec<Advice> {
        way.facts(self)
            .map_or_else(Vec::new, |facts| advise(&facts))
    }

    fn refused_options(&self) -> Vec<&'static str> {
        let options = [
            (self.options.timestamps, "net.ipv4.tcp_timestamps"),
            (self.options.selective, "net.ipv4.tcp_sack"),
            (self.options.scaling, "net.ipv4.tcp_window_scaling"),
        ];
        let refused = options.into_iter().filter(|option| !option.0);
        refused.map(|option| option.1).collect()
    }
}

impl Way {
    /// The stream counts, ascending.
    pub fn counts(&self) -> Vec<u32> {
        let mut counts: Vec<u32> = self.trials.iter().map(|trial| trial.streams).collect();
        counts.sort_unstable();
        counts.dedup();
        counts
    }

    /// Repetitions of a stream count.
    pub fn of(&self, streams: u32) -> impl Iterator<Item = &Trial> {
        self.trials.iter().filter(move |t| t.streams == streams)
    }

    /// A figure of a stream count: the median of its repetitions.
    pub fn median(&self, streams: u32, value: fn(&Trial) -> f64) -> f64 {
        let values: Vec<f64> = self.of(streams).map(value).collect();
        median(&values).unwrap_or(0.0)
    }

    /// The same of a figure that not every repetition has; `None` if no repetition does.
    pub fn median_if_any(&self, streams: u32, value: fn(&Trial) -> Option<f64>) -> Option<f64> {
        let values: Vec<f64> = self.of(streams).filter_map(value).collect();
        median(&values)
    }

    /// The fewest streams that are as good as the best, and what they settled at
    /// in bytes per second: the path carries at least that.
    pub fn best(&self) -> Option<(u32, f64)> {
        let settled = |streams| self.median(streams, |trial| trial.settled);
        let counts = self.counts();
        let most = counts.iter().map(|&n| settled(n)).max_by(f64::total_cmp)?;
        let streams = counts.into_iter().find(|&n| settled(n) >= AS_GOOD * most)?;
        Some((streams, settled(streams)))
    }

    /// What to mistrust.
    pub fn doubts(&self, path: &PathResult) -> Vec<Doubt> {
        let Some((streams, _)) = self.best() else {
            return Vec::new();
        };
        let settled: Vec<f64> = self.of(streams).map(|trial| trial.settled).collect();
        let mut doubts = Doubt::of_series(&settled);
        let wall = self.median(streams, |trial| trial.wall.as_secs_f64());
        doubts.extend(Doubt::of_length(wall, path.least().as_secs_f64()));
        let busy = self.median(streams, busiest);
        if busy > 0.9 {
            doubts.push(Doubt::HostCpuBound { busy });
        }
        doubts
    }

    /// The share of segments that were lost without a queue, if the fewest streams lost some again
    /// and again while they carried far less than the path can. A path that is full may drop
    /// segments in a queue too short to be seen.
    fn random_loss(&self, best_streams: u32, best: f64) -> f64 {
        let fewest = self.counts().first().copied().unwrap_or(0);
        let pooled = |streams| {
            let found = self.of(streams).map(|trial| trial.unqueued);
            found.fold(Unqueued::default(), Unqueued::and)
        };
        let few = pooled(fewest);
        let is_free = self.median(fewest, |trial| trial.settled) < FAR_LESS * best;
        if is_free && few.intervals >= LEAST_OF_FEWEST {
            few.and(pooled(best_streams)).loss()
        } else {
            0.0
        }
    }

    fn facts(&self, path: &PathResult) -> Option<PathFacts> {
        let (streams, bytes_per_second) = self.best()?;
        let limits = |end: &EndFacts| BufferLimits {
            tcp_send: end.send_buffer,
            tcp_receive: end.receive_buffer,
            ..BufferLimits::default()
        };
        let seconds = |value: f64| Duration::try_from_secs_f64(value).unwrap_or_default();
        Some(PathFacts {
            rtt: path.least(),
            loaded_rtt: seconds(self.median(streams, |trial| trial.rtt.as_secs_f64())),
            bytes_per_second,
            streams,
            one_stream: (self.of(1).count() > 0).then(|| self.median(1, |trial| trial.settled)),
            loss: self.random_loss(streams, bytes_per_second),
            segment: self.median(streams, |trial| f64::from(trial.segment)) as u32,
            congestion: Congestion::of_name(&self.sender.congestion),
            congestions: self.sender.congestions.clone(),
            sender: limits(&self.sender),
            receiver: limits(&self.receiver),
            processor: Some(self.median(streams, busiest)),
            refused_options: path.refused_options(),
        })
    }
}

/// The share of the cores that the busier host used.
pub fn busiest(trial: &Trial) -> f64 {
    let known = trial.processors.iter().flatten().copied();
    known.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(streams: u32, settled: f64) -> Trial {
        Trial {
            streams,
            most_streams: streams as usize,
            bytes: 1_000_000,
            wall: Duration::from_secs(5),
            bytes_per_second: settled / 2.0,
            settled,
            retransmitted: 0,
            retransmitted_bytes: Some(0),
            duplicates: Some(0),
            lost: Some(0),
            lost_at_end: 0,
            unqueued: Default::default(),
            segments: 690,
            sent: Some(690),
            segment: 1448,
            rtt: Duration::from_millis(100),
            window_limited: 0.0,
            buffer_limited: 1.0,
            processors: [Some(0.2), None],
            samples: Vec::new(),
        }
    }

    fn path() -> PathResult {
        let trials = [
            (1, 28e6),
            (4, 115e6),
            (8, 116e6),
            (1, 30e6),
            (4, 117e6),
            (8, 118e6),
        ];
        let end = EndFacts {
            congestion: "cubic".into(),
            congestions: vec!["cubic".into()],
            send_buffer: Some(4 << 20),
            receive_buffer: Some(6 << 20),
            cores: 2,
        };
        PathResult {
            address: ([192, 0, 2, 1], 4960).into(),
            local: None,
            failure: None,
            round_trips: vec![0.101, 0.1, 0.103],
            segment: 1448,
            path_mtu: 1500,
            options: Agreed {
                timestamps: true,
                selective: true,
                scaling: true,
            },
            clock: None,
            host: None,
            is_usual: true,
            ways: vec![Way {
                direction: Direction::To,
                trials: trials
                    .map(|(streams, settled)| trial(streams, settled))
                    .into(),
                sender: end.clone(),
                receiver: end,
            }],
        }
    }

    #[test]
    fn the_fewest_streams_that_are_as_good_are_best() {
        let path = path();
        let way = &path.ways[0];
        assert_eq!(way.counts(), [1, 4, 8]);
        assert_eq!(way.best(), Some((4, 116e6)));
        let trips = path.distribution().unwrap();
        assert_eq!(
            (trips.least, trips.median, trips.greatest),
            (0.1, 0.101, 0.103)
        );
    }

    #[test]
    fn the_advice_is_of_the_end_whose_window_ends_first() {
        let path = path();
        let advice = path.advice(&path.ways[0]);
        let topics: Vec<_> = advice.iter().map(|advice| advice.topic).collect();
        // 2.9 MB and 3.1 MB, where 17 MB are wanted.
        assert_eq!(topics, ["window", "window"]);
        assert!(advice[0].text.contains("tcp_wmem"), "{advice:?}");
        let doubts = path.ways[0].doubts(&path);
        assert_eq!(doubts, [Doubt::FewRepetitions { repetitions: 2 }]);
    }

    #[test]
    fn random_loss_is_what_few_streams_lose_on_a_path_that_is_not_full() {
        let loss = |one_stream| {
            let lossy = |streams, settled, lost| Trial {
                unqueued: Unqueued {
                    lost,
                    sent: lost * 1000,
                    intervals: lost as usize,
                },
                ..trial(streams, settled)
            };
            let mut path = path();
            path.ways[0].trials = vec![lossy(1, one_stream, 2), lossy(4, 100e6, 30)];
            path.ways[0].facts(&path).unwrap().loss
        };
        assert!((loss(30e6) - 1e-3).abs() < 1e-12);
        // One stream nearly fills it: a short queue may have dropped them.
        assert_eq!(loss(80e6), 0.0);
    }

    #[test]
    fn a_clock_is_known_to_half_a_round_trip() {
        let clock = Clock::of(1_950_000_000, 0.1);
        assert!((clock.ahead - 2.0).abs() < 1e-9, "{clock:?}");
        assert!((clock.uncertainty - 0.051).abs() < 1e-9, "{clock:?}");
    }
}
